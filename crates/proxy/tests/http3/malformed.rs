//! Messages that RFC 9114 forbids, and messages that it tells to ignore.

use std::time::Duration;

use quinn::{Connection, ConnectionError, ReadError, ReadToEndError};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::gateway::Gateway;
use sluicegate_testkit::http3;
use sluicegate_testkit::tls::Authority;
use tokio::time::timeout;

use crate::{TestResult, before, count};

const SOON: Duration = Duration::from_secs(20);

const FRAME_UNEXPECTED: u64 = 0x105;
const FRAME_ERROR: u64 = 0x106;
const EXCESSIVE_LOAD: u64 = 0x107;
const ID_ERROR: u64 = 0x108;
const SETTINGS_ERROR: u64 = 0x109;
const MISSING_SETTINGS: u64 = 0x10a;
const STREAM_CREATION_ERROR: u64 = 0x103;
const CLOSED_CRITICAL_STREAM: u64 = 0x104;
const REQUEST_INCOMPLETE: u64 = 0x10d;
const MESSAGE_ERROR: u64 = 0x10e;
const DECOMPRESSION_FAILED: u64 = 0x200;
const ENCODER_STREAM_ERROR: u64 = 0x201;
const DECODER_STREAM_ERROR: u64 = 0x202;

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A response with this status.
    Status(u16),
    /// A reset of the stream. The connection stays open.
    Reset(u64),
    /// The end of the connection.
    Closed(u64),
}

/// A frame.
pub(crate) fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    [varint(kind), varint(payload.len() as u64), payload.to_vec()].concat()
}

/// An integer of QUIC.
fn varint(value: u64) -> Vec<u8> {
    match value {
        0..64 => vec![value as u8],
        64..16_384 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        _ => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
    }
}

/// A HEADERS frame of literal fields.
pub(crate) fn headers(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut section = vec![0, 0];
    for (name, value) in fields {
        section.extend(prefixed(0x20, 7, name.len()));
        section.extend(name.as_bytes());
        section.extend(prefixed(0, 127, value.len()));
        section.extend(value.as_bytes());
    }
    frame(1, &section)
}

/// An integer of QPACK.
fn prefixed(first: u8, most: usize, value: usize) -> Vec<u8> {
    if value < most {
        return vec![first | value as u8];
    }
    let (mut out, mut rest) = (vec![first | most as u8], value - most);
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
    out
}

const GET: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/")];

fn get_with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&GET[..], more].concat())
}

fn post_with(more: &[(&str, &str)]) -> Vec<u8> {
    headers(&[&[(":method", "POST")], &GET[1..], more].concat())
}

pub(crate) async fn connect(gateway: &Gateway) -> anyhow::Result<Connection> {
    let options = Authority::of_process().client();
    http3::connect(&http3::endpoint()?, gateway.https_addr(), &options, "localhost").await
}

/// Opens a control stream with SETTINGS.
pub(crate) async fn control(connection: &Connection, more: &[u8]) -> anyhow::Result<quinn::SendStream> {
    let mut stream = connection.open_uni().await?;
    stream.write_all(&[&[0][..], &frame(4, &[]), more].concat()).await?;
    Ok(stream)
}

/// Sends a request, and returns its end.
async fn send(connection: &Connection, bytes: &[u8]) -> anyhow::Result<End> {
    let (mut send, mut recv) = connection.open_bi().await?;
    // The gateway may have stopped reading.
    let _ = send.write_all(bytes).await;
    let _ = send.finish();
    let end = tokio::select! {
        end = recv.read_to_end(100_000) => end,
        error = connection.closed() => return closed(&error),
    };
    match end {
        Ok(response) => Ok(End::Status(status(&response)?)),
        Err(ReadToEndError::Read(ReadError::Reset(code))) => {
            // A connection error may follow.
            match timeout(Duration::from_millis(50), connection.closed()).await {
                Ok(error) => closed(&error),
                Err(_) => Ok(End::Reset(code.into_inner())),
            }
        }
        Err(ReadToEndError::Read(ReadError::ConnectionLost(error))) => closed(&error),
        Err(error) => Err(error.into()),
    }
}

