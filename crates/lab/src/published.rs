//! What published studies found: the figures that stand beside what is measured. `lab/published/*.yaml`.

use serde::Deserialize;

/// The studies, by the name that an experiment gives.
const INCLUDED: [(&str, &str); 2] = [
    ("ingress-2020", include_str!("../../../lab/published/ingress-2020.yaml")),
    ("sizing-2021", include_str!("../../../lab/published/sizing-2021.yaml")),
];

/// A study. It has contestants, or rows.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Published {
    pub(crate) title: String,
    /// Its year, for column heads and plots.
    pub(crate) short: String,
    /// How it was measured.
    pub(crate) setting: String,
    /// What it found while nothing changed.
    pub(crate) unchanging: Option<String>,
    /// What each did while endpoints changed.
    #[serde(default)]
    pub(crate) contestants: Vec<Contestant>,
    /// What so many cores did.
    #[serde(default)]
    pub(crate) rows: Vec<Sizing>,
}

/// What a gateway did in a study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) version: String,
    /// How it learns of changes, in a word.
    pub(crate) way: String,
    pub(crate) errors: Errors,
    /// In the study's words.
    pub(crate) latency: String,
    /// What of its latency the text states.
    pub(crate) curve: Vec<CurvePoint>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Errors {
    pub(crate) connect: u64,
    pub(crate) timeout: u64,
    pub(crate) read: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CurvePoint {
    pub(crate) percentile: f64,
    pub(crate) seconds: f64,
}

/// What so many cores did.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Sizing {
    pub(crate) cores: usize,
    /// Requests a second.
    pub(crate) rps: Places,
    /// New TLS connections a second.
    pub(crate) tps: Places,
    /// On Kubernetes, with hyper-threading.
    pub(crate) tps_hyper_threading: f64,
    /// The hardware's cost in US dollars.
    pub(crate) cost: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Places {
    pub(crate) metal: f64,
    pub(crate) hypervisor: f64,
    pub(crate) kubernetes: f64,
}

/// The study of this name; [`None`] if there is none, as when results are read that a later version wrote.
pub(crate) fn find(name: &str) -> Option<Published> {
    let (_, text) = INCLUDED.iter().find(|(included, _)| *included == name)?;
    serde_saphyr::from_str(text).ok()
}

/// All their names, for people.
pub(crate) fn names() -> String {
    INCLUDED.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_study_can_be_read() {
        for (name, _) in INCLUDED {
            let study = find(name).unwrap_or_else(|| panic!("{name} cannot be read"));
            assert_ne!(study.contestants.is_empty(), study.rows.is_empty(), "{name}");
        }
        assert!(find("none").is_none());
    }

    #[test]
    fn the_figures_are_those_of_the_studies() {
        let ingress = find("ingress-2020").unwrap();
        let sums: Vec<u64> = ingress
            .contestants
            .iter()
            .map(|each| each.errors.connect + each.errors.timeout + each.errors.read)
            .collect();
        assert_eq!(sums, [33_365 + 309 + 4_650, 8_809, 0]);
        let sizing = find("sizing-2021").unwrap();
        let last = sizing.rows.last().unwrap();
        assert_eq!((last.cores, last.rps.kubernetes, last.tps.metal), (8, 190_000.0, 5_200.0));
    }
}
