//! Keys as JSON (RFC 7517; RFC 7518, 6; RFC 8037, 2).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::Value;

use crate::Algorithm;
use crate::key::{KEYS_MAX, Key, KeyFault};

/// The shortest modulus of an RSA key, in bytes (RFC 7518, 3.3).
const MODULUS_MIN: usize = 256;

/// The longest modulus, in bytes. Longer moduli take too long to verify.
const MODULUS_MAX: usize = 1024;

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    #[serde(rename = "use")]
    purpose: Option<String>,
    key_ops: Option<Vec<String>>,
    alg: Option<String>,
    kid: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
    k: Option<String>,
}

/// The keys of a JWK set, or the key of a JWK. Unusable keys are ignored (RFC 7517, 5).
pub(crate) fn read(text: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Key>, KeyFault> {
    let unreadable = |error: serde_json::Error| KeyFault::Unreadable(in_words(&error));
    let value: Value = serde_json::from_slice(text).map_err(unreadable)?;
    let all = match value.get("keys") {
        Some(Value::Array(keys)) => keys.clone(),
        Some(_) => return Err(KeyFault::Unreadable("\"keys\" is not a list".to_owned())),
        None => vec![value],
    };
    if all.len() > KEYS_MAX {
        return Err(KeyFault::TooMany);
    }
    let count = all.len();
    let (mut keys, mut why) = (Vec::new(), "");
    for jwk in all {
        match serde_json::from_value::<Jwk>(jwk)
            .map_err(|_| "is not a JWK")
            .and_then(|jwk| jwk.key(algorithms))
        {
            Ok(key) => keys.push(key),
            Err(reason) => why = reason,
        }
    }
    match keys.is_empty() {
        true if count == 0 => Err(KeyFault::None(": the set is empty".to_owned())),
        true => Err(KeyFault::None(format!(": the last one {why}"))),
        false => Ok(keys),
    }
}

/// The position of a JSON syntax error, without an excerpt of the text, which may be secret.
fn in_words(error: &serde_json::Error) -> String {
    format!("not valid JSON at line {}, column {}", error.line(), error.column())
}

impl Jwk {
    fn key(self, accepted: &[Algorithm]) -> Result<Key, &'static str> {
        if self.purpose.as_deref().is_some_and(|purpose| purpose != "sig") {
            return Err("is not for signatures (use)");
        }
        if self.key_ops.as_ref().is_some_and(|ops| !ops.iter().any(|op| op == "verify")) {
            return Err("is not for verifying (key_ops)");
        }
        let own;
        let algorithms = match self.alg.as_deref().map(Algorithm::parse) {
            None => accepted,
            Some(Some(alg)) if accepted.is_empty() || accepted.contains(&alg) => {
                own = [alg];
                &own[..]
            }
            Some(_) => return Err("is for another algorithm (alg)"),
        };
        let id = self.kid.as_deref().map(Into::into);
        if self.kty == "oct" {
            let secret = decode(self.k.as_deref(), "has no k in base64url")?;
            return Key::shared(id, &secret, algorithms)
                .map_err(|_| "is a secret that is too short, or not for HMAC");
        }
        let public = self.public_key()?;
        // The kind of the key determines its curve: a point of one curve is never used on another curve.
        Key::public(id, &public, algorithms).ok_or("is not valid, or fits none of the accepted algorithms")
    }

    fn public_key(&self) -> Result<Vec<u8>, &'static str> {
        match (&*self.kty, self.crv.as_deref()) {
            ("RSA", _) => {
                let n = decode(self.n.as_deref(), "has no n in base64url")?;
                let e = decode(self.e.as_deref(), "has no e in base64url")?;
                let n = n.iter().position(|byte| *byte != 0).map_or(&[][..], |start| &n[start..]);
                match n.len() {
                    ..MODULUS_MIN => Err("is an RSA key of less than 2048 bits"),
                    MODULUS_MIN..=MODULUS_MAX if (1..=8).contains(&e.len()) => Ok(rsa_public_key(n, &e)),
                    _ => Err("is an RSA key of more than 8192 bits, or with a long exponent"),
                }
            }
            ("EC", Some(curve @ ("P-256" | "P-384" | "P-521"))) => {
                let length = match curve {
                    "P-256" => 32,
                    "P-384" => 48,
                    _ => 66,
                };
                let (x, y) = (decode(self.x.as_deref(), "has no x")?, decode(self.y.as_deref(), "has no y")?);
                // RFC 7518, 6.2.1.2: both coordinates have the full length of the curve's field.
                if x.len() != length || y.len() != length {
                    return Err("has coordinates with the wrong length for its curve");
                }
                Ok([&[4][..], &x, &y].concat())
            }
            ("OKP", Some("Ed25519")) => {
                let x = decode(self.x.as_deref(), "has no x in base64url")?;
                match is_of_small_order(&x) {
                    true => Err("is a point of small order, for which signatures can be forged"),
                    false => Ok(x),
                }
            }
            _ => Err("has an unsupported type or curve"),
        }
    }
}

