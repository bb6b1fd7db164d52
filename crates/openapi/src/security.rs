//! Security schemes, and what operations require of their callers.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::document::list;
use crate::finding::{Findings, Pointer};
use crate::reference::resolve;

/// How callers authenticate (OpenAPI 3.1, "Security Scheme Object").
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecurityScheme {
    /// A key in a header, a query parameter or a cookie.
    ApiKey {
        /// The place of the key.
        place: KeyPlace,
        /// The name of the header, the parameter or the cookie.
        name: Box<str>,
    },
    /// A user name and a password.
    Basic,
    /// A bearer token.
    Bearer,
    /// An access token of OAuth 2.0.
    OAuth2,
    /// A token or a login of OpenID Connect.
    OpenIdConnect,
    /// A client certificate.
    MutualTls,
    /// Another way, such as `http` with the scheme `digest`.
    Other(Box<str>),
}

/// The place of an API key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlace {
    /// A header.
    Header,
    /// A parameter of the query.
    Query,
    /// A cookie.
    Cookie,
}

/// A security scheme that a request must satisfy.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Need {
    /// The name of the security scheme.
    pub scheme: Box<str>,
    /// The scopes that the credential needs.
    pub scopes: Box<[Box<str>]>,
}

/// What an operation requires of its callers: all needs of one alternative. An alternative without needs allows callers without
/// credentials. No alternative at all: nothing is required.
pub type Security = Box<[Box<[Need]>]>;

/// The security schemes of a document, by their names.
pub(crate) fn schemes(
    root: &Value,
    fields: &Map<String, Value>,
    findings: &mut Findings,
) -> BTreeMap<Box<str>, SecurityScheme> {
    let (of_root, mut schemes) = (Pointer::Root, BTreeMap::new());
    let (of_components, components) = (of_root.field("components"), fields.get("components"));
    let at = of_components.field("securitySchemes");
    let written =
        components.and_then(|components| components.get("securitySchemes")).and_then(Value::as_object);
    for (name, scheme) in written.into_iter().flatten() {
        let at = at.field(name);
        let Some(scheme) = resolve(root, scheme, &at, findings) else { continue };
        match SecurityScheme::read(scheme) {
            Ok(scheme) => {
                schemes.insert(name.as_str().into(), scheme);
            }
            Err((field, fault)) => findings.warning(&at.field(field), fault),
        }
    }
    schemes
}

impl SecurityScheme {
    /// Reads a scheme. The error is the field and its fault.
    fn read(scheme: &Value) -> Result<Self, (&'static str, String)> {
        let text = |field: &str| scheme.get(field).and_then(Value::as_str).unwrap_or_default();
        match text("type") {
            "apiKey" => {
                let place = match text("in") {
                    "header" => KeyPlace::Header,
                    "query" => KeyPlace::Query,
                    "cookie" => KeyPlace::Cookie,
                    other => {
                        return Err((
                            "in",
                            format!("{other:?} is no place of a key: write header, query or cookie"),
                        ));
                    }
                };
                match text("name") {
                    "" => Err((
                        "name",
                        "is missing: write the name of the header, parameter or cookie".to_owned(),
                    )),
                    name => Ok(Self::ApiKey { place, name: name.into() }),
                }
            }
            // The name of a scheme has no case (RFC 9110, 11.1).
            "http" => Ok(match &*text("scheme").to_ascii_lowercase() {
                "basic" => Self::Basic,
                "bearer" => Self::Bearer,
                other => Self::Other(format!("http {other}").into()),
            }),
            "oauth2" => Ok(Self::OAuth2),
            "openIdConnect" => Ok(Self::OpenIdConnect),
            "mutualTLS" => Ok(Self::MutualTls),
            "" => {
                Err(("type", "is missing: write apiKey, http, oauth2, openIdConnect or mutualTLS".to_owned()))
            }
            other => Ok(Self::Other(other.into())),
        }
    }
}

