//! The reasons to reject a request.

use thiserror::Error;

use crate::fault::Fault;

/// The reason why a request is rejected.
///
/// The gateway rejects requests that parsers are known to interpret differently, because request smuggling exploits
/// differences between a gateway and its endpoints.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// A TLS record arrived on a port without TLS.
    #[error("a TLS record on a port that speaks clear text")]
    TlsRecord,
    /// More empty lines before the request than the parser tolerates (RFC 9112, 2.2).
    #[error("too many empty lines before the request line")]
    EmptyLines,
    /// The method is not a token (RFC 9110, 9.1).
    #[error("the method is not a token")]
    InvalidMethod,
    /// A method of IANA's registry in another case (RFC 9110, 9.1: methods are case-sensitive). Endpoints that
    /// upper-case methods would read another method than the gateway.
    #[error("the method is a registered one in another case")]
    MethodInOtherCase,
    /// The method is longer than 64 bytes (RFC 9112, 3).
    #[error("the method is longer than 64 bytes")]
    MethodTooLong,
    /// Not `method SP request-target SP HTTP-version CRLF` with single spaces (RFC 9112, 3).
    #[error("the request line is not a method, a target and a version with single spaces between them")]
    InvalidRequestLine,
    /// The request-target has none of the four forms, or bytes that no form allows (RFC 9112, 3.2).
    #[error("the request target is not valid")]
    InvalidTarget,
    /// The request-target has bytes above 0x7F, which clients have to percent-encode (RFC 3986, 2.1).
    #[error("the request target has bytes that are not ASCII")]
    NonAsciiTarget,
    /// The request-target contains `#`: fragments are never sent (RFC 9110, 4.2.5).
    #[error("the request target has a fragment")]
    FragmentInTarget,
    /// Authority-form without CONNECT, asterisk-form without OPTIONS, or CONNECT without authority-form
    /// (RFC 9112, 3.2.3 and 3.2.4).
    #[error("the form of the request target does not go with the method")]
    TargetFormOfOtherMethod,
    /// `user@` before the host: RFC 9110, 4.2.4.
    #[error("the request target has user information")]
    UserinfoInTarget,
    /// A version other than HTTP/1.0 and HTTP/1.1, among them the HTTP/2 preface.
    #[error("the HTTP version is neither 1.0 nor 1.1")]
    UnsupportedVersion,
    /// A line that ends in LF without CR.
    #[error("a line ends without a carriage return")]
    BareLf,
    /// A CR without an LF after it (RFC 9112, 2.2).
    #[error("a carriage return inside a line")]
    BareCr,
    /// A header line that begins with whitespace (RFC 9112, 5.2).
    #[error("a folded header line")]
    ObsoleteFold,
    /// Whitespace between a header's name and its colon (RFC 9112, 5.1).
    #[error("whitespace before the colon of a header line")]
    SpaceBeforeColon,
    /// A header line whose name is not a token (RFC 9110, 5.1), or without a colon.
    #[error("an invalid header name")]
    InvalidHeaderName,
    /// NUL or another control in a header's value (RFC 9110, 5.5).
    #[error("an invalid byte in a header value")]
    InvalidHeaderValue,
    /// A header's value in HTTP/2 begins or ends with a space or a tab (RFC 9113, 8.2.1).
    #[error("a space or a tab around a header value of HTTP/2")]
    SpaceAroundValue,
    /// A `:scheme` other than `http` and `https` (RFC 9113, 8.3.1).
    #[error("the :scheme is neither http nor https")]
    InvalidScheme,
    /// HTTP/1.1 without Host (RFC 9112, 3.2).
    #[error("no Host header")]
    MissingHost,
    /// More than one Host line (RFC 9112, 3.2).
    #[error("more than one Host header")]
    DuplicateHost,
    /// A Host that is empty (RFC 9110, 4.2.1), or not `uri-host [":" port]` (RFC 9110, 7.2).
    #[error("the Host header is empty, or not a host with an optional port")]
    InvalidHost,
    /// An absolute-form target or a CONNECT names another authority than Host. RFC 9112, 3.2.2 ignores Host in this
    /// case, but an endpoint may use Host.
    #[error("the Host header and the request target name different hosts")]
    HostMismatch,
    /// A Content-Length of a tunnel, which has no content length (RFC 9110, 9.3.6; RFC 8441, 5).
    #[error("a Content-Length where what follows is a tunnel")]
    LengthOfTunnel,
    /// A `:protocol` (RFC 8441, 4) that is not a token, or that the gateway does not forward.
    #[error("the :protocol of a CONNECT is not one that is passed on")]
    UnknownTunnel,
    /// Content-Length is not a plain decimal number below 2^63.
    #[error("the Content-Length is not a plain decimal number")]
    InvalidLength,
    /// More than one Content-Length line, even if equal (RFC 9110, 8.6 leaves the choice).
    #[error("more than one Content-Length header")]
    DuplicateLength,
    /// Both Content-Length and Transfer-Encoding (RFC 9112, 6.1).
    #[error("both Content-Length and Transfer-Encoding")]
    LengthAndTransferEncoding,
    /// Transfer-Encoding is malformed, or `chunked` is repeated or not the last coding (RFC 9112, 6.1).
    #[error("the Transfer-Encoding is malformed or does not end in one chunked")]
    InvalidTransferEncoding,
    /// A transfer coding other than `chunked` (RFC 9112, 6.1).
    #[error("a transfer coding other than chunked")]
    UnsupportedTransferEncoding,
    /// Transfer-Encoding in HTTP/1.0, whose framing is then unknown (RFC 9112, 6.1).
    #[error("Transfer-Encoding in an HTTP/1.0 request")]
    TransferEncodingInHttp10,
    /// More than 64 connection options. The limit bounds the work: the parser compares each option with each header
    /// line.
    #[error("too many options in the Connection header")]
    TooManyConnectionOptions,
    /// An expectation other than `100-continue` (RFC 9110, 10.1.1).
    #[error("an expectation other than 100-continue")]
    UnsupportedExpectation,
    /// The request line alone exceeds the size limit of a head.
    #[error("the request line is longer than a head may be")]
    RequestLineTooLong,
    /// The head exceeds the size limit.
    #[error("the head is longer than allowed")]
    HeadTooLarge,
    /// More header lines than the limit.
    #[error("more header lines than allowed")]
    TooManyHeaders,
    /// A `%` in the path without two hexadecimal digits after it (RFC 3986, 2.1).
    #[error("a percent sign in the path without two hexadecimal digits")]
    InvalidEscape,
    /// NUL in the path, also as `%00`: endpoints in C end the path at the NUL.
    #[error("NUL in the path")]
    NulInPath,
    /// `..` segments that resolve to a path above the root.
    #[error("the path leads above the root")]
    PathAboveRoot,
    /// A `.` or `..` segment that appears when an endpoint decodes the path or drops parameters of segments.
    #[error("the path has a dot segment behind an escape or a parameter")]
    EncodedDotSegment,
}

