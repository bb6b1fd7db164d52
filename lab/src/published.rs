//! The results of published studies, which reports show beside the measurements. The files are `lab/published/*.yaml`.

use serde::Deserialize;

/// The studies by name. Experiments refer to a study by its name.
const INCLUDED: [(&str, &str); 3] = [
    ("ingress-2020", include_str!("../published/ingress-2020.yaml")),
    ("gateway-2019", include_str!("../published/gateway-2019.yaml")),
    ("sizing-2021", include_str!("../published/sizing-2021.yaml")),
];

/// A published study, with contestants, rows or claims.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Published {
    pub(crate) title: String,
    /// The year of the study, for column heads and plots.
    pub(crate) short: String,
    /// The setting of the measurement.
    pub(crate) setting: String,
    /// The result without changes of endpoints.
    pub(crate) unchanging: Option<String>,
    /// The results of each gateway while endpoints changed.
    #[serde(default)]
    pub(crate) contestants: Vec<Contestant>,
    /// The results for each number of cores.
    #[serde(default)]
    pub(crate) rows: Vec<Sizing>,
    /// The claimed advantages of the study's own gateway.
    #[serde(default)]
    pub(crate) claims: Vec<Claim>,
    /// The results of a gateway with functions and without.
    #[serde(default)]
    pub(crate) functions: Vec<WithFunctions>,
}

/// The advantage of a study's own gateway over the other gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Claim {
    /// The measured quantity.
    pub(crate) what: String,
    /// The statement of the study.
    pub(crate) says: String,
    /// The factor of the advantage.
    pub(crate) factor: f64,
    /// The kind of work that repeats the measurement, by its name in results.
    pub(crate) work: String,
    pub(crate) measure: Measure,
}

/// The compared quantity of a kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Measure {
    /// The latency that the gateway adds to one request.
    Added,
    /// Requests per second.
    Calls,
    /// CPU time per request.
    Cpu,
}

/// The result of a gateway with functions of an API gateway.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct WithFunctions {
    /// The functions, by their name in results.
    pub(crate) functions: String,
    /// Requests per second.
    pub(crate) rps: f64,
}

/// The result of a gateway in a study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contestant {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The way in which the gateway receives changes, in a word.
    pub(crate) way: String,
    pub(crate) errors: Errors,
    /// The latency in the study's words.
    pub(crate) latency: String,
    /// The points of the latency curve that the text of the study states.
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

/// The result for this number of cores.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Sizing {
    pub(crate) cores: usize,
    /// Requests per second.
    pub(crate) rps: Places,
    /// New TLS connections per second.
    pub(crate) tps: Places,
    /// New TLS connections per second on Kubernetes, with hyper-threading.
    pub(crate) tps_hyper_threading: f64,
    /// The price of the hardware in US dollars.
    pub(crate) cost: f64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Places {
    pub(crate) metal: f64,
    pub(crate) hypervisor: f64,
    pub(crate) kubernetes: f64,
}

/// The study with this name; [`None`] if it is unknown, such as in results of a later version.
pub(crate) fn find(name: &str) -> Option<Published> {
    let (_, text) = INCLUDED.iter().find(|(included, _)| *included == name)?;
    serde_saphyr::from_str(text).ok()
}

/// The names of all studies, for users.
pub(crate) fn names() -> String {
    INCLUDED.map(|(name, _)| name).join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_published_study_is_found_by_its_name() {
        for (name, _) in INCLUDED {
            let study = find(name).unwrap_or_else(|| panic!("{name} cannot be read"));
            let parts = [study.contestants.is_empty(), study.rows.is_empty(), study.claims.is_empty()];
            assert_eq!(parts.iter().filter(|is_empty| !**is_empty).count(), 1, "{name}");
        }
        assert!(find("none").is_none());
    }

    #[test]
    fn included_figures_equal_the_figures_of_the_published_studies() {
        let ingress = find("ingress-2020").unwrap();
        let sums: Vec<u64> = ingress
            .contestants
            .iter()
            .map(|each| each.errors.connect + each.errors.timeout + each.errors.read)
            .collect();
        assert_eq!(sums, [33_365 + 309 + 4_650, 8_809, 0]);
        let sizing = find("sizing-2021").unwrap();
        let last = sizing.rows.last().unwrap();
        let gateway = find("gateway-2019").unwrap();
        assert_eq!(
            gateway.claims.iter().map(|claim| claim.factor).sum::<f64>(),
            1.44 + 1.24 + 2.0 + 2.6 + 1.67 + 2.0 + 2.0
        );
        assert_eq!(gateway.functions.last().unwrap().rps, 97_208.0);
        assert_eq!((last.cores, last.rps.kubernetes, last.tps.metal), (8, 190_000.0, 5_200.0));
    }
}