fn closed(error: &ConnectionError) -> anyhow::Result<End> {
    match error {
        ConnectionError::ApplicationClosed(close) => Ok(End::Closed(close.error_code.into_inner())),
        error => anyhow::bail!("{error}"),
    }
}

/// The status of a response: its first field, which the gateway takes from the static table.
fn status(response: &[u8]) -> anyhow::Result<u16> {
    anyhow::ensure!(response.first() == Some(&1), "no HEADERS: {response:?}");
    let section = &response[1 + (1 << (response[1] >> 6))..];
    Ok(match section[2] {
        0xd9 => 200,
        0xff if section[3] == 0x04 => 400,
        // A literal with the name :status.
        0x5f if section[3..5] == [9, 3] => std::str::from_utf8(&section[5..8])?.parse()?,
        other => anyhow::bail!("{other:x}: {section:x?}"),
    })
}

#[tokio::test]
async fn requests_end_as_the_specification_demands() -> TestResult {
    use End::{Closed, Reset, Status};

    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = before(&backend).await?;
    let get = get_with(&[]);
    let data = frame(0, b"body");
    let huge = "x".repeat(40_000);
    let cases: Vec<(&str, Vec<u8>, End)> = vec![
        ("a request", get.clone(), Status(200)),
        // RFC 9114, 4.1 and 7.2.
        ("DATA before HEADERS", [&data[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        (
            "HEADERS behind trailers",
            [&get[..], &headers(&[("x", "1")]), &headers(&[("x", "1")])].concat(),
            Closed(FRAME_UNEXPECTED),
        ),
        (
            "DATA behind trailers",
            [&post_with(&[])[..], &data, &headers(&[("x", "1")]), &data].concat(),
            Closed(FRAME_UNEXPECTED),
        ),
        ("SETTINGS on a request", [&frame(4, &[])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("GOAWAY on a request", [&frame(7, &[0])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("MAX_PUSH_ID on a request", [&frame(13, &[0])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("CANCEL_PUSH on a request", [&frame(3, &[0])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("PUSH_PROMISE of a client", [&frame(5, &[0, 0, 0])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        // 7.2.8.
        ("PRIORITY of HTTP/2", [&frame(2, &[0; 5])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("PING of HTTP/2", [&frame(6, &[0; 8])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("WINDOW_UPDATE of HTTP/2", [&frame(8, &[0; 4])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        ("CONTINUATION of HTTP/2", [&frame(9, &[])[..], &get].concat(), Closed(FRAME_UNEXPECTED)),
        // 7.1 and 9.
        (
            "unknown frames",
            [&frame(0x21, b"grease")[..], &get, &frame(0x41, b"x"), &frame(0x3fff, b"")].concat(),
            Status(200),
        ),
        ("a truncated frame", get[..get.len() - 1].to_vec(), Closed(FRAME_ERROR)),
        ("a truncated body", [&post_with(&[])[..], &data[..3]].concat(), Closed(FRAME_ERROR)),
        ("a truncated frame header", [&get[..], &[0x40]].concat(), Closed(FRAME_ERROR)),
        ("an empty stream", Vec::new(), Reset(REQUEST_INCOMPLETE)),
        (
            "a flood of unknown frames",
            [&frame(0x21, &[0; 70_000])[..], &get].concat(),
            Closed(EXCESSIVE_LOAD),
        ),
        // 4.1.2.
        (
            "a length above the body",
            [&post_with(&[("content-length", "5")])[..], &data].concat(),
            Reset(MESSAGE_ERROR),
        ),
        (
            "a length below the body",
            [&post_with(&[("content-length", "3")])[..], &data].concat(),
            Reset(MESSAGE_ERROR),
        ),
        ("a length without body", post_with(&[("content-length", "3")]), Reset(MESSAGE_ERROR)),
        ("a length and its body", [&post_with(&[("content-length", "4")])[..], &data].concat(), Status(200)),
        // 4.2 and 4.3.
        ("a name in upper case", get_with(&[("X-Upper", "1")]), Reset(MESSAGE_ERROR)),
        ("a name with a space", get_with(&[("x y", "1")]), Reset(MESSAGE_ERROR)),
        ("a value with a line end", get_with(&[("x", "1\r\ny: 2")]), Reset(MESSAGE_ERROR)),
        ("a value with NUL", get_with(&[("x", "\0")]), Reset(MESSAGE_ERROR)),
        ("Connection", get_with(&[("connection", "close")]), Reset(MESSAGE_ERROR)),
        ("Transfer-Encoding", post_with(&[("transfer-encoding", "chunked")]), Reset(MESSAGE_ERROR)),
        ("Keep-Alive", get_with(&[("keep-alive", "1")]), Reset(MESSAGE_ERROR)),
        ("TE other than trailers", get_with(&[("te", "gzip")]), Reset(MESSAGE_ERROR)),
        ("no :method", headers(&GET[1..]), Reset(MESSAGE_ERROR)),
        ("no :scheme", headers(&[GET[0], GET[2], GET[3]]), Reset(MESSAGE_ERROR)),
        ("no :path", headers(&GET[..3]), Reset(MESSAGE_ERROR)),
        ("an empty :path", headers(&[GET[0], GET[1], GET[2], (":path", "")]), Reset(MESSAGE_ERROR)),
        ("two :path", get_with(&[(":path", "/")]), Reset(MESSAGE_ERROR)),
        ("two :method", get_with(&[(":method", "GET")]), Reset(MESSAGE_ERROR)),
        (":status", get_with(&[(":status", "200")]), Reset(MESSAGE_ERROR)),
        ("an unknown pseudo-header", get_with(&[(":x", "200")]), Reset(MESSAGE_ERROR)),
        (
            "a pseudo-header behind a header",
            headers(&[GET[0], GET[1], ("x", "1"), GET[2], GET[3]]),
            Reset(MESSAGE_ERROR),
        ),
        (
            "a pseudo-header in trailers",
            [&post_with(&[])[..], &data, &headers(&[(":path", "/")])].concat(),
            Reset(MESSAGE_ERROR),
        ),
        (
            "CONNECT with :path",
            headers(&[(":method", "CONNECT"), GET[1], GET[2], GET[3]]),
            Reset(MESSAGE_ERROR),
        ),
        ("no host", headers(&[GET[0], GET[1], GET[3]]), Status(400)),
        (
            "Host in place of :authority",
            headers(&[GET[0], GET[1], GET[3], ("host", "localhost")]),
            Status(200),
        ),
        ("Host unlike :authority", get_with(&[("host", "other")]), Status(400)),
        ("two cookies", get_with(&[("cookie", "a=1"), ("cookie", "b=2")]), Status(200)),
        // 4.2.2.
        ("fields above the limit", get_with(&[("x", &huge)]), Status(431)),
        // RFC 9204, 2.2 and 4.5.
        ("a reference to a dynamic table", frame(1, &[0, 0, 0x80]), Closed(DECOMPRESSION_FAILED)),
        ("a required insert count", frame(1, &[2, 0, 0x80]), Closed(DECOMPRESSION_FAILED)),
        ("an index behind the static table", frame(1, &[0, 0, 0xff, 0x24]), Closed(DECOMPRESSION_FAILED)),
    ];
    for (what, bytes, expected) in cases {
        let connection = connect(&gateway).await?;
        let _control = control(&connection, &[]).await?;
        let end = timeout(SOON, send(&connection, &bytes)).await?.map_err(|error| error.context(what))?;
        assert_eq!(end, expected, "{what}");
        if !matches!(expected, Closed(_)) {
            assert_eq!(send(&connection, &get).await?, Status(200), "the connection behind {what}");
        }
    }
    assert!(count(&gateway, |stats| &stats.malformed) > 0);
    assert!(count(&gateway, |stats| &stats.errors) > 0);
    Ok(())
}

#[tokio::test]
async fn streams_beside_requests_end_as_the_specification_demands() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = before(&backend).await?;
    let settings = frame(4, &[]);
    let with_settings = |more: &[u8]| [&[0][..], &settings, more].concat();
    // Each list has the bytes of the streams, and whether each stream ends.
    let cases = vec![
        ("SETTINGS", vec![(with_settings(&[]), false)], None),
        // RFC 9114, 6.2.1.
        ("no SETTINGS", vec![([&[0][..], &frame(7, &[0])].concat(), false)], Some(MISSING_SETTINGS)),
        ("two SETTINGS", vec![(with_settings(&settings), false)], Some(FRAME_UNEXPECTED)),
        (
            "two control streams",
            vec![(with_settings(&[]), false), (with_settings(&[]), false)],
            Some(STREAM_CREATION_ERROR),
        ),
        ("a control stream that ends", vec![(with_settings(&[]), true)], Some(CLOSED_CRITICAL_STREAM)),
        ("DATA", vec![(with_settings(&frame(0, b"x")), false)], Some(FRAME_UNEXPECTED)),
        ("HEADERS", vec![(with_settings(&headers(&GET)), false)], Some(FRAME_UNEXPECTED)),
        ("PING of HTTP/2", vec![(with_settings(&frame(6, &[0; 8])), false)], Some(FRAME_UNEXPECTED)),
        // 7.2.4.1.
        ("a setting of HTTP/2", vec![([&[0][..], &frame(4, &[2, 0])].concat(), false)], Some(SETTINGS_ERROR)),
        (
            "a setting twice",
            vec![([&[0][..], &frame(4, &[6, 1, 6, 1])].concat(), false)],
            Some(SETTINGS_ERROR),
        ),
        ("an unknown setting", vec![([&[0][..], &frame(4, &[0x21, 1])].concat(), false)], None),
        ("a truncated setting", vec![([&[0][..], &frame(4, &[6])].concat(), false)], Some(FRAME_ERROR)),
        // 5.2 and 7.2.
        ("GOAWAY that falls", vec![(with_settings(&[frame(7, &[8]), frame(7, &[4])].concat()), false)], None),
        (
            "GOAWAY that rises",
            vec![(with_settings(&[frame(7, &[4]), frame(7, &[8])].concat()), false)],
            Some(ID_ERROR),
        ),
        (
            "MAX_PUSH_ID that falls",
            vec![(with_settings(&[frame(13, &[8]), frame(13, &[4])].concat()), false)],
            Some(ID_ERROR),
        ),
        ("CANCEL_PUSH of no push", vec![(with_settings(&frame(3, &[0])), false)], Some(ID_ERROR)),
        (
            "GOAWAY with bytes behind its identifier",
            vec![(with_settings(&frame(7, &[4, 0])), false)],
            Some(FRAME_ERROR),
        ),
        (
            "unknown frames",
            vec![(with_settings(&[frame(0x21, b"x"), frame(0x3fff, b"")].concat()), false)],
            None,
        ),
        (
            "a flood of unknown frames",
            vec![(with_settings(&frame(0x21, &[0; 70_000])), false)],
            Some(EXCESSIVE_LOAD),
        ),
        ("a huge frame", vec![(with_settings(&frame(13, &[0; 5_000])), false)], Some(EXCESSIVE_LOAD)),
        // 6.2.2 and 6.2.3.
        ("a push stream of a client", vec![(vec![1, 0], false)], Some(STREAM_CREATION_ERROR)),
        ("an unknown stream", vec![(with_settings(&[]), false), (vec![0x21, 1, 2, 3], false)], None),
        ("a stream without a type", vec![(with_settings(&[]), false), (Vec::new(), true)], None),
        // RFC 9204, 4.2 to 4.4.
        ("streams of QPACK", vec![(with_settings(&[]), false), (vec![2], false), (vec![3], false)], None),
        ("two encoder streams", vec![(vec![2], false), (vec![2], false)], Some(STREAM_CREATION_ERROR)),
        ("two decoder streams", vec![(vec![3], false), (vec![3], false)], Some(STREAM_CREATION_ERROR)),
        ("an encoder stream that ends", vec![(vec![2], true)], Some(CLOSED_CRITICAL_STREAM)),
        ("a table above the limit", vec![(vec![2, 0x3f, 0x01], false)], Some(ENCODER_STREAM_ERROR)),
        ("an insertion", vec![(vec![2, 0xc0, 0x00], false)], Some(ENCODER_STREAM_ERROR)),
        ("an acknowledgement of nothing", vec![(vec![3, 0x80], false)], Some(DECODER_STREAM_ERROR)),
        ("a cancelled stream", vec![(with_settings(&[]), false), (vec![3, 0x44], false)], None),
    ];
    for (what, streams, expected) in cases {
        let connection = connect(&gateway).await?;
        let mut open = Vec::new();
        for (bytes, ends) in streams {
            let mut stream = connection.open_uni().await?;
            // The gateway may have closed the connection.
            let _ = stream.write_all(&bytes).await;
            if ends {
                let _ = stream.finish();
            }
            open.push(stream);
        }
        let end = match expected {
            Some(_) => {
                closed(&timeout(SOON, connection.closed()).await.map_err(|_| anyhow::anyhow!("{what}"))?)?
            }
            None => send(&connection, &get_with(&[])).await?,
        };
        assert_eq!(end, expected.map_or(End::Status(200), End::Closed), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn gateway_begins_its_control_stream_with_settings() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    let mut control = timeout(SOON, connection.accept_uni()).await??;
    let mut begin = [0; 2];
    control.read_exact(&mut begin).await?;
    assert_eq!(begin, [0, 4], "the type of the stream, and of SETTINGS");
    Ok(())
}

#[tokio::test]
async fn announced_length_of_a_frame_takes_no_memory() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    // HEADERS of 2^62 - 1 bytes.
    let (mut send, mut recv) = connection.open_bi().await?;
    send.write_all(&[1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).await?;
    let response = timeout(SOON, recv.read_to_end(10_000)).await??;
    assert_eq!(status(&response)?, 431);
    Ok(())
}

#[tokio::test]
async fn connection_stays_open_although_each_request_has_unknown_frames() -> TestResult {
    let backend = Backend::start(Behaviour::ok()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    let request = [&frame(0x21, &[0; 400])[..], &get_with(&[]), &frame(0x41, &[0; 400])].concat();
    // Many times the limit for a connection.
    for _ in 0..500 {
        let (mut send, mut recv) = connection.open_bi().await?;
        send.write_all(&request).await?;
        send.finish()?;
        assert_eq!(status(&timeout(SOON, recv.read_to_end(10_000)).await??)?, 200);
    }
    Ok(())
}

#[tokio::test]
async fn client_that_cancels_most_of_its_requests_loses_its_connection() -> TestResult {
    let backend = Backend::start(Behaviour::silent()).await?;
    let gateway = before(&backend).await?;
    let connection = connect(&gateway).await?;
    let flood = async {
        loop {
            let (mut send, mut recv) = connection.open_bi().await?;
            send.write_all(&get_with(&[])).await?;
            send.reset(0x10c_u32.into())?;
            recv.stop(0x10c_u32.into())?;
            tokio::task::yield_now().await;
        }
    };
    let error: anyhow::Result<()> = timeout(SOON, flood).await?;
    assert!(error.is_err());
    assert_eq!(closed(&connection.closed().await)?, End::Closed(EXCESSIVE_LOAD));
    assert!(count(&gateway, |stats| &stats.floods) > 0);
    Ok(())
}
