//! First messages of TLS clients, valid and invalid.

use rustls::ClientConnection;
use sluicegate_testkit::tls::Authority;

/// The header of a handshake record (RFC 8446, 5.1), without the length.
const RECORD: [u8; 3] = [22, 3, 1];
const RECORD_HEADER: usize = 5;

/// A valid `ClientHello`.
pub(crate) fn whole() -> Vec<u8> {
    let config = Authority::of_process().client().config();
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(config, name).expect("a client");
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).expect("writing to a Vec");
    hello
}

/// A single `ClientHello` of 64 KiB, in records of the largest size.
pub(crate) fn huge() -> Vec<u8> {
    let mut message = vec![1, 0, 0xff, 0xfc, 3, 3];
    message.resize(0x1_0000, 0);
    message.chunks(0x4000).flat_map(record).collect()
}

/// The valid `ClientHello`, in records of one byte.
pub(crate) fn in_bytes() -> Vec<u8> {
    whole()[RECORD_HEADER..].chunks(1).flat_map(record).collect()
}

fn record(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&RECORD[..], &length, content].concat()
}
