//! Certificates of an ACME server, as options.

use std::collections::HashMap;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use http::header::{HOST, USER_AGENT};
use rustls_pki_types::CertificateDer;
use sluicegate_acme::{
    ChallengeKind, DirectorySecrets, Exchange, HttpRequest, HttpResponse, LETS_ENCRYPT, Link, Options,
    SecretName, Worker,
};
use sluicegate_admin::Measure;
use sluicegate_control::{Acme, AcmeManifests, AcmeOptions, ClusterSecrets, ObjectName};
use sluicegate_proxy::http_client::{HttpClient, HttpError, HttpLimits, Server};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::settings::{Authorities, authorities, time};
use crate::source::{Source, SourceArgs};

/// The longest response of the ACME server, in bytes. A chain of certificates with a hundred names has less than 20 KiB.
const RESPONSE_MAX: usize = 256 * 1024;

/// The time between two attempts to become the process that orders, in a directory.
const LOCK_INTERVAL: Duration = Duration::from_secs(1);

/// The time between two questions whether a data plane can answer challenges.
const SERVES_INTERVAL: Duration = Duration::from_millis(200);

/// The namespace of the Secrets of the account and of challenges, in a directory. No object of a user names them.
const NAMESPACE: &str = "sluicegate-acme";

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "ACME")]
pub(crate) struct AcmeArgs {
    /// Order certificates from an ACME server for objects with the annotation sluicegate.dev/acme, and agree to the terms of
    /// service of the server. Without the option, the gateway orders no certificates.
    #[arg(long)]
    acme_terms_agreed: bool,
    /// The URL of the directory of the ACME server.
    #[arg(long, value_name = "URL", default_value = LETS_ENCRYPT, requires = "acme_terms_agreed")]
    acme_directory: String,
    /// The mail address for messages of the certificate authority. [default: none]
    #[arg(long, value_name = "ADDRESS", requires = "acme_terms_agreed")]
    acme_email: Option<String>,
    /// How the gateway proves that it serves a host. http-01: the ACME server sends a request over plain HTTP to port 80.
    /// tls-alpn-01: the ACME server makes a TLS handshake at port 443.
    #[arg(
        long,
        value_enum,
        value_name = "CHALLENGE",
        default_value = "http-01",
        requires = "acme_terms_agreed"
    )]
    acme_challenge: Challenge,
    /// The PEM file with the CA certificates that verify the ACME server. [default: the public CA certificates]
    #[arg(long, value_name = "FILE", requires = "acme_terms_agreed", value_parser = authorities)]
    acme_ca: Option<Authorities>,
    /// The directory for the account's key and the certificates, with --manifests. The gateway creates the directory, and only
    /// its user can read the files. The directory must be outside of --manifests. [default: none]
    #[arg(long, value_name = "DIR", requires_all = ["acme_terms_agreed", "manifests"])]
    acme_state_dir: Option<PathBuf>,
    /// The Secret for the account's key in the namespace of the pod, with --kubernetes. The Secret NAME-challenges has the
    /// certificates of challenges in progress.
    #[arg(long, value_name = "NAME", default_value = "sluicegate-acme", requires = "acme_terms_agreed")]
    acme_account_secret: Arc<str>,
    /// The largest number of orders at a time. [range: at least 1]
    #[arg(long, value_name = "N", default_value = "4", requires = "acme_terms_agreed")]
    acme_orders: NonZero<u16>,
    /// The pause of a host after its first failed order, 1s to 1h. The pause triples with each further failure, up to 12h.
    #[arg(long, value_name = "TIME", value_parser = retry, default_value = "60s", requires = "acme_terms_agreed")]
    acme_retry: Duration,
    /// The timeout of a request to the ACME server, 1s to 5m.
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "30s", requires = "acme_terms_agreed")]
    acme_timeout: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Challenge {
    #[value(name = "http-01")]
    Http01,
    #[value(name = "tls-alpn-01")]
    TlsAlpn01,
}

/// The orders of certificates, before their start.
pub(crate) struct Orders {
    options: Options,
    exchange: Arc<Exchange>,
    link: Link,
    manifests: AcmeManifests,
    directory: Option<DirectorySecrets>,
}