impl Rejection {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: &[Self] = &[
        Self::TlsRecord,
        Self::EmptyLines,
        Self::InvalidMethod,
        Self::MethodInOtherCase,
        Self::MethodTooLong,
        Self::InvalidRequestLine,
        Self::InvalidTarget,
        Self::NonAsciiTarget,
        Self::FragmentInTarget,
        Self::TargetFormOfOtherMethod,
        Self::UserinfoInTarget,
        Self::UnsupportedVersion,
        Self::BareLf,
        Self::BareCr,
        Self::ObsoleteFold,
        Self::SpaceBeforeColon,
        Self::InvalidHeaderName,
        Self::InvalidHeaderValue,
        Self::SpaceAroundValue,
        Self::InvalidScheme,
        Self::MissingHost,
        Self::DuplicateHost,
        Self::InvalidHost,
        Self::HostMismatch,
        Self::LengthOfTunnel,
        Self::UnknownTunnel,
        Self::InvalidLength,
        Self::DuplicateLength,
        Self::LengthAndTransferEncoding,
        Self::InvalidTransferEncoding,
        Self::UnsupportedTransferEncoding,
        Self::TransferEncodingInHttp10,
        Self::TooManyConnectionOptions,
        Self::UnsupportedExpectation,
        Self::RequestLineTooLong,
        Self::HeadTooLarge,
        Self::TooManyHeaders,
        Self::InvalidEscape,
        Self::NulInPath,
        Self::PathAboveRoot,
        Self::EncodedDotSegment,
    ];

