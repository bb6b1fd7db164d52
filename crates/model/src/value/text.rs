//! Texts with a syntax: names, values, hosts and paths.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::ops::Deref;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::syntax;
use super::template::{Template, Variable};
use crate::encoding::Fault;
use crate::rule::Pattern;

impl Default for CredentialPrefix {
    fn default() -> Self {
        Self("".into())
    }
}

impl Default for Realm {
    fn default() -> Self {
        Self("restricted".into())
    }
}

impl Default for SignInParameter {
    fn default() -> Self {
        Self("rd".into())
    }
}

impl Default for KeyPrefix {
    fn default() -> Self {
        Self("sluicegate".into())
    }
}

/// Types of texts: the length in characters, the pattern in schemas if there is one, and the check, which may also convert the text to its normal form.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident: $min:literal..=$max:literal $(matching $pattern:literal)?, $what:literal, $check:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Box<str>);

        impl $name {
            /// The text.
            ///
            /// # Errors
            /// The reason why the text is invalid, as the rest of a sentence about the field.
            pub fn new(text: &str) -> Result<Self, String> {
                let length = text.chars().count();
                if length > $max {
                    return Err(format!("has {length} characters, but may have at most {}", $max));
                }
                let check: fn(&str) -> Result<Box<str>, String> = $check;
                check(text).map(Self)
            }

            /// A text that the code itself states.
            ///
            /// # Panics
            /// The text is invalid.
            #[must_use]
            pub fn of(text: &str) -> Self {
                match Self::new(text) {
                    Ok(text) => text,
                    Err(fault) => panic!("{fault}"),
                }
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "minLength": $min, "maxLength": $max, $("pattern": $pattern)? })
            }
        }

        impl<C> Encode<C> for $name {
            fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
                encoder.str(&self.0)?.ok()
            }
        }

        impl<'b, C> Decode<'b, C> for $name {
            fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
                Self::new(decoder.str()?).map_err(|_| Fault::Invalid($what).into())
            }
        }
    )*};
}

