//! The client's side of an HTTP/2 connection, without I/O: reads input from bytes, and appends output to other bytes.

use std::collections::VecDeque;

use super::super::answer::Answer;
use super::super::connection::Pending;
use super::super::counts::Failure;
use super::super::nanos::Nanos;
use super::super::request::{Id, Request};
use super::exchange::{Checks, Exchange};
use super::frame::{self, ACK, END_HEADERS, END_STREAM, Frame, Kind, LOW_31, Violation};
use super::hpack::Decoder;

/// The client's connection preface (RFC 9113, 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The window of a stream and of a connection for data from the server: larger than any response, so that only the
/// gateway limits the speed. h2load uses the same window.
const WINDOW: u32 = 1 << 30;

/// The default window (RFC 9113, 6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;

/// The maximum number of streams until the server sends its limit; the limit should be at least this (RFC 9113, 6.5.2).
const FIRST_STREAMS: usize = 100;

/// The longest header list of a response.
const MAX_HEADERS: usize = 256 * 1024;

const CANCEL: u32 = 8;
const REFUSED_STREAM: u32 = 7;

const ENABLE_PUSH: u16 = 2;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const INITIAL_WINDOW_SIZE: u16 = 4;

/// The result of a request.
pub(crate) type Finished = (Pending, Result<Answer, Failure>);

/// The client's side of a connection.
#[derive(Debug)]
pub(crate) struct Session {
    checks: Checks,
    /// The maximum number of requests in flight, as the client sets.
    streams: usize,
    /// The maximum number of requests in flight, as the server sets.
    allowed: usize,
    next_stream: u32,
    /// The requests in flight, by stream.
    exchanges: VecDeque<Exchange>,
    decoder: Decoder,
    /// The beginning of a frame.
    partial: Vec<u8>,
    /// The stream of an incomplete header list, and whether the stream ends with the list.
    list: Option<(u32, bool)>,
    fragments: Vec<u8>,
    has_settings: bool,
    /// Whether a stream was cancelled for which frames may still arrive.
    has_cancelled: bool,
    /// Whether the server accepts no more requests.
    goes_away: bool,
    /// The windows of the server for data: of the connection, and the initial window of each stream.
    window: i64,
    first_window: i64,
    /// Received bytes that no WINDOW_UPDATE has acknowledged yet.
    unread: u32,
}

impl Session {
    /// The session of a connection with at most this many requests in flight.
    pub(crate) fn new(checks: Checks, streams: usize) -> Self {
        Self {
            checks,
            streams,
            allowed: FIRST_STREAMS,
            next_stream: 1,
            exchanges: VecDeque::new(),
            decoder: Decoder::default(),
            partial: Vec::new(),
            list: None,
            fragments: Vec::new(),
            has_settings: false,
            has_cancelled: false,
            goes_away: false,
            window: DEFAULT_WINDOW.into(),
            first_window: DEFAULT_WINDOW.into(),
            unread: 0,
        }
    }

