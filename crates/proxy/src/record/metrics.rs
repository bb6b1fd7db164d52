//! The sink of counters.

use std::time::Duration;

use super::{CLOSED, RequestRecord};
use crate::counters::{RouteShard, RouteStats, Series, Tallies, Tally};

/// Counts a finished request for its route and its consumer.
pub(super) fn count(record: &RequestRecord<'_>) {
    if let Some(route) = &record.route {
        let shard = route.stats.shards().of(route.worker);
        if route.stats.has_series()
            && let Some(series) = series(record, route.stats, shard)
        {
            let sizes = (record.request_bytes, record.bytes);
            series.count(record.is_complete, record.duration, sizes, record.endpoint_times);
        } else {
            count_route(record, shard);
        }
    }
    if let Some((_, shard)) = record.consumer {
        result(record, &shard.responses, &shard.aborted).add(1);
        shard.micros.add(micros(Some(record.duration)));
        shard.endpoint_micros.add(micros(record.endpoint_duration));
        shard.bytes_out.add(record.bytes);
    }
}

fn count_route(record: &RequestRecord<'_>, shard: &RouteShard) {
    result(record, &shard.responses, &shard.aborted).add(1);
    shard.latency.record(record.duration);
    shard.endpoint_micros.add(micros(record.endpoint_duration));
    shard.bytes_out.add(record.bytes);
}

/// The series of the request, unless a limit of series is reached.
fn series<'s>(record: &RequestRecord<'_>, stats: &RouteStats, shard: &'s RouteShard) -> Option<&'s Series> {
    let status = if record.status == 0 { CLOSED } else { record.status };
    stats.series_of(shard, record.head.head.method, status, record.canary)
}

/// The counter of the status, or of requests without a complete response.
fn result<'c>(record: &RequestRecord<'_>, responses: &'c Tallies<5>, aborted: &'c Tally) -> &'c Tally {
    let class = usize::from(record.status / 100).checked_sub(1).filter(|_| record.is_complete);
    class.and_then(|class| responses.get(class)).unwrap_or(aborted)
}

fn micros(duration: Option<Duration>) -> u64 {
    duration.map_or(0, |duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX))
}
