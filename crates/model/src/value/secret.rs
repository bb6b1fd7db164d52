//! Values that a policy takes from Secrets.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use rustls_pki_types::CertificateDer;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{DataKey, Hostname};
use crate::encoding::Fault;
use crate::encoding::adapt::{Adapt as _, List, Raw};

/// A value of a Secret in the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Deserialize, JsonSchema)]
pub struct SecretKeyRef {
    /// The name of the Secret.
    pub name: Hostname,
    /// The key in the data of the Secret. The default is in the description of the reference.
    pub key: Option<DataKey>,
}

/// A value that a policy takes from a Secret. The policy names the Secret, and the control plane reads the value.
#[derive(Clone, PartialEq, Eq)]
pub enum FromSecret<T> {
    /// The reference to the Secret, before the control plane has read the value. A data plane treats it as unusable.
    Named(SecretKeyRef),
    /// The value.
    Value(T),
    /// No usable value, with the reason.
    Unusable(Box<str>),
}

/// The reason why a value is unusable before the control plane has read it.
const UNREAD: &str = "its Secret has not been read";

impl<T> FromSecret<T> {
    /// The value, or the reason why there is none.
    ///
    /// # Errors
    /// The control plane has not read the value, or the value is unusable.
    pub fn value(&self) -> Result<&T, &str> {
        match self {
            Self::Value(value) => Ok(value),
            Self::Unusable(reason) => Err(reason),
            Self::Named(_) => Err(UNREAD),
        }
    }

    /// The reference, if the control plane has not read the value.
    #[must_use]
    pub fn named(&self) -> Option<&SecretKeyRef> {
        match self {
            Self::Named(named) => Some(named),
            Self::Value(_) | Self::Unusable(_) => None,
        }
    }
}

/// Values of Secrets are not shown.
impl<T> fmt::Debug for FromSecret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value() {
            Ok(_) => f.write_str("Value"),
            Err(reason) => f.debug_tuple("Unusable").field(&reason).finish(),
        }
    }
}

impl<T> Serialize for FromSecret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

impl<'de, T> Deserialize<'de> for FromSecret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        SecretKeyRef::deserialize(deserializer).map(Self::Named)
    }
}

impl<T> JsonSchema for FromSecret<T> {
    fn schema_name() -> Cow<'static, str> {
        SecretKeyRef::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        SecretKeyRef::json_schema(generator)
    }
}

/// An array: the value, or null and the reason why there is no value.
impl<C, T: Encode<C>> Encode<C> for FromSecret<T> {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        match self.value() {
            Ok(value) => value.encode(encoder.array(1)?, context),
            Err(reason) => encoder.array(2)?.null()?.str(reason)?.ok(),
        }
    }
}

impl<'b, C, T: Decode<'b, C>> Decode<'b, C> for FromSecret<T> {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        match decoder.array()? {
            Some(1) => T::decode(decoder, context).map(Self::Value),
            Some(2) => {
                decoder.null()?;
                Ok(Self::Unusable(decoder.str()?.into()))
            }
            _ => Err(decode::Error::message("a value of a Secret has one or two parts")),
        }
    }
}

/// The bytes of a key or of a secret: at least one byte.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyBytes(Arc<[u8]>);

impl KeyBytes {
    /// The bytes; `None` if there are no bytes.
    #[must_use]
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Option<Self> {
        Some(bytes.into()).filter(|bytes| !bytes.is_empty()).map(Self)
    }

    /// The bytes.
    #[must_use]
    pub fn get(&self) -> &Arc<[u8]> {
        &self.0
    }
}

impl<C> Encode<C> for KeyBytes {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.bytes(&self.0)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for KeyBytes {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::new(decoder.bytes()?).ok_or_else(|| Fault::Invalid("a key").into())
    }
}

/// The keys of encrypted cookies. The first key encrypts, and all keys decrypt.
#[derive(Clone, PartialEq, Eq)]
pub struct CookieKeys(Vec<KeyBytes>);

impl CookieKeys {
    /// The most keys.
    pub const MOST: usize = 8;

    /// The keys in a text: a key in each line. Empty lines do not count.
    ///
    /// # Errors
    /// The reason why the text is no list of keys, as the rest of a sentence about the text. It does not show the text.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let mut keys = Vec::new();
        for (index, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let length = line.len();
            if !(32..=256).contains(&length) {
                return Err(format!(
                    "has a key of {length} characters in line {}: write 32 to 256 characters, such as the output of openssl rand -base64 32",
                    index + 1
                ));
            }
            keys.extend(KeyBytes::new(line));
        }
        Self::new(keys).ok_or_else(|| format!("must have 1 to {} lines, each with a key", Self::MOST))
    }

    /// The keys; `None` if there are none or too many.
    #[must_use]
    pub fn new(keys: Vec<KeyBytes>) -> Option<Self> {
        (1..=Self::MOST).contains(&keys.len()).then_some(Self(keys))
    }

    /// The keys.
    #[must_use]
    pub fn get(&self) -> &[KeyBytes] {
        &self.0
    }
}

impl<C> Encode<C> for CookieKeys {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        self.0.encode(encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for CookieKeys {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let keys = Vec::<KeyBytes>::decode(decoder, context)?;
        Self::new(keys).ok_or_else(|| Fault::Invalid("a list of keys").into())
    }
}

/// CA certificates to trust: at least one, because an empty list would mean the public CA certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct CaCertificates(Vec<CertificateDer<'static>>);

impl CaCertificates {
    /// The certificates; `None` if there are no certificates.
    #[must_use]
    pub fn new(certificates: Vec<CertificateDer<'static>>) -> Option<Self> {
        (!certificates.is_empty()).then_some(Self(certificates))
    }

    /// The certificates.
    #[must_use]
    pub fn get(&self) -> &[CertificateDer<'static>] {
        &self.0
    }
}

impl<C> Encode<C> for CaCertificates {
    fn encode<W: Write>(
        &self,
        encoder: &mut Encoder<W>,
        context: &mut C,
    ) -> Result<(), encode::Error<W::Error>> {
        List::<Raw>::encode(&self.0, encoder, context)
    }
}

impl<'b, C> Decode<'b, C> for CaCertificates {
    fn decode(decoder: &mut Decoder<'b>, context: &mut C) -> Result<Self, decode::Error> {
        let certificates = List::<Raw>::decode(decoder, context)?;
        Self::new(certificates).ok_or_else(|| Fault::Invalid("a list of CA certificates").into())
    }
}

/// The CA certificates for a server. `None`: the public CA certificates.
///
/// # Errors
/// The certificates are in a Secret that cannot be used. Without them, the server cannot be verified.
pub fn authorities(of: &Option<FromSecret<CaCertificates>>) -> Result<&[CertificateDer<'static>], &str> {
    of.as_ref().map_or(Ok(&[]), |named| named.value().map(CaCertificates::get))
}

/// Names, and the hashes of name, realm and password (`HA1` of RFC 7616, 3.4.2) in lower-case hexadecimal: MD5 or SHA-256.
pub type DigestUsers = Vec<(Box<str>, Box<str>)>;

/// Names and password hashes in the format of `htpasswd`: bcrypt, `{SHA}` and `$apr1$`.
pub type Passwords = Vec<(Box<str>, Box<str>)>;