impl AcmeArgs {
    /// The orders, and the option of the translation.
    pub(crate) fn orders(&self, source: &SourceArgs) -> anyhow::Result<(Option<Orders>, Acme)> {
        if !self.acme_terms_agreed {
            return Ok((None, Acme::Off));
        }
        let manifests = AcmeManifests::default();
        let (directory, namespace, account) = if let Some(of_users) = source.manifests() {
            let dir = self.acme_state_dir.clone();
            let dir = dir.context("--acme-terms-agreed with --manifests needs a directory for the certificates: set --acme-state-dir")?;
            let written = manifests.clone();
            let opened = DirectorySecrets::new(dir.clone(), move |path, text| written.put(path, text));
            let directory =
                opened.with_context(|| format!("cannot use {} (--acme-state-dir)", dir.display()))?;
            anyhow::ensure!(
                !is_within(&dir, of_users),
                "{} is in the directory of --manifests: set --acme-state-dir to a directory outside",
                dir.display()
            );
            load(&directory, &manifests)
                .with_context(|| format!("cannot read {} (--acme-state-dir)", dir.display()))?;
            (Some(directory), NAMESPACE.into(), "account".into())
        } else {
            let namespace = source.pod_namespace().filter(|_| source.writes_status());
            let namespace = namespace.context(
                "--acme-terms-agreed needs the namespace of this pod, whose Lease selects the process that orders: set --pod-namespace, \
                 and remove --no-status",
            )?;
            (None, Arc::from(namespace), self.acme_account_secret.clone())
        };
        let name = |name: Arc<str>| SecretName { namespace: Arc::clone(&namespace), name };
        let options = Options {
            directory: self.acme_directory.clone(),
            email: self.acme_email.clone(),
            challenge: match self.acme_challenge {
                Challenge::Http01 => ChallengeKind::Http01,
                Challenge::TlsAlpn01 => ChallengeKind::TlsAlpn01,
            },
            orders: NonZero::<usize>::from(self.acme_orders),
            retry: self.acme_retry,
            challenges: name(format!("{account}-challenges").into()),
            account: name(account),
        };
        let object =
            |name: &SecretName| ObjectName { namespace: name.namespace.clone(), name: name.name.clone() };
        let link = Link::default();
        let acme = AcmeOptions {
            account: object(&options.account),
            challenges: object(&options.challenges),
            link: link.clone(),
            manifests: manifests.clone(),
        };
        let exchange = self.exchange()?;
        Ok((Some(Orders { options, exchange, link, manifests, directory }), Acme::On(acme)))
    }

    /// Sends requests to the ACME server.
    fn exchange(&self) -> anyhow::Result<Arc<Exchange>> {
        let trusted = self.acme_ca.clone().map_or_else(Vec::new, |authorities| authorities.0);
        // Names faults of the options at the start.
        Server::new(&self.acme_directory, &trusted)
            .context("cannot use the ACME server (--acme-directory, --acme-ca)")?;
        let server = Arc::new(AcmeServer {
            needs_tls: !self.acme_directory.starts_with("http://"),
            trusted,
            limits: HttpLimits { timeout: self.acme_timeout, body: RESPONSE_MAX },
            idle: Mutex::default(),
        });
        Ok(Arc::new(move |request| {
            let server = server.clone();
            Box::pin(async move { server.exchange(request).await })
        }))
    }
}

/// Whether a directory is another directory or a part of it.
fn is_within(dir: &Path, other: &Path) -> bool {
    let absolute = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    absolute(dir).starts_with(absolute(other))
}

fn retry(text: &str) -> Result<Duration, String> {
    within(text, 1, 3600, "a time from 1s to 1h")
}

fn timeout(text: &str) -> Result<Duration, String> {
    within(text, 1, 300, "a time from 1s to 5m")
}

fn within(text: &str, least: u64, most: u64, expected: &str) -> Result<Duration, String> {
    let time = time(text)?;
    let is_within = (Duration::from_secs(least)..=Duration::from_secs(most)).contains(&time);
    if is_within { Ok(time) } else { Err(format!("out of range; write {expected}")) }
}

/// Hands the manifests of a directory to the source.
fn load(directory: &DirectorySecrets, manifests: &AcmeManifests) -> std::io::Result<()> {
    for (path, text) in directory.manifests()? {
        manifests.put(&path, &text);
    }
    Ok(())
}

