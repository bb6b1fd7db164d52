//! A TLS connection over rustls' core without I/O. It has buffers only while bytes are in flight, and copies no bytes
//! twice.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::net::TcpStream;
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion, ServerConfig};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::buffer::{Buffer, SPARE_BUFFER, give_spare_buffer, spare_buffer};

/// The length of a record's header (RFC 8446, 5.1).
pub(crate) const RECORD_HEADER: usize = 5;
/// The limit of plaintext in one record (RFC 8446, 5.1).
const MAX_RECORD: usize = 16 * 1024;
/// The memory limit of records in flight: a handshake message may be larger than one record.
const MAX_RECORDS: usize = 4 * SPARE_BUFFER;

/// A TLS connection.
///
/// A write accepts bytes only once their record is written. After `Pending`, the caller must retry with the same bytes,
/// and needs no flush.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    session: Session,
    /// Received records, from the first incomplete record.
    incoming: Option<Buffer>,
    /// Decrypted bytes that were not read yet.
    plain: Option<Buffer>,
    /// Records to write.
    outgoing: Option<Buffer>,
    /// The number of bytes of the current write in `outgoing`.
    accepted: usize,
    /// The peer has sent its close notice.
    ended: bool,
    /// On drop, the stream sends a close notice.
    closes_cleanly: bool,
    /// An alert explained to the peer why the connection ends.
    alerted: bool,
    /// The bytes of `incoming` that rustls has read and still needs: fragments of a handshake message.
    fragments: usize,
}

/// The protocol's state, for both sides.
enum Session {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

impl Session {
    fn wants_write(&self) -> bool {
        match self {
            Self::Server(session) => session.wants_write(),
            Self::Client(session) => session.wants_write(),
        }
    }

    fn is_handshaking(&self) -> bool {
        match self {
            Self::Server(session) => session.is_handshaking(),
            Self::Client(session) => session.is_handshaking(),
        }
    }
}

/// The result of processing the received records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// More steps may be possible.
    Again,
    /// The peer must send records; the handshake is not over.
    Handshaking,
    /// The peer must send records.
    Ready,
    /// The peer will send nothing more.
    Ended,
}

