//! The headers with the caller's identity for endpoints, and the challenges for callers without an identity.

use sluicegate_http1::{Known, Line};
use sluicegate_model::feature::AuthRequest;
use sluicegate_model::feature::authentication::ext_auth::SignIn;
use sluicegate_model::value::Template;

use super::consumer::Consumers;
use super::credential::{Place, Remainder, line_has_name, strip_cookies};
use super::{Authentication, Identity, Method, SlowCheckResults};
use crate::failure::Denial;
use crate::feature::edit::Edits;
use crate::feature::ext_auth::Told;
use crate::request::HeadView;

impl Authentication {
    /// Adds the header lines that tell the caller how or where to authenticate.
    pub(crate) fn challenge(&self, awaited: &SlowCheckResults, denial: Denial, edits: &mut Edits) {
        let lines = &mut edits.response_lines;
        if denial.status() == 401 {
            self.write_digest_challenges(denial, lines);
        }
        match denial {
            Denial::Scope => {
                let of_combinations = self.combinations.iter().flat_map(|of| &of.scopes);
                let mut all = of_combinations.chain(&self.scopes);
                lines.extend(all.next().into_iter().flat_map(|scopes| &scopes.challenge));
            }
            Denial::Token(_) | Denial::TokenInactive => lines.extend_from_slice(&self.token_challenges),
            _ if denial.status() == 401 => lines.extend_from_slice(&self.challenges),
            _ => {}
        }
        for (_, answer) in &awaited.answers {
            let Ok(answer) = answer else { continue };
            if denial.status() == 401 {
                lines.extend_from_slice(&answer.challenges);
            }
            if matches!(denial, Denial::CheckUnauthorized | Denial::CheckForbidden | Denial::SignIn) {
                match self.sets_cookies_always() {
                    true => lines.extend_from_slice(&answer.cookies),
                    false => edits.success_lines.extend_from_slice(&answer.cookies),
                }
            }
        }
    }

    /// Whether `Set-Cookie` of a service goes to the client with each status.
    fn sets_cookies_always(&self) -> bool {
        self.auth_request().is_none_or(|request| request.always_sets_cookies)
    }

    /// The parts of external authorization that annotations of ingress-nginx set.
    fn auth_request(&self) -> Option<&AuthRequest> {
        self.methods.iter().find_map(|method| match method {
            Method::External(external) => external.auth_request(),
            _ => None,
        })
    }

    /// The denial of a caller: with a sign-in page of ingress-nginx, every 401 becomes a redirect (nginx: `error_page 401`).
    pub(crate) fn final_denial(&self, denial: Denial) -> Denial {
        let has_page = denial.status() == 401 && self.auth_request().is_some_and(|of| of.sign_in.is_some());
        if has_page { Denial::SignIn } else { denial }
    }

    /// The URL of the sign-in page of ingress-nginx.
    pub(crate) fn sign_in_template(&self, denial: Denial) -> Option<&Template> {
        self.auth_request()?.sign_in.as_ref().filter(|_| denial == Denial::SignIn)
    }

    /// The sign-in page for callers with this denial, if there is one.
    pub(crate) fn sign_in(&self, denial: Denial) -> Option<&SignIn> {
        self.methods.iter().find_map(|method| match method {
            Method::External(external) => external.sign_in().filter(|_| denial == Denial::SignIn),
            _ => None,
        })
    }

    /// Adds the caller's identity for the endpoint, and removes credentials that the endpoint does not need.
    pub(crate) fn forward(
        &self,
        request: HeadView<'_>,
        identity: &Identity,
        consumers: &Consumers,
        edits: &mut Edits,
    ) {
        let HeadView { head, buf } = request;
        for (index, line) in head.lines.iter().enumerate() {
            if self.own_headers.iter().any(|(known, name)| line_has_name(line, *known, name, buf)) {
                edits.remove(index);
            }
        }
        let mut remainder = Remainder::default();
        // An endpoint may assume that the gateway checked a received credential. A service that receives all headers has
        // checked all credentials.
        let has_seen_all = |method: &Method| match method {
            Method::External(external) => matches!(external.told, Told::All),
            _ => false,
        };
        let mut methods = self.methods.iter().enumerate();
        let by =
            identity.by.filter(|by| !methods.any(|(number, method)| by.has(number) && has_seen_all(method)));
        for (number, method) in self.methods.iter().enumerate() {
            let is_checked = by.is_none_or(|by| by.has(number));
            let places = method.places();
            let is_there = |place: &Place| place.find(head, buf).is_ok_and(|found| found.is_some());
            let used = match is_checked && method.forwards() {
                true if places.len() < 2 => continue,
                true => places.iter().position(is_there),
                false => None,
            };
            let has_key = |index: usize| {
                let is_key = used.is_some() && matches!(method, Method::ApiKey { .. });
                is_key && identity.keys & (1 << index) != 0
            };
            for (index, place) in places.iter().enumerate() {
                if Some(index) != used && !has_key(index) {
                    place.strip(request, edits, &mut remainder);
                }
            }
        }
        if let Some(login) = self.login() {
            strip_cookies(request, edits, &mut remainder, |name| login.owns_cookie(name));
            // The access token of the session replaces the client's header.
            let has_session = identity.token.as_ref().is_some_and(|token| token.session.is_some());
            if has_session && login.sets_authorization() {
                let is_credential = |line: &Line| line.known == Known::Authorization;
                let lines = head.lines.iter().enumerate().filter(|(_, line)| is_credential(line));
                lines.for_each(|(index, _)| edits.remove(index));
            }
        }
        remainder.write_lines(&mut edits.request_lines);
        edits.query = remainder.query;
        if let Some(token) = &identity.token {
            edits.request_lines.extend_from_slice(&token.lines);
        }
        if let Some(answer) = &identity.answer {
            edits.request_lines.extend_from_slice(&answer.request_lines);
            match self.sets_cookies_always() {
                true => edits.response_lines.extend_from_slice(&answer.cookies),
                false => edits.success_lines.extend_from_slice(&answer.cookies),
            }
        }
        if let Some(consumer) = identity.consumer {
            edits.request_lines.extend_from_slice(&consumers.get(consumer).lines);
        }
        // Endpoints may treat trailers as headers, which could set the caller's identity.
        edits.discards_trailers = true;
    }
}
