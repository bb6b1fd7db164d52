//! Texts with variables of nginx: their values for a request.

use std::io::Write as _;
use std::ops::Range;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sluicegate_http1::{Known, Version};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{Template, TemplatePart, Variable};
use sluicegate_model::{HostPattern, ObjectId, UpstreamKey};

use crate::date::{iso8601, local_time};
use crate::name::host_name;
use crate::request::{HeadView, RequestView, WireVersion, nginx_port};

/// The longest text that a template may become, in bytes: the default limit of nginx for a whole head. A request whose
/// text would be longer is rejected with 431, counted as `HeadTooLarge`.
pub(crate) const RENDERED_MAX: usize = 32 * 1024;

/// The longest user name of Basic authentication with its password, in bytes. `$remote_user` is empty for a longer one.
const CREDENTIALS_MAX: usize = 768;

/// A request, as templates see it.
#[derive(Clone, Copy)]
pub(crate) struct TemplateView<'r> {
    pub(crate) request: RequestView<'r>,
    /// The query that the endpoint receives, without its `?`.
    pub(crate) query: Option<&'r [u8]>,
    pub(crate) rule: Option<RuleView<'r>>,
    /// The port that the client connected to.
    pub(crate) port: u16,
    /// The header lines about the client's certificate.
    pub(crate) identity: &'r [u8],
    pub(crate) request_id: u128,
    /// Whether headers with an underscore in their name count. Without underscores no client can set `$http_x_name` by
    /// `X_Name`.
    pub(crate) underscores: bool,
    pub(crate) captured: Option<&'r Captured>,
}

/// The rule of a request, as templates show it.
#[derive(Clone, Copy)]
pub(crate) struct RuleView<'r> {
    pub(crate) id: &'r ObjectId,
    pub(crate) host: &'r HostPattern,
    pub(crate) path: &'r str,
    /// The upstream of the first backend.
    pub(crate) upstream: Option<&'r UpstreamKey>,
}

/// The captures of a regular expression in a text.
#[derive(Debug)]
pub(crate) struct Captured {
    text: Box<[u8]>,
    spans: [Range<usize>; Pattern::CAPTURES],
}

impl Captured {
    /// The captures of a text; `None` if the pattern does not match.
    pub(crate) fn of(pattern: &Pattern, text: &[u8]) -> Option<Self> {
        let spans = pattern.captures(text)?;
        Some(Self { text: text.into(), spans })
    }

    /// A capture; empty if the expression has no such group, or the group took no part in the match.
    fn get(&self, number: u8) -> &[u8] {
        self.spans.get(usize::from(number)).and_then(|span| self.text.get(span.clone())).unwrap_or_default()
    }
}

/// The place of a rendered text, which decides about the bytes that values may contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The value of a header: control characters are percent-encoded, above all CR, LF and NUL.
    Header,
    /// A URL: bytes other than visible ASCII are percent-encoded.
    Url,
    /// A path: bytes that a path cannot have are percent-encoded (RFC 3986, 3.3). Valid escapes stay.
    Path,
    /// A query: bytes that a query cannot have are percent-encoded (RFC 3986, 3.4), and so are `&` and `+` of captures.
    Query,
    /// A body, or the input of a hash: the bytes stay.
    Body,
}

/// The text would be longer than [`RENDERED_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