impl TlsStream {
    /// The server side. `incoming` holds the bytes that were already read from the connection.
    pub(crate) fn server(
        tcp: TcpStream,
        config: Arc<ServerConfig>,
        incoming: Buffer,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::new(tcp, Session::Server(UnbufferedServerConnection::new(config)?), Some(incoming)))
    }

    /// The client side, for a server with this name.
    pub(crate) fn client(
        tcp: TcpStream,
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self, rustls::Error> {
        Ok(Self::new(tcp, Session::Client(UnbufferedClientConnection::new(config, name)?), None))
    }

    fn new(tcp: TcpStream, session: Session, incoming: Option<Buffer>) -> Self {
        Self {
            tcp,
            session,
            incoming,
            plain: None,
            outgoing: None,
            accepted: 0,
            ended: false,
            closes_cleanly: false,
            alerted: false,
            fragments: 0,
        }
    }

    pub(crate) fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// The negotiated protocol, by ALPN (RFC 7301).
    pub(crate) fn protocol(&self) -> Option<&[u8]> {
        match &self.session {
            Session::Server(session) => session.alpn_protocol(),
            Session::Client(session) => session.alpn_protocol(),
        }
    }

    /// The TLS version, once the handshake is over.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        match &self.session {
            Session::Server(session) => session.protocol_version(),
            Session::Client(session) => session.protocol_version(),
        }
    }

    /// The cipher suite, once the handshake is over.
    pub(crate) fn cipher(&self) -> Option<CipherSuite> {
        let suite = match &self.session {
            Session::Server(session) => session.negotiated_cipher_suite(),
            Session::Client(session) => session.negotiated_cipher_suite(),
        };
        suite.map(|suite| suite.suite())
    }

    /// Whether the handshake resumed an earlier session.
    pub(crate) fn is_resumed(&self) -> bool {
        let kind = match &self.session {
            Session::Server(session) => session.handshake_kind(),
            Session::Client(session) => session.handshake_kind(),
        };
        kind == Some(HandshakeKind::Resumed)
    }

    /// The certificates of the peer.
    pub(crate) fn peer_certificates(&self) -> Option<&[CertificateDer<'static>]> {
        match &self.session {
            Session::Server(session) => session.peer_certificates(),
            Session::Client(session) => session.peer_certificates(),
        }
    }

    /// Whether an alert explained to the peer why the connection ends.
    pub(crate) fn has_alerted(&self) -> bool {
        self.alerted
    }

    /// Whether a part of the last write has not left yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.accepted > 0
    }

    /// Makes the peer see a broken connection instead of a proper end.
    pub(crate) fn break_off(&mut self) {
        self.closes_cleanly = false;
    }

    /// Continues the handshake until it is over.
    pub(crate) fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            match self.step(None) {
                Ok(Step::Again) => {}
                // The client may send all its bytes at once, including the close notice.
                Ok(Step::Ended) if self.session.is_handshaking() => {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(Step::Ready | Step::Ended) => {
                    // Tickets leave together with the first response, unless the response takes a while.
                    if self.incoming.is_none() {
                        ready!(self.poll_send(cx))?;
                    }
                    self.closes_cleanly = true;
                    return Poll::Ready(Ok(()));
                }
                Ok(Step::Handshaking) => {
                    ready!(self.poll_send(cx))?;
                    if ready!(self.poll_receive(cx))? == 0 {
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                Err(error) => {
                    self.send_alert(&error);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }

    /// Ready once bytes are readable, or the connection is over.
    pub(crate) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.plain.is_some() || self.incoming.is_some() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(sent) = self.poll_send(cx) {
            sent?;
        }
        self.tcp.poll_read_ready(cx)
    }

    /// Whether only bytes of TLS itself have arrived, such as tickets. If so, the waker wakes when other bytes arrive.
    pub(crate) fn is_quiet(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            if self.plain.is_some() || self.ended {
                return false;
            }
            match self.step(None) {
                Ok(Step::Again) => {}
                Ok(Step::Ready) => match self.poll_receive(cx) {
                    Poll::Ready(Ok(1..)) => {}
                    Poll::Ready(_) => return false,
                    Poll::Pending => return self.outgoing.is_none(),
                },
                Ok(Step::Handshaking | Step::Ended) | Err(_) => return false,
            }
        }
    }

    /// Processes the next step of the records in `incoming`. Decrypted bytes go to `reader`, and bytes without room there
    /// to `plain`.
    fn step(&mut self, reader: Option<&mut ReadBuf<'_>>) -> io::Result<Step> {
        let record = self.next_record();
        let mut nothing: [u8; 0] = [];
        let mut records = self.incoming.as_mut().map_or(&mut nothing[..], Buffer::filled_mut);
        if let Some(record) = &record {
            records = &mut records[..record.end];
        }
        let mut effects = Effects::new(&mut self.plain, &mut self.outgoing, reader);
        let (mut discard, mut step) = match &mut self.session {
            Session::Server(session) => effects.of(session.process_tls_records(records)),
            Session::Client(session) => effects.of(session.process_tls_records(records)),
        };
        if let Some(record) = &record
            && effects.has_read_all
            && step.is_ok()
        {
            if discard == 0 && self.fragments == 0 && is_skipped(&records[record.clone()]) {
                discard = record.end;
            }
            self.fragments = record.end.saturating_sub(discard);
        }
        if discard > 0
            && let Some(incoming) = &mut self.incoming
        {
            incoming.consume(discard);
        }
        put_back_if_empty(&mut self.incoming);
        match step {
            Ok(Step::Ended) => self.ended = true,
            Ok(Step::Handshaking) if self.next_record().is_some() => step = Ok(Step::Again),
            _ => {}
        }
        step
    }

    /// The position of the next record in `incoming`, if the TLS 1.3 handshake reads one record at a time.
    ///
    /// A server skips rejected early data: records that it cannot decrypt, up to 2^14 bytes (RFC 8446, 4.2.10). rustls
    /// 0.23.46 leaves the skipped records in front until a message follows, decrypts them again with each call, and
    /// counts them each time. From half of the limit on, the handshake would end in `bad_record_mac`. So this function
    /// removes each skipped record at once.
    fn next_record(&self) -> Option<Range<usize>> {
        let Session::Server(session) = &self.session else { return None };
        if !session.is_handshaking() || session.protocol_version() != Some(ProtocolVersion::TLSv1_3) {
            return None;
        }
        let incoming = self.incoming.as_ref()?.filled();
        let end = self.fragments + RECORD_HEADER + record_length(incoming, self.fragments)?;
        (incoming.len() >= end).then_some(self.fragments..end)
    }

    /// Reads records from the peer. Zero means the end of the connection.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let incoming = self.incoming.get_or_insert_with(spare_buffer);
        incoming.reserve(1, MAX_RECORDS);
        if incoming.is_full() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a TLS message is too large",
            )));
        }
        let received = incoming.poll_fill(cx, &mut self.tcp);
        put_back_if_empty(&mut self.incoming);
        received
    }

    /// Writes the pending records.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(outgoing) = &mut self.outgoing {
            let written = ready!(Pin::new(&mut self.tcp).poll_write(cx, outgoing.filled()))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            outgoing.consume(written);
            put_back_if_empty(&mut self.outgoing);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends an alert with the reason for the end, as far as possible without waiting.
    fn send_alert(&mut self, error: &io::Error) {
        self.closes_cleanly = false;
        if std::mem::replace(&mut self.alerted, true) {
            return;
        }
        if !self.session.wants_write() && is_unanswered(error) {
            self.provoke_alert();
        }
        // Pending writes come before records are processed again, which would only cause more errors.
        while self.session.wants_write() && self.step(None).is_ok() {}
        // A peer that is gone needs no alert.
        if let Some(outgoing) = &mut self.outgoing
            && let Ok(written) = self.tcp.try_write(outgoing.filled())
        {
            outgoing.consume(written);
            put_back_if_empty(&mut self.outgoing);
        }
    }

    /// Makes rustls send `unexpected_message` where it sends no alert, as for an inner content type of 0 (rustls 0.23.46;
    /// RFC 8446, 5.4). Its core has no function to send an alert. So an invalid change_cipher_spec replaces the record.
    fn provoke_alert(&mut self) {
        let forbidden = [20, 3, 3, 0, 1, u8::from(!self.session.is_handshaking())];
        let record =
            self.incoming.as_mut().and_then(|incoming| incoming.filled_mut().get_mut(..forbidden.len()));
        if let Some(record) = record {
            record.copy_from_slice(&forbidden);
            // The error of this step produces the alert.
            let _ = self.step(None);
        }
    }

    /// Writes the first record of `data` into `outgoing`. Returns how much of `data` is in the record.
    fn seal(&mut self, data: &[u8]) -> io::Result<usize> {
        let data = &data[..data.len().min(MAX_RECORD)];
        loop {
            let mut nothing: [u8; 0] = [];
            let records = self.incoming.as_mut().map_or(&mut nothing[..], Buffer::filled_mut);
            let mut effects = Effects::new(&mut self.plain, &mut self.outgoing, None);
            let (discard, sealed) = match &mut self.session {
                Session::Server(session) => effects.seal(session.process_tls_records(records), data),
                Session::Client(session) => effects.seal(session.process_tls_records(records), data),
            };
            self.ended |= effects.has_ended;
            if discard > 0
                && let Some(incoming) = &mut self.incoming
            {
                incoming.consume(discard);
            }
            put_back_if_empty(&mut self.incoming);
            if sealed? {
                return Ok(data.len());
            }
        }
    }

    /// Writes a close notice into `outgoing` (RFC 8446, 6.1).
    fn seal_end(&mut self) -> io::Result<()> {
        self.closes_cleanly = false;
        // Records that have arrived come before the close notice. Each step processes a record, or ends a state of TLS.
        let waiting = self.incoming.as_ref().map_or(0, Buffer::len);
        for _ in 0..waiting / RECORD_HEADER + 4 {
            let mut nothing: [u8; 0] = [];
            let records = self.incoming.as_mut().map_or(&mut nothing[..], Buffer::filled_mut);
            let mut effects = Effects::new(&mut self.plain, &mut self.outgoing, None);
            let (discard, sealed) = match &mut self.session {
                Session::Server(session) => effects.seal_end(session.process_tls_records(records)),
                Session::Client(session) => effects.seal_end(session.process_tls_records(records)),
            };
            self.ended |= effects.has_ended;
            if let Some(incoming) = &mut self.incoming {
                incoming.consume(discard);
            }
            if sealed? {
                break;
            }
        }
        Ok(())
    }
}

