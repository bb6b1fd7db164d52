//! The credentials that a document names for an operation. They narrow the SecurityPolicy of the operation.

use std::collections::BTreeSet;

use sluicegate_model::feature::authentication::Require;
use sluicegate_model::feature::{Authentication, Credential};
use sluicegate_model::policy::Security;
use sluicegate_model::value::{CookieName, Entries, HeaderName, ParameterName, ScopeList};
use sluicegate_openapi::{Document, KeyPlace, Need, SecurityScheme};

/// The credentials that an operation requires, or the reason why the gateway cannot check them.
#[derive(Debug, PartialEq)]
pub(crate) struct Requirement(Result<Terms, String>);

#[derive(Debug, Default, PartialEq)]
struct Terms {
    means: Means,
    /// Whether the caller needs all means; otherwise one of them is enough.
    needs_all: bool,
    /// Whether callers without credentials are allowed.
    is_optional: bool,
    /// Whether the caller has a choice between means.
    has_alternatives: bool,
    /// The scopes of a token: all of one entry. Empty: none.
    scopes: Vec<BTreeSet<Box<str>>>,
}

/// Ways to authenticate.
#[derive(Debug, Default, PartialEq)]
struct Means {
    /// The places of API keys, each with the name of its scheme.
    keys: Vec<(Credential, Box<str>)>,
    /// The scheme with a user name and a password.
    password: Option<Box<str>>,
    /// The scheme with a token in the request.
    token: Option<Box<str>>,
    /// Whether a login of a browser is enough in place of the token.
    allows_login: bool,
}

impl Requirement {
    /// What `security` of an operation requires.
    pub(crate) fn new(document: &Document, security: &[Box<[Need]>]) -> Self {
        Self(Terms::new(document, security))
    }

    /// The policy of the operation with only the authentication that the operation requires. `None` is a policy that denies
    /// nothing. The error is the reason why the requirement cannot be met.
    pub(crate) fn apply(&self, policy: Option<&Security>) -> Result<Option<Security>, String> {
        let terms = self.0.as_ref().map_err(Clone::clone)?;
        if policy.is_some_and(|policy| policy.refuses.is_some()) {
            return Ok(policy.cloned());
        }
        if terms.means.is_empty() {
            let open = |policy: &Security| Security { authentication: None, ..policy.clone() };
            return Ok(policy.map(open));
        }
        let authentication = policy.and_then(|policy| policy.authentication.as_ref());
        let authentication = terms.authentication(authentication.unwrap_or(&Authentication::default()))?;
        Ok(policy.map(|policy| Security { authentication: Some(authentication), ..policy.clone() }))
    }
}

impl Terms {
    fn new(document: &Document, security: &[Box<[Need]>]) -> Result<Self, String> {
        let mut terms = Self::default();
        let needed: Vec<&[Need]> =
            security.iter().map(|needs| &**needs).filter(|needs| !needs.is_empty()).collect();
        terms.is_optional = needed.len() < security.len();
        terms.has_alternatives = needed.len() > 1;
        terms.needs_all = needed.iter().any(|needs| needs.len() > 1);
        if terms.needs_all && security.len() > 1 {
            return Err("several schemes at once, and an alternative to them, are not supported".to_owned());
        }
        let mut needs_no_scopes = false;
        for needs in needed {
            let mut scopes = BTreeSet::new();
            let mut has_token = false;
            for need in needs {
                let is_token = terms.means.add(document, need)?;
                has_token |= is_token;
                if !is_token && !need.scopes.is_empty() {
                    return Err(format!("the roles of the scheme {:?} cannot be checked", need.scheme));
                }
                scopes.extend(need.scopes.iter().cloned());
            }
            needs_no_scopes |= has_token && scopes.is_empty();
            if has_token && !terms.scopes.contains(&scopes) {
                terms.scopes.push(scopes);
            }
        }
        if needs_no_scopes {
            terms.scopes.clear();
        }
        Ok(terms)
    }

