//! The credentials that a document names for an operation. They narrow the SecurityPolicy of the operation.

use std::collections::BTreeSet;

use sluicegate_model::ObjectId;
use sluicegate_model::feature::authentication::{Combination, Need as Wanted, Require};
use sluicegate_model::feature::{Authentication, Credential};
use sluicegate_model::policy::Security;
use sluicegate_model::value::{CookieName, Entries, HeaderName, ParameterName, ScopeList};
use sluicegate_openapi::{Document, KeyPlace, Need, SecurityScheme};

/// The most combinations of credentials of an operation.
const COMBINATIONS_MAX: usize = 16;

/// The credentials that an operation requires, or the reason why the gateway cannot check them.
#[derive(Debug, PartialEq)]
pub(crate) struct Requirement(Result<Terms, String>);

#[derive(Debug, Default, PartialEq)]
struct Terms {
    /// One of these alternatives is enough.
    alternatives: Vec<Alternative>,
    /// Whether callers without credentials are allowed.
    is_optional: bool,
}

/// Credentials that are needed together.
#[derive(Debug, Default, PartialEq)]
struct Alternative {
    /// The places of API keys, each with the name of its scheme.
    keys: Vec<(Credential, Box<str>)>,
    /// The scheme with a user name and a password.
    password: Option<Box<str>>,
    /// The scheme with a token in the request.
    token: Option<Box<str>>,
    /// Whether a login of a browser is enough in place of the token.
    allows_login: bool,
    needs_certificate: bool,
    /// The scopes of the token.
    scopes: BTreeSet<Box<str>>,
}

impl Requirement {
    /// What `security` of an operation requires.
    pub(crate) fn new(document: &Document, security: &[Box<[Need]>]) -> Self {
        Self(Terms::new(document, security))
    }

    /// The policy of the operation with only the authentication that the operation requires. `None` is a policy that denies
    /// nothing. The error is the reason why the requirement cannot be met. `owner` is the Api.
    pub(crate) fn apply(
        &self,
        policy: Option<&Security>,
        owner: impl FnOnce() -> ObjectId,
    ) -> Result<Option<Security>, String> {
        let terms = self.0.as_ref().map_err(Clone::clone)?;
        if policy.is_some_and(|policy| policy.refuses.is_some()) {
            return Ok(policy.cloned());
        }
        if terms.alternatives.is_empty() {
            let open = |policy: &Security| Security { authentication: None, ..policy.clone() };
            return Ok(policy.map(open));
        }
        let authentication = policy.and_then(|policy| policy.authentication.as_ref());
        let authentication = terms.authentication(authentication.unwrap_or(&Authentication::default()))?;
        // A client certificate needs no method of a policy.
        let policy = policy.cloned().unwrap_or_else(|| Security::open(owner()));
        Ok(Some(Security { authentication: Some(authentication), ..policy }))
    }
}

impl Terms {
    fn new(document: &Document, security: &[Box<[Need]>]) -> Result<Self, String> {
        let mut terms = Self::default();
        for needs in security {
            match needs.is_empty() {
                true => terms.is_optional = true,
                false => terms.alternatives.push(Alternative::new(document, needs)?),
            }
        }
        Ok(terms)
    }

