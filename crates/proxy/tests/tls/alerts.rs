//! Alerts that state why the gateway ends a connection (RFC 8446, 6).

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_256_GCM_SHA384;
use rustls::{ClientConfig, ClientConnection, ConnectionTrafficSecrets};
use sluicegate_proxy::failure::TlsFault;
use sluicegate_testkit::client::LIMIT;
use sluicegate_testkit::gateway::Gateway;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::{TestResult, failed, get, serving, trusting};

const UNEXPECTED_MESSAGE: u8 = 10;
const RECORD_OVERFLOW: u8 = 22;
const DECODE_ERROR: u8 = 50;

/// A fatal alert in clear text.
fn fatal(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}

/// Sends these bytes, and returns all that the gateway sends back. A reset is an error.
async fn answer(gateway: &Gateway, bytes: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut client = TcpStream::connect(gateway.https_addr()).await?;
    client.write_all(bytes).await?;
    client.shutdown().await?;
    let mut answer = Vec::new();
    timeout(LIMIT, client.read_to_end(&mut answer)).await??;
    Ok(answer)
}

#[tokio::test]
async fn client_whose_first_record_is_not_a_handshake_receives_unexpected_message() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let firsts = [
        &b"\0\x01\x02\x03\x04\x05"[..],
        b"ssh-2.0\r\n",
        &[20, 3, 3, 0, 1, 1],
        &[21, 3, 3, 0, 2, 2, 40],
        &[23, 3, 3, 0, 1, 0],
        &[24, 3, 3, 0, 1, 0],
    ];
    for (count, first) in (1..).zip(firsts) {
        // The client reads the alert although it has sent more than the gateway reads.
        let bytes = [first, &[0; 100_000]].concat();
        assert_eq!(answer(&gateway, &bytes).await?, fatal(UNEXPECTED_MESSAGE), "{first:?}");
        failed(&gateway, TlsFault::NotTls, count).await?;
    }
    Ok(())
}

#[tokio::test]
async fn client_whose_first_message_is_not_a_client_hello_receives_unexpected_message() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    // Finished, and a KeyUpdate.
    for (count, message) in (1..).zip([&[20, 0, 0, 4, 1, 2, 3, 4][..], &[24, 0, 0, 1, 0]]) {
        let record = [&[22, 3, 3, 0, u8::try_from(message.len())?], message].concat();
        assert_eq!(answer(&gateway, &record).await?, fatal(UNEXPECTED_MESSAGE), "{message:?}");
        failed(&gateway, TlsFault::Protocol, count).await?;
    }
    Ok(())
}

#[tokio::test]
async fn client_that_interrupts_handshake_fragments_receives_unexpected_message() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let fragments = [22, 3, 3, 0, 5, 1, 0, 0, 9, 3, 23, 3, 3, 0, 1, 0];
    assert_eq!(answer(&gateway, &fragments).await?, fatal(UNEXPECTED_MESSAGE));
    failed(&gateway, TlsFault::Protocol, 1).await
}

#[tokio::test]
async fn client_that_sends_an_oversized_record_receives_record_overflow() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let record = [&[22, 3, 1, 0x40, 1, 1, 0, 0x3f, 0xfd, 3, 3][..], &[0; 20_000]].concat();
    assert_eq!(answer(&gateway, &record).await?, fatal(RECORD_OVERFLOW));
    // The same with a fragment ahead.
    let record = [&[22, 3, 1, 0, 1, 1][..], &record].concat();
    assert_eq!(answer(&gateway, &record).await?, fatal(RECORD_OVERFLOW));
    failed(&gateway, TlsFault::Protocol, 2).await
}