    /// The methods of a policy that the operation requires, or the method that the policy lacks.
    fn authentication(&self, policy: &Authentication) -> Result<Authentication, String> {
        let Means { keys, password, token, allows_login } = &self.means;
        let lacks = |scheme: &str, method: &str| {
            format!(
                "the scheme {scheme:?} needs spec.authentication.{method} in a SecurityPolicy of the Api or of the operation"
            )
        };
        let mut of = Authentication {
            require: match (self.needs_all, self.is_optional) {
                (true, _) => Require::All,
                (false, true) => Require::Optional,
                (false, false) => Require::Any,
            },
            ..policy.clone()
        };
        // A service that must allow every request keeps this effect.
        let must_allow = policy.ext_auth.is_some() && policy.require == Require::All;
        let decides = policy.ext_auth.is_some() && !must_allow;
        if must_allow && (self.is_optional || self.has_alternatives) {
            return Err("alternatives together with extAuth and require: All are not supported".to_owned());
        }
        if must_allow {
            of.require = Require::All;
        }
        let mut has_lack = false;
        of.api_key = of.api_key.filter(|_| !keys.is_empty());
        of.basic = of.basic.filter(|_| password.is_some());
        of.digest = None;
        of.jwt = of.jwt.filter(|_| token.is_some());
        of.introspection = of.introspection.filter(|_| token.is_some());
        of.oidc = of.oidc.filter(|_| *allows_login);
        match (&mut of.api_key, keys.first()) {
            (Some(api_key), _) if api_key.from.is_empty() => {
                let places = keys.iter().map(|(place, _)| place.clone()).collect();
                api_key.from = Entries::new(places).ok_or("there are more than 8 places of API keys")?;
            }
            (None, Some(_)) if decides => has_lack = true,
            (None, Some((_, scheme))) => return Err(lacks(scheme, "apiKey")),
            _ => {}
        }
        match password.as_ref().filter(|_| of.basic.is_none()) {
            Some(_) if decides => has_lack = true,
            Some(scheme) => return Err(lacks(scheme, "basic")),
            None => {}
        }
        if token.is_some() && !of.has_claims() && decides {
            has_lack = true;
        } else if let Some(scheme) = token.as_ref().filter(|_| !of.has_claims()) {
            let methods = if *allows_login { "jwt, introspection or oidc" } else { "jwt or introspection" };
            return Err(lacks(scheme, methods));
        }
        // The service decides only about schemes for which the policy has no method.
        of.ext_auth = of.ext_auth.filter(|_| must_allow || has_lack);
        of.required_scopes =
            self.scopes(&policy.required_scopes).filter(|_| of.has_claims()).unwrap_or_default();
        if !self.scopes.is_empty() && of.required_scopes.is_empty() && of.has_claims() {
            return Err("there are more than 16 alternatives of scopes, or a scope is invalid".to_owned());
        }
        Ok(of)
    }

    /// The scopes of the operation together with the scopes of the policy: each alternative of one with each of the other.
    fn scopes(&self, of_policy: &[ScopeList]) -> Option<Entries<ScopeList, 16>> {
        let of_policy = of_policy.iter().map(|list| list.split(' ').map(Into::into).collect());
        let of_policy: Vec<BTreeSet<Box<str>>> = of_policy.collect();
        let all = match (&self.scopes[..], &of_policy[..]) {
            (one, []) | ([], one) => one.to_vec(),
            (one, other) => {
                let with =
                    |one: &BTreeSet<Box<str>>| other.iter().map(|other| one | other).collect::<Vec<_>>();
                one.iter().flat_map(with).collect()
            }
        };
        let list = |scopes: &BTreeSet<Box<str>>| {
            ScopeList::new(&scopes.iter().map(|scope| &**scope).collect::<Vec<_>>().join(" ")).ok()
        };
        Entries::new(all.iter().map(list).collect::<Option<_>>()?)
    }
}

