//! `IngressClass`.

use k8s_openapi::api::networking::v1;

use super::kind::Raw;
use super::{Kind, Object, ObjectRef, annotation};
use crate::problem::Findings;

/// The annotation that makes a class the default class.
const DEFAULT_ANNOTATION: &str = "ingressclass.kubernetes.io/is-default-class";

/// A checked `IngressClass`.
#[derive(Debug, PartialEq)]
pub(crate) struct IngressClass {
    /// The controller of the Ingresses of this class.
    pub(crate) controller: Box<str>,
    /// Whether Ingresses without a class belong to it.
    pub(crate) is_default: bool,
    /// `metadata.creationTimestamp`, in seconds since 1970.
    pub(crate) created: Option<i64>,
}

impl IngressClass {
    pub(crate) fn check(raw: v1::IngressClass, findings: &mut Findings) -> Self {
        let annotations = raw.metadata.annotations;
        annotation::check_names(Kind::IngressClass, annotations.as_ref(), findings);
        let default = annotations.as_ref().and_then(|annotations| annotations.get(DEFAULT_ANNOTATION));
        if let Some(value) = default
            && !matches!(&**value, "true" | "false")
        {
            findings.warning(
                annotation::field(DEFAULT_ANNOTATION),
                "is neither \"true\" nor \"false\"; the class is not the default. Write one of them",
            );
        }
        let controller = raw.spec.and_then(|spec| spec.controller).unwrap_or_default();
        if controller.is_empty() {
            findings.error("spec.controller", "is missing: name the controller that serves this class");
        }
        Self {
            controller: controller.into(),
            is_default: default.is_some_and(|value| value == "true"),
            created: raw.metadata.creation_timestamp.map(|time| time.0.as_second()),
        }
    }
}

impl Raw for v1::IngressClass {
    fn check(self, _: &ObjectRef, findings: &mut Findings) -> Option<Object> {
        Some(IngressClass::check(self, findings).into())
    }
}
