//! Tests of the Secrets that policies name.

use sluicegate_model::feature::Authentication;
use sluicegate_model::feature::authentication::jwt::ProviderKeys;
use sluicegate_model::value::secret::authorities;

use super::{assert_problems, policy, secret, security_of, shop, translated};

const KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
const ALICE: &str = "alice:{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=";

/// The authentication of a policy with these Secrets, and the problems.
fn method(authentication: &str, secrets: &str) -> (Authentication, Vec<String>) {
    let text =
        [shop(), policy(&format!("authentication: {{{authentication}}}")), secrets.to_owned()].concat();
    let (translation, problems) = translated(&[&text]);
    let security = security_of(&translation.config);
    assert_eq!(security.refuses, None, "the other parts work");
    (security.authentication.clone().expect("there is one"), problems)
}

fn keys(authentication: &Authentication) -> &ProviderKeys {
    &authentication.jwt.as_ref().expect("a provider").providers[0].keys
}

/// The keys that come from a Secret, or the reason why there are none.
fn from_secret(authentication: &Authentication) -> Result<&[u8], &str> {
    match keys(authentication) {
        ProviderKeys::Secret(keys) | ProviderKeys::Shared(keys) => keys.value().map(|keys| &**keys.get()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn remote_jwks_url_is_verified_with_the_ca_of_a_secret_or_with_public_cas() {
    let authority = sluicegate_testkit::tls::Authority::of_process().pem();
    let secrets = secret("issuer", &format!("ca.crt: {authority:?}, empty: \"\""));
    let provider = |remote: &str| {
        format!(
            "jwt: {{providers: [{{name: acme, keys: {{remote: {{url: \"https://issuer/keys\"{remote}}}}}}}]}}"
        )
    };
    let (plain, problems) = method(&provider(""), &secrets);
    assert_problems(&problems, &[]);
    let ProviderKeys::Remote(remote) = keys(&plain) else { panic!("{plain:?}") };
    assert_eq!((&*remote.url, authorities(&remote.ca_certificate_ref)), ("https://issuer/keys", Ok(&[][..])));
    assert_eq!((remote.refresh_interval.get().as_secs(), remote.timeout.get().as_secs()), (300, 5));
    let own = provider(", caCertificateRef: {name: issuer}, refreshInterval: 1h, timeout: 200ms");
    let (own, problems) = method(&own, &secrets);
    assert_problems(&problems, &[]);
    let ProviderKeys::Remote(remote) = keys(&own) else { panic!("{own:?}") };
    assert_eq!((remote.refresh_interval.get().as_secs(), remote.timeout.get().as_millis()), (3600, 200));
    assert_eq!(authorities(&remote.ca_certificate_ref).map(<[_]>::len), Ok(1));
    // None of these errors makes the gateway trust the public CA certificates instead.
    for (named, problem) in [
        ("{name: none}", "caCertificateRef: Secret default/none does not exist"),
        ("{name: issuer, key: none}", "caCertificateRef: Secret default/issuer has no data[none]"),
        ("{name: issuer, key: empty}", "caCertificateRef: Secret default/issuer: data[empty]"),
    ] {
        let (unusable, problems) = method(&provider(&format!(", caCertificateRef: {named}")), &secrets);
        let ProviderKeys::Remote(remote) = keys(&unusable) else { panic!("{unusable:?}") };
        assert!(authorities(&remote.ca_certificate_ref).is_err(), "{named}");
        assert_problems(&problems, &[problem]);
    }
    let clear = "jwt: {providers: [{name: acme, keys: {remote: {url: \"http://issuer/keys\"}}}]}";
    let (_, problems) = method(clear, "");
    assert_problems(&problems, &["remote.url: uses http"]);
}

#[test]
fn external_authorization_trusts_only_the_ca_of_its_secret() {
    let authority = sluicegate_testkit::tls::Authority::of_process().pem();
    let secrets = secret("authz", &format!("ca.crt: {authority:?}, empty: \"\""));
    let external =
        |named: &str| format!("extAuth: {{url: \"https://authz/\", caCertificateRef: {{name: {named}}}}}");
    let (good, problems) = method(&external("authz"), &secrets);
    assert_problems(&problems, &[]);
    let trusted = |of: &Authentication| {
        let service = of.ext_auth.as_ref().expect("a service");
        authorities(&service.ca_certificate_ref).map(<[_]>::len).ok()
    };
    assert_eq!(trusted(&good), Some(1));
    for (named, problem) in [
        (
            "none",
            "extAuth.caCertificateRef: Secret default/none does not exist; no request is allowed by https://authz/",
        ),
        ("authz, key: none", "caCertificateRef: Secret default/authz has no data[none]"),
        ("authz, key: empty", "caCertificateRef: Secret default/authz: data[empty]"),
    ] {
        let (unusable, problems) = method(&external(named), &secrets);
        assert_eq!(trusted(&unusable), None, "{named}");
        assert_problems(&problems, &[problem]);
    }
}

#[test]
fn login_takes_its_client_secret_and_its_cookie_keys_from_secrets() {
    let login =
        |fields: &str| format!("oidc: {{issuer: \"https://login.example\", clientId: shop, {fields}}}");
    let key = "0123456789abcdef0123456789abcdef";
    let secrets = secret(
        "login",
        &format!(
            "client-secret: \"s3cret\\n\", cookie-secret: \"{key}\\n\\n{key}x\\n\", short: abc, empty: \"\""
        ),
    );
    let both = "clientSecretRef: {name: login}, cookieSecretRef: {name: login}";
    let (good, problems) = method(&login(both), &secrets);
    assert_problems(&problems, &[]);
    let oidc = good.oidc.as_ref().expect("a login");
    let client = oidc.client_secret_ref.as_ref().expect("a secret").value().expect("a value");
    assert_eq!(&**client.get(), b"s3cret");
    let keys = oidc.cookie_secret_ref.value().expect("keys").get();
    let keys: Vec<_> = keys.iter().map(|key| key.get().len()).collect();
    assert_eq!(keys, [32, 33]);
    assert_eq!((&*oidc.redirect_path, &*oidc.logout_path), ("/oauth2/callback", "/oauth2/logout"));
    for (fields, problem) in [
        (
            "cookieSecretRef: {name: none}",
            "oidc.cookieSecretRef: Secret default/none does not exist; no browser can log in",
        ),
        (
            "cookieSecretRef: {name: login, key: short}",
            "cookieSecretRef: Secret default/login: data[short] has a key of 3 characters in line 1: write 32 to 256",
        ),
        ("cookieSecretRef: {name: login, key: empty}", "data[empty] must have 1 to 8 lines"),
        (
            "cookieSecretRef: {name: login}, clientSecretRef: {name: login, key: empty}",
            "oidc.clientSecretRef: Secret default/login has an empty data[empty]",
        ),
        (
            "cookieSecretRef: {name: login}, caCertificateRef: {name: login, key: short}",
            "oidc.caCertificateRef: Secret default/login: data[short] has no certificate",
        ),
    ] {
        let (unusable, problems) = method(&login(fields), &secrets);
        let oidc = unusable.oidc.as_ref().expect("a login");
        let is_usable = oidc.cookie_secret_ref.value().is_ok()
            && oidc.client_secret_ref.as_ref().is_none_or(|of| of.value().is_ok())
            && authorities(&oidc.ca_certificate_ref).is_ok();
        assert!(!is_usable, "{fields}");
        assert_problems(&problems, &[problem]);
        assert!(!problems[0].contains("0123"), "{problems:?}");
    }
}

#[test]
fn introspection_takes_its_client_secret_from_a_secret() {
    let server = |named: &str| {
        format!(
            "introspection: {{url: \"https://login.example/introspect\", clientId: shop, clientSecretRef: {named}}}"
        )
    };
    let secrets = secret("login", "client-secret: s3cret");
    let (good, problems) = method(&server("{name: login}"), &secrets);
    assert_problems(&problems, &[]);
    let introspection = good.introspection.as_ref().expect("there is one");
    assert!(introspection.client_secret_ref.value().is_ok() && introspection.forward);
    let times = (introspection.cache.active.get().as_secs(), introspection.cache.inactive.get().as_secs());
    assert_eq!(times, (60, 10));
    let (unusable, problems) = method(&server("{name: none}"), &secrets);
    assert!(unusable.introspection.as_ref().is_some_and(|of| of.client_secret_ref.value().is_err()));
    let problem = "introspection.clientSecretRef: Secret default/none does not exist; no token is checked by https://login.example/introspect";
    assert_problems(&problems, &[problem]);
}

#[test]
fn jwt_keys_and_shared_secrets_come_from_secrets() {
    let provider = |keys: &str| format!("jwt: {{providers: [{{name: acme, keys: {{{keys}}}}}]}}");
    let jwks = secret(
        "acme",
        &format!("jwks.json: '{KEY}', other: '{KEY}', short: abc, secret: \"0123456789abcdef\\n\""),
    );
    let (given, problems) = method(&provider("secretRef: {name: acme}"), &jwks);
    assert_problems(&problems, &[]);
    assert_eq!(from_secret(&given), Ok(KEY.as_bytes()));
    let (given, problems) = method(&provider("secretRef: {name: acme, key: other}"), &jwks);
    assert_problems(&problems, &[]);
    assert!(from_secret(&given).is_ok());
    let (shared, problems) = method(&provider("sharedSecretRef: {name: acme}"), &jwks);
    assert_problems(&problems, &[]);
    assert_eq!(from_secret(&shared), Ok(&b"0123456789abcdef"[..]));

    // During a rotation the issuer may sign with the old or the new secret.
    let both = "{\"keys\":[{\"kty\":\"oct\",\"kid\":\"old\",\"k\":\"MDEyMzQ1Njc4OWFiY2RlZg\"},\
                {\"kty\":\"oct\",\"kid\":\"new\",\"k\":\"MDEyMzQ1Njc4OWFiY2RlZw\"}]}";
    let rotating = "secretRef: {name: both}}, algorithms: [HS256], audiences: [a";
    let rotating = provider(rotating).replace("audiences: [a}", "audiences: [a]");
    let (given, problems) = method(&rotating, &secret("both", &format!("jwks.json: '{both}'")));
    assert_problems(&problems, &[]);
    assert!(from_secret(&given).is_ok());

    let none = "all tokens of provider \"acme\" are rejected";
    for (named, problem) in [
        ("secretRef: {name: none}", "keys.secretRef: Secret default/none does not exist"),
        ("secretRef: {name: acme, key: none}", "keys.secretRef: Secret default/acme has no data[none]"),
        (
            "secretRef: {name: acme, key: short}",
            "Secret default/acme: the keys in data[short] include no valid key",
        ),
        ("sharedSecretRef: {name: acme, key: short}", "Secret default/acme: data[short] has 3 bytes"),
    ] {
        let (unusable, problems) = method(&provider(named), &jwks);
        assert!(from_secret(&unusable).is_err(), "{named}");
        assert_problems(&problems, &[problem]);
        assert!(problems[0].ends_with(none), "{problems:?}");
    }
}

#[test]
fn jwt_provider_may_list_every_algorithm() {
    let all = "HS256, HS384, HS512, RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384, ES512, EdDSA";
    let provider = format!("{{name: acme, keys: {{remote: {{url: \"https://a/\"}}}}, algorithms: [{all}]}}");
    // The three algorithms with a shared secret do not fit remote keys. This test checks only the number of algorithms.
    let text = [shop(), policy(&format!("authentication: {{jwt: {{providers: [{provider}]}}}}"))].concat();
    let (_, problems) = translated(&[&text]);
    assert!(!problems.iter().any(|problem| problem.contains("entries")), "{problems:?}");
}

#[test]
fn basic_auth_users_come_from_secrets() {
    let basic = "basic: {secretRef: {name: users}, realm: shop}";
    let (found, problems) = method(basic, &secret("users", &format!("auth: \"{ALICE}\\n\"")));
    assert_problems(&problems, &[]);
    let found = found.basic.unwrap();
    let users = found.secret_ref.value().unwrap();
    assert_eq!((&*found.realm, &*users[0].0, found.forward), ("shop", "alice", false));

    let (found, problems) = method(basic, &secret("users", &format!("auth: \"bob:plain\\n{ALICE}\"")));
    assert_eq!(found.basic.unwrap().secret_ref.value().map(Vec::len), Ok(1));
    assert_problems(&problems, &["Secret default/users: line 1 of data[auth] has an unsupported hash"]);
    assert!(!problems[0].contains("plain"), "nothing of a Secret is shown");

    for (secrets, problem) in [
        (String::new(), "basic.secretRef: Secret default/users does not exist; all passwords are rejected"),
        (secret("users", "other: x"), "Secret default/users has no data[auth]"),
        (secret("users", "auth: \"\""), "has no valid line name:hash in data[auth]"),
    ] {
        let (unusable, problems) = method(basic, &secrets);
        assert!(unusable.basic.unwrap().secret_ref.value().is_err());
        assert_problems(&problems, &[problem]);
    }
}

#[test]
fn missing_secret_is_reported_in_the_policy_status() {
    let (translation, _) =
        translated(&[
            &[shop(), policy("authentication: {apiKey: {}, basic: {secretRef: {name: users}}}")].concat()
        ]);
    let standing = &translation.policy_statuses[0];
    assert_eq!(standing.reason.as_str(), "Invalid");
    assert!(standing.message.starts_with("spec.authentication.basic.secretRef: Secret default/users"));
}