impl Means {
    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.password.is_none() && self.token.is_none()
    }

    /// Adds the means of a need. Returns whether it is a token.
    fn add(&mut self, document: &Document, need: &Need) -> Result<bool, String> {
        let scheme = &need.scheme;
        match document.security_schemes.get(scheme) {
            None => return Err(format!("the document describes no valid security scheme {scheme:?}")),
            Some(SecurityScheme::Other(kind)) => {
                return Err(format!("the scheme {scheme:?} is of the type {kind}, which is not supported"));
            }
            Some(SecurityScheme::ApiKey { place, name }) => {
                let place = match place {
                    KeyPlace::Header => HeaderName::new(name).map(Credential::header),
                    KeyPlace::Query => ParameterName::new(name).map(Credential::Query),
                    KeyPlace::Cookie => CookieName::new(name).map(Credential::Cookie),
                };
                let place = place.map_err(|fault| format!("the name of the scheme {scheme:?}: {fault}"))?;
                if !self.keys.iter().any(|(known, _)| *known == place) {
                    self.keys.push((place, scheme.clone()));
                }
                return Ok(false);
            }
            Some(SecurityScheme::Basic) => {
                self.password = Some(scheme.clone());
                return Ok(false);
            }
            Some(SecurityScheme::Bearer) => {}
            Some(SecurityScheme::OAuth2 | SecurityScheme::OpenIdConnect) => self.allows_login = true,
        }
        self.token = Some(scheme.clone());
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use sluicegate_model::ObjectId;

    use super::*;

    fn document() -> Document {
        Document::read(&json!({
            "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": {},
            "components": {"securitySchemes": {
                "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
                "query": {"type": "apiKey", "in": "query", "name": "key"},
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
                "oauth": {"type": "oauth2"},
                "certificate": {"type": "mutualTLS"},
            }},
        }))
    }

    /// The alternatives, each as the scopes of its schemes.
    fn applied(security: &Value, policy: Option<Value>) -> Result<Option<Value>, String> {
        let need = |(scheme, scopes): (&String, &Value)| Need {
            scheme: scheme.as_str().into(),
            scopes: serde_json::from_value(scopes.clone()).unwrap(),
        };
        let needs =
            security.as_array().unwrap().iter().map(|needs| needs.as_object().unwrap().iter().map(need));
        let security: Vec<Box<[Need]>> = needs.map(Iterator::collect).collect();
        let policy = policy.map(|authentication| Security {
            authentication: Some(serde_json::from_value(authentication).unwrap()),
            ..Security::open(ObjectId {
                kind: "SecurityPolicy",
                namespace: "default".into(),
                name: "pets".into(),
            })
        });
        let applied = Requirement::new(&document(), &security).apply(policy.as_ref())?;
        Ok(applied.map(|security| serde_json::to_value(security.authentication).unwrap()))
    }

    fn all() -> Value {
        let provider = json!({"name": "a", "keys": {"remote": {"url": "http://a/"}}});
        json!({"apiKey": {}, "basic": {"secretRef": {"name": "users"}}, "jwt": {"providers": [provider]}})
    }

    /// The methods of an authentication, `require` and the scopes.
    fn summary(authentication: &Value) -> (Vec<&str>, &str, Value) {
        let methods = ["apiKey", "basic", "jwt", "extAuth"];
        let methods = methods.into_iter().filter(|method| authentication.get(method).is_some()).collect();
        let scopes = authentication.get("requiredScopes").cloned().unwrap_or_else(|| json!([]));
        (methods, authentication["require"].as_str().unwrap(), scopes)
    }

    #[test]
    fn operation_accepts_only_the_schemes_that_it_names() {
        for (security, methods, require, scopes) in [
            (json!([{"key": []}]), vec!["apiKey"], "Any", json!([])),
            (json!([{"key": []}, {"basic": []}]), vec!["apiKey", "basic"], "Any", json!([])),
            (json!([{"key": [], "bearer": []}]), vec!["apiKey", "jwt"], "All", json!([])),
            (json!([{}, {"bearer": []}]), vec!["jwt"], "Optional", json!([])),
            (json!([{"oauth": ["write", "read"]}]), vec!["jwt"], "Any", json!(["read write"])),
            (
                json!([{"oauth": ["a"]}, {"oauth": ["b"]}, {"key": []}]),
                vec!["apiKey", "jwt"],
                "Any",
                json!(["a", "b"]),
            ),
            // A token without scopes is enough.
            (json!([{"oauth": ["a"]}, {"bearer": []}]), vec!["jwt"], "Any", json!([])),
        ] {
            let authentication = applied(&security, Some(all())).unwrap().unwrap();
            assert_eq!(summary(&authentication), (methods, require, scopes), "{security}");
        }
    }

    #[test]
    fn operation_without_security_needs_no_credentials() {
        for security in [json!([]), json!([{}])] {
            assert_eq!(applied(&security, Some(all())), Ok(Some(Value::Null)));
            assert_eq!(applied(&security, None), Ok(None));
        }
    }

    #[test]
    fn key_is_read_where_the_scheme_says_unless_the_policy_names_a_place() {
        let security = json!([{"key": []}, {"query": []}]);
        let places = |authentication: Value| {
            applied(&security, Some(authentication)).unwrap().unwrap()["apiKey"]["from"].clone()
        };
        assert_eq!(places(all()), json!([{"header": {"name": "x-key"}}, {"query": "key"}]));
        let own = json!({"apiKey": {"from": [{"cookie": "key"}]}});
        assert_eq!(places(own), json!([{"cookie": "key"}]));
    }

    #[test]
    fn scopes_of_policy_and_document_are_both_needed() {
        let mut policy = all();
        policy["requiredScopes"] = json!(["tenant"]);
        let authentication =
            applied(&json!([{"oauth": ["a"]}, {"oauth": ["b"]}]), Some(policy)).unwrap().unwrap();
        assert_eq!(authentication["requiredScopes"], json!(["a tenant", "b tenant"]));
    }

    #[test]
    fn requirement_that_cannot_be_checked_is_an_error() {
        let key_only = || Some(json!({"apiKey": {}}));
        for (security, policy, fault) in [
            (json!([{"none": []}]), Some(all()), "no valid security scheme \"none\""),
            (json!([{"certificate": []}]), Some(all()), "type mutualTLS"),
            (json!([{"key": ["admin"]}]), Some(all()), "roles of the scheme \"key\""),
            (json!([{"key": [], "basic": []}, {"bearer": []}]), Some(all()), "alternative"),
            (json!([{"key": [], "basic": []}, {}]), Some(all()), "alternative"),
            (json!([{"basic": []}]), key_only(), "spec.authentication.basic"),
            (json!([{"bearer": []}]), key_only(), "jwt or introspection"),
            (json!([{"key": []}]), None, "spec.authentication.apiKey"),
        ] {
            let error = applied(&security, policy).unwrap_err();
            assert!(error.contains(fault), "{security}: {error}");
        }
    }

    #[test]
    fn external_service_decides_about_schemes_without_a_method() {
        let policy = json!({"extAuth": {"url": "http://a/"}});
        let authentication = applied(&json!([{"bearer": ["a"]}]), Some(policy)).unwrap().unwrap();
        assert_eq!(summary(&authentication), (vec!["extAuth"], "Any", json!([])));
        let with = |require: &str| {
            let mut policy = all();
            policy["extAuth"] = json!({"url": "http://a/"});
            policy["require"] = json!(require);
            Some(policy)
        };
        let key = json!([{"key": []}]);
        for (require, methods) in [("Any", vec!["apiKey"]), ("All", vec!["apiKey", "extAuth"])] {
            let authentication = applied(&key, with(require)).unwrap().unwrap();
            assert_eq!(summary(&authentication), (methods, require, json!([])), "{require}");
        }
        let either = json!([{"key": []}, {"basic": []}]);
        assert!(applied(&either, with("All")).unwrap_err().contains("extAuth and require: All"));
    }
}
