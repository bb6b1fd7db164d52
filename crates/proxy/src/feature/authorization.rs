//! Authorization rules.

use std::net::IpAddr;

use sluicegate_jwt::{Claims, Wanted};
use sluicegate_model::PathPattern;
use sluicegate_model::feature::authorization::{self as feature, Action, AuthorizationRule};
use sluicegate_model::policy::Consumer;
use sluicegate_model::value::{GroupName, RequestMethod};

use super::authentication::jwt::wanted;
use super::ip_access::Networks;
use crate::failure::Denial;
use crate::path::{Reading, WAYS, is_ambiguous, readings, readings_of_pattern};

/// The rules, compiled.
#[derive(Debug)]
pub(crate) struct Authorization {
    rules: Vec<Rule>,
    allows_others: bool,
    /// Whether a rule has paths.
    names_paths: bool,
}

#[derive(Debug)]
struct Rule {
    allows: bool,
    /// Sorted.
    consumers: Vec<(Box<str>, Box<str>)>,
    groups: Vec<GroupName>,
    claims: Vec<Wanted>,
    methods: Vec<RequestMethod>,
    paths: Vec<Pattern>,
    addresses: Option<Networks>,
}

#[derive(Debug)]
struct Pattern {
    pattern: PathPattern,
    /// The readings of the pattern in lower case.
    readings: [Vec<Vec<u8>>; WAYS],
}

/// The properties of a request that rules check.
pub(crate) struct Call<'c> {
    pub(crate) consumer: Option<&'c Consumer>,
    pub(crate) claims: Option<&'c Claims>,
    pub(crate) method: &'c [u8],
    /// In normal form.
    pub(crate) path: &'c [u8],
    /// The client IP; `None` if unknown.
    pub(crate) address: Option<IpAddr>,
}

impl Authorization {
    pub(super) fn new(authorization: &feature::Authorization) -> Self {
        let rules: Vec<_> = authorization.rules.iter().map(Rule::new).collect();
        let names_paths = rules.iter().any(|rule| !rule.paths.is_empty());
        Self { rules, allows_others: authorization.default_action() == Action::Allow, names_paths }
    }

    /// Whether a rule has paths or methods.
    pub(super) fn reads_target(&self) -> bool {
        self.names_paths || self.rules.iter().any(|rule| !rule.methods.is_empty())
    }

    /// Whether a rule has client IPs.
    pub(crate) fn reads_addresses(&self) -> bool {
        self.rules.iter().any(|rule| rule.addresses.is_some())
    }

    /// Decides whether a request is allowed. The error is the reason for the denial.
    pub(crate) fn decide(&self, call: &Call<'_>) -> Result<(), Denial> {
        let mut loose = match self.names_paths {
            true if is_ambiguous(call.path) => readings(call.path).ok_or(Denial::AmbiguousPath)?,
            true => vec![Reading { way: 0, path: without_slash(call.path).to_vec() }],
            false => Vec::new(),
        };
        loose.iter_mut().for_each(|reading| reading.path.make_ascii_lowercase());
        let decides = |rule: &&Rule| rule.is_met(call, &loose);
        match self.rules.iter().find(decides).map_or(self.allows_others, |rule| rule.allows) {
            true => Ok(()),
            false => Err(Denial::Forbidden),
        }
    }
}

impl Rule {
    fn new(rule: &AuthorizationRule) -> Self {
        let of = |(namespace, name): (&str, &str)| (namespace.into(), name.into());
        let mut consumers: Vec<_> = rule.consumers.iter().map(|consumer| of(consumer.parts())).collect();
        consumers.sort_unstable();
        Self {
            allows: rule.action == Action::Allow,
            consumers,
            groups: rule.groups.to_vec(),
            claims: rule.claims.iter().map(wanted).collect(),
            methods: rule.methods.to_vec(),
            paths: rule.paths.iter().map(|path| Pattern::new(path.pattern())).collect(),
            addresses: (!rule.addresses.is_empty()).then(|| Networks::new(&rule.addresses)),
        }
    }

