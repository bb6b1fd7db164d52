//! Digest authentication.

use md5::{Digest as _, Md5};
use sluicegate_model::feature::Digest;
use sluicegate_model::value::secret::DigestUsers;

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn md5(text: &str) -> String {
    hex(&Md5::digest(text.as_bytes()))
}

fn sha256(text: &str) -> String {
    hex(digest::digest(&digest::SHA256, text.as_bytes()).as_ref())
}

fn digest_of(users: DigestUsers) -> Authentication {
    let digest = Digest { users: FromSecret::Value(users), realm: Realm::of("shop"), forward: false };
    Authentication { digest: Some(digest), ..Authentication::default() }
}

/// The header line of a client that knows the password, as the answer to a response with challenges.
fn answer(
    challenged: &Response,
    hash: fn(&str) -> String,
    method: &str,
    target: &str,
    password: &str,
) -> String {
    let algorithm = if hash("").len() == 64 { "SHA-256" } else { "MD5" };
    let challenges = challenged.headers_named("www-authenticate");
    let wanted = format!("algorithm={algorithm}");
    let challenge = challenges.iter().find(|challenge| challenge.contains(&wanted)).unwrap();
    let nonce = challenge.split("nonce=\"").nth(1).unwrap().split('"').next().unwrap();
    let (ha1, ha2) = (hash(&format!("alice:shop:{password}")), hash(&format!("{method}:{target}")));
    let response = hash(&format!("{ha1}:{nonce}:00000001:c:auth:{ha2}"));
    format!(
        "Authorization: Digest username=\"alice\", realm=\"shop\", nonce=\"{nonce}\", uri=\"{target}\", \
         algorithm={algorithm}, response=\"{response}\", qop=auth, nc=00000001, cnonce=\"c\""
    )
}

#[tokio::test]
async fn digest_authentication_admits_the_right_password_for_its_method_and_target_only() -> TestResult {
    let users = [md5("alice:shop:secret"), sha256("alice:shop:secret")];
    let users = users.map(|hash| ("alice".into(), hash.into())).into();
    let (backend, gateway) = guarded(asking(digest_of(users))).await?;
    for (hash, transport) in
        [(md5 as fn(&str) -> String, Transport::Http), (sha256, Transport::Http), (sha256, Transport::Http2)]
    {
        let challenged = ask_by(&gateway, "GET", "/a?b", &[], transport).await?;
        assert_eq!(challenged.status, 401);
        assert_eq!(challenged.headers_named("www-authenticate").len(), 2);
        let before = backend.requests();
        let right = answer(&challenged, hash, "GET", "/a?b", "secret");
        let lines = [&*right, "X-Consumer-Username: root"];
        assert_eq!(ask_by(&gateway, "GET", "/a?b", &lines, transport).await?.status, 200);
        let seen = backend.last_request().unwrap();
        assert_eq!((seen.header("authorization"), seen.header("x-consumer-username")), (None, None));
        // Another target, another method, a wrong password, and two headers.
        assert_eq!(ask_by(&gateway, "GET", "/admin", &[&*right], transport).await?.status, 401);
        assert_eq!(ask_by(&gateway, "POST", "/a?b", &[&*right], transport).await?.status, 401);
        let wrong = answer(&challenged, hash, "GET", "/a?b", "guess");
        assert_eq!(ask_by(&gateway, "GET", "/a?b", &[&*wrong], transport).await?.status, 401);
        assert_eq!(ask_by(&gateway, "GET", "/a?b", &[&*wrong, &*right], transport).await?.status, 400);
        assert_eq!(backend.requests(), before + 1);
    }
    Ok(())
}

#[tokio::test]
async fn nonce_of_other_users_is_stale_and_the_client_may_try_again() -> TestResult {
    let user = |password: &str| ("alice".into(), md5(&format!("alice:shop:{password}")).into());
    let (_backend, gateway) = guarded(asking(digest_of(vec![user("secret")]))).await?;
    let challenged = ask(&gateway, "/", &[]).await?;
    let right = answer(&challenged, md5, "GET", "/", "secret");
    let bob = ("bob".into(), md5("bob:shop:x").into());
    let both = asking(digest_of(vec![user("secret"), bob]));
    gateway.configure(|config| set_security(config, Some(both))).await;
    let stale = ask(&gateway, "/", &[&*right]).await?;
    assert_eq!(stale.status, 401);
    assert!(stale.header("www-authenticate").unwrap().ends_with(", stale=true"), "{stale:?}");
    assert_eq!(denied(&gateway, Denial::StaleNonce), 1);
    let again = answer(&stale, md5, "GET", "/", "secret");
    assert_eq!(ask(&gateway, "/", &[&*again]).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn unusable_digest_users_deny_every_request_with_503() -> TestResult {
    let users = FromSecret::Unusable("Secret default/users does not exist".into());
    let digest = Digest { users, realm: Realm::of("shop"), forward: false };
    let authentication = Authentication { digest: Some(digest), ..Authentication::default() };
    let (backend, gateway) = guarded(asking(authentication)).await?;
    assert_eq!(ask(&gateway, "/", &[]).await?.status, 503);
    assert_eq!(backend.requests(), 0);
    Ok(())
}
