//! The request, written once; only its id changes.

use super::target::Target;

/// Carries the id of a request; a back end that helps to verify answers repeats it.
pub(crate) const ID_HEADER: &str = "x-lab-id";
/// In which a back end may say how long the body is that it sent, whatever becomes of it on its way.
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

/// The bytes of a request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    bytes: Vec<u8>,
    /// Where the id lies.
    id: usize,
}

impl Request {
    /// A GET with these further header lines, of which Host replaces its own.
    pub(crate) fn new(target: &Target, headers: &[(String, String)]) -> Self {
        let own = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
        let mut text = format!("GET {} HTTP/1.1\r\n", target.path);
        if !own {
            text += &format!("Host: {}\r\n", target.authority);
        }
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("{ID_HEADER}: ");
        let id = text.len();
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(Id::new(0, 0).as_bytes());
        bytes.extend_from_slice(b"\r\n\r\n");
        Self { bytes, id }
    }

    /// Its bytes with this id.
    pub(crate) fn with_id(&mut self, id: Id) -> &[u8] {
        self.bytes[self.id..self.id + Id::LEN].copy_from_slice(id.as_bytes());
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_its_host_its_headers_and_its_id() {
        let target: Target = "http://example.com:81/a?b".parse().unwrap();
        let mut request = Request::new(&target, &[("Accept".to_owned(), "*/*".to_owned())]);
        let text = String::from_utf8(request.with_id(Id::new(0xab, 0x1f)).to_vec()).unwrap();
        assert_eq!(
            text,
            "GET /a?b HTTP/1.1\r\nHost: example.com:81\r\nAccept: */*\r\n\
             x-lab-id: 000000ab-000000000000001f\r\n\r\n"
        );
        let mut request = Request::new(&target, &[("host".to_owned(), "other".to_owned())]);
        let text = String::from_utf8(request.with_id(Id::new(0, 0)).to_vec()).unwrap();
        assert!(text.starts_with("GET /a?b HTTP/1.1\r\nhost: other\r\nx-lab-id: "), "{text}");
    }
}