    /// `loose` are the readings of the path in lower case.
    fn is_met(&self, call: &Call<'_>, loose: &[Reading]) -> bool {
        let is_one = |consumer: &Consumer| {
            let id = (&*consumer.id.namespace, &*consumer.id.name);
            self.consumers.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&id)).is_ok()
        };
        let is_in = |consumer: &Consumer| {
            self.groups.iter().any(|group| consumer.groups.iter().any(|of| **of == **group))
        };
        let says = |wanted: &Wanted| call.claims.is_some_and(|claims| claims.has(wanted));
        // An endpoint may upper-case the method (`purge`) that a rule means to deny.
        let is_method = |method: &[u8]| match self.allows {
            true => method == call.method,
            false => method.eq_ignore_ascii_case(call.method),
        };
        (self.methods.is_empty() || self.methods.iter().any(|method| is_method(method.as_bytes())))
            && (self.paths.is_empty()
                || self.paths.iter().any(|pattern| pattern.is_met(call.path, loose, self.allows)))
            && self.addresses.as_ref().is_none_or(|networks| match call.address {
                Some(address) => networks.contains(address),
                // The client IP may be in the rule's networks.
                None => !self.allows,
            })
            && (self.consumers.is_empty() || call.consumer.is_some_and(is_one))
            && (self.groups.is_empty() || call.consumer.is_some_and(is_in))
            && self.claims.iter().all(says)
    }
}

impl Pattern {
    fn new(pattern: PathPattern) -> Self {
        let written = pattern.as_str().as_bytes();
        let mut readings = readings_of_pattern(written);
        readings.iter_mut().flatten().for_each(|reading| reading.make_ascii_lowercase());
        Self { pattern, readings }
    }

    /// Whether the pattern matches a path. A rule that allows must match every reading, a rule that denies any reading.
    fn is_met(&self, path: &[u8], loose: &[Reading], allows: bool) -> bool {
        let takes = |pattern: &[u8], path: &[u8]| match self.pattern {
            PathPattern::Exact(_) => path == pattern,
            PathPattern::Prefix(_) => begins_with(path, without_slash(pattern)),
            PathPattern::Starts(_) => path.starts_with(pattern),
        };
        let strictly = takes(self.pattern.as_str().as_bytes(), path);
        let mut loosely = loose.iter().map(|Reading { way, path }| {
            let patterns = self.readings.get(*way).into_iter().flatten();
            patterns.into_iter().any(|pattern| takes(pattern, path))
        });
        if allows { strictly && loosely.all(|takes| takes) } else { strictly || loosely.any(|takes| takes) }
    }
}

/// Whether the elements of `prefix` are the first ones of `path`.
fn begins_with(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        Some([] | [b'/', ..]) => true,
        Some(_) => prefix == b"/",
        None => false,
    }
}

