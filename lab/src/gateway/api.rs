//! The functions of an API gateway, and the calls that check them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};

use super::{catalogue, order};
use crate::experiment::Functions;

/// The issuer of the tokens.
pub(crate) const ISSUER: &str = "https://issuer.example.com";

/// The header with the API key of a caller.
pub(crate) const KEY_HEADER: &str = "X-API-Key";

/// The header that names the caller with an API key to pods.
pub(crate) const CONSUMER_HEADER: &str = "X-Consumer-Username";

/// The header with the token of a caller.
const TOKEN_HEADER: &str = "Authorization";

/// The validity of a token, and the time since the expiry of the expired token: no gateway tolerates this difference
/// between clocks.
const VALIDITY: Duration = Duration::from_hours(24);

/// The functions that a gateway applies to a call beside forwarding it.
#[derive(Clone, Debug, Default)]
pub(crate) enum Api {
    #[default]
    Nothing,
    /// Verification of a token.
    Jwt(Box<Jwt>),
    /// Look-up of the consumer of a key.
    Keys(ApiKeys),
    /// API management.
    Managed(Box<Managed>),
    /// Validation of the [`order`].
    Validation,
}

/// API management: the APIs of the [`catalogue`], whose operations are known, callers with subscriptions under a plan,
/// and analytics.
#[derive(Clone, Debug)]
pub(crate) struct Managed {
    /// The credentials of the callers.
    pub(crate) identity: Api,
    /// The names of the callers, in the order of their credentials. With tokens, the subjects.
    pub(crate) callers: Vec<String>,
    /// The rate limit of the plan, for each subscription.
    pub(crate) limit: Limit,
}

/// The issuer of accepted tokens, and some of its tokens.
#[derive(Clone, Debug)]
pub(crate) struct Jwt {
    pub(crate) key: JwtKey,
    tokens: Tokens,
}

#[derive(Clone, Debug)]
struct Tokens {
    /// A token for each caller, all of the same length.
    good: Vec<String>,
    /// Invalid tokens, each with its fault.
    bad: Vec<(&'static str, String)>,
}

/// The key that verifies tokens.
#[derive(Clone, Debug)]
pub(crate) enum JwtKey {
    /// HS256: the secret that the issuer knows too.
    Secret(String),
    /// RS256: the issuer's public key in PEM, and as a set of JWKs.
    Public { pem: String, jwks: String },
}

/// The consumers that may call.
#[derive(Clone, Debug)]
pub(crate) struct ApiKeys {
    /// The consumers; at least one.
    pub(crate) consumers: Vec<Consumer>,
    /// The rate limit of each consumer.
    pub(crate) limit: Option<Limit>,
}

/// A consumer.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    pub(crate) name: String,
    pub(crate) key: String,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) requests: u32,
    pub(crate) per: Duration,
}

/// A header of a call.
#[derive(Clone, Debug)]
pub(crate) struct Header {
    pub(crate) name: &'static str,
    pub(crate) value: String,
}

impl Header {
    /// The line of a header, or an empty text without a header.
    pub(crate) fn line(header: Option<&Self>) -> String {
        header.map_or(String::new(), |Self { name, value }| format!("{name}: {value}\r\n"))
    }
}

/// A call that checks a function of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) what: &'static str,
    pub(crate) header: Option<Header>,
    /// The JSON body of a POST; a GET without a body.
    pub(crate) body: Option<String>,
    /// The required status of the response.
    pub(crate) status: u16,
}

impl Call {
    /// The GET of a caller with these credentials.
    pub(crate) fn good(header: Option<Header>) -> Self {
        Self { what: "good", header, body: None, status: 200 }
    }

    /// The text of the request, with further lines of its head, on a connection of its own.
    pub(crate) fn request(&self, host: &str, path: &str, lines: &str) -> String {
        let header = Header::line(self.header.as_ref());
        let (method, of_body, body) = match self.body.as_deref() {
            Some(body) => {
                let length = body.len();
                ("POST", format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"), body)
            }
            None => ("GET", String::new(), ""),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\n{header}{of_body}Connection: close\r\n{lines}\r\n{body}"
        )
    }
}

impl Limit {
    /// A limit far above the rate of any load, so that the measurement covers the cost of the limit without denials.
    pub(crate) const HIGH: Self = Self { requests: 1_000_000, per: Duration::from_secs(1) };

