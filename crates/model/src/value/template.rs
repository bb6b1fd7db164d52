//! Texts with variables of nginx, such as `https://$host$request_uri`.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;

/// A text with variables of nginx. The text is parsed once; the data plane then replaces each variable with its value.
///
/// The syntax is that of nginx: `$name`, `${name}`, and `$1` to `$9` for the captures of a regular expression. Names are
/// compared in any case. `${literal_dollar}` stands for a `$`, as in ingress-nginx.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    parts: Box<[TemplatePart]>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TemplatePart {
    /// A text without variables. Not empty.
    Text(Box<str>),
    /// A variable.
    Variable(Variable),
}

/// Why a text is not a usable template. The message is the rest of a sentence about the field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is longer than [`Template::LENGTH_MAX`].
    #[error("has {0} bytes, but may have at most {max}", max = Template::LENGTH_MAX)]
    TooLong(usize),
    /// The text has more variables than [`Template::VARIABLES_MAX`].
    #[error("has more than {max} variables", max = Template::VARIABLES_MAX)]
    TooManyVariables,
    /// The text has a control character other than a tab and a line break.
    #[error("has a control character: remove it")]
    Control,
    /// A `$` without a name.
    #[error("has a '$' without the name of a variable: write ${{literal_dollar}} for '$'")]
    NoName,
    /// A `${` without a `}`.
    #[error("has a variable ${{{0} without its closing brace")]
    Unclosed(Box<str>),
    /// The gateway does not know the variable.
    #[error("has the variable ${0}, which the gateway does not know: remove it")]
    Unknown(Box<str>),
}

impl Template {
    /// The longest text, in bytes.
    pub const LENGTH_MAX: usize = 4096;
    /// The maximum number of variables. The number bounds the length of a rendered text.
    pub const VARIABLES_MAX: usize = 32;

    /// Parses a text.
    ///
    /// # Errors
    ///
    /// The text is too long, has a syntax error, or has a variable that the gateway does not know.
    pub fn new(text: &str) -> Result<Self, TemplateError> {
        Self::with(text, |_| None)
    }