fn without_slash(path: &[u8]) -> &[u8] {
    match path {
        [.., b'/'] if path.len() > 1 => &path[..path.len() - 1],
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluicegate_model::ObjectId;

    use super::*;

    fn rules(allows_others: bool, rules: &Value) -> Authorization {
        let default = if allows_others { "Allow" } else { "Deny" };
        let written = json!({"defaultAction": default, "rules": rules});
        Authorization::new(&serde_json::from_value(written).unwrap())
    }

    fn path(action: &str, kind: &str, path: &str) -> Value {
        json!([{"action": action, "paths": [{"type": kind, "value": path}]}])
    }

    fn call(path: &str) -> Call<'_> {
        Call {
            consumer: None,
            claims: None,
            method: b"GET",
            path: path.as_bytes(),
            address: Some("192.0.2.1".parse().unwrap()),
        }
    }

    #[test]
    fn rule_denies_a_path_in_every_encoding() {
        let denied = rules(true, &path("Deny", "Prefix", "/admin"));
        for way in [
            "/admin",
            "/admin/",
            "/admin/x",
            "/Admin/x",
            "/x/..%2Fadmin",
            "/admin;a=b/x",
            "/admin.",
            "/%2Fadmin",
            "/x/..;/admin",
            "/admin%2F%252e%252e/y",
            "/x%2F..%2Fadmin%2F%252e%252e%2Fy",
            "/ADMIN/%252e%252e/x",
            "/admin%09",
            "/admin%3f",
            "/x%2525252f..%2525252fadmin",
        ] {
            assert!(denied.decide(&call(way)).is_err(), "{way}");
        }
        for way in ["/", "/administrator", "/x/admin", "/admi"] {
            assert!(denied.decide(&call(way)).is_ok(), "{way}");
        }
        let exact = rules(true, &path("Deny", "Exact", "/Secret.txt"));
        for way in [
            "/Secret.txt",
            "/secret.TXT",
            "/Secret.txt/",
            "/Secret%2Etxt;x",
            "/Secret.txt;%2Fx",
            "/secret.txt%3F%2Fx",
        ] {
            assert!(exact.decide(&call(way)).is_err(), "{way}");
        }
    }

    #[test]
    fn rule_allows_a_path_only_if_every_reading_of_the_path_matches() {
        let allowed = rules(false, &path("Allow", "Prefix", "/public"));
        for way in ["/public", "/public/", "/public/a%20b", "/public/A"] {
            assert!(allowed.decide(&call(way)).is_ok(), "{way}");
        }
        for way in [
            "/Public",
            "/public/..%2Fadmin",
            "/public/..;/admin",
            "/publicity",
            "/public%2F..%2Fadmin",
            "/x",
            "/public/..%2Fadmin%2F%252e%252e%2Fpublic/x",
        ] {
            assert!(allowed.decide(&call(way)).is_err(), "{way}");
        }
        let escaped = rules(false, &path("Allow", "Prefix", "/public%20files"));
        for way in ["/public%20files", "/public%20files/a%20b", "/public%20files/a%2525", "/public%20files/x"]
        {
            assert!(escaped.decide(&call(way)).is_ok(), "{way}");
        }
        assert!(escaped.decide(&call("/public%2520files")).is_err());
        let accented = rules(false, &path("Allow", "Exact", "/caf%C3%A9"));
        assert!(accented.decide(&call("/caf%C3%A9")).is_ok());
        let denied = rules(true, &path("Deny", "Prefix", "/a%20b"));
        for way in ["/a%20b", "/A%20B/x", "/a%2520b"] {
            assert!(denied.decide(&call(way)).is_err(), "{way}");
        }
        let all = rules(false, &path("Allow", "Prefix", "/"));
        assert!(all.decide(&call("/x")).is_ok() && all.decide(&call("/")).is_ok());
    }

    #[test]
    fn rule_denies_a_method_in_any_letter_case() {
        let asks = |allows: bool, method: &str| {
            let action = if allows { "Allow" } else { "Deny" };
            let rule = json!([{"action": action, "methods": ["PURGE"]}]);
            rules(!allows, &rule).decide(&Call { method: method.as_bytes(), ..call("/") }).is_ok()
        };
        assert!(["PURGE", "purge", "Purge"].iter().all(|method| !asks(false, method)));
        assert!(asks(false, "PURGES") && asks(true, "PURGE"));
        assert!(!asks(true, "purge"));
    }

    #[test]
    fn first_matching_authorization_rule_determines_the_result() {
        let consumer = |name: &str, groups: &[&str]| Consumer {
            id: ObjectId { kind: "Consumer", namespace: "default".into(), name: name.into() },
            username: name.into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            keys: Vec::new(),
            tokens: Vec::new(),
            users: Vec::new(),
            refused: false,
            terms: Vec::new(),
        };
        let rules = rules(
            false,
            &json!([
                {"action": "Deny", "consumers": ["default/mallory"]},
                {"action": "Allow", "groups": ["gold"]},
                {"action": "Allow", "addresses": ["198.51.100.0/24"], "methods": ["PUT"]},
            ]),
        );
        let asks = |consumer: Option<&Consumer>| rules.decide(&Call { consumer, ..call("/") }).is_ok();
        assert!(!asks(None));
        assert!(asks(Some(&consumer("alice", &["silver", "gold"]))));
        assert!(!asks(Some(&consumer("alice", &["silver"]))));
        assert!(!asks(Some(&consumer("mallory", &["gold"]))));
        let from = Call { address: Some("198.51.100.7".parse().unwrap()), method: b"PUT", ..call("/") };
        assert!(rules.decide(&from).is_ok());
        assert!(rules.decide(&Call { method: b"put", ..from }).is_err(), "methods are case-sensitive");
    }
}
