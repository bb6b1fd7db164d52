//! The question to an authorization service about a request, and the sign-in page of its client: functions of the
//! request. `admit.rs` sends the question, and applies the answer.

use std::time::SystemTime;

use sluicegate_http1::{Known, Line, Method, RequestFraming, Version};
use sluicegate_model::feature::authentication::ext_auth::SignIn;
use sluicegate_model::feature::endpoint_form::NginxForwarding;
use sluicegate_model::feature::{AuthRequest, Credential};
use sluicegate_model::value::Template;

use super::connection::Origin;
use super::encode::{
    copy_lines, has, is_forwarding, keeps_forwarding, may_forward_header, write_display, write_forwarding,
    write_line,
};
use crate::feature::authentication::credential::{Ambiguous, is_line};
use crate::feature::edit::drop_lines;
use crate::feature::ext_auth::filter::Protocol;
use crate::feature::ext_auth::grpc::{self, Attributes};
use crate::feature::ext_auth::{External, Filter, Part, Question, Told};
use crate::query::escape;
use crate::request::{HeadView, RequestView, WireVersion};
use crate::template::{Place, TemplateView, TooLong};

/// The facts about a request that the gateway adds to a question with the whole head.
pub(super) struct Added<'r> {
    pub(super) origin: &'r Origin,
    /// Whether headers with an underscore in their name are forwarded.
    pub(super) underscores: bool,
    /// For `X-Request-ID`, if the client's own ID is missing or not trusted.
    pub(super) request_id: u128,
    /// The headers of ingress-nginx, if endpoints of the route receive them.
    pub(super) nginx: Option<NginxForwarding>,
}

