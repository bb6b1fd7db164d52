//! Access rules of Ingresses of ingress-nginx, from the YAML to the responses.

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};

use crate::support::{Site, ingress};

type TestResult = anyhow::Result<()>;

/// An Ingress of class nginx for a path, with annotations as `name: value` entries without the prefix.
fn restricted(name: &str, annotations: &[String]) -> String {
    let annotations: Vec<String> =
        annotations.iter().map(|entry| format!("\"nginx.ingress.kubernetes.io/{entry}")).collect();
    ingress(name, &format!("/{name}"))
        .replace(
            &format!("{{name: {name}}}"),
            &format!("{{name: {name}, annotations: {{{}}}}}", annotations.join(", ")),
        )
        .replace("spec:\n", "spec:\n  ingressClassName: nginx\n")
}

async fn ask(site: &Site, path: &str, line: &str) -> anyhow::Result<Response> {
    let mut client = Client::connect(site.http).await?;
    Ok(client.request(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n\r\n")).await?)
}

#[tokio::test]
async fn access_annotations_of_ingress_nginx_decide_about_requests() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let login = Backend::start(Behaviour::choose(|request| match request.header("cookie") {
        Some("session=alice") => Behaviour::raw("HTTP/1.1 202 X\r\nContent-Length: 0\r\nX-Auth-Request-User: alice\r\nSet-Cookie: session=new\r\n\r\n"),
        _ => Behaviour::raw("HTTP/1.1 401 X\r\nContent-Length: 0\r\n\r\n"),
    }))
    .await?;
    let site = Site::of([&backend])?;
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: users}\nstringData: {auth: \"alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\"}\n";
    site.save("users.yaml", secret)?;
    let url = format!("auth-url\": \"http://{}/check\"", login.addr());
    let entries = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let mut asked = entries(&[
        "auth-signin\": \"https://login.test/start\"",
        "auth-response-headers\": \"X-Auth-Request-User\"",
    ]);
    asked.push(url);
    for (name, annotations) in [
        ("asked", asked),
        ("passwords", entries(&["auth-type\": basic", "auth-secret\": users", "auth-realm\": \"The shop\""])),
        ("elsewhere", entries(&["whitelist-source-range\": \"192.0.2.0/24\""])),
        ("here", entries(&["whitelist-source-range\": \"127.0.0.0/8\""])),
        ("limited", entries(&["limit-rpm\": \"1\"", "limit-burst-multiplier\": \"2\""])),
        ("dangling", entries(&["auth-type\": basic", "auth-secret\": missing"])),
    ] {
        site.save(&format!("{name}.yaml"), &restricted(name, &annotations))?;
    }
    let gateway = site.serve(&["--ingress-nginx-compatibility"]).await?;

    let redirected = ask(&site, "/asked/cart?id=1&x", "Cookie: none=1").await?;
    let expected = "https://login.test/start?rd=http://localhost%2Fasked%2Fcart%3Fid%3D1%26x";
    assert_eq!(
        (redirected.status, redirected.header("location")),
        (302, Some(expected)),
        "{}",
        gateway.output()
    );
    let admitted = ask(&site, "/asked", "Cookie: session=alice\r\nX-Auth-Request-User: root").await?;
    assert_eq!((admitted.status, admitted.header("set-cookie")), (200, Some("session=new")));
    assert_eq!(
        backend.last_request().and_then(|seen| seen.header("x-auth-request-user").map(str::to_owned)),
        Some("alice".to_owned())
    );

    let challenged = ask(&site, "/passwords", "X-A: b").await?;
    assert_eq!(challenged.status, 401);
    assert!(
        challenged.header("www-authenticate").is_some_and(|of| of.contains("realm=\"The shop\"")),
        "{challenged:?}"
    );
    assert_eq!(ask(&site, "/passwords", "Authorization: Basic YWxpY2U6bXlQYXNzd29yZA==").await?.status, 200);

    assert_eq!((site.status("/elsewhere").await?, site.status("/here").await?), (403, 200));
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(site.status("/limited").await?);
    }
    assert_eq!(statuses, [200, 200, 200, 503], "one request, and the burst of twice the rate");
    assert_eq!(site.status("/dangling").await?, 503);
    assert!(gateway.output().contains("Secret default/missing does not exist"), "{}", gateway.output());
    // The other Ingress has no annotations.
    assert_eq!(site.status("/").await?, 200);
    Ok(())
}
