//! Keys that issuers publish.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use sluicegate_model::feature::authentication::jwt::RemoteKeys;
use sluicegate_proxy::registry::PublishedKeys;

use super::*;

/// An issuer's key.
struct Key {
    pair: EcdsaKeyPair,
    id: &'static str,
}

impl Key {
    fn new(id: &'static str) -> Self {
        Self { pair: EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap(), id }
    }

    fn jwk(&self) -> Value {
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let point = self.pair.public_key().as_ref();
        json!({"kty": "EC", "crv": "P-256", "kid": self.id, "x": b64(&point[1..33]), "y": b64(&point[33..])})
    }

    fn line(&self) -> String {
        let b64 = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", b64(&json!({"alg": "ES256", "kid": self.id})), b64(&claims()));
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        format!("Authorization: Bearer {message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

fn set(keys: &[&Key]) -> Behaviour {
    body(&json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}).to_string())
}

fn body(text: &str) -> Behaviour {
    Behaviour::raw(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len()))
}

/// A policy for tokens whose keys this server publishes.
fn by(server: &Backend, refresh: &str) -> Security {
    let url = format!("http://{}/keys?a=b", server.addr());
    let keys = written(json!({"url": url, "refreshInterval": refresh, "timeout": "300ms"}));
    asking(jwt(provider(ProviderKeys::Remote(Arc::new(keys)))))
}

fn state(gateway: &Gateway) -> PublishedKeys {
    gateway.proxy().registry().published_keys().swap_remove(0)
}

#[tokio::test]
async fn published_jwt_keys_are_fetched_once_for_all_policies_and_refreshed() -> TestResult {
    let (one, two) = (Key::new("one"), Key::new("two"));
    let server = Backend::start(set(&[&one])).await?;
    let (_backend, gateway) = guarded(by(&server, "1s")).await?;
    gateway.wait_until(|gateway| state(gateway).keys == 1).await?;
    for _ in 0..10 {
        assert_eq!(ask(&gateway, "/", &[&one.line()]).await?.status, 200);
    }
    assert_eq!(ask(&gateway, "/", &[&two.line()]).await?.status, 401);
    assert_eq!(server.last_request().unwrap().target, "/keys?a=b");
    server.set(set(&[&two, &one]));
    gateway.wait_until(|gateway| state(gateway).keys == 2).await?;
    assert_eq!(ask(&gateway, "/", &[&two.line()]).await?.status, 200);
    // When the issuer withdraws a key, its tokens become invalid, cached or not.
    server.set(set(&[&two]));
    gateway.wait_until(|gateway| state(gateway).keys == 1).await?;
    assert_eq!(ask(&gateway, "/", &[&one.line()]).await?.status, 401);
    // Another policy with the same issuer fetches from no other server.
    let mut other = by(&server, "1s");
    other.id = id("SecurityPolicy", "other");
    gateway.configure(|config| set_security(config, Some(other))).await;
    assert_eq!(ask(&gateway, "/", &[&two.line()]).await?.status, 200);
    assert_eq!(gateway.proxy().registry().published_keys().len(), 1);
    gateway.configure(|config| set_security(config, None)).await;
    gateway.wait_until(|gateway| gateway.proxy().registry().published_keys().is_empty()).await?;
    Ok(())
}

