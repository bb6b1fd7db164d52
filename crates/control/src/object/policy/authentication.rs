//! The parts of an authentication that need other objects, or the libraries that verify credentials.

use std::sync::Arc;

use sluicegate_jwt::KeySet;
use sluicegate_model::feature::Authentication;
use sluicegate_model::feature::authentication::jwt::{Algorithm, ProviderKeys};
use sluicegate_model::value::secret::SecretKeyRef;

use super::secret::SecretValue;
use crate::problem::Findings;

const FIELD: &str = "spec.authentication";

/// The field with the URL of the external authorization service.
pub(crate) const EXT_AUTH_FIELD: &str = "spec.authentication.extAuth.url";

/// A part of a policy that is in a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    /// The field that names it.
    pub(crate) field: String,
    pub(crate) value: SecretValue,
    pub(crate) what: Needed,
}

/// The kind of the part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// The keys of the provider at that place.
    Keys(usize),
    /// The secret that the provider at that place shares.
    Shared(usize),
    /// The CA certificates for the server that publishes the keys of the provider at that place.
    Authorities(usize),
    /// Names and passwords.
    Users,
    /// The CA certificates for the server of the external service.
    CaCertificates,
    /// The client secret, the keys of the cookies, or the CA certificates of the OpenID provider.
    Oidc(OidcPart),
    /// The client secret, or the CA certificates, of the introspection endpoint.
    Introspection(IntrospectionPart),
}

/// A part of the login that is in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OidcPart {
    ClientSecret,
    CookieKeys,
    CaCertificates,
}

/// A part of the introspection that is in a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IntrospectionPart {
    ClientSecret,
    CaCertificates,
}

/// The values of Secrets that an authentication of this namespace names.
pub(crate) fn needs(authentication: &Authentication, namespace: &Arc<str>) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut need = |field: String, named: Option<&SecretKeyRef>, default: &str, what| {
        needs.extend(named.map(|named| Need {
            field: format!("{FIELD}.{field}"),
            value: SecretValue::new(named, default, namespace),
            what,
        }));
    };
    let providers = authentication.jwt.iter().flat_map(|jwt| &jwt.providers).enumerate();
    for (index, provider) in providers {
        let keys = format!("jwt.providers[{index}].keys");
        match &provider.keys {
            ProviderKeys::Inline(_) => {}
            ProviderKeys::Secret(of) => {
                need(format!("{keys}.secretRef"), of.named(), "jwks.json", Needed::Keys(index));
            }
            ProviderKeys::Shared(of) => {
                need(format!("{keys}.sharedSecretRef"), of.named(), "secret", Needed::Shared(index));
            }
            ProviderKeys::Remote(of) => {
                let named = of.ca_certificate_ref.as_ref().and_then(|of| of.named());
                let what = Needed::Authorities(index);
                need(format!("{keys}.remote.caCertificateRef"), named, "ca.crt", what);
            }
        }
    }
    let users = authentication.basic.as_ref().and_then(|basic| basic.secret_ref.named());
    need("basic.secretRef".to_owned(), users, "auth", Needed::Users);
    let certificates =
        authentication.ext_auth.as_ref().and_then(|of| of.ca_certificate_ref.as_ref()?.named());
    need("extAuth.caCertificateRef".to_owned(), certificates, "ca.crt", Needed::CaCertificates);
    if let Some(oidc) = &authentication.oidc {
        let secret = oidc.client_secret_ref.as_ref().and_then(|of| of.named());
        let what = Needed::Oidc(OidcPart::ClientSecret);
        need("oidc.clientSecretRef".to_owned(), secret, "client-secret", what);
        let keys = oidc.cookie_secret_ref.named();
        let what = Needed::Oidc(OidcPart::CookieKeys);
        need("oidc.cookieSecretRef".to_owned(), keys, "cookie-secret", what);
        let certificates = oidc.ca_certificate_ref.as_ref().and_then(|of| of.named());
        let what = Needed::Oidc(OidcPart::CaCertificates);
        need("oidc.caCertificateRef".to_owned(), certificates, "ca.crt", what);
    }
    if let Some(introspection) = &authentication.introspection {
        let secret = introspection.client_secret_ref.named();
        let what = Needed::Introspection(IntrospectionPart::ClientSecret);
        need("introspection.clientSecretRef".to_owned(), secret, "client-secret", what);
        let certificates = introspection.ca_certificate_ref.as_ref().and_then(|of| of.named());
        let what = Needed::Introspection(IntrospectionPart::CaCertificates);
        need("introspection.caCertificateRef".to_owned(), certificates, "ca.crt", what);
    }
    needs
}

/// Checks the keys that the policy itself has.
pub(crate) fn check(authentication: &Authentication, findings: &mut Findings) {
    for (index, provider) in authentication.jwt.iter().flat_map(|jwt| &jwt.providers).enumerate() {
        if let ProviderKeys::Inline(text) = &provider.keys
            && let Err(fault) = KeySet::given(text.as_bytes(), &known(&provider.algorithms))
        {
            findings.error(format!("{FIELD}.jwt.providers[{index}].keys.inline"), fault.to_string());
        }
    }
}

/// The algorithms with these names.
pub(crate) fn known(algorithms: &[Algorithm]) -> Vec<sluicegate_jwt::Algorithm> {
    algorithms.iter().filter_map(|algorithm| sluicegate_jwt::Algorithm::parse(algorithm.as_str())).collect()
}
