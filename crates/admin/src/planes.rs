//! The state of the other plane, if the planes are split.

use std::sync::Arc;

use serde_json::Value;

/// The current state of the other plane, and of the Lease.
#[derive(Clone, Debug, Default)]
pub struct Planes {
    /// The Lease, if the process may hold it.
    pub lease: Option<Lease>,
    /// The numbers for `/metrics`.
    pub measures: Vec<Measure>,
    /// The document for `/planes`.
    pub document: Value,
}

/// The Lease whose holder writes into the cluster.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The name of the Lease.
    pub name: Arc<str>,
    /// Whether this process holds the Lease.
    pub is_held: bool,
}

/// A number for `/metrics`.
#[derive(Clone, Debug)]
pub struct Measure {
    /// The name, without the `_total` of a counter.
    pub name: &'static str,
    /// The help text.
    pub help: &'static str,
    /// The value.
    pub value: Number,
}

/// The metric type of a number, with the value.
#[derive(Clone, Debug)]
pub enum Number {
    /// A counter, which only grows.
    Counter(u64),
    /// Counters with a label: the name of the label, and the value of the label and the value of each counter.
    Counters(&'static str, Vec<(&'static str, u64)>),
    /// A gauge, the current value.
    Gauge(u64),
}

impl Measure {
    /// A counter, which only grows.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value: Number::Counter(value) }
    }

    /// Counters by the value of a label.
    #[must_use]
    pub fn counters(
        name: &'static str,
        help: &'static str,
        label: &'static str,
        values: Vec<(&'static str, u64)>,
    ) -> Self {
        Self { name, help, value: Number::Counters(label, values) }
    }

    /// A gauge, the current value.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value: Number::Gauge(value) }
    }
}
