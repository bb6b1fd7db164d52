//! The lifecycle of an API, and the choice of its version.

use k8s_openapi::jiff::Timestamp;
use k8s_openapi::jiff::tz::TimeZone;
use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::value::syntax;

use crate::problem::Findings;

/// The state of the API, and the dates of its end.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LifecycleSpec {
    /// The state: Created is not served, PreReleased and Published are served, Deprecated is served and requires deprecation,
    /// Blocked responds with 503, and Retired responds with 410. Default: Published.
    pub(crate) state: Option<LifecycleState>,
    /// The time from which the API is deprecated, such as 2027-01-01T00:00:00Z. Responses have the header
    /// Deprecation (RFC 9745), also before that time. Required with state Deprecated. Default: none.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) deprecation: Option<String>,
    /// The time at which the API ends, not before deprecation. From this time on, all requests receive 410. Responses have the
    /// header Sunset (RFC 8594). Default: none.
    #[schemars(length(min = 1, max = 64))]
    pub(crate) sunset: Option<String>,
    /// The URL of the version that succeeds, for the header Link (rel="successor-version"). Default: none.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) successor: Option<String>,
    /// The URL of a page about the end of the API, for the header Link (rel="deprecation" and rel="sunset"). Default: none.
    #[schemars(length(min = 1, max = 1024))]
    pub(crate) documentation: Option<String>,
}

/// The state of an API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum LifecycleState {
    Created,
    PreReleased,
    #[default]
    Published,
    Deprecated,
    Blocked,
    Retired,
}

/// How clients choose a version of the API.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct VersioningSpec {
    /// The place of the version in requests: Path (the segment after basePath), Header or Query.
    #[serde(rename = "in")]
    pub(crate) place: VersionPlace,
    /// The name of the header or the parameter. Not allowed with Path. Default: Api-Version for a header, and api-version for a
    /// parameter.
    #[schemars(length(min = 1, max = 256))]
    pub(crate) name: Option<String>,
    /// Whether this version also serves requests without a version. Set true in at most one version. Not allowed
    /// with Path.
    /// Default: false.
    pub(crate) is_default: Option<bool>,
}

/// The place of the version in requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub(crate) enum VersionPlace {
    Path,
    Header,
    Query,
}

/// A checked lifecycle.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Lifecycle {
    pub(crate) state: LifecycleState,
    /// In seconds since 1970.
    pub(crate) deprecation: Option<i64>,
    /// In seconds since 1970.
    pub(crate) sunset: Option<i64>,
    successor: Option<Box<str>>,
    documentation: Option<Box<str>>,
}

/// The choice of a version.
#[derive(Debug, PartialEq)]
pub(crate) struct Versioning {
    pub(crate) place: VersionPlace,
    /// The name of the header, in lower case, or of the parameter; empty for the path.
    pub(crate) name: Box<str>,
    pub(crate) is_default: bool,
}

impl Lifecycle {
    pub(super) fn check(written: LifecycleSpec, findings: &mut Findings) -> Self {
        let field = |name: &str| format!("spec.lifecycle.{name}");
        let mut time = |name: &str, written: Option<String>| {
            let written = written?;
            let time = written.parse::<Timestamp>();
            if time.is_err() {
                findings.error(field(name), format!("{written:?} is no time: write 2027-01-01T00:00:00Z"));
            }
            time.ok().map(Timestamp::as_second).filter(|second| *second > 0)
        };
        let (deprecation, sunset) =
            (time("deprecation", written.deprecation), time("sunset", written.sunset));
        let state = written.state.unwrap_or_default();
        if state == LifecycleState::Deprecated && deprecation.is_none() {
            findings.error(field("deprecation"), "is missing: state Deprecated needs the time");
        }
        if deprecation.zip(sunset).is_some_and(|(deprecation, sunset)| sunset < deprecation) {
            findings.error(field("sunset"), "is before deprecation (RFC 9745, 4): write a later time");
        }
        let mut url = |name: &str, written: Option<String>| {
            let written = written?;
            let is_url = written.starts_with("https://") || written.starts_with("http://");
            if !is_url || syntax::value_fault(&written).is_some() || written.contains(['<', '>', '"', ' ']) {
                findings.error(field(name), format!("{written:?} is no URL: write https://..."));
                return None;
            }
            Some(written.into())
        };
        let successor = url("successor", written.successor);
        let documentation = url("documentation", written.documentation);
        Self { state, deprecation, sunset, successor, documentation }
    }