impl TemplateView<'_> {
    /// Appends the text with the values of its variables.
    pub(crate) fn render(&self, template: &Template, place: Place, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let end = out.len() + RENDERED_MAX;
        let mut to = Output { out, place, end, is_too_long: false };
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => to.put(text.as_bytes()),
                TemplatePart::Variable(variable) => self.put(variable, &mut to),
            }
        }
        if to.is_too_long { Err(TooLong) } else { Ok(()) }
    }

    /// The scheme and the host of the client's URL, with the port of its connection if `has_port` and if the port differs
    /// from the port of the scheme, as nginx puts them before the path of a redirect.
    pub(crate) fn origin(&self, has_port: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        let mut to = Output { out: &mut out, place: Place::Url, end: RENDERED_MAX, is_too_long: false };
        to.put_text(Some(self.scheme()));
        to.put(b"://");
        self.put(&Variable::Host, &mut to);
        let own = if self.request.client.is_tls { 443 } else { 80 };
        if has_port && self.port != own {
            to.write(format_args!(":{}", self.port));
        }
        out
    }

    /// Appends the value of a variable with all its bytes, up to [`RENDERED_MAX`].
    pub(crate) fn put_value(&self, variable: &Variable, out: &mut Vec<u8>) {
        let end = out.len() + RENDERED_MAX;
        self.put(variable, &mut Output { out, place: Place::Body, end, is_too_long: false });
    }

    /// Appends the value of a variable about the present time. Returns whether the variable is about the time.
    pub(crate) fn put_time(variable: &Variable, out: &mut Vec<u8>) -> bool {
        let (seconds, millis) = now();
        match variable {
            Variable::Msec => out.extend(format!("{seconds}.{millis:03}").bytes()),
            Variable::TimeIso8601 => out.extend(iso8601(seconds)),
            Variable::TimeLocal => out.extend(local_time(seconds)),
            _ => return false,
        }
        true
    }

    /// Writes the value of a variable.
    fn put(&self, variable: &Variable, to: &mut Output<'_>) {
        let RequestView { head: view, client, path } = self.request;
        let HeadView { head, buf } = view;
        let rule = self.rule;
        match variable {
            Variable::Args => to.put(self.query.unwrap_or_default()),
            Variable::Argument(name) => {
                to.put(argument(self.query.unwrap_or_default(), name).unwrap_or_default());
            }
            Variable::BestHttpHost => {
                let public = view.public_host().filter(|_| client.is_trusted);
                to.put(public.unwrap_or(view.authority()));
            }
            Variable::Capture(number) => {
                let capture = self.captured.map(|captured| captured.get(*number)).unwrap_or_default();
                match to.place {
                    Place::Query => to.put_parameter(capture),
                    _ => to.put(capture),
                }
            }
            Variable::ContentLength => to.put(view.header(Known::ContentLength).unwrap_or_default()),
            Variable::ContentType => to.put(view.header(Known::ContentType).unwrap_or_default()),
            Variable::Cookie(name) => to.put(cookie(view, name).unwrap_or_default()),
            Variable::EscapedRequestUri => {
                self.with_request_uri(|part| to.put_quoted(part, |byte| !is_unreserved(byte)));
            }
            Variable::ForwardedFor => {
                if self.put_header("x_forwarded_for", to) {
                    to.put(b", ");
                }
                to.write(format_args!("{}", client.ip()));
            }
            Variable::FullForwardedFor => {
                if self.put_header("x_forwarded_for", to) {
                    to.put(b", ");
                }
                to.write(format_args!("{}", client.peer));
            }
            Variable::Header(name) => drop(self.put_header(name, to)),
            Variable::Host => match host_name(view.authority()) {
                [] => self.put_server_name(to),
                name => to.put_lower(name),
            },
            Variable::HttpHost => to.put(view.authority()),
            Variable::Https => to.put(if client.is_tls { b"on" } else { b"" }),
            Variable::IngressName => to.put_text(rule.map(|rule| &*rule.id.name)),
            Variable::IsArgs => {
                to.put(if self.query.is_some_and(|query| !query.is_empty()) { b"?" } else { b"" });
            }
            Variable::LiteralDollar => to.put(b"$"),
            Variable::LocationPath => to.put_text(rule.map(|rule| rule.path)),
            Variable::Namespace => to.put_text(rule.map(|rule| &*rule.id.namespace)),
            Variable::PassAccessScheme => match self.trusted(Known::XForwardedProto) {
                Some(scheme) => to.put(scheme),
                None => to.put_text(Some(self.scheme())),
            },
            Variable::PassPort => match self.trusted(Known::XForwardedPort) {
                Some(port) => to.put(port),
                None => to.write(format_args!("{}", nginx_port(client.is_tls))),
            },
            Variable::PeerAddress => to.write(format_args!("{}", client.peer)),
            Variable::ProxyUpstreamName => {
                if let Some(UpstreamKey { namespace, service, port, .. }) =
                    rule.and_then(|rule| rule.upstream)
                {
                    to.write(format_args!("{namespace}-{service}-{port}"));
                }
            }
            Variable::RemoteAddr => to.write(format_args!("{}", client.ip())),
            Variable::RemoteUser => put_user(view, to),
            Variable::ReqId => match self.trusted(Known::XRequestId) {
                Some(id) => to.put(id),
                None => to.write(format_args!("{:032x}", self.request_id)),
            },
            Variable::Request => {
                to.put(view.method_name());
                to.put(b" ");
                to.put(view.target());
                to.put(b" ");
                to.put_text(Some(self.protocol()));
            }
            Variable::RequestId => to.write(format_args!("{:032x}", self.request_id)),
            Variable::RequestMethod => to.put(head.method_name.of(buf)),
            Variable::RequestUri => self.with_request_uri(|part| to.put(part)),
            Variable::Scheme => to.put_text(Some(self.scheme())),
            Variable::ServerName => self.put_server_name(to),
            Variable::ServerPort => to.write(format_args!("{}", nginx_port(client.is_tls))),
            Variable::ServerProtocol => to.put_text(Some(self.protocol())),
            Variable::ServiceName => {
                to.put_text(rule.and_then(|rule| rule.upstream).map(|upstream| &*upstream.service));
            }
            Variable::ServicePort => {
                to.put_text(rule.and_then(|rule| rule.upstream).map(|upstream| &*upstream.port));
            }
            Variable::SslClientCertificate => to.put(self.identified("ssl-client-cert")),
            Variable::SslClientIssuer => to.put(self.identified("ssl-client-issuer-dn")),
            Variable::SslClientSubject => to.put(self.identified("ssl-client-subject-dn")),
            Variable::SslClientVerify => match self.identified("ssl-client-verify") {
                [] if client.is_tls => to.put(b"NONE"),
                verified => to.put(verified),
            },
            Variable::Msec | Variable::TimeIso8601 | Variable::TimeLocal => {
                let mut time = Vec::new();
                Self::put_time(variable, &mut time);
                to.put(&time);
            }
            Variable::Uri => put_decoded(path, to),
        }
    }

    /// The value of a forwarding header of a trusted proxy.
    fn trusted(&self, known: Known) -> Option<&[u8]> {
        let RequestView { head, client, .. } = self.request;
        head.header(known).filter(|value| client.is_trusted && !value.is_empty())
    }

    /// The path and the query, as the client sent them.
    pub(crate) fn request_uri(&self) -> Vec<u8> {
        let mut uri = Vec::new();
        self.with_request_uri(|part| uri.extend_from_slice(part));
        uri
    }

    fn with_request_uri(&self, mut put: impl FnMut(&[u8])) {
        let HeadView { head, buf } = self.request.head;
        put(match head.path.of(buf) {
            [] => b"/",
            path => path,
        });
        if let Some(query) = self.request.head.query() {
            put(b"?");
            put(query);
        }
    }

    fn scheme(&self) -> &'static str {
        if self.request.client.is_tls { "https" } else { "http" }
    }

    fn protocol(&self) -> &'static str {
        match (self.request.client.wire, self.request.head.head.version) {
            (WireVersion::Http3, _) => "HTTP/3.0",
            (WireVersion::Http2, _) => "HTTP/2.0",
            (WireVersion::Http1, Version::Http10) => "HTTP/1.0",
            (WireVersion::Http1, Version::Http11) => "HTTP/1.1",
        }
    }

    fn put_server_name(&self, to: &mut Output<'_>) {
        match self.rule.map(|rule| rule.host) {
            // The name of the server block for all other hosts.
            None | Some(HostPattern::Any) => to.put(b"_"),
            Some(host) => to.write(format_args!("{host}")),
        }
    }

    /// Writes the values of the header with this name, in lower case and with `_` for `-`. Returns whether there is one.
    fn put_header(&self, name: &str, to: &mut Output<'_>) -> bool {
        let HeadView { head, buf } = self.request.head;
        if name == "host" {
            to.put(self.request.head.authority());
            return head.authority.is_some();
        }
        let is_named = |written: &[u8]| {
            let is_same = |(written, name): (&u8, u8)| match written {
                b'-' => name == b'_',
                b'_' => name == b'_' && self.underscores,
                other => other.to_ascii_lowercase() == name,
            };
            written.len() == name.len() && written.iter().zip(name.bytes()).all(is_same)
        };
        let between: &[u8] = if name == "cookie" { b"; " } else { b", " };
        let mut has_value = false;
        for line in head.lines.iter().filter(|line| is_named(line.name.of(buf))) {
            if has_value {
                to.put(between);
            }
            to.put(line.value.of(buf));
            has_value = true;
        }
        has_value
    }

    /// A value from the header lines about the client's certificate.
    fn identified(&self, name: &str) -> &[u8] {
        let mut lines = self.identity.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b": "));
        value.map(<[u8]>::trim_ascii_end).unwrap_or_default()
    }
}