/// The parts of a connection that a step changes.
struct Effects<'s, 'r, 'b> {
    plain: &'s mut Option<Buffer>,
    outgoing: &'s mut Option<Buffer>,
    reader: Option<&'r mut ReadBuf<'b>>,
    /// Whether all complete records were read.
    has_read_all: bool,
    /// Whether the peer will send nothing more. rustls reports this only once.
    has_ended: bool,
}

impl<'s, 'r, 'b> Effects<'s, 'r, 'b> {
    fn new(
        plain: &'s mut Option<Buffer>,
        outgoing: &'s mut Option<Buffer>,
        reader: Option<&'r mut ReadBuf<'b>>,
    ) -> Self {
        Self { plain, outgoing, reader, has_read_all: false, has_ended: false }
    }

    /// Executes the action that the state requires. Returns the number of consumed bytes of the records.
    fn of<Side>(&mut self, status: UnbufferedStatus<'_, '_, Side>) -> (usize, io::Result<Step>) {
        let mut discard = status.discard;
        let step = status.state.map_err(of_tls).and_then(|state| {
            self.has_read_all =
                !matches!(state, ConnectionState::EncodeTlsData(_) | ConnectionState::ReadTraffic(_));
            match state {
                ConnectionState::WriteTraffic(_) => Ok(Step::Ready),
                state => self.carry_out(state, &mut discard),
            }
        });
        (discard, step)
    }

