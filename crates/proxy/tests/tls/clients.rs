use std::sync::Arc;

use sluicegate_model::rule::Pattern;
use sluicegate_model::value::Url;
use sluicegate_model::{ClientAuth, ClientAuthMode, ClientCheck, Config, HostPattern, TlsHost};
use sluicegate_proxy::failure::{ClientFault, TlsFault};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::{Client, Response};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::tls::{Authority, ClientOptions, Issued};

use crate::{TestResult, certificate, failed, get, trusting};

fn policy(mode: ClientAuthMode) -> ClientAuth {
    let roots = vec![Authority::of_process().certificate()];
    ClientAuth { source: "test".into(), roots, crls: Vec::new(), mode, forward: false, at_requests: None }
}

/// From now on, a.test accepts only clients that this policy admits. b.test accepts all clients.
fn demand(config: &mut Config, policy: ClientAuth) {
    let policy = Arc::new(policy);
    config.hosts.clear();
    for host in ["a.test", "b.test"] {
        sluicegate_testkit::gateway::add_route(config, host, "/", "backend");
    }
    let route = &mut Arc::make_mut(&mut config.hosts[0]).rules[0];
    route.client_auth = Some(policy.clone());
    route.https_only = true;
    let host = |name: &str, client_auth| {
        let certificates = vec![certificate(&[name])];
        Arc::new(TlsHost { client_auth, ..TlsHost::new(HostPattern::Exact(name.into()), certificates) })
    };
    Arc::make_mut(&mut config.tls).hosts = vec![host("a.test", Some(policy)), host("b.test", None)];
}

async fn demanding(policy: ClientAuth) -> anyhow::Result<(Backend, Gateway)> {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = Gateway::builder().backends([&backend]).start().await?;
    gateway.configure(|config| demand(config, policy)).await;
    Ok((backend, gateway))
}

/// Sends a request and returns the response; an error if the handshake fails. In TLS 1.3 the client learns of the
/// failure only with the first response.
async fn ask(gateway: &Gateway, options: &ClientOptions, host: &str) -> anyhow::Result<Response> {
    Ok(gateway.connect_tls(options, host).await?.request(get(host)).await?)
}

/// The value of this header in the last request that the endpoint received.
fn told(backend: &Backend, what: &str) -> Option<String> {
    let request = backend.last_request()?;
    request.header(&format!("ssl-client-{what}")).map(str::to_owned)
}

fn stranger() -> Issued {
    Authority::named("Nobody").issue(&["mallory"])
}

#[tokio::test]
async fn required_client_certificate_is_verified_and_its_identity_forwarded() -> TestResult {
    let (backend, gateway) = demanding(policy(ClientAuthMode::Required)).await?;
    let alice = Authority::of_process().issue(&["alice"]);
    for options in [trusting(), trusting().tls12()] {
        ask(&gateway, &options.clone().identity(&alice), "a.test").await?;
        for (name, value) in [
            ("verify", Some("SUCCESS")),
            ("subject-dn", Some("CN=alice")),
            ("issuer-dn", Some("CN=Test authority")),
            ("cert", None),
        ] {
            assert_eq!(told(&backend, name).as_deref(), value, "{name}");
        }
        assert!(ask(&gateway, &options, "a.test").await.is_err(), "no certificate");
        assert!(ask(&gateway, &options.identity(&stranger()), "a.test").await.is_err(), "a stranger's");
    }
    failed(&gateway, TlsFault::ClientCertificate, 4).await?;
    assert_eq!(ask(&gateway, &trusting(), "b.test").await?.status, 200, "another host");
    Ok(())
}