    /// A limit that a few calls exceed, and that does not refill during the check.
    pub(crate) const LOW: Self = Self { requests: 5, per: Duration::from_mins(10) };
}

impl Api {
    /// The functions, with new keys or tokens for this number of callers.
    pub(crate) fn new(functions: Functions, callers: usize, limit: Limit) -> anyhow::Result<Self> {
        let callers = callers.max(1);
        let keys = |limit| -> anyhow::Result<Self> {
            let consumers = (1..=callers).map(Consumer::new).collect::<Result<_, _>>()?;
            Ok(Self::Keys(ApiKeys { consumers, limit }))
        };
        match functions {
            Functions::None => Ok(Self::Nothing),
            Functions::Validation => Ok(Self::Validation),
            Functions::JwtHs256 => Ok(Self::Jwt(Box::new(Jwt::hs256(callers)?))),
            Functions::JwtRs256 => Ok(Self::Jwt(Box::new(Jwt::rs256(callers)?))),
            Functions::ApiKey => keys(None),
            Functions::ApiKeyAndLimit => keys(Some(limit)),
            Functions::ManagedApiKey | Functions::ManagedJwt => {
                let identity = match functions {
                    Functions::ManagedJwt => Self::Jwt(Box::new(Jwt::hs256(callers)?)),
                    _ => keys(None)?,
                };
                let callers = (1..=callers).map(caller).collect();
                Ok(Self::Managed(Box::new(Managed { identity, callers, limit })))
            }
        }
    }

    /// A path that each caller may call.
    pub(crate) fn path(&self, size: Option<u64>) -> String {
        match (self, size) {
            (Self::Managed(_), _) => catalogue::path(0, 0, size),
            (Self::Validation, _) => {
                order::PATH.to_owned() + &size.map_or(String::new(), |bytes| format!("?s={bytes}"))
            }
            (_, Some(bytes)) => format!("/?s={bytes}"),
            (_, None) => "/".to_owned(),
        }
    }

    /// The paths that callers call in turn; empty if there is only one path.
    pub(crate) fn paths(&self, size: Option<u64>) -> Vec<String> {
        match self {
            Self::Managed(_) => catalogue::paths(size),
            Self::Nothing | Self::Jwt(_) | Self::Keys(_) | Self::Validation => Vec::new(),
        }
    }

    /// The credentials that admit callers, each in its turn; empty if no credential is necessary.
    pub(crate) fn good(&self) -> Vec<Header> {
        match self {
            Self::Nothing | Self::Validation => Vec::new(),
            Self::Jwt(jwt) => jwt.tokens.good.iter().map(|token| bearer(token)).collect(),
            Self::Keys(keys) => keys.consumers.iter().map(Consumer::header).collect(),
            Self::Managed(managed) => managed.identity.good(),
        }
    }

    /// The calls that check the functions, without the calls over a limit.
    pub(crate) fn calls(&self) -> Vec<Call> {
        if let Self::Managed(managed) = self {
            return managed.identity.calls();
        }
        let refused = |what, header| Call { what, header, body: None, status: 401 };
        let mut calls = Vec::new();
        // The gateway knows all callers once it knows the last caller.
        let last = self.good().pop();
        if last.is_some() {
            calls.push(Call::good(last));
        }
        match self {
            Self::Nothing | Self::Managed(_) => {}
            Self::Validation => {
                let call = |(what, body), status| Call { what, header: None, body: Some(body), status };
                calls.push(call(("good", order::body()), 200));
                calls.extend(order::invalid().map(|invalid| call(invalid, 400)));
            }
            Self::Jwt(jwt) => {
                calls.push(refused("no token", None));
                calls.extend(jwt.tokens.bad.iter().map(|(what, token)| refused(what, Some(bearer(token)))));
            }
            Self::Keys(_) => {
                calls.push(refused("no key", None));
                calls.push(refused(
                    "unknown key",
                    Some(Header { name: KEY_HEADER, value: "0".repeat(Consumer::KEY_LENGTH) }),
                ));
            }
        }
        calls
    }

    pub(crate) fn limit(&self) -> Option<Limit> {
        match self {
            Self::Keys(keys) => keys.limit,
            Self::Managed(managed) => Some(managed.limit),
            Self::Nothing | Self::Jwt(_) | Self::Validation => None,
        }
    }
}

/// The name of a caller.
fn caller(number: usize) -> String {
    format!("caller-{number:06}")
}

fn bearer(token: &str) -> Header {
    Header { name: TOKEN_HEADER, value: format!("Bearer {token}") }
}

impl Consumer {
    /// The same length for each, so that requests with different keys have the same length.
    const KEY_LENGTH: usize = 32;

