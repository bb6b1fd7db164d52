//! The validating admission webhook, as options.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use sluicegate_admin::Measure;
use sluicegate_analytics::Audit;
use sluicegate_control::{Admission, ReviewError, requested};
use sluicegate_model::audit::Report;
use sluicegate_webhook::{
    Certificate, Judge, JudgeError, Judged, Reviews, Verdict, Webhook, Witness, Witnessed,
};
use tokio::net::TcpListener;

use crate::address::listen_address;
use crate::source::Source;

/// The pause before the next attempt to listen at an address that another process uses, such as a predecessor that drains.
const RETRY: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Admission webhook")]
pub(crate) struct WebhookArgs {
    /// The address of the validating admission webhook (HTTPS), such as :8444. The API server asks the webhook about each
    /// Ingress, and about each object of sluicegate.dev, before it stores the object. The webhook rejects objects with errors.
    /// A request may have 9 MB. Requests at the path /audit tell the audit trail (--audit) who writes an object. [default: no webhook]
    #[arg(
        long,
        value_name = "ADDRESS",
        value_parser = listen_address,
        requires_all = ["kubernetes", "validating_webhook_certificate", "validating_webhook_key"],
        conflicts_with = "manifests"
    )]
    validating_webhook: Option<SocketAddr>,
    /// The file with the certificate chain of the webhook, in PEM. The process reads the file again when it changes.
    #[arg(long, value_name = "FILE", requires = "validating_webhook")]
    validating_webhook_certificate: Option<PathBuf>,
    /// The file with the private key of the webhook, in PEM. The process reads the file again when it changes.
    #[arg(long, value_name = "FILE", requires = "validating_webhook")]
    validating_webhook_key: Option<PathBuf>,
}

impl WebhookArgs {
    /// Starts the webhook, if it is requested. Returns its counters for `/metrics`.
    pub(crate) async fn start(
        &self,
        source: &mut Source,
        audit: Option<&Arc<Audit>>,
    ) -> anyhow::Result<impl Fn() -> Option<Measure> + Send + Sync + 'static> {
        let reviews = match (&self.validating_webhook, source) {
            (Some(address), Source::Cluster(cluster)) => {
                let reviews = Arc::<Reviews>::default();
                let webhook = Webhook {
                    certificate: Arc::new(self.certificate()?),
                    judge: judge(cluster.reviews()),
                    witness: audit.cloned().map(witness),
                    reviews: reviews.clone(),
                };
                serve(webhook, *address).await?;
                Some(reviews)
            }
            _ => None,
        };
        Ok(move || {
            let help = "Requests of the API server to the admission webhook, by verdict";
            let counts = reviews.as_ref()?.counts().map(|(outcome, count)| (outcome.name(), count));
            Some(Measure::counters("sluicegate_admission_reviews", help, "verdict", counts.collect()))
        })
    }

    fn certificate(&self) -> anyhow::Result<Certificate> {
        let [certificate, key] = [&self.validating_webhook_certificate, &self.validating_webhook_key]
            .map(|file| file.clone().unwrap_or_default());
        Certificate::read(certificate, key).context(
            "cannot read the certificate of the webhook (--validating-webhook-certificate, --validating-webhook-key)",
        )
    }
}

/// Serves at an address. If another process listens there, waits until the process ends.
async fn serve(webhook: Webhook, address: SocketAddr) -> anyhow::Result<()> {
    let failed = move || format!("cannot serve the admission webhook at {address} (--validating-webhook)");
    let first = match TcpListener::bind(address).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            tracing::warn!(%error, "{}; trying again every second", failed());
            None
        }
        listener => Some(listener.with_context(failed)?),
    };
    tokio::spawn(async move {
        let listener = match first {
            Some(listener) => listener,
            None => loop {
                tokio::time::sleep(RETRY).await;
                if let Ok(listener) = TcpListener::bind(address).await {
                    break listener;
                }
            },
        };
        if let Err(error) = webhook.serve(listener).await {
            tracing::error!(%error, "{}", failed());
        }
    });
    Ok(())
}

/// A judge with the objects of the cluster.
fn judge(reviews: sluicegate_control::Reviews) -> Judge {
    Arc::new(move |object| -> Judged {
        let reviews = reviews.clone();
        Box::pin(async move {
            let reviewed = reviews.review(object).await.map_err(|error| match error {
                ReviewError::Kind(_) => JudgeError::NotReviewed(error.to_string()),
                ReviewError::Ends => JudgeError::Unavailable(error.to_string()),
            })?;
            Ok(Verdict { errors: reviewed.errors, warnings: reviewed.warnings })
        })
    })
}

/// A witness that tells the audit trail who writes objects.
fn witness(audit: Arc<Audit>) -> Witness {
    Arc::new(move |write| {
        let Witnessed { group, kind, namespace, name, object, old, user, groups } = write;
        let admission = Admission { group, kind, namespace, name, object, old, user, groups };
        if let Some(requested) = requested(&admission) {
            audit.record(Report::Request(requested));
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::cli::Cli;

    #[test]
    fn webhook_needs_a_cluster_a_certificate_and_a_key() {
        let files = ["--validating-webhook-certificate=c", "--validating-webhook-key=k"];
        let parsed = |source: &str, options: &[&str]| {
            Cli::try_parse_from(["sluicegate", "serve", source].iter().chain(options)).is_ok()
        };
        let all = [&["--validating-webhook=:8444"][..], &files].concat();
        assert!(parsed("--kubernetes", &all));
        assert!(!parsed("--manifests=x", &all));
        for missing in 0..all.len() {
            let some: Vec<&str> = all
                .iter()
                .enumerate()
                .filter(|(nth, _)| *nth != missing)
                .map(|(_, option)| *option)
                .collect();
            assert!(!parsed("--kubernetes", &some), "{some:?}");
        }
    }
}