#[tokio::test]
async fn client_hello_over_the_size_limit_receives_decode_error() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    // A message of 60 kB, in records that announce the greatest length.
    let mut hello = vec![1, 0, 0xea, 0x60, 3, 3];
    hello.resize(60_004, 0);
    let mut records = Vec::new();
    for fragment in hello.chunks(1 << 14) {
        records.extend([22, 3, 1]);
        records.extend(u16::try_from(fragment.len())?.to_be_bytes());
        records.extend(fragment);
    }
    assert_eq!(answer(&gateway, &records).await?, fatal(DECODE_ERROR));
    failed(&gateway, TlsFault::HelloTooLarge, 1).await
}

/// One direction of a connection whose keys are known.
struct Direction {
    key: LessSafeKey,
    iv: [u8; 12],
    sequence: u64,
}

impl Direction {
    fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> anyhow::Result<Self> {
        let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { anyhow::bail!("another suite") };
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref())?);
        Ok(Self { key, iv: iv.as_ref().try_into()?, sequence })
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = self.iv;
        for (byte, count) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= count;
        }
        self.sequence += 1;
        Nonce::assume_unique_for_key(nonce)
    }

    /// A record with these contents, including the content type and the padding.
    fn seal(&mut self, inner: &[u8]) -> anyhow::Result<Vec<u8>> {
        let mut header = vec![23, 3, 3];
        header.extend(u16::try_from(inner.len() + 16)?.to_be_bytes());
        let (nonce, mut sealed) = (self.nonce(), inner.to_vec());
        self.key.seal_in_place_append_tag(nonce, Aad::from(&header), &mut sealed)?;
        Ok([header, sealed].concat())
    }

    /// The contents of the next record, including the content type.
    fn open(&mut self, tcp: &mut std::net::TcpStream) -> anyhow::Result<Vec<u8>> {
        let mut header = [0; 5];
        tcp.read_exact(&mut header)?;
        let mut sealed = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        tcp.read_exact(&mut sealed)?;
        let nonce = self.nonce();
        Ok(self.key.open_in_place(nonce, Aad::from(header), &mut sealed)?.to_vec())
    }
}

/// Sends a record with these contents after the handshake, or after a request. Returns the alert.
fn alert_behind(gateway: SocketAddr, inner: &[u8], asks: bool) -> anyhow::Result<Vec<u8>> {
    let options = trusting().provider(|provider| provider.cipher_suites = vec![TLS13_AES_256_GCM_SHA384]);
    let mut config = ClientConfig::clone(&options.config());
    config.enable_secret_extraction = true;
    let mut tcp = std::net::TcpStream::connect(gateway)?;
    tcp.set_read_timeout(Some(LIMIT))?;
    let mut tls = ClientConnection::new(Arc::new(config), "a.test".try_into()?)?;
    while tls.is_handshaking() || tls.wants_write() {
        tls.complete_io(&mut tcp)?;
    }
    let secrets = tls.dangerous_extract_secrets()?;
    let (mut sent, mut received) = (Direction::new(secrets.tx)?, Direction::new(secrets.rx)?);
    let mut records = Vec::new();
    if asks {
        records = sent.seal(&[get("a.test").as_bytes(), &[23]].concat())?;
    }
    records.extend(sent.seal(inner)?);
    tcp.write_all(&records)?;
    loop {
        let record = received.open(&mut tcp)?;
        // Tickets and the response precede the alert.
        if record.last() == Some(&21) {
            let mut rest = Vec::new();
            tcp.read_to_end(&mut rest)?;
            anyhow::ensure!(rest.is_empty(), "{} bytes behind the alert", rest.len());
            return Ok(record);
        }
    }
}

#[tokio::test]
async fn client_that_sends_an_inner_content_type_of_zero_receives_unexpected_message() -> TestResult {
    let (_backend, gateway) = serving(&["a.test"]).await?;
    let address = gateway.https_addr();
    for (length, asks) in [(5, false), (1, true), (5000, true)] {
        let alert = spawn_blocking(move || alert_behind(address, &vec![0; length], asks)).await??;
        assert_eq!(alert, [2, UNEXPECTED_MESSAGE, 21], "{length} bytes");
    }
    Ok(())
}
