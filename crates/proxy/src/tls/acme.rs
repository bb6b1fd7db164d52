//! The proofs for an ACME server that the gateway serves a host: the answers to challenges of the types `http-01` (RFC 8555, 8.3)
//! and `tls-alpn-01` (RFC 8737).
//!
//! The answer to `http-01` is the token of the request and the thumbprint of the account's key. So the data plane needs no state
//! for each order, and an order needs no change of the configuration.

use std::sync::Arc;

use rustls::ServerConfig;
use rustls::server::{ClientHello, NoServerSessionStorage};
use rustls::sign::SingleCertAndKey;
use sluicegate_model::{AcmeHost, Certificate, HostPattern};

use super::{certified_key, provider};
use crate::name::{HostMap, host_name};

/// The path of a challenge of the type `http-01`, without its token.
pub(crate) const CHALLENGE_PATH: &[u8] = b"/.well-known/acme-challenge/";

/// The protocol of a challenge of the type `tls-alpn-01`.
const PROTOCOL: &[u8] = b"acme-tls/1";

/// The longest token. Let's Encrypt sends 43 characters.
const TOKEN_MAX: usize = 256;

/// The least entropy of a token is 128 bits (RFC 8555, 8.1): 22 characters of base64url.
const TOKEN_MIN: usize = 22;

/// The hosts whose certificates the control plane orders.
#[derive(Debug, Default)]
pub(crate) struct AcmeHosts(HostMap<Entry>);

#[derive(Debug)]
struct Entry {
    thumbprint: Box<str>,
    /// The configuration for a challenge of the type `tls-alpn-01` in progress.
    challenge: Option<Arc<ServerConfig>>,
}

impl AcmeHosts {
    /// The hosts; `None` without hosts. An unusable certificate is logged, and its challenge fails.
    pub(super) fn compile(hosts: &[Arc<AcmeHost>]) -> Option<Self> {
        let mut names = HostMap::with_capacity(hosts.len());
        for AcmeHost { host, thumbprint, challenge } in hosts.iter().map(|host| &**host) {
            let challenge = challenge.as_ref().and_then(|certificate| {
                let config = challenge_config(certificate).inspect_err(
                    |error| tracing::error!(%error, host = &**host, "cannot use the certificate for an ACME challenge"),
                );
                Some(Arc::new(config.ok()?))
            });
            let entry = Entry { thumbprint: thumbprint.clone(), challenge };
            names.insert(&HostPattern::Exact(host.clone()), entry);
        }
        (!names.is_empty()).then_some(Self(names))
    }

    /// The answer to a request over plain HTTP, if the request is for a challenge of the type `http-01` of one of the hosts.
    pub(crate) fn answer(&self, authority: &[u8], path: &[u8]) -> Option<Vec<u8>> {
        let token = path.strip_prefix(CHALLENGE_PATH).filter(|token| is_token(token))?;
        let entry = self.0.find(host_name(authority))?;
        Some([token, b".", entry.thumbprint.as_bytes()].concat())
    }

    /// The configuration for a handshake with the server name `name`, if a challenge of the type `tls-alpn-01` is in progress.
    pub(super) fn challenge(&self, name: &str) -> Option<&Arc<ServerConfig>> {
        self.0.find(name.as_bytes())?.challenge.as_ref()
    }
}

/// Whether the client is an ACME server that validates a challenge: the client offers this protocol alone (RFC 8737, 3).
pub(super) fn is_validation(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut offered| offered.next() == Some(PROTOCOL) && offered.next().is_none())
}

fn is_token(token: &[u8]) -> bool {
    let is_valid = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (TOKEN_MIN..=TOKEN_MAX).contains(&token.len()) && token.iter().all(is_valid)
}

fn challenge_config(certificate: &Certificate) -> Result<ServerConfig, rustls::Error> {
    let key = certified_key(certificate)?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    // The session of a challenge must not be resumed.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_valid_tokens_of_managed_hosts_have_an_answer() {
        let token = "x".repeat(TOKEN_MIN);
        let host = AcmeHost { host: "a.test".into(), thumbprint: "thumb".into(), challenge: None };
        let hosts = AcmeHosts::compile(&[Arc::new(host)]).expect("a host");
        let path = |token: &str| format!("/.well-known/acme-challenge/{token}").into_bytes();
        let expected = format!("{token}.thumb").into_bytes();
        for authority in ["a.test", "A.Test", "a.test:80"] {
            assert_eq!(hosts.answer(authority.as_bytes(), &path(&token)).as_deref(), Some(&*expected));
        }
        assert_eq!(hosts.answer(b"b.test", &path(&token)), None, "another controller may answer");
        assert_eq!(hosts.answer(b"", &path(&token)), None);
        let long = "x".repeat(TOKEN_MAX);
        assert!(hosts.answer(b"a.test", &path(&long)).is_some());
        for wrong in
            ["", "x", &format!("{long}x"), &format!("{token}/"), &format!("{token}<"), &format!("{token}%41")]
        {
            assert_eq!(hosts.answer(b"a.test", &path(wrong)), None, "{wrong}");
        }
        assert_eq!(hosts.answer(b"a.test", format!("/acme-challenge/{token}").as_bytes()), None);
        assert!(AcmeHosts::compile(&[]).is_none());
    }
}