texts! {
    /// The name of a header, in lower case (RFC 9110, 5.1).
    HeaderName: 1..=256, "the name of a header", syntax::header_name;
    /// The name of a header that a policy may set, add or remove, in any case. Framing headers, and headers that the gateway
    /// sets itself, are not allowed.
    EditedHeader: 1..=256, "the name of a header", |text| {
        let lower_case = syntax::header_name(text)?;
        syntax::framing_fault(&lower_case).map_or_else(|| Ok(text.into()), |fault| Err(format!("{text:?} {fault}")))
    };
    /// The name of a header that an annotation may set, in any case: as [`EditedHeader`], and headers that tell endpoints
    /// about the client, such as `X-Forwarded-Proto`.
    AnnotatedHeader: 1..=256, "the name of a header", |text| {
        let lower_case = syntax::header_name(text)?;
        syntax::own_fault(&lower_case).map_or_else(|| Ok(text.into()), |fault| Err(format!("{text:?} {fault}")))
    };
    /// The value of a header: visible ASCII characters, with spaces and tabs between them (RFC 9110, 5.5).
    HeaderValue: 1..=4096, "the value of a header", |text| valid(text, syntax::line_fault(text));
    /// The media type of a body.
    MediaType: 1..=256, "the media type of a body", |text| valid(text, syntax::line_fault(text));
    /// A method in any case (RFC 9110, 9.1), or `*`.
    MethodName: 1..=32, "a method", |text| shown(text, syntax::token_fault(text));
    /// The name of a cookie (RFC 6265, 4.1.1).
    CookieName: 1..=256, "the name of a cookie", |text| shown(text, syntax::token_fault(text));
    /// The path of a cookie (RFC 6265, 4.1.1): a path that begins with `/`, without `;`.
    CookiePath: 1..=1024, "the path of a cookie", |text| {
        let fault = match text {
            text if !text.starts_with('/') => Some("does not begin with '/'"),
            text if text.contains(';') => Some("has a ';', which ends the path of a cookie"),
            text => syntax::line_fault(text),
        };
        shown(text, fault)
    };
    /// The domain of a cookie (RFC 6265, 4.1.2.3): a DNS name, perhaps with a dot at its begin.
    CookieDomain: 1..=254, "the domain of a cookie", |text| {
        let name = text.strip_prefix('.').unwrap_or(text).to_ascii_lowercase();
        shown(text, syntax::dns_name_fault(&name))
    };
    /// The name of a header, a cookie or a parameter of the query.
    ParameterName: 1..=256, "the name of a parameter", filled;
    /// The value in a condition.
    MatchValue: 1..=4096, "the value of a condition", filled;
    /// The name of a time zone (IANA), such as `Europe/Berlin`.
    TimeZoneName: 1..=64, "the name of a time zone",
        |text| jiff::tz::TimeZone::get(text).map(|_| text.into()).map_err(|_| "is no time zone: write UTC, or a name such as Europe/Berlin".into());
    /// The name of a limit: a DNS label (RFC 1123).
    LimitName: 1..=63 matching "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "the name of a limit", |text| {
        match syntax::dns_name_fault(text).or(text.contains('.').then_some("has a dot")) {
            None => Ok(text.into()),
            Some(fault) => Err(format!("{text:?} {fault}")),
        }
    };
    /// The host and the port of a server; the host is a name, an IPv4 address, or an IPv6 address in brackets.
    ServerAddress: 3..=261 matching r"^(\[[0-9a-fA-F:.]+\]|[^:\[\]/@ ]+):[0-9]{1,5}$", "the address of a server", |text| {
        match syntax::server_host(text) {
            Ok(_) => Ok(text.into()),
            Err(fault) => Err(format!("{text:?} {fault}")),
        }
    };
    /// A user name at a server.
    ServerUser: 1..=256, "a user name", |text| valid(text, syntax::value_fault(text));
    /// The prefix of the keys at a server.
    KeyPrefix: 1..=64 matching "^[-A-Za-z0-9_.:/]+$", "the prefix of keys", |text| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
        match !text.is_empty() && text.bytes().all(is_plain) {
            true => Ok(text.into()),
            false => Err(format!("{text:?} is invalid: write 1 to 64 letters, digits and any of -_.:/")),
        }
    };
    /// A lower-case DNS name (RFC 1123).
    Hostname: 1..=253, "the name of a host", |text| shown(text, syntax::dns_name_fault(text));
    /// A lower-case DNS name (RFC 1123), in which `_` is allowed.
    EndpointName: 1..=253, "the name of a host", |text| shown(text, syntax::endpoint_name_fault(text));
    /// A path in normal form, without a query.
    RewritePath: 1..=1024, "a path", |text| {
        if let Some(mark) = text.chars().find(|mark| matches!(mark, '?' | '#')) {
            return Err(format!("has a {mark:?}, which ends a path: remove it, because the query always stays"));
        }
        syntax::normal_path(text)
    };
    /// A regular expression (the `regex` crate, without Unicode classes).
    RewritePattern: 1..=1024, "a regular expression", |text| match Pattern::new(text, false) {
        _ if text.is_empty() => Err("is empty".to_owned()),
        Ok(_) => Ok(text.into()),
        Err(fault) => Err(format!("{text:?} is not a regular expression: {fault}")),
    };
    /// A path in normal form, without a query, with `$1` to `$9` for the captures of a regular expression.
    CapturePath: 1..=1024, "a path", |text| {
        let template = Template::new(text).map_err(|fault| fault.to_string())?;
        if !template.variables().all(|variable| matches!(variable, Variable::Capture(_))) {
            return Err(format!("{text:?} has another variable than $1 to $9: write %24 for '$'"));
        }
        if let Some(mark) = text.chars().find(|mark| matches!(mark, '?' | '#')) {
            return Err(format!("has a {mark:?}, which ends a path: remove it, because the query always stays"));
        }
        syntax::normal_path(&template.to_string())
    };
    /// The path of a request of the gateway's own, with or without a query, unchanged.
    CheckTarget: 1..=1024, "a path", |text| {
        match text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
            true => Ok(text.into()),
            false => Err(format!("{text:?} is not a path: begin with '/', and write %20 for a space")),
        }
    };
    /// The name of a group of Consumers. Endpoints receive all groups of a Consumer in one header.
    GroupName: 1..=63, "the name of a group", |text| shown(text, syntax::value_fault(text));
    /// A Consumer: `name`, or `namespace/name`.
    ConsumerName: 1..=317, "the name of a consumer", |text| {
        shown(text, text.splitn(2, '/').find_map(syntax::dns_name_fault))
    };
    /// The name of a claim. A dot leads into an object.
    ClaimName: 1..=256, "the name of a claim", |text| {
        let is_faulty = text.split('.').any(str::is_empty);
        shown(text, is_faulty.then_some("is not the name of a claim: write it as sub or realm_access.roles"))
    };
    /// An issuer or an audience of tokens.
    Audience: 1..=2048, "an issuer or an audience", filled;
    /// The ID of a client at an authorization server (RFC 6749, 2.2).
    ClientId: 1..=256, "the ID of a client", |text| valid(text, syntax::line_fault(text));
    /// A scope of a token (RFC 6749, 3.3).
    Scope: 1..=256 matching r"^[!#-\[\]-~]+$", "a scope", |text| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
        match !text.is_empty() && text.bytes().all(is_plain) {
            true => Ok(text.into()),
            false => Err(format!("{text:?} is not a scope: write one scope in each entry, without spaces")),
        }
    };
    /// Scopes of a token, with a space between two scopes (RFC 6749, 3.3).
    ScopeList: 1..=1024 matching r"^[!#-\[\]-~]+( [!#-\[\]-~]+)*$", "a list of scopes", |text| {
        match text.split(' ').all(|scope| Scope::new(scope).is_ok()) {
            true => Ok(text.into()),
            false => Err(format!("{text:?} is not a list of scopes: write scopes with one space between them")),
        }
    };
    /// The name of a parameter of an authorization request that the gateway does not set itself.
    LoginParameterName: 1..=64 matching "^[A-Za-z0-9._~-]+$", "the name of a parameter", |text| {
        const OWN: [&str; 11] = [
            "client_id", "client_secret", "code_challenge", "code_challenge_method", "nonce", "redirect_uri",
            "request", "request_uri", "response_mode", "response_type", "state",
        ];
        let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match text {
            "scope" => Err("\"scope\" is set by the gateway itself: write scopes".to_owned()),
            text if OWN.contains(&text) => Err(format!("{text:?} is set by the gateway itself: remove it")),
            text if text.is_empty() || !text.bytes().all(is_unreserved) => {
                Err(format!("{text:?} is invalid: write 1 to 64 letters, digits and any of -._~"))
            }
            text => Ok(text.into()),
        }
    };
    /// The name of an issuer in logs.
    ProviderName: 1..=63, "the name of a provider of tokens", |text| shown(text, syntax::value_fault(text));
    /// Keys as text: a JWK set, a JWK, or public keys or certificates in PEM.
    InlineKeys: 1..=65536, "keys", filled;
    /// The name of a header with which the gateway tells endpoints about the caller, in lower case.
    IdentityHeader: 1..=256, "the name of a header", |text| {
        let name = syntax::header_name(text)?;
        match syntax::reserved_fault(&name) {
            None => Ok(name),
            Some(fault) => Err(format!("{text:?} {fault}: choose another header")),
        }
    };
    /// The name of a client's header that an authorization service receives, in lower case.
    ServiceHeader: 1..=256, "the name of a header", |text| {
        allowed(text, |name| match name {
            "authorization" | "cookie" => None,
            "content-type" | "content-encoding" => Some("is about the body, which the service does not receive"),
            name if name.starts_with("x-original-") || name == "x-auth-request-redirect" => {
                Some("is set by the gateway itself")
            }
            name => syntax::reserved_fault(name),
        })
    };
    /// The name of a header of an authorization service's response that endpoints receive, in lower case.
    ForwardedHeader: 1..=256, "the name of a header", |text| {
        allowed(text, |name| match name {
            "authorization" => None,
            "set-cookie" => Some("always goes to the client"),
            name => syntax::reserved_fault(name),
        })
    };
    /// The text before a credential in a header: empty, or a word with a space at its end.
    CredentialPrefix: 0..=64, "the text before a credential", |text| {
        let is_value = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        match is_value && (text.is_empty() || text.ends_with(' ')) && !text.starts_with(' ') {
            true => Ok(text.into()),
            false => Err(format!("{text:?} must be a word with a space at its end, such as \"Bearer \"")),
        }
    };
    /// The realm of Basic authentication, which is sent as a quoted string (RFC 9110, 5.6.4).
    Realm: 1..=128, "a realm", |text| {
        let is_plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && !text.contains(['"', '\\']);
        match is_plain {
            _ if text.is_empty() => Err("must have 1 to 128 characters".to_owned()),
            true => Ok(text.into()),
            false => Err(format!("{text:?} has invalid characters: write ASCII without \" and \\")),
        }
    };
    /// A namespace, or `*` for every namespace.
    NamespaceScope: 1..=63, "the name of a namespace", |text| {
        shown(text, syntax::dns_name_fault(text).filter(|_| text != "*"))
    };
    /// A key in the data of a Secret.
    DataKey: 1..=253, "the key of a Secret", |text| {
        valid(text, text.is_empty().then_some("is empty: name a key of the Secret's data, or remove the field"))
    };
    /// A URL of http or https, with a host.
    Url: 1..=2048 matching r"^https?://[^/?#@]+", "a URL", |text| url(text, "https://HOST/PATH");
    /// The URL or path of a page where clients sign in.
    SignInUrl: 1..=2048 matching r"^(https?://[^/?#@]+|/([^/]|$))", "the URL of a sign-in page", |text| {
        let is_path = text.starts_with('/') && !text.starts_with("//");
        let is_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
        if text.contains('#') {
            return Err("has a fragment, so that no parameter can be added: remove it".to_owned());
        }
        match is_path {
            false => url(text, "https://login.example.com/start or /oauth2/start"),
            true if is_graphic && text.parse::<http::Uri>().is_ok() => Ok(text.into()),
            true => Err(format!("{text:?} is not a path: write it as /oauth2/start")),
        }
    };
    /// The parameter with the URL of the client's request.
    SignInParameter: 1..=64 matching r"^[A-Za-z0-9._~-]+$", "the name of a parameter", |text| {
        let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        match !text.is_empty() && text.bytes().all(is_unreserved) {
            true => Ok(text.into()),
            false => Err(format!("{text:?} is invalid: write 1 to 64 letters, digits and any of -._~")),
        }
    };
    /// The value of a claim.
    ClaimValue: 1..=256, "the value of a claim", filled;
    /// The method of a request, in upper case.
    RequestMethod: 1..=32, "a method", |text| match syntax::token_fault(text) {
        Some(fault) => Err(format!("{text:?} {fault}")),
        None if text.bytes().any(|byte| byte.is_ascii_lowercase()) => {
            Err(format!("{text:?} is not a method that clients use: write {}", text.to_ascii_uppercase()))
        }
        None if text == "*" => Err("\"*\" is not a method: remove methods to match every method".to_owned()),
        None => Ok(text.into()),
    };
    /// The path of a condition, in normal form.
    ConditionPath: 1..=1024, "a path", |text| {
        // Clients percent-encode these characters in a path.
        if let Some(mark) = text.chars().find(|mark| matches!(mark, '?' | '#')) {
            return Err(format!("{text:?} has a {mark:?}, which ends a path: remove it and the text after it"));
        }
        syntax::normal_path(text)
    };
}

