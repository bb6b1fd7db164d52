//! Tests with valid, malformed and forged tokens.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

use std::time::Duration;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluicegate_jwt::{Algorithm, Claims, Fault, KeyFault, KeySet, Rules, Token, Wanted, token};
use x509_parser::prelude::FromDer as _;
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

fn b64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn hs256(header: &Value, claims: &str, secret: &[u8]) -> String {
    let message = format!("{}.{}", b64(header.to_string()), b64(claims));
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", b64(tag))
}

fn verify(token: &str, keys: &KeySet) -> Result<Claims, Fault> {
    Token::parse(token.as_bytes())?.verify(keys).cloned()
}

fn shared() -> KeySet {
    KeySet::shared(SECRET, &[]).unwrap()
}

fn pem(der: &[u8]) -> String {
    let lines: Vec<String> = STANDARD
        .encode(der)
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect();
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n"))
}

/// A token signed with the algorithm, and its key as PEM and as JWK.
fn signed(algorithm: Algorithm) -> (String, String, Value) {
    let message =
        format!("{}.{}", b64(json!({"alg": algorithm.as_str()}).to_string()), b64(r#"{"sub":"42"}"#));
    let random = SystemRandom::new();
    let (signature, spki, jwk) = match algorithm {
        Algorithm::Es256 | Algorithm::Es384 | Algorithm::Es512 => {
            let (with, curve, length) = match algorithm {
                Algorithm::Es256 => (&signature::ECDSA_P256_SHA256_FIXED_SIGNING, "P-256", 32),
                Algorithm::Es384 => (&signature::ECDSA_P384_SHA384_FIXED_SIGNING, "P-384", 48),
                _ => (&signature::ECDSA_P521_SHA512_FIXED_SIGNING, "P-521", 66),
            };
            let pair = EcdsaKeyPair::generate(with).unwrap();
            let point = pair.public_key().as_ref()[1..].to_vec();
            let spki = pair.public_key().as_der().unwrap().as_ref().to_vec();
            let jwk =
                json!({"kty": "EC", "crv": curve, "x": b64(&point[..length]), "y": b64(&point[length..])});
            (pair.sign(&random, message.as_bytes()).unwrap().as_ref().to_vec(), spki, jwk)
        }
        Algorithm::EdDsa => {
            let pair = Ed25519KeyPair::generate().unwrap();
            let spki: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
            let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": b64(pair.public_key())});
            (pair.sign(message.as_bytes()).as_ref().to_vec(), spki.as_ref().to_vec(), jwk)
        }
        _ => {
            let with: &'static dyn signature::RsaEncoding = match algorithm {
                Algorithm::Rs256 => &signature::RSA_PKCS1_SHA256,
                Algorithm::Rs384 => &signature::RSA_PKCS1_SHA384,
                Algorithm::Rs512 => &signature::RSA_PKCS1_SHA512,
                Algorithm::Ps256 => &signature::RSA_PSS_SHA256,
                Algorithm::Ps384 => &signature::RSA_PSS_SHA384,
                _ => &signature::RSA_PSS_SHA512,
            };
            let pair = RsaKeyPair::generate(KeySize::Rsa2048).unwrap();
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(with, &random, message.as_bytes(), &mut signature).unwrap();
            let der: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
            let (_, spki) = SubjectPublicKeyInfo::from_der(der.as_ref()).unwrap();
            let Ok(PublicKey::RSA(key)) = spki.parsed() else { panic!("an RSA key") };
            let jwk = json!({"kty": "RSA", "n": b64(key.modulus), "e": b64(key.exponent)});
            (signature, der.as_ref().to_vec(), jwk)
        }
    };
    (format!("{message}.{}", b64(signature)), pem(&spki), jwk)
}

#[test]
fn token_of_each_asymmetric_algorithm_is_verified_only_by_its_own_key() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| !algorithm.is_shared()) {
        let (token, pem, jwk) = signed(algorithm);
        let other = signed(algorithm).1;
        for keys in [pem.clone(), jwk.to_string(), json!({"keys": [jwk]}).to_string()] {
            let keys = KeySet::given(keys.as_bytes(), &[]).unwrap();
            assert_eq!(verify(&token, &keys).unwrap().text("sub"), Some("42"), "{algorithm}");
        }
        assert_eq!(
            verify(&token, &KeySet::given(other.as_bytes(), &[]).unwrap()),
            Err(Fault::Signature),
            "{algorithm}"
        );
        assert!(KeySet::given(pem.as_bytes(), &[algorithm]).is_ok(), "{algorithm}");
        let both = KeySet::given(format!("{other}{pem}").as_bytes(), &[]).unwrap();
        assert!(verify(&token, &both).is_ok(), "{algorithm}: the second key");
    }
}

