//! Authorization rules.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_jwt::{Claims, Wanted};
use sluicegate_model::PathPattern;
use sluicegate_model::policy::{self, Consumer};

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
    consumers: Vec<(Arc<str>, Arc<str>)>,
    groups: Vec<Box<str>>,
    claims: Vec<Wanted>,
    methods: Vec<Box<str>>,
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
    pub(super) fn new(authorization: &policy::Authorization) -> Self {
        let rules: Vec<_> = authorization.rules.iter().map(Rule::new).collect();
        let names_paths = rules.iter().any(|rule| !rule.paths.is_empty());
        Self { rules, allows_others: authorization.allows_others, names_paths }
    }

    /// Whether a rule has paths or methods.
    pub(super) fn reads_target(&self) -> bool {
        self.names_paths || self.rules.iter().any(|rule| !rule.methods.is_empty())
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
    fn new(rule: &policy::AuthorizationRule) -> Self {
        let mut consumers = rule.consumers.clone();
        consumers.sort_unstable();
        Self {
            allows: rule.allows,
            consumers,
            groups: rule.groups.clone(),
            claims: rule.claims.iter().map(wanted).collect(),
            methods: rule.methods.clone(),
            paths: rule.paths.iter().map(Pattern::new).collect(),
            addresses: (!rule.addresses.is_empty()).then(|| Networks::new(&rule.addresses)),
        }
    }

    /// `loose` are the readings of the path in lower case.
    fn is_met(&self, call: &Call<'_>, loose: &[Reading]) -> bool {
        let is_one = |consumer: &Consumer| {
            let id = (&*consumer.id.namespace, &*consumer.id.name);
            self.consumers.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&id)).is_ok()
        };
        let is_in = |consumer: &Consumer| self.groups.iter().any(|group| consumer.groups.contains(group));
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
    fn new(pattern: &PathPattern) -> Self {
        let written = pattern.as_str().as_bytes();
        let mut readings = readings_of_pattern(written);
        readings.iter_mut().flatten().for_each(|reading| reading.make_ascii_lowercase());
        Self { pattern: pattern.clone(), readings }
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
    use sluicegate_model::ObjectId;
    use sluicegate_model::policy::AuthorizationRule;

    use super::*;

    fn rules(allows_others: bool, rules: Vec<AuthorizationRule>) -> Authorization {
        Authorization::new(&policy::Authorization { rules, allows_others })
    }

    fn path(allows: bool, pattern: PathPattern) -> AuthorizationRule {
        AuthorizationRule { allows, paths: vec![pattern], ..AuthorizationRule::default() }
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
    fn denied_path_is_denied_in_every_encoding() {
        let denied = rules(true, vec![path(false, PathPattern::Prefix("/admin".into()))]);
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
        let exact = rules(true, vec![path(false, PathPattern::Exact("/Secret.txt".into()))]);
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
    fn allowed_path_must_match_in_every_reading() {
        let allowed = rules(false, vec![path(true, PathPattern::Prefix("/public".into()))]);
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
        let escaped = rules(false, vec![path(true, PathPattern::Prefix("/public%20files".into()))]);
        for way in ["/public%20files", "/public%20files/a%20b", "/public%20files/a%2525", "/public%20files/x"]
        {
            assert!(escaped.decide(&call(way)).is_ok(), "{way}");
        }
        assert!(escaped.decide(&call("/public%2520files")).is_err());
        let accented = rules(false, vec![path(true, PathPattern::Exact("/caf%C3%A9".into()))]);
        assert!(accented.decide(&call("/caf%C3%A9")).is_ok());
        let denied = rules(true, vec![path(false, PathPattern::Prefix("/a%20b".into()))]);
        for way in ["/a%20b", "/A%20B/x", "/a%2520b"] {
            assert!(denied.decide(&call(way)).is_err(), "{way}");
        }
        let all = rules(false, vec![path(true, PathPattern::Prefix("/".into()))]);
        assert!(all.decide(&call("/x")).is_ok() && all.decide(&call("/")).is_ok());
    }

    #[test]
    fn denied_method_is_denied_in_any_letter_case() {
        let asks = |allows: bool, method: &str| {
            let rule = AuthorizationRule { allows, methods: vec!["PURGE".into()], ..Default::default() };
            rules(!allows, vec![rule]).decide(&Call { method: method.as_bytes(), ..call("/") }).is_ok()
        };
        assert!(["PURGE", "purge", "Purge"].iter().all(|method| !asks(false, method)));
        assert!(asks(false, "PURGES") && asks(true, "PURGE"));
        assert!(!asks(true, "purge"));
    }

    #[test]
    fn first_matching_rule_decides() {
        let consumer = |name: &str, groups: &[&str]| Consumer {
            id: ObjectId { kind: "Consumer", namespace: "default".into(), name: name.into() },
            username: name.into(),
            groups: groups.iter().map(|group| (*group).into()).collect(),
            keys: Vec::new(),
            tokens: Vec::new(),
            users: Vec::new(),
            refused: false,
        };
        let rule = |allows| AuthorizationRule { allows, ..AuthorizationRule::default() };
        let rules = rules(
            false,
            vec![
                AuthorizationRule { consumers: vec![("default".into(), "mallory".into())], ..rule(false) },
                AuthorizationRule { groups: vec!["gold".into()], ..rule(true) },
                AuthorizationRule {
                    addresses: sluicegate_model::value::Entries::new(vec![
                        "198.51.100.0/24".parse().unwrap(),
                    ])
                    .unwrap(),
                    methods: vec!["PUT".into()],
                    ..rule(true)
                },
            ],
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
