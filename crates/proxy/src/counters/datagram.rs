//! Why datagrams are dropped.

/// Why a datagram was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DroppedDatagram {
    /// No route matches the datagram.
    NoRoute,
    /// The upstream has no endpoint.
    NoEndpoint,
    /// The worker has reached the limit of clients that exchange datagrams.
    TooManyFlows,
    /// The datagram could not be sent: there is no room, or no program listens.
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