#[tokio::test]
async fn required_client_certificate_cannot_be_bypassed() -> TestResult {
    let (backend, gateway) = demanding(policy(ClientAuthMode::Required)).await?;
    let mut other = gateway.connect_tls(&trusting(), "b.test").await?;
    assert_eq!(other.request(get("a.test")).await?.status, 421, "over another host's connection");
    let mut unnamed = gateway.connect_tls(&trusting(), "localhost").await?;
    assert_eq!(unnamed.request(get("a.test")).await?.status, 421);
    let mut plain = Client::connect(gateway.addr()).await?;
    assert_eq!(plain.request(get("a.test")).await?.status, 308);
    let challenge = "GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: a.test\r\n\r\n";
    assert_eq!(plain.request(challenge).await?.status, 308);
    gateway
        .configure(|config| config.settings.trusted_proxies = vec!["127.0.0.0/8".parse().expect("a net")])
        .await;
    let claims =
        "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Proto: https\r\nssl-client-verify: SUCCESS\r\n\r\n";
    assert_eq!(plain.request(claims).await?.status, 308);
    // The gateway removes forged client-certificate headers from requests.
    let forged = "GET / HTTP/1.1\r\nHost: b.test\r\nSSL-Client-Verify: SUCCESS\r\nssl-client-cert: x\r\n\r\n";
    assert_eq!(other.request(forged).await?.status, 200);
    assert_eq!((told(&backend, "verify"), told(&backend, "cert")), (None, None));
    Ok(())
}

