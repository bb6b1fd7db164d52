//! The analytics of APIs: the sums of a minute that a data plane hands over.
//!
//! A [`Batch`] has one [`Series`] for each combination of dimensions that occurred. Names are in a table of the batch. The
//! encoding is CBOR, like the encoding of the model; readers skip unknown fields.
//!
//! | module | what |
//! |---|---|
//! | [`histogram`] | durations in buckets, with a relative error of at most 9 % |

pub mod histogram;

use minicbor::{Decode, Encode};

use crate::encoding::{Fault, encode};
pub use histogram::{Histogram, Times};

/// The name of requests that exceed the limit of series.
pub const OTHER: &str = "(other)";

/// The sums of one minute, or of a part of its series.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
#[cbor(map)]
pub struct Batch {
    /// The minute, as the number of minutes since 1970.
    #[n(0)]
    pub minute: u64,
    /// The names that the keys refer to. The first name is empty: the dimension does not apply.
    #[n(1)]
    pub names: Vec<String>,
    /// The series.
    #[n(2)]
    pub series: Vec<Series>,
}

/// The sums of the requests with the same dimensions.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Series {
    /// The dimensions.
    #[n(0)]
    pub key: Key,
    /// The sums.
    #[n(1)]
    pub values: Values,
}

/// The dimensions of a series. Each number except the status is the index of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Encode, Decode)]
pub struct Key {
    /// The route: kind, namespace, name and path pattern.
    #[n(0)]
    pub route: u32,
    /// The API: namespace and name.
    #[n(1)]
    pub api: u32,
    /// The version of the API.
    #[n(2)]
    pub version: u32,
    /// The environment of the API.
    #[n(3)]
    pub environment: u32,
    /// The operation of the API.
    #[n(4)]
    pub operation: u32,
    /// The consumer: namespace and name.
    #[n(5)]
    pub consumer: u32,
    /// The plan: namespace and name.
    #[n(6)]
    pub plan: u32,
    /// The endpoint: address and port.
    #[n(7)]
    pub endpoint: u32,
    /// The status that the client received; 499 if the client left before the response, and 0 for an incomplete response.
    #[n(8)]
    pub status: u16,
}

/// The sums of a series.
#[derive(Clone, Debug, Default, PartialEq, Encode, Decode)]
pub struct Values {
    /// The number of requests.
    #[n(0)]
    pub requests: u64,
    /// Requests that a rate limit, a concurrency limit or a quota denied.
    #[n(1)]
    pub limited: u64,
    /// Responses from the cache.
    #[n(2)]
    pub cache_hits: u64,
    /// Requests that the cache could not serve.
    #[n(3)]
    pub cache_misses: u64,
    /// Bytes of requests, heads included.
    #[n(4)]
    pub request_bytes: u64,
    /// Bytes of responses, heads included.
    #[n(5)]
    pub response_bytes: u64,
    /// The time from the head of the request to the end of the response.
    #[n(6)]
    pub total: Times,
    /// The part of this time from the last attempt at an endpoint to the end of the response.
    #[n(7)]
    pub upstream: Times,
    /// The rest of this time.
    #[n(8)]
    pub gateway: Times,
}

impl Values {
    /// Adds the sums of another series.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.limited += other.limited;
        self.cache_hits += other.cache_hits;
        self.cache_misses += other.cache_misses;
        self.request_bytes = self.request_bytes.saturating_add(other.request_bytes);
        self.response_bytes = self.response_bytes.saturating_add(other.response_bytes);
        self.total.add(&other.total);
        self.upstream.add(&other.upstream);
        self.gateway.add(&other.gateway);
    }
}

