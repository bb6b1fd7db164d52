//! The plugins that authenticate and authorize callers.

use serde_json::{Map, Value, json};
use sluicegate_kong::file::{Credential, CredentialKind, Plugin};
use sluicegate_kong::node::Node;

use super::{Effects, Unconverted, decoded, flag, text, texts};
use crate::convert::kong::Conversion;
use crate::convert::kong::consumers::{BASIC, basic_secret};

/// The shortest secret of tokens, in bytes.
const SECRET_MIN: usize = 16;

impl Conversion<'_> {
    pub(super) fn authentication<'p>(
        &mut self,
        (route, service): (usize, Option<usize>),
        plugins: &[&'p Plugin],
        acl: Option<&'p Plugin>,
        effects: &mut Effects,
    ) -> Result<(), (&'p Plugin, Unconverted)> {
        let Some(first) = plugins.first() else {
            return match acl {
                Some(acl) => {
                    Err((acl, "needs a plugin that authenticates: add key-auth, basic-auth or jwt".into()))
                }
                None => Ok(()),
            };
        };
        effects.security.0 = first.line;
        let mut authentication = Map::new();
        for plugin in plugins {
            let converted = match &*plugin.name {
                "key-auth" => Ok(self.key_auth(plugin)),
                "basic-auth" => Ok(self.basic_auth(plugin)),
                "jwt" => self.jwt(plugin),
                "oauth2-introspection" => self.introspection(plugin),
                _ => {
                    let mut fields = self.openid_connect(plugin).map_err(|fault| (*plugin, fault))?;
                    if fields.len() > 1 && plugins.len() > 1 {
                        let message = "has two methods, of which one is enough, beside other plugins that authenticate: remove a method or the other plugins";
                        return Err((plugin, message.into()));
                    }
                    authentication.append(&mut fields);
                    continue;
                }
            };
            let field = match &*plugin.name {
                "key-auth" => "apiKey",
                "basic-auth" => "basic",
                "jwt" => "jwt",
                _ => "introspection",
            };
            authentication.insert(field.to_owned(), converted.map_err(|fault| (*plugin, fault))?);
        }
        // With `anonymous`, a request without credentials is of a consumer.
        let is_anonymous = |plugin: &&&Plugin| text(plugin, "anonymous").is_some_and(|name| !name.is_empty());
        let anonymous = plugins.iter().filter(is_anonymous).count();
        if plugins.len() > 1 {
            let require = if anonymous > 0 { "Any" } else { "All" };
            authentication.insert("require".to_owned(), require.into());
        }
        if anonymous > 0 {
            let names: Vec<&str> = plugins.iter().filter_map(|plugin| text(plugin, "anonymous")).collect();
            let is_terminated = self.file.plugins.iter().any(|plugin| {
                let consumer = plugin.scope.consumer.map(|place| &self.file.consumers[place]);
                plugin.enabled
                    && plugin.name == "request-termination"
                    && plugin.scope.route.is_none_or(|of| of == route)
                    && plugin.scope.service.is_none_or(|of| Some(of) == service)
                    && consumer.is_some_and(|of| {
                        names.contains(&of.name()) || names.iter().any(|name| of.id.as_deref() == Some(name))
                    })
            });
            if !is_terminated && acl.is_none() {
                let message = "anonymous lets all callers in, so callers are not authenticated: remove anonymous to identify consumers";
                self.note(first, message);
                return Ok(());
            }
            if !is_terminated {
                let message = "anonymous is not converted, and callers without credentials receive 401: remove anonymous";
                self.note(first, message);
            }
        }
        let has_tokens =
            ["jwt", "oidc", "introspection"].iter().any(|field| authentication.contains_key(*field));
        effects.security.1.insert("authentication".to_owned(), authentication.into());
        if let Some(acl) = acl {
            if has_tokens {
                return Err((acl, "is not converted together with tokens, which name no consumer here: write authorization with claims".into()));
            }
            let rules = self.acl(acl).map_err(|fault| (acl, fault))?;
            effects.security.1.insert("authorization".to_owned(), json!({"rules": rules}));
        }
        Ok(())
    }

    fn key_auth(&mut self, plugin: &Plugin) -> Value {
        self.others(
            plugin,
            &[
                "key_names",
                "key_in_header",
                "key_in_query",
                "key_in_body",
                "hide_credentials",
                "anonymous",
                "run_on_preflight",
                "realm",
            ],
        );
        self.dropped(plugin, "realm", "", "the challenge has no realm");
        self.dropped_preflight(plugin);
        if flag(plugin, "key_in_body", false) {
            self.note(plugin, "config.key_in_body is not converted: send keys in a header");
        }
        let names = texts(plugin, "key_names").unwrap_or_else(|| vec!["apikey".to_owned()]);
        let mut from = Vec::new();
        for name in names {
            if flag(plugin, "key_in_header", true) {
                from.push(json!({"header": {"name": name}}));
            }
            if flag(plugin, "key_in_query", true) {
                from.push(json!({"query": name}));
            }
        }
        if from.len() > 8 {
            self.note(
                plugin,
                "config.key_names has more than 8 places, and the first 8 are converted: remove names",
            );
            from.truncate(8);
        }
        json!({"from": from, "forward": !flag(plugin, "hide_credentials", false)})
    }

    fn basic_auth(&mut self, plugin: &Plugin) -> Value {
        self.others(plugin, &["hide_credentials", "anonymous", "realm", "run_on_preflight"]);
        self.dropped_preflight(plugin);
        let secret = match &self.basic {
            Some(name) => name.clone(),
            None => {
                let users = basic_secret(self.file, &self.closed, &mut self.notes);
                let name = self.secret(plugin.line, BASIC, None, &[("auth", &users)]);
                self.basic.insert(name).clone()
            }
        };
        json!({
            "secretRef": {"name": secret},
            "realm": text(plugin, "realm").unwrap_or("service"),
            "forward": !flag(plugin, "hide_credentials", false),
        })
    }

    fn jwt(&mut self, plugin: &Plugin) -> Result<Value, Unconverted> {
        self.others(
            plugin,
            &[
                "header_names",
                "uri_param_names",
                "cookie_names",
                "key_claim_name",
                "claims_to_verify",
                "maximum_expiration",
                "secret_is_base64",
                "anonymous",
                "run_on_preflight",
                "realm",
            ],
        );
        self.dropped(plugin, "realm", "", "the challenge has no realm");
        self.dropped_preflight(plugin);
        if text(plugin, "key_claim_name").is_some_and(|name| name != "iss") {
            return Err(
                "key_claim_name is not iss: write a SecurityPolicy with the issuers of the tokens".into()
            );
        }
        if plugin.config.get("maximum_expiration").and_then(Node::number).is_some_and(|time| time > 0.0) {
            self.note(plugin, "config.maximum_expiration is not converted: limit the lifetime at the issuer");
        }
        let claims = texts(plugin, "claims_to_verify").unwrap_or_default();
        let is_base64 = flag(plugin, "secret_is_base64", false);
        let mut providers = Vec::new();
        for (place, consumer) in self.file.consumers.iter().enumerate() {
            let is_jwt = |of: &&Credential| of.kind == CredentialKind::Jwt;
            for credential in consumer.credentials.iter().filter(is_jwt) {
                if self.closed.contains(&place) {
                    continue;
                }
                let Some(key) = credential.text("key") else {
                    let message = "has no key, which Kong generates: write the issuer of the tokens";
                    self.notes.unconverted(credential.line, "jwt_secrets", message);
                    continue;
                };
                let algorithm = credential.text("algorithm").unwrap_or("HS256");
                let keys = if algorithm.starts_with("HS") {
                    let secret = credential.text("secret").unwrap_or_default().as_bytes().to_vec();
                    let secret = match is_base64 {
                        true => decoded(&secret).unwrap_or_default(),
                        false => secret,
                    };
                    if secret.len() < SECRET_MIN {
                        let message = format!(
                            "a secret has less than {SECRET_MIN} bytes, so the tokens of {} are not valid: use a longer secret",
                            consumer.label()
                        );
                        self.notes.unconverted(credential.line, "jwt_secrets", message);
                        continue;
                    }
                    let name = self.secret_once(credential.line, "jwt", "secret", &secret);
                    json!({"sharedSecretRef": {"name": name}})
                } else {
                    json!({"inline": credential.text("rsa_public_key").unwrap_or_default()})
                };
                providers.push(json!({
                    "name": format!("kong-{}", providers.len() + 1),
                    "issuer": key,
                    "algorithms": [algorithm],
                    "keys": keys,
                    "allowMissingExpiry": !claims.iter().any(|claim| claim == "exp"),
                    "clockSkew": "0s",
                }));
            }
        }
        match providers.len() {
            0 => return Err("no consumer has a usable jwt_secrets: write jwt_secrets with key".into()),
            1..=8 => {}
            _ => {
                return Err(
                    "more than 8 jwt_secrets are not converted: write a SecurityPolicy with a JWK set".into(),
                );
            }
        }
        self.note(
            plugin,
            "services do not receive the consumer of a token: write claimToHeaders in the SecurityPolicy",
        );
        if !claims.iter().any(|claim| claim == "exp") {
            self.note(
                plugin,
                "tokens with an exp in the past are not valid: write exp into claims_to_verify",
            );
        }
        let headers = texts(plugin, "header_names").unwrap_or_else(|| vec!["authorization".to_owned()]);
        let mut from: Vec<Value> =
            headers.iter().map(|name| json!({"header": {"name": name, "prefix": "Bearer "}})).collect();
        let parameters = texts(plugin, "uri_param_names").unwrap_or_else(|| vec!["jwt".to_owned()]);
        from.extend(parameters.iter().map(|name| json!({"query": name})));
        from.extend(
            texts(plugin, "cookie_names").unwrap_or_default().iter().map(|name| json!({"cookie": name})),
        );
        if from.len() > 8 {
            self.note(
                plugin,
                "has more than 8 places of tokens, and the first 8 are converted: remove places",
            );
            from.truncate(8);
        }
        Ok(json!({"providers": providers, "from": from}))
    }

    /// The rules of the plugin acl.
    fn acl(&mut self, plugin: &Plugin) -> Result<Vec<Value>, Unconverted> {
        // The names before version 2 of Kong.
        let list = |one: &str, other: &str| {
            texts(plugin, one).or_else(|| texts(plugin, other)).filter(|list| !list.is_empty())
        };
        let (allow, deny) = (list("allow", "whitelist"), list("deny", "blacklist"));
        self.others(
            plugin,
            &[
                "allow",
                "deny",
                "whitelist",
                "blacklist",
                "hide_groups_header",
                "always_use_authenticated_groups",
            ],
        );
        self.dropped(plugin, "hide_groups_header", "false", "services receive X-Consumer-Groups");
        self.dropped(plugin, "always_use_authenticated_groups", "false", "remove it");
        if allow.iter().chain(&deny).any(|groups| groups.len() > 64) {
            return Err("has more than 64 groups: write fewer groups".into());
        }
        match (allow, deny) {
            (Some(groups), None) => Ok(vec![json!({"action": "Allow", "groups": groups})]),
            (None, Some(groups)) => {
                Ok(vec![json!({"action": "Deny", "groups": groups}), json!({"action": "Allow"})])
            }
            _ => Err("needs either allow or deny".into()),
        }
    }
}
