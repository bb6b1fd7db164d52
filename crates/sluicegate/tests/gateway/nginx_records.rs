//! The access log and the metrics of Ingresses of ingress-nginx.

use std::path::Path;

use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{self, Client};

use crate::support::{LIMIT, SERVICE, Site, slices};

type TestResult = anyhow::Result<()>;

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: shop}
spec:
  ingressClassName: nginx
  rules:
  - host: shop.test
    http:
      paths:
      - path: /
        pathType: Prefix
        backend: {service: {name: web, port: {name: http}}}
";

/// The default format of ingress-nginx.
const UPSTREAMINFO: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \
     \"$http_referer\" \"$http_user_agent\" $request_length $request_time [$proxy_upstream_name] \
     [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time \
     $upstream_status $req_id";

fn configmap(entries: &[(&str, &str)]) -> String {
    let data: String = entries.iter().map(|(key, value)| format!("  {key}: {value:?}\n")).collect();
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: nginx}}\ndata:\n{data}")
}

/// A site with an Ingress in front of a backend, and a ConfigMap with these entries.
fn site(backend: &Backend, entries: &[(&str, &str)]) -> anyhow::Result<Site> {
    let site = Site::new()?;
    site.save("service.yaml", &format!("{SERVICE}{}", slices([backend.addr()])))?;
    site.save("ingress.yaml", INGRESS)?;
    site.save("configmap.yaml", &configmap(entries))?;
    Ok(site)
}

/// The lines of a log, once the log has a line with this text.
async fn lines_with(log: &Path, text: &str) -> anyhow::Result<Vec<String>> {
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let read = std::fs::read_to_string(log).unwrap_or_default();
        if read.contains(text) {
            return Ok(read.lines().map(str::to_owned).collect());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "no {text:?} in {read:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

async fn ask(site: &Site, target: &str, lines: &str) -> anyhow::Result<u16> {
    let request = format!("GET {target} HTTP/1.1\r\nHost: shop.test\r\n{lines}\r\n");
    Ok(Client::connect(site.http).await?.request(request).await?.status)
}

#[tokio::test]
async fn access_log_has_the_format_of_the_configmap_and_leaves_out_skipped_targets() -> TestResult {
    let backend = Backend::start(Behaviour::sized(5)).await?;
    let entries = [("log-format-upstream", UPSTREAMINFO), ("skip-access-log-urls", "/healthz")];
    let site = site(&backend, &entries)?;
    let log = site.path().join("access.log");
    let name = log.to_string_lossy();
    let options = ["--ingress-nginx-compatibility", "--configmap", "default/nginx", "--access-log", &name];
    let _gateway = site.serve(&options).await?;
    ask(&site, "/healthz", "").await?;
    ask(&site, "/a?b=\"c\"", "User-Agent: q\"uote\r\nAuthorization: Basic dXNlcjpwYXNz\r\n").await?;
    let lines = lines_with(&log, "/a?b").await?;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    let (start, rest) = line.split_once(" [").expect("a time");
    assert_eq!(start, "127.0.0.1 - user");
    let (_, rest) = rest.split_once("] ").expect("a time");
    let expected = "\"GET /a?b=\\x22c\\x22 HTTP/1.1\" 200 5 \"-\" \"q\\x22uote\" ";
    assert!(rest.starts_with(expected), "{line}");
    let words: Vec<&str> = rest[expected.len()..].split(' ').collect();
    let address = backend.addr().to_string();
    let [length, seconds, upstream, canary, endpoint, of_endpoint, time, status, id] = &words[..] else {
        panic!("{line}")
    };
    assert!(length.parse::<u64>().is_ok_and(|length| length > 80), "{line}");
    assert!(
        seconds.len() >= 5 && time.len() >= 5 && seconds.parse::<f64>()? >= time.parse::<f64>()?,
        "{line}"
    );
    assert_eq!((*upstream, *canary, *endpoint), ("[default-web-http]", "[]", address.as_str()));
    assert_eq!((*of_endpoint, *status, id.len()), ("5", "200", 32));
    Ok(())
}

#[tokio::test]
async fn access_log_names_the_canary_that_received_a_request() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site =
        site(&backend, &[("log-format-upstream", "$proxy_upstream_name $proxy_alternative_upstream_name")])?;
    let canary = "
  annotations:
    nginx.ingress.kubernetes.io/canary: \"true\"
    nginx.ingress.kubernetes.io/canary-by-header: X-Canary
";
    let ingress = INGRESS.replace("{name: shop}\n", &format!("\n  name: next{canary}"));
    site.save("canary.yaml", &ingress.replace("{name: web,", "{name: next,"))?;
    let next = format!("{SERVICE}{}", slices([backend.addr()])).replace("web", "next");
    site.save("next.yaml", &next)?;
    let log = site.path().join("access.log");
    let name = log.to_string_lossy();
    let options = ["--ingress-nginx-compatibility", "--configmap", "default/nginx", "--access-log", &name];
    let _gateway = site.serve(&options).await?;
    ask(&site, "/", "X-Canary: always\r\n").await?;
    assert_eq!(lines_with(&log, "\n").await?, ["default-web-http default-next-http"]);
    Ok(())
}

#[tokio::test]
async fn access_log_in_json_is_valid_despite_quotes_and_follows_changes_of_the_configmap() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let format = r#"{"agent": "$http_user_agent", "status": $status, "ref": "$http_referer"}"#;
    let entries = [("log-format-upstream", format), ("log-format-escape-json", "true")];
    let site = site(&backend, &entries)?;
    let log = site.path().join("access.log");
    let name = log.to_string_lossy();
    let options = ["--ingress-nginx-compatibility", "--configmap", "default/nginx", "--access-log", &name];
    let _gateway = site.serve(&options).await?;
    ask(&site, "/", "User-Agent: q\"uote\r\n").await?;
    let lines = lines_with(&log, "uote").await?;
    let line: serde_json::Value = serde_json::from_str(&lines[0])?;
    assert_eq!(line, serde_json::json!({"agent": "q\"uote", "status": 200, "ref": ""}));
    // A format with an unknown variable is not used: the lines have the format of the option again.
    site.save("configmap.yaml", &configmap(&[("log-format-upstream", "$geoip_city")]))?;
    let end = std::time::Instant::now() + LIMIT;
    loop {
        ask(&site, "/", "User-Agent: own\r\n").await?;
        let read = std::fs::read_to_string(&log)?;
        if read.contains("\"user_agent\":\"own\"") {
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{read}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn metrics_of_ingress_nginx_count_the_requests_of_an_ingress() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let site = site(&backend, &[])?;
    let _gateway = site.serve(&["--ingress-nginx-compatibility"]).await?;
    assert_eq!(ask(&site, "/x", "").await?, 200);
    let expected = "host=\"shop.test\",namespace=\"default\",ingress=\"shop\",service=\"web\",canary=\"\",path=\"/\",\
                    method=\"GET\",status=\"200\"} 1\n";
    let end = std::time::Instant::now() + LIMIT;
    loop {
        let text = client::get(site.admin, "localhost", "/metrics").await?.text();
        let requests = text.lines().find(|line| line.starts_with("nginx_ingress_controller_requests{"));
        if requests.is_some_and(|line| format!("{line}\n").ends_with(expected)) {
            return Ok(());
        }
        anyhow::ensure!(std::time::Instant::now() < end, "{requests:?}");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