/// The value of a parameter of the query, as sent. The name is compared in any case.
fn argument<'q>(query: &'q [u8], name: &str) -> Option<&'q [u8]> {
    query.split(|byte| *byte == b'&').find_map(|pair| {
        let start = pair.get(..name.len())?;
        let value = pair[name.len()..].strip_prefix(b"=")?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some(value)
    })
}

/// The value of a cookie. The name is compared in any case.
fn cookie<'r>(HeadView { head, buf }: HeadView<'r>, name: &str) -> Option<&'r [u8]> {
    let lines = head.lines.iter().filter(|line| line.known == Known::Cookie);
    lines.flat_map(|line| line.value.of(buf).split(|byte| *byte == b';')).find_map(|pair| {
        let pair = pair.trim_ascii_start();
        let start = pair.get(..name.len())?;
        let value = pair[name.len()..].trim_ascii_start().strip_prefix(b"=")?;
        start.eq_ignore_ascii_case(name.as_bytes()).then_some(value.trim_ascii_start())
    })
}

/// Writes the user name of Basic authentication (RFC 7617), which may be wrong.
fn put_user(head: HeadView<'_>, to: &mut Output<'_>) {
    let Some(value) = head.header(Known::Authorization) else { return };
    let is_basic = value.get(..6).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "));
    let mut room = [0; CREDENTIALS_MAX];
    if is_basic
        && let Ok(length) = BASE64_STANDARD.decode_slice(value[6..].trim_ascii(), &mut room)
        && let Some(colon) = room[..length].iter().position(|byte| *byte == b':')
    {
        to.put(&room[..colon]);
    }
}

