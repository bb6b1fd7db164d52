//! The heads of requests and responses, and trailers (RFC 9114, 4).

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Response, Uri};

use crate::qpack::{self, SectionError};

/// A malformed message (RFC 9114, 4.1.2): the stream ends with `H3_MESSAGE_ERROR`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// An unknown pseudo-header, or a pseudo-header of responses.
    #[error("unknown pseudo-header")]
    UnknownPseudo,
    /// A pseudo-header appears twice.
    #[error("duplicate pseudo-header")]
    DuplicatePseudo,
    /// A pseudo-header behind a header.
    #[error("pseudo-header behind a header")]
    LatePseudo,
    /// A pseudo-header in trailers.
    #[error("pseudo-header in trailers")]
    PseudoInTrailers,
    /// A pseudo-header is missing, or not allowed for the method.
    #[error("pseudo-headers that do not match the method")]
    PseudoOfMethod,
    /// The value of a pseudo-header is invalid.
    #[error("invalid pseudo-header")]
    InvalidPseudo,
    /// A name that is not in lower case, or has other characters that names must not have.
    #[error("invalid header name")]
    InvalidName,
    /// A value with a character that values must not have.
    #[error("invalid header value")]
    InvalidValue,
    /// A header about the connection, such as `Connection` or `Transfer-Encoding`.
    #[error("header about the connection")]
    ConnectionHeader,
    /// More headers than the parser can hold.
    #[error("too many headers")]
    TooManyHeaders,
}

/// The protocol of an extended CONNECT (RFC 9220): the value of `:protocol`, an extension of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol(pub Box<str>);

#[derive(Default)]
struct Pseudo {
    method: Option<Method>,
    scheme: Option<Scheme>,
    authority: Option<Authority>,
    path: Option<PathAndQuery>,
    protocol: Option<Box<str>>,
}

impl Pseudo {
    fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
        fn put<T, E>(place: &mut Option<T>, value: Result<T, E>) -> Result<(), Malformed> {
            let value = value.map_err(|_| Malformed::InvalidPseudo)?;
            if place.replace(value).is_some() { Err(Malformed::DuplicatePseudo) } else { Ok(()) }
        }
        match name {
            b":method" => put(&mut self.method, Method::from_bytes(value)),
            // The parser accepts an empty scheme.
            b":scheme" if value.is_empty() => Err(Malformed::InvalidPseudo),
            b":scheme" => put(&mut self.scheme, Scheme::try_from(value)),
            b":authority" => put(&mut self.authority, Authority::try_from(value)),
            b":path" => put(
                &mut self.path,
                PathAndQuery::try_from(value).map_err(drop).and_then(|path| {
                    // RFC 9114, 4.3.1. The parser drops a fragment, which a target must not have.
                    let is_whole = path.as_str().len() == value.len();
                    let is_path = matches!(value, [b'/', ..] | b"*");
                    if is_whole && is_path { Ok(path) } else { Err(()) }
                }),
            ),
            b":protocol" => {
                let is_token = !value.is_empty() && value.iter().all(u8::is_ascii_graphic);
                let text = String::from_utf8(value.to_vec()).map_err(drop);
                put(
                    &mut self.protocol,
                    text.map(String::into_boxed_str).and_then(|text| is_token.then_some(text).ok_or(())),
                )
            }
            _ => Err(Malformed::UnknownPseudo),
        }
    }

    fn into_request(self) -> Result<Request<()>, Malformed> {
        let method = self.method.ok_or(Malformed::PseudoOfMethod)?;
        let is_tunnel = method == Method::CONNECT && self.protocol.is_none();
        let is_complete = match is_tunnel {
            // RFC 9114, 4.4.
            true => self.authority.is_some() && self.scheme.is_none() && self.path.is_none(),
            false => self.scheme.is_some() && self.path.is_some(),
        };
        // RFC 9220, 3.
        if !is_complete || self.protocol.is_some() && (method != Method::CONNECT || self.authority.is_none())
        {
            return Err(Malformed::PseudoOfMethod);
        }
        if self.path.as_ref().is_some_and(|path| path == "*") && method != Method::OPTIONS {
            return Err(Malformed::InvalidPseudo);
        }
        let mut request = Request::new(());
        let mut uri = http::uri::Parts::default();
        // A URI with a scheme must have an authority; without an authority the Host header names the host.
        uri.scheme = self.scheme.filter(|_| self.authority.is_some());
        (uri.authority, uri.path_and_query) = (self.authority, self.path);
        *request.uri_mut() = Uri::from_parts(uri).map_err(|_| Malformed::InvalidPseudo)?;
        *request.method_mut() = method;
        *request.version_mut() = http::Version::HTTP_3;
        if let Some(protocol) = self.protocol {
            request.extensions_mut().insert(Protocol(protocol));
        }
        Ok(request)
    }
}

