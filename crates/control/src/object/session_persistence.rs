//! Session persistence (GEP-1619), as session affinity.
//!
//! Two releases of Gateway API differ in the meaning of session persistence at a rule with several backends. In release 1.6, a
//! session stays at its backend, even if the backend has weight 0. In release 1.7, the gateway first chooses a backend by
//! weight. The fields that the author uses tell the releases apart: with `cookie` or `header`, the rules of release 1.7 apply.

use std::fmt::Display;
use std::time::Duration;

use sluicegate_model::feature::{Affinity, Check as _, Fault, Faults, SessionTimeout};
use sluicegate_model::value::span::HOUR;
use sluicegate_model::value::{Age, CookieName, CookiePath, EditedHeader, span};

use super::ObjectRef;
use super::gateway_api::{CookieConfig, SessionCookie, SessionHeader, SessionPersistence};
use crate::frontend::gateway::service::hash;
use crate::problem::Findings;

/// The longest `sessionName` (Gateway API, `SessionPersistence`).
const NAME_MAX: usize = 128;

/// The longest timeout, in milliseconds.
const TIMEOUT_MAX: u64 = 8760 * HOUR;

/// The name of the cookie or header of sessions without a name: unique for each part of an object.
pub(super) fn default_name(object: &ObjectRef, section: &str) -> String {
    format!("sluicegate-session-{:012x}", hash(&format!("{object} {section}")) >> 16)
}

/// The session affinity; `None` if a field is invalid, which is then an error.
pub(super) fn check(
    written: SessionPersistence,
    field: &str,
    default_name: &str,
    findings: &mut Findings,
) -> Option<Affinity> {
    let mut reading = Reading { field, findings, is_valid: true };
    let affinity = reading.affinity(written, default_name);
    let mut is_valid = reading.is_valid;
    affinity.check(&mut Faults::new(field, &mut |field, fault| {
        if let Fault::Error(message) = fault
            && is_valid
        {
            is_valid = false;
            findings.error_or(field, message, CONSEQUENCE);
        }
    }));
    is_valid.then_some(affinity)
}

/// The consequence of an invalid field.
const CONSEQUENCE: &str = "no session persistence applies";

struct Reading<'f> {
    field: &'f str,
    findings: &'f mut Findings,
    is_valid: bool,
}

impl Reading<'_> {
    fn affinity(&mut self, written: SessionPersistence, default_name: &str) -> Affinity {
        let SessionPersistence {
            kind,
            absolute_timeout,
            idle_timeout,
            session_name,
            cookie_config,
            cookie,
            header,
        } = written;
        let over_weights = cookie.is_none() && header.is_none();
        let absolute_timeout = self.timeout(absolute_timeout.as_deref(), "absoluteTimeout");
        let idle_timeout = self.timeout(idle_timeout.as_deref(), "idleTimeout");
        if let Some(name) = session_name.as_ref().filter(|name| name.chars().count() > NAME_MAX) {
            let length = name.chars().count();
            self.fault("sessionName", format!("has {length} characters, but may have at most {NAME_MAX}"));
        }
        let session_name = session_name.filter(|name| !name.is_empty());
        let mut affinity = Affinity { absolute_timeout, idle_timeout, over_weights, ..Affinity::default() };
        match kind.as_deref().unwrap_or("Cookie") {
            "Cookie" => {
                if header.is_some() {
                    self.fault("header", "is only for type Header: remove it, or write type: Header");
                }
                let within = if cookie.is_some() { "cookie" } else { "cookieConfig" };
                let of_config = cookie_config.and_then(|CookieConfig { lifetime_type }| lifetime_type);
                let SessionCookie { name, path, lifetime_type } = cookie.unwrap_or_default();
                let (name, named) = match (name, session_name) {
                    (Some(name), _) => (name, "cookie.name"),
                    (None, Some(name)) => (name, "sessionName"),
                    (None, None) => (default_name.to_owned(), "sessionName"),
                };
                affinity.cookie = self.parsed(named, CookieName::new(&name));
                affinity.path = path.and_then(|path| self.parsed("cookie.path", CookiePath::new(&path)));
                let lifetime_type = lifetime_type.or(of_config);
                affinity.max_age = self.max_age(lifetime_type.as_deref(), absolute_timeout, within);
            }
            "Header" => {
                for (within, is_set) in
                    [("cookie", cookie.is_some()), ("cookieConfig", cookie_config.is_some())]
                {
                    if is_set {
                        self.fault(within, "is only for type Cookie: remove it, or write type: Cookie");
                    }
                }
                let name = match (header, session_name) {
                    (Some(SessionHeader { name }), _) => name.unwrap_or_default(),
                    (None, Some(name)) => name,
                    (None, None) => default_name.to_owned(),
                };
                let named = if over_weights { "sessionName" } else { "header.name" };
                affinity.header = self.parsed(named, EditedHeader::new(&name));
            }
            other => self.fault("type", format!("{other:?} is unknown: write Cookie or Header")),
        }
        affinity
    }

    /// The lifetime of a cookie: the absolute timeout, if the cookie is permanent.
    fn max_age(
        &mut self,
        lifetime_type: Option<&str>,
        absolute_timeout: Option<SessionTimeout>,
        within: &str,
    ) -> Option<Age> {
        match (lifetime_type.unwrap_or("Session"), absolute_timeout) {
            ("Session", _) => None,
            // The gateway itself ends the session; the cookie may live for the rest of the last second.
            ("Permanent", Some(timeout)) => {
                Age::new(Duration::from_secs(timeout.get().as_millis().div_ceil(1000).try_into().ok()?))
            }
            ("Permanent", None) => {
                self.fault("absoluteTimeout", "is missing: a cookie with lifetimeType Permanent needs it");
                None
            }
            (other, _) => {
                let field = format!("{within}.lifetimeType");
                self.fault(&field, format!("{other:?} is unknown: write Session or Permanent"));
                None
            }
        }
    }

    fn timeout(&mut self, written: Option<&str>, within: &str) -> Option<SessionTimeout> {
        let time = self.parsed(within, span::within(written?, 1, TIMEOUT_MAX))?;
        SessionTimeout::new(time)
    }

    fn parsed<T, F: Display>(&mut self, within: &str, result: Result<T, F>) -> Option<T> {
        result.map_err(|fault| self.fault(within, fault)).ok()
    }

    fn fault(&mut self, within: &str, fault: impl Display) {
        self.is_valid = false;
        self.findings.error_or(format!("{}.{within}", self.field), fault.to_string(), CONSEQUENCE);
    }
}