/// Writes a path without its escapes.
fn put_decoded(path: &[u8], to: &mut Output<'_>) {
    let hex = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut rest = path;
    while let Some(at) = memchr::memchr(b'%', rest) {
        to.put(&rest[..at]);
        rest = match rest[at..] {
            [_, high, low, ref tail @ ..] if let Some((high, low)) = hex(high).zip(hex(low)) => {
                to.put(&[high << 4 | low]);
                tail
            }
            _ => {
                to.put(b"%");
                &rest[at + 1..]
            }
        };
    }
    to.put(rest);
}

/// The time since 1970: seconds, and milliseconds.
fn now() -> (u64, u32) {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (since.as_secs(), since.subsec_millis())
}

/// RFC 3986, 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

/// A rendered text. Every byte passes `put`.
struct Output<'o> {
    out: &'o mut Vec<u8>,
    place: Place,
    end: usize,
    is_too_long: bool,
}

impl Output<'_> {
    fn put(&mut self, bytes: &[u8]) {
        let place = self.place;
        match place {
            Place::Body => self.append(bytes),
            Place::Header => self.put_quoted(bytes, |byte| byte.is_ascii_control() && byte != b'\t'),
            Place::Url => self.put_quoted(bytes, |byte| !byte.is_ascii_graphic()),
            Place::Path | Place::Query => self.put_of_target(bytes),
        }
    }

    fn put_text(&mut self, text: Option<&str>) {
        self.put(text.unwrap_or_default().as_bytes());
    }

    fn put_lower(&mut self, name: &[u8]) {
        for byte in name {
            self.put(&[byte.to_ascii_lowercase()]);
        }
    }

    /// Writes bytes for a path or a query.
    fn put_of_target(&mut self, bytes: &[u8]) {
        let is_query = self.place == Place::Query;
        let is_valid =
            |byte: u8| is_unreserved(byte) || b"!$&'()*+,;=:@/".contains(&byte) || is_query && byte == b'?';
        let mut rest = bytes;
        while let Some((byte, tail)) = rest.split_first() {
            let is_escape =
                || matches!(tail, [high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit());
            let stays = is_valid(*byte) || *byte == b'%' && is_escape();
            self.put_quoted(&[*byte], |_| !stays);
            rest = tail;
        }
    }

    /// Writes a part of the path into a query, where `&` and `+` have another meaning.
    fn put_parameter(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'&' | b'+')) {
            match part.split_last() {
                Some((last @ (b'&' | b'+'), text)) => {
                    self.put(text);
                    self.append(if *last == b'&' { b"%26" } else { b"%2B" });
                }
                _ => self.put(part),
            }
        }
    }

    /// Writes bytes; percent-encodes the bytes that `is_quoted` names.
    fn put_quoted(&mut self, bytes: &[u8], is_quoted: impl Fn(u8) -> bool) {
        const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| is_quoted(*byte)) {
            let byte = rest[at];
            self.append(&rest[..at]);
            self.append(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            rest = &rest[at + 1..];
        }
        self.append(rest);
    }

    fn write(&mut self, text: std::fmt::Arguments<'_>) {
        // Addresses, numbers and names of objects: no byte of them is encoded anywhere.
        let before = self.out.len();
        // Writing to a Vec does not fail.
        let _ = self.out.write_fmt(text);
        if self.out.len() > self.end {
            self.out.truncate(before);
            self.is_too_long = true;
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.out.len() + bytes.len() > self.end {
            self.is_too_long = true;
        } else {
            self.out.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;
    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};

    use super::*;
    use crate::request::ClientView;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    /// Renders a text for the request with these lines behind its request line. `change` changes the view.
    fn render(
        text: &str,
        target: &str,
        lines: &[&str],
        place: Place,
        change: impl FnOnce(&mut TemplateView<'_>),
    ) -> Result<String, TooLong> {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let bytes = format!("GET {target} HTTP/1.1\r\n{lines}\r\n");
        let (buf, mut head) = (bytes.as_bytes(), RequestHead::default());
        assert!(head.parse(buf, &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        let client = ClientView {
            peer: PEER,
            address: Ok(CLIENT),
            is_tls: true,
            is_trusted: false,
            wire: WireVersion::Http1,
            has_certificate: false,
        };
        let head = HeadView { head: &head, buf };
        let (id, upstream) = (
            ObjectId { kind: "Ingress", namespace: "shop".into(), name: "web".into() },
            UpstreamKey::new("shop", "cart", "http"),
        );
        let host = HostPattern::Wildcard("example.com".into());
        let rule = RuleView { id: &id, host: &host, path: "/a", upstream: Some(&upstream) };
        let mut view = TemplateView {
            request: RequestView { head, client, path: head.head.path.of(buf) },
            query: head.query(),
            rule: Some(rule),
            port: 8443,
            identity: b"ssl-client-verify: SUCCESS\r\nssl-client-subject-dn: CN=a\r\n",
            request_id: 0xab,
            underscores: false,
            captured: None,
        };
        change(&mut view);
        let mut out = b"before ".to_vec();
        let rendered = view.render(&Template::new(text).unwrap(), place, &mut out);
        rendered.map(|()| String::from_utf8_lossy(&out[7..]).into_owned())
    }

    #[test]
    fn variables_have_the_values_of_nginx() {
        let lines = [
            "Host: A.Example.com:80",
            "X-Many: 1",
            "x-many: 2",
            "X_Secret: forged",
            "Cookie: a=1; b = two ;c",
            "Cookie: d=4",
            "Authorization: Basic dXNlcjpwYXNz",
            "X-Forwarded-For: 192.0.2.99",
            "X-Forwarded-Proto: http",
            "Content-Type: text/plain",
        ];
        for (text, expected) in [
            ("plain", "plain"),
            ("$scheme://$host$request_uri", "https://a.example.com/a%20b/c?x=1&Y=%41&z"),
            ("$http_host $best_http_host", "A.Example.com:80 A.Example.com:80"),
            ("$uri|$document_uri", "/a b/c|/a b/c"),
            ("$uri$is_args$args", "/a b/c?x=1&Y=%41&z"),
            ("$arg_x $arg_y [$arg_z] [$arg_none]", "1 %41 [] []"),
            ("$escaped_request_uri", "%2Fa%2520b%2Fc%3Fx%3D1%26Y%3D%2541%26z"),
            ("$http_x_many [$http_none] [$http_x_secret]", "1, 2 [] []"),
            ("$cookie_a $cookie_B [$cookie_c] $cookie_d", "1 two  [] 4"),
            ("$http_cookie", "a=1; b = two ;c; d=4"),
            ("$remote_user", "user"),
            ("$remote_addr $the_real_ip $realip_remote_addr", "192.0.2.7 192.0.2.7 10.0.0.1"),
            ("$proxy_add_x_forwarded_for", "192.0.2.99, 192.0.2.7"),
            ("$full_x_forwarded_for", "192.0.2.99, 10.0.0.1"),
            ("$pass_access_scheme $pass_port $pass_server_port", "https 443 443"),
            ("$request_method $server_protocol $https", "GET HTTP/1.1 on"),
            ("$request", "GET /a%20b/c?x=1&Y=%41&z HTTP/1.1"),
            ("$request_id $req_id", "000000000000000000000000000000ab 000000000000000000000000000000ab"),
            ("$server_name:$server_port", "*.example.com:443"),
            ("$namespace/$ingress_name $service_name:$service_port", "shop/web cart:http"),
            ("$proxy_upstream_name $location_path", "shop-cart-http /a"),
            ("$content_type [$content_length]", "text/plain []"),
            ("$ssl_client_verify $ssl_client_s_dn [$ssl_client_i_dn]", "SUCCESS CN=a []"),
            ("[$1]", "[]"),
            ("5${literal_dollar}", "5$"),
        ] {
            let rendered = render(text, "/a%20b/c?x=1&Y=%41&z", &lines, Place::Header, |_| ());
            assert_eq!(rendered.as_deref(), Ok(expected), "{text}");
        }
        let time = render("$time_iso8601 $msec", "/", &["Host: a"], Place::Header, |_| ()).unwrap();
        assert!(time.starts_with("20") && time.contains("+00:00 "), "{time}");
    }

    #[test]
    fn forwarding_headers_of_an_untrusted_peer_do_not_change_scheme_host_port_or_id() {
        let lines = [
            "Host: a",
            "X-Forwarded-Proto: http",
            "X-Forwarded-Host: b",
            "X-Forwarded-Port: 1",
            "X-Request-ID: theirs",
        ];
        let text = "$pass_access_scheme $best_http_host $pass_port $req_id";
        let of_peer = |is_trusted| {
            render(text, "/", &lines, Place::Header, |view| view.request.client.is_trusted = is_trusted)
        };
        assert_eq!(of_peer(true).as_deref(), Ok("http b 1 theirs"));
        assert_eq!(of_peer(false).as_deref(), Ok("https a 443 000000000000000000000000000000ab"));
    }

    #[test]
    fn request_without_host_has_the_server_name_of_its_rule_as_host() {
        let host = HostPattern::Exact("shop.example".into());
        let rendered = render("$host [$http_host]", "/", &["Host: a"], Place::Header, |view| {
            // As in HTTP/1.0.
            let mut head = view.request.head.head.clone();
            head.authority = None;
            view.request.head.head = Box::leak(Box::new(head));
            view.rule = view.rule.map(|rule| RuleView { host: Box::leak(Box::new(host)), ..rule });
        });
        assert_eq!(rendered.as_deref(), Ok("shop.example []"));
    }

    #[test]
    fn place_of_a_text_decides_which_bytes_of_values_are_encoded() {
        let lines = ["Host: a", "X-Odd: a \"b\" %2f%zz ?#"];
        let in_place = |text, place| render(text, "/x%0D%0Ay%2F%3F?q=a\"b", &lines, place, |_| ()).unwrap();
        assert_eq!(in_place("$uri", Place::Header), "/x%0D%0Ay/?");
        assert_eq!(in_place("$uri", Place::Url), "/x%0D%0Ay/?");
        assert_eq!(in_place("$uri", Place::Path), "/x%0D%0Ay/%3F");
        assert_eq!(in_place("$uri", Place::Body), "/x\r\ny/?");
        assert_eq!(in_place("$http_x_odd", Place::Header), "a \"b\" %2f%zz ?#");
        assert_eq!(in_place("$http_x_odd", Place::Url), "a%20\"b\"%20%2f%zz%20?#");
        assert_eq!(in_place("$http_x_odd", Place::Path), "a%20%22b%22%20%2f%25zz%20%3F%23");
        assert_eq!(in_place("$http_x_odd", Place::Query), "a%20%22b%22%20%2f%25zz%20?%23");
    }

    #[test]
    fn captures_are_rendered_and_quoted_in_a_query() {
        let pattern = Pattern::new("^/(?:(a)|(b&c))/(.*)", true).unwrap();
        let in_place = |place| {
            render("[$1] $2 $3 [$4]", "/", &["Host: a"], place, |view| {
                view.captured = Some(Box::leak(Box::new(Captured::of(&pattern, b"/B&C/d+e").unwrap())));
            })
            .unwrap()
        };
        assert_eq!(in_place(Place::Header), "[] B&C d+e []");
        assert_eq!(in_place(Place::Query), "%5B%5D%20B%26C%20d%2Be%20%5B%5D");
        assert!(Captured::of(&pattern, b"/c").is_none());
    }

    #[test]
    fn text_longer_than_the_limit_is_an_error() {
        let long = format!("/?{}", "x".repeat(4000));
        let text = "$args".repeat(9);
        assert_eq!(render(&text, &long, &["Host: a"], Place::Header, |_| ()), Err(TooLong));
        assert_eq!(render(&text[..40], &long, &["Host: a"], Place::Header, |_| ()).unwrap().len(), 32_000);
    }

    proptest! {
        #[test]
        fn rendered_header_has_no_line_break_and_rendered_target_only_valid_bytes(
            text in r"(\$uri|\$http_x|\$args|\$cookie_a|\$1|%|/|\?| |é){0,8}",
            path in r"/(%0[aAdD0]|%00|%c3|%2[fF5]|a| ){0,8}",
            value in r"[ -~]{0,12}",
        ) {
            let (path, value) = (path.replace(' ', "+"), value.trim().to_owned());
            let lines = ["Host: a".to_owned(), format!("X: {value}"), format!("Cookie: a={value}")];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let captured = Captured::of(&Pattern::new("(.*)", false).unwrap(), value.as_bytes()).unwrap();
            let captured: &Captured = Box::leak(Box::new(captured));
            for place in [Place::Header, Place::Url, Place::Path, Place::Query] {
                let out = render(&text, &path, &lines, place, |view| view.captured = Some(captured)).unwrap();
                prop_assert!(!out.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t'), "{out:?}");
                if place != Place::Header {
                    prop_assert!(out.bytes().all(|byte| byte.is_ascii_graphic()), "{out:?}");
                }
                if place == Place::Path {
                    prop_assert!(!out.contains(['?', '#', '"']), "{out:?}");
                }
            }
        }
    }
}