/// The alternatives of `security`. `at` is the place of the list.
pub(crate) fn security(
    written: &Value,
    schemes: &BTreeMap<Box<str>, SecurityScheme>,
    at: &Pointer<'_>,
    findings: &mut Findings,
) -> Security {
    let alternative = |(index, needs): (usize, &Value)| -> Box<[Need]> {
        let at = at.item(index);
        let needs = needs.as_object().into_iter().flatten();
        let mut needs: Vec<Need> = needs
            .map(|(name, scopes)| {
                if !schemes.contains_key(&**name) {
                    let fault = "names no security scheme of components.securitySchemes: correct the name";
                    findings.warning(&at.field(name), fault);
                }
                let scopes = list(Some(scopes)).iter().filter_map(Value::as_str).map(Into::into);
                Need { scheme: name.as_str().into(), scopes: scopes.collect() }
            })
            .collect();
        needs.sort();
        needs.into()
    };
    list(Some(written)).iter().enumerate().map(alternative).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Document;

    fn document(schemes: &Value, security: &Value, operation: &Value) -> Document {
        let mut root = json!({
            "openapi": "3.1.0", "info": {"title": "Pets", "version": "1"},
            "components": {"securitySchemes": schemes, "x": {"type": "http", "scheme": "Bearer"}},
            "paths": {"/pets": {"get": operation}},
        });
        if !security.is_null() {
            root["security"] = security.clone();
        }
        Document::read(&root)
    }

    fn faults(document: &Document) -> Vec<String> {
        document.findings.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn schemes_have_a_type() {
        let schemes = json!({
            "key": {"type": "apiKey", "in": "query", "name": "key"},
            "basic": {"type": "http", "scheme": "BASIC"},
            "token": {"$ref": "#/components/x"},
            "digest": {"type": "http", "scheme": "digest"},
            "oauth": {"type": "oauth2"},
            "login": {"type": "openIdConnect"},
            "certificate": {"type": "mutualTLS"},
        });
        let read = document(&schemes, &Value::Null, &json!({}));
        assert_eq!(faults(&read), [""; 0]);
        let key = SecurityScheme::ApiKey { place: KeyPlace::Query, name: "key".into() };
        for (name, scheme) in [
            ("key", key),
            ("basic", SecurityScheme::Basic),
            ("token", SecurityScheme::Bearer),
            ("digest", SecurityScheme::Other("http digest".into())),
            ("oauth", SecurityScheme::OAuth2),
            ("login", SecurityScheme::OpenIdConnect),
            ("certificate", SecurityScheme::MutualTls),
        ] {
            assert_eq!(read.security_schemes.get(name), Some(&scheme), "{name}");
        }
    }

    #[test]
    fn security_of_an_operation_replaces_the_security_of_the_document() {
        let schemes =
            json!({"key": {"type": "apiKey", "in": "header", "name": "k"}, "oauth": {"type": "oauth2"}});
        let of = |scheme: &str, scopes: &[&str]| Need {
            scheme: scheme.into(),
            scopes: scopes.iter().map(|scope| Box::from(*scope)).collect(),
        };
        let both = json!([{"oauth": ["read"], "key": []}, {}]);
        for (document_security, operation, expected) in [
            (Value::Null, json!({}), vec![]),
            (json!([{"key": []}]), json!({}), vec![vec![of("key", &[])]]),
            (json!([{"key": []}]), json!({"security": []}), vec![]),
            (
                json!([{"key": []}]),
                json!({"security": both}),
                vec![vec![of("key", &[]), of("oauth", &["read"])], vec![]],
            ),
        ] {
            let read = document(&schemes, &document_security, &operation);
            let security: Vec<Vec<Need>> = read.operations[0].security.iter().map(|of| of.to_vec()).collect();
            assert_eq!(security, expected);
            assert_eq!(faults(&read), [""; 0]);
        }
    }

    #[test]
    fn fault_of_a_scheme_names_its_place() {
        let schemes = json!({
            "a": {"type": "apiKey", "in": "body", "name": "k"}, "b": {"type": "apiKey", "in": "header"}, "c": {},
            "d": {"$ref": "#/none"},
        });
        let read = document(&schemes, &json!([{"e": []}]), &json!({"security": [{"a": []}]}));
        let expected = [
            "#/components/securitySchemes/a/in: \"body\" is no place of a key",
            "#/components/securitySchemes/b/name: is missing",
            "#/components/securitySchemes/c/type: is missing",
            "#/components/securitySchemes/d/$ref: \"#/none\" does not exist",
            "#/security/0/e: names no security scheme",
            "#/paths/~1pets/get/security/0/a: names no security scheme",
        ];
        let found = faults(&read);
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{expected}: {found}");
        }
    }
}