/// Decodes the head of a request.
///
/// # Errors
/// An invalid section, a section above the limit, or a malformed request.
pub fn decode_request(section: &[u8], limit: usize) -> Result<Request<()>, SectionError<Malformed>> {
    let (mut pseudo, mut headers) = (Pseudo::default(), HeaderMap::new());
    qpack::decode(section, limit, |name, value| match name {
        [b':', ..] if !headers.is_empty() => Err(Malformed::LatePseudo),
        [b':', ..] => pseudo.set(name, value),
        _ => append(&mut headers, name, value),
    })?;
    let mut request = pseudo.into_request().map_err(SectionError::Field)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Decodes trailers.
///
/// # Errors
/// As for [`decode_request`].
pub fn decode_trailers(section: &[u8], limit: usize) -> Result<HeaderMap, SectionError<Malformed>> {
    let mut headers = HeaderMap::new();
    qpack::decode(section, limit, |name, value| match name {
        [b':', ..] => Err(Malformed::PseudoInTrailers),
        _ => append(&mut headers, name, value),
    })?;
    Ok(headers)
}

fn append(headers: &mut HeaderMap, name: &[u8], value: &[u8]) -> Result<(), Malformed> {
    let name = HeaderName::from_lowercase(name).map_err(|_| Malformed::InvalidName)?;
    let value = HeaderValue::from_bytes(value).map_err(|_| Malformed::InvalidValue)?;
    // RFC 9114, 4.2.
    let is_of_connection = match name.as_str() {
        "connection" | "keep-alive" | "proxy-connection" | "transfer-encoding" | "upgrade" => true,
        "te" => !value.as_bytes().eq_ignore_ascii_case(b"trailers"),
        _ => false,
    };
    if is_of_connection {
        return Err(Malformed::ConnectionHeader);
    }
    headers.try_append(name, value).map(drop).map_err(|_| Malformed::TooManyHeaders)
}

/// Appends the field section of a response's head.
pub fn encode_response(response: &Response<()>, out: &mut Vec<u8>) {
    qpack::begin(out);
    qpack::encode(":status", response.status().as_str().as_bytes(), out);
    encode_fields(response.headers(), out);
}

/// Appends the field section of trailers.
pub fn encode_trailers(trailers: &HeaderMap, out: &mut Vec<u8>) {
    qpack::begin(out);
    encode_fields(trailers, out);
}

fn encode_fields(headers: &HeaderMap, out: &mut Vec<u8>) {
    for (name, value) in headers {
        // RFC 9114, 4.2.
        if !matches!(*name, header::CONNECTION | header::TRANSFER_ENCODING | header::UPGRADE) {
            qpack::encode(name.as_str(), value.as_bytes(), out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut section = Vec::new();
        qpack::begin(&mut section);
        for (name, value) in fields {
            qpack::encode(name, value.as_bytes(), &mut section);
        }
        section
    }

    fn decoded(fields: &[(&str, &str)]) -> Result<Request<()>, SectionError<Malformed>> {
        decode_request(&section(fields), 10_000)
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/a?b=c"), (":authority", "shop.example")];

    #[test]
    fn request_has_the_values_of_its_fields() {
        let request = decoded(&[&GET[..], &[("cookie", "a=1"), ("cookie", "b=2")]].concat()).unwrap();
        assert_eq!(request.method(), Method::GET);
        assert_eq!(request.uri(), "https://shop.example/a?b=c");
        assert_eq!(request.headers().get_all("cookie").iter().count(), 2);
        let without_authority = decoded(&[&GET[..3], &[("host", "shop.example")]].concat()).unwrap();
        assert_eq!(without_authority.uri(), "/a?b=c");
    }

    #[test]
    fn malformed_requests_are_rejected() {
        use Malformed as M;

        let with = |more: &[(&'static str, &'static str)]| decoded(&[&GET[..], more].concat()).unwrap_err();
        for (more, expected) in [
            (&[("X-Upper", "1")][..], M::InvalidName),
            (&[("x y", "1")], M::InvalidName),
            (&[("x", "a\r\nb")], M::InvalidValue),
            (&[("x", "a\0")], M::InvalidValue),
            (&[(":status", "200")], M::UnknownPseudo),
            (&[(":other", "200")], M::UnknownPseudo),
            (&[(":method", "GET")], M::DuplicatePseudo),
            (&[("x", "1"), (":protocol", "websocket")], M::LatePseudo),
            (&[(":protocol", "websocket")], M::PseudoOfMethod),
            (&[("connection", "close")], M::ConnectionHeader),
            (&[("transfer-encoding", "chunked")], M::ConnectionHeader),
            (&[("upgrade", "websocket")], M::ConnectionHeader),
            (&[("te", "gzip")], M::ConnectionHeader),
        ] {
            assert_eq!(with(more), SectionError::Field(expected), "{more:?}");
        }
        assert!(decoded(&[&GET[..], &[("te", "trailers")]].concat()).is_ok());
        for missing in 0..3 {
            let mut fields = GET.to_vec();
            fields.remove(missing);
            assert_eq!(decoded(&fields).unwrap_err(), SectionError::Field(M::PseudoOfMethod), "{missing}");
        }
        for (at, value) in [(2, ""), (2, "x"), (2, "/a#b"), (2, "*"), (0, "G T"), (3, "a b"), (1, "")] {
            let mut fields = GET.to_vec();
            fields[at].1 = value;
            assert_eq!(decoded(&fields).unwrap_err(), SectionError::Field(M::InvalidPseudo), "{value:?}");
        }
    }

    #[test]
    fn connect_has_only_a_host_unless_it_names_a_protocol() {
        let connect = [(":method", "CONNECT"), (":authority", "db.example:5432")];
        assert_eq!(decoded(&connect).unwrap().uri(), "db.example:5432");
        let with_path = [&connect[..], &[(":path", "/")]].concat();
        assert_eq!(decoded(&with_path).unwrap_err(), SectionError::Field(Malformed::PseudoOfMethod));
        let extended = [&with_path[..], &[(":scheme", "https"), (":protocol", "websocket")]].concat();
        let request = decoded(&extended).unwrap();
        assert_eq!(request.extensions().get(), Some(&Protocol("websocket".into())));
    }

    #[test]
    fn trailers_have_no_pseudo_headers() {
        assert_eq!(decode_trailers(&section(&[("x", "1")]), 100).unwrap().len(), 1);
        let error = decode_trailers(&section(&[(":path", "/")]), 100).unwrap_err();
        assert_eq!(error, SectionError::Field(Malformed::PseudoInTrailers));
    }

    #[test]
    fn response_has_no_headers_about_the_connection() {
        let mut response = Response::new(());
        response.headers_mut().insert("connection", HeaderValue::from_static("close"));
        response.headers_mut().insert("x", HeaderValue::from_static("1"));
        let mut section = Vec::new();
        encode_response(&response, &mut section);
        let mut fields = Vec::new();
        qpack::decode(&section, 1000, |name, value| {
            fields.push((name.to_vec(), value.to_vec()));
            Ok::<_, ()>(())
        })
        .unwrap();
        assert_eq!(fields, [(b":status".to_vec(), b"200".to_vec()), (b"x".to_vec(), b"1".to_vec())]);
    }
}
