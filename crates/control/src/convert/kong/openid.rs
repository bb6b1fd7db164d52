//! The plugins `openid-connect` and `oauth2-introspection`, as a login and an introspection of tokens.

use serde_json::{Map, Value, json};
use sluicegate_kong::file::Plugin;
use sluicegate_kong::node::{self, Node};

use super::Conversion;
use super::plugins::{Unconverted, decoded, flag, text, texts};

/// Keys of `openid-connect` that restrict callers further.
const RESTRICTIONS: [&str; 6] = [
    "audience_required",
    "authenticated_groups_claim",
    "groups_required",
    "issuers_allowed",
    "roles_required",
    "scopes_required",
];

/// The other keys of `openid-connect` with a conversion, or without an effect here.
const KNOWN: [&str; 23] = [
    "anonymous",
    "auth_methods",
    "cache_ttl",
    "client_auth",
    "client_id",
    "client_secret",
    "introspection_endpoint",
    "issuer",
    "login_action",
    "login_methods",
    "logout_methods",
    "logout_uri_suffix",
    "redirect_uri",
    "run_on_preflight",
    "scopes",
    "session_absolute_timeout",
    "session_cookie_domain",
    "session_secret",
    "ssl_verify",
    "timeout",
    "upstream_access_token_header",
    "upstream_headers_claims",
    "upstream_headers_names",
];

