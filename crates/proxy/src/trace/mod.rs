//! Traces: which requests have a span of the gateway, and how it comes to a collector.
//!
//! A worker decides when a request begins, and writes the span when it ends, as a part of the message that the collector
//! gets. Each second, or when there are many, it passes them on to a thread of its own that sends them (OTLP over HTTP). Of the
//! two nobody waits for the other: what there is no room for is dropped and counted.
//!
//! | module | what |
//! |---|---|
//! | [`context`] | `traceparent`: which trace a request is part of |
//! | [`span`] | what is told of a request |
//! | [`buffer`] | the spans that a worker has not passed on yet |
//! | [`export`] | the thread that sends them, and what becomes of them |
//! | [`protobuf`] | how messages are written |

mod buffer;
mod context;
mod export;
mod protobuf;
mod span;

pub(crate) use buffer::SpanBuffer;
pub(crate) use context::{Decision, Trace};
pub(crate) use export::Exporter;
pub use export::{SpanLoss, SpanStats};
pub(crate) use span::Span;
