//! The users of the developer portal that see an object: `spec.catalogue` of an Api or a Plan.

use schemars::JsonSchema;
use serde::Deserialize;
use sluicegate_model::Visibility;

use super::policy::consumer::check_groups;
use crate::problem::{Findings, Severity};

/// The entry in the catalogue of the developer portal.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CatalogueSpec {
    /// The visitors of the developer portal that see the object: exactly one of public and groups. Default: no visitor sees the
    /// object.
    pub(crate) visible_to: Option<VisibleToSpec>,
}

/// Visitors of the developer portal: exactly one of public and groups.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "(has(self.public) && self.public) != has(self.groups)",
    "message": "write exactly one of public: true and groups"
}]))]
pub(crate) struct VisibleToSpec {
    /// Whether all visitors see the object, also without a login. Default: false.
    pub(crate) public: Option<bool>,
    /// The groups of users that see the object. 1 to 64 entries. Default: none.
    #[schemars(length(min = 1, max = 64), inner(length(min = 1, max = 63)))]
    pub(crate) groups: Option<Vec<String>>,
}

/// The visitors as written. An invalid entry hides the object.
pub(crate) fn check(written: Option<CatalogueSpec>, findings: &mut Findings) -> Visibility {
    const FIELD: &str = "spec.catalogue.visibleTo";
    let Some(VisibleToSpec { public, groups }) = written.and_then(|of| of.visible_to) else {
        return Visibility::Hidden;
    };
    match (public.unwrap_or_default(), groups) {
        (true, None) => Visibility::Public,
        (false, Some(groups)) if !groups.is_empty() => {
            let before = errors(findings);
            let groups = check_groups(groups, &format!("{FIELD}.groups"), findings);
            match errors(findings) > before {
                true => Visibility::Hidden,
                false => Visibility::Groups(groups),
            }
        }
        _ => {
            findings.error(FIELD, "must have exactly one of public: true and groups");
            Visibility::Hidden
        }
    }
}

fn errors(findings: &Findings) -> usize {
    findings.0.iter().filter(|finding| finding.severity == Severity::Error).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> (Visibility, usize) {
        let mut findings = Findings::default();
        let spec = serde_json::from_value(crate::read_yaml(yaml).unwrap()).unwrap();
        (check(spec, &mut findings), errors(&findings))
    }

    #[test]
    fn object_is_hidden_unless_its_catalogue_names_visitors() {
        assert_eq!(of("null"), (Visibility::Hidden, 0));
        assert_eq!(of("{}"), (Visibility::Hidden, 0));
        assert_eq!(of("visibleTo: {public: true}"), (Visibility::Public, 0));
        for invalid in
            ["{}", "{public: false}", "{groups: []}", "{public: true, groups: [a]}", "{groups: [\"a\\n\"]}"]
        {
            assert_eq!(of(&format!("visibleTo: {invalid}")), (Visibility::Hidden, 1), "{invalid}");
        }
    }
}