impl Conversion<'_> {
    /// The login, the introspection of tokens, or both, by their fields.
    pub(super) fn openid_connect(&mut self, plugin: &Plugin) -> Result<Map<String, Value>, Unconverted> {
        if let Some(key) = RESTRICTIONS.iter().find(|key| is_set(plugin, key)) {
            let message = format!(
                "config.{key} is not converted: write a SecurityPolicy with oidc and authorization, and remove the plugin"
            );
            return Err(message.into());
        }
        self.others(plugin, &[&KNOWN[..], &RESTRICTIONS].concat());
        let methods = texts(plugin, "auth_methods").unwrap_or_default();
        if methods.is_empty() {
            return Err("accepts all methods, because config.auth_methods is missing: write the methods that callers use, such as authorization_code or introspection".into());
        }
        for method in &methods {
            let is_known =
                ["authorization_code", "introspection", "refresh_token", "session"].contains(&&**method);
            if !is_known {
                let message =
                    format!("config.auth_methods: {method} is not converted, and its callers receive 401");
                self.note(plugin, &message);
            }
        }
        let has = |method: &str| methods.iter().any(|name| name == method);
        let mut fields = Map::new();
        if has("authorization_code") {
            fields.insert("oidc".to_owned(), self.login(plugin)?);
        }
        if has("introspection") {
            let url = text(plugin, "introspection_endpoint")
                .ok_or("needs config.introspection_endpoint: write the URL that the issuer publishes")?;
            let mut introspection = self.client(plugin)?;
            introspection.insert("url".to_owned(), url.into());
            fields.insert("introspection".to_owned(), introspection.into());
        }
        match fields.is_empty() {
            true => Err("needs authorization_code or introspection in config.auth_methods".into()),
            false => Ok(fields),
        }
    }

    /// The introspection of the plugin `oauth2-introspection`.
    pub(super) fn introspection(&mut self, plugin: &Plugin) -> Result<Value, Unconverted> {
        const KNOWN: [&str; 7] = [
            "anonymous",
            "authorization_value",
            "hide_credentials",
            "introspection_url",
            "run_on_preflight",
            "timeout",
            "ttl",
        ];
        self.others(plugin, &KNOWN);
        let url = text(plugin, "introspection_url").ok_or("needs config.introspection_url")?;
        let client = text(plugin, "authorization_value").and_then(basic).ok_or(
            "needs config.authorization_value with Basic and the client: write openid-connect with client_id and client_secret",
        )?;
        let secret = self.secret_once(plugin.line, "client", "client-secret", client.1.as_bytes());
        let seconds = plugin.config.get("ttl").and_then(Node::number).unwrap_or(30.0).clamp(0.0, 3600.0);
        let forward = !flag(plugin, "hide_credentials", false);
        Ok(json!({
            "url": url, "clientId": client.0, "clientSecretRef": {"name": secret}, "forward": forward,
            "cache": {"active": format!("{}s", seconds.floor())},
        }))
    }

    fn login(&mut self, plugin: &Plugin) -> Result<Value, Unconverted> {
        let issuer = text(plugin, "issuer").ok_or("needs config.issuer")?;
        let issuer = issuer.strip_suffix("/.well-known/openid-configuration").unwrap_or(issuer);
        let key = text(plugin, "session_secret")
            .filter(|key| (32..=256).contains(&key.len()))
            .ok_or("needs config.session_secret of 32 to 256 characters, which encrypts the cookies")?;
        let mut login = self.client(plugin)?;
        let keys = self.secret_once(plugin.line, "session", "cookie-secret", key.as_bytes());
        login.insert("issuer".to_owned(), issuer.into());
        login.insert("cookieSecretRef".to_owned(), json!({"name": keys}));
        if let Some(scopes) = texts(plugin, "scopes").filter(|scopes| !scopes.is_empty()) {
            login.insert("scopes".to_owned(), json!(scopes));
        }
        if let Some(path) = one(plugin, "redirect_uri").as_deref().and_then(path_of) {
            login.insert("redirectPath".to_owned(), path.into());
        } else {
            let message =
                "config.redirect_uri is missing: register https://HOST/oauth2/callback at the issuer";
            self.note(plugin, message);
        }
        if let Some(path) = text(plugin, "logout_uri_suffix").filter(|path| path.starts_with('/')) {
            login.insert("logoutPath".to_owned(), path.into());
        }
        if let Some(domain) = text(plugin, "session_cookie_domain") {
            login.insert("cookieDomain".to_owned(), domain.into());
        }
        // Kong: a session lasts for a day.
        let seconds = plugin.config.get("session_absolute_timeout").and_then(Node::number);
        let seconds = seconds.unwrap_or(86_400.0).clamp(60.0, 2_592_000.0);
        login.insert("sessionLifetime".to_owned(), format!("{}m", (seconds / 60.0).floor()).into());
        if text(plugin, "upstream_access_token_header").is_none_or(|header| header == "authorization:bearer")
        {
            login.insert("forwardAccessToken".to_owned(), true.into());
        } else {
            self.note(
                plugin,
                "config.upstream_access_token_header is not converted: write authorization:bearer",
            );
        }
        Ok(login.into())
    }

    /// The fields about the client of the issuer, and about the claims.
    fn client(&mut self, plugin: &Plugin) -> Result<Map<String, Value>, Unconverted> {
        let id = one(plugin, "client_id").ok_or("needs config.client_id")?;
        let secret = one(plugin, "client_secret").ok_or("needs config.client_secret")?;
        let secret = self.secret_once(plugin.line, "client", "client-secret", secret.as_bytes());
        let mut client = Map::new();
        client.insert("clientId".to_owned(), id.into());
        client.insert("clientSecretRef".to_owned(), json!({"name": secret}));
        match one(plugin, "client_auth").as_deref() {
            None | Some("client_secret_basic") => {}
            Some("client_secret_post") => {
                client.insert("clientAuthentication".to_owned(), "Post".into());
            }
            Some(_) => return Err("config.client_auth is not converted: write client_secret_basic".into()),
        }
        if !flag(plugin, "ssl_verify", true) {
            self.note(plugin, "config.ssl_verify: the gateway always verifies the certificate of the issuer");
        }
        let names = texts(plugin, "upstream_headers_names").unwrap_or_default();
        let claims = texts(plugin, "upstream_headers_claims").unwrap_or_default();
        let headers: Vec<Value> = claims
            .iter()
            .zip(&names)
            .map(|(claim, header)| json!({"claim": claim, "header": header}))
            .collect();
        if !headers.is_empty() {
            client.insert("claimToHeaders".to_owned(), headers.into());
        }
        Ok(client)
    }
}

/// The ID and the secret of a client in the form of Basic authentication.
fn basic(value: &str) -> Option<(String, String)> {
    let text = String::from_utf8(decoded(value.strip_prefix("Basic ")?.trim().as_bytes())?).ok()?;
    text.split_once(':').map(|(id, secret)| (id.to_owned(), secret.to_owned()))
}

fn is_set(plugin: &Plugin, key: &str) -> bool {
    plugin.config.get(key).is_some_and(|value| value.value != node::Value::Null)
}

/// A text, or the first text of a list.
fn one(plugin: &Plugin, key: &str) -> Option<String> {
    let first = texts(plugin, key).and_then(|list| list.into_iter().next());
    first.or_else(|| text(plugin, key).map(str::to_owned))
}

/// The path of a URL.
fn path_of(url: &str) -> Option<String> {
    let path = url.parse::<http::Uri>().ok()?.path().to_owned();
    (path.len() > 1).then_some(path)
}
