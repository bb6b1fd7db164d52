//! The configuration of an OpenID provider (OpenID Connect Discovery 1.0).

use std::sync::Arc;

use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use sluicegate_jwt::KeySet;
use sluicegate_model::feature::authentication::jwt::RemoteKeys;
use sluicegate_model::feature::authentication::oidc::OidcEndpoints;
use sluicegate_model::value::secret;
use sluicegate_model::value::{Span, Url};

use super::Registration;
use super::keys::keys_at;
use super::published::{Document, Places, Published};
use crate::http_client::Server;

/// The time between two fetches of the configuration.
const REFRESH: Span<1000, { 24 * 3_600_000 }> = Span::of_millis(600_000);

/// The time between two fetches of the keys.
const KEYS_REFRESH: Span<1000, { 24 * 3_600_000 }> = Span::of_millis(300_000);

/// The configuration of a provider.
#[derive(Debug)]
pub struct Metadata {
    pub(super) authorization: Url,
    pub(super) token: Server,
    pub(super) end_session: Option<Url>,
    pub(super) keys: Arc<Published<KeySet>>,
    /// Whether authorization responses name their issuer (RFC 9207).
    pub(super) names_issuer: bool,
}

/// The requirements on the configuration of a provider.
#[derive(Clone, PartialEq)]
pub(crate) struct Terms {
    issuer: Url,
    /// How the gateway fetches documents of the provider.
    source: RemoteKeys,
    keys: Places<KeySet>,
}

/// The place of the configuration of a provider.
#[derive(Debug)]
pub(super) enum Provider {
    Written(Arc<Metadata>),
    Published(Arc<Published<Metadata>>),
}

/// The document (OpenID Connect Discovery 1.0, 3; RP-Initiated Logout 1.0, 2.1; RFC 9207, 3).
#[derive(Deserialize)]
struct Written {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
    jwks_uri: String,
    end_session_endpoint: Option<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

impl Provider {
    pub(super) fn new(
        registration: &Registration,
        keys: &Places<KeySet>,
        providers: &Places<Metadata>,
    ) -> Result<Self, String> {
        let Registration { issuer, endpoints, authorities, timeout, .. } = registration;
        let base = issuer.trim_end_matches('/');
        let source = RemoteKeys {
            url: Url::new(&format!("{base}/.well-known/openid-configuration"))?,
            ca_certificate_ref: authorities.clone(),
            refresh_interval: REFRESH,
            timeout: *timeout,
        };
        let terms = Terms { issuer: issuer.clone(), source: source.clone(), keys: keys.clone() };
        match endpoints {
            Some(endpoints) => Ok(Self::Written(Arc::new(terms.metadata(endpoints.clone(), false)?))),
            None => Ok(Self::Published(providers.at(&Arc::new(source), terms))),
        }
    }

    /// The configuration, once it is known.
    pub(super) async fn metadata(&self) -> Option<Arc<Metadata>> {
        match self {
            Self::Written(metadata) => Some(metadata.clone()),
            Self::Published(published) => published.first().await,
        }
    }
}

impl Terms {
    fn metadata(&self, endpoints: OidcEndpoints, names_issuer: bool) -> Result<Metadata, String> {
        let OidcEndpoints { authorization, token, jwks, end_session } = endpoints;
        let authorities: &[CertificateDer<'static>] = secret::authorities(&self.source.ca_certificate_ref)?;
        let token = Server::new(&token, authorities)
            .map_err(|fault| format!("the token endpoint cannot be used: {fault}"))?;
        let source =
            Arc::new(RemoteKeys { url: jwks, refresh_interval: KEYS_REFRESH, ..self.source.clone() });
        let keys = keys_at(&self.keys, &source, &[]);
        Ok(Metadata { authorization, token, end_session, keys, names_issuer })
    }
}

impl Document for Metadata {
    type Terms = Terms;

    const NAME: &'static str = "the configuration of an OpenID provider";
    const UNKNOWN: &'static str = "logins receive 503";
    const MEDIA_TYPES: &'static str = "application/json";

    fn read(text: &[u8], terms: &Terms) -> Result<Self, String> {
        let written: Written = serde_json::from_slice(text).map_err(|error| {
            format!("the document is not a configuration at line {}, column {}", error.line(), error.column())
        })?;
        // OpenID Connect Discovery 1.0, 4.3: another issuer could impersonate this one.
        if written.issuer != *terms.issuer {
            return Err(format!(
                "the document is of the issuer {:?}: write exactly this issuer",
                written.issuer
            ));
        }
        let url = |name: &str, text: &str| {
            let url = Url::new(text).map_err(|fault| format!("{name} {fault}"))?;
            match terms.issuer.starts_with("https:") && url.starts_with("http:") {
                true => Err(format!("{name} {text:?} uses http, but the issuer uses https")),
                false => Ok(url),
            }
        };
        let endpoints = OidcEndpoints {
            authorization: url("authorization_endpoint", &written.authorization_endpoint)?,
            token: url("token_endpoint", &written.token_endpoint)?,
            jwks: url("jwks_uri", &written.jwks_uri)?,
            end_session: match &written.end_session_endpoint {
                Some(text) => Some(url("end_session_endpoint", text)?),
                None => None,
            },
        };
        terms.metadata(endpoints, written.authorization_response_iss_parameter_supported)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(change: impl Fn(&mut Value)) -> Result<Metadata, String> {
        let issuer = Url::of("https://login.example");
        let source = RemoteKeys {
            url: issuer.clone(),
            ca_certificate_ref: None,
            refresh_interval: REFRESH,
            timeout: Span::of_millis(1000),
        };
        let terms = Terms { issuer, source, keys: Places::default() };
        let mut document = json!({
            "issuer": "https://login.example",
            "authorization_endpoint": "https://login.example/auth",
            "token_endpoint": "https://login.example/token",
            "jwks_uri": "https://login.example/jwks",
            "end_session_endpoint": "https://login.example/logout",
            "further": [1],
        });
        change(&mut document);
        Metadata::read(document.to_string().as_bytes(), &terms)
    }

    #[test]
    fn configuration_of_another_issuer_or_without_an_endpoint_is_rejected() {
        let metadata = read(|_| {}).expect("a configuration");
        assert_eq!(&*metadata.authorization, "https://login.example/auth");
        assert_eq!(metadata.end_session.as_deref(), Some("https://login.example/logout"));
        assert!(!metadata.names_issuer);
        let fault = |change: &dyn Fn(&mut Value)| read(change).expect_err("a fault");
        assert!(fault(&|it| it["issuer"] = json!("https://login.example/")).contains("exactly this issuer"));
        assert!(
            fault(&|it| it["token_endpoint"] = json!("http://login.example/token")).contains("uses http")
        );
        assert!(fault(&|it| it["jwks_uri"] = json!("file:///etc/passwd")).contains("is not a URL"));
        assert!(
            fault(&|it| drop(it.as_object_mut().expect("an object").remove("jwks_uri"))).contains("column")
        );
        assert!(fault(&|it| *it = json!("x")).contains("line 1"));
    }
}
