//! The places of credentials in requests.

use std::borrow::Cow;

use sluicegate_http1::{Known, Line, RequestHead};
use sluicegate_model::feature::Credential;

use crate::feature::edit::Edits;
use crate::name::is_same_name;
use crate::query::{decoded, pairs, split};
use crate::request::HeadView;

/// Why a credential is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ambiguous;

/// A place of a credential in a request.
#[derive(Debug)]
pub(crate) struct Place {
    source: Credential,
    /// The header name, if it is a known name.
    known: Known,
}

impl Place {
    pub(crate) fn new(source: &Credential) -> Self {
        let known = match source {
            Credential::Header { name, .. } => Known::of(name.as_bytes()),
            Credential::Query(_) => Known::Other,
            Credential::Cookie(_) => Known::Cookie,
        };
        Self { source: source.clone(), known }
    }

    /// Whether the place is the header `Authorization`.
    pub(super) fn is_authorization(&self) -> bool {
        self.known == Known::Authorization
    }

    pub(crate) fn source(&self) -> &Credential {
        &self.source
    }

    /// The query parameter of this place, if any.
    pub(in crate::feature) fn parameter(&self) -> Option<&str> {
        match &self.source {
            Credential::Query(name) => Some(name),
            Credential::Header { .. } | Credential::Cookie(_) => None,
        }
    }

    /// The credential at this place. Two credentials are an error: the endpoint may use the other credential.
    pub(crate) fn find<'b>(
        &self,
        head: &RequestHead,
        buf: &'b [u8],
    ) -> Result<Option<Cow<'b, [u8]>>, Ambiguous> {
        match &self.source {
            Credential::Header { name, prefix } => {
                let mut values = head
                    .lines
                    .iter()
                    .filter(|line| self.is_line(line, name, buf))
                    .map(|line| line.value.of(buf));
                let Some(value) = values.next() else { return Ok(None) };
                if values.next().is_some() {
                    return Err(Ambiguous);
                }
                Ok(behind(prefix.as_bytes(), value).map(Cow::Borrowed))
            }
            Credential::Query(name) => {
                let query = head.query.map_or(&[][..], |query| query.of(buf));
                let mut values = pairs(query, b'&').filter(|(found, _)| *decoded(found) == *name.as_bytes());
                let value = values.next().map(|(_, value)| decoded(value));
                if values.next().is_some() {
                    Err(Ambiguous)
                } else {
                    Ok(value.filter(|value| !value.is_empty()))
                }
            }
            Credential::Cookie(name) => {
                let lines = head.lines.iter().filter(|line| line.known == Known::Cookie);
                let mut values = lines
                    .flat_map(|line| pairs(line.value.of(buf), b';'))
                    .filter(|(found, _)| *found == name.as_bytes());
                let value = values.next().map(|(_, value)| Cow::Borrowed(unquoted(value)));
                if values.next().is_some() {
                    Err(Ambiguous)
                } else {
                    Ok(value.filter(|value| !value.is_empty()))
                }
            }
        }
    }

    /// Removes the credential from the forwarded request: removes header lines, and puts the rest of changed lines into
    /// `remainder`.
    pub(crate) fn strip(&self, request: HeadView<'_>, edits: &mut Edits, remainder: &mut Remainder) {
        let HeadView { head, buf } = request;
        match &self.source {
            Credential::Header { name, prefix } => {
                for (index, line) in head.lines.iter().enumerate() {
                    if line_has_name(line, self.known, name, buf)
                        && behind(prefix.as_bytes(), line.value.of(buf)).is_some()
                    {
                        edits.remove(index);
                    }
                }
            }
            Credential::Query(name) => {
                let query = match (&remainder.query, head.query) {
                    (Some(query), _) => query.clone(),
                    (None, Some(query)) => query.of(buf).to_vec(),
                    (None, None) => return,
                };
                let is_other = |part: &&[u8]| *decoded(split(part).0) != *name.as_bytes();
                let parts: Vec<&[u8]> = query.split(|byte| *byte == b'&').filter(is_other).collect();
                remainder.query = Some(parts.join(&b'&'));
            }
            Credential::Cookie(name) => {
                strip_cookies(request, edits, remainder, |found| found == name.as_bytes());
            }
        }
    }

    fn is_line(&self, line: &Line, name: &str, buf: &[u8]) -> bool {
        is_line(line, self.known, name, buf)
    }
}

