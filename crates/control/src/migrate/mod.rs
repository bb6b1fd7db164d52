//! Moving from ingress-nginx: what the gateway makes of each annotation of each Ingress.
//!
//! The report reads only Ingresses and IngressClasses, so the report needs no right to read Secrets. `sluicegate check` finds
//! references to missing objects.
//!
//! | module | content |
//! |---|---|
//! | [`difference`] | supported annotations that differ from ingress-nginx in a detail |
//! | [`page`] | the report as text and as HTML |
//! | [`cluster`] | the Ingresses of a cluster |

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;
use sluicegate_model::HostPattern;

use crate::frontend::ingress::class::{self, Classes, Dialect};
use crate::frontend::nginx::Paths;
use crate::intent::At;
use crate::object::ingress::Ingress;
use crate::object::nginx::{Annotation, Meaning, Settings, row};
use crate::store::Store;
use crate::translate::{IngressNginx, TranslateOptions, ingress_nginx};

pub(crate) mod cluster;
pub(crate) mod difference;
mod page;
#[cfg(test)]
mod tests;

/// The Ingresses that the gateway would serve in place of ingress-nginx.
#[derive(Debug, Serialize)]
pub struct MigrationReport {
    /// The number of Ingresses with each verdict.
    pub totals: BTreeMap<Verdict, usize>,
    /// The number of uses of each annotation, with the verdict.
    pub annotations: BTreeMap<Box<str>, AnnotationTotal>,
    /// The Ingresses, by namespace and name.
    pub ingresses: Vec<IngressReport>,
    /// The Ingresses of other classes, which the report leaves out.
    pub of_other_classes: usize,
}

/// The uses of an annotation.
#[derive(Debug, Serialize)]
pub struct AnnotationTotal {
    /// The number of Ingresses with the annotation.
    pub uses: usize,
    /// The worst verdict.
    pub verdict: Verdict,
}

/// An Ingress.
#[derive(Debug, Serialize)]
pub struct IngressReport {
    /// The namespace of the Ingress.
    pub namespace: Box<str>,
    /// The name of the Ingress.
    pub name: Box<str>,
    /// The class that the Ingress names.
    pub class: Option<Box<str>>,
    /// The worst verdict of its parts.
    pub verdict: Verdict,
    /// The annotations of ingress-nginx.
    pub annotations: Vec<AnnotationReport>,
    /// Faults of other fields: the field, the fault and its consequence.
    pub faults: Vec<String>,
}

/// An annotation of an Ingress.
#[derive(Debug, Serialize)]
pub struct AnnotationReport {
    /// The name without the prefix.
    pub name: Box<str>,
    /// The value as written.
    pub value: Box<str>,
    /// The verdict.
    pub verdict: Verdict,
    /// The reason of a verdict other than [`Verdict::Same`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether requests see the same behavior as with ingress-nginx, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The behavior is the same.
    Same,
    /// The behavior differs in a detail.
    Different,
    /// The annotation or the field has no effect.
    Refused,
    /// The routes respond with 503, because the annotation may restrict access.
    Closed,
}

impl Verdict {
    /// The verdict as a word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Different => "different",
            Self::Refused => "refused",
            Self::Closed => "closed",
        }
    }
}

/// Reports on the Ingresses of manifests, each given with the path of its file.
#[must_use]
pub fn migration_report(texts: &[(PathBuf, String)], options: &TranslateOptions) -> MigrationReport {
    let mut store = Store::default();
    for (path, text) in texts {
        store.set_file(path, text);
    }
    let nginx = ingress_nginx(&store, options).unwrap_or_default();
    let classes = Classes::new(&store, options);
    let all: Vec<_> = store.all::<Ingress>().collect();
    let (ours, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, ingress, _)| is_of_nginx(&classes, options, ingress));
    let mut ours: Vec<_> =
        ours.into_iter().map(|(object, ingress, origin)| (At { object, origin }, ingress)).collect();
    ours.sort_by_key(|(at, _)| at.object);
    let paths = Paths::new(&nginx, ours.iter().copied());
    let mut report = MigrationReport {
        totals: BTreeMap::new(),
        annotations: BTreeMap::new(),
        ingresses: Vec::with_capacity(ours.len()),
        of_other_classes: others.len(),
    };
    for (at, ingress) in ours {
        let of_ingress = of_ingress(&store, &nginx, &paths, at, ingress);
        *report.totals.entry(of_ingress.verdict).or_default() += 1;
        for AnnotationReport { name, verdict, .. } in &of_ingress.annotations {
            let total = report
                .annotations
                .entry(name.clone())
                .or_insert(AnnotationTotal { uses: 0, verdict: Verdict::Same });
            total.uses += 1;
            total.verdict = total.verdict.max(*verdict);
        }
        report.ingresses.push(of_ingress);
    }
    report
}

