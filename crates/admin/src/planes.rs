//! What a process knows of the other plane, where the two are apart.

use serde_json::Value;

/// The other plane now.
#[derive(Clone, Debug, Default)]
pub struct Planes {
    /// For `/metrics`.
    pub measures: Vec<Measure>,
    /// For `/planes`.
    pub document: Value,
}

/// A number for `/metrics`.
#[derive(Clone, Copy, Debug)]
pub struct Measure {
    /// Its name; that of a counter without `_total`.
    pub name: &'static str,
    /// What it is.
    pub help: &'static str,
    /// The number.
    pub value: Number,
}

/// What a number does.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    /// It only grows.
    Counter(u64),
    /// It is what it is now.
    Gauge(u64),
}

impl Measure {
    /// A number that only grows.
    #[must_use]
    pub fn counter(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value: Number::Counter(value) }
    }

    /// A number that is what it is now.
    #[must_use]
    pub fn gauge(name: &'static str, help: &'static str, value: u64) -> Self {
        Self { name, help, value: Number::Gauge(value) }
    }
}
