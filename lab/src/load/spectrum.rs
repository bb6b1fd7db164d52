//! Distributions of latency, as wrk2 and HdrHistogram print them.

use std::fmt::Write as _;

use hdrhistogram::Histogram;

/// The percentiles in reports, with their quantiles.
pub(crate) const PERCENTILES: [(&str, f64); 9] = [
    ("50", 0.5),
    ("75", 0.75),
    ("90", 0.9),
    ("95", 0.95),
    ("99", 0.99),
    ("99.9", 0.999),
    ("99.99", 0.9999),
    ("99.999", 0.99999),
    ("99.9999", 0.999_999),
];

/// The resolution of a spectrum: 5 steps for each halving of the rest, as in wrk2.
const STEPS: u32 = 5;

/// One line of a spectrum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// In microseconds.
    pub(crate) value: u64,
    /// 0 to 1.
    pub(crate) quantile: f64,
    /// The number of requests at or below the value.
    pub(crate) count: u64,
}

/// The value in microseconds at or below which this share (0 to 1) lies.
pub(crate) fn percentile(histogram: &Histogram<u64>, quantile: f64) -> u64 {
    histogram.value_at_quantile(quantile).min(histogram.max())
}

/// The spectrum of a histogram.
pub(crate) fn points(histogram: &Histogram<u64>) -> impl Iterator<Item = Point> {
    let mut count = 0;
    histogram.iter_quantiles(STEPS).map(move |step| {
        count += step.count_since_last_iteration();
        let value = step.value_iterated_to().min(histogram.max());
        Point { value, quantile: step.quantile_iterated_to(), count }
    })
}

/// The spectrum in milliseconds as wrk2 prints it.
pub(crate) fn detailed(histogram: &Histogram<u64>) -> String {
    spectrum(histogram, [12, 12, 12], 6)
}

/// The spectrum in milliseconds as a file for HdrHistogram's plotter.
pub(crate) fn hgrm(histogram: &Histogram<u64>) -> String {
    spectrum(histogram, [14, 10, 14], 12)
}

/// The spectrum, with columns of these widths after the column of values, and this many digits of each quantile.
fn spectrum(histogram: &Histogram<u64>, [share, total, rest]: [usize; 3], digits: usize) -> String {
    let mut out = format!(
        "{:>12} {:>share$} {:>total$} {:>rest$}\n\n",
        "Value", "Percentile", "TotalCount", "1/(1-Percentile)"
    );
    for Point { value, quantile, count } in points(histogram) {
        let millis = value as f64 / 1e3;
        let inverse = inverse(quantile);
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{millis:12.3} {quantile:share$.digits$} {count:total$} {inverse:>rest$}");
    }
    out + &footer(histogram)
}

fn inverse(quantile: f64) -> String {
    if quantile < 1.0 { format!("{:.2}", 1.0 / (1.0 - quantile)) } else { "inf".to_owned() }
}

fn footer(histogram: &Histogram<u64>) -> String {
    let (mean, stdev, max) = (histogram.mean() / 1e3, histogram.stdev() / 1e3, histogram.max() as f64 / 1e3);
    let (count, buckets) = (histogram.len(), histogram.buckets());
    format!(
        "#[Mean    = {mean:12.3}, StdDeviation   = {stdev:12.3}]\n\
         #[Max     = {max:12.3}, Total count    = {count:12}]\n\
         #[Buckets = {buckets:12}, SubBuckets     = {:12}]\n",
        2048
    )
}

#[cfg(test)]
mod tests {
    use super::super::counts::Counts;
    use super::super::nanos::Nanos;
    use super::*;

    fn nothing() -> Histogram<u64> {
        let second = Nanos::from_millis(1000);
        Counts::new(second, second).latency
    }

    /// 1,000,000 values: 1 us to 1,000 us, a thousand times each.
    fn even() -> Histogram<u64> {
        let mut histogram = nothing();
        for value in 1..=1000 {
            histogram.record_n(value, 1000).unwrap();
        }
        histogram
    }

    #[test]
    fn percentiles_of_a_histogram_match_the_recorded_values() {
        let histogram = even();
        let values: Vec<u64> =
            PERCENTILES.iter().map(|(_, quantile)| percentile(&histogram, *quantile)).collect();
        assert_eq!(values, [500, 750, 900, 950, 990, 999, 1000, 1000, 1000]);
    }

    #[test]
    fn latency_spectrum_ends_at_100_percent() {
        let points: Vec<Point> = points(&even()).collect();
        assert!(points.is_sorted_by_key(|point| point.count));
        assert_eq!(points.last(), Some(&Point { value: 1000, quantile: 1.0, count: 1_000_000 }));
        let middle = points.iter().find(|point| point.quantile == 0.5).unwrap();
        assert_eq!((middle.value, middle.count), (500, 500_000));
    }

    #[test]
    fn spectrum_is_printed_in_the_format_of_wrk2() {
        let text = detailed(&even());
        assert!(text.starts_with("       Value   Percentile   TotalCount 1/(1-Percentile)\n\n"), "{text}");
        assert!(text.contains("\n       0.500     0.500000       500000         2.00\n"), "{text}");
        assert!(text.contains("\n       1.000     1.000000      1000000          inf\n"), "{text}");
        assert!(text.contains("#[Mean    =        0.500, StdDeviation   =        0.289]\n"), "{text}");
        assert!(text.contains("#[Max     =        1.000, Total count    =      1000000]\n"), "{text}");
        let file = hgrm(&even());
        assert!(file.contains("\n       0.500 0.500000000000     500000           2.00\n"), "{file}");
    }

    #[test]
    fn empty_histogram_is_printed_as_a_spectrum_of_zero_requests() {
        let nothing = nothing();
        assert_eq!(percentile(&nothing, 0.999_999), 0);
        assert!(detailed(&nothing).contains("Total count    =            0"));
    }
}
