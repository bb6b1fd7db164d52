//! Documents of APIs at URLs, as options.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use http::header::{ACCEPT, CONNECTION, ETAG, IF_NONE_MATCH};
use http::{HeaderValue, StatusCode};
use rustls_pki_types::CertificateDer;
use sluicegate_control::{DOCUMENT_LENGTH_MAX, DocumentOptions, Documents, Fetched, host};
use sluicegate_model::HostPattern;
use sluicegate_model::value::Url;
use sluicegate_proxy::http_client::{HttpClient, HttpLimits, Server};

use crate::settings::{Authorities, authorities, time};

/// The limits of a fetch.
const LIMITS: HttpLimits = HttpLimits { timeout: Duration::from_secs(10), body: DOCUMENT_LENGTH_MAX };

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Source")]
pub(crate) struct DocumentArgs {
    /// A host from which the gateway fetches documents of Apis (spec.document.url), such as docs.example.com or
    /// *.example.com; may be given several times. The authors of Apis can read every page of these hosts that the gateway
    /// can reach. [default: no hosts]
    #[arg(long, value_name = "HOST", value_parser = parse_host)]
    api_document_host: Vec<HostPattern>,
    /// The time between two fetches of a document, 1s to 24h. After a failed fetch, the gateway tries again after 2s; the
    /// pause doubles up to this time.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "60s", requires = "api_document_host")]
    api_document_interval: Duration,
    /// The directory for the last valid version of each fetched document. After a restart, the gateway serves this version
    /// until a fetch succeeds. The gateway creates the directory.
    /// [default: the gateway stores no documents]
    #[arg(long, value_name = "DIR", requires = "api_document_host")]
    api_document_cache: Option<PathBuf>,
    /// The PEM file with the CA certificates that verify the hosts of --api-document-host. [default: the public CA
    /// certificates]
    #[arg(long, value_name = "FILE", requires = "api_document_host", value_parser = authorities)]
    api_document_ca: Option<Authorities>,
}

impl DocumentArgs {
    /// The documents with these options.
    pub(crate) fn documents(&self) -> Documents {
        let trusted = self.api_document_ca.clone().map_or_else(Vec::new, |authorities| authorities.0);
        let trusted: Arc<[CertificateDer<'static>]> = trusted.into();
        Documents::new(DocumentOptions {
            hosts: self.api_document_host.clone(),
            interval: self.api_document_interval,
            cache: self.api_document_cache.clone(),
            fetch: Arc::new(move |url, tag| Box::pin(fetch(url, tag, trusted.clone()))),
        })
    }
}

/// A time between two fetches.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = time(text)?;
    match (1..=24 * 3600).contains(&interval.as_secs()) {
        true => Ok(interval),
        false => Err("out of range; write a time from 1s to 24h".to_owned()),
    }
}

/// A DNS name, a DNS name with a wildcard, or an IP address.
fn parse_host(text: &str) -> Result<HostPattern, String> {
    match text.trim_matches(['[', ']']).parse() {
        Ok(IpAddr::V4(ip)) => Ok(HostPattern::Exact(ip.to_string().into())),
        Ok(IpAddr::V6(ip)) => Ok(HostPattern::Exact(format!("[{ip}]").into())),
        Err(_) if text.is_empty() => Err("is empty; write a host such as docs.example.com".to_owned()),
        Err(_) => host::parse(&text.to_ascii_lowercase()),
    }
}

/// Fetches a document.
async fn fetch(
    url: Url,
    tag: Option<String>,
    authorities: Arc<[CertificateDer<'static>]>,
) -> Result<Fetched, String> {
    let server = Server::new(&url, &authorities).map_err(|error| error.to_string())?;
    let accept = "application/vnd.oai.openapi, application/vnd.oai.openapi+json, application/yaml, application/json, */*;q=0.5";
    let mut lines =
        vec![(ACCEPT, HeaderValue::from_static(accept)), (CONNECTION, HeaderValue::from_static("close"))];
    let tag = tag.and_then(|tag| HeaderValue::from_str(&tag).ok());
    let is_conditional = tag.is_some();
    lines.extend(tag.map(|tag| (IF_NONE_MATCH, tag)));
    let response = HttpClient::new(server, LIMITS).get(&lines).await.map_err(|error| error.to_string())?;
    match response.status {
        StatusCode::NOT_MODIFIED if is_conditional => Ok(Fetched::Unchanged),
        StatusCode::OK => {
            let body = response.body.map_err(|error| error.to_string())?;
            let text = String::from_utf8(body.into()).map_err(|_| "the document is not UTF-8".to_owned())?;
            let tag = response.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(str::to_owned);
            Ok(Fetched::New { text, tag })
        }
        status if status.is_redirection() => Err(format!(
            "the server responds with {status}; the gateway does not follow redirects: write the new URL"
        )),
        status => Err(format!("the server responds with {status}, not with 200")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_names_and_addresses() {
        for (text, name, other) in [
            ("docs.example.com", "docs.example.com", "example.com"),
            ("Docs.example.com", "docs.example.com", "docs.example.com.evil.test"),
            ("*.example.com", "docs.example.com", "example.com"),
            ("127.0.0.1", "127.0.0.1", "127.0.0.2"),
            ("::1", "[::1]", "[::2]"),
            ("[::1]", "[::1]", "::1"),
        ] {
            let host = parse_host(text).unwrap();
            assert!(host.matches(name) && !host.matches(other), "{text}");
        }
        for text in ["", "*", "https://docs.example.com", "docs.example.com:443", "a_b"] {
            assert!(parse_host(text).is_err(), "{text}");
        }
    }
}
