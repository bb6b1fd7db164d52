//! Origins of web pages (RFC 6454).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::syntax;
use crate::encoding::Fault;

/// Origins in the form of browsers: lower case, without the default port of the scheme. `null` is not allowed, because
/// sandboxed pages of any site send `null`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OriginPattern {
    /// Every origin.
    Any,
    /// One origin, `scheme://host[:port]`.
    Exact(Box<str>),
    /// Every host below a domain: the scheme with `://`, and the rest after the wildcard with its dot, as in `https://` and
    /// `.example.com:8443`.
    Below {
        /// The scheme, such as `https://`.
        scheme: Box<str>,
        /// The domain, such as `.example.com`. Without the dot, hosts of foreign domains would match.
        suffix: Box<str>,
    },
}

/// The maximum number of characters of an origin.
const MAX: usize = 300;

impl FromStr for OriginPattern {
    type Err = String;

    /// Parses `*`, `https://app.example.com[:port]` or `https://*.example.com[:port]`. The error is the rest of a sentence
    /// about the field.
    fn from_str(text: &str) -> Result<Self, String> {
        let length = text.chars().count();
        if length > MAX {
            return Err(format!("has {length} characters, but may have at most {MAX}"));
        }
        if text == "*" {
            return Ok(Self::Any);
        }
        if text == "null" {
            return Err("null is the origin of every sandboxed page, and cannot be allowed".to_owned());
        }
        let lower_case = text.to_ascii_lowercase();
        let is_scheme = |scheme: &str| {
            !scheme.is_empty()
                && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        };
        let Some((scheme, rest)) = lower_case.split_once("://").filter(|(scheme, _)| is_scheme(scheme))
        else {
            return Err(format!("{text:?} has no scheme: write it as https://app.example.com"));
        };
        if rest.contains(['/', '?', '#', '@']) {
            return Err(format!(
                "{text:?} is more than an origin: write only the scheme, the host and the port"
            ));
        }
        let (name, port) = split_port(rest)
            .ok_or_else(|| format!("{text:?} has no valid port: write a port from 1 to 65535"))?;
        let (wildcard, name) = match name.strip_prefix("*.") {
            Some(name) => (true, name),
            None => (false, name),
        };
        if name.contains('*') {
            return Err(format!(
                "{text:?} has a '*' that is not the first label: write it as https://*.example.com"
            ));
        }
        let is_address = !wildcard && name.starts_with('[') && name.ends_with(']');
        if let Some(fault) = syntax::dns_name_fault(name).filter(|_| !is_address) {
            return Err(format!("{text:?}: {name:?} {fault}"));
        }
        // Browsers omit the default port of the scheme.
        let own = match scheme {
            "http" | "ws" => Some(80),
            "https" | "wss" => Some(443),
            _ => None,
        };
        let port = port.filter(|port| Some(*port) != own).map(|port| format!(":{port}")).unwrap_or_default();
        Ok(match wildcard {
            true => {
                Self::Below { scheme: format!("{scheme}://").into(), suffix: format!(".{name}{port}").into() }
            }
            false => Self::Exact(format!("{scheme}://{name}{port}").into()),
        })
    }
}

/// The host, and the port if there is one; `None` if the text is invalid.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let end = text.rfind(']').map_or(0, |bracket| bracket + 1);
    match text[end..].rsplit_once(':') {
        None => Some((text, None)),
        Some((before, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
            Some((&text[..end + before.len()], Some(port)))
        }
    }
}

impl fmt::Display for OriginPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Exact(origin) => f.write_str(origin),
            Self::Below { scheme, suffix } => write!(f, "{scheme}*{suffix}"),
        }
    }
}

impl Serialize for OriginPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for OriginPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for OriginPattern {
    fn schema_name() -> Cow<'static, str> {
        "OriginPattern".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string", "maxLength": MAX, "pattern": r"^(\*|[A-Za-z][A-Za-z0-9+.-]*://[^/]+)$"
        })
    }
}

impl<C> Encode<C> for OriginPattern {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.str(&self.to_string())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for OriginPattern {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        decoder.str()?.parse().map_err(|_| Fault::Invalid("an origin").into())
    }
}

#[cfg(test)]
mod tests {
    use super::OriginPattern;

    fn shown(text: &str) -> String {
        let origin: OriginPattern = text.parse().unwrap();
        assert_eq!(origin.to_string().parse(), Ok(origin.clone()), "{text}");
        match origin {
            OriginPattern::Any => "any".to_owned(),
            OriginPattern::Exact(origin) => origin.into(),
            OriginPattern::Below { scheme, suffix } => format!("{scheme}|{suffix}"),
        }
    }

    #[test]
    fn origins_are_normalized_to_the_form_of_browsers() {
        for (text, expected) in [
            ("*", "any"),
            ("https://App.Example.com", "https://app.example.com"),
            ("https://app.example.com:443", "https://app.example.com"),
            ("http://app.example.com:443", "http://app.example.com:443"),
            ("https://*.example.com:8443", "https://|.example.com:8443"),
            ("https://*.example.com", "https://|.example.com"),
            ("http://localhost:3000", "http://localhost:3000"),
            ("http://127.0.0.1", "http://127.0.0.1"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("chrome-extension://abcdef", "chrome-extension://abcdef"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn origins_that_browsers_never_send_are_rejected() {
        for (text, reason) in [
            ("app.example.com", "has no scheme"),
            ("://x", "has no scheme"),
            ("null", "sandboxed"),
            ("https://app.example.com/", "more than an origin"),
            ("https://app.example.com/x", "more than an origin"),
            ("https://user@app.example.com", "more than an origin"),
            ("https://app.*.com", "first label"),
            ("https://*app.example.com", "first label"),
            ("https://*", "first label"),
            ("https://a:0", "port"),
            ("https://a:99999", "port"),
            ("https://", "not a DNS name"),
            ("https://a b", "not a DNS name"),
        ] {
            let fault = text.parse::<OriginPattern>().unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }
}