    /// Parses a text with further variables, whose values are templates themselves.
    ///
    /// # Errors
    ///
    /// The errors of [`new`](Self::new), for the text with the values in place of these variables.
    pub fn with<'t>(text: &str, value_of: impl Fn(&str) -> Option<&'t Self>) -> Result<Self, TemplateError> {
        if text.len() > Self::LENGTH_MAX {
            return Err(TemplateError::TooLong(text.len()));
        }
        // A body may have several lines.
        if text.bytes().any(|byte| byte.is_ascii_control() && !b"\t\r\n".contains(&byte)) {
            return Err(TemplateError::Control);
        }
        let (mut parts, mut rest) = (Parts::default(), text);
        while let Some((before, behind)) = rest.split_once('$') {
            parts.text(before);
            let (name, tail) = name(behind)?;
            let name = name.to_ascii_lowercase();
            match value_of(&name) {
                Some(value) => value.parts.iter().for_each(|part| parts.part(part)),
                None => match Variable::named(&name) {
                    Some(variable) => parts.variable(variable),
                    None => return Err(TemplateError::Unknown(name.into())),
                },
            }
            rest = tail;
        }
        parts.text(rest);
        parts.finish()
    }

    /// A text without variables. A `$` is part of the text.
    ///
    /// # Errors
    ///
    /// The text is too long, or has a control character.
    pub fn literal(text: &str) -> Result<Self, TemplateError> {
        Self::new(&text.replace('$', "${literal_dollar}"))
    }

    /// The parts, in the order of the text. Texts and variables may alternate in any way.
    #[must_use]
    pub fn parts(&self) -> &[TemplatePart] {
        &self.parts
    }

    /// The variables.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            TemplatePart::Variable(variable) => Some(variable),
            TemplatePart::Text(_) => None,
        })
    }

    /// The text, if the template has no variables.
    #[must_use]
    pub fn as_text(&self) -> Option<&str> {
        match &*self.parts {
            [] => Some(""),
            [TemplatePart::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// Whether the text is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Splits the template at the first `byte` in a text outside variables, as nginx splits a new URI at `?`. The second
    /// template is the rest behind the byte.
    #[must_use]
    pub fn split_at(&self, byte: char) -> (Self, Option<Self>) {
        let (mut before, mut behind) = (Parts::default(), None::<Parts>);
        for part in &self.parts {
            match (&mut behind, part) {
                (Some(behind), part) => behind.part(part),
                (None, TemplatePart::Text(text)) => match text.split_once(byte) {
                    Some((start, end)) => {
                        before.text(start);
                        let mut parts = Parts::default();
                        parts.text(end);
                        behind = Some(parts);
                    }
                    None => before.text(text),
                },
                (None, part) => before.part(part),
            }
        }
        (before.into_template(), behind.map(Parts::into_template))
    }

    /// The template without this character at its end; `None` if its last part is a variable or another text.
    #[must_use]
    pub fn strip_end(&self, end: char) -> Option<Self> {
        let Some((TemplatePart::Text(text), before)) = self.parts.split_last() else { return None };
        let rest = text.strip_suffix(end)?;
        let mut parts = Parts::default();
        before.iter().for_each(|part| parts.part(part));
        parts.text(rest);
        Some(parts.into_template())
    }
}

/// The name of a variable behind its `$`, and the rest of the text.
pub(crate) fn name(behind: &str) -> Result<(&str, &str), TemplateError> {
    let is_name = |char: char| char.is_ascii_alphanumeric() || char == '_';
    if let Some(inner) = behind.strip_prefix('{') {
        let length = inner.find(|char| !is_name(char)).unwrap_or(inner.len());
        let (name, tail) = inner.split_at(length);
        let tail = tail.strip_prefix('}').ok_or_else(|| TemplateError::Unclosed(name.into()))?;
        return if name.is_empty() { Err(TemplateError::NoName) } else { Ok((name, tail)) };
    }
    let length = match behind.bytes().next() {
        // A capture has one digit: `$12` is `$1` with a 2 behind it.
        Some(b'1'..=b'9') => 1,
        _ => behind.find(|char| !is_name(char)).unwrap_or(behind.len()),
    };
    if length == 0 { Err(TemplateError::NoName) } else { Ok(behind.split_at(length)) }
}

/// The parts of a new template.
#[derive(Default)]
struct Parts {
    parts: Vec<TemplatePart>,
    /// The text behind the last part.
    text: String,
}

impl Parts {
    fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn variable(&mut self, variable: Variable) {
        self.end_text();
        self.parts.push(TemplatePart::Variable(variable));
    }

    fn part(&mut self, part: &TemplatePart) {
        match part {
            TemplatePart::Text(text) => self.text(text),
            TemplatePart::Variable(variable) => self.variable(variable.clone()),
        }
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            self.parts.push(TemplatePart::Text(std::mem::take(&mut self.text).into()));
        }
    }

    fn into_template(mut self) -> Template {
        self.end_text();
        Template { parts: self.parts.into() }
    }

    /// The template, within its limits: the values of further variables may be long.
    fn finish(self) -> Result<Template, TemplateError> {
        let template = self.into_template();
        if template.variables().count() > Template::VARIABLES_MAX {
            return Err(TemplateError::TooManyVariables);
        }
        let length = template.to_string().len();
        // A text that is decoded again must stay within the limit.
        if length > Template::LENGTH_MAX { Err(TemplateError::TooLong(length)) } else { Ok(template) }
    }
}

/// Variables without a parameter, with their names in nginx. The first name of a variable is written.
macro_rules! variables {
    ($($(#[$doc:meta])* $variable:ident = $name:literal $(| $alias:literal)*;)*) => {
        /// A variable. The data plane renders a variable without a value as an empty text.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Variable {
            $($(#[$doc])* $variable,)*
            /// `$http_NAME`: the header with this name, in lower case and with `_` for `-`. Several lines are joined by
            /// commas.
            Header(Box<str>),
            /// `$cookie_NAME`: the first cookie with this name, in any case.
            Cookie(Box<str>),
            /// `$arg_NAME`: the first parameter of the query with this name, in any case and with its escapes.
            Argument(Box<str>),
            /// `$1` to `$9`: a capture of the regular expression that matched last.
            Capture(u8),
        }

        impl Variable {
            /// The variables without a parameter, and their names.
            const PLAIN: &[(&str, Self)] = &[$(($name, Self::$variable), $(($alias, Self::$variable),)*)*];
        }
    };
}

variables! {
    /// The query, without its `?`.
    Args = "args" | "query_string";
    /// The host that the client requested, also according to a trusted proxy, with its port if it has one.
    BestHttpHost = "best_http_host";
    /// `Content-Length` of the request.
    ContentLength = "content_length";
    /// `Content-Type` of the request.
    ContentType = "content_type";
    /// `$request_uri`, percent-encoded for a parameter of a query.
    EscapedRequestUri = "escaped_request_uri";
    /// `X-Forwarded-For` of the request with the client IP behind it.
    ForwardedFor = "proxy_add_x_forwarded_for";
    /// `X-Forwarded-For` of the request with the IP of the peer behind it.
    FullForwardedFor = "full_x_forwarded_for";
    /// The host that the client requested, in lower case and without its port.
    Host = "host";
    /// `Host` of the request.
    HttpHost = "http_host";
    /// `on` if the client's connection uses TLS.
    Https = "https";
    /// The name of the Ingress.
    IngressName = "ingress_name";
    /// `?` if there is a query.
    IsArgs = "is_args";
    /// A `$`.
    LiteralDollar = "literal_dollar";
    /// The path of the rule.
    LocationPath = "location_path";
    /// The seconds since 1970, with milliseconds.
    Msec = "msec";
    /// The namespace of the Ingress.
    Namespace = "namespace";
    /// The scheme that the client used, also according to a trusted proxy.
    PassAccessScheme = "pass_access_scheme";
    /// The port that the client used, also according to a trusted proxy.
    PassPort = "pass_port" | "pass_server_port";
    /// The IP of the peer, which may be a proxy.
    PeerAddress = "realip_remote_addr";
    /// The namespace, the name and the port of the Service, with hyphens between them.
    ProxyUpstreamName = "proxy_upstream_name" | "proxy_host";
    /// The client IP.
    RemoteAddr = "remote_addr" | "the_real_ip";
    /// The user name of Basic authentication.
    RemoteUser = "remote_user";
    /// The request line.
    Request = "request";
    /// The ID of the request that endpoints receive: the ID of a trusted proxy, or else a new one.
    ReqId = "req_id";
    /// A new ID of the request.
    RequestId = "request_id";
    /// The method.
    RequestMethod = "request_method";
    /// The path and the query, as the client sent them.
    RequestUri = "request_uri";
    /// The scheme of the client's connection.
    Scheme = "scheme";
    /// The name of the host's rules.
    ServerName = "server_name";
    /// The port of the client's connection.
    ServerPort = "server_port";
    /// The version of HTTP, as in `HTTP/1.1`.
    ServerProtocol = "server_protocol";
    /// The name of the Service.
    ServiceName = "service_name";
    /// The port of the Service.
    ServicePort = "service_port";
    /// The client's certificate in PEM, percent-encoded. Only if endpoints receive the certificate.
    SslClientCertificate = "ssl_client_escaped_cert";
    /// The name of the issuer of the client's certificate.
    SslClientIssuer = "ssl_client_i_dn";
    /// The name in the client's certificate.
    SslClientSubject = "ssl_client_s_dn";
    /// The verification of the client's certificate: `SUCCESS`, `FAILED:` with the reason, or `NONE`.
    SslClientVerify = "ssl_client_verify";
    /// The time, as in `2026-01-31T12:00:00+00:00`.
    TimeIso8601 = "time_iso8601";
    /// The time, as in `31/Jan/2026:12:00:00 +0000`.
    TimeLocal = "time_local";
    /// The path in normal form, without escapes.
    Uri = "uri" | "document_uri";
}

impl Variable {
    /// The variable with this name, in lower case.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        if let Some((_, plain)) = Self::PLAIN.iter().find(|(plain, _)| *plain == name) {
            return Some(plain.clone());
        }
        if let [digit @ b'1'..=b'9'] = name.as_bytes() {
            return Some(Self::Capture(digit - b'0'));
        }
        let parameter = |prefix| name.strip_prefix(prefix).filter(|parameter| !parameter.is_empty());
        let header = || parameter("http_").map(|name| Self::Header(name.into()));
        let cookie = || parameter("cookie_").map(|name| Self::Cookie(name.into()));
        let argument = || parameter("arg_").map(|name| Self::Argument(name.into()));
        header().or_else(cookie).or_else(argument)
    }
}

/// The name of the variable, without `$`.
impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(name) => write!(f, "http_{name}"),
            Self::Cookie(name) => write!(f, "cookie_{name}"),
            Self::Argument(name) => write!(f, "arg_{name}"),
            Self::Capture(number) => write!(f, "{number}"),
            plain => {
                let name = Self::PLAIN.iter().find(|(_, other)| other == plain).map_or("", |(name, _)| name);
                f.write_str(name)
            }
        }
    }
}