    /// The methods of a policy that the operation requires, or the method that the policy lacks.
    fn authentication(&self, policy: &Authentication) -> Result<Authentication, String> {
        let has = |is_so: fn(&Alternative) -> bool| self.alternatives.iter().any(is_so);
        // A service that must allow every request keeps this effect.
        let must_allow = policy.ext_auth.is_some() && policy.require == Require::All;
        if must_allow && self.is_optional {
            return Err("an alternative without credentials, together with extAuth and require: All, is not supported"
                .to_owned());
        }
        let mut of = Authentication {
            require: if self.is_optional { Require::Optional } else { Require::Any },
            ..policy.clone()
        };
        of.api_key = of.api_key.filter(|_| has(|of| !of.keys.is_empty()));
        of.basic = of.basic.filter(|_| has(|of| of.password.is_some()));
        of.digest = None;
        of.jwt = of.jwt.filter(|_| has(|of| of.token.is_some()));
        of.introspection = of.introspection.filter(|_| has(|of| of.token.is_some()));
        of.oidc = of.oidc.filter(|_| has(|of| of.allows_login));
        let names_places = of.api_key.as_ref().is_some_and(|api_key| !api_key.from.is_empty());
        if let Some(api_key) = of.api_key.as_mut().filter(|_| !names_places) {
            let mut places: Vec<Credential> = Vec::new();
            for (place, _) in self.alternatives.iter().flat_map(|of| &of.keys) {
                if !places.contains(place) {
                    places.push(place.clone());
                }
            }
            api_key.from = Entries::new(places).ok_or("there are more than 8 places of API keys")?;
        }
        let combine =
            |alternative: &Alternative| alternative.combination(&of, (policy, names_places, must_allow));
        of.combinations = self.alternatives.iter().map(combine).collect::<Result<_, _>>()?;
        if of.combinations.len() > COMBINATIONS_MAX {
            return Err(format!("there are more than {COMBINATIONS_MAX} alternatives"));
        }
        // The combinations have these scopes too.
        of.required_scopes = Entries::default();
        let asks = of.combinations.iter().any(|of| of.needs.contains(&Wanted::Service));
        of.ext_auth = of.ext_auth.filter(|_| asks);
        Ok(of)
    }
}

impl Alternative {
    fn new(document: &Document, needs: &[Need]) -> Result<Self, String> {
        let mut alternative = Self::default();
        for need in needs {
            let is_token = alternative.add(document, need)?;
            if !is_token && !need.scopes.is_empty() {
                return Err(format!("the roles of the scheme {:?} cannot be checked", need.scheme));
            }
            alternative.scopes.extend(need.scopes.iter().cloned());
        }
        Ok(alternative)
    }

