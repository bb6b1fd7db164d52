//! The samples of a metrics page, and what happened between two pages.

use std::collections::HashMap;

/// The samples of one scrape of `/metrics`, by name.
#[derive(Debug, Default)]
pub(crate) struct Samples(HashMap<String, Vec<Sample>>);

/// One line of a metrics page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    /// Sorted by name.
    labels: Vec<(String, String)>,
    /// The value.
    pub(crate) value: f64,
}

impl Sample {
    /// The value of a label. Empty, if the sample has no such label.
    pub(crate) fn label(&self, name: &str) -> &str {
        self.labels.iter().find(|(label, _)| label == name).map_or("", |(_, value)| value)
    }
}

impl Samples {
    /// Reads a page in the text format of Prometheus (version 0.0.4). Lines that are no sample are passed over.
    pub(crate) fn read(page: &str) -> Self {
        let mut samples = Self::default();
        for (name, sample) in page.lines().filter_map(sample) {
            match samples.0.get_mut(name) {
                Some(family) => family.push(sample),
                None => drop(samples.0.insert(name.to_owned(), vec![sample])),
            }
        }
        samples
    }

    /// The samples with this name.
    pub(crate) fn of(&self, name: &str) -> &[Sample] {
        self.0.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of the samples with this name. `None`: there is no such sample.
    pub(crate) fn sum(&self, name: &str) -> Option<f64> {
        let samples = self.of(name);
        (!samples.is_empty()).then(|| samples.iter().map(|sample| sample.value).sum())
    }

    /// The names of all samples, in no order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Each counter with this name as what it counted since an earlier page of the same gateway. A counter that the earlier page does
    /// not have, or that is lower than before, started meanwhile from 0.
    pub(crate) fn since<'a>(&'a self, earlier: &Self, name: &str) -> impl Iterator<Item = (&'a Sample, f64)> {
        let before = earlier.of(name).iter().map(|sample| (&sample.labels, sample.value));
        let before: HashMap<Vec<(String, String)>, f64> =
            before.map(|(labels, value)| (labels.clone(), value)).collect();
        self.of(name).iter().map(move |sample| match before.get(&sample.labels) {
            Some(value) if *value <= sample.value => (sample, sample.value - value),
            _ => (sample, sample.value),
        })
    }
}

/// Reads `name{label="value",...} 1.5`.
fn sample(line: &str) -> Option<(&str, Sample)> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (mut labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    labels.sort();
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// Reads labels up to the closing brace. Returns them with the rest of the line.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        rest = loop {
            match chars.next()? {
                (at, '"') => break &after[at + 1..],
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        labels.push((name.to_owned(), value));
    }
}

/// The value of a gauge that counts things.
pub(crate) fn whole(value: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a gauge of a gateway counts things"
    )]
    let whole = value.max(0.0) as u64;
    whole
}

/// A histogram, as counts below upper bounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram {
    /// The upper bounds with the counts of all observations up to them, sorted.
    buckets: Vec<(f64, f64)>,
}

impl Histogram {
    /// Adds the count of a bucket, of one of several histograms with the same bounds.
    pub(crate) fn add(&mut self, bound: &str, count: f64) {
        let Ok(bound) = bound.parse::<f64>() else { return };
        match self.buckets.binary_search_by(|(known, _)| known.total_cmp(&bound)) {
            Ok(at) => self.buckets[at].1 += count,
            Err(at) => self.buckets.insert(at, (bound, count)),
        }
    }

    /// An estimate of the quantile, as `histogram_quantile` of Prometheus: the observations of a bucket are taken to be spread evenly.
    /// `None` without an observation.
    pub(crate) fn quantile(&self, quantile: f64) -> Option<f64> {
        let all = self.buckets.last().map(|(_, count)| *count).filter(|count| *count > 0.0)?;
        let rank = quantile * all;
        let at = self.buckets.iter().position(|(_, count)| *count >= rank)?;
        let (lower, below) = if at == 0 { (0.0, 0.0) } else { self.buckets[at - 1] };
        let (upper, count) = self.buckets[at];
        if upper.is_infinite() {
            return Some(lower);
        }
        let share = if count > below { (rank - below) / (count - below) } else { 1.0 };
        Some(lower + (upper - lower) * share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_read_with_its_labels_and_escapes() {
        let page = "# HELP a b\n# TYPE a counter\na 1\nb{x=\"1\",a=\"q\\\"\\\\\\n,}\"} 2.5 1700000000\nnonsense\nc{x=\"\n{} \n";
        let samples = Samples::read(page);
        assert_eq!(samples.sum("a"), Some(1.0));
        let [b] = samples.of("b") else { panic!("{samples:?}") };
        assert_eq!((b.label("a"), b.label("x"), b.label("y"), b.value), ("q\"\\\n,}", "1", "", 2.5));
        assert_eq!((samples.sum("c"), samples.sum("nonsense")), (None, None));
    }

    #[test]
    fn counter_counts_from_the_earlier_page_or_from_0() {
        let earlier = Samples::read("n{a=\"1\"} 5\nn{a=\"2\"} 9\n");
        let later = Samples::read("n{a=\"1\"} 8\nn{a=\"2\"} 4\nn{a=\"3\"} 2\n");
        let counted: Vec<_> =
            later.since(&earlier, "n").map(|(sample, count)| (sample.label("a"), count)).collect();
        assert_eq!(counted, [("1", 3.0), ("2", 4.0), ("3", 2.0)]);
    }

    #[test]
    fn quantile_lies_in_its_bucket() {
        let mut histogram = Histogram::default();
        assert_eq!(histogram.quantile(0.5), None);
        for (bound, count) in [("+Inf", 100.0), ("1", 50.0), ("2", 90.0)] {
            histogram.add(bound, count);
        }
        assert_eq!(histogram.quantile(0.25), Some(0.5));
        assert_eq!(histogram.quantile(0.7), Some(1.5));
        assert_eq!(histogram.quantile(0.99), Some(2.0), "above the highest bound");
        histogram.add("1", 10.0);
        assert_eq!(histogram.quantile(0.6), Some(1.0));
    }

    #[test]
    fn page_with_any_bytes_does_not_panic() {
        for page in [
            "{",
            "a{",
            "a{b",
            "a{b=\"",
            "a{b=\"\\",
            "a{b=\"c\"",
            "a{b=\"c\"} x",
            "\u{e9}{\u{e9}=\"\u{e9}\"} 1",
            " ",
            "a b",
        ] {
            let _ = Samples::read(page);
        }
    }
}
