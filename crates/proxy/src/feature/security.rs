//! A `SecurityPolicy`, compiled.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_model::policy as model;

use super::authentication::consumer::Consumers;
use super::authentication::{Authentication, Identity, new_number};
use super::authorization::{Authorization, Call};
use super::cors::Cors;
use super::edit::Edits;
use super::ext_auth::External;
use super::ip_access::Access;
use crate::failure::Denial;
use crate::openid::PublishedPlaces;
use crate::request::{HeadView, RequestView};

/// The parts of a `SecurityPolicy`, in the order in which the gateway checks them. Parts that many policies lack are boxed, so that
/// a request reads little memory.
#[derive(Debug)]
pub(crate) struct Security {
    /// Whether the policy denies all requests.
    pub(crate) refuses: bool,
    pub(crate) access: Option<Box<Access>>,
    /// Whether a client IP of the list of allowed client IPs replaces authentication.
    satisfies_any: bool,
    pub(crate) cors: Option<Box<Cors>>,
    pub(crate) authentication: Option<Authentication>,
    pub(crate) authorization: Option<Box<Authorization>>,
    /// The filters, in order.
    pub(crate) filters: Vec<Arc<External>>,
    /// Whether the gateway removes headers that name another path or method than the checked path and method.
    pub(crate) drops_overrides: bool,
}

/// The result of the checks before authentication.
pub(crate) enum Arrival {
    /// The next checks follow.
    Goes,
    /// The policy answers a preflight.
    Preflight,
    Denied(Denial),
}

impl Security {
    pub(super) fn new(source: &model::Security, places: &PublishedPlaces) -> Self {
        let authentication = source.authentication.as_ref();
        let authentication = authentication.map(|of| Authentication::new(of, &source.id.namespace, places));
        let authorization = source.authorization.as_ref().map(|of| Box::new(Authorization::new(of)));
        let filter = |source| Arc::new(External::of_filter(source, new_number()));
        let filters: Vec<_> = source.filters.iter().map(filter).collect();
        let reads_target = !filters.is_empty()
            || authorization.as_ref().is_some_and(|authorization| authorization.reads_target())
            || authentication.as_ref().is_some_and(Authentication::reads_target);
        Self {
            refuses: source.refuses.is_some()
                || authentication.as_ref().is_some_and(Authentication::cannot_be_satisfied),
            access: (!source.ip_access.is_open()).then(|| Box::new(Access::new(&source.ip_access))),
            cors: source.cors.as_ref().map(|cors| Box::new(Cors::new(cors))),
            satisfies_any: source.satisfies_any && authentication.is_some(),
            authentication,
            authorization,
            filters,
            drops_overrides: reads_target && !source.forward_overrides,
        }
    }
}

impl Security {
    /// The checks before authentication.
    pub(crate) fn arrive(&self, request: &RequestView<'_>, edits: &mut Edits) -> Arrival {
        let HeadView { head, buf } = request.head;
        if self.drops_overrides {
            edits.drop_overrides(request.head);
        }
        if self.refuses {
            return Arrival::Denied(Denial::Unusable);
        }
        let early = self.cors.as_ref().filter(|cors| cors.is_nginx());
        if let Some(arrival) = early.and_then(|cors| cors.arrive(head, buf, edits)) {
            return arrival;
        }
        let address = request.client.address.ok();
        let is_denied = self.access.as_ref().is_some_and(|access| !access.allows(address));
        if is_denied && !self.satisfies_any {
            return Arrival::Denied(Denial::Address);
        }
        let late = self.cors.as_ref().filter(|cors| !cors.is_nginx());
        late.and_then(|cors| cors.arrive(head, buf, edits)).unwrap_or(Arrival::Goes)
    }

    /// The rules for cross-origin requests in the form of ingress-nginx, which apply before the redirect to HTTPS.
    pub(crate) fn nginx_cors(&self) -> Option<&Cors> {
        self.cors.as_deref().filter(|cors| cors.is_nginx() && !self.refuses)
    }

    /// Whether the client IP replaces authentication.
    pub(crate) fn is_satisfied_by(&self, address: Option<IpAddr>) -> bool {
        self.satisfies_any && self.access.as_ref().is_some_and(|access| access.names(address))
    }

    /// Whether the caller may make the request.
    pub(crate) fn authorize(
        &self,
        request: &RequestView<'_>,
        identity: &Identity,
        consumers: &Consumers,
    ) -> Result<(), Denial> {
        if !self.authentication.as_ref().is_none_or(|authentication| authentication.has_scopes(identity)) {
            return Err(Denial::Scope);
        }
        let Some(authorization) = &self.authorization else { return Ok(()) };
        authorization.decide(&Call {
            consumer: identity.consumer.map(|consumer| &*consumers.get(consumer).consumer),
            claims: identity.token.as_ref().map(|token| &token.claims),
            method: request.head.method_name(),
            path: request.path,
            address: request.client.address.ok(),
        })
    }
}
