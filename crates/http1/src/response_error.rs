//! The reasons why a response cannot be used.

use thiserror::Error;

use crate::fault::Fault;

/// The reason why an endpoint's response cannot be used. The gateway responds to the client with 502 and closes the
/// connection, because the beginning of the next response is unknown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum ResponseError {
    /// Not `HTTP-version SP status-code [SP reason-phrase] CRLF` with a status of 100 to 999 (RFC 9112, 4).
    #[error("the response does not begin with a status line")]
    InvalidStatusLine,
    /// A version other than HTTP/1.0 and HTTP/1.1.
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
    /// A transfer coding other than `chunked`, which the request did not ask for (RFC 9112, 7.4).
    #[error("a transfer coding other than chunked")]
    UnsupportedTransferEncoding,
    /// Transfer-Encoding in HTTP/1.0, whose framing is then unknown (RFC 9112, 6.1).
    #[error("Transfer-Encoding in an HTTP/1.0 response")]
    TransferEncodingInHttp10,
    /// More than 64 connection options. The limit bounds the work: the parser compares each option with each header
    /// line.
    #[error("too many options in the Connection header")]
    TooManyConnectionOptions,
    /// The head exceeds the size limit.
    #[error("the head is longer than allowed")]
    HeadTooLarge,
    /// More header lines than the limit.
    #[error("more header lines than allowed")]
    TooManyHeaders,
}

impl ResponseError {
    /// Every reason, in the order of [`index`](Self::index).
    pub const ALL: &[Self] = &[
        Self::InvalidStatusLine,
        Self::UnsupportedVersion,
        Self::BareLf,
        Self::BareCr,
        Self::ObsoleteFold,
        Self::SpaceBeforeColon,
        Self::InvalidHeaderName,
        Self::InvalidHeaderValue,
        Self::InvalidLength,
        Self::DuplicateLength,
        Self::LengthAndTransferEncoding,
        Self::InvalidTransferEncoding,
        Self::UnsupportedTransferEncoding,
        Self::TransferEncodingInHttp10,
        Self::TooManyConnectionOptions,
        Self::HeadTooLarge,
        Self::TooManyHeaders,
    ];

    /// The place of this reason in [`ALL`](Self::ALL).
    pub fn index(self) -> usize {
        self as usize
    }

    /// A stable label for metrics and logs.
    pub fn reason(self) -> &'static str {
        match self {
            Self::InvalidStatusLine => "invalid_status_line",
            Self::UnsupportedVersion => "unsupported_version",
            Self::BareLf => "bare_lf",
            Self::BareCr => "bare_cr",
            Self::ObsoleteFold => "obsolete_fold",
            Self::SpaceBeforeColon => "space_before_colon",
            Self::InvalidHeaderName => "invalid_header_name",
            Self::InvalidHeaderValue => "invalid_header_value",
            Self::InvalidLength => "invalid_length",
            Self::DuplicateLength => "duplicate_length",
            Self::LengthAndTransferEncoding => "length_and_transfer_encoding",
            Self::InvalidTransferEncoding => "invalid_transfer_encoding",
            Self::UnsupportedTransferEncoding => "unsupported_transfer_encoding",
            Self::TransferEncodingInHttp10 => "transfer_encoding_in_http10",
            Self::TooManyConnectionOptions => "too_many_connection_options",
            Self::HeadTooLarge => "head_too_large",
            Self::TooManyHeaders => "too_many_headers",
        }
    }
}

impl From<Fault> for ResponseError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::EmptyLines | Fault::NotHttp | Fault::MethodTooLong => Self::InvalidStatusLine,
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
    fn response_errors_have_unique_indices_and_labels() {
        for (index, error) in ResponseError::ALL.iter().enumerate() {
            assert_eq!(error.index(), index);
        }
        assert_eq!(ResponseError::ALL.len(), ResponseError::TooManyHeaders.index() + 1);
        let labels: HashSet<_> = ResponseError::ALL.iter().map(|error| error.reason()).collect();
        assert_eq!(labels.len(), ResponseError::ALL.len());
    }
}
