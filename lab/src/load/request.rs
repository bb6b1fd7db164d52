//! The requests, written once; only their ids change, and a path and a header with given values.

use std::sync::Arc;

use super::target::Target;

/// Carries the id of a request; a backend with verification repeats it in the response.
pub(crate) const ID_HEADER: &str = "x-lab-id";
/// The header in which a backend may declare the length of the body that it sent, even if the body changes on the way.
pub(crate) const LENGTH_HEADER: &str = "x-lab-length";

/// The id of a request: the run's number and the request's, in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Id([u8; Self::LEN]);

impl Id {
    const LEN: usize = 25;

    pub(crate) fn new(run: u32, request: u64) -> Self {
        let mut id = [b'-'; Self::LEN];
        write_hex(&mut id[..8], u64::from(run));
        write_hex(&mut id[9..], request);
        Self(id)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn write_hex(out: &mut [u8], number: u64) {
    let mut rest = number;
    for digit in out.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(rest & 15) as usize];
        rest >>= 4;
    }
}

/// The body of a POST: a short body is enough.
pub(crate) const BODY: &[u8; 64] = b"This request must not be delivered twice: it could be an order.\n";

/// The requests of a load that are POSTs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Posts {
    /// The percentage: 0 to 100.
    pub(crate) percent: u64,
}

impl Posts {
    /// Whether the request with this number is a POST. POSTs are spread evenly, and are the same in each run.
    pub(crate) fn contain(self, number: u64) -> bool {
        // The fractional parts of the multiples of the golden ratio are spread evenly. Every fifth request would be
        // even too, but all of them would be on one of five connections.
        let place = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (u128::from(place) * 100) >> 64 < u128::from(self.percent)
    }
}

/// The method of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    Get,
    /// A request that must not be repeated, because it may have been delivered (RFC 9110, 9.2.2).
    Post,
}

/// The bytes of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// The place of the id.
    id: usize,
    /// The body, if it is not part of the bytes.
    body: &'static [u8],
    /// The places of the path and the header that differ in each request, with all their values.
    varied: Vec<(usize, Values)>,
}

/// Values of a path or a header, of one length; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values(Arc<[Box<str>]>);

impl Values {
    /// The lines of a text, or the error in them.
    pub(crate) fn of(text: &str) -> Result<Self, String> {
        let lines: Arc<[Box<str>]> = text.lines().map(Into::into).collect();
        let length = lines.first().ok_or("it has no line")?.len();
        if let Some(at) = lines.iter().position(|line| line.len() != length) {
            return Err(format!("line {} is not as long as the first, {length} bytes", at + 1));
        }
        if lines.iter().any(|line| line.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t')) {
            return Err("a line has a control character".to_owned());
        }
        Ok(Self(lines))
    }

    /// The value for this request.
    fn get(&self, number: u64) -> &str {
        // The values fit into memory, so their number does.
        &self.0[(number % self.0.len() as u64) as usize]
    }
}

impl Request {
    /// A request of these bytes, with the id at this place.
    pub(crate) fn from_parts(bytes: Vec<u8>, id: usize, body: &'static [u8]) -> Self {
        Self { bytes, id, body, varied: Vec::new() }
    }

