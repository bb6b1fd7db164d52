//! Writing families of metrics.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use sluicegate_proxy::telemetry::{BOUNDS_MICROS, HistogramTotal};

/// Writes one family after the other. Names are given in full, except for the `_total` of counters and the
/// `_info` of infos, which are suffixes of the samples and not of the family.
pub(super) struct Families<'e>(DescriptorEncoder<'e>);

impl<'e> Families<'e> {
    pub(super) fn new(encoder: DescriptorEncoder<'e>) -> Self {
        Self(encoder)
    }

    pub(super) fn info(&mut self, name: &str, help: &str, labels: &[(&str, &str)]) -> fmt::Result {
        self.family(name, help, MetricType::Info)?.encode_info(&labels)
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, value: impl EncodeCounterValue) -> fmt::Result {
        count(&mut self.family(name, help, MetricType::Counter)?, &value)
    }

    pub(super) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, value) in samples {
            count(&mut family.encode_family(&labels)?, &value)?;
        }
        Ok(())
    }

    pub(super) fn gauge(&mut self, name: &str, help: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.family(name, help, MetricType::Gauge)?.encode_gauge(&value)
    }

    pub(super) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Gauge)?;
        for (labels, value) in samples {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    pub(super) fn histogram(&mut self, name: &str, help: &str, total: &HistogramTotal) -> fmt::Result {
        distribution(&mut self.family(name, help, MetricType::Histogram)?, total)
    }

    pub(super) fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, HistogramTotal)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (labels, total) in samples {
            distribution(&mut family.encode_family(&labels)?, &total)?;
        }
        Ok(())
    }

    /// The unit is the last word of the name, and declared (OpenMetrics 1.0, "Unit").
    fn family<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        let (stem, unit) = match name.rsplit_once('_') {
            Some((stem, "seconds")) => (stem, Some(&Unit::Seconds)),
            Some((stem, "bytes")) => (stem, Some(&Unit::Bytes)),
            _ => (name, None),
        };
        self.0.encode_descriptor(stem, help, unit, kind)
    }
}

fn count(encoder: &mut MetricEncoder<'_>, value: &impl EncodeCounterValue) -> fmt::Result {
    encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
}

fn distribution(encoder: &mut MetricEncoder<'_>, total: &HistogramTotal) -> fmt::Result {
    let mut buckets = [(f64::INFINITY, 0); BOUNDS_MICROS.len() + 1];
    for (bucket, bound) in buckets.iter_mut().zip(BOUNDS_MICROS) {
        bucket.0 = seconds(bound);
    }
    for (bucket, count) in buckets.iter_mut().zip(total.buckets) {
        bucket.1 = count;
    }
    // The encoder makes them cumulative.
    encoder.encode_histogram::<NoLabelSet>(seconds(total.sum_micros), total.count(), &buckets, None)
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 microseconds, 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}
