//! Who may do what.

use std::net::IpAddr;
use std::sync::Arc;

use sluicegate_jwt::{Claims, Wanted};
use sluicegate_model::PathPattern;
use sluicegate_model::policy::{self, Consumer};

use super::networks::Networks;
use super::reading::{is_ambiguous, loosest};
use super::tokens::wanted;

/// The rules, compiled.
#[derive(Debug)]
pub(crate) struct Authorization {
    rules: Vec<Rule>,
    allows_others: bool,
    /// Whether a rule names a path.
    names_paths: bool,
}

#[derive(Debug)]
struct Rule {
    allows: bool,
    /// In their order.
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
    /// The same as a path is read most loosely.
    loose: Vec<u8>,
}

/// What rules ask about.
pub(crate) struct Call<'c> {
    pub(crate) consumer: Option<&'c Consumer>,
    pub(crate) claims: Option<&'c Claims>,
    pub(crate) method: &'c [u8],
    /// In normal form.
    pub(crate) path: &'c [u8],
    pub(crate) address: IpAddr,
}

impl Authorization {
    pub(super) fn new(authorization: &policy::Authorization) -> Self {
        let rules: Vec<_> = authorization.rules.iter().map(Rule::new).collect();
        let names_paths = rules.iter().any(|rule| !rule.paths.is_empty());
        Self { rules, allows_others: authorization.allows_others, names_paths }
    }

    /// Whether a call is let in.
    pub(crate) fn allows(&self, call: &Call<'_>) -> bool {
        let mut loose = Vec::new();
        if self.names_paths && (is_ambiguous(call.path) || call.path.iter().any(u8::is_ascii_uppercase)) {
            loosest(call.path, true, &mut loose);
        } else if self.names_paths {
            loose.extend_from_slice(without_slash(call.path));
        }
        let decides = |rule: &&Rule| rule.is_met(call, &loose);
        self.rules.iter().find(decides).map_or(self.allows_others, |rule| rule.allows)
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

    fn is_met(&self, call: &Call<'_>, loose: &[u8]) -> bool {
        let is_one = |consumer: &Consumer| {
            let id = (&*consumer.id.namespace, &*consumer.id.name);
            self.consumers.binary_search_by(|(namespace, name)| (&**namespace, &**name).cmp(&id)).is_ok()
        };
        let is_in = |consumer: &Consumer| self.groups.iter().any(|group| consumer.groups.contains(group));
        let says = |wanted: &Wanted| call.claims.is_some_and(|claims| claims.has(wanted));
        (self.methods.is_empty() || self.methods.iter().any(|method| method.as_bytes() == call.method))
            && (self.paths.is_empty()
                || self.paths.iter().any(|pattern| pattern.is_met(call.path, loose, self.allows)))
            && self.addresses.as_ref().is_none_or(|networks| networks.contains(call.address))
            && (self.consumers.is_empty() || call.consumer.is_some_and(is_one))
            && (self.groups.is_empty() || call.consumer.is_some_and(is_in))
            && self.claims.iter().all(says)
    }
}

impl Pattern {
    fn new(pattern: &PathPattern) -> Self {
        let mut loose = Vec::new();
        loosest(pattern.as_str().as_bytes(), true, &mut loose);
        Self { pattern: pattern.clone(), loose }
    }

    /// Whether a path is meant, in each reading for a rule that allows, in any for one that denies.
    fn is_met(&self, path: &[u8], loose: &[u8], allows: bool) -> bool {
        let takes = |pattern: &[u8], path: &[u8]| match self.pattern {
            PathPattern::Exact(_) => path == pattern,
            PathPattern::Prefix(_) => begins_with(path, without_slash(pattern)),
            PathPattern::Starts(_) => path.starts_with(pattern),
        };
        let (strictly, loosely) = (takes(self.pattern.as_str().as_bytes(), path), takes(&self.loose, loose));
        if allows { strictly && loosely } else { strictly || loosely }
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
    use sluicegate_model::RouteId;
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
            address: "192.0.2.1".parse().unwrap(),
        }
    }

    #[test]
    fn a_rule_that_denies_a_path_cannot_be_gone_around() {
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
        ] {
            assert!(!denied.allows(&call(way)), "{way}");
        }
        for way in ["/", "/administrator", "/x/admin", "/admi"] {
            assert!(denied.allows(&call(way)), "{way}");
        }
        let exact = rules(true, vec![path(false, PathPattern::Exact("/Secret.txt".into()))]);
        for way in ["/Secret.txt", "/secret.TXT", "/Secret.txt/", "/Secret%2Etxt;x"] {
            assert!(!exact.allows(&call(way)), "{way}");
        }
    }

    #[test]
    fn a_rule_that_allows_a_path_has_to_hold_in_each_reading() {
        let allowed = rules(false, vec![path(true, PathPattern::Prefix("/public".into()))]);
        for way in ["/public", "/public/", "/public/a%20b", "/public/A"] {
            assert!(allowed.allows(&call(way)), "{way}");
        }
        for way in
            ["/Public", "/public/..%2Fadmin", "/public/..;/admin", "/publicity", "/public%2F..%2Fadmin", "/x"]
        {
            assert!(!allowed.allows(&call(way)), "{way}");
        }
        let all = rules(false, vec![path(true, PathPattern::Prefix("/".into()))]);
        assert!(all.allows(&call("/x")) && all.allows(&call("/")));
    }

    #[test]
    fn the_first_rule_that_is_met_decides() {
        let consumer = |name: &str, groups: &[&str]| Consumer {
            id: RouteId { kind: "Consumer", namespace: "default".into(), name: name.into() },
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
                    addresses: vec!["198.51.100.0/24".parse().unwrap()],
                    methods: vec!["PUT".into()],
                    ..rule(true)
                },
            ],
        );
        let asks = |consumer: Option<&Consumer>| rules.allows(&Call { consumer, ..call("/") });
        assert!(!asks(None));
        assert!(asks(Some(&consumer("alice", &["silver", "gold"]))));
        assert!(!asks(Some(&consumer("alice", &["silver"]))));
        assert!(!asks(Some(&consumer("mallory", &["gold"]))));
        let from = Call { address: "198.51.100.7".parse().unwrap(), method: b"PUT", ..call("/") };
        assert!(rules.allows(&from));
        assert!(!rules.allows(&Call { method: b"put", ..from }), "methods are case-sensitive");
    }
}
