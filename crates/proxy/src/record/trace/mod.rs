//! Traces: sampling of requests, and the export of the gateway's spans to a collector.
//!
//! A worker decides when a request begins, and writes the span when the request ends, in the encoding for the collector.
//! Each second, or when there are many spans, the worker passes them to a separate thread that sends them (OTLP over
//! HTTP). Neither waits for the other: spans without room are dropped and counted.
//!
//! | module | purpose |
//! |---|---|
//! | [`context`] | `traceparent`: the trace of a request |
//! | [`span`] | the attributes of a span |
//! | [`buffer`] | the spans that a worker has not passed on yet |
//! | [`export`] | the thread that sends spans, and their fate |

mod buffer;
mod context;
mod export;
mod span;

pub(crate) use buffer::SpanBuffer;
pub(crate) use context::{Decision, Trace};
pub(crate) use export::Exporter;
