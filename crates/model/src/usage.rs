//! The uses of quotas, which data planes tell to the place that counts for all of them.

use minicbor::{Decode, Encode};

/// A quota of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Encode, Decode)]
#[cbor(map)]
pub struct QuotaName {
    /// The subscription: `namespace/name`.
    #[n(0)]
    pub subscription: Box<str>,
    /// The name of the quota.
    #[n(1)]
    pub quota: Box<str>,
    /// What the quota counts in which windows, as a text. A change starts a new count.
    #[n(2)]
    pub terms: Box<str>,
}

/// The uses of a quota in a window that were not told before. With `count` and `known` 0, the use is a question for the total.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct QuotaUse {
    /// The quota.
    #[n(0)]
    pub name: QuotaName,
    /// The start of the window, in seconds since 1970.
    #[n(1)]
    pub window: u64,
    /// The length of windows that start with the first request, in seconds; 0 for windows of the calendar.
    #[n(2)]
    pub length: u64,
    /// The uses.
    #[n(3)]
    pub count: u64,
    /// All uses of the window that the data plane knows, by all data planes: the place that counts may have lost its counts.
    #[n(4)]
    pub known: u64,
}

/// The uses of a quota by all data planes.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub struct QuotaTotal {
    /// The quota.
    #[n(0)]
    pub name: QuotaName,
    /// The start of the window, in seconds since 1970. Of windows that start with the first request, the earliest start.
    #[n(1)]
    pub window: u64,
    /// The uses.
    #[n(2)]
    pub count: u64,
}
