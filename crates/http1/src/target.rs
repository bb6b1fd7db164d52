//! The four forms of a request target.

use memchr::{memchr, memchr2, memchr3};

use crate::authority::Authority;
use crate::method::Method;
use crate::rejection::Rejection;
use crate::span::Span;

/// The form of a request target (RFC 9112, 3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TargetForm {
    /// `/path?query`.
    #[default]
    Origin,
    /// `http://host/path?query`, as clients send it to proxies.
    Absolute,
    /// `host:port`, only with CONNECT.
    Authority,
    /// `*`, only with OPTIONS.
    Asterisk,
}

/// A request target in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'b> {
    pub(crate) form: TargetForm,
    pub(crate) path: Span,
    pub(crate) query: Option<Span>,
    pub(crate) authority: Option<TargetAuthority<'b>>,
}

/// The authority in a target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetAuthority<'b> {
    pub(crate) span: Span,
    pub(crate) parsed: Authority<'b>,
    /// The default port of the scheme.
    pub(crate) default_port: Option<u16>,
}

impl<'b> Target<'b> {
    /// Parses the target at `span` of `buf`, which contains no space and no control.
    #[inline]
    pub(crate) fn parse(buf: &'b [u8], span: Span, method: Method) -> Result<Self, Rejection> {
        let target = span.of(buf);
        match target {
            _ if method == Method::Connect => Self::authority(target, span),
            [b'/', ..] => {
                let (path, query) = split_query(buf, span.start as usize, span)?;
                Ok(Self { form: TargetForm::Origin, path, query, authority: None })
            }
            b"*" if method == Method::Options => {
                Ok(Self { form: TargetForm::Asterisk, path: span, query: None, authority: None })
            }
            b"*" => Err(Rejection::TargetFormOfOtherMethod),
            _ => Self::absolute(buf, span),
        }
    }

    /// `host:port`, both required (RFC 9112, 3.2.3).
    fn authority(target: &'b [u8], span: Span) -> Result<Self, Rejection> {
        if matches!(target, [b'/', ..] | b"*") || find(target, b"://").is_some() {
            return Err(Rejection::TargetFormOfOtherMethod);
        }
        if memchr(b'@', target).is_some() {
            return Err(Rejection::UserinfoInTarget);
        }
        let parsed = Authority::parse(target).ok_or(Rejection::InvalidTarget)?;
        if parsed.port.is_none() {
            return Err(Rejection::InvalidTarget);
        }
        let path = Span { start: span.end, end: span.end };
        let authority = Some(TargetAuthority { span, parsed, default_port: None });
        Ok(Self { form: TargetForm::Authority, path, query: None, authority })
    }

    /// `http://authority[/path][?query]` (RFC 9112, 3.2.2).
    fn absolute(buf: &'b [u8], span: Span) -> Result<Self, Rejection> {
        let target = span.of(buf);
        let Some(colon) = find(target, b"://") else {
            let looks_like_authority = Authority::parse(target).is_some_and(|parsed| parsed.port.is_some());
            return Err(if looks_like_authority {
                Rejection::TargetFormOfOtherMethod
            } else {
                Rejection::InvalidTarget
            });
        };
        let default_port = match &target[..colon] {
            scheme if scheme.eq_ignore_ascii_case(b"http") => 80,
            scheme if scheme.eq_ignore_ascii_case(b"https") => 443,
            _ => return Err(Rejection::InvalidTarget),
        };
        let start = colon + 3;
        let end = memchr3(b'/', b'?', b'#', &target[start..]).map_or(target.len(), |length| start + length);
        let authority = &target[start..end];
        if memchr(b'@', authority).is_some() {
            return Err(Rejection::UserinfoInTarget);
        }
        let parsed = Authority::parse(authority).ok_or(Rejection::InvalidTarget)?;
        let (path, query) = split_query(buf, span.start as usize + end, span)?;
        let authority =
            TargetAuthority { span: Span::within(buf, authority), parsed, default_port: Some(default_port) };
        Ok(Self { form: TargetForm::Absolute, path, query, authority: Some(authority) })
    }
}

/// Splits the path from the query between `start` and the end of `span`.
#[inline]
fn split_query(buf: &[u8], start: usize, span: Span) -> Result<(Span, Option<Span>), Rejection> {
    let end = span.end as usize;
    let Some(found) = memchr2(b'?', b'#', &buf[start..end]) else {
        return Ok((Span::new(start, end), None));
    };
    let mark = start + found;
    if memchr(b'#', &buf[mark..end]).is_some() {
        return Err(Rejection::FragmentInTarget);
    }
    Ok((Span::new(start, mark), Some(Span::new(mark + 1, end))))
}

/// The first position of `needle` in `haystack`; both are short.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
