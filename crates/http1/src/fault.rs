//! Faults in the head of a request or a response.

/// A fault in the syntax or the framing of a request head or a response head. Each kind of head converts the fault to
/// its own public error.
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
