use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::{CipherSuite, ProtocolVersion, SignatureScheme};
use sluicegate_model::KeyKind;
use sluicegate_model::access_log::{LogEscape, LogFormat};
use sluicegate_model::rule::HttpsRedirect;
use sluicegate_model::tls::{Hsts, TlsVersion, UnknownNames};
use sluicegate_model::value::{CipherSuites, Number};
use sluicegate_proxy::failure::{ClientFault, TlsFault};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::tls::{Authority, ClientOptions};

use crate::{TestResult, certificate, failed, get, serving, set_host, shown, trusting, with_names};

#[tokio::test]
async fn certificate_is_selected_by_server_name_and_a_wildcard_matches_one_label() -> TestResult {
    let (_backend, gateway) = serving(&["a.test", "*.b.test"]).await?;
    for (name, host) in [("a.test", "a.test"), ("A.Test", "a.test"), ("x.b.test", "x.b.test:443")] {
        let mut client = gateway.connect_tls(&trusting(), name).await?;
        assert_eq!(client.request(get(host)).await?.status, 200, "{name}");
    }
    // The default certificate is for localhost alone, so a client rejects it for any other name.
    for name in ["b.test", "x.y.b.test", "c.test"] {
        let error = gateway.connect_tls(&trusting(), name).await.expect_err(name);
        assert!(error.to_string().contains("not valid for name"), "{error}");
    }
    assert_eq!(gateway.connect_tls(&trusting(), "localhost").await?.request(get("any")).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn unknown_server_names_are_rejected_if_configured() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    gateway.configure(|config| config.settings.tls.unknown_names = UnknownNames::Refuse).await;
    let error = gateway.connect_tls(&trusting(), "localhost").await.expect_err("an unknown name");
    assert!(error.to_string().contains("UnrecognisedName"), "{error}");
    failed(&gateway, TlsFault::UnknownName, 1).await?;
    assert!(gateway.connect_tls(&trusting(), "127.0.0.1").await.is_err(), "the name of no certificate");
    failed(&gateway, TlsFault::UnknownName, 1).await?;
    gateway.connect_tls(&trusting(), "a.test").await?;
    Ok(())
}

#[tokio::test]
async fn certificate_is_selected_by_the_signature_algorithms_of_the_client() -> TestResult {
    let (_backend, gateway) = serving(&[]).await?;
    let tomorrow = SystemTime::now() + Duration::from_secs(24 * 3600);
    let [ecdsa, rsa] = [KeyKind::Ecdsa, KeyKind::Rsa]
        .map(|kind| Authority::of_process().issue_with(&["a.test"], kind, tomorrow).certificate);
    gateway
        .configure(|config| {
            set_host(Arc::make_mut(&mut config.tls), "a.test", &[ecdsa.clone(), rsa.clone()]);
        })
        .await;
    let client = gateway.connect_tls(&trusting(), "a.test").await?;
    assert_eq!(shown(&client), ecdsa.chain[0].as_ref(), "ECDSA is cheaper");
    for (options, version) in [(trusting(), "1.3"), (trusting().tls12(), "1.2")] {
        let rsa_only = options.provider(|provider| {
            let algorithms = &mut provider.signature_verification_algorithms;
            let is_rsa = |scheme: &SignatureScheme| {
                matches!(scheme, SignatureScheme::RSA_PSS_SHA256 | SignatureScheme::RSA_PKCS1_SHA256)
            };
            let kept: Vec<_> =
                algorithms.mapping.iter().copied().filter(|(scheme, _)| is_rsa(scheme)).collect();
            algorithms.mapping = kept.leak();
        });
        let client = gateway.connect_tls(&rsa_only, "a.test").await?;
        assert_eq!(shown(&client), rsa.chain[0].as_ref(), "TLS {version}");
    }
    Ok(())
}

#[tokio::test]
async fn client_that_offers_only_http_1_0_in_alpn_is_served() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    for (offered, chosen) in [
        (&["http/1.0"][..], &b"http/1.0"[..]),
        (&["http/1.0", "http/1.1"], b"http/1.1"),
        (&["spdy/1", "http/1.0"], b"http/1.0"),
    ] {
        let mut client = gateway.connect_tls(&trusting().protocols(offered), "a.test").await?;
        assert_eq!(client.tls().and_then(|tls| tls.alpn_protocol()), Some(chosen));
        let response = client.request("GET / HTTP/1.0\r\nHost: a.test\r\n\r\n").await?;
        assert_eq!(response.status, 200);
    }
    assert!(gateway.connect_tls(&trusting().protocols(&["spdy/1", "h3"]), "a.test").await.is_err());
    failed(&gateway, TlsFault::Incompatible, 1).await
}