    /// A request with these additional header lines, and a POST with this body. Host replaces the URL's host.
    pub(crate) fn new(method: Method, target: &Target, headers: &[(String, String)], body: &[u8]) -> Self {
        let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let (name, body) = match method {
            Method::Get => ("GET", None),
            Method::Post => ("POST", Some(body)),
        };
        let mut text = format!("{name} {} HTTP/1.1\r\n", target.path);
        if !own {
            text += &format!("Host: {}\r\n", target.authority);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        if let Some(body) = body {
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text += &format!("{ID_HEADER}: ");
        let id = text.len();
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(Id::new(0, 0).as_bytes());
        bytes.extend_from_slice(b"\r\n\r\n");
        bytes.extend_from_slice(body.unwrap_or_default());
        Self { bytes, id, body: b"", varied: Vec::new() }
    }

    /// Adds a header. Each request has the next value of this header.
    pub(crate) fn with_values(mut self, name: &str, values: &Values) -> Self {
        let line = format!("{name}: {}\r\n{ID_HEADER}: ", values.get(0));
        let start = self.id - format!("{ID_HEADER}: ").len();
        self.bytes.splice(start..self.id, line.bytes());
        self.id = start + line.len();
        self.varied.push((start + name.len() + 2, values.clone()));
        self
    }

    /// Replaces the path. Each request has the next of these paths. Before [`Self::with_values`], whose place it moves.
    pub(crate) fn with_paths(mut self, path: &str, values: &Values) -> Self {
        let start = self.bytes.iter().position(|byte| *byte == b' ').map_or(0, |space| space + 1);
        let first = values.get(0);
        self.bytes.splice(start..start + path.len(), first.bytes());
        self.id = self.id - path.len() + first.len();
        self.varied.push((start, values.clone()));
        self
    }

    /// Sets the value for the request with this number.
    pub(crate) fn vary(&mut self, number: u64) {
        for (start, values) in &self.varied {
            let value = values.get(number).as_bytes();
            self.bytes[*start..start + value.len()].copy_from_slice(value);
        }
    }

    /// The data to send after the bytes, as soon as the server has room for it.
    pub(crate) fn body(&self) -> &'static [u8] {
        self.body
    }

    /// The bytes with this id.
    pub(crate) fn with_id(&mut self, id: Id) -> &[u8] {
        self.bytes[self.id..self.id + Id::LEN].copy_from_slice(id.as_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_contains_host_configured_headers_and_id() {
        let target: Target = "http://example.com:81/a?b".parse().unwrap();
        let mut request =
            Request::new(Method::Get, &target, &[("Accept".to_owned(), "*/*".to_owned())], BODY);
        let text = String::from_utf8(request.with_id(Id::new(0xab, 0x1f)).to_vec()).unwrap();
        assert_eq!(
            text,
            "GET /a?b HTTP/1.1\r\nHost: example.com:81\r\nAccept: */*\r\n\
             x-lab-id: 000000ab-000000000000001f\r\n\r\n"
        );
        let mut request =
            Request::new(Method::Get, &target, &[("host".to_owned(), "other".to_owned())], BODY);
        let text = String::from_utf8(request.with_id(Id::new(0, 0)).to_vec()).unwrap();
        assert!(text.starts_with("GET /a?b HTTP/1.1\r\nhost: other\r\nx-lab-id: "), "{text}");
    }

    #[test]
    fn post_contains_a_body_and_its_content_length() {
        let target: Target = "http://example.com/a".parse().unwrap();
        let mut request = Request::new(Method::Post, &target, &[], BODY);
        let text = String::from_utf8(request.with_id(Id::new(1, 2)).to_vec()).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head,
            "POST /a HTTP/1.1\r\nHost: example.com\r\nContent-Length: 64\r\nx-lab-id: 00000001-0000000000000002"
        );
        assert_eq!(body.as_bytes(), BODY);
    }

    #[test]
    fn requests_use_the_values_of_a_header_in_turn() {
        let target: Target = "http://example.com/a".parse().unwrap();
        let values = Values::of("one\ntwo\n").unwrap();
        let mut request = Request::new(Method::Post, &target, &[], BODY).with_values("X-Key", &values);
        let mut texts = [0, 1, 2].map(|number| {
            request.vary(number);
            String::from_utf8(request.with_id(Id::new(0, number)).to_vec()).unwrap()
        });
        for (text, value) in texts.iter().zip(["one", "two", "one"]) {
            assert!(text.contains(&format!("\r\nX-Key: {value}\r\nx-lab-id: 00000000-")), "{text}");
            assert!(text.ends_with(std::str::from_utf8(BODY).unwrap()), "{text}");
        }
        // The requests differ only in their ids.
        texts[0].truncate(texts[0].find("x-lab-id").unwrap());
        assert!(texts[2].starts_with(&texts[0]));
        for (text, problem) in [("", "no line"), ("a\nbc", "line 2"), ("a\tb\n\u{1}cd", "control")] {
            assert!(Values::of(text).unwrap_err().contains(problem), "{text:?}");
        }
    }

    #[test]
    fn requests_use_paths_and_values_in_turn() {
        let target: Target = "http://example.com/long/path?a".parse().unwrap();
        let (paths, values) = (Values::of("/1\n/2\n").unwrap(), Values::of("one\ntwo\nsix\n").unwrap());
        let request = Request::new(Method::Get, &target, &[], BODY).with_paths(&target.path, &paths);
        let mut request = request.with_values("X-Key", &values);
        for (number, path, value) in [(0, "/1", "one"), (1, "/2", "two"), (2, "/1", "six"), (3, "/2", "one")]
        {
            request.vary(number);
            let text = String::from_utf8(request.with_id(Id::new(0, number)).to_vec()).unwrap();
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: example.com\r\nX-Key: {value}\r\nx-lab-id: 00000000-");
            assert!(text.starts_with(&head) && text.ends_with("\r\n\r\n"), "{text}");
        }
    }

    #[test]
    fn posts_are_spread_evenly_over_time_and_connections() {
        let count = |percent, numbers: &mut dyn Iterator<Item = u64>| {
            numbers.filter(|number| Posts { percent }.contain(*number)).count() as u64
        };
        for percent in 0..=100 {
            for hundred in 0..20 {
                let posts = count(percent, &mut (100 * hundred..100 * (hundred + 1)));
                assert!(posts.abs_diff(percent) <= 2, "{posts} of 100 instead of {percent}");
            }
            for connections in 1..=20 {
                for connection in 0..connections {
                    let posts = count(percent, &mut (connection..).step_by(connections as usize).take(1000));
                    assert!(posts.abs_diff(10 * percent) <= 15, "{posts} of 1000 instead of {percent} %");
                }
            }
        }
        assert_eq!((count(0, &mut (0..100_000)), count(100, &mut (0..100_000))), (0, 100_000));
    }
}
