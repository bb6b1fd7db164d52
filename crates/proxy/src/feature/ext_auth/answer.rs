//! The meaning of a service's response.

use std::time::Duration;

use sluicegate_http1::{Known, ResponseHead};

use super::External;
use super::filter::Detail;
use crate::feature::authentication::credential::is_line;
use crate::feature::edit::write_line;

/// The decision of a service about a request. The gateway uses no other part of the service's response.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) verdict: Verdict,
    /// Header lines for the endpoint.
    pub(crate) request_lines: Box<[u8]>,
    /// Header lines for the client, for either verdict: `Set-Cookie`.
    pub(crate) cookies: Box<[u8]>,
    /// Header lines for a denied client: `WWW-Authenticate`.
    pub(crate) challenges: Box<[u8]>,
    /// How long the answer may be remembered.
    pub(super) time_to_live: Duration,
    /// The other parts of an answer to a filter.
    pub(crate) detail: Option<Box<Detail>>,
}

/// Whether the request is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Admitted,
    Unauthorized,
    Forbidden,
    /// The request is denied with the service's own response, with this status. Only for filters.
    Responded(u16),
}

impl Answer {
    /// The answer to a filter.
    pub(super) fn of_filter(verdict: Verdict, detail: Detail) -> Self {
        Self {
            verdict,
            request_lines: Box::default(),
            cookies: Box::default(),
            challenges: Box::default(),
            time_to_live: Duration::ZERO,
            detail: Some(Box::new(detail)),
        }
    }

    /// `None` if the response does not decide about the request.
    pub(super) fn read(head: &ResponseHead, buf: &[u8], external: &External) -> Option<Self> {
        let verdict = match head.status {
            200..300 => Verdict::Admitted,
            401 => Verdict::Unauthorized,
            403 => Verdict::Forbidden,
            _ => return None,
        };
        let (mut request_lines, mut cookies, mut challenges) = (Vec::new(), Vec::new(), Vec::new());
        for line in head.lines.iter().filter(|line| !line.hop_by_hop) {
            let (name, value) = (line.name.of(buf), line.value.of(buf));
            if line.known == Known::SetCookie {
                write_line(&mut cookies, name, value);
            }
            if verdict == Verdict::Unauthorized && name.eq_ignore_ascii_case(b"www-authenticate") {
                write_line(&mut challenges, name, value);
            }
            let is_for_endpoint = verdict == Verdict::Admitted
                && external.response_headers.iter().any(|(known, named)| is_line(line, *known, named, buf));
            if is_for_endpoint {
                write_line(&mut request_lines, name, value);
            }
        }
        let time_to_live = time_to_live(external.time_to_live(verdict, head.status), head, buf);
        Some(Self {
            verdict,
            request_lines: request_lines.into(),
            // A `Set-Cookie` is for one client. So the gateway does not remember the answer, unlike nginx' cache.
            time_to_live: if cookies.is_empty() { time_to_live } else { Duration::ZERO },
            cookies: cookies.into(),
            challenges: challenges.into(),
            detail: None,
        })
    }

    /// Whether the answer is for one client only, even if other requests have the same key.
    pub(super) fn is_personal(&self) -> bool {
        !self.cookies.is_empty()
    }

    /// The size in bytes.
    pub(super) fn size(&self) -> usize {
        self.request_lines.len() + self.challenges.len()
    }
}

/// The time of the policy, but at most the time of the service (RFC 9111, 5.2.2).
fn time_to_live(most: Duration, head: &ResponseHead, buf: &[u8]) -> Duration {
    let mut time_to_live = most;
    let lines = head.lines.iter().filter(|line| line.known == Known::CacheControl);
    for directive in lines.flat_map(|line| line.value.of(buf).split(|byte| *byte == b',')) {
        let (name, value) = match memchr::memchr(b'=', directive) {
            Some(equals) => (&directive[..equals], &directive[equals + 1..]),
            None => (directive, &[][..]),
        };
        let name = name.trim_ascii().to_ascii_lowercase();
        match &name[..] {
            b"no-store" | b"no-cache" | b"private" => return Duration::ZERO,
            b"max-age" | b"s-maxage" => {
                let digits = value.trim_ascii();
                let digits =
                    digits.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(digits);
                // An invalid number counts as expired (RFC 9111, 4.2.1).
                let seconds = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0);
                time_to_live = time_to_live.min(Duration::from_secs(seconds));
            }
            _ => {}
        }
    }
    time_to_live
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan, Method};

    use super::*;

    fn head(lines: &[&str]) -> (ResponseHead, Vec<u8>) {
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{lines}\r\n").into_bytes();
        let mut head = ResponseHead::default();
        let limits = HeadLimits::default();
        assert!(head.parse(&text, &mut HeadScan::default(), Method::Get, &limits).unwrap());
        (head, text)
    }

    #[test]
    fn cache_control_of_the_authorization_service_shortens_the_lifetime_of_decisions() {
        for (lines, seconds) in [
            (&[][..], 60),
            (&["Cache-Control: public"], 60),
            (&["Cache-Control: max-age=5"], 5),
            (&["Cache-Control: Max-Age=\"5\" , public"], 5),
            (&["Cache-Control: max-age=3600"], 60),
            (&["Cache-Control: max-age=30, s-maxage=20"], 20),
            (&["Cache-Control: max-age=30", "Cache-Control: No-Store"], 0),
            (&["Cache-Control: private"], 0),
            (&["Cache-Control: no-cache=\"x\""], 0),
            (&["Cache-Control: max-age=-1"], 0),
            (&["Cache-Control: max-age"], 0),
            (&["Cache-Control: max-age=99999999999999999999"], 0),
        ] {
            let (head, buf) = head(lines);
            let found = time_to_live(Duration::from_secs(60), &head, &buf);
            assert_eq!(found.as_secs(), seconds, "{lines:?}");
        }
        let (head, buf) = head(&["Cache-Control: max-age=30"]);
        assert_eq!(time_to_live(Duration::from_secs(10), &head, &buf).as_secs(), 10);
    }
}