impl Orders {
    /// Starts the orders, in the process that holds the Lease or the lock of the directory, once `serves` tells that a data plane
    /// can answer challenges. Returns the numbers for `/metrics`.
    pub(crate) fn start<S: Fn() -> bool + Send + 'static>(
        self,
        source: &Source,
        serves: S,
    ) -> impl Fn() -> Vec<Measure> + Send + Sync + use<S> {
        let Self { options, exchange, link, manifests, directory } = self;
        let counted = link.clone();
        let (orders, ordering) = watch::channel(false);
        match source {
            Source::Cluster(cluster) => {
                let secrets = Arc::new(ClusterSecrets::new(cluster.client().clone()));
                tokio::spawn(follow(cluster.leads(), serves, orders));
                tokio::spawn(Worker::new(options, secrets, exchange, link).run(ordering));
            }
            Source::Directory(_) => {
                if let Some(directory) = directory.map(Arc::new) {
                    let (leads, leading) = watch::channel(false);
                    tokio::spawn(lock(directory.clone(), manifests, leads));
                    tokio::spawn(follow(leading, serves, orders));
                    tokio::spawn(Worker::new(options, directory, exchange, link).run(ordering));
                }
            }
        }
        move || measures(&counted)
    }
}

/// Tells whether this process orders: while it leads, from the first time that `serves` is true. After a change of the leader, data
/// planes need a moment to connect.
async fn follow(mut leads: watch::Receiver<bool>, serves: impl Fn() -> bool, orders: watch::Sender<bool>) {
    while leads.wait_for(|leads| *leads).await.is_ok() {
        while *leads.borrow() && !serves() {
            sleep(SERVES_INTERVAL).await;
        }
        orders.send_replace(*leads.borrow());
        if leads.wait_for(|leads| !*leads).await.is_err() {
            // The lock of a directory ends with the process.
            return std::future::pending().await;
        }
        orders.send_replace(false);
    }
}

/// Becomes the process that orders, once no other process does.
async fn lock(directory: Arc<DirectorySecrets>, manifests: AcmeManifests, leads: watch::Sender<bool>) {
    let mut has_failed = false;
    let _lock = loop {
        match directory.try_lock() {
            Ok(Some(lock)) => break lock,
            Ok(None) => {}
            Err(error) if !has_failed => {
                has_failed = true;
                tracing::warn!(%error, "cannot lock the directory of certificates (--acme-state-dir); no certificate is ordered");
            }
            Err(_) => {}
        }
        sleep(LOCK_INTERVAL).await;
    };
    // The process before may have written certificates since this process started.
    if let Err(error) = load(&directory, &manifests) {
        tracing::warn!(%error, "cannot read the directory of certificates (--acme-state-dir)");
    }
    leads.send_replace(true);
    // The lock ends with the process.
    std::future::pending::<()>().await;
}

fn measures(link: &Link) -> Vec<Measure> {
    let ((wanted, failing), (issued, failed)) = (link.counts(), link.orders());
    vec![
        Measure::gauge(
            "sluicegate_acme_certificates",
            "Certificates that objects ask an ACME server for",
            wanted,
        ),
        Measure::gauge(
            "sluicegate_acme_certificates_failing",
            "Certificates whose last order failed, in the process that orders",
            failing,
        ),
        Measure::counter("sluicegate_acme_orders_issued", "Orders that led to a certificate", issued),
        Measure::counter("sluicegate_acme_orders_failed", "Orders that failed", failed),
    ]
}

/// The ACME server.
struct AcmeServer {
    /// Whether requests without TLS are refused, because the directory has TLS.
    needs_tls: bool,
    /// The trusted CA certificates; empty for the public CA certificates.
    trusted: Vec<CertificateDer<'static>>,
    limits: HttpLimits,
    /// The clients without a request in flight, by scheme and authority.
    idle: Mutex<HashMap<String, Vec<HttpClient>>>,
}

