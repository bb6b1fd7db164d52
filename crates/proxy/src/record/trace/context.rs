//! The trace of a request, and whether the gateway adds a span (W3C Trace Context, levels 1 and 2).

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sluicegate_http1::{Known, RequestHead};
use sluicegate_model::Tracing;

/// All services should trace the request.
const SAMPLED: u8 = 1;
/// The trace ID is random (level 2, 3.2.2.5.2).
const RANDOM: u8 = 2;

/// The gateway's span for a request, and its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) trace: u128,
    /// The caller's span, if the caller began the trace.
    pub(crate) parent: Option<u64>,
    pub(crate) span: u64,
    pub(crate) flags: u8,
}

/// The decision about the trace of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The trace headers of the caller are forwarded unchanged.
    PassOn,
    /// The trace headers of the caller are invalid, and are not forwarded.
    Forget,
    /// The caller wants a trace, but the limit is reached.
    TooMany,
    /// The request has a span.
    Take(Trace),
}

/// Decides about a request that begins at `now`. For a request that is not traced and not part of a trace, the cost is a
/// random number and a look at the header lines.
///
/// The gateway follows a caller's trace: the trace ID stays, and so does the caller's decision. Any client can set the
/// `sampled` flag, so the rate of these traces is limited. If the gateway adds no span to a trace, it forwards
/// `traceparent` and `tracestate` unchanged.
pub(crate) fn decide(
    head: &RequestHead,
    buf: &[u8],
    tracing: &Tracing,
    followed: &Followed,
    now: Instant,
) -> Decision {
    let mut parents = head.lines.iter().filter(|line| line.known == Known::Traceparent);
    let parent = match (parents.next(), parents.next()) {
        (None, _) => None,
        (Some(line), None) => Some(Parent::parse(line.value.of(buf))),
        // The right header is unknown.
        (Some(_), Some(_)) => Some(None),
    };
    match parent {
        Some(Some(parent)) if parent.flags & SAMPLED == 0 => Decision::PassOn,
        Some(Some(parent)) if followed.admit(tracing.followed_per_second, now) => Decision::Take(Trace {
            trace: parent.trace,
            parent: Some(parent.span),
            span: fastrand::u64(1..),
            flags: parent.flags & (SAMPLED | RANDOM),
        }),
        Some(Some(_)) => Decision::TooMany,
        of_caller => match (Trace::sampled(tracing), of_caller) {
            (Some(trace), _) => Decision::Take(trace),
            (None, Some(_)) => Decision::Forget,
            (None, None) => Decision::PassOn,
        },
    }
}

impl Trace {
    /// The trace of a request without a caller's trace, if the request is sampled.
    pub(crate) fn sampled(tracing: &Tracing) -> Option<Self> {
        (fastrand::f64() * 100.0 < tracing.sample_percent).then(|| Self {
            trace: fastrand::u128(1..),
            parent: None,
            span: fastrand::u64(1..),
            flags: SAMPLED | RANDOM,
        })
    }

    /// Replaces the caller's span by the gateway's span: marks the lines to drop, and writes the new line.
    pub(crate) fn propagate(&self, head: &mut RequestHead, lines: &mut Vec<u8>) {
        drop_lines(head, self.parent.is_some());
        let Self { trace, span, flags, .. } = self;
        // Writing to a Vec does not fail.
        let _ = write!(lines, "traceparent: 00-{trace:032x}-{span:016x}-{flags:02x}\r\n");
    }
}

impl Decision {
    /// Drops invalid trace headers.
    pub(crate) fn forget(head: &mut RequestHead) {
        drop_lines(head, false);
    }
}

/// `tracestate` is useful only together with its `traceparent` (3.3).
fn drop_lines(head: &mut RequestHead, keeps_state: bool) {
    for line in &mut head.lines {
        line.hop_by_hop |=
            line.known == Known::Traceparent || line.known == Known::Tracestate && !keeps_state;
    }
}

/// The content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    trace: u128,
    span: u64,
    flags: u8,
}

impl Parent {
    /// `version-trace-span-flags` (3.2). For a newer version, only the beginning is read (4.3).
    fn parse(value: &[u8]) -> Option<Self> {
        const LENGTH: usize = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".len();
        let (version, rest) = (hex(value.get(..2)?)?, value.get(LENGTH..)?);
        let is_whole = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => matches!(rest.first(), None | Some(b'-')),
        };
        let has_dashes = [2, 35, 52].iter().all(|dash| value[*dash] == b'-');
        let (trace, span, flags) = (hex(&value[3..35])?, hex(&value[36..52])?, hex(&value[53..55])?);
        let is_valid = is_whole && has_dashes && trace != 0 && span != 0;
        // The field lengths match the integer sizes.
        is_valid.then_some(Self { trace, span: span as u64, flags: flags as u8 })
    }
}

/// Lower-case hexadecimal digits.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(digit))
    })
}

/// Limits requests that are traced because of their callers' decision: a burst of one second's number at most, and then
/// an even rate (the generic cell rate algorithm). All workers share the limit, and only these requests touch it.
#[derive(Debug)]
pub(crate) struct Followed {
    began: Instant,
    /// When the next request is due, in nanoseconds since `began`.
    due: AtomicU64,
}

impl Followed {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), due: AtomicU64::new(0) }
    }

    /// Whether one more request may be traced.
    fn admit(&self, per_second: u32, now: Instant) -> bool {
        const SECOND: u64 = Duration::from_secs(1).as_nanos() as u64;
        let Some(pause) = SECOND.checked_div(per_second.into()) else { return false };
        let now = now.saturating_duration_since(self.began).as_nanos() as u64;
        let next = |due: u64| Some(due.max(now) + pause).filter(|next| *next <= now + SECOND);
        self.due.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c;
    const SPAN: u64 = 0xb7ad_6b71_6920_3331;

    #[test]
    fn traceparent_is_parsed_as_w3c_trace_context_requires() {
        let good = |text: &str, flags| {
            let parent = Parent { trace: TRACE, span: SPAN, flags };
            assert_eq!(Parent::parse(text.as_bytes()), Some(parent), "{text}");
        };
        good("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 1);
        good("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00", 0);
        good("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-ff", 255);
        good("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", 1);
        good("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-what-the-future-says", 1);
        for wrong in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01.more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01",
            "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            ".0-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-\u{e9}af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(Parent::parse(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest::proptest! {
        #[test]
        fn parsed_traceparent_formats_to_the_same_text(value in "[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}.{0,3}") {
            if let Some(Parent { trace, span, flags }) = Parent::parse(value.as_bytes()) {
                let written = format!("-{trace:032x}-{span:016x}-{flags:02x}");
                proptest::prop_assert_eq!(&value[2..55], written);
            }
        }

        #[test]
        fn arbitrary_bytes_are_rejected_as_a_traceparent(value in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            proptest::prop_assert_eq!(Parent::parse(&value), None);
        }
    }

    #[test]
    fn gateway_limits_the_sampled_traces_of_callers_per_second() {
        let followed = Followed::new();
        let at = |millis| followed.began + Duration::from_millis(millis);
        let admitted =
            |per_second, millis| (0..1000).filter(|_| followed.admit(per_second, at(millis))).count();
        assert_eq!(admitted(0, 0), 0);
        assert_eq!(admitted(10, 0), 10);
        assert_eq!(admitted(10, 500), 5);
        assert_eq!(admitted(10, 501), 0);
        assert_eq!(admitted(10, 9000), 10, "what was not used is not kept");
    }
}
