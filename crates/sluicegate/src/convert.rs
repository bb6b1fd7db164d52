//! `sluicegate convert`: objects of Gateway API in place of other objects, and of files of Kong.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use crate::address::object_name;
use crate::cli::ClassArgs;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use sluicegate_control::{
    Converted, KongConverted, KongOptions, ObjectName, Severity, TranslateOptions, convert_ingresses,
    convert_kong, is_kong, located, read_manifests,
};

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:\n  sluicegate convert kong.yaml --strict > objects.yaml\n  sluicegate convert services.yaml consumers.yaml > objects.yaml\n\n\
Variables such as ${{ env \"DECK_KEY\" }} have their values from the environment. A part of the file that restricts access and \
is not converted closes its routes: they respond with 503."
)]
pub(crate) struct Convert {
    #[command(subcommand)]
    pub(crate) from: Option<From>,
    #[command(flatten)]
    pub(crate) kong: KongArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum From {
    /// Print a Gateway, HTTPRoutes and policies that serve the same requests as Ingresses. Standard error has a note for
    /// each thing that Gateway API cannot express. The
    /// command exits with 1 if it reports an error. Warnings and notes do not change the exit code.
    #[command(after_help = "\
Example: kubectl get ingresses,services --all-namespaces --output yaml | sluicegate convert ingress - --ingress-class nginx\n\n\
Services are needed if an Ingress names a port by its name. The command adds the new routes to the targets of \
policies in the input. If an Ingress and an HTTPRoute serve the same host at the same port, the Ingress has precedence.")]
    Ingress(IngressArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KongArgs {
    /// The declarative file of Kong (_format_version 1.1, 2.1 or 3.0), or - for standard input. Several files, and all files of a
    /// directory with its sub-folders, are one configuration, as in decK. Standard error has a line for each thing that is
    /// not converted.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Exit with 1 if a thing is not converted. The objects are printed all the same.
    #[arg(long)]
    strict: bool,
    /// An existing Gateway, to whose listeners the routes are attached. All objects have its namespace. [default: the
    /// command prints a Gateway default/kong]
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name)]
    gateway: Option<ObjectName>,
    /// The class of the printed Gateway.
    #[arg(long, value_name = "NAME", default_value = "sluicegate", conflicts_with = "gateway")]
    gateway_class: String,
    /// The port of the Gateway for HTTP.
    #[arg(long, value_name = "PORT", default_value_t = 8000, value_parser = clap::value_parser!(u16).range(1..))]
    http_port: u16,
    /// The port of the Gateway for HTTPS.
    #[arg(long, value_name = "PORT", default_value_t = 8443, value_parser = clap::value_parser!(u16).range(1..))]
    https_port: u16,
}

#[derive(Debug, Args)]
pub(crate) struct IngressArgs {
    /// The directory of manifests with its sub-folders, or one manifest, or - for standard input.
    path: PathBuf,
    /// The namespace and the name of the printed Gateway.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name, default_value = "default/sluicegate")]
    gateway: ObjectName,
    #[command(flatten)]
    class: ClassArgs,
}

impl KongArgs {
    /// The files with their paths.
    fn read(&self) -> anyhow::Result<Vec<(PathBuf, String)>> {
        let mut files = Vec::new();
        for path in &self.files {
            match standard_input(path)? {
                Some(text) => files.push(text),
                None if path.is_dir() => {
                    files.extend(read_manifests(path).context("cannot read the files of Kong")?);
                }
                None => {
                    let text = std::fs::read_to_string(path);
                    let text = text.with_context(|| format!("cannot read {}", path.display()))?;
                    files.push((path.clone(), text));
                }
            }
        }
        Ok(files)
    }
}

pub(crate) fn run(args: &Convert) -> anyhow::Result<()> {
    match &args.from {
        Some(From::Ingress(args)) => ingress(args),
        None => kong(&args.kong),
    }
}

/// The text of standard input, or `None` for another path.
fn standard_input(path: &Path) -> anyhow::Result<Option<(PathBuf, String)>> {
    if path != Path::new("-") {
        return Ok(None);
    }
    let mut text = String::new();
    io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
    Ok(Some((PathBuf::from("standard input"), text)))
}

fn ingress(args: &IngressArgs) -> anyhow::Result<()> {
    let texts = match standard_input(&args.path)? {
        Some(text) => vec![text],
        None => read_manifests(&args.path).context("cannot read the manifests")?,
    };
    let options = TranslateOptions {
        ingress_class: args.class.ingress_class.clone(),
        watch_ingress_without_class: args.class.watch_ingress_without_class,
        gateway_class: args.class.gateway_class.clone(),
        ignore_nginx_access_annotations: args.class.ignore_nginx_access_annotations,
        ..TranslateOptions::default()
    };
    let Converted { yaml, problems } = convert_ingresses(&texts, &options, &args.gateway);
    for problem in &problems {
        crate::complain(&format!("{}: {problem}", problem.severity));
    }
    let errors = problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    anyhow::ensure!(errors == 0, "errors: {errors}; no objects are printed");
    crate::say(yaml.trim_end());
    Ok(())
}

fn kong(args: &KongArgs) -> anyhow::Result<()> {
    let files = args.read()?;
    anyhow::ensure!(
        !files.is_empty(),
        "no file: name declarative files of Kong or a directory with such files, or use convert ingress"
    );
    for (path, text) in &files {
        anyhow::ensure!(
            is_kong(text),
            "{} has no _format_version: name declarative files of Kong, or use convert ingress",
            path.display()
        );
    }
    let options = KongOptions {
        gateway: args.gateway.clone().unwrap_or(KongOptions::default().gateway),
        gateway_class: args.gateway_class.clone(),
        http_port: args.http_port,
        https_port: args.https_port,
        has_gateway: args.gateway.is_some(),
        for_cluster: true,
    };
    let converted = convert_kong(&files, &options, &|name| std::env::var(name).ok());
    let errors = converted.errors();
    let KongConverted { yaml, notes } = converted;
    for (path, note) in &notes {
        crate::complain(&located(path, note));
    }
    anyhow::ensure!(errors == 0, "errors: {errors}; no objects are printed");
    crate::say(yaml.trim_end());
    anyhow::ensure!(!args.strict || notes.is_empty(), "not converted: {}", notes.len());
    Ok(())
}
