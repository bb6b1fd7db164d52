//! Request methods.

use crate::rejection::Rejection;

/// The longest accepted method, in bytes. The longest registered method has 17.
pub(crate) const MAX_METHOD: usize = 64;

/// The methods of IANA's HTTP Method Registry without a variant of [`Method`].
const REGISTERED: &[&[u8]] = &[
    b"ACL",
    b"BASELINE-CONTROL",
    b"BIND",
    b"CHECKIN",
    b"CHECKOUT",
    b"COPY",
    b"LABEL",
    b"LINK",
    b"LOCK",
    b"MERGE",
    b"MKACTIVITY",
    b"MKCALENDAR",
    b"MKCOL",
    b"MKREDIRECTREF",
    b"MKWORKSPACE",
    b"MOVE",
    b"ORDERPATCH",
    b"PRI",
    b"PROPFIND",
    b"PROPPATCH",
    b"QUERY",
    b"REBIND",
    b"REPORT",
    b"SEARCH",
    b"UNBIND",
    b"UNCHECKOUT",
    b"UNLINK",
    b"UNLOCK",
    b"UPDATE",
    b"UPDATEREDIRECTREF",
    b"VERSION-CONTROL",
];

/// A request method (RFC 9110, 9; PATCH: RFC 5789). Methods are case-sensitive. The parser rejects a registered method
/// in another case. Frameworks convert methods to upper case, so an endpoint would read `delete` as `DELETE`, unlike
/// the gateway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`.
    Get,
    /// `HEAD`.
    Head,
    /// `POST`.
    Post,
    /// `PUT`.
    Put,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `PATCH`.
    Patch,
    /// `TRACE`.
    Trace,
    /// `CONNECT`.
    Connect,
    /// Any other method; see [`RequestHead::method_name`](crate::RequestHead::method_name).
    #[default]
    Other,
}

impl Method {
    /// The method with this name.
    #[inline]
    pub fn of(name: &[u8]) -> Self {
        match name {
            b"GET" => Self::Get,
            b"HEAD" => Self::Head,
            b"POST" => Self::Post,
            b"PUT" => Self::Put,
            b"DELETE" => Self::Delete,
            b"OPTIONS" => Self::Options,
            b"PATCH" => Self::Patch,
            b"TRACE" => Self::Trace,
            b"CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }

    /// The name; `None` for [`Other`](Self::Other).
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        Some(match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Trace => "TRACE",
            Self::Connect => "CONNECT",
            Self::Other => return None,
        })
    }

    /// The method with this name, as in [`of`](Self::of), if the name is valid for a request.
    ///
    /// # Errors
    ///
    /// [`MethodTooLong`](Rejection::MethodTooLong), and [`MethodInOtherCase`](Rejection::MethodInOtherCase) for a
    /// registered method that is not in upper case.
    #[inline]
    pub(crate) fn of_request(name: &[u8]) -> Result<Self, Rejection> {
        match Self::of(name) {
            Self::Other => check_other(name).map(|()| Self::Other),
            method => Ok(method),
        }
    }

    /// Whether a request asks for no change of state (RFC 9110, 9.2.1).
    #[inline]
    pub fn is_safe(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether two identical requests have the effect of one request (RFC 9110, 9.2.2), so that the gateway may retry
    /// after the connection breaks. Unknown methods are not idempotent.
    #[inline]
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Put | Self::Delete | Self::Options | Self::Trace)
    }
}

/// Checks a method without a variant.
#[cold]
fn check_other(name: &[u8]) -> Result<(), Rejection> {
    if name.len() > MAX_METHOD {
        return Err(Rejection::MethodTooLong);
    }
    let upper = name.to_ascii_uppercase();
    let is_registered = Method::of(&upper) != Method::Other || REGISTERED.contains(&&*upper);
    if is_registered && upper != name { Err(Rejection::MethodInOtherCase) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: [&[u8]; 9] =
        [b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE", b"CONNECT"];

    #[test]
    fn known_methods_in_lower_or_mixed_case_are_rejected() {
        for name in FAST.iter().chain(REGISTERED) {
            assert_eq!(Method::of_request(name), Ok(Method::of(name)));
            for at in (0..name.len()).filter(|at| name[*at].is_ascii_uppercase()) {
                let mut other = name.to_vec();
                other[at].make_ascii_lowercase();
                let rejected = Method::of_request(&other);
                assert_eq!(rejected, Err(Rejection::MethodInOtherCase), "{}", other.escape_ascii());
            }
        }
        let unregistered: [&[u8]; 5] = [b"PURGE", b"purge", b"gets", b"ge", b"x-get"];
        assert!(unregistered.iter().all(|name| Method::of_request(name) == Ok(Method::Other)));
    }

    #[test]
    fn methods_longer_than_the_limit_are_rejected() {
        assert_eq!(Method::of_request(&[b'A'; MAX_METHOD]), Ok(Method::Other));
        assert_eq!(Method::of_request(&[b'A'; MAX_METHOD + 1]), Err(Rejection::MethodTooLong));
    }

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(Method::of(b"GET"), Method::Get);
        assert_eq!(Method::of(b"get"), Method::Other);
        assert_eq!(Method::of(b"PROPFIND"), Method::Other);
    }

    #[test]
    fn only_get_head_put_delete_options_and_trace_are_idempotent() {
        let idempotent: [&[u8]; 6] = [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE"];
        assert!(idempotent.iter().all(|name| Method::of(name).is_idempotent()));
        let others: [&[u8]; 5] = [b"POST", b"PATCH", b"CONNECT", b"PROPFIND", b""];
        assert!(!others.iter().any(|name| Method::of(name).is_idempotent()));
    }
}