#[test]
fn shared_secret_verifies_each_hmac_algorithm() {
    for (name, hash) in
        [("HS256", hmac::HMAC_SHA256), ("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)]
    {
        let message = format!("{}.{}", b64(json!({"alg": name}).to_string()), b64("{}"));
        let tag = hmac::sign(&hmac::Key::new(hash, SECRET), message.as_bytes());
        let token = format!("{message}.{}", b64(tag));
        assert!(verify(&token, &shared()).is_ok(), "{name}");
        let jwk = json!({"kty": "oct", "k": b64(SECRET), "alg": name}).to_string();
        assert!(verify(&token, &KeySet::given(jwk.as_bytes(), &[]).unwrap()).is_ok(), "{name}");
    }
    assert_eq!(KeySet::shared(b"secret", &[]).unwrap_err(), KeyFault::ShortSecret(6));
    assert_eq!(KeySet::shared(SECRET, &[Algorithm::Rs256]).unwrap_err(), KeyFault::Algorithm);
}

#[test]
fn token_with_algorithm_none_is_rejected_in_any_letter_case() {
    for name in ["none", "None", "NONE", "nOnE", "", "HS256 ", "hs256"] {
        let token = format!("{}.{}.", b64(json!({"alg": name}).to_string()), b64("{}"));
        assert_eq!(verify(&token, &shared()), Err(Fault::Algorithm), "{name:?}");
    }
    let signed = hs256(&json!({"alg": "HS256"}), "{}", SECRET);
    let unsigned = format!("{}.", signed.rsplit_once('.').unwrap().0);
    assert_eq!(verify(&unsigned, &shared()), Err(Fault::Signature));
}

#[test]
fn token_signed_with_the_public_key_as_shared_secret_is_rejected() {
    let (_, pem, jwk) = signed(Algorithm::Rs256);
    let keys = KeySet::given(pem.as_bytes(), &[]).unwrap();
    for secret in [pem.as_bytes(), pem.trim().as_bytes(), jwk.to_string().as_bytes()] {
        let forged = hs256(&json!({"alg": "HS256"}), "{}", secret);
        assert_eq!(verify(&forged, &keys), Err(Fault::Algorithm));
    }
    assert!(KeySet::given(pem.as_bytes(), &[Algorithm::Hs256]).is_err());
}

#[test]
fn token_with_an_unaccepted_algorithm_is_rejected() {
    let (token, pem, _) = signed(Algorithm::Rs256);
    let keys = KeySet::given(pem.as_bytes(), &[Algorithm::Ps256, Algorithm::Rs512]).unwrap();
    assert_eq!(verify(&token, &keys), Err(Fault::Algorithm));
    let token = hs256(&json!({"alg": "HS256"}), "{}", SECRET);
    assert_eq!(verify(&token, &KeySet::shared(SECRET, &[Algorithm::Hs512]).unwrap()), Err(Fault::Algorithm));
}

#[test]
fn key_id_of_the_token_selects_the_key() {
    let key = |kid: &str, secret: &[u8]| json!({"kty": "oct", "kid": kid, "k": b64(secret)});
    let other = b"fedcba9876543210fedcba9876543210";
    let set = json!({"keys": [key("a", SECRET), key("b", other)]}).to_string();
    let keys = KeySet::given(set.as_bytes(), &[]).unwrap();
    let token = |kid: &Value, secret: &[u8]| hs256(&json!({"alg": "HS256", "kid": kid}), "{}", secret);
    assert!(verify(&token(&json!("a"), SECRET), &keys).is_ok());
    assert_eq!(verify(&token(&json!("b"), SECRET), &keys), Err(Fault::Signature));
    assert_eq!(verify(&token(&json!("c"), SECRET), &keys), Err(Fault::UnknownKey));
    assert_eq!(verify(&token(&json!("../../a"), SECRET), &keys), Err(Fault::UnknownKey));
    assert_eq!(verify(&token(&json!(["a"]), SECRET), &keys), Err(Fault::Malformed));
    assert!(
        verify(&hs256(&json!({"alg": "HS256"}), "{}", other), &keys).is_ok(),
        "without a kid, the set tries all keys"
    );
}

#[test]
fn verifier_ignores_a_key_in_the_token_header() {
    let (token, _, jwk) = signed(Algorithm::Es256);
    let (_, payload) = token.split_once('.').unwrap();
    let header = b64(json!({"alg": "ES256", "jwk": jwk, "jku": "https://attacker.example/keys"}).to_string());
    let keys = KeySet::given(signed(Algorithm::Es256).1.as_bytes(), &[]).unwrap();
    assert_eq!(verify(&format!("{header}.{payload}"), &keys), Err(Fault::Signature));
}

#[test]
fn malformed_token_is_rejected() {
    let good = hs256(&json!({"alg": "HS256"}), r#"{"a":1}"#, SECRET);
    let parts: Vec<&str> = good.split('.').collect();
    let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5000), "]".repeat(5000));
    let bad = [
        String::new(),
        "..".to_owned(),
        parts[..2].join("."),
        format!("{good}."),
        format!("{good}.x.y"),
        format!("{}=.{}.{}", parts[0], parts[1], parts[2]),
        format!(" {good}"),
        format!("{good}\n"),
        format!("{}.{}.{}+/", parts[0], parts[1], parts[2]),
        hs256(&json!({"alg": "HS256"}), "[]", SECRET),
        hs256(&json!({"alg": "HS256"}), r#"{"a":1} x"#, SECRET),
        hs256(&json!({"alg": "HS256"}), &deep, SECRET),
        hs256(&json!({"alg": 1}), "{}", SECRET),
        hs256(&json!({}), "{}", SECRET),
        format!("{}.{}.{}", b64(r#"{"alg":"HS256","alg":"none"}"#), parts[1], parts[2]),
        format!("{}.{}.{}", parts[0], parts[1], b64(vec![0; 2000])),
    ];
    for token in bad {
        assert_eq!(verify(&token, &shared()).unwrap_err(), Fault::Malformed, "{token:.80}");
    }
    // The last character of an encoded signature of 32 bytes has two unused bits, which must be 0.
    let last = good.chars().last().unwrap();
    let alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let next = alphabet.chars().nth(alphabet.find(last).unwrap() ^ 1).unwrap();
    assert_eq!(
        verify(&format!("{}{next}", &good[..good.len() - 1]), &shared()).unwrap_err(),
        Fault::Malformed
    );
    let long = hs256(&json!({"alg": "HS256"}), &json!({"a": "x".repeat(token::MAX)}).to_string(), SECRET);
    assert_eq!(verify(&long, &shared()), Err(Fault::TooLong));
    for critical in [json!(["b64"]), json!([]), json!(null), json!("b64")] {
        let critical = hs256(&json!({"alg": "HS256", "crit": critical, "b64": false}), "{}", SECRET);
        assert_eq!(verify(&critical, &shared()), Err(Fault::Critical));
    }
}

#[test]
fn ed25519_keys_of_small_order_are_rejected() {
    let is_rejected = |x: [u8; 32]| {
        let jwk = json!({"kty": "OKP", "crv": "Ed25519", "x": b64(x)}).to_string();
        KeySet::given(jwk.as_bytes(), &[]).is_err_and(|fault| fault.to_string().contains("small order"))
    };
    let mut identity = [0; 32];
    identity[0] = 1;
    let mut least = [0xff; 32];
    (least[0], least[31]) = (0xec, 0x7f);
    let eighth = [
        0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f, 0x2a,
        0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a,
    ];
    for point in [[0; 32], identity, least, eighth] {
        let mut negative = point;
        negative[31] |= 0x80;
        assert!(is_rejected(point) && is_rejected(negative), "{point:?}");
    }
    let pair = Ed25519KeyPair::generate().unwrap();
    assert!(!is_rejected(pair.public_key().as_ref().try_into().unwrap()));
}

#[test]
fn unusable_key_is_rejected_with_the_reason() {
    let given = |text: &str| KeySet::given(text.as_bytes(), &[]).unwrap_err().to_string();
    for (text, expected) in [
        ("", "no valid key"),
        ("hello", "no valid key"),
        ("{", "not valid JSON at line 1"),
        (r#"{"keys": []}"#, "the set is empty"),
        (r#"{"keys": 1}"#, "not a list"),
        (r#"{"kty": "oct", "k": "c2hvcnQ"}"#, "too short"),
        (r#"{"kty": "EC", "crv": "secp256k1"}"#, "unsupported"),
        (r#"{"kty": "RSA", "n": "AQAB", "e": "AQAB"}"#, "less than 2048 bits"),
        (r#"{"kty": "RSA", "use": "enc"}"#, "not for signatures"),
        ("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "private key"),
    ] {
        assert!(given(text).contains(expected), "{text}: {}", given(text));
    }
    let (_, _, mut jwk) = signed(Algorithm::Es256);
    jwk["x"] = json!(b64([1; 32]));
    assert!(given(&jwk.to_string()).contains("not valid"), "a point that is not on the curve");
    let many: Vec<Value> =
        (0..200).map(|n| json!({"kty": "oct", "kid": n.to_string(), "k": b64(SECRET)})).collect();
    assert_eq!(
        KeySet::given(json!({"keys": many}).to_string().as_bytes(), &[]).unwrap_err(),
        KeyFault::TooMany
    );
}

fn claims(value: &Value) -> Claims {
    verify(&hs256(&json!({"alg": "HS256"}), &value.to_string(), SECRET), &shared()).unwrap()
}

#[test]
fn verifier_checks_expiry_and_not_before_within_the_allowed_clock_skew() {
    let rules = |skew: u64, allows_eternal| Rules {
        clock_skew: Duration::from_secs(skew),
        allows_eternal,
        ..Rules::default()
    };
    let check = |value: Value, rules: &Rules| claims(&value).check(rules, 1000);
    for (value, expected) in [
        (json!({"exp": 1001}), Ok(())),
        (json!({"exp": 1000}), Err(Fault::Expired)),
        (json!({"exp": 1000.9}), Err(Fault::Expired)),
        (json!({"exp": -1}), Err(Fault::Expired)),
        (json!({"exp": 1e300}), Ok(())),
        (json!({"exp": u64::MAX}), Ok(())),
        (json!({"exp": "1001"}), Err(Fault::Malformed)),
        (json!({"exp": null}), Err(Fault::Malformed)),
        (json!({}), Err(Fault::Eternal)),
        (json!({"exp": 2000, "nbf": 1000}), Ok(())),
        (json!({"exp": 2000, "nbf": 1001}), Err(Fault::NotYetValid)),
        (json!({"exp": 2000, "nbf": "x"}), Err(Fault::Malformed)),
    ] {
        assert_eq!(check(value.clone(), &rules(0, false)), expected, "{value}");
    }
    assert_eq!(check(json!({"exp": 941}), &rules(60, false)), Ok(()));
    assert_eq!(check(json!({"exp": 940}), &rules(60, false)), Err(Fault::Expired));
    assert_eq!(check(json!({"exp": 2000, "nbf": 1060}), &rules(60, false)), Ok(()));
    assert_eq!(check(json!({"exp": 2000, "nbf": 1061}), &rules(60, false)), Err(Fault::NotYetValid));
    assert_eq!(check(json!({}), &rules(0, true)), Ok(()));
}

#[test]
fn token_of_a_foreign_issuer_or_audience_is_rejected() {
    let rules = Rules {
        issuer: Some("https://a".into()),
        audiences: vec!["shop".into()],
        allows_eternal: true,
        ..Rules::default()
    };
    for (value, expected) in [
        (json!({"iss": "https://a", "aud": "shop"}), Ok(())),
        (json!({"iss": "https://a", "aud": ["other", "shop"]}), Ok(())),
        (json!({"iss": "https://a", "aud": ["other"]}), Err(Fault::Audience)),
        (json!({"iss": "https://a", "aud": "shopping"}), Err(Fault::Audience)),
        (json!({"iss": "https://a"}), Err(Fault::Audience)),
        (json!({"iss": "https://b", "aud": "shop"}), Err(Fault::Issuer)),
        (json!({"iss": "https://a/", "aud": "shop"}), Err(Fault::Issuer)),
        (json!({"iss": ["https://a"], "aud": "shop"}), Err(Fault::Issuer)),
        (json!({"aud": "shop"}), Err(Fault::Issuer)),
    ] {
        assert_eq!(claims(&value).check(&rules, 0), expected, "{value}");
    }
}

#[test]
fn claim_name_may_contain_dots_or_be_a_path_of_nested_claims() {
    let claims = claims(&json!({
        "scope": "read write", "name": "not admin", "admin": true, "level": 3,
        "https://example.com/roles": ["dev"], "realm_access": {"roles": ["ops"]}, "nothing": null,
    }));
    let has =
        |claim: &str, value: &str| claims.has(&Wanted { claim: claim.into(), values: vec![value.into()] });
    assert!(has("scope", "write") && !has("scope", "wri") && !has("scope", "read write"));
    assert!(!has("name", "admin"), "only scope is a list of words");
    assert!(has("admin", "true") && has("level", "3") && !has("level", "3.0"));
    assert!(has("https://example.com/roles", "dev") && has("realm_access.roles", "ops"));
    assert!(!has("realm_access.missing", "ops") && !has("scope.read", "x") && !has("nothing", "null"));
    let exists = |claim: &str| claims.has(&Wanted { claim: claim.into(), values: Vec::new() });
    assert!(exists("name") && !exists("nothing") && !exists("missing"));
}

proptest! {
    #[test]
    fn verifier_rejects_arbitrary_bytes_without_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(Token::parse(&text).and_then(|token| token.verify(&shared()).cloned()).is_err());
        let _ = KeySet::given(&text, &[]);
    }

    #[test]
    fn token_with_one_changed_byte_is_rejected(at in 0_usize..110, to in any::<u8>()) {
        let good = hs256(&json!({"alg": "HS256"}), r#"{"sub":"42","exp":4000000000}"#, SECRET);
        let mut bytes = good.into_bytes();
        let at = at % bytes.len();
        prop_assume!(bytes[at] != to);
        bytes[at] = to;
        prop_assert!(Token::parse(&bytes).and_then(|token| token.verify(&shared()).cloned()).is_err());
    }
}
