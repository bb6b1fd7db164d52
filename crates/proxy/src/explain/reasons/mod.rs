//! The reasons in the access log: the cause of each, and its cure.

/// A reason in the access log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The name in the access log and in metrics.
    pub name: &'static str,
    /// The cause, as a sentence.
    pub cause: &'static str,
    /// The cure, as a sentence.
    pub cure: &'static str,
}

/// The reason with a name.
#[must_use]
pub fn of(_name: &str) -> Option<&'static Reason> {
    None
}
