//! `sluicegate migrate`: moving from ingress-nginx.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use sluicegate_control::{Credentials, TranslateOptions, migration_report, read_ingresses, read_manifests};

use crate::cli::ClassArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Report what the gateway would make of each annotation of each Ingress of ingress-nginx: same, different, refused,
    /// or closed because the annotation may restrict access. The report reads Ingresses and IngressClasses, and changes
    /// nothing.
    #[command(after_help = "\
Examples:\n  sluicegate migrate report --kubernetes --output html > report.html\n  \
kubectl get ingresses,ingressclasses --all-namespaces --output yaml | sluicegate migrate report -\n\n\
sluicegate check --ingress-nginx-compatibility also finds references to missing Services and Secrets.")]
    Report(ReportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of manifests with its sub-folders, or one manifest, or - for standard input.
    #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    path: Option<PathBuf>,
    /// Read the Ingresses of a cluster, with a kubeconfig.
    #[arg(long)]
    kubernetes: bool,
    /// The kubeconfig file. [default: the pod's service account, then $KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "kubernetes")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. [default: the current context]
    #[arg(long, value_name = "NAME", requires = "kubernetes")]
    context: Option<String>,
    /// The form of the report.
    #[arg(long, value_enum, value_name = "FORM", default_value = "text")]
    output: Output,
    #[command(flatten)]
    class: ClassArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Output {
    /// A line for each Ingress, and a line for each annotation that is not the same.
    Text,
    /// One JSON object.
    Json,
    /// One HTML page.
    Html,
}

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    let texts = match &args.path {
        None => {
            let credentials =
                Credentials { kubeconfig: args.kubeconfig.clone(), context: args.context.clone() };
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(read_ingresses(&credentials))?
        }
        Some(path) if path == Path::new("-") => {
            let mut text = String::new();
            io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
            vec![(PathBuf::from("standard input"), text)]
        }
        Some(path) => read_manifests(path).context("cannot read the manifests")?,
    };
    let options =
        TranslateOptions { ingress_nginx: Some(args.class.dialect()), ..TranslateOptions::default() };
    let report = migration_report(&texts, &options);
    match args.output {
        Output::Text => crate::say(report.to_string().trim_end()),
        Output::Json => crate::say(&serde_json::to_string_pretty(&report)?),
        Output::Html => crate::say(report.html().trim_end()),
    }
    Ok(())
}