#[tokio::test]
async fn gateway_negotiates_tls_versions_groups_and_alpn_protocols() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let client = gateway.connect_tls(&trusting().protocols(&["http/1.1"]), "a.test").await?;
    let tls = client.tls().expect("TLS");
    assert_eq!(tls.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    let group = tls.negotiated_key_exchange_group().map(|group| group.name());
    assert_eq!(group, Some(rustls::NamedGroup::X25519MLKEM768), "safe from quantum computers by default");
    let client = gateway.connect_tls(&trusting().tls12(), "a.test").await?;
    assert_eq!(client.tls().and_then(|tls| tls.protocol_version()), Some(ProtocolVersion::TLSv1_2));
    assert!(gateway.connect_tls(&trusting().protocols(&["h3"]), "a.test").await.is_err(), "RFC 7301, 3.2");
    gateway.configure(|config| config.settings.tls.min_version = TlsVersion::Tls13).await;
    assert!(gateway.connect_tls(&trusting().tls12(), "a.test").await.is_err());
    gateway.connect_tls(&trusting(), "a.test").await?;
    failed(&gateway, TlsFault::Incompatible, 2).await?;
    Ok(())
}

#[tokio::test]
async fn host_offers_only_its_cipher_suites_of_tls_1_2() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let suite = async |list: &str, options: ClientOptions| -> anyhow::Result<Option<CipherSuite>> {
        let ciphers = CipherSuites::new(list).expect("a list");
        gateway
            .configure(|config| {
                let tls = Arc::make_mut(&mut config.tls);
                Arc::make_mut(&mut tls.hosts[0]).ciphers = ciphers;
            })
            .await;
        let client = gateway.connect_tls(&options, "a.test").await?;
        Ok(client.tls().and_then(|tls| tls.negotiated_cipher_suite()).map(|suite| suite.suite()))
    };
    let chosen = suite("CHACHA20", trusting().tls12()).await?;
    assert_eq!(chosen, Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256));
    let chosen = suite("AES128", trusting().tls12()).await?;
    assert_eq!(chosen, Some(CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    assert!(suite("aRSA", trusting().tls12()).await.is_err(), "the certificate has an ECDSA key");
    assert!(suite("aRSA", trusting()).await.is_ok(), "TLS 1.3");
    Ok(())
}

#[tokio::test]
async fn request_for_a_host_outside_the_certificate_returns_421() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let both = certificate(&["a.test", "c.test"]);
    let gateway = with_names(&["b.test"])
        .tls(|tls| {
            ["a.test", "c.test"].iter().for_each(|name| set_host(tls, name, std::slice::from_ref(&both)));
        })
        .backends([&backend])
        .start()
        .await?;
    let mut client = gateway.connect_tls(&trusting(), "a.test").await?;
    for (host, status) in [
        ("a.test", 200),
        ("A.TEST.:8443", 200),
        ("c.test", 200),
        ("b.test", 421),
        ("unknown.test", 421),
        ("a.test", 200),
    ] {
        assert_eq!(client.request(get(host)).await?.status, status, "{host}");
    }
    let misdirected = &ClientFault::Misdirected;
    let counted = gateway
        .proxy()
        .registry()
        .counters()
        .workers()
        .sum(|worker| &worker.client_faults[misdirected.index()]);
    assert_eq!(counted, 2);
    // On a connection with the default certificate, the gateway serves only hosts without a certificate of their own.
    let mut client = gateway.connect_tls(&trusting(), "localhost").await?;
    assert_eq!(client.request(get("unknown.test")).await?.status, 200);
    assert_eq!(client.request(get("b.test")).await?.status, 421);
    Ok(())
}

