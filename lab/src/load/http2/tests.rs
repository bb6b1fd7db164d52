use super::super::answer::{Answer, Echo};
use super::super::connection::Pending;
use super::super::counts::Failure;
use super::super::nanos::Nanos;
use super::super::request::{Id, Method, Request};
use super::super::target::Target;
use super::exchange::Checks;
use super::frame::{self, ACK, END_HEADERS, END_STREAM, Frame, Kind, Violation};
use super::hpack;
use super::request::Ask;
use super::session::{Finished, Session};

const CHECKS: Checks = Checks { run: 1, verify: true, is_grpc: false };

fn request(ask: Ask) -> Request {
    let target: Target = "https://app.example.com/a?b".parse().unwrap();
    super::request::new(ask, &target, &[("Accept".to_owned(), "*/*".to_owned())]).unwrap()
}

/// A session with this many requests in flight. The requests have the ids 0, 1, 2, ... and were sent at 0, 1, 2, ...
/// ms.
fn session(requests: u64, ask: Ask, checks: Checks) -> Session {
    let mut session = Session::new(checks, 10);
    let mut request = request(ask);
    for id in 0..requests {
        let at = Nanos::from_millis(id);
        session.send(Pending { id, due: at, sent: at }, &mut request, &mut Vec::new());
    }
    session
}

fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::write(kind, flags, stream, payload, &mut out);
    out
}

/// The first SETTINGS frame of a server.
fn settings() -> Vec<u8> {
    frame(Kind::Settings, 0, 0, b"")
}