    /// Like [`of`](Self::of), and also encrypts `data` if the state allows it. Returns whether it did.
    fn seal<Side>(
        &mut self,
        status: UnbufferedStatus<'_, '_, Side>,
        data: &[u8],
    ) -> (usize, io::Result<bool>) {
        let mut discard = status.discard;
        let sealed = status.state.map_err(of_tls).and_then(|state| match state {
            ConnectionState::WriteTraffic(mut traffic) => {
                let outgoing = self.outgoing.get_or_insert_with(spare_buffer);
                // A record adds at most 22 bytes to the data, 29 in TLS 1.2.
                let mut size = data.len() + 32;
                loop {
                    match traffic.encrypt(data, outgoing.room(size)) {
                        Ok(sealed) => {
                            outgoing.add(sealed);
                            return Ok(true);
                        }
                        Err(EncryptError::InsufficientSize(more)) => size = more.required_size,
                        Err(error) => return Err(io::Error::other(error)),
                    }
                }
            }
            ConnectionState::Closed => Err(io::ErrorKind::BrokenPipe.into()),
            ConnectionState::BlockedHandshake => Err(io::ErrorKind::NotConnected.into()),
            state => self.carry_out(state, &mut discard).map(|_| false),
        });
        (discard, sealed)
    }

    fn seal_end<Side>(&mut self, status: UnbufferedStatus<'_, '_, Side>) -> (usize, io::Result<bool>) {
        let mut discard = status.discard;
        let sealed = status.state.map_err(of_tls).and_then(|state| match state {
            ConnectionState::WriteTraffic(mut traffic) => {
                let outgoing = self.outgoing.get_or_insert_with(spare_buffer);
                let sealed = traffic.queue_close_notify(outgoing.room(64)).map_err(io::Error::other)?;
                outgoing.add(sealed);
                Ok(true)
            }
            ConnectionState::Closed | ConnectionState::BlockedHandshake => Ok(true),
            state => self.carry_out(state, &mut discard).map(|_| false),
        });
        (discard, sealed)
    }

