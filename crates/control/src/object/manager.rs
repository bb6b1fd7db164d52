//! The program that manages an object from a repository, by the marks that such programs write. A change of the object in the cluster
//! does not last: the program writes the object again.

use std::collections::BTreeMap;

/// The label of new objects of the developer portal, and its value.
pub(crate) const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "sluicegate-portal");

/// The annotations and labels of a program, and its name.
const MARKS: [(&str, &str); 4] = [
    ("argocd.argoproj.io/tracking-id", "Argo CD"),
    ("argocd.argoproj.io/instance", "Argo CD"),
    ("kustomize.toolkit.fluxcd.io/name", "Flux"),
    ("helm.toolkit.fluxcd.io/name", "Flux"),
];

/// The texts of metadata.
type Texts = BTreeMap<String, String>;

/// The name of the program that manages an object with these labels and annotations. `None`: the portal, or no program.
pub(crate) fn of(labels: Option<&Texts>, annotations: Option<&Texts>) -> Option<Box<str>> {
    let has = |name: &str| [labels, annotations].into_iter().flatten().any(|texts| texts.contains_key(name));
    let (managed_by, portal) = MANAGED_BY;
    let marked = MARKS.iter().find(|(mark, _)| has(mark)).map(|(_, program)| *program);
    let named = || labels?.get(managed_by).map(String::as_str).filter(|program| !program.is_empty());
    marked.or_else(|| named().filter(|program| *program != portal)).map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_known_by_its_marks() {
        let texts = |name: &str, value: &str| Texts::from([(name.to_owned(), value.to_owned())]);
        let by = |value| texts("app.kubernetes.io/managed-by", value);
        for (labels, annotations, expected) in [
            (Texts::new(), texts("argocd.argoproj.io/tracking-id", "shop:x"), Some("Argo CD")),
            (texts("argocd.argoproj.io/instance", "shop"), Texts::new(), Some("Argo CD")),
            (texts("kustomize.toolkit.fluxcd.io/name", "shop"), Texts::new(), Some("Flux")),
            (texts("helm.toolkit.fluxcd.io/name", "shop"), Texts::new(), Some("Flux")),
            (by("Helm"), Texts::new(), Some("Helm")),
            (by("sluicegate-portal"), texts("argocd.argoproj.io/tracking-id", "shop:x"), Some("Argo CD")),
            (by("sluicegate-portal"), Texts::new(), None),
            (by(""), Texts::new(), None),
            (texts("app", "shop"), by("Helm"), None),
        ] {
            assert_eq!(
                of(Some(&labels), Some(&annotations)).as_deref(),
                expected,
                "{labels:?} {annotations:?}"
            );
        }
        assert_eq!(of(None, None), None);
    }
}
