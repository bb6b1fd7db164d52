//! How an object stands in the cluster: what of it is written by us, and what is there now.

use k8s_openapi::api::networking::v1;

use super::policy_status::PolicyStanding;
use crate::object::annotation;

/// How an object stands.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    Ingress(IngressStanding),
    /// A policy or a Consumer.
    Policy(PolicyStanding),
}

/// What is written of an Ingress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct IngressStanding {
    /// `metadata.uid`, by which an Event names it.
    pub(super) uid: Option<Box<str>>,
    /// `status.loadBalancer.ingress`: IP addresses and host names.
    pub(super) addresses: Vec<Box<str>>,
    /// The annotation with what is wrong with it.
    pub(super) problems: Option<Box<str>>,
}

impl IngressStanding {
    pub(super) fn of(ingress: &v1::Ingress) -> Self {
        let status = ingress.status.as_ref().and_then(|status| status.load_balancer.as_ref());
        let addresses = status.and_then(|balancer| balancer.ingress.as_ref()).into_iter().flatten();
        let annotations = ingress.metadata.annotations.as_ref();
        let problems = annotations.and_then(|annotations| annotations.get(annotation::PROBLEMS));
        Self {
            uid: ingress.metadata.uid.as_deref().map(Into::into),
            addresses: addresses
                .filter_map(|address| address.ip.as_deref().or(address.hostname.as_deref()))
                .map(Into::into)
                .collect(),
            problems: problems.map(|problems| problems.as_str().into()),
        }
    }
}