    /// Appends the first output of the connection.
    pub(crate) fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PREFACE);
        let mut settings = Vec::new();
        for (setting, value) in [(ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, WINDOW)] {
            settings.extend_from_slice(&setting.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame::write(Kind::Settings, 0, 0, &settings, out);
        frame::write(Kind::WindowUpdate, 0, 0, &(WINDOW - DEFAULT_WINDOW).to_be_bytes(), out);
    }

    /// The maximum number of requests in flight; 0 after the server has sent GOAWAY.
    pub(crate) fn at_once(&self) -> usize {
        if self.is_over() { 0 } else { self.streams.min(self.allowed) }
    }

    /// Whether it takes no more requests: the server has sent GOAWAY, or all stream numbers are used up.
    pub(crate) fn is_over(&self) -> bool {
        self.goes_away || self.next_stream > LOW_31
    }

    /// The times at which the requests in flight were due, and whether a part of their responses has arrived.
    pub(crate) fn under_way(&self) -> impl Iterator<Item = (Nanos, bool)> {
        self.exchanges.iter().map(|exchange| (exchange.pending.due, exchange.has_begun()))
    }

    /// Begins a stream with a request.
    pub(crate) fn send(&mut self, pending: Pending, request: &mut Request, out: &mut Vec<u8>) {
        let stream = self.next_stream;
        self.next_stream += 2;
        let start = out.len();
        out.extend_from_slice(request.with_id(Id::new(self.checks.run, pending.id)));
        out[start + 5..start + frame::HEAD].copy_from_slice(&stream.to_be_bytes());
        let mut exchange = Exchange::new(stream, pending, request.body(), self.first_window);
        send_body(&mut exchange, &mut self.window, out);
        self.exchanges.push_back(exchange);
    }

    /// Cancels requests that were sent before this time and have no response.
    pub(crate) fn expire(&mut self, sent_before: Nanos, out: &mut Vec<u8>, finished: &mut Vec<Finished>) {
        // The exchanges are in the order of their sending.
        if self.exchanges.front().is_none_or(|first| first.pending.sent > sent_before) {
            return;
        }
        self.has_cancelled = true;
        self.exchanges.retain(|exchange| {
            let is_late = exchange.pending.sent <= sent_before;
            if is_late {
                frame::write(Kind::Reset, 0, exchange.stream, &CANCEL.to_be_bytes(), out);
                finished.push((exchange.pending, Err(Failure::AnswerTimeout)));
            }
            !is_late
        });
    }

    /// Reads input. The results of requests are appended to `finished`, also if there is an error.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Violation> {
        let mut partial = std::mem::take(&mut self.partial);
        let whole = if partial.is_empty() {
            input
        } else {
            partial.extend_from_slice(input);
            &partial
        };
        let mut rest = whole;
        while let Some((frame, behind)) = Frame::first(rest)? {
            self.frame(&frame, out, finished)?;
            rest = behind;
        }
        let used = whole.len() - rest.len();
        if partial.is_empty() {
            partial.extend_from_slice(&input[used..]);
        } else {
            partial.drain(..used);
        }
        self.partial = partial;
        Ok(())
    }

    fn frame(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Violation> {
        if !self.has_settings && frame.kind != Kind::Settings {
            return Err(Violation::Preface);
        }
        if self.list.is_some() && frame.kind != Kind::Continuation {
            return Err(Violation::Interrupted);
        }
        match frame.kind {
            Kind::Data => self.data(frame, out, finished),
            Kind::Headers => self.headers(frame, finished),
            Kind::Continuation => self.continuation(frame, finished),
            Kind::Reset => self.reset(frame, finished),
            Kind::Settings => self.settings(frame, out),
            Kind::PushPromise => Err(Violation::Pushed),
            Kind::Ping => {
                if frame.payload.len() != 8 {
                    return Err(Violation::FrameSize(frame.payload.len()));
                }
                if !frame.has(ACK) {
                    frame::write(Kind::Ping, ACK, 0, frame.payload, out);
                }
                Ok(())
            }
            Kind::GoAway => self.go_away(frame, finished),
            Kind::WindowUpdate => self.enlarge(frame, out),
            Kind::Priority | Kind::Unknown => Ok(()),
        }
    }

    /// The place of a frame's stream among the exchanges; [`None`] if the stream has ended before.
    fn place(&self, frame: &Frame<'_>) -> Result<Option<usize>, Violation> {
        if frame.stream.is_multiple_of(2) || frame.stream >= self.next_stream {
            return Err(Violation::Stream(frame.stream));
        }
        // Responses usually come in order.
        if self.exchanges.front().is_some_and(|first| first.stream == frame.stream) {
            return Ok(Some(0));
        }
        let place = self.exchanges.binary_search_by_key(&frame.stream, |exchange| exchange.stream).ok();
        let may_be_late = self.has_cancelled || !matches!(frame.kind, Kind::Data | Kind::Headers);
        if place.is_none() && !may_be_late {
            return Err(Violation::Stream(frame.stream));
        }
        Ok(place)
    }

    fn finish(&mut self, place: usize, finished: &mut Vec<Finished>) {
        if let Some(exchange) = self.exchanges.remove(place) {
            // The rest of an incomplete request is not sent: the server does not need it.
            finished.push((exchange.pending, exchange.finish()));
        }
    }

    fn data(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Violation> {
        let place = self.place(frame)?;
        let is_end = frame.has(END_STREAM);
        acknowledge(&mut self.unread, 0, frame.payload.len(), out);
        let Some(place) = place else { return Ok(()) };
        let exchange = &mut self.exchanges[place];
        exchange.data(frame.content()?.len())?;
        if is_end {
            self.finish(place, finished);
        } else {
            acknowledge(&mut exchange.unread, frame.stream, frame.payload.len(), out);
        }
        Ok(())
    }

    fn headers(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), Violation> {
        let (list, is_end) = (frame.content()?, frame.has(END_STREAM));
        if frame.has(END_HEADERS) {
            return self.header_list(frame, list, is_end, finished);
        }
        self.fragments.clear();
        self.fragments.extend_from_slice(list);
        self.list = Some((frame.stream, is_end));
        Ok(())
    }

    fn continuation(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), Violation> {
        let Some((stream, is_end)) = self.list else { return Err(Violation::Interrupted) };
        if stream != frame.stream {
            return Err(Violation::Interrupted);
        }
        self.fragments.extend_from_slice(frame.payload);
        if self.fragments.len() > MAX_HEADERS {
            return Err(Violation::HeadersSize(MAX_HEADERS));
        }
        if !frame.has(END_HEADERS) {
            return Ok(());
        }
        self.list = None;
        let list = std::mem::take(&mut self.fragments);
        self.header_list(frame, &list, is_end, finished)
    }

    /// A header list that this frame completes.
    fn header_list(
        &mut self,
        frame: &Frame<'_>,
        list: &[u8],
        is_end: bool,
        finished: &mut Vec<Finished>,
    ) -> Result<(), Violation> {
        let Some(place) = self.place(frame)? else {
            // The list changes the HPACK table even if its stream has ended.
            return Ok(self.decoder.decode(list, |_, _| {})?);
        };
        self.exchanges[place].headers(list, is_end, &self.checks, &mut self.decoder)?;
        if is_end {
            self.finish(place, finished);
        }
        Ok(())
    }

    fn reset(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), Violation> {
        let code = frame.number(false)?;
        let place = self.place(frame)?;
        if let Some(exchange) = place.and_then(|place| self.exchanges.remove(place)) {
            let failure = match code {
                REFUSED_STREAM => Failure::StreamRefused,
                _ if exchange.has_begun() => Failure::Truncated,
                _ => Failure::StreamReset,
            };
            finished.push((exchange.pending, Err(failure)));
        }
        Ok(())
    }

    fn settings(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
        if frame.stream != 0 {
            return Err(Violation::Stream(frame.stream));
        }
        if frame.has(ACK) {
            return Ok(());
        }
        if !frame.payload.len().is_multiple_of(6) {
            return Err(Violation::FrameSize(frame.payload.len()));
        }
        self.has_settings = true;
        for setting in frame.payload.chunks_exact(6) {
            let (name, value) = setting.split_at(2);
            let value = frame::number(value);
            match frame::number(name) as u16 {
                MAX_CONCURRENT_STREAMS => self.allowed = value as usize,
                INITIAL_WINDOW_SIZE if value > LOW_31 => return Err(Violation::Setting),
                INITIAL_WINDOW_SIZE => {
                    let more = i64::from(value) - self.first_window;
                    self.first_window = value.into();
                    for exchange in &mut self.exchanges {
                        exchange.window += more;
                    }
                }
                // Requests do not use the dynamic HPACK table, and their frames have a size that all servers accept.
                _ => {}
            }
        }
        frame::write(Kind::Settings, ACK, 0, &[], out);
        self.send_bodies(out);
        Ok(())
    }

    fn go_away(&mut self, frame: &Frame<'_>, finished: &mut Vec<Finished>) -> Result<(), Violation> {
        if frame.payload.len() < 8 {
            return Err(Violation::FrameSize(frame.payload.len()));
        }
        self.goes_away = true;
        let last = frame.number(true)? & LOW_31;
        // The server has not processed higher streams, and never will (RFC 9113, 6.8).
        while let Some(exchange) = self.exchanges.pop_back_if(|exchange| exchange.stream > last) {
            finished.push((exchange.pending, Err(Failure::GoneAway)));
        }
        Ok(())
    }

    fn enlarge(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Violation> {
        let more = i64::from(frame.number(false)? & LOW_31);
        let window = if frame.stream == 0 {
            &mut self.window
        } else {
            let Some(place) = self.place(frame)? else { return Ok(()) };
            &mut self.exchanges[place].window
        };
        *window += more;
        if more == 0 || *window > LOW_31.into() {
            return Err(Violation::Window);
        }
        self.send_bodies(out);
        Ok(())
    }

    /// Sends data for which the server had no window.
    fn send_bodies(&mut self, out: &mut Vec<u8>) {
        for exchange in &mut self.exchanges {
            send_body(exchange, &mut self.window, out);
        }
    }
}

/// Sends as much of the body as the server's windows allow.
fn send_body(exchange: &mut Exchange, window: &mut i64, out: &mut Vec<u8>) {
    let room = exchange.window.min(*window).max(0);
    let (now, later) = exchange.body.split_at(exchange.body.len().min(room as usize));
    if now.is_empty() {
        return;
    }
    let flags = if later.is_empty() { END_STREAM } else { 0 };
    frame::write(Kind::Data, flags, exchange.stream, now, out);
    exchange.body = later;
    exchange.window -= now.len() as i64;
    *window -= now.len() as i64;
}

/// Sends WINDOW_UPDATE for the read data, once the data exceeds a threshold.
fn acknowledge(unread: &mut u32, stream: u32, length: usize, out: &mut Vec<u8>) {
    // A frame has at most 16 KiB.
    *unread += length as u32;
    if *unread > WINDOW / 2 {
        frame::write(Kind::WindowUpdate, 0, stream, &unread.to_be_bytes(), out);
        *unread = 0;
    }
}