#[tokio::test]
async fn endpoints_receive_the_result_of_optional_client_certificate_verification() -> TestResult {
    let mallory = stranger();
    let alice = Authority::of_process().issue(&["alice"]);
    for (mode, of_mallory) in
        [(ClientAuthMode::Optional, None), (ClientAuthMode::OptionalNoCa, Some("FAILED:UnknownIssuer"))]
    {
        let (backend, gateway) = demanding(ClientAuth { forward: true, ..policy(mode) }).await?;
        ask(&gateway, &trusting(), "a.test").await?;
        assert_eq!(told(&backend, "verify").as_deref(), Some("NONE"), "{mode:?}");
        ask(&gateway, &trusting().identity(&alice), "a.test").await?;
        assert_eq!(told(&backend, "verify").as_deref(), Some("SUCCESS"), "{mode:?}");
        let passed_on = told(&backend, "cert").unwrap_or_default();
        assert!(passed_on.starts_with("-----BEGIN%20CERTIFICATE-----%0A"), "{mode:?}: {passed_on}");
        let asked = ask(&gateway, &trusting().identity(&mallory), "a.test").await;
        assert_eq!(asked.is_ok(), of_mallory.is_some(), "{mode:?}");
        if of_mallory.is_some() {
            assert_eq!(told(&backend, "verify").as_deref(), of_mallory, "{mode:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn revoked_client_certificate_is_rejected_despite_a_resumable_session() -> TestResult {
    let (_backend, gateway) = demanding(policy(ClientAuthMode::Required)).await?;
    let [alice, bob] = ["alice", "bob"].map(|name| Authority::of_process().issue(&[name]));
    let [of_alice, of_bob] = [&alice, &bob].map(|issued| trusting().identity(issued));
    for options in [&of_alice, &of_bob] {
        ask(&gateway, options, "a.test").await?;
    }
    let mut open = gateway.connect_tls(&of_alice, "a.test").await?;
    assert_eq!(open.request(get("a.test")).await?.status, 200);
    let crls = vec![Authority::of_process().revoke(&[&alice])];
    gateway.configure(|config| demand(config, ClientAuth { crls, ..policy(ClientAuthMode::Required) })).await;
    assert!(ask(&gateway, &of_alice, "a.test").await.is_err());
    assert_eq!(ask(&gateway, &of_bob, "a.test").await?.status, 200);
    assert_eq!(open.request(get("a.test")).await?.status, 421, "it was opened under the earlier policy");
    Ok(())
}

#[tokio::test]
async fn client_authentication_without_ca_certificates_rejects_every_client() -> TestResult {
    let (_backend, gateway) =
        demanding(ClientAuth { roots: Vec::new(), ..policy(ClientAuthMode::Required) }).await?;
    let alice = Authority::of_process().issue(&["alice"]);
    assert!(ask(&gateway, &trusting().identity(&alice), "a.test").await.is_err());
    assert_eq!(ask(&gateway, &trusting(), "b.test").await?.status, 200);
    let mut other = gateway.connect_tls(&trusting(), "b.test").await?;
    assert_eq!(other.request(get("a.test")).await?.status, 421);
    Ok(())
}

fn at_requests(mode: ClientAuthMode, check: ClientCheck) -> ClientAuth {
    ClientAuth { at_requests: Some(check), ..policy(mode) }
}

#[tokio::test]
async fn certificate_that_is_checked_at_requests_is_denied_with_400_as_in_nginx() -> TestResult {
    let mallory = stranger();
    let alice = Authority::of_process().issue(&["alice"]);
    for (mode, [of_none, of_mallory]) in [
        (ClientAuthMode::Required, [400, 400]),
        (ClientAuthMode::Optional, [200, 400]),
        // nginx overlooks that the issuer is unknown.
        (ClientAuthMode::OptionalNoCa, [200, 200]),
    ] {
        let check = ClientCheck { depth: 1, ..ClientCheck::default() };
        let (backend, gateway) = demanding(at_requests(mode, check)).await?;
        assert_eq!(ask(&gateway, &trusting(), "a.test").await?.status, of_none, "{mode:?}");
        let asked = ask(&gateway, &trusting().identity(&mallory), "a.test").await?;
        assert_eq!(asked.status, of_mallory, "{mode:?}");
        assert_eq!(ask(&gateway, &trusting().identity(&alice), "a.test").await?.status, 200, "{mode:?}");
        assert_eq!(told(&backend, "verify").as_deref(), Some("SUCCESS"));
        assert_eq!(ask(&gateway, &trusting(), "b.test").await?.status, 200, "{mode:?}");
        // Plain HTTP carries no certificate.
        assert_eq!(Client::connect(gateway.addr()).await?.request(get("a.test")).await?.status, 308);
        let refused = u64::from(of_none == 400) + u64::from(of_mallory == 400);
        let workers = gateway.proxy().registry().counters().workers();
        let faults = workers.iter().map(|of| of.client_faults[ClientFault::Certificate.index()].get());
        assert_eq!(faults.sum::<u64>(), refused);
    }
    Ok(())
}

#[tokio::test]
async fn name_of_the_certificate_must_match_the_subject() -> TestResult {
    let subject = |text: &str| Some(Pattern::new(text, false).unwrap());
    let check = |text: &str| ClientCheck { subject: subject(text), ..ClientCheck::default() };
    let alice = trusting().identity(&Authority::of_process().issue(&["alice"]));
    let (backend, gateway) = demanding(at_requests(ClientAuthMode::Required, check("CN=alice"))).await?;
    assert_eq!(ask(&gateway, &alice, "a.test").await?.status, 200);
    assert!(told(&backend, "subject-dn").unwrap().contains("CN=alice"), "{:?}", told(&backend, "subject-dn"));
    gateway.configure(|config| demand(config, at_requests(ClientAuthMode::Required, check("CN=bob")))).await;
    assert_eq!(ask(&gateway, &alice, "a.test").await?.status, 403);
    // Without a certificate there is no name.
    gateway
        .configure(|config| demand(config, at_requests(ClientAuthMode::Optional, check("CN=alice"))))
        .await;
    assert_eq!(ask(&gateway, &trusting(), "a.test").await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn client_without_a_valid_certificate_is_redirected_to_the_error_page() -> TestResult {
    let error_page = Some(Url::of("https://errors.test/no-certificate"));
    let check = ClientCheck { error_page, ..ClientCheck::default() };
    let (backend, gateway) = demanding(at_requests(ClientAuthMode::Required, check)).await?;
    let redirected = ask(&gateway, &trusting(), "a.test").await?;
    let expected = (302, Some("https://errors.test/no-certificate"));
    assert_eq!((redirected.status, redirected.header("location")), expected);
    assert_eq!(backend.requests(), 0);
    Ok(())
}

#[tokio::test]
async fn client_certificate_with_more_intermediates_than_the_depth_is_denied() -> TestResult {
    let root = Authority::named("Root");
    let between = root.between("Intermediate");
    let mut alice = between.issue(&["alice"]);
    Arc::make_mut(&mut alice.certificate).chain.push(between.certificate());
    let alice = trusting().identity(&alice);
    for (depth, status) in [(0, 400), (1, 200)] {
        let check = ClientCheck { depth, ..ClientCheck::default() };
        let policy =
            ClientAuth { roots: vec![root.certificate()], ..at_requests(ClientAuthMode::Required, check) };
        let (_backend, gateway) = demanding(policy).await?;
        assert_eq!(ask(&gateway, &alice, "a.test").await?.status, status, "{depth}");
    }
    Ok(())
}