impl ConsumerName {
    /// A Consumer of a namespace.
    #[must_use]
    pub fn in_namespace(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The namespace and the name. The namespace is empty if only the name is written.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.0.split_once('/').unwrap_or(("", &self.0))
    }
}

fn valid(text: &str, fault: Option<&str>) -> Result<Box<str>, String> {
    fault.map_or_else(|| Ok(text.into()), |fault| Err(fault.to_owned()))
}

fn filled(text: &str) -> Result<Box<str>, String> {
    valid(text, text.is_empty().then_some("is empty"))
}

/// The name of a header in lower case, if no reason forbids it.
fn allowed(text: &str, fault: impl Fn(&str) -> Option<&'static str>) -> Result<Box<str>, String> {
    let name = syntax::header_name(text)?;
    match fault(&name) {
        None => Ok(name),
        Some(fault) => Err(format!("{text:?} {fault}: remove it")),
    }
}

/// A URL of http or https with a host. `example` shows the form.
fn url(text: &str, example: &str) -> Result<Box<str>, String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{text:?} has characters that a URL cannot have: percent-encode them, such as %20"
        ));
    }
    if text.contains('#') {
        return Err(format!("{text:?} has a fragment, which is never sent: remove it"));
    }
    let parsed = text.parse::<http::Uri>().ok();
    if parsed.as_ref().is_some_and(has_bad_port) {
        return Err(format!("{text:?} has no port from 1 to 65535"));
    }
    let authority = parsed.as_ref().and_then(http::Uri::authority);
    if authority.is_some_and(|authority| authority.as_str().contains('@')) {
        return Err("has a user name or a password, which the gateway does not send: remove it".to_owned());
    }
    let is_http = |url: &http::Uri| matches!(url.scheme_str(), Some("http" | "https"));
    match parsed {
        Some(url) if is_http(&url) && url.host().is_some_and(|host| !host.is_empty()) => Ok(text.into()),
        _ => Err(format!("{text:?} is not a URL: write it as {example}")),
    }
}

/// Whether the text after the host's colon is no port.
fn has_bad_port(url: &http::Uri) -> bool {
    let Some(authority) = url.authority() else { return false };
    let behind = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, behind)| behind);
    let port = behind.get(authority.host().len()..).and_then(|rest| rest.strip_prefix(':'));
    port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0))
}

/// A text that may be shown.
fn shown(text: &str, fault: Option<&str>) -> Result<Box<str>, String> {
    fault.map_or_else(|| Ok(text.into()), |fault| Err(format!("{text:?} {fault}")))
}