    fn carry_out<Side>(
        &mut self,
        state: ConnectionState<'_, '_, Side>,
        discard: &mut usize,
    ) -> io::Result<Step> {
        match state {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(of_tls)?;
                    *discard += record.discard;
                    self.deliver(record.payload);
                }
                Ok(Step::Again)
            }
            ConnectionState::EncodeTlsData(mut data) => {
                let outgoing = self.outgoing.get_or_insert_with(spare_buffer);
                let mut size = SPARE_BUFFER / 2;
                loop {
                    match data.encode(outgoing.room(size)) {
                        Ok(encoded) => {
                            outgoing.add(encoded);
                            return Ok(Step::Again);
                        }
                        Err(EncodeError::InsufficientSize(more)) => size = more.required_size,
                        Err(error) => return Err(io::Error::other(error)),
                    }
                }
            }
            ConnectionState::TransmitTlsData(data) => {
                // The record is in `outgoing`, which is written before new records.
                data.done();
                Ok(Step::Again)
            }
            ConnectionState::BlockedHandshake => Ok(Step::Handshaking),
            ConnectionState::PeerClosed | ConnectionState::Closed => {
                self.has_ended = true;
                Ok(Step::Ended)
            }
            // Early data is not accepted (RFC 8446, 8: it could be replayed).
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn deliver(&mut self, mut data: &[u8]) {
        // In the order of arrival.
        if self.plain.is_none()
            && let Some(reader) = &mut self.reader
        {
            let fits = data.len().min(reader.remaining());
            reader.put_slice(&data[..fits]);
            data = &data[fits..];
        }
        if !data.is_empty() {
            self.plain.get_or_insert_with(spare_buffer).append(data);
        }
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        reader: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = reader.filled().len();
        loop {
            if let Some(plain) = &mut this.plain {
                let fits = plain.len().min(reader.remaining());
                reader.put_slice(&plain.filled()[..fits]);
                plain.consume(fits);
                put_back_if_empty(&mut this.plain);
            }
            if reader.filled().len() > before || reader.remaining() == 0 || this.ended {
                return Poll::Ready(Ok(()));
            }
            match this.step(Some(reader)) {
                Ok(Step::Again | Step::Ended) => {}
                Ok(Step::Ready) => {
                    // TLS itself also sends records, such as tickets. The writer waits for them, and so may the reader.
                    // The reader leaves a failure to the writer: a peer that accepts no more bytes has sent its last
                    // bytes.
                    let _ = this.poll_send(cx);
                    if ready!(this.poll_receive(cx))? == 0 {
                        // The connection was cut off: RFC 8446, 6.1 requires a close notice.
                        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                    }
                }
                Ok(Step::Handshaking) => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                Err(error) => {
                    this.send_alert(&error);
                    return Poll::Ready(Err(error));
                }
            }
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.accepted == 0 {
            this.accepted = this.seal(data)?;
        }
        ready!(this.poll_send(cx))?;
        Poll::Ready(Ok(std::mem::take(&mut this.accepted)))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_send(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.closes_cleanly {
            this.seal_end()?;
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}

/// Sends a close notice, so that the peer does not mistake the end for an attack; as far as possible without waiting.
impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.closes_cleanly
            && self.accepted == 0
            && self.seal_end().is_ok()
            && let Some(outgoing) = &self.outgoing
        {
            // If the peer is gone, the notice has no recipient.
            let _ = self.tcp.try_write(outgoing.filled());
        }
        for buffer in [self.incoming.take(), self.plain.take(), self.outgoing.take()].into_iter().flatten() {
            give_spare_buffer(buffer);
        }
    }
}

fn put_back_if_empty(buffer: &mut Option<Buffer>) {
    if let Some(empty) = buffer.take_if(|buffer| buffer.is_empty()) {
        give_spare_buffer(empty);
    }
}

/// The length in the header of the record at `at`, if the header is complete.
pub(crate) fn record_length(records: &[u8], at: usize) -> Option<usize> {
    let header = records.get(at..)?.get(..RECORD_HEADER)?;
    Some(usize::from(u16::from_be_bytes([header[3], header[4]])))
}

fn of_tls(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Whether rustls could not decrypt a record. rustls decrypts records in place. So after decryption, the content type of
/// a handshake fragment is in clear text behind the fragment, before padding and tag (RFC 8446, 5.2).
fn is_skipped(record: &[u8]) -> bool {
    const APPLICATION_DATA: u8 = 23;
    const HANDSHAKE: u8 = 22;
    const TAG: usize = 16;
    let inner = record.get(RECORD_HEADER..record.len().saturating_sub(TAG)).unwrap_or_default();
    record.first() == Some(&APPLICATION_DATA) && inner.iter().rfind(|byte| **byte != 0) != Some(&HANDSHAKE)
}

/// Whether rustls sends no alert for this error of a record.
fn is_unanswered(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::PeerMisbehaved(_) | rustls::Error::InvalidMessage(_)))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use rustls::RootCertStore;
    use rustls::crypto::aws_lc_rs;
    use sluicegate_testkit::tls::Authority;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Both sides of a connection, after the handshake.
    async fn pair() -> (TlsStream, TlsStream) {
        let authority = Authority::of_process();
        let certificate = authority.issue(&["a.test"]).certificate;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(authority.certificate()).unwrap();
        let client = ClientConfig::builder_with_provider(provider.clone());
        let client = client.with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider);
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let server = server.with_single_cert(certificate.chain.clone(), certificate.key.clone().0).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connect = crate::net::connect(listener.local_addr().unwrap());
        let (tcp, accepted) = tokio::join!(connect, listener.accept());
        let name = ServerName::try_from("a.test").unwrap();
        let mut client = TlsStream::client(tcp.unwrap(), Arc::new(client), name).unwrap();
        let mut server =
            TlsStream::server(accepted.unwrap().0.into(), Arc::new(server), spare_buffer()).unwrap();
        let (one, other) =
            tokio::join!(poll_fn(|cx| client.poll_handshake(cx)), poll_fn(|cx| server.poll_handshake(cx)));
        one.and(other).unwrap();
        // The tickets.
        server.flush().await.unwrap();
        (client, server)
    }

