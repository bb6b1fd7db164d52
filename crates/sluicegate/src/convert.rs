//! `sluicegate convert`: objects of Gateway API in place of other objects.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sluicegate_control::{
    Converted, ObjectName, Severity, TranslateOptions, convert_ingresses, read_manifests,
};

use crate::address::object_name;
use crate::cli::ClassArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Convert {
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
pub(crate) struct IngressArgs {
    /// The directory of manifests with its sub-folders, or one manifest, or - for standard input.
    path: PathBuf,
    /// The namespace and the name of the printed Gateway.
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = object_name, default_value = "default/sluicegate")]
    gateway: ObjectName,
    #[command(flatten)]
    class: ClassArgs,
}

pub(crate) fn ingress(args: &IngressArgs) -> anyhow::Result<()> {
    let texts = if args.path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        vec![(PathBuf::from("standard input"), text)]
    } else {
        read_manifests(&args.path).context("cannot read the manifests")?
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
