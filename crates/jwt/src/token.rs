//! The parts of a token: a JWS in its compact form (RFC 7515, 7.1).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::{Algorithm, Claims, Fault, KeySet};

/// The longest token, in bytes.
pub const MAX: usize = 16 * 1024;

/// The longest signature, in bytes: of an RSA key with 8192 bits.
const SIGNATURE_MAX: usize = 1024;

/// A parsed token, not yet verified.
#[derive(Debug)]
pub struct Token<'t> {
    algorithm: Algorithm,
    key: Option<String>,
    /// The signed bytes.
    message: &'t [u8],
    signature: Vec<u8>,
    claims: Claims,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    #[serde(default, deserialize_with = "is_there")]
    crit: bool,
}

/// Accepts any value, including `null`.
fn is_there<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(deserializer).map(|_| true)
}

impl<'t> Token<'t> {
    /// Parses a token.
    ///
    /// # Errors
    /// If the text is not a token, or no key could verify the token.
    pub fn parse(text: &'t [u8]) -> Result<Self, Fault> {
        if text.len() > MAX {
            return Err(Fault::TooLong);
        }
        let mut parts = text.split(|byte| *byte == b'.');
        let (Some(header), Some(payload), Some(signature), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(Fault::Malformed);
        };
        let message = &text[..header.len() + 1 + payload.len()];
        let header: Header = serde_json::from_slice(&decode(header)?).map_err(|_| Fault::Malformed)?;
        if header.crit {
            return Err(Fault::Critical);
        }
        let algorithm = Algorithm::parse(&header.alg).ok_or(Fault::Algorithm)?;
        let signature = decode(signature)?;
        if signature.len() > SIGNATURE_MAX {
            return Err(Fault::Malformed);
        }
        // serde_json limits the depth of the JSON to 128.
        let claims: Map<String, Value> =
            serde_json::from_slice(&decode(payload)?).map_err(|_| Fault::Malformed)?;
        Ok(Self { algorithm, key: header.kid, message, signature, claims: Claims(claims) })
    }

    /// The claimed issuer, which selects the keys.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.claims.text("iss")
    }

    /// Checks the signature, and returns the claims.
    ///
    /// # Errors
    /// If no key verifies the signature.
    pub fn verify(&self, keys: &KeySet) -> Result<&Claims, Fault> {
        keys.verify(self.algorithm, self.key.as_deref(), self.message, &self.signature)?;
        Ok(&self.claims)
    }
}

/// Decodes base64url without padding, only in its canonical form.
fn decode(part: &[u8]) -> Result<Vec<u8>, Fault> {
    URL_SAFE_NO_PAD.decode(part).map_err(|_| Fault::Malformed)
}