    /// Waits until the peer has received these many bytes.
    async fn received(stream: &TlsStream, count: usize) {
        let mut bytes = vec![0; count];
        while stream.tcp.peek(&mut bytes).await.unwrap() < count {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn close_notice_that_arrives_before_a_write_ends_the_reads_behind_the_data() {
        let (mut client, mut server) = pair().await;
        client.write_all(b"data").await.unwrap();
        client.shutdown().await.unwrap();
        // Two records: 4 and 2 bytes, each with 22 bytes of its own (RFC 8446, 5.2).
        received(&server, 26 + 24).await;
        assert_eq!(server.read_u8().await.unwrap(), b'd');
        // This step reads the close notice too.
        server.write_all(b"x").await.unwrap();
        let mut rest = Vec::new();
        server.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"ata");
    }

    #[tokio::test]
    async fn close_notice_is_sent_also_if_many_records_were_not_read() {
        let (mut client, mut server) = pair().await;
        for _ in 0..9 {
            client.write_all(b"record").await.unwrap();
        }
        received(&server, 9 * 28).await;
        assert_eq!(server.read_u8().await.unwrap(), b'r');
        server.shutdown().await.unwrap();
        let mut nothing = Vec::new();
        client.read_to_end(&mut nothing).await.unwrap();
        assert!(nothing.is_empty());
    }
}