    /// Adds a need. Returns whether it is a token.
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
            Some(SecurityScheme::MutualTls) => {
                self.needs_certificate = true;
                return Ok(false);
            }
            Some(SecurityScheme::Bearer) => {}
            Some(SecurityScheme::OAuth2 | SecurityScheme::OpenIdConnect) => self.allows_login = true,
        }
        self.token = Some(scheme.clone());
        Ok(true)
    }

    /// The credentials by the methods of the operation (`of`). `names_places`: the policy names the places of API keys.
    fn combination(
        &self,
        of: &Authentication,
        (policy, names_places, must_allow): (&Authentication, bool, bool),
    ) -> Result<Combination, String> {
        // The service decides only about schemes for which the policy has no method.
        let decides = policy.ext_auth.is_some() && !must_allow;
        let lacking = |scheme: &str, method: &str| match decides {
            true => Ok(Wanted::Service),
            false => Err(format!(
                "the scheme {scheme:?} needs spec.authentication.{method} in a SecurityPolicy of the Api or of the operation"
            )),
        };
        let mut needs = Vec::new();
        if self.needs_certificate {
            needs.push(Wanted::ClientCertificate);
        }
        for (place, scheme) in &self.keys {
            needs.push(match &of.api_key {
                None => lacking(scheme, "apiKey")?,
                Some(_) if names_places => Wanted::ApiKey(None),
                Some(_) => Wanted::ApiKey(Some(place.clone())),
            });
        }
        let has_token = of.jwt.is_some() || of.introspection.is_some();
        match &self.token {
            Some(_) if self.allows_login && (has_token || of.oidc.is_some()) => {
                needs.push(Wanted::TokenOrSession);
            }
            Some(_) if has_token => needs.push(Wanted::Token),
            Some(scheme) => {
                let methods =
                    if self.allows_login { "jwt, introspection or oidc" } else { "jwt or introspection" };
                needs.push(lacking(scheme, methods)?);
            }
            None => {}
        }
        match &self.password {
            Some(_) if of.basic.is_some() => needs.push(Wanted::Password),
            Some(scheme) => needs.push(lacking(scheme, "basic")?),
            None => {}
        }
        if must_allow {
            needs.push(Wanted::Service);
        }
        let mut distinct: Vec<Wanted> = Vec::with_capacity(needs.len());
        for need in needs {
            if !distinct.contains(&need) {
                distinct.push(need);
            }
        }
        let has_scopes = distinct.iter().any(|need| matches!(need, Wanted::Token | Wanted::TokenOrSession));
        let scopes = if has_scopes { self.scopes(&policy.required_scopes)? } else { Vec::new() };
        Ok(Combination { needs: distinct, scopes })
    }

    /// The scopes of the operation together with the scopes of the policy: with each alternative of the policy.
    fn scopes(&self, of_policy: &[ScopeList]) -> Result<Vec<ScopeList>, String> {
        let own: Vec<&str> = self.scopes.iter().map(|scope| &**scope).collect();
        let with = |of_policy: Option<&ScopeList>| {
            let others = of_policy.iter().flat_map(|list| list.split(' '));
            let all: BTreeSet<&str> = own.iter().copied().chain(others).collect();
            let list = ScopeList::new(&all.into_iter().collect::<Vec<_>>().join(" "));
            list.map_err(|fault| format!("a scope is invalid: {fault}"))
        };
        match of_policy {
            [] if own.is_empty() => Ok(Vec::new()),
            [] => Ok(vec![with(None)?]),
            all => all.iter().map(|list| with(Some(list))).collect(),
        }
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
                "digest": {"type": "http", "scheme": "digest"},
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
        let owner = || ObjectId { kind: "Api", namespace: "default".into(), name: "pets".into() };
        let applied = Requirement::new(&document(), &security).apply(policy.as_ref(), owner)?;
        Ok(applied.map(|security| serde_json::to_value(security.authentication).unwrap()))
    }

    fn all() -> Value {
        let provider = json!({"name": "a", "keys": {"remote": {"url": "http://a/"}}});
        json!({"apiKey": {}, "basic": {"secretRef": {"name": "users"}}, "jwt": {"providers": [provider]}})
    }

    /// The methods of an authentication, `require` and the combinations in words.
    fn summary(authentication: &Value) -> (Vec<&str>, &str, Vec<String>) {
        let methods = ["apiKey", "basic", "jwt", "extAuth"];
        let methods = methods.into_iter().filter(|method| authentication.get(method).is_some()).collect();
        assert_eq!(authentication.get("requiredScopes"), None);
        (methods, authentication["require"].as_str().unwrap(), combinations(authentication))
    }

    fn combinations(authentication: &Value) -> Vec<String> {
        let need = |need: &Value| match need.get("apiKey") {
            None => need.as_str().unwrap().to_owned(),
            Some(Value::Null) => "key".to_owned(),
            Some(place) => match place.get("query") {
                Some(name) => format!("key in query {}", name.as_str().unwrap()),
                None => format!("key in {}", place["header"]["name"].as_str().unwrap()),
            },
        };
        let combination = |of: &Value| {
            let needs: Vec<String> = of["needs"].as_array().unwrap().iter().map(need).collect();
            let scopes = of["scopes"].as_array().into_iter().flatten().map(|list| list.as_str().unwrap());
            let scopes: Vec<&str> = scopes.collect();
            let with = if scopes.is_empty() { String::new() } else { format!(": {}", scopes.join(" | ")) };
            format!("{}{with}", needs.join(" + "))
        };
        authentication["combinations"].as_array().into_iter().flatten().map(combination).collect()
    }

    #[test]
    fn operation_accepts_only_the_schemes_that_it_names() {
        for (security, methods, require, expected) in [
            (json!([{"key": []}]), vec!["apiKey"], "Any", vec!["key in x-key"]),
            (
                json!([{"key": []}, {"basic": []}]),
                vec!["apiKey", "basic"],
                "Any",
                vec!["key in x-key", "password"],
            ),
            (json!([{"key": [], "bearer": []}]), vec!["apiKey", "jwt"], "Any", vec!["key in x-key + token"]),
            (
                json!([{"key": [], "query": []}]),
                vec!["apiKey"],
                "Any",
                vec!["key in x-key + key in query key"],
            ),
            (json!([{}, {"bearer": []}]), vec!["jwt"], "Optional", vec!["token"]),
            (json!([{"oauth": ["write", "read"]}]), vec!["jwt"], "Any", vec!["tokenOrSession: read write"]),
            (
                json!([{"oauth": ["a"]}, {"oauth": ["b"], "key": []}, {"bearer": []}]),
                vec!["apiKey", "jwt"],
                "Any",
                vec!["tokenOrSession: a", "key in x-key + tokenOrSession: b", "token"],
            ),
            (
                json!([{"key": [], "basic": []}, {"bearer": []}, {}]),
                vec!["apiKey", "basic", "jwt"],
                "Optional",
                vec!["key in x-key + password", "token"],
            ),
            (
                json!([{"certificate": [], "key": []}, {"certificate": [], "basic": []}]),
                vec!["apiKey", "basic"],
                "Any",
                vec!["clientCertificate + key in x-key", "clientCertificate + password"],
            ),
        ] {
            let authentication = applied(&security, Some(all())).unwrap().unwrap();
            let expected = expected.into_iter().map(str::to_owned).collect();
            assert_eq!(summary(&authentication), (methods, require, expected), "{security}");
        }
    }

    #[test]
    fn client_certificate_needs_no_policy() {
        let authentication = applied(&json!([{"certificate": []}]), None).unwrap().unwrap();
        assert_eq!(combinations(&authentication), ["clientCertificate"]);
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
        assert_eq!(places(own.clone()), json!([{"cookie": "key"}]));
        assert_eq!(combinations(&applied(&security, Some(own)).unwrap().unwrap()), ["key", "key"]);
    }

    #[test]
    fn scopes_of_policy_and_document_are_both_needed() {
        let mut policy = all();
        policy["requiredScopes"] = json!(["tenant"]);
        let authentication =
            applied(&json!([{"oauth": ["a"]}, {"oauth": ["b"]}]), Some(policy)).unwrap().unwrap();
        let expected = ["tokenOrSession: a tenant", "tokenOrSession: b tenant"];
        assert_eq!(combinations(&authentication), expected);
        let mut policy = all();
        policy["requiredScopes"] = json!(["x", "y"]);
        let authentication = applied(&json!([{"oauth": ["a"]}]), Some(policy)).unwrap().unwrap();
        assert_eq!(combinations(&authentication), ["tokenOrSession: a x | a y"]);
    }

    #[test]
    fn requirement_that_cannot_be_checked_is_an_error() {
        let key_only = || Some(json!({"apiKey": {}}));
        for (security, policy, fault) in [
            (json!([{"none": []}]), Some(all()), "no valid security scheme \"none\""),
            (json!([{"digest": []}]), Some(all()), "type http digest"),
            (json!([{"key": ["admin"]}]), Some(all()), "roles of the scheme \"key\""),
            (json!(vec![json!({"key": []}); 17]), Some(all()), "more than 16 alternatives"),
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
        assert_eq!(summary(&authentication), (vec!["extAuth"], "Any", vec!["service".to_owned()]));
        let with = |require: &str| {
            let mut policy = all();
            policy["extAuth"] = json!({"url": "http://a/"});
            policy["require"] = json!(require);
            Some(policy)
        };
        let either = json!([{"key": []}, {"basic": []}]);
        for (require, methods, expected) in [
            ("Any", vec!["apiKey", "basic"], ["key in x-key", "password"]),
            ("All", vec!["apiKey", "basic", "extAuth"], ["key in x-key + service", "password + service"]),
        ] {
            let authentication = applied(&either, with(require)).unwrap().unwrap();
            let expected = expected.map(str::to_owned).into();
            assert_eq!(summary(&authentication), (methods, "Any", expected), "{require}");
        }
        let optional = json!([{"key": []}, {}]);
        assert!(applied(&optional, with("All")).unwrap_err().contains("extAuth and require: All"));
    }
}