#[tokio::test]
async fn plain_http_is_redirected_if_a_route_requires_https() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_names(&["a.test"]).backends([&backend]).start().await?;
    gateway
        .configure(|config| {
            Arc::make_mut(&mut config.hosts[0]).rules[0].https_only = true;
            config.settings.trusted_proxies = vec!["127.0.0.2/32".parse().expect("a network")];
        })
        .await;
    let mut client = sluicegate_testkit::client::Client::connect(gateway.addr()).await?;
    let request = "POST /x/../y%2F?q=1 HTTP/1.1\r\nHost: a.test:8080\r\nContent-Length: 0\r\n\r\n";
    let response = client.request(request).await?;
    assert_eq!((response.status, response.header("location")), (308, Some("https://a.test/y%2F?q=1")));
    let response =
        client.request("GET /.well-known/acme-challenge/t HTTP/1.1\r\nHost: a.test\r\n\r\n").await?;
    assert_eq!(response.status, 200, "a certificate authority comes over plain HTTP (RFC 8555, 8.3)");
    let forged = "GET / HTTP/1.1\r\nHost: a.test\r\nX-Forwarded-Proto: https\r\n\r\n";
    assert_eq!(client.request(forged).await?.status, 308, "a stranger's word");
    gateway
        .configure(|config| {
            config.settings.trusted_proxies = vec!["127.0.0.1/32".parse().expect("a network")];
            config.settings.tls.redirect_port = 8443;
        })
        .await;
    assert_eq!(client.request(forged).await?.status, 200, "a load balancer's word");
    let response = client.request(get("a.test")).await?;
    assert_eq!(response.header("location"), Some("https://a.test:8443/"));
    Ok(())
}

#[tokio::test]
async fn redirect_to_https_can_leave_out_the_final_slash_and_have_another_status() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let gateway = with_names(&["a.test"]).backends([&backend]).start().await?;
    gateway
        .configure(|config| {
            let rule = &mut Arc::make_mut(&mut config.hosts[0]).rules[0];
            rule.https_only = true;
            rule.https_redirect = HttpsRedirect { status: Number::of(301), strips_slash: true };
        })
        .await;
    let mut client = sluicegate_testkit::client::Client::connect(gateway.addr()).await?;
    for (target, location) in [
        ("/", "https://a.test"),
        ("/x/", "https://a.test/x"),
        ("/x", "https://a.test/x"),
        ("/x/?q", "https://a.test/x/?q"),
    ] {
        let response = client.request(format!("GET {target} HTTP/1.1\r\nHost: a.test\r\n\r\n")).await?;
        assert_eq!((response.status, response.header("location")), (301, Some(location)), "{target}");
    }
    Ok(())
}

#[tokio::test]
async fn gateway_sends_forwarded_proto_to_endpoints_and_hsts_to_https_clients() -> TestResult {
    let (backend, gateway) = serving(&["a.test"]).await?;
    let hsts = Hsts { max_age: Duration::from_secs(60), include_subdomains: true, preload: false };
    gateway.configure(|config| config.settings.tls.hsts = Some(hsts)).await;
    let mut client = gateway.connect_tls(&trusting(), "a.test").await?;
    let response = client.request(get("a.test")).await?;
    assert_eq!(response.header("strict-transport-security"), Some("max-age=60; includeSubDomains"));
    let told = backend.last_request().expect("a request");
    for header in ["X-Forwarded-Proto", "X-Forwarded-Scheme", "X-Scheme"] {
        assert_eq!(told.header(header), Some("https"), "{header}");
    }
    assert_eq!(told.header("X-Forwarded-Port"), Some(&*gateway.https_addr().port().to_string()));
    let own = "HTTP/1.1 200 OK\r\nStrict-Transport-Security: max-age=1\r\nContent-Length: 0\r\n\r\n";
    backend.set(Behaviour::raw(own));
    let response = client.request(get("a.test")).await?;
    assert_eq!(response.headers_named("strict-transport-security"), ["max-age=1"], "the endpoint's own");
    backend.set(Behaviour::raw("not HTTP\r\n\r\n"));
    let response = client.request(get("a.test")).await?;
    assert_eq!(response.status, 502);
    let of_gateway = response.headers_named("strict-transport-security");
    assert_eq!(of_gateway, ["max-age=60; includeSubDomains"], "the gateway's own response (RFC 6797, 7.1)");
    let mut plain = sluicegate_testkit::client::Client::connect(gateway.addr()).await?;
    backend.set(Behaviour::ok());
    assert_eq!(
        plain.request(get("a.test")).await?.header("strict-transport-security"),
        None,
        "RFC 6797, 7.2"
    );
    Ok(())
}

