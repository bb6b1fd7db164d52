//! Why datagrams are dropped.

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedDatagram {
    /// No route takes it.
    NoRoute,
    /// There is no endpoint for it.
    NoEndpoint,
    /// The worker exchanges datagrams with as many clients as it may.
    TooManyFlows,
    /// It could not be sent on: there is no room for it, or nobody takes it.
    NotSent,
}

impl DroppedDatagram {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::NoRoute, Self::NoEndpoint, Self::TooManyFlows, Self::NotSent];

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::NoRoute => "no_route",
            Self::NoEndpoint => "no_endpoint",
            Self::TooManyFlows => "too_many_flows",
            Self::NotSent => "not_sent",
        }
    }
}
