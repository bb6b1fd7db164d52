//! A strict parser of OpenMetrics text. Every scraper accepts the text that this parser accepts.

use std::collections::{BTreeMap, BTreeSet};

/// Label names and values.
pub(crate) type Labels = BTreeMap<String, String>;

#[derive(Debug, Default)]
pub(crate) struct Exposition {
    families: BTreeMap<String, Family>,
    samples: BTreeMap<(String, Labels), f64>,
}

#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    unit: Option<String>,
}

impl Exposition {
    /// Parses a scrape. Panics if the text is malformed.
    pub(crate) fn parse(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("the last line is # EOF");
        let mut exposition = Self::default();
        let mut current = String::new();
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => current = exposition.metadata(comment, &current),
                None => exposition.sample(line, &current),
            }
        }
        for (name, family) in &exposition.families {
            assert!(!family.help.is_empty() && !family.kind.is_empty(), "{name} has HELP and TYPE");
        }
        exposition.check_histograms();
        exposition
    }

    /// The sum of the samples with this name and at least these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let matching = |have: &Labels| labels.iter().all(|(k, v)| have.get(*k).is_some_and(|have| have == v));
        let samples = self.samples.iter().filter(|((of, have), _)| of == name && matching(have));
        samples.fold(0.0, |sum, (_, value)| sum + value)
    }

    /// The value of the one sample of this name with exactly these labels.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// The number of samples with this name.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.samples.keys().filter(|(of, _)| of == name).count()
    }

    /// The values of a label over all samples of this name.
    pub(crate) fn label_values(&self, name: &str, label: &str) -> BTreeSet<&str> {
        let samples = self.samples.keys().filter(|(of, _)| of == name);
        samples.filter_map(|(_, labels)| labels.get(label).map(String::as_str)).collect()
    }

    pub(crate) fn families(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    fn metadata(&mut self, comment: &str, current: &str) -> String {
        let mut words = comment.splitn(3, ' ');
        let mut word = || words.next().expect("a keyword, a name and a value").to_owned();
        let (keyword, name, value) = (word(), word(), word());
        if keyword == "HELP" {
            let old = self.families.insert(name.clone(), Family { help: value, ..Family::default() });
            assert!(old.is_none(), "{name} is one block");
            return name;
        }
        assert_eq!(name, current, "metadata of another family");
        let family = self.families.get_mut(&name).expect("HELP comes first");
        match keyword.as_str() {
            "TYPE" => family.kind = value,
            "UNIT" => {
                assert!(name.ends_with(&format!("_{value}")), "{name} ends with its unit");
                family.unit = Some(value);
            }
            other => panic!("{other} is no keyword"),
        }
        name
    }

    fn sample(&mut self, line: &str, current: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a series and a value");
        let (name, labels) = match series.split_once('{') {
            Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}').expect("a brace"))),
            None => (series, Labels::new()),
        };
        let suffix = name.strip_prefix(current).unwrap_or_else(|| panic!("{name} is not of {current}"));
        let kind = &self.families[current].kind;
        let suffixes: &[&str] = match kind.as_str() {
            "counter" => &["_total"],
            "gauge" | "unknown" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other} is not a type that is used"),
        };
        assert!(suffixes.contains(&suffix), "{name} does not go with {current}, a {kind}");
        let unit = ["seconds", "bytes"].into_iter().find(|unit| current.ends_with(&format!("_{unit}")));
        assert_eq!(self.families[current].unit.as_deref(), unit, "{current} declares its unit");
        let value: f64 = value.parse().expect("a number");
        assert!(value.is_finite() && value >= 0.0, "{line}");
        let old = self.samples.insert((name.to_owned(), labels), value);
        assert!(old.is_none(), "{line} is a duplicate");
    }

    fn check_histograms(&self) {
        for name in
            self.families.iter().filter(|(_, family)| family.kind == "histogram").map(|(name, _)| name)
        {
            let mut series = BTreeMap::<Labels, Vec<(f64, f64)>>::new();
            for ((of, labels), count) in &self.samples {
                if *of == format!("{name}_bucket") {
                    let mut labels = labels.clone();
                    let bound = labels.remove("le").expect("a bound").replace("+Inf", "inf");
                    series.entry(labels).or_default().push((bound.parse().expect("a number"), *count));
                }
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(
                    buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1),
                    "{name} {labels:?} {buckets:?}"
                );
                let (last, all) = buckets[buckets.len() - 1];
                assert_eq!(last, f64::INFINITY);
                assert_eq!(self.samples[&(format!("{name}_count"), labels.clone())], all);
                assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)));
            }
            let (counts, lasts) = (self.count(&format!("{name}_count")), self.count(&format!("{name}_sum")));
            assert_eq!(counts, lasts);
        }
    }
}

/// `name="value",...` with `\\`, `\"` and `\n` in values.
fn parse_labels(mut text: &str) -> Labels {
    let mut labels = Labels::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").expect("a name and a quote");
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(!name.is_empty() && name.chars().all(valid), "{name} is a label name");
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next().expect("an escape").1 {
                    'n' => '\n',
                    other @ ('\\' | '"') => other,
                    other => panic!("\\{other} is no escape"),
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} is a duplicate");
        text = match &rest[end..] {
            "" => "",
            more => more.strip_prefix(',').filter(|more| !more.is_empty()).expect("a comma and a label"),
        };
    }
    labels
}

#[test]
fn openmetrics_parser_rejects_malformed_text() {
    let read = |text: &str| std::panic::catch_unwind(|| Exposition::parse(text));
    let head = "# HELP a b\n# TYPE a counter\n";
    let escaped =
        read(&format!("{head}a_total{{x=\"1,\\\"}}\\\\\\n\",y=\"\"}} 2\n# EOF\n")).expect("well-formed");
    assert_eq!(escaped.value("a_total", &[("x", "1,\"}\\\n"), ("y", "")]), Some(2.0));
    for bad in [
        "a_total 1\n",
        "a_total 1\n# EOF",
        "a_total 1\na_total 2\n# EOF\n",
        "a 1\n# EOF\n",
        "b_total 1\n# EOF\n",
        "a_total{x=\"1\",x=\"2\"} 1\n# EOF\n",
        "a_total{x=\"\\q\"} 1\n# EOF\n",
        "a_total -1\n# EOF\n",
        "# HELP a b\n# EOF\n",
        "# HELP h b\n# TYPE h histogram\nh_bucket{le=\"1.0\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_count 1\nh_sum 1\n# EOF\n",
        "# HELP h b\n# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_count 2\nh_sum 1\n# EOF\n",
        "# HELP s_seconds b\n# TYPE s_seconds gauge\ns_seconds 1\n# EOF\n",
    ] {
        assert!(read(&format!("{head}{bad}")).is_err(), "{bad}");
    }
}
