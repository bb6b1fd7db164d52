//! The views of a request that features read, and the edits that they ask for.

use std::borrow::Cow;
use std::net::IpAddr;

use sluicegate_model::Settings;
use sluicegate_model::feature::endpoint_form::NginxForwarding;

use super::encode::original_peer;
use super::exchange::Exchange;
use super::target::raw_path;
use crate::feature::edit::Edits;
use crate::name::host_name;
use crate::request::{ClientView, HeadView, RequestView};
use crate::template::TemplateView;

impl Exchange<'_> {
    /// The head of the request.
    pub(super) fn head(&self) -> HeadView<'_> {
        HeadView { head: &self.scratch.head, buf: self.scratch.input.filled() }
    }

    /// The client of the request.
    pub(super) fn client_view(&self) -> ClientView {
        let origin = &self.client.origin;
        ClientView {
            peer: origin.peer,
            address: self.known_address(),
            is_tls: origin.session.is_some(),
            is_trusted: self.trusted,
            wire: self.client.wire.version(),
            has_certificate: self.has_certificate(),
        }
    }

    /// Whether the client has a valid certificate, and the connection is under the policy for client certificates of the requested
    /// host, as this policy is now.
    fn has_certificate(&self) -> bool {
        let origin = &self.client.origin;
        let Some(session) = origin.session.as_ref().filter(|_| origin.has_certificate) else { return false };
        let host = host_name(self.head().authority());
        let name = match &session.name {
            Some(name) if host.eq_ignore_ascii_case(name.as_bytes()) => Cow::Borrowed(&**name),
            _ => Cow::Owned(String::from_utf8_lossy(host).to_ascii_lowercase()),
        };
        let names = self.snapshot.table.tls(origin.entrance);
        let auth = names.and_then(|names| names.client_auth(&name).ok().flatten());
        auth.is_some_and(|auth| session.is_under(auth))
    }

    /// The request, as features see it.
    pub(super) fn view(&self) -> RequestView<'_> {
        RequestView { head: self.head(), client: self.client_view(), path: self.path() }
    }

    /// The request, as templates see it. The path and the query are those that the endpoint receives.
    pub(super) fn template_view(&self) -> TemplateView<'_> {
        TemplateView {
            request: self.view(),
            query: self.query(),
            rule: self.record.route.and_then(|index| self.snapshot.table.rule(index)),
            port: self.client.origin.listener.port(),
            identity: &self.client.origin.identity,
            request_id: self.record.request_id,
            underscores: self.snapshot.settings.underscores_in_headers,
            captured: self.captured.as_deref(),
        }
    }

    /// The query that the endpoint receives, without its `?`.
    pub(super) fn query(&self) -> Option<&[u8]> {
        match &self.scratch.query {
            Some(query) => Some(&**query).filter(|query| !query.is_empty()),
            None => self.head().query(),
        }
    }

    /// The client IP. The error is the address of a trusted peer that does not send the client IP.
    #[inline]
    fn known_address(&self) -> Result<IpAddr, IpAddr> {
        match self.trusted {
            true => self.told_address(),
            false => Ok(self.client.origin.peer),
        }
    }

    /// The client IP that a trusted peer sends.
    fn told_address(&self) -> Result<IpAddr, IpAddr> {
        let peer = self.client.origin.peer;
        if let Some(known) = self.known_address.get() {
            return known;
        }
        let (HeadView { head, buf }, settings) = (self.head(), &self.snapshot.settings);
        let address = original_peer(buf, head, peer, |peer| is_trusted(settings, peer));
        self.known_address.set(Some(address));
        address
    }

    /// The client IP, or the address of a trusted peer that does not send the client IP.
    pub(super) fn client_address(&self) -> IpAddr {
        self.known_address().unwrap_or_else(|last| last)
    }

    /// The path in normal form, once the route is known.
    pub(super) fn path(&self) -> &[u8] {
        match self.is_rewritten {
            true => &self.scratch.path,
            false => raw_path(&self.scratch.head, self.scratch.input.filled()),
        }
    }

    /// Replaces the path for the endpoint.
    pub(super) fn set_path(&mut self, path: Vec<u8>) {
        self.scratch.path = path;
        self.is_rewritten = true;
        self.is_changed = true;
    }

    /// The headers of ingress-nginx, if endpoints of the route receive them.
    pub(super) fn nginx_forwarding(&self) -> Option<NginxForwarding> {
        self.traffic()?.source().features.endpoint_form.nginx
    }

    /// Applies the edits that a function of the request makes.
    pub(super) fn edit<T>(&mut self, make: impl FnOnce(&Self, &mut Edits) -> T) -> T {
        let mut edits = std::mem::take(&mut self.scratch.edits);
        let made = make(self, &mut edits);
        self.apply(&mut edits);
        self.scratch.edits = edits;
        made
    }

    fn apply(&mut self, edits: &mut Edits) {
        let scratch = &mut *self.scratch;
        for index in &edits.removed_lines {
            scratch.head.lines[*index].hop_by_hop = true;
        }
        scratch.request_lines.extend_from_slice(&edits.request_lines);
        scratch.response_lines.extend_from_slice(&edits.response_lines);
        scratch.success_lines.extend_from_slice(&edits.success_lines);
        if let Some(query) = edits.query.take() {
            scratch.query = Some(query);
        }
        if edits.dropped_overrides > 0 {
            self.worker.stats().headers_dropped.add(edits.dropped_overrides);
        }
        if edits.discards_trailers {
            self.upload.discard_trailers();
        }
        edits.clear();
    }
}

/// Whether a peer's forwarding headers are trusted.
pub(crate) fn is_trusted(settings: &Settings, peer: IpAddr) -> bool {
    settings.trusted_proxies.iter().any(|net| net.contains(&peer))
}