#[tokio::test]
async fn host_without_a_certificate_uses_a_self_signed_certificate() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let start = || {
        let builder = with_names(&["a.test"]).tls(|tls| {
            tls.default.clear();
            set_host(tls, "bare.test", &[]);
        });
        builder.backends([&backend]).start()
    };
    let gateway = start().await?;
    gateway.connect_tls(&trusting(), "a.test").await?;
    assert!(gateway.connect_tls(&trusting(), "localhost").await.is_err(), "nobody vouches for it");
    let any = ClientOptions::default();
    let mut client = gateway.connect_tls(&any, "unknown.test").await?;
    assert_eq!(client.request(get("unknown.test")).await?.status, 200);
    let own = shown(&client).to_vec();
    // The self-signed certificate stays the same for the life of the process, for all names and after any other change.
    gateway.configure(|config| config.settings.tls.min_version = TlsVersion::Tls13).await;
    for name in ["bare.test", "127.0.0.1", "localhost"] {
        assert_eq!(shown(&gateway.connect_tls(&any, name).await?), own, "{name}");
    }
    let other = start().await?;
    assert_ne!(shown(&other.connect_tls(&any, "localhost").await?), own, "its key is nobody else's");
    // A default certificate replaces the self-signed certificate. When it is removed, the self-signed one returns.
    let given = certificate(&["localhost"]);
    gateway.configure(|config| Arc::make_mut(&mut config.tls).default.push(given.clone())).await;
    assert_eq!(shown(&gateway.connect_tls(&trusting(), "localhost").await?), given.chain[0].as_ref());
    gateway.configure(|config| Arc::make_mut(&mut config.tls).default.clear()).await;
    assert_eq!(shown(&gateway.connect_tls(&any, "localhost").await?), own);
    gateway.configure(|config| config.settings.tls.unknown_names = UnknownNames::Refuse).await;
    assert!(gateway.connect_tls(&any, "unknown.test").await.is_err());
    Ok(())
}

#[tokio::test]
async fn access_log_can_have_the_version_the_cipher_and_the_name_of_tls() -> TestResult {
    use sluicegate_proxy::record::access_log;

    let file = tempfile::NamedTempFile::new()?;
    let log = access_log::AccessLog::open(access_log::LogFormat::Json, Some(file.path()))?;
    let text = "$ssl_protocol|$ssl_cipher|$ssl_server_name|$https";
    let format = LogFormat::new(text, LogEscape::Default).map_err(anyhow::Error::msg)?;
    let backend = Backend::start(Behaviour::ok()).await?;
    let builder = with_names(&["a.test"]).backends([&backend]);
    let builder = builder.settings(|settings| settings.access_log.format = Some(format));
    let gateway = builder.options(|options| options.access_log = Some(log)).start().await?;
    for options in [trusting(), trusting().tls12()] {
        gateway.connect_tls(&options, "a.test").await?.request(get("a.test")).await?;
    }
    gateway.connect().await?.request(get("a.test")).await?;
    gateway.stop().await;
    let read = || std::fs::read_to_string(file.path()).unwrap();
    gateway.wait_until(|_| read().lines().count() == 3).await?;
    let text = read();
    let has =
        |start: &str, end: &str| text.lines().any(|line| line.starts_with(start) && line.ends_with(end));
    assert!(has("TLSv1.3|TLS_", "|a.test|on"), "{text}");
    assert!(has("TLSv1.2|ECDHE-ECDSA-", "|a.test|on"), "{text}");
    assert!(has("-|-|-|", "|-|"), "{text}");
    Ok(())
}