/// The question about a request.
pub(super) fn question(
    external: &External,
    view: &TemplateView<'_>,
    route: u64,
    added: &Added<'_>,
) -> Result<Question, NoQuestion> {
    let request = &view.request;
    let mut bytes = Vec::with_capacity(1024);
    if let Some(settings) = external.auth_request() {
        return Ok(auth_request(external, settings, view, route, added, bytes)?);
    }
    bytes.extend_from_slice(&external.opening);
    let is_whole = match &external.told {
        Told::Key(parts) => write_parts(&mut bytes, request, parts)?,
        Told::Named(names) => {
            write_request_of(&mut bytes, request, added, |line, buf| {
                names.iter().any(|(known, name)| is_line(line, *known, name, buf))
            });
            false
        }
        Told::All => {
            write_request_of(&mut bytes, request, added, is_about_request);
            false
        }
    };
    if external.says_length() {
        bytes.extend_from_slice(b"Content-Length: 0\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    let method = external.method();
    Ok(Question { bytes, key: None, is_whole, method, is_repeatable: method.is_idempotent() })
}

/// Why there is no question about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoQuestion {
    /// A part of the request is there twice.
    Ambiguous,
    /// A text with variables is too long.
    TooLong(TooLong),
}

impl From<Ambiguous> for NoQuestion {
    fn from(_: Ambiguous) -> Self {
        Self::Ambiguous
    }
}

impl From<TooLong> for NoQuestion {
    fn from(fault: TooLong) -> Self {
        Self::TooLong(fault)
    }
}

/// The forwarding headers that ingress-nginx does not send to authorization services. `X-Scheme` comes with `auth-method`.
pub(super) const NOT_ASKED: [&str; 6] = [
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Proto",
    "X-Forwarded-Scheme",
    "X-Original-Forwarded-For",
    "X-Scheme",
];

/// The question about a request in the form of ingress-nginx.
fn auth_request(
    external: &External,
    settings: &AuthRequest,
    view: &TemplateView<'_>,
    route: u64,
    added: &Added<'_>,
    mut bytes: Vec<u8>,
) -> Result<Question, TooLong> {
    match &settings.target {
        None => bytes.extend_from_slice(&external.opening),
        Some(target) => {
            bytes.extend_from_slice(external.method_name().as_bytes());
            bytes.push(b' ');
            view.render(target, Place::Url, &mut bytes)?;
            bytes.extend_from_slice(b" HTTP/1.1\r\n");
            write_line(&mut bytes, b"Host", external.authority.as_bytes());
        }
    }
    let mut lines = Vec::with_capacity(1024);
    write_forwarded(&mut lines, &view.request, added, is_about_request);
    for name in NOT_ASKED.iter().filter(|name| !settings.tells_uri || **name != "X-Scheme") {
        drop_lines(&mut lines, name.as_bytes());
    }
    let uri = view.request_uri();
    write_original(&mut lines, &view.request, &uri);
    lines.extend_from_slice(b"X-Sent-From: nginx-ingress-controller\r\n");
    let mut value = Vec::new();
    if settings.tells_uri {
        write_line(&mut lines, b"X-Original-URI", &uri);
    }
    let redirect = settings.request_redirect.iter().map(|value| (&b"X-Auth-Request-Redirect"[..], value));
    let headers = settings.headers.iter().map(|header| (header.name.as_bytes(), &header.value));
    for (name, template) in redirect.chain(headers) {
        drop_lines(&mut lines, name);
        value.clear();
        view.render(template, Place::Header, &mut value)?;
        if !value.trim_ascii().is_empty() {
            write_line(&mut lines, name, value.trim_ascii());
        }
    }
    bytes.extend_from_slice(&lines);
    if external.says_length() {
        bytes.extend_from_slice(b"Content-Length: 0\r\n");
    }
    bytes.extend_from_slice(b"\r\n");
    let key = match &settings.cache {
        None => None,
        Some(cache) => {
            let mut key = route.to_be_bytes().to_vec();
            view.render(&cache.key, Place::Body, &mut key)?;
            Some(key)
        }
    };
    let (method, is_whole) = (external.method(), key.is_some());
    Ok(Question { bytes, key, is_whole, method, is_repeatable: method.is_idempotent() })
}

/// Writes the Location header line of the sign-in page of ingress-nginx.
pub(super) fn write_sign_in_of(
    out: &mut Vec<u8>,
    view: &TemplateView<'_>,
    page: &Template,
) -> Result<(), TooLong> {
    out.extend_from_slice(b"Location: ");
    view.render(page, Place::Url, out)?;
    out.extend_from_slice(b"\r\n");
    Ok(())
}

/// The question of a filter about a request. `body` is the body of the request, if the Service receives it.
pub(super) fn filter_question(
    filter: &Filter,
    request: &RequestView<'_>,
    added: &Added<'_>,
    body: &[u8],
) -> Question {
    match &filter.protocol {
        Protocol::Http { path, .. } => http_question(filter, path, request, added, body),
        Protocol::Grpc => grpc_question(filter, request, added, body),
    }
}

/// The head of the request itself, with a path in front of its path (Gateway API, `HTTPAuthConfig`).
fn http_question(
    filter: &Filter,
    path: &str,
    request: &RequestView<'_>,
    added: &Added<'_>,
    body: &[u8],
) -> Question {
    let HeadView { head, buf } = request.head;
    let mut bytes = Vec::with_capacity(1024 + body.len());
    bytes.extend_from_slice(head.method_name.of(buf));
    bytes.push(b' ');
    bytes.extend_from_slice(path.as_bytes());
    write_target(&mut bytes, request);
    bytes.extend_from_slice(b" HTTP/1.1\r\n");
    match request.head.authority() {
        [] => write_display(&mut bytes, "Host", added.origin.local),
        authority => write_line(&mut bytes, b"Host", authority),
    }
    write_told(&mut bytes, filter, request, added);
    write_display(&mut bytes, "Content-Length", body.len());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    Question {
        bytes,
        key: None,
        is_whole: false,
        method: head.method,
        is_repeatable: head.method.is_idempotent(),
    }
}

/// A message of Envoy's protocol.
fn grpc_question(filter: &Filter, request: &RequestView<'_>, added: &Added<'_>, body: &[u8]) -> Question {
    let HeadView { head, buf } = request.head;
    let (mut path, mut headers, mut message) = (Vec::new(), Vec::new(), Vec::new());
    write_target(&mut path, request);
    let scheme = if request.is_https() { "https" } else { "http" };
    if filter.tells_all() {
        for (name, value) in [
            (&b":authority"[..], request.head.authority()),
            (b":method", request.head.method_name()),
            (b":path", &path),
            (b":scheme", scheme.as_bytes()),
        ] {
            write_line(&mut headers, name, value);
        }
    }
    write_told(&mut headers, filter, request, added);
    let attributes = Attributes {
        client: request.client.ip(),
        destination: added.origin.local,
        time: SystemTime::now(),
        id: &format!("{:032x}", added.request_id),
        method: head.method_name.of(buf),
        headers: &headers,
        path: &path,
        host: request.head.authority(),
        scheme,
        size: match head.framing {
            RequestFraming::None => Some(0),
            RequestFraming::Length(length) => Some(length),
            RequestFraming::Chunked => (!body.is_empty()).then_some(body.len() as u64),
        },
        protocol: match (request.client.wire, head.version) {
            (WireVersion::Http3, _) => "HTTP/3",
            (WireVersion::Http2, _) => "HTTP/2",
            (WireVersion::Http1, Version::Http11) => "HTTP/1.1",
            (WireVersion::Http1, Version::Http10) => "HTTP/1.0",
        },
        body,
    };
    attributes.write(&mut message);
    let mut bytes = Vec::with_capacity(256 + message.len());
    bytes.extend_from_slice(format!("POST {} HTTP/1.1\r\n", grpc::PATH).as_bytes());
    write_line(&mut bytes, b"Host", filter.authority.as_bytes());
    bytes.extend_from_slice(b"Content-Type: application/grpc\r\n");
    write_display(&mut bytes, "Content-Length", message.len());
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(&message);
    // A check changes nothing at the Service.
    Question { bytes, key: None, is_whole: false, method: Method::Post, is_repeatable: true }
}

/// Writes the headers of a request that the Service of a filter receives. The gateway's own headers have the gateway's own
/// values.
fn write_told(out: &mut Vec<u8>, filter: &Filter, request: &RequestView<'_>, added: &Added<'_>) {
    let mut own = Vec::new();
    write_forwarded(&mut own, request, added, |line, buf| filter.tells(line, buf));
    write_original(&mut own, request, &target(request));
    let HeadView { head, buf } = request.head;
    for line in own.split_inclusive(|byte| *byte == b'\n') {
        let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
        let is_told = match Known::of(name) {
            _ if is_own(name) => filter.names(name),
            // The client's value, which the filter tells only without a list of names.
            Known::Authorization => true,
            _ => filter.tells_all() || filter.names(name),
        };
        if is_told {
            out.extend_from_slice(line);
        }
    }
    if filter.is_grpc() && (filter.tells_all() || filter.names(b"content-length")) {
        for line in head.lines.iter().filter(|line| line.known == Known::ContentLength) {
            write_line(out, b"Content-Length", line.value.of(buf));
        }
    }
}

/// Writes the request for the endpoint, without its body, as ingress-nginx describes it.
fn write_request_of(
    out: &mut Vec<u8>,
    request: &RequestView<'_>,
    added: &Added<'_>,
    is_told: impl Fn(&Line, &[u8]) -> bool,
) {
    write_forwarded(out, request, added, is_told);
    write_original(out, request, &target(request));
}

/// Writes the headers that endpoints receive.
pub(super) fn write_forwarded(
    out: &mut Vec<u8>,
    request: &RequestView<'_>,
    &Added { origin, underscores, request_id, nginx }: &Added<'_>,
    is_told: impl Fn(&Line, &[u8]) -> bool,
) {
    let HeadView { head, buf } = request.head;
    let trusted = request.client.is_trusted;
    copy_lines(out, buf, &head.lines, |line| {
        let is_told = match line.known {
            // The question has its own value, or the header describes a part that the service does not receive.
            Known::Host | Known::Expect | Known::XForwardedFor | Known::ContentLength | Known::Trailer => {
                false
            }
            known if is_forwarding(known) => keeps_forwarding(known, trusted, nginx),
            Known::Other => {
                let name = line.name.of(buf);
                may_forward_header(name, trusted || nginx.is_some(), underscores)
                    && !is_own(name)
                    && is_told(line, buf)
            }
            _ => is_told(line, buf),
        };
        is_told && !line.hop_by_hop
    });
    let client = trusted.then(|| request.client.ip());
    let host = request.head.public_host().filter(|_| trusted && nginx.is_some());
    let host = host.unwrap_or(request.head.authority());
    write_forwarding(out, (buf, head), origin, (client, nginx), host);
    out.extend_from_slice(&origin.identity);
    if !(keeps_forwarding(Known::XRequestId, trusted, nginx) && has(&head.lines, Known::XRequestId)) {
        write_display(out, "X-Request-ID", format_args!("{request_id:032x}"));
    }
}

/// Writes the headers with the method and the URL of the request.
fn write_original(out: &mut Vec<u8>, request: &RequestView<'_>, target: &[u8]) {
    write_line(out, b"X-Original-Method", request.head.method_name());
    out.extend_from_slice(b"X-Original-URL: ");
    request.write_origin(out);
    out.extend_from_slice(target);
    out.extend_from_slice(b"\r\n");
    write_line(out, b"X-Auth-Request-Redirect", target);
}

/// Writes only the parts of the key. Returns whether all of them are present.
fn write_parts(out: &mut Vec<u8>, request: &RequestView<'_>, parts: &[Part]) -> Result<bool, Ambiguous> {
    let HeadView { head, buf } = request.head;
    let (mut cookies, mut origin, mut path, mut query) = (Vec::new(), Vec::new(), &b""[..], Vec::new());
    let mut is_whole = true;
    for part in parts {
        match part {
            Part::Value(place) => match (place.find(head, buf)?, place.source()) {
                (None, _) => is_whole = false,
                (Some(value), Credential::Header { name, .. }) => {
                    write_line(out, name.as_bytes(), &value);
                }
                (Some(value), Credential::Cookie(name)) => {
                    cookies.extend_from_slice(if cookies.is_empty() { b"" } else { b"; " });
                    cookies.extend_from_slice(name.as_bytes());
                    cookies.push(b'=');
                    cookies.extend_from_slice(&value);
                }
                (Some(value), Credential::Query(name)) => {
                    query.push(if query.is_empty() { b'?' } else { b'&' });
                    escape(&mut query, name.as_bytes());
                    query.push(b'=');
                    escape(&mut query, &value);
                }
            },
            Part::Method => write_line(out, b"X-Original-Method", head.method_name.of(buf)),
            Part::Host => {
                is_whole &= head.authority.is_some();
                request.write_origin(&mut origin);
                write_line(out, b"X-Forwarded-Proto", request.scheme());
                write_line(out, b"X-Forwarded-Host", request.head.authority());
            }
            Part::Path => path = request.path,
            Part::Address => {
                let address = request.client.ip();
                write_display(out, "X-Forwarded-For", address);
                write_display(out, "X-Real-IP", address);
            }
        }
    }
    if !cookies.is_empty() {
        write_line(out, b"Cookie", &cookies);
    }
    if !(origin.is_empty() && path.is_empty() && query.is_empty()) {
        let path = if path.is_empty() { b"/" } else { path };
        write_line(out, b"X-Original-URL", &[&origin, path, &query].concat());
    }
    Ok(is_whole)
}

/// Writes the Location header line of the sign-in page, with the URL to return to.
pub(super) fn write_sign_in(
    out: &mut Vec<u8>,
    request: &RequestView<'_>,
    SignIn { url, redirect_parameter: parameter }: &SignIn,
) {
    let mut wanted = Vec::new();
    // A sign-in page on the same host needs only the path.
    if !url.starts_with('/') {
        request.write_origin(&mut wanted);
    }
    write_target(&mut wanted, request);
    out.extend_from_slice(b"Location: ");
    out.extend_from_slice(url.as_bytes());
    out.push(if url.contains('?') { b'&' } else { b'?' });
    escape(out, parameter.as_bytes());
    out.push(b'=');
    escape(out, &wanted);
    out.extend_from_slice(b"\r\n");
}

/// Writes the path in normal form, as the endpoint receives it, and the query.
/// The target of a request in normal form.
fn target(request: &RequestView<'_>) -> Vec<u8> {
    let mut target = Vec::new();
    write_target(&mut target, request);
    target
}

fn write_target(out: &mut Vec<u8>, request: &RequestView<'_>) {
    out.extend_from_slice(request.path);
    if let Some(query) = request.head.query() {
        out.push(b'?');
        out.extend_from_slice(query);
    }
}

/// Whether a header describes the request itself, and neither its body nor responses that the client has stored.
pub(super) fn is_about_request(line: &Line, buf: &[u8]) -> bool {
    let name = line.name.of(buf);
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    !(begins(b"content-") || begins(b"if-") || name.eq_ignore_ascii_case(b"range"))
}

/// Whether only the gateway sets this header, for the service or for endpoints.
fn is_own(name: &[u8]) -> bool {
    let begins = |with: &[u8]| name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with));
    begins(b"x-original-") || begins(b"x-consumer-") || name.eq_ignore_ascii_case(b"x-auth-request-redirect")
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};

    use sluicegate_http1::{HeadLimits, HeadScan, RequestHead};
    use sluicegate_model::value::{CookieName, ParameterName, SignInParameter, SignInUrl};

    use super::*;
    use crate::feature::authentication::credential::Place;
    use crate::request::ClientView;
    use crate::rule::Entrance;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

    /// Runs a function of the request with this first line and these lines.
    fn with<T>(lines: &[&str], is_trusted: bool, ask: impl FnOnce(&RequestView<'_>) -> T) -> T {
        let text = format!("GET /a?b=c&key=%41 HTTP/1.1\r\nHost: one.example\r\n{}\r\n", lines.concat());
        let mut head = RequestHead::default();
        let parsed = head.parse(text.as_bytes(), &mut HeadScan::default(), &HeadLimits::default());
        assert!(parsed.expect("a valid head"));
        let client = ClientView {
            peer: CLIENT,
            address: Ok(CLIENT),
            is_tls: false,
            is_trusted,
            wire: WireVersion::Http1,
            has_certificate: false,
        };
        ask(&RequestView { head: HeadView { head: &head, buf: text.as_bytes() }, client, path: b"/normal" })
    }

    fn whole(lines: &[&str], is_trusted: bool) -> String {
        let listener = SocketAddr::new(CLIENT, 80);
        let origin = Origin {
            alt_svc: None,
            peer: CLIENT,
            listener,
            local: listener,
            entrance: Entrance::FlagHttp,
            session: None,
            is_tls: false,
            forwarding: b"X-Forwarded-For: 192.0.2.7\r\n"[..].into(),
            identity: b"ssl-client-verify: NONE\r\n"[..].into(),
            has_certificate: false,
            denied: None,
            ends: None,
        };
        let added = Added { origin: &origin, underscores: false, request_id: 1, nginx: None };
        let mut out = Vec::new();
        with(lines, is_trusted, |request| write_request_of(&mut out, request, &added, is_about_request));
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn authorization_check_of_the_whole_request_omits_headers_reserved_for_the_gateway() {
        let lines = [
            "Cookie: a=b\r\n",
            "Content-Type: text/plain\r\n",
            "X-Original-URL: /admin\r\n",
            "X-Request-ID: own\r\n",
            "X-Forwarded-Host: own\r\n",
        ];
        let told = whole(&lines, false);
        assert_eq!(
            told,
            "Cookie: a=b\r\nX-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Host: one.example\r\n\
             ssl-client-verify: NONE\r\nX-Request-ID: 00000000000000000000000000000001\r\n\
             X-Original-Method: GET\r\nX-Original-URL: http://one.example/normal?b=c&key=%41\r\n\
             X-Auth-Request-Redirect: /normal?b=c&key=%41\r\n"
        );
        let told = whole(&lines, true);
        assert!(
            told.contains("X-Request-ID: own\r\n") && told.contains("X-Forwarded-Host: own\r\n"),
            "{told}"
        );
        assert!(!told.contains("/admin") && !told.contains("one.example\r\n"), "{told}");
    }

    #[test]
    fn authorization_check_with_a_cache_key_contains_only_the_parts_of_the_key() {
        let ask = |parts: &[Part], lines: &[&str]| {
            let mut out = Vec::new();
            let is_whole = with(lines, false, |request| write_parts(&mut out, request, parts));
            is_whole.map(|is_whole| (String::from_utf8(out).expect("text"), is_whole))
        };
        let cookie = || Part::Value(Place::new(&Credential::Cookie(CookieName::of("id"))));
        let parts =
            [Part::Value(Place::new(&Credential::Query(ParameterName::of("key")))), cookie(), Part::Address];
        let address = "X-Forwarded-For: 192.0.2.7\r\nX-Real-IP: 192.0.2.7\r\n";
        let expected = format!("{address}Cookie: id=1\r\nX-Original-URL: /?key=A\r\n");
        assert_eq!(ask(&parts, &["Cookie: other=2; id=1\r\n"]), Ok((expected, true)));
        assert_eq!(ask(&[cookie()], &[]), Ok((String::new(), false)));
        let target = "X-Original-Method: GET\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: one.example\r\n\
                      X-Original-URL: http://one.example/normal\r\n";
        assert_eq!(ask(&[Part::Method, Part::Host, Part::Path], &[]), Ok((target.into(), true)));
    }

    #[test]
    fn sign_in_redirect_contains_the_url_of_the_request() {
        for (url, expected) in [
            ("/login", "Location: /login?rd=%2Fnormal%3Fb%3Dc%26key%3D%2541\r\n"),
            (
                "https://sso.example/?a=b",
                "Location: https://sso.example/?a=b&rd=http%3A%2F%2Fone.example%2Fnormal%3Fb%3Dc%26key%3D%2541\r\n",
            ),
        ] {
            let page = SignIn { url: SignInUrl::of(url), redirect_parameter: SignInParameter::default() };
            let mut out = Vec::new();
            with(&[], false, |request| write_sign_in(&mut out, request, &page));
            assert_eq!(String::from_utf8(out).expect("text"), expected);
        }
    }
}