    /// The headers of responses.
    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = Vec::new();
        let date = |at: i64| {
            let time = Timestamp::from_second(at).ok()?.to_zoned(TimeZone::UTC);
            Some(time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
        };
        headers.extend(self.deprecation.map(|at| ("deprecation", format!("@{at}"))));
        headers.extend(self.sunset.and_then(date).map(|date| ("sunset", date)));
        let link = |url: &str, relation: &str| ("link", format!("<{url}>; rel=\"{relation}\""));
        headers.extend(self.successor.as_ref().map(|url| link(url, "successor-version")));
        if let Some(url) = &self.documentation {
            headers.extend(self.deprecation.map(|_| link(url, "deprecation")));
            headers.extend(self.sunset.map(|_| link(url, "sunset")));
        }
        headers
    }
}

impl Versioning {
    pub(super) fn check(written: VersioningSpec, findings: &mut Findings) -> Option<Self> {
        let field = "spec.versioning.name";
        let name = match (written.place, written.name) {
            (VersionPlace::Path, None) => Ok("".into()),
            (VersionPlace::Path, Some(_)) => Err("has no effect with in: Path: remove it".to_owned()),
            (VersionPlace::Header, name) => syntax::header_name(name.as_deref().unwrap_or("Api-Version")),
            (VersionPlace::Query, name) => Ok(name.as_deref().unwrap_or("api-version").into()),
        };
        let name = name.map_err(|fault| findings.error(field, fault)).ok()?;
        if written.place == VersionPlace::Path && written.is_default == Some(true) {
            let fault = "is not supported with in: Path: every request has a path. Remove it";
            findings.error("spec.versioning.isDefault", fault);
            return None;
        }
        Some(Self { place: written.place, name, is_default: written.is_default.unwrap_or_default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(written: &str) -> (Lifecycle, Vec<String>) {
        let mut findings = Findings::default();
        let written = serde_json::from_value(crate::manifest::read_yaml(written).unwrap()).unwrap();
        let lifecycle = Lifecycle::check(written, &mut findings);
        let findings = findings.0.iter().map(|finding| format!("{}: {}", finding.field, finding.message));
        (lifecycle, findings.collect())
    }

    #[test]
    fn responses_have_the_headers_of_rfc_9745_and_rfc_8594() {
        let (lifecycle, findings) = checked(
            "{deprecation: \"2026-01-01T00:00:00Z\", sunset: \"2027-06-30T23:59:59Z\", successor: \"https://a.test/v2\", \
             documentation: \"https://a.test/end\"}",
        );
        assert_eq!(findings, [""; 0]);
        let expected = [
            ("deprecation", "@1767225600"),
            ("sunset", "Wed, 30 Jun 2027 23:59:59 GMT"),
            ("link", "<https://a.test/v2>; rel=\"successor-version\""),
            ("link", "<https://a.test/end>; rel=\"deprecation\""),
            ("link", "<https://a.test/end>; rel=\"sunset\""),
        ];
        assert_eq!(lifecycle.headers(), expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn faults_of_a_lifecycle_name_their_fields() {
        for (written, fault) in [
            ("{state: Deprecated}", "spec.lifecycle.deprecation: is missing"),
            ("{sunset: tomorrow}", "spec.lifecycle.sunset: \"tomorrow\" is no time"),
            (
                "{deprecation: \"2027-01-01T00:00:00Z\", sunset: \"2026-01-01T00:00:00Z\"}",
                "spec.lifecycle.sunset: is before deprecation",
            ),
            ("{successor: /v2}", "spec.lifecycle.successor: \"/v2\" is no URL"),
            ("{documentation: \"https://a.test/>x\"}", "spec.lifecycle.documentation: "),
        ] {
            let (_, findings) = checked(written);
            assert!(findings.len() == 1 && findings[0].starts_with(fault), "{written}: {findings:?}");
        }
    }
}