    /// The place of this reason in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// The status of the response. The connection cannot be reused, because the beginning of the next request is
    /// unknown.
    pub fn status(self) -> u16 {
        match self {
            Self::RequestLineTooLong => 414,
            Self::UnsupportedExpectation => 417,
            Self::HeadTooLarge | Self::TooManyHeaders => 431,
            // RFC 8441 leaves the status open; RFC 9220, 3 requires 501 for HTTP/3.
            Self::UnsupportedTransferEncoding | Self::UnknownTunnel | Self::MethodTooLong => 501,
            Self::UnsupportedVersion => 505,
            _ => 400,
        }
    }

    /// A stable label for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::TlsRecord => "tls_record",
            Self::EmptyLines => "empty_lines",
            Self::InvalidMethod => "invalid_method",
            Self::MethodInOtherCase => "method_in_other_case",
            Self::MethodTooLong => "method_too_long",
            Self::InvalidRequestLine => "invalid_request_line",
            Self::InvalidTarget => "invalid_target",
            Self::NonAsciiTarget => "non_ascii_target",
            Self::FragmentInTarget => "fragment_in_target",
            Self::TargetFormOfOtherMethod => "target_form_of_other_method",
            Self::UserinfoInTarget => "userinfo_in_target",
            Self::UnsupportedVersion => "unsupported_version",
            Self::BareLf => "bare_lf",
            Self::BareCr => "bare_cr",
            Self::ObsoleteFold => "obsolete_fold",
            Self::SpaceBeforeColon => "space_before_colon",
            Self::InvalidHeaderName => "invalid_header_name",
            Self::InvalidHeaderValue => "invalid_header_value",
            Self::SpaceAroundValue => "space_around_value",
            Self::InvalidScheme => "invalid_scheme",
            Self::MissingHost => "missing_host",
            Self::DuplicateHost => "duplicate_host",
            Self::InvalidHost => "invalid_host",
            Self::HostMismatch => "host_mismatch",
            Self::LengthOfTunnel => "length_of_tunnel",
            Self::UnknownTunnel => "unknown_tunnel",
            Self::InvalidLength => "invalid_length",
            Self::DuplicateLength => "duplicate_length",
            Self::LengthAndTransferEncoding => "length_and_transfer_encoding",
            Self::InvalidTransferEncoding => "invalid_transfer_encoding",
            Self::UnsupportedTransferEncoding => "unsupported_transfer_encoding",
            Self::TransferEncodingInHttp10 => "transfer_encoding_in_http10",
            Self::TooManyConnectionOptions => "too_many_connection_options",
            Self::UnsupportedExpectation => "unsupported_expectation",
            Self::RequestLineTooLong => "request_line_too_long",
            Self::HeadTooLarge => "head_too_large",
            Self::TooManyHeaders => "too_many_headers",
            Self::InvalidEscape => "invalid_escape",
            Self::NulInPath => "nul_in_path",
            Self::PathAboveRoot => "path_above_root",
            Self::EncodedDotSegment => "encoded_dot_segment",
        }
    }
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::EmptyLines => Self::EmptyLines,
            Fault::NotHttp => Self::InvalidMethod,
            Fault::MethodTooLong => Self::MethodTooLong,
            Fault::BareLf => Self::BareLf,
            Fault::BareCr => Self::BareCr,
            Fault::ObsoleteFold => Self::ObsoleteFold,
            Fault::SpaceBeforeColon => Self::SpaceBeforeColon,
            Fault::InvalidName => Self::InvalidHeaderName,
            Fault::InvalidValue => Self::InvalidHeaderValue,
            Fault::TooManyConnectionOptions => Self::TooManyConnectionOptions,
            Fault::InvalidLength => Self::InvalidLength,
            Fault::DuplicateLength => Self::DuplicateLength,
            Fault::LengthAndTransferEncoding => Self::LengthAndTransferEncoding,
            Fault::InvalidTransferEncoding => Self::InvalidTransferEncoding,
            Fault::UnsupportedTransferEncoding => Self::UnsupportedTransferEncoding,
            Fault::TransferEncodingInHttp10 => Self::TransferEncodingInHttp10,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn rejections_have_unique_indices_and_labels() {
        for (index, rejection) in Rejection::ALL.iter().enumerate() {
            assert_eq!(rejection.index(), index);
            assert!((400..600).contains(&rejection.status()));
        }
        assert_eq!(Rejection::ALL.len(), Rejection::EncodedDotSegment.index() + 1);
        let labels: HashSet<_> = Rejection::ALL.iter().map(|rejection| rejection.reason()).collect();
        assert_eq!(labels.len(), Rejection::ALL.len());
    }
}
