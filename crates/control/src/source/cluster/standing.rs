//! The current state of an object in the cluster, as far as the gateway writes it.

use k8s_openapi::api::networking::v1;

use super::conditions::CurrentStatus;
use crate::object::annotation;

/// The current state of an object.
#[derive(Clone, Debug)]
pub(super) enum Standing {
    Ingress(CurrentIngressStatus),
    /// An object whose status consists of conditions.
    Conditions(CurrentStatus),
}

/// The part of an Ingress that the gateway writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CurrentIngressStatus {
    /// `metadata.uid`, by which an Event names the Ingress.
    pub(super) uid: Option<Box<str>>,
    /// `status.loadBalancer.ingress`: IP addresses and host names.
    pub(super) addresses: Vec<Box<str>>,
    /// The annotation with the problems of the Ingress.
    pub(super) problems: Option<Box<str>>,
}

impl CurrentIngressStatus {
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