fn list(lines: &[(&str, &str)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (name, value) in lines {
        hpack::write_line(name, value, &mut list);
    }
    list
}

fn headers(flags: u8, stream: u32, lines: &[(&str, &str)]) -> Vec<u8> {
    frame(Kind::Headers, flags | END_HEADERS, stream, &list(lines))
}

/// The result of reading: the result of each request by id, the output of the session, and a violation by the server.
struct Read {
    finished: Vec<(u64, Result<Answer, Failure>)>,
    out: Vec<u8>,
    outcome: Result<(), Violation>,
}

fn read(session: &mut Session, input: &[u8]) -> Read {
    read_in(session, input, usize::MAX)
}

fn read_in(session: &mut Session, input: &[u8], size: usize) -> Read {
    let (mut finished, mut out): (Vec<Finished>, _) = (Vec::new(), Vec::new());
    let mut pieces = input.chunks(size);
    let outcome = pieces.try_for_each(|piece| session.read(piece, &mut out, &mut finished));
    let finished = finished.into_iter().map(|(pending, outcome)| (pending.id, outcome)).collect();
    Read { finished, out, outcome }
}

const PLAIN: Answer = Answer {
    status: 200,
    keep_alive: true,
    echo: Echo::Missing,
    length: 0,
    said_length: None,
    call_failed: false,
};

/// The frames in `bytes`, in order.
fn frames(bytes: &[u8]) -> Vec<(Kind, u8, u32, Vec<u8>)> {
    let (mut frames, mut rest) = (Vec::new(), bytes);
    while let Some((frame, behind)) = Frame::first(rest).unwrap() {
        frames.push((frame.kind, frame.flags, frame.stream, frame.payload.to_vec()));
        rest = behind;
    }
    assert!(rest.is_empty());
    frames
}

#[test]
fn http2_request_is_a_headers_frame_with_its_id_and_a_post_adds_a_data_frame() {
    let mut out = Vec::new();
    let mut session = Session::new(CHECKS, 10);
    let pending = Pending { id: 5, due: Nanos::ZERO, sent: Nanos::ZERO };
    session.send(pending, &mut request(Ask::Plain(Method::Get)), &mut out);
    session.send(pending, &mut request(Ask::Plain(Method::Post)), &mut out);
    session.send(pending, &mut request(Ask::Call), &mut out);
    let id = String::from_utf8(Id::new(1, 5).as_bytes().to_vec()).unwrap();
    let lines = |method, more: &[(&'static str, &'static str)]| {
        let mut lines = vec![
            (":method", method),
            (":scheme", "https"),
            (":authority", "app.example.com"),
            (":path", "/a?b"),
            ("accept", "*/*"),
        ];
        lines.extend_from_slice(more);
        [list(&lines), list(&[("x-lab-id", &id)])].concat()
    };
    let call = [("content-type", "application/grpc"), ("te", "trailers")];
    let frames = frames(&out);
    let whole = END_HEADERS | END_STREAM;
    assert_eq!(frames[0], (Kind::Headers, whole, 1, lines("GET", &[])));
    assert_eq!(frames[1], (Kind::Headers, END_HEADERS, 3, lines("POST", &[("content-length", "64")])));
    assert_eq!((frames[2].0, frames[2].1, frames[2].2, frames[2].3.len()), (Kind::Data, END_STREAM, 3, 64));
    assert_eq!(frames[3], (Kind::Headers, END_HEADERS, 5, lines("POST", &call)));
    assert_eq!(frames[4], (Kind::Data, END_STREAM, 5, vec![0; 5]));
}

#[test]
fn responses_of_interleaved_streams_are_parsed_in_any_pieces() {
    let id = String::from_utf8(Id::new(1, 1).as_bytes().to_vec()).unwrap();
    let end = list(&[("x-lab-length", "5"), ("x-lab-id", &id), ("content-length", "5")]);
    let (first, second) = end.split_at(7);
    let input = [
        settings(),
        // A response after an interim response, with its head in three frames.
        headers(0, 3, &[(":status", "103"), ("link", "x")]),
        frame(Kind::Headers, 0, 3, &list(&[(":status", "503")])),
        frame(Kind::Continuation, 0, 3, first),
        frame(Kind::Continuation, END_HEADERS, 3, second),
        headers(0, 1, &[(":status", "200")]),
        // Padding is not part of the body.
        frame(Kind::Data, 8, 3, b"\x02hel\0\0"),
        frame(Kind::Unknown, 0xff, 77, b"anything"),
        frame(Kind::Priority, 0, 3, b"12345"),
        frame(Kind::Data, 0, 1, b"a"),
        frame(Kind::Data, END_STREAM, 3, b"lo"),
        headers(END_STREAM, 1, &[("x-trailer", "y")]),
        // A HEADERS frame with a priority.
        frame(
            Kind::Headers,
            END_HEADERS | END_STREAM | 0x20,
            5,
            &[&[0; 5][..], &list(&[(":status", "204")])].concat(),
        ),
    ]
    .concat();
    for size in [1, 2, 3, 7, 50, usize::MAX] {
        let mut session = session(3, Ask::Plain(Method::Get), CHECKS);
        let Read { finished, outcome, .. } = read_in(&mut session, &input, size);
        let expected = [
            (1, Ok(Answer { status: 503, echo: Echo::Same, length: 5, said_length: Some(5), ..PLAIN })),
            (0, Ok(Answer { length: 1, ..PLAIN })),
            (2, Ok(Answer { status: 204, ..PLAIN })),
        ];
        assert_eq!((finished.as_slice(), outcome), (&expected[..], Ok(())), "{size} bytes at a time");
        assert_eq!(session.under_way().count(), 0);
    }
}

#[test]
fn body_shorter_than_its_content_length_is_truncated() {
    let answer = |lines: &[(&str, &str)]| {
        let input = [settings(), headers(0, 1, lines), frame(Kind::Data, END_STREAM, 1, b"half")].concat();
        read(&mut session(1, Ask::Plain(Method::Get), CHECKS), &input).finished[0]
            .1
            .map(|answer| answer.length)
    };
    assert_eq!(answer(&[(":status", "200"), ("content-length", "4")]), Ok(4));
    assert_eq!(answer(&[(":status", "200"), ("content-length", "8")]), Err(Failure::Truncated));
    let head = [settings(), headers(END_STREAM, 1, &[(":status", "304"), ("content-length", "8")])].concat();
    assert!(read(&mut session(1, Ask::Plain(Method::Get), CHECKS), &head).finished[0].1.is_ok());
}

#[test]
fn grpc_call_succeeds_only_with_status_0_in_its_trailers() {
    let checks = Checks { is_grpc: true, ..CHECKS };
    let failed = |frames: &[Vec<u8>]| {
        let input = [&[settings()], frames].concat().concat();
        let Read { finished, .. } = read(&mut session(1, Ask::Call, checks), &input);
        finished[0].1.unwrap().call_failed
    };
    let status = (":status", "200");
    let (head, data) = (headers(0, 1, &[status]), frame(Kind::Data, 0, 1, &[0; 5]));
    assert!(!failed(&[head.clone(), data.clone(), headers(END_STREAM, 1, &[("grpc-status", "0")])]));
    assert!(failed(&[head.clone(), data.clone(), headers(END_STREAM, 1, &[("grpc-status", "14")])]));
    assert!(failed(&[head.clone(), data, headers(END_STREAM, 1, &[("x-other", "0")])]));
    assert!(failed(&[head, frame(Kind::Data, END_STREAM, 1, b"")]), "no trailers");
    let early = headers(0, 1, &[status, ("grpc-status", "0")]);
    assert!(failed(&[early, headers(END_STREAM, 1, &[("x-other", "0")])]), "too early");
    assert!(failed(&[headers(END_STREAM, 1, &[status, ("grpc-status", "14")])]));
    assert!(!failed(&[headers(END_STREAM, 1, &[status, ("grpc-status", "0")])]));
}

#[test]
fn error_of_a_request_names_the_reset_or_goaway_frame_that_ended_it() {
    let mut session = session(5, Ask::Plain(Method::Get), CHECKS);
    assert_eq!(session.at_once(), 10);
    let input = [
        settings(),
        frame(Kind::Reset, 0, 1, &7_u32.to_be_bytes()),
        frame(Kind::Reset, 0, 3, &2_u32.to_be_bytes()),
        headers(0, 5, &[(":status", "200")]),
        frame(Kind::Reset, 0, 5, &2_u32.to_be_bytes()),
        // GOAWAY: the server has processed streams up to 7.
        frame(Kind::GoAway, 0, 0, &[0, 0, 0, 7, 0, 0, 0, 0, b'b', b'y', b'e']),
    ]
    .concat();
    let Read { finished, outcome, .. } = read(&mut session, &input);
    let expected = [
        (0, Err(Failure::StreamRefused)),
        (1, Err(Failure::StreamReset)),
        (2, Err(Failure::Truncated)),
        (4, Err(Failure::GoneAway)),
    ];
    assert_eq!((finished.as_slice(), outcome), (&expected[..], Ok(())));
    assert_eq!((session.at_once(), session.is_over()), (0, true));
    let last = read(&mut session, &headers(END_STREAM, 7, &[(":status", "200")]));
    assert_eq!(last.finished, [(3, Ok(PLAIN))], "what it has looked at is answered");
}

#[test]
fn timed_out_stream_is_reset_and_its_late_frames_are_ignored() {
    let mut session = session(4, Ask::Plain(Method::Get), CHECKS);
    let (mut out, mut finished) = (Vec::new(), Vec::new());
    assert_eq!(read(&mut session, &settings()).outcome, Ok(()));
    session.expire(Nanos::from_millis(1), &mut out, &mut finished);
    let late: Vec<_> = finished.iter().map(|(pending, outcome)| (pending.id, *outcome)).collect();
    assert_eq!(late, [(0, Err(Failure::AnswerTimeout)), (1, Err(Failure::AnswerTimeout))]);
    let cancel = [0, 0, 0, 8].to_vec();
    assert_eq!(frames(&out), [(Kind::Reset, 0, 1, cancel.clone()), (Kind::Reset, 0, 3, cancel)]);
    // The late response adds a field to the HPACK table, and the next response refers to that field.
    let mut kept = list(&[(":status", "200")]);
    kept.extend_from_slice(b"\x40\x0cx-lab-length\x013");
    let input = [
        frame(Kind::Headers, END_HEADERS, 1, &kept),
        frame(Kind::Data, END_STREAM, 1, b"late"),
        frame(Kind::Headers, END_HEADERS | END_STREAM, 5, b"\x88\xbe"),
    ]
    .concat();
    let Read { finished, outcome, .. } = read(&mut session, &input);
    assert_eq!((finished, outcome), (vec![(2, Ok(Answer { said_length: Some(3), ..PLAIN }))], Ok(())));
}

#[test]
fn client_acknowledges_settings_and_pings_and_respects_the_stream_limit() {
    let mut session = session(0, Ask::Plain(Method::Get), CHECKS);
    let mut preface = Vec::new();
    session.begin(&mut preface);
    assert!(preface.starts_with(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x0c\x04\0\0\0\0\0"));
    let most = [&3_u16.to_be_bytes()[..], &4_u32.to_be_bytes()].concat();
    let input = [
        frame(Kind::Settings, 0, 0, &most),
        frame(Kind::Settings, ACK, 0, b""),
        frame(Kind::Ping, 0, 0, b"12345678"),
        frame(Kind::Ping, ACK, 0, b"87654321"),
    ];
    let Read { out, outcome, .. } = read(&mut session, &input.concat());
    assert_eq!(outcome, Ok(()));
    assert_eq!(frames(&out), [(Kind::Settings, ACK, 0, vec![]), (Kind::Ping, ACK, 0, b"12345678".to_vec())]);
    assert_eq!(session.at_once(), 4);
}

#[test]
fn client_sends_a_request_body_only_within_the_flow_control_window() {
    let mut session = session(0, Ask::Plain(Method::Get), CHECKS);
    let window = |size: u32| [&4_u16.to_be_bytes()[..], &size.to_be_bytes()].concat();
    read(&mut session, &frame(Kind::Settings, 0, 0, &window(10)));
    let mut out = Vec::new();
    let pending = Pending { id: 0, due: Nanos::ZERO, sent: Nanos::ZERO };
    session.send(pending, &mut request(Ask::Plain(Method::Post)), &mut out);
    let data = |out: &[u8]| -> Vec<(u8, usize)> {
        let all = frames(out).into_iter().filter(|(kind, ..)| *kind == Kind::Data);
        all.map(|(_, flags, _, payload)| (flags, payload.len())).collect()
    };
    assert_eq!(data(&out), [(0, 10)]);
    let more = |stream: u32, size: u32| frame(Kind::WindowUpdate, 0, stream, &size.to_be_bytes());
    assert_eq!(data(&read(&mut session, &more(1, 5)).out), [(0, 5)]);
    assert_eq!(data(&read(&mut session, &more(0, 5)).out), [], "it was the stream's window that was full");
    // SETTINGS makes the windows of all streams smaller, and then larger again.
    assert_eq!(data(&read(&mut session, &frame(Kind::Settings, 0, 0, &window(0))).out), []);
    assert_eq!(data(&read(&mut session, &frame(Kind::Settings, 0, 0, &window(100))).out), [(END_STREAM, 49)]);
}

#[test]
fn client_sends_window_updates_after_reading_data() {
    let mut session = session(1, Ask::Plain(Method::Get), CHECKS);
    read(&mut session, &[settings(), headers(0, 1, &[(":status", "200")])].concat());
    let data = frame(Kind::Data, 0, 1, &[0; frame::MAX]);
    let mut told = Vec::new();
    for _ in 0..(1 << 30) / frame::MAX {
        let Read { out, outcome, .. } = read(&mut session, &data);
        assert_eq!(outcome, Ok(()));
        told.extend(frames(&out).into_iter().map(|(kind, _, stream, _)| (kind, stream)));
    }
    assert_eq!(told, [(Kind::WindowUpdate, 0), (Kind::WindowUpdate, 1)]);
}

#[test]
fn client_detects_protocol_violations_of_the_server() {
    let ok = [(":status", "200")];
    let cases = [
        (headers(0, 1, &[("x", "y")]), Violation::Answer),
        (headers(0, 1, &[(":status", "99")]), Violation::Answer),
        (headers(0, 1, &[(":status", "200"), (":status", "200")]), Violation::Answer),
        ([headers(0, 1, &ok), headers(0, 1, &[("x", "y")])].concat(), Violation::Answer),
        (frame(Kind::Data, 0, 1, b"x"), Violation::Answer),
        (headers(0, 3, &ok), Violation::Stream(3)),
        (headers(0, 2, &ok), Violation::Stream(2)),
        (headers(0, 0, &ok), Violation::Stream(0)),
        ([headers(END_STREAM, 1, &ok), frame(Kind::Data, 0, 1, b"x")].concat(), Violation::Stream(1)),
        (frame(Kind::Settings, 0, 1, b""), Violation::Stream(1)),
        (frame(Kind::Settings, 0, 0, b"x"), Violation::FrameSize(1)),
        (frame(Kind::Settings, 0, 0, &[0, 4, 255, 0, 0, 0]), Violation::Setting),
        (frame(Kind::PushPromise, END_HEADERS, 1, &[0, 0, 0, 2]), Violation::Pushed),
        (frame(Kind::Ping, 0, 0, b"x"), Violation::FrameSize(1)),
        (frame(Kind::GoAway, 0, 0, b"x"), Violation::FrameSize(1)),
        (frame(Kind::Reset, 0, 1, b"12345"), Violation::FrameSize(5)),
        (frame(Kind::WindowUpdate, 0, 0, &[0; 4]), Violation::Window),
        (frame(Kind::WindowUpdate, 0, 0, &[0x7f, 255, 255, 255]), Violation::Window),
        ([headers(0, 1, &ok), frame(Kind::Data, 8, 1, b"\x05x")].concat(), Violation::Padding),
        (frame(Kind::Continuation, END_HEADERS, 1, b""), Violation::Interrupted),
        (
            [frame(Kind::Headers, 0, 1, b""), frame(Kind::Ping, 0, 0, b"12345678")].concat(),
            Violation::Interrupted,
        ),
        (
            frame(Kind::Headers, END_HEADERS, 1, b"\xbe"),
            Violation::Headers(hpack::Unreadable::NoSuchLine(62)),
        ),
    ];
    let outcome = |input: &[u8]| read(&mut session(1, Ask::Plain(Method::Get), CHECKS), input).outcome;
    for (input, violation) in cases {
        assert_eq!(
            outcome(&[settings(), input.clone()].concat()),
            Err(violation),
            "{}",
            input.escape_ascii()
        );
    }
    assert_eq!(outcome(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Err(Violation::FrameSize(0x0048_5454)));
    assert_eq!(outcome(&frame(Kind::Ping, 0, 0, b"12345678")), Err(Violation::Preface));
    let endless = frame(Kind::Continuation, 0, 1, &[0; frame::MAX]);
    let input = [settings(), frame(Kind::Headers, 0, 1, b""), endless.repeat(17)].concat();
    assert_eq!(outcome(&input), Err(Violation::HeadersSize(256 * 1024)));
}

#[test]
fn http2_session_never_panics_on_arbitrary_bytes() {
    let mut random = fastrand::Rng::with_seed(11);
    for _ in 0..3000 {
        let mut session = session(3, Ask::Plain(Method::Post), CHECKS);
        let mut input = settings();
        for _ in 0..random.usize(..20) {
            let payload: Vec<u8> = (0..random.usize(..20)).map(|_| random.u8(..)).collect();
            let (kind, flags, stream) = (Kind::from(random.u8(..11)), random.u8(..), random.u32(..8));
            input.extend_from_slice(&frame(kind, flags, stream, &payload));
        }
        let finished = read_in(&mut session, &input, 13).finished;
        assert_eq!(finished.len() + session.under_way().count(), 3, "each request ends once");
    }
}