impl AcmeServer {
    async fn exchange(&self, request: HttpRequest) -> Result<HttpResponse, String> {
        let (head, body) = request.into_parts();
        let (scheme, authority) = (head.uri.scheme_str().unwrap_or_default(), head.uri.authority());
        if self.needs_tls && scheme != "https" {
            return Err(format!("the ACME server names {}, which is not https", head.uri));
        }
        let origin = format!("{scheme}://{}", authority.map_or("", |authority| authority.as_str()));
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        // The client sets these itself.
        let own = [HOST, USER_AGENT];
        let lines = head.headers.iter().filter(|(name, _)| !own.contains(name));
        let lines: Vec<_> = lines.map(|(name, value)| (name.clone(), value.clone())).collect();
        let mut idle = self.take(&origin);
        loop {
            let was_idle = idle.is_some();
            let mut client = match idle.take() {
                Some(client) => client,
                None => {
                    let server = Server::new(&head.uri.to_string(), &self.trusted);
                    HttpClient::new(server.map_err(|error| format!("{}: {error}", head.uri))?, self.limits)
                }
            };
            match client.send(head.method.clone(), target, &lines, body.clone()).await {
                // The server may have closed the idle connection. The nonce protects from a second execution.
                Err(HttpError::Http(_)) if was_idle => {}
                Err(error) => return Err(format!("{origin}: {error}")),
                Ok(response) => {
                    let body = response.body.map_err(|error| format!("{origin}: {error}"))?;
                    self.put(origin, client);
                    return Ok(answer(response.status, response.headers, body));
                }
            }
        }
    }

    fn take(&self, origin: &str) -> Option<HttpClient> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(origin)?.pop()
    }

    /// Keeps a client. Each exchange in flight had a client, so that there are no more clients than orders at a time.
    fn put(&self, origin: String, client: HttpClient) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).entry(origin).or_default().push(client);
    }
}

fn answer(status: http::StatusCode, headers: http::HeaderMap, body: Bytes) -> HttpResponse {
    let mut response = HttpResponse::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(options: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(["sluicegate", "serve", "--manifests", "x"].iter().chain(options))
    }

    #[test]
    fn no_option_orders_certificates_without_the_agreement_to_the_terms() {
        assert!(parsed(&[]).is_ok());
        for option in [
            "--acme-email=a@b.test",
            "--acme-directory=https://a.test/dir",
            "--acme-challenge=tls-alpn-01",
            "--acme-orders=2",
            "--acme-state-dir=y",
        ] {
            assert!(parsed(&[option]).is_err(), "{option}");
            assert!(parsed(&["--acme-terms-agreed", option]).is_ok(), "{option}");
        }
        for wrong in [
            "--acme-challenge=dns-01",
            "--acme-orders=0",
            "--acme-retry=0s",
            "--acme-retry=2h",
            "--acme-timeout=6m",
        ] {
            assert!(parsed(&["--acme-terms-agreed", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn directory_of_manifests_needs_a_directory_for_certificates() {
        let Ok(Cli { command: Command::Serve(args), .. }) = parsed(&["--acme-terms-agreed"]) else {
            panic!("it is serve")
        };
        let fault = args.acme.orders(&args.source).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(fault.contains("set --acme-state-dir"), "{fault}");
    }

    #[test]
    fn directory_for_certificates_is_outside_of_the_manifests() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        for name in ["site/state", "other"] {
            std::fs::create_dir_all(path(name)).expect("a directory");
        }
        assert!(is_within(&path("site/state"), &path("site")) && is_within(&path("site"), &path("site")));
        assert!(is_within(&path("other/../site/state"), &path("site")));
        assert!(!is_within(&path("other"), &path("site")) && !is_within(&path("sites"), &path("site")));
    }

    #[tokio::test]
    async fn process_orders_only_while_it_leads_and_after_a_data_plane_serves() {
        let (leads, leading) = watch::channel(false);
        let (orders, mut ordering) = watch::channel(false);
        let serves = Arc::new(AtomicBool::new(false));
        let known = serves.clone();
        tokio::spawn(follow(leading, move || known.load(Ordering::Relaxed), orders));
        leads.send_replace(true);
        let ordered = ordering.wait_for(|orders| *orders);
        let ordered = tokio::time::timeout(Duration::from_millis(10), ordered).await.is_ok();
        assert!(!ordered, "no data plane serves");
        serves.store(true, Ordering::Relaxed);
        assert!(ordering.wait_for(|orders| *orders).await.is_ok());
        leads.send_replace(false);
        assert!(ordering.wait_for(|orders| !*orders).await.is_ok());
        // A leader without a data plane that loses the Lease never orders.
        serves.store(false, Ordering::Relaxed);
        leads.send_replace(true);
        leads.send_replace(false);
        assert!(!*ordering.borrow());
    }
}