/// The text. A name is in braces if the text behind it would continue the name.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, part) in self.parts.iter().enumerate() {
            let next = match self.parts.get(index + 1) {
                Some(TemplatePart::Text(text)) => text.bytes().next(),
                _ => None,
            };
            let continues = next.is_some_and(|next| next.is_ascii_alphanumeric() || next == b'_');
            match part {
                TemplatePart::Text(text) => f.write_str(text)?,
                TemplatePart::Variable(variable @ Variable::Capture(_)) => write!(f, "${variable}")?,
                TemplatePart::Variable(variable) if continues => write!(f, "${{{variable}}}")?,
                TemplatePart::Variable(variable) => {
                    f.write_char('$')?;
                    variable.fmt(f)?;
                }
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string(), f)
    }
}

impl Hash for Template {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<C> Encode<C> for Template {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.str(&self.to_string())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Template {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::new(decoder.str()?).map_err(|_| Fault::Invalid("a text with variables").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> Template {
        Template::new(text).unwrap()
    }

    #[test]
    fn template_is_parsed_into_texts_and_variables_with_the_syntax_of_nginx() {
        let text = |text: &str| TemplatePart::Text(text.into());
        let variable = TemplatePart::Variable;
        for (written, parts) in [
            ("", vec![]),
            ("plain text", vec![text("plain text")]),
            (
                "https://$host$request_uri",
                vec![text("https://"), variable(Variable::Host), variable(Variable::RequestUri)],
            ),
            ("/${Arg_X}y", vec![text("/"), variable(Variable::Argument("x".into())), text("y")]),
            ("$12", vec![variable(Variable::Capture(1)), text("2")]),
            ("${1}a", vec![variable(Variable::Capture(1)), text("a")]),
            ("$http_x_real-ip", vec![variable(Variable::Header("x_real".into())), text("-ip")]),
            ("$cookie_a.$query_string", {
                vec![variable(Variable::Cookie("a".into())), text("."), variable(Variable::Args)]
            }),
            ("5${literal_dollar}", vec![text("5"), variable(Variable::LiteralDollar)]),
        ] {
            assert_eq!(template(written).parts(), parts, "{written}");
        }
    }

    #[test]
    fn template_error_names_the_unknown_variable() {
        for (written, message) in [
            ("a $nosuch b", "has the variable $nosuch, which the gateway does not know: remove it"),
            ("${http_}", "has the variable $http_, which the gateway does not know: remove it"),
            ("$0", "has the variable $0, which the gateway does not know: remove it"),
            ("5$", "has a '$' without the name of a variable: write ${literal_dollar} for '$'"),
            ("$-", "has a '$' without the name of a variable: write ${literal_dollar} for '$'"),
            ("${}", "has a '$' without the name of a variable: write ${literal_dollar} for '$'"),
            ("${host", "has a variable ${host without its closing brace"),
            ("${ho-st}", "has a variable ${ho without its closing brace"),
            ("a\0b", "has a control character: remove it"),
        ] {
            assert_eq!(Template::new(written).unwrap_err().to_string(), message, "{written}");
        }
        assert_eq!(Template::new(&"a".repeat(4097)), Err(TemplateError::TooLong(4097)));
        assert_eq!(Template::new(&"$host".repeat(33)), Err(TemplateError::TooManyVariables));
    }

    #[test]
    fn written_text_of_a_template_parses_to_the_same_template() {
        for written in [
            "https://${host}y$1$2x${uri}_$is_args$args",
            "${literal_dollar}{a}",
            "$the_real_ip ${arg_a}${arg_b}b",
            "é$host",
        ] {
            let parsed = template(written);
            assert_eq!(template(&parsed.to_string()), parsed, "{written}");
            let bytes = minicbor::to_vec(&parsed).unwrap();
            assert_eq!(Decoder::new(&bytes).decode::<Template>().unwrap(), parsed, "{written}");
        }
        assert_eq!(serde_json::to_string(&template("${host}/x")).unwrap(), r#""$host/x""#);
        assert_eq!(Template::literal("cost: $5").unwrap().to_string(), "cost: ${literal_dollar}5");
        for (name, variable) in Variable::PLAIN {
            assert_eq!(Variable::named(name).as_ref(), Some(variable));
            assert_eq!(Variable::named(&variable.to_string()).as_ref(), Some(variable));
        }
    }

    #[test]
    fn template_splits_at_a_question_mark_of_its_own_text() {
        let split = |text: &str| {
            let (before, behind) = template(text).split_at('?');
            (before.to_string(), behind.map(|behind| behind.to_string()))
        };
        assert_eq!(split("/a/$1?b=$2&c"), ("/a/$1".to_owned(), Some("b=$2&c".to_owned())));
        assert_eq!(split("/a/$1?"), ("/a/$1".to_owned(), Some(String::new())));
        assert_eq!(split("/a/$is_args$args"), ("/a/$is_args$args".to_owned(), None));
        let stripped = |text: &str| template(text).strip_end('?').map(|rest| rest.to_string());
        assert_eq!(stripped("$1/a?").as_deref(), Some("$1/a"));
        assert_eq!(stripped("?").as_deref(), Some(""));
        assert_eq!((stripped("/a?$args"), stripped("/a")), (None, None));
    }

    #[test]
    fn further_variables_are_replaced_by_their_values_within_the_limits() {
        let value = template("$arg_b-");
        let parsed = Template::with("a$mine$host", |name| (name == "mine").then_some(&value)).unwrap();
        assert_eq!(parsed.to_string(), "a$arg_b-$host");
        let long = template(&"x".repeat(4000));
        let twice = Template::with("$mine$mine", |_| Some(&long));
        assert_eq!(twice, Err(TemplateError::TooLong(8000)));
    }
}