impl Batch {
    /// The number of requests of all series.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.series.iter().map(|series| series.values.requests).sum()
    }

    /// The encoding.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        encode(self, &mut ())
    }

    /// Decodes a batch, and checks that each key refers to names of the batch.
    ///
    /// # Errors
    /// If the bytes are no batch.
    pub fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let batch: Self = minicbor::decode(bytes)?;
        let names = batch.names.len();
        let is_known = |key: &Key| key.names().iter().all(|name| (*name as usize) < names);
        if !batch.series.iter().all(|series| is_known(&series.key)) {
            return Err(Fault::Unresolved("name"));
        }
        Ok(batch)
    }

    /// The same sums without consumers and endpoints: each has the name [`OTHER`], unless it does not apply.
    #[must_use]
    pub fn coarse(mut self) -> Self {
        let other = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(OTHER.to_owned());
        for Series { key, .. } in &mut self.series {
            for name in [&mut key.consumer, &mut key.endpoint] {
                if *name != 0 {
                    *name = other;
                }
            }
        }
        self.series.sort_unstable_by_key(|series| series.key);
        self.series.dedup_by(|next, sum| {
            let is_same = next.key == sum.key;
            if is_same {
                sum.values.add(&next.values);
            }
            is_same
        });
        self.without_unused_names()
    }

    /// Two batches with half of the series each.
    #[must_use]
    pub fn split(mut self) -> [Self; 2] {
        let series = self.series.split_off(self.series.len() / 2);
        let second = Self { minute: self.minute, names: self.names.clone(), series };
        [self.without_unused_names(), second.without_unused_names()]
    }

    fn without_unused_names(mut self) -> Self {
        let mut numbers = vec![None; self.names.len()];
        let mut names = vec![String::new()];
        for series in &mut self.series {
            for name in series.key.names_mut() {
                if *name == 0 {
                    continue;
                }
                let old = *name as usize;
                *name = *numbers[old].get_or_insert_with(|| {
                    names.push(std::mem::take(&mut self.names[old]));
                    u32::try_from(names.len() - 1).unwrap_or(u32::MAX)
                });
            }
        }
        self.names = names;
        self
    }
}

impl Key {
    /// The indices of names: route, API, version, environment, operation, consumer, plan, endpoint.
    #[must_use]
    pub fn names(&self) -> [u32; 8] {
        let Self { route, api, version, environment, operation, consumer, plan, endpoint, status: _ } = *self;
        [route, api, version, environment, operation, consumer, plan, endpoint]
    }

    fn names_mut(&mut self) -> [&mut u32; 8] {
        let Self { route, api, version, environment, operation, consumer, plan, endpoint, status: _ } = self;
        [route, api, version, environment, operation, consumer, plan, endpoint]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(consumer: u32, requests: u64) -> Series {
        let mut values = Values { requests, ..Values::default() };
        values.total.record(1000, requests);
        Series { key: Key { route: 1, consumer, status: 200, ..Key::default() }, values }
    }

    fn batch() -> Batch {
        let names = ["", "Ingress shop/shop /", "shop/ann", "shop/bob"].map(str::to_owned);
        Batch { minute: 7, names: names.into(), series: vec![series(2, 3), series(3, 4), series(0, 1)] }
    }

    #[test]
    fn encoded_batch_is_decoded_to_the_same_batch() {
        assert_eq!(Batch::decode(&batch().encode()), Ok(batch()));
    }

    #[test]
    fn halves_of_a_batch_have_their_series_and_names() {
        let [one, two] = batch().split();
        assert_eq!((one.requests(), two.requests()), (3, 5));
        assert_eq!(one.names, ["", "Ingress shop/shop /", "shop/ann"]);
        assert_eq!(two.names, ["", "Ingress shop/shop /", "shop/bob"]);
        assert_eq!(Batch::decode(&two.encode()), Ok(two));
    }

    #[test]
    fn batch_with_a_key_without_a_name_is_rejected() {
        let mut wrong = batch();
        wrong.series[0].key.endpoint = 4;
        assert_eq!(Batch::decode(&wrong.encode()), Err(Fault::Unresolved("name")));
    }

    #[test]
    fn coarse_batch_keeps_all_requests_and_drops_consumers() {
        let coarse = batch().coarse();
        assert_eq!(coarse.requests(), 8);
        assert_eq!(coarse.names, ["", "Ingress shop/shop /", OTHER]);
        let by_consumer: Vec<_> =
            coarse.series.iter().map(|series| (series.key.consumer, series.values.requests)).collect();
        assert_eq!(by_consumer, [(0, 1), (2, 7)]);
        assert_eq!(coarse.series[1].values.total.histogram.count(), 7);
        assert_eq!(Batch::decode(&coarse.encode()), Ok(coarse));
    }
}
