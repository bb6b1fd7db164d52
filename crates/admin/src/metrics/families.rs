//! Writing metric families.

use std::fmt;

use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeLabelSet, MetricEncoder, NoLabelSet,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;
use sluicegate_proxy::counters::{BOUNDS_MICROS, HistogramTotal};

/// Writes one family after another. Callers pass full names, except for the `_total` of counters and the `_info` of
/// infos, which are suffixes of the samples and not of the family.
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

    /// Several samples of an info.
    pub(super) fn infos<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = L>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Info)?;
        samples.into_iter().try_for_each(|labels| family.encode_info(&labels))
    }

    /// Counters whose samples have the name of the family, which has any suffix. OpenMetrics has no such counters, so their type
    /// is unknown there.
    pub(super) fn plain_counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        self.samples(name, help, MetricType::Unknown, samples)
    }

    /// A histogram from microseconds.
    pub(super) fn times<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Counter)?;
        for (labels, micros) in samples {
            count(&mut family.encode_family(&labels)?, &seconds(micros))?;
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
        samples: impl IntoIterator<Item = (L, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        self.samples(name, help, MetricType::Gauge, samples)
    }

    fn samples<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (L, impl EncodeGaugeValue)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, kind)?;
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

    /// Histograms with other buckets than those of the counters.
    pub(super) fn scaled_histograms<'t, L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        scale: &Scale,
        samples: impl IntoIterator<Item = (L, &'t HistogramTotal)>,
    ) -> fmt::Result {
        let mut family = self.family(name, help, MetricType::Histogram)?;
        for (labels, total) in samples {
            let buckets = scale.buckets(total);
            let sum = scale.value(total.sum);
            family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(
                sum,
                total.count(),
                &buckets,
                None,
            )?;
        }
        Ok(())
    }

    /// The last word of the name is the unit, which is also declared (OpenMetrics 1.0, "Unit").
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

/// The buckets of a histogram in the metrics.
pub(super) struct Scale {
    /// The bounds of the counters.
    pub(super) bounds: &'static [u64],
    /// The bounds in the metrics, a part of `bounds`.
    pub(super) shown: &'static [u64],
    /// The value of the counters for one in the metrics.
    pub(super) per_unit: f64,
}

impl Scale {
    /// A value in the unit of the metrics.
    #[expect(clippy::cast_precision_loss, reason = "exact below 2^53")]
    pub(super) fn value(&self, value: u64) -> f64 {
        value as f64 / self.per_unit
    }

    /// The upper bounds of buckets, and their counts; not cumulative.
    fn buckets(&self, total: &HistogramTotal) -> Vec<(f64, u64)> {
        let shown = self.shown.iter().map(|bound| self.value(*bound));
        let mut buckets: Vec<_> = shown.chain([f64::INFINITY]).map(|bound| (bound, 0)).collect();
        let bounds = self.bounds.iter().copied().chain([u64::MAX]);
        for (bound, count) in bounds.zip(total.buckets) {
            buckets[self.shown.partition_point(|shown| *shown < bound)].1 += count;
        }
        buckets
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
    // The encoder makes the buckets cumulative.
    encoder.encode_histogram::<NoLabelSet>(seconds(total.sum), total.count(), &buckets, None)
}

#[expect(clippy::cast_precision_loss, reason = "exact below 2^53 microseconds, 285 years")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use prometheus_client::collector::Collector;
    use prometheus_client::encoding::text::encode;
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct OneOfEach;

    impl Collector for OneOfEach {
        fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
            let mut families = Families::new(encoder);
            families.info("a_build", "A", &[("b", "c")])?;
            families.counters("c", "C", [([("d", "e")], 1), ([("d", "f")], 2)])?;
            families.gauge("g_bytes", "G", 3_u64)?;
            let mut total = HistogramTotal { sum: 61_500_000, ..HistogramTotal::default() };
            (total.buckets[0], total.buckets[6], total.buckets[15]) = (1, 2, 4);
            families.histogram("h_seconds", "H", &total)
        }
    }

    #[test]
    fn each_type_of_metric_is_encoded_in_the_format_of_openmetrics() -> fmt::Result {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(OneOfEach));
        let mut text = String::new();
        encode(&mut text, &registry)?;
        assert_eq!(
            text,
            "\
# HELP a_build A
# TYPE a_build info
a_build_info{b=\"c\"} 1
# HELP c C
# TYPE c counter
c_total{d=\"e\"} 1
c_total{d=\"f\"} 2
# HELP g_bytes G
# TYPE g_bytes gauge
# UNIT g_bytes bytes
g_bytes 3
# HELP h_seconds H
# TYPE h_seconds histogram
# UNIT h_seconds seconds
h_seconds_sum 61.5
h_seconds_count 7
h_seconds_bucket{le=\"0.00025\"} 1
h_seconds_bucket{le=\"0.0005\"} 1
h_seconds_bucket{le=\"0.001\"} 1
h_seconds_bucket{le=\"0.0025\"} 1
h_seconds_bucket{le=\"0.005\"} 1
h_seconds_bucket{le=\"0.01\"} 1
h_seconds_bucket{le=\"0.025\"} 3
h_seconds_bucket{le=\"0.05\"} 3
h_seconds_bucket{le=\"0.1\"} 3
h_seconds_bucket{le=\"0.25\"} 3
h_seconds_bucket{le=\"0.5\"} 3
h_seconds_bucket{le=\"1.0\"} 3
h_seconds_bucket{le=\"2.5\"} 3
h_seconds_bucket{le=\"5.0\"} 3
h_seconds_bucket{le=\"10.0\"} 3
h_seconds_bucket{le=\"+Inf\"} 7
# EOF
"
        );
        Ok(())
    }
}