/// Whether an encoded point of edwards25519 is one of the eight points of small order (RFC 8032, 5.1.7; RFC 8725, 3.4),
/// in any of its encodings.
fn is_of_small_order(point: &[u8]) -> bool {
    /// `y` of two points of order eight; the `y` of the other two is the prime minus this number.
    const OF_EIGHT: [u8; 32] = [
        0x26, 0xe8, 0x95, 0x8f, 0xc2, 0xb2, 0x27, 0xb0, 0x45, 0xc3, 0xf4, 0x89, 0xf2, 0xef, 0x98, 0xf0, 0xd5,
        0xdf, 0xac, 0x05, 0xd3, 0xc6, 0x33, 0x39, 0xb1, 0x38, 0x02, 0x88, 0x6d, 0x53, 0xfc, 0x05,
    ];
    let Ok(mut y) = <[u8; 32]>::try_from(point) else { return false };
    // Clears the bit with the sign of x.
    y[31] &= 0x7f;
    let small = |least: u8| std::array::from_fn(|index| if index == 0 { least } else { 0 });
    // 2^255 - 19 is the prime.
    let below = |least: u8| {
        std::array::from_fn(|index| match index {
            0 => least,
            31 => 0x7f,
            _ => 0xff,
        })
    };
    let negated: [u8; 32] = std::array::from_fn(|index| match index {
        0 => 0xed - OF_EIGHT[0],
        31 => 0x7f - OF_EIGHT[31],
        _ => 0xff - OF_EIGHT[index],
    });
    [small(0), small(1), below(0xec), below(0xed), below(0xee), OF_EIGHT, negated].contains(&y)
}

fn decode(text: Option<&str>, fault: &'static str) -> Result<Vec<u8>, &'static str> {
    URL_SAFE_NO_PAD.decode(text.ok_or(fault)?).map_err(|_| fault)
}

/// `RSAPublicKey` (RFC 8017, A.1.1) in DER.
fn rsa_public_key(modulus: &[u8], exponent: &[u8]) -> Vec<u8> {
    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![tag];
        let length = content.len().to_be_bytes();
        let length = &length[length.iter().position(|byte| *byte != 0).unwrap_or(length.len() - 1)..];
        if content.len() >= 0x80 {
            // `length` has at most 8 bytes.
            out.push(0x80 | u8::try_from(length.len()).unwrap_or(u8::MAX));
        }
        out.extend_from_slice(length);
        out.extend_from_slice(content);
        out
    }
    fn integer(value: &[u8]) -> Vec<u8> {
        let start = value.iter().position(|byte| *byte != 0).unwrap_or(value.len());
        let value = &value[start..];
        // The number is not negative.
        match value.first() {
            Some(0..0x80) => element(2, value),
            _ => element(2, &[&[0], value].concat()),
        }
    }
    element(0x30, &[integer(modulus), integer(exponent)].concat())
}