/// The remaining parts of a request from which the gateway removed credentials.
#[derive(Debug, Default)]
pub(crate) struct Remainder {
    /// The query, if it differs from the client's query.
    pub(crate) query: Option<Vec<u8>>,
    /// The values of `Cookie` lines that replace the marked lines.
    cookies: Vec<Vec<u8>>,
}

impl Remainder {
    /// Writes the header lines that replace the marked lines.
    pub(crate) fn write_lines(&self, out: &mut Vec<u8>) {
        for value in self.cookies.iter().filter(|value| !value.is_empty()) {
            for part in [b"Cookie: ", &value[..], b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// Removes the cookies with some names from the forwarded request, and puts the rest of changed lines into `remainder`.
pub(super) fn strip_cookies(
    HeadView { head, buf }: HeadView<'_>,
    edits: &mut Edits,
    remainder: &mut Remainder,
    is_removed: impl Fn(&[u8]) -> bool,
) {
    // Earlier places may have shortened a line already.
    for cookies in &mut remainder.cookies {
        if let Some(rest) = without_cookies(cookies, &is_removed) {
            *cookies = rest;
        }
    }
    for (index, line) in head.lines.iter().enumerate() {
        let is_forwarded = !line.hop_by_hop && !edits.removed_lines.contains(&index);
        if line.known == Known::Cookie
            && is_forwarded
            && let Some(rest) = without_cookies(line.value.of(buf), &is_removed)
        {
            edits.remove(index);
            remainder.cookies.push(rest);
        }
    }
}

/// The value of a `Cookie` line without the cookies with some names; `None` if the line has none of them.
fn without_cookies(value: &[u8], is_removed: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
    let is_other = |part: &&[u8]| !is_removed(split(part).0.trim_ascii());
    let parts: Vec<&[u8]> = value.split(|byte| *byte == b';').filter(is_other).collect();
    let is_less = parts.len() < value.split(|byte| *byte == b';').count();
    is_less.then(|| parts.join(&b';').trim_ascii().to_vec())
}

/// Whether a line has this header name, in any spelling that CGI maps to the same name.
pub(crate) fn line_has_name(line: &Line, known: Known, name: &str, buf: &[u8]) -> bool {
    is_line(line, known, name, buf) || is_same_name(line.name.of(buf), name.as_bytes())
}

/// Whether a line has this header name.
pub(crate) fn is_line(line: &Line, known: Known, name: &str, buf: &[u8]) -> bool {
    match known {
        Known::Other => line.known == Known::Other && is_equal(line.name.of(buf), name.as_bytes()),
        known => line.known == known,
    }
}

/// Whether two header names are equal, in any case. Names of a request often have one length and one beginning, such as
/// `x-user-`, so the last bytes are compared first.
fn is_equal(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.last().map(u8::to_ascii_lowercase) == other.last().map(u8::to_ascii_lowercase)
        && one.eq_ignore_ascii_case(other)
}

/// The text behind a prefix in any case; `None` if that text is empty.
fn behind<'b>(prefix: &[u8], value: &'b [u8]) -> Option<&'b [u8]> {
    let start = value.get(..prefix.len())?;
    let rest = value[prefix.len()..].trim_ascii();
    (start.eq_ignore_ascii_case(prefix) && !rest.is_empty()).then_some(rest)
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use sluicegate_http1::{HeadLimits, HeadScan};
    use sluicegate_model::value::{CookieName, CredentialPrefix, HeaderName, ParameterName};

    use super::*;

    fn head(target: &str, lines: &[&str]) -> (RequestHead, Vec<u8>) {
        let text = format!(
            "GET {target} HTTP/1.1\r\nHost: a\r\n{}\r\n",
            lines.iter().map(|line| format!("{line}\r\n")).collect::<String>()
        );
        let mut head = RequestHead::default();
        assert!(head.parse(text.as_bytes(), &mut HeadScan::default(), &HeadLimits::default()).unwrap());
        (head, text.into_bytes())
    }

    fn find(place: &Credential, target: &str, lines: &[&str]) -> Result<Option<String>, Ambiguous> {
        let (head, buf) = head(target, lines);
        let found = Place::new(place).find(&head, &buf)?;
        Ok(found.map(|found| String::from_utf8_lossy(&found).into_owned()))
    }

    fn bearer() -> Credential {
        Credential::Header { name: HeaderName::of("authorization"), prefix: CredentialPrefix::of("Bearer ") }
    }

    #[test]
    fn gateway_finds_credentials_in_header_query_and_cookie() {
        let some = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(find(&bearer(), "/", &["Authorization: bearer  abc"]), some("abc"));
        assert_eq!(find(&bearer(), "/", &["Authorization: Basic abc"]), Ok(None));
        assert_eq!(find(&bearer(), "/", &["Authorization: Bearer"]), Ok(None));
        let key = Credential::header(HeaderName::of("x-api-key"));
        assert_eq!(find(&key, "/", &["X-API-Key: abc"]), some("abc"));
        assert_eq!(find(&key, "/", &["X-API-Key:"]), Ok(None));
        let query = Credential::Query(ParameterName::of("api key"));
        assert_eq!(find(&query, "/?a=b&api%20key=%61b+c", &[]), some("ab c"));
        assert_eq!(find(&query, "/", &[]), Ok(None));
        let cookie = Credential::Cookie(CookieName::of("token"));
        assert_eq!(find(&cookie, "/", &["Cookie: a=b; token=\"abc\"; c"]), some("abc"));
        assert_eq!(find(&cookie, "/", &["Cookie: xtoken=1"]), Ok(None));
    }

    #[test]
    fn request_with_two_credentials_of_the_same_kind_is_ambiguous() {
        let two = ["Authorization: Bearer a", "Authorization: Bearer a"];
        assert_eq!(find(&bearer(), "/", &two), Err(Ambiguous));
        assert_eq!(
            find(&bearer(), "/", &["Authorization: Basic x", "Authorization: Bearer a"]),
            Err(Ambiguous)
        );
        assert_eq!(find(&Credential::Query(ParameterName::of("k")), "/?k=a&%6b=b", &[]), Err(Ambiguous));
        assert_eq!(
            find(&Credential::Cookie(CookieName::of("k")), "/", &["Cookie: k=a", "Cookie: k=b"]),
            Err(Ambiguous)
        );
    }

    #[test]
    fn stripping_credentials_leaves_other_parameters_and_cookies_unchanged() {
        let (head, buf) = head("/?a=1&k=2&b", &["Cookie: a=1; k=2; b=3", "X-K: 1", "Cookie: c=4"]);
        let (mut edits, mut remainder) = (Edits::default(), Remainder::default());
        let places = [
            Credential::Query(ParameterName::of("k")),
            Credential::Cookie(CookieName::of("k")),
            Credential::Cookie(CookieName::of("b")),
            Credential::header(HeaderName::of("x-k")),
        ];
        for place in &places {
            Place::new(place).strip(HeadView { head: &head, buf: &buf }, &mut edits, &mut remainder);
        }
        assert_eq!(remainder.query.as_deref(), Some(&b"a=1&b"[..]));
        let mut lines = Vec::new();
        remainder.write_lines(&mut lines);
        assert_eq!(String::from_utf8_lossy(&lines), "Cookie: a=1\r\n");
        let gone: Vec<_> =
            edits.removed_lines.iter().map(|index| head.lines[*index].value.of(&buf)).collect();
        assert_eq!(gone, [&b"a=1; k=2; b=3"[..], b"1"]);
    }
}