#[tokio::test]
async fn unknown_key_id_triggers_one_fetch_of_the_keys_before_the_next_refresh() -> TestResult {
    let (one, two) = (Key::new("one"), Key::new("two"));
    let server = Backend::start(set(&[&one])).await?;
    let (_backend, gateway) = guarded(by(&server, "1h")).await?;
    gateway.wait_until(|gateway| state(gateway).keys == 1).await?;
    server.set(set(&[&two]));
    for _ in 0..20 {
        assert_eq!(ask(&gateway, "/", &[&two.line()]).await?.status, 401);
    }
    assert_eq!(server.requests(), 1);
    gateway.wait_until(|gateway| state(gateway).fetched == 2).await?;
    assert_eq!(ask(&gateway, "/", &[&two.line()]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn tokens_are_rejected_while_the_key_server_sends_invalid_responses() -> TestResult {
    let key = Key::new("one");
    let secret = json!({"keys": [{"kty": "oct", "kid": "one", "k": URL_SAFE_NO_PAD.encode(SECRET)}]});
    let huge = json!({"keys": [key.jwk()], "padding": "x".repeat(300_000)});
    let elsewhere = Backend::start(set(&[&key])).await?;
    let redirect =
        format!("HTTP/1.1 302 Found\r\nLocation: http://{}/\r\nContent-Length: 0\r\n\r\n", elsewhere.addr());
    for behaviour in [
        Behaviour::silent(),
        Behaviour::close_on_accept(),
        Behaviour::garbage(),
        Behaviour::status(500),
        Behaviour::raw(redirect),
        body(&huge.to_string()),
        body("{\"keys\": []}"),
        body("[[[[[["),
        body(&secret.to_string()),
        Behaviour::raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{").then_close(),
    ] {
        let server = Backend::start(behaviour).await?;
        let (backend, gateway) = guarded(by(&server, "1s")).await?;
        gateway.wait_until(|gateway| state(gateway).failed > 0).await?;
        assert_eq!(ask(&gateway, "/", &[&key.line()]).await?.status, 503);
        assert_eq!(ask(&gateway, "/", &[]).await?.status, 401);
        let forged = token(&json!({"alg": "HS256", "kid": "one"}), &claims(), SECRET);
        assert_eq!(ask(&gateway, "/", &[&format!("Authorization: Bearer {forged}")]).await?.status, 503);
        assert_eq!((backend.requests(), elsewhere.requests()), (0, 0));
        assert_eq!(denied(&gateway, Denial::KeysUnknown), 2);
        server.set(set(&[&key]));
        gateway.wait_until(|gateway| state(gateway).keys == 1).await?;
        assert_eq!(ask(&gateway, "/", &[&key.line()]).await?.status, 200, "it came to its senses");
    }
    Ok(())
}

#[tokio::test]
async fn key_server_certificate_is_verified_with_the_ca_of_the_policy() -> TestResult {
    use sluicegate_testkit::terminator::Terminator;
    use sluicegate_testkit::tls::Authority;
    let (key, authority) = (Key::new("one"), Authority::new());
    let server = Backend::start(set(&[&key])).await?;
    let secure = Terminator::start(server.addr(), &authority.issue(&["localhost"]), None).await?;
    for (authorities, is_good) in [
        (vec![authority.certificate()], true),
        (vec![Authority::new().certificate()], false),
        (Vec::new(), false),
    ] {
        let keys = RemoteKeys {
            ca_certificate_ref: certificates(authorities),
            ..written(json!({"url": format!("https://localhost:{}/", secure.addr().port())}))
        };
        let method = jwt(provider(ProviderKeys::Remote(Arc::new(keys))));
        let (_backend, gateway) = guarded(asking(method)).await?;
        gateway.wait_until(|gateway| state(gateway).fetched + state(gateway).failed > 0).await?;
        let expected = if is_good { 200 } else { 503 };
        assert_eq!(ask(&gateway, "/", &[&key.line()]).await?.status, expected);
    }
    Ok(())
}

#[tokio::test]
async fn last_valid_keys_stay_in_use_while_the_key_server_is_down() -> TestResult {
    let key = Key::new("one");
    let mut server = Backend::start(set(&[&key])).await?;
    let (_backend, gateway) = guarded(by(&server, "1s")).await?;
    gateway.wait_until(|gateway| state(gateway).keys == 1).await?;
    server.kill().await;
    gateway.wait_until(|gateway| state(gateway).failed > 1).await?;
    assert_eq!(ask(&gateway, "/", &[&key.line()]).await?.status, 200);
    Ok(())
}
