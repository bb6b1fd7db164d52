//! Request methods.

/// A request method (RFC 9110, 9; PATCH: RFC 5789). Methods are case-sensitive.
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
    /// Any other: [`RequestHead::method_name`](crate::RequestHead::method_name) has its name.
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

    /// Whether sending the request twice has the effect of sending it once (RFC 9110, 9.2.2), so that it may be
    /// repeated when a connection dies. Nothing is known of other methods: they are not.
    #[inline]
    pub fn is_idempotent(self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Put | Self::Delete | Self::Options | Self::Trace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_case_sensitive() {
        assert_eq!(Method::of(b"GET"), Method::Get);
        assert_eq!(Method::of(b"get"), Method::Other);
        assert_eq!(Method::of(b"PROPFIND"), Method::Other);
    }

    #[test]
    fn only_idempotent_methods_may_be_repeated() {
        let idempotent: [&[u8]; 6] = [b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS", b"TRACE"];
        assert!(idempotent.iter().all(|name| Method::of(name).is_idempotent()));
        let unsafe_to_repeat: [&[u8]; 5] = [b"POST", b"PATCH", b"CONNECT", b"PROPFIND", b""];
        assert!(!unsafe_to_repeat.iter().any(|name| Method::of(name).is_idempotent()));
    }
}