    fn new(number: usize) -> anyhow::Result<Self> {
        let mut random = [0; Self::KEY_LENGTH / 2];
        rand::fill(&mut random).context("making an API key")?;
        Ok(Self { name: caller(number), key: hex(&random) })
    }

    fn header(&self) -> Header {
        Header { name: KEY_HEADER, value: self.key.clone() }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Jwt {
    fn hs256(callers: usize) -> anyhow::Result<Self> {
        let secret = || -> anyhow::Result<String> {
            let mut random = [0; 32];
            rand::fill(&mut random).context("making a secret")?;
            Ok(hex(&random))
        };
        let (ours, another) = (secret()?, secret()?);
        let sign = |secret: &str, text: &str| {
            let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
            Ok(hmac::sign(&key, text.as_bytes()).as_ref().to_vec())
        };
        let tokens =
            tokens("HS256", callers, &|text: &str| sign(&ours, text), &|text: &str| sign(&another, text))?;
        Ok(Self { key: JwtKey::Secret(ours), tokens })
    }

    fn rs256(callers: usize) -> anyhow::Result<Self> {
        let make = || KeyPair::generate(KeySize::Rsa2048).context("making an RSA key");
        let (ours, another) = (make()?, make()?);
        let sign = |key: &KeyPair, text: &str| {
            let mut signature = vec![0; key.public_modulus_len()];
            key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
                .context("signing a token")?;
            Ok(signature)
        };
        let tokens =
            tokens("RS256", callers, &|text: &str| sign(&ours, text), &|text: &str| sign(&another, text))?;
        let public = ours.public_key();
        let der = public.as_der().context("encoding a public key")?;
        // RSAPublicKey (RFC 8017, A.1.1): heads of 9 bytes, as always with 2048 bits, the modulus, and an exponent of
        // 65537.
        let n = public
            .as_ref()
            .get(9..9 + ours.public_modulus_len())
            .context("a public key that is no RSAPublicKey")?;
        let n = BASE64_URL_SAFE_NO_PAD.encode(n);
        let key = JwtKey::Public {
            pem: pem("PUBLIC KEY", der.as_ref()),
            jwks: format!(r#"{{"keys":[{{"kty":"RSA","use":"sig","alg":"RS256","n":"{n}","e":"AQAB"}}]}}"#),
        };
        Ok(Self { key, tokens })
    }
}

/// A valid token for each caller, and invalid tokens with their faults.
fn tokens(
    algorithm: &str,
    callers: usize,
    ours: &dyn Fn(&str) -> anyhow::Result<Vec<u8>>,
    another: &dyn Fn(&str) -> anyhow::Result<Vec<u8>>,
) -> anyhow::Result<Tokens> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let claims = |expires: Duration, subject: &str| {
        let (issued, expires) = ((now - VALIDITY).as_secs(), expires.as_secs());
        format!(r#"{{"iss":"{ISSUER}","sub":"{subject}","iat":{issued},"exp":{expires}}}"#)
    };
    let head = format!(r#"{{"alg":"{algorithm}","typ":"JWT"}}"#);
    let signed = |head: &str,
                  claims: &str,
                  sign: &dyn Fn(&str) -> anyhow::Result<Vec<u8>>|
     -> anyhow::Result<String> {
        let text = [head, claims].map(|part| BASE64_URL_SAFE_NO_PAD.encode(part)).join(".");
        let signature = BASE64_URL_SAFE_NO_PAD.encode(sign(&text)?);
        Ok(format!("{text}.{signature}"))
    };
    let one = |number: usize| signed(&head, &claims(now + VALIDITY, &caller(number)), ours);
    let good = (1..=callers).map(one).collect::<Result<Vec<_>, _>>()?;
    let signature = good.first().and_then(|token| token.rsplit('.').next()).unwrap_or_default();
    let other = signed(&head, &claims(now + VALIDITY, "admin"), another)?;
    let changed = other.rsplit_once('.').map_or("", |(text, _)| text);
    let bad = vec![
        ("forged signature", other.clone()),
        ("changed claims", format!("{changed}.{signature}")),
        ("expired", signed(&head, &claims(now - VALIDITY, "caller-000001"), ours)?),
        (
            "alg none",
            signed(r#"{"alg":"none","typ":"JWT"}"#, &claims(now + VALIDITY, "caller-000001"), &|_| {
                Ok(Vec::new())
            })?,
        ),
    ];
    Ok(Tokens { good, bad })
}

fn pem(label: &str, der: &[u8]) -> String {
    let encoded = BASE64_STANDARD.encode(der);
    let lines: Vec<_> = encoded.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
