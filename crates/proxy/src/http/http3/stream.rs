//! One request and its response on an HTTP/3 connection.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use http::{HeaderMap, Method, Request, Response};
use quinn::{ReadError, RecvStream, SendStream, VarInt};
use sluicegate_http1::Rejection;
use sluicegate_http3::qpack::SectionError;
use sluicegate_http3::{
    Code, FrameHeader, FrameKind, FrameReader, Malformed, decode_request, decode_trailers, encode_response,
    encode_trailers, write_data_header, write_headers,
};
use tokio::io::ReadBuf;

use super::super::wire::has_space_around;
use super::Shared;
use crate::failure::ClientFault;
use crate::stream::header_fields;

/// The longest DATA frame of a response. Longer bodies have several.
const FRAME: usize = 16 * 1024;

/// One request and its response.
pub(crate) struct Http3Stream {
    shared: Rc<Shared>,
    send: SendStream,
    recv: RecvStream,
    /// Bytes of the response that the connection has not taken yet.
    unsent: Vec<u8>,
    sent: usize,
    /// Whether the head of the response was passed on.
    has_responded: bool,
    /// Whether the response is complete, or was broken off.
    has_ended: bool,
    /// Whether the end of the response was passed on.
    is_finished: bool,
    reader: FrameReader,
    reading: Reading,
    /// The part of the request that was read.
    part: Part,
    /// The length of the body, if the head states one.
    declared: Option<u64>,
    received: u64,
    is_tunnel: bool,
    trailers: Option<HeaderMap>,
    /// The limit for field sections.
    limit: usize,
    /// Whether the stream counts among those with an unread body.
    is_unread: bool,
    /// Ends when the client stops the stream, or the connection ends.
    stopped: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

/// The position in the client's frames.
enum Reading {
    /// At the header of a frame.
    Header,
    /// In a DATA frame with so many bytes left.
    Data(u64),
    /// In a frame to ignore.
    Ignored(u64),
    /// In a field section.
    Section(Vec<u8>, usize),
    /// Behind the last frame.
    End,
}

/// The part of the request that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Nothing,
    Head,
    Trailers,
}

/// Something that the client has sent.
enum Item {
    /// The next DATA frame has begun.
    Data,
    /// A field section.
    Section(Vec<u8>),
    End,
}

/// Why there is no head.
pub(super) enum NoHead {
    /// The client gave up.
    Gone,
    /// The stream or the connection was ended because of a fault.
    Ended,
    /// The request receives a response.
    Refused(Rejection),
}

/// The stream or the connection has ended because of a fault of the client.
pub(super) struct Faulty;

impl Http3Stream {
    pub(super) fn new(shared: Rc<Shared>, send: SendStream, recv: RecvStream) -> Self {
        Self {
            shared,
            send,
            recv,
            unsent: Vec::new(),
            sent: 0,
            has_responded: false,
            has_ended: false,
            is_finished: false,
            reader: FrameReader::default(),
            reading: Reading::Header,
            part: Part::Nothing,
            declared: None,
            received: 0,
            is_tunnel: false,
            trailers: None,
            limit: 0,
            is_unread: false,
            stopped: None,
        }
    }