/// Whether ingress-nginx serves an Ingress: by its class, or because its class is [`TranslateOptions::ingress_class`], whatever
/// controller the IngressClass names.
fn is_of_nginx(classes: &Classes<'_>, options: &TranslateOptions, ingress: &Ingress) -> bool {
    classes.dialect(ingress) == Some(Dialect::IngressNginx)
        || class::named(ingress).is_some_and(|(_, name)| name == options.ingress_class)
}

/// Requests for the Ingresses of manifests.
#[derive(Debug, Default)]
pub struct IngressTargets {
    /// Each request as a host and a path: for each host and path of the Ingresses the path itself, a path below it, the path
    /// without or with a final slash, and a path without a rule.
    pub requests: BTreeSet<(String, String)>,
    /// The classes of the other Ingresses, each with the number of its Ingresses; an empty name for Ingresses without a class.
    pub other_classes: BTreeMap<String, usize>,
}

/// Requests that tell how a controller routes the Ingresses of manifests.
#[must_use]
pub fn ingress_targets(texts: &[(PathBuf, String)], options: &TranslateOptions) -> IngressTargets {
    let mut store = Store::default();
    for (path, text) in texts {
        store.set_file(path, text);
    }
    let classes = Classes::new(&store, options);
    let all = store.all::<Ingress>().map(|(_, ingress, _)| ingress);
    let (ours, others): (Vec<_>, Vec<_>) = all.partition(|ingress| is_of_nginx(&classes, options, ingress));
    let mut other_classes = BTreeMap::new();
    for ingress in others {
        let class = class::named(ingress).map_or("", |(_, name)| name);
        *other_classes.entry(class.to_owned()).or_default() += 1;
    }
    let mut requests = BTreeSet::new();
    for rule in ours.into_iter().flat_map(|ingress| &ingress.rules) {
        let host = match &rule.host {
            HostPattern::Exact(name) => name.to_string(),
            HostPattern::Wildcard(suffix) | HostPattern::Suffix(suffix) => format!("wildcard.{suffix}"),
            HostPattern::Any => "without-rule.example".to_owned(),
        };
        let mut add = |path: String| requests.insert((host.clone(), path));
        add("/".to_owned());
        add("/without-rule".to_owned());
        for path in &rule.paths {
            // Of a regular expression only the literal begin is known.
            let text = path.literal.as_ref().unwrap_or(&path.pattern).as_str();
            let bare = text.trim_end_matches('/');
            for target in
                [text.to_owned(), bare.to_owned(), format!("{bare}/"), format!("{bare}/below?query=1")]
            {
                add(if target.is_empty() { "/".to_owned() } else { target });
            }
        }
    }
    IngressTargets { requests, other_classes }
}

fn of_ingress(
    store: &Store,
    nginx: &IngressNginx,
    paths: &Paths<'_>,
    at: At<'_>,
    ingress: &Ingress,
) -> IngressReport {
    let settings = nginx.settings(at, ingress);
    let annotations: Vec<AnnotationReport> = ingress
        .nginx
        .with_prefix(&nginx.prefix)
        .map(|annotation| of_annotation(&annotation, &settings))
        .collect();
    let mut faults: Vec<String> = paths.faults(ingress, &settings);
    faults.extend(store.error_of(at.object));
    let of_faults = if faults.is_empty() { Verdict::Same } else { Verdict::Closed };
    let verdict = annotations.iter().map(|annotation| annotation.verdict).fold(of_faults, Verdict::max);
    IngressReport {
        namespace: (*at.object.namespace).into(),
        name: (*at.object.name).into(),
        class: class::named(ingress).map(|(_, name)| name.into()),
        verdict,
        annotations,
        faults,
    }
}

fn of_annotation(annotation: &Annotation<'_>, settings: &Settings) -> AnnotationReport {
    let Annotation { name, short, value } = *annotation;
    let field = crate::object::annotation::field(name);
    let fault = settings.faults.iter().find(|fault| *fault.field == *field);
    let (verdict, reason) = match (fault, row(short)) {
        (Some(fault), _) => {
            let verdict = if fault.closes { Verdict::Closed } else { Verdict::Refused };
            (verdict, Some(fault.message.clone()))
        }
        (None, Some(row)) => match (&row.meaning, difference::of(short)) {
            (Meaning::Harmless, _) => (Verdict::Same, Some(row.sets.to_owned())),
            (_, Some(difference)) => (Verdict::Different, Some(difference.to_owned())),
            (_, None) => (Verdict::Same, None),
        },
        (None, None) => (Verdict::Refused, None),
    };
    AnnotationReport { name: short.into(), value: value.into(), verdict, reason }
}
