//! What can be wrong with a head of either kind.

/// What is wrong with the syntax or the framing of a head, be it a request's or a response's. Each kind of head
/// turns it into its own public error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    EmptyLines,
    NotHttp,
    MethodTooLong,
    BareLf,
    BareCr,
    ObsoleteFold,
    SpaceBeforeColon,
    InvalidName,
    InvalidValue,
    TooManyConnectionOptions,
    InvalidLength,
    DuplicateLength,
    LengthAndTransferEncoding,
    InvalidTransferEncoding,
    UnsupportedTransferEncoding,
    TransferEncodingInHttp10,
}