    /// Reads the head of the request.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        limit: usize,
    ) -> Poll<Result<Request<()>, NoHead>> {
        self.limit = limit;
        let section = match ready!(self.poll_item(cx)) {
            Ok(Item::Section(section)) => section,
            Ok(Item::Data) => {
                self.shared.fail(Code::FRAME_UNEXPECTED);
                return Poll::Ready(Err(NoHead::Ended));
            }
            Ok(Item::End) => {
                self.give_up(Code::REQUEST_INCOMPLETE);
                return Poll::Ready(Err(NoHead::Ended));
            }
            Err(Broken::Gone) => return Poll::Ready(Err(NoHead::Gone)),
            Err(Broken::Fault) => return Poll::Ready(Err(NoHead::Ended)),
            Err(Broken::TooLarge) => return Poll::Ready(Err(NoHead::Refused(Rejection::HeadTooLarge))),
        };
        let head = match decode_request(&section, limit) {
            Ok(head) => head,
            Err(SectionError::TooLarge) => {
                return Poll::Ready(Err(NoHead::Refused(Rejection::HeadTooLarge)));
            }
            Err(error) => {
                self.reject(error);
                return Poll::Ready(Err(NoHead::Ended));
            }
        };
        self.part = Part::Head;
        Poll::Ready(Ok(head))
    }

    /// Reads on behind the head, to the first byte of the body or to the end. `waits` says whether to wait for it: the end of
    /// a request without a body often arrives a moment after its head, and a request with a body of unknown length is
    /// harder to retry.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>, waits: bool) -> Poll<Result<(), NoHead>> {
        match self.poll_item(cx) {
            Poll::Ready(Ok(Item::Data | Item::End)) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(Item::Section(section))) => {
                Poll::Ready(self.take_trailers(&section).map_err(|_| NoHead::Ended))
            }
            Poll::Ready(Err(Broken::Gone)) => Poll::Ready(Err(NoHead::Gone)),
            Poll::Ready(Err(_)) => Poll::Ready(Err(NoHead::Ended)),
            Poll::Pending if waits => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }

    /// Whether the request has no body and will have none.
    pub(super) fn is_bodiless(&self) -> bool {
        self.received == 0 && matches!(self.reading, Reading::End)
    }

    /// Notes the length of the body and whether the stream becomes a tunnel.
    pub(super) fn expect(&mut self, declared: Option<u64>, is_tunnel: bool) -> Result<(), Faulty> {
        (self.declared, self.is_tunnel) = (declared, is_tunnel);
        let announced = match self.reading {
            Reading::Data(left) => left,
            _ => 0,
        };
        let is_short = matches!(self.reading, Reading::End) && declared.is_some_and(|length| length > 0);
        if is_short || declared.is_some_and(|length| announced > length) {
            self.malformed();
            return Err(Faulty);
        }
        self.note_unread(announced > 0);
        Ok(())
    }

    /// Ends the stream with a code. What the client sends further is not read.
    pub(super) fn give_up(&mut self, code: Code) {
        let code = VarInt::from_u32(code.value());
        self.has_ended = true;
        self.is_finished = true;
        // A stream that has ended needs no end.
        let _ = self.send.reset(code);
        let _ = self.recv.stop(code);
        self.reading = Reading::End;
    }

    /// Ends the stream because of a malformed message (RFC 9114, 4.1.2).
    fn malformed(&mut self) {
        self.shared.worker.stats().http3.malformed.add(1);
        self.give_up(Code::MESSAGE_ERROR);
    }

    /// Ends the stream or the connection because of a field section.
    fn reject(&mut self, error: SectionError<Malformed>) {
        match error {
            SectionError::Invalid => self.shared.fail(Code::DECOMPRESSION_FAILED),
            SectionError::TooLarge => self.give_up(Code::EXCESSIVE_LOAD),
            SectionError::Field(reason) => {
                tracing::debug!(%reason, "an HTTP/3 message is malformed");
                self.malformed();
            }
        }
    }

    /// The bodies of all requests of the connection that no endpoint has taken yet.
    pub(crate) fn unread(&self) -> usize {
        self.shared.unread.get()
    }

    fn note_unread(&mut self, is_unread: bool) {
        let count = &self.shared.unread;
        match (std::mem::replace(&mut self.is_unread, is_unread), is_unread) {
            (false, true) => count.set(count.get() + 1),
            (true, false) => count.set(count.get() - 1),
            _ => {}
        }
    }

    /// Reads to the next DATA frame, field section, or end.
    fn poll_item(&mut self, cx: &mut Context<'_>) -> Poll<Result<Item, Broken>> {
        loop {
            match &mut self.reading {
                Reading::Header => {
                    let read = match ready!(self.recv.poll_read(cx, self.reader.room())) {
                        Ok(read) => read,
                        Err(error) => return Poll::Ready(Err(self.broken(&error))),
                    };
                    if read == 0 {
                        if !self.reader.is_empty() {
                            return Poll::Ready(Err(self.fault(Code::FRAME_ERROR)));
                        }
                        return Poll::Ready(self.end());
                    }
                    if let Some(header) = self.reader.advance(read)
                        && let Err(broken) = self.begin(header)
                    {
                        return Poll::Ready(Err(broken));
                    }
                }
                Reading::Data(0) => self.reading = Reading::Header,
                Reading::Data(_) => return Poll::Ready(Ok(Item::Data)),
                Reading::Ignored(0) => self.reading = Reading::Header,
                Reading::Ignored(left) => {
                    let mut piece = [0; 1024];
                    let most = piece.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    match ready!(self.recv.poll_read(cx, &mut piece[..most])) {
                        Ok(0) => return Poll::Ready(Err(self.fault(Code::FRAME_ERROR))),
                        Ok(read) => *left -= read as u64,
                        Err(error) => return Poll::Ready(Err(self.broken(&error))),
                    }
                }
                Reading::Section(section, length) => {
                    if section.len() == *length {
                        let section = std::mem::take(section);
                        self.reading = Reading::Header;
                        return Poll::Ready(Ok(Item::Section(section)));
                    }
                    let mut piece = [0; 4096];
                    let most = piece.len().min(*length - section.len());
                    match ready!(self.recv.poll_read(cx, &mut piece[..most])) {
                        Ok(0) => return Poll::Ready(Err(self.fault(Code::FRAME_ERROR))),
                        Ok(read) => section.extend_from_slice(&piece[..read]),
                        Err(error) => return Poll::Ready(Err(self.broken(&error))),
                    }
                }
                Reading::End => return Poll::Ready(Ok(Item::End)),
            }
        }
    }

    fn begin(&mut self, header: FrameHeader) -> Result<(), Broken> {
        let FrameHeader { kind, length } = header;
        self.reading = match (kind, self.part) {
            (FrameKind::Data, Part::Head) => {
                let most = self.declared.map(|declared| declared - self.received);
                if most.is_some_and(|most| length > most) {
                    self.malformed();
                    return Err(Broken::Fault);
                }
                self.note_unread(length > 0);
                Reading::Data(length)
            }
            (FrameKind::Headers, Part::Nothing | Part::Head) if !self.is_tunnel => {
                match usize::try_from(length).ok().filter(|length| *length <= self.limit) {
                    Some(length) => Reading::Section(Vec::new(), length),
                    None if self.part == Part::Nothing => return Err(Broken::TooLarge),
                    None => {
                        self.give_up(Code::EXCESSIVE_LOAD);
                        return Err(Broken::Fault);
                    }
                }
            }
            (FrameKind::Unknown, _) => {
                self.shared.waste(length.saturating_add(8));
                Reading::Ignored(length)
            }
            _ => return Err(self.fault(Code::FRAME_UNEXPECTED)),
        };
        Ok(())
    }

    /// The end of the client's frames.
    fn end(&mut self) -> Result<Item, Broken> {
        self.reading = Reading::End;
        self.note_unread(false);
        if self.declared.is_some_and(|declared| declared != self.received) {
            self.malformed();
            return Err(Broken::Fault);
        }
        Ok(Item::End)
    }

    /// Ends the connection because of a fault.
    fn fault(&mut self, code: Code) -> Broken {
        self.shared.fail(code);
        self.has_ended = true;
        self.is_finished = true;
        Broken::Fault
    }

    fn broken(&mut self, _: &ReadError) -> Broken {
        self.reading = Reading::End;
        self.note_unread(false);
        Broken::Gone
    }

    fn take_trailers(&mut self, section: &[u8]) -> Result<(), Broken> {
        match decode_trailers(section, self.limit) {
            Ok(trailers) if trailers.values().any(has_space_around) => {
                self.malformed();
                Err(Broken::Fault)
            }
            Ok(trailers) => {
                self.part = Part::Trailers;
                self.trailers = Some(trailers);
                Ok(())
            }
            Err(error) => {
                self.reject(error);
                Err(Broken::Fault)
            }
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.part == Part::Trailers {
            return Poll::Ready(Ok(()));
        }
        match ready!(self.poll_item(cx)) {
            Ok(Item::Data) => {}
            Ok(Item::End) => return Poll::Ready(Ok(())),
            Ok(Item::Section(section)) => {
                return Poll::Ready(
                    self.take_trailers(&section).map_err(|_| io::ErrorKind::InvalidData.into()),
                );
            }
            Err(_) => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
        }
        let Reading::Data(left) = &mut self.reading else { return Poll::Ready(Ok(())) };
        let most = buf.remaining().min(usize::try_from(*left).unwrap_or(usize::MAX));
        let read = match ready!(self.recv.poll_read(cx, buf.initialize_unfilled_to(most))) {
            Ok(read) => read,
            Err(error) => {
                self.broken(&error);
                return Poll::Ready(Err(io::Error::other(error)));
            }
        };
        if read == 0 && most > 0 {
            self.fault(Code::FRAME_ERROR);
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        *left -= read as u64;
        let is_empty = *left == 0;
        self.received += read as u64;
        buf.advance(read);
        if is_empty {
            self.note_unread(false);
        }
        Poll::Ready(Ok(()))
    }

    /// The trailers of a body that has ended, once the request has ended.
    pub(crate) fn poll_trailers(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<HeaderMap>, ClientFault>> {
        loop {
            match ready!(self.poll_item(cx)) {
                Ok(Item::End) => return Poll::Ready(Ok(self.trailers.take())),
                Ok(Item::Section(section)) => {
                    self.take_trailers(&section).map_err(|_| ClientFault::BadBody)?;
                }
                Ok(Item::Data) | Err(Broken::Fault | Broken::TooLarge) => {
                    return Poll::Ready(Err(ClientFault::BadBody));
                }
                Err(Broken::Gone) => return Poll::Ready(Err(ClientFault::Closed)),
            }
        }
    }

    /// Notices that the client gave up. Also sends what waits, and finds faults behind the body.
    pub(crate) fn poll_gone(&mut self, cx: &mut Context<'_>) -> Result<(), ClientFault> {
        if let Poll::Ready(Err(_)) = self.poll_flush(cx) {
            return Err(ClientFault::Closed);
        }
        if self.declared.is_some_and(|declared| declared == self.received)
            && !matches!(self.reading, Reading::End)
        {
            match self.poll_item(cx) {
                Poll::Ready(Ok(Item::Section(section))) => {
                    self.take_trailers(&section).map_err(|_| ClientFault::BadBody)?;
                }
                Poll::Ready(Err(Broken::Fault | Broken::TooLarge)) => return Err(ClientFault::BadBody),
                Poll::Ready(Err(Broken::Gone)) => return Err(ClientFault::Closed),
                Poll::Ready(Ok(Item::Data | Item::End)) | Poll::Pending => {}
            }
        }
        let stopped = self.stopped.get_or_insert_with(|| {
            let stopped = self.send.stopped();
            Box::pin(async move { drop(stopped.await) })
        });
        match stopped.as_mut().poll(cx) {
            Poll::Ready(()) => Err(ClientFault::Closed),
            Poll::Pending => Ok(()),
        }
    }

    /// Whether the head of the response was passed on.
    pub(crate) fn has_responded(&self) -> bool {
        self.has_responded
    }

    /// Sends the head of the response. With `ends`, the head is the whole response.
    pub(crate) fn respond(&mut self, response: &Response<()>, ends: bool) -> io::Result<()> {
        self.send_head(response)?;
        self.has_responded = true;
        self.has_ended = ends;
        self.send_now();
        Ok(())
    }

    /// Sends an interim response.
    pub(crate) fn send_interim_response(&mut self, response: &Response<()>) {
        // Another part of the code notices that a client is gone.
        let _ = self.send_head(response);
        self.send_now();
    }

    fn send_head(&mut self, response: &Response<()>) -> io::Result<()> {
        if self.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut section = Vec::with_capacity(512);
        encode_response(response, &mut section);
        write_headers(&mut self.unsent, &section);
        Ok(())
    }

    /// Sends the whole body of a response whose head was sent. The body is small.
    pub(crate) fn give(&mut self, body: &[u8]) -> io::Result<()> {
        if !self.has_responded || self.has_ended {
            return Err(io::ErrorKind::NotConnected.into());
        }
        write_data_header(&mut self.unsent, body.len());
        self.unsent.extend_from_slice(body);
        self.has_ended = true;
        self.send_now();
        Ok(())
    }

    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        data: &[u8],
        last: bool,
    ) -> Poll<io::Result<usize>> {
        if !self.has_responded {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        if self.has_ended {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_flush(cx))?;
        let taken = data.len().min(FRAME);
        if taken > 0 {
            write_data_header(&mut self.unsent, taken);
            self.unsent.extend_from_slice(&data[..taken]);
        }
        self.has_ended = last && taken == data.len();
        match self.poll_flush(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            // The rest waits here.
            _ => Poll::Ready(Ok(taken)),
        }
    }

    /// Ends the response. `trailers` are header lines.
    pub(crate) fn finish(&mut self, trailers: &[u8]) -> io::Result<()> {
        if !self.has_responded || self.has_ended {
            return Ok(());
        }
        if !trailers.is_empty() {
            let mut section = Vec::new();
            encode_trailers(&header_fields(trailers), &mut section);
            write_headers(&mut self.unsent, &section);
        }
        self.has_ended = true;
        self.send_now();
        Ok(())
    }

    /// Shows the client that the response is incomplete.
    pub(crate) fn break_off(&mut self) {
        if !self.is_finished {
            self.has_ended = true;
            self.is_finished = true;
            let _ = self.send.reset(VarInt::from_u32(Code::INTERNAL_ERROR.value()));
        }
    }

    /// Sends what the connection takes at once. A task that waits sends the rest.
    fn send_now(&mut self) {
        let _ = self.poll_flush(&mut Context::from_waker(Waker::noop()));
    }

    /// Sends what waits, and then the end of the response.
    pub(crate) fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_finished {
            return Poll::Ready(Ok(()));
        }
        while self.sent < self.unsent.len() {
            let written = ready!(Pin::new(&mut self.send).poll_write(cx, &self.unsent[self.sent..]))?;
            self.sent += written;
        }
        self.unsent.clear();
        self.sent = 0;
        if self.has_ended {
            self.is_finished = true;
            // A client that stopped the stream needs no end.
            let _ = self.send.finish();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends the rest of the response, and waits until the client has received all of it.
    pub(super) async fn drain(&mut self) -> io::Result<()> {
        std::future::poll_fn(|cx| self.poll_flush(cx)).await?;
        if !matches!(self.reading, Reading::End) {
            // RFC 9114, 4.1: the client need not send the rest of its request.
            let _ = self.recv.stop(VarInt::from_u32(Code::NO_ERROR.value()));
        }
        if !self.has_ended {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        match self.send.stopped().await {
            Ok(None) => Ok(()),
            _ => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }
}

impl Drop for Http3Stream {
    fn drop(&mut self) {
        self.note_unread(false);
        if !self.is_finished {
            // Without a reset, quinn would end the stream as if the response were complete.
            let _ = self.send.reset(VarInt::from_u32(Code::REQUEST_CANCELLED.value()));
        }
    }
}

/// Why the client's frames end early.
enum Broken {
    /// The client gave up, or the connection ended.
    Gone,
    /// The stream or the connection was ended because of a fault.
    Fault,
    /// The head of the request is above the limit.
    TooLarge,
}

/// Whether a method is safe (RFC 9110, 9.2.1), so that a request may arrive before the end of the handshake (RFC 8470, 2).
pub(super) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::TRACE)
}
