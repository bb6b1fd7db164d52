//! `sluicegate migrate`: moving from ingress-nginx.

use std::collections::BTreeMap;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use http::HeaderName;
use sluicegate_control::{
    IngressTargets, TranslateOptions, ingress_targets, migration_report, read_ingresses, read_manifests,
};
use sluicegate_migrate::{Controller, ControllerError, Options, Request, Rules, source};

use crate::cli::ClassArgs;
use crate::gateways::{ClusterArgs, runtime};
use crate::values::ValuesArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Migrate {
    /// Report what the gateway would make of each annotation of each Ingress of ingress-nginx: same, different, refused,
    /// or closed because the annotation may restrict access. The report reads Ingresses and IngressClasses, and changes
    /// nothing.
    #[command(after_help = "\
Examples:\n  sluicegate migrate report --kubernetes --output html > report.html\n  \
kubectl get ingresses,ingressclasses --all-namespaces --output yaml | sluicegate migrate report -\n\n\
sluicegate check --ingress-nginx-compatibility also finds references to missing Services and Secrets.")]
    Report(Box<ReportArgs>),
    /// Send the same requests to ingress-nginx and to the gateway, and print every difference between their responses:
    /// status, headers, body, and the Service that responded. The requests come from an access log, a HAR file, or the
    /// hosts and paths of Ingresses. The command sends only GET, HEAD and OPTIONS unless --method allows others, and
    /// exits with 1 if a response differs.
    #[command(after_help = "\
Examples:\n  sluicegate migrate diff --old https://192.0.2.1 --new https://192.0.2.2 --access-log access.log --host shop.example.com\n  \
kubectl get ingresses --all-namespaces --output yaml | sluicegate migrate diff --old http://192.0.2.1 --new http://192.0.2.2 -")]
    Diff(Box<DiffArgs>),
    /// Print values for the chart of Sluicegate, from a file with values of the chart of ingress-nginx. Standard error names
    /// each value without a place, and what to do. The command exits with 1 if one of these values restricts access.
    #[command(after_help = "\
Examples:\n  helm get values ingress-nginx --namespace ingress-nginx | sluicegate migrate values - > values.yaml\n  \
helm install sluicegate charts/sluicegate --namespace sluicegate --create-namespace --values values.yaml")]
    Values(ValuesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directory of manifests with its sub-folders, or one manifest, or - for standard input.
    #[arg(required_unless_present = "kubernetes", conflicts_with = "kubernetes")]
    path: Option<PathBuf>,
    /// Read the Ingresses of a cluster, with a kubeconfig.
    #[arg(long)]
    kubernetes: bool,
    #[command(flatten)]
    cluster: ClusterArgs,
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

#[derive(Debug, Args)]
#[group(id = "requests", required = true, multiple = false, args = ["path", "access_log", "har"])]
pub(crate) struct DiffArgs {
    /// The URL of ingress-nginx, such as https://192.0.2.1. The command asks this address for every host.
    #[arg(long, value_name = "URL")]
    old: String,
    /// The URL of the gateway.
    #[arg(long, value_name = "URL")]
    new: String,
    /// Requests for the hosts and paths of these Ingresses: a directory of manifests, one manifest, or - for standard
    /// input.
    path: Option<PathBuf>,
    /// Requests of an access log: the default format of ingress-nginx and nginx, or lines of JSON.
    #[arg(long, value_name = "FILE")]
    access_log: Option<PathBuf>,
    /// Requests of a HAR file, which browsers write. The command sends methods and URLs, without headers.
    #[arg(long, value_name = "FILE")]
    har: Option<PathBuf>,
    /// The host of the lines of an access log that name no host.
    #[arg(long, value_name = "HOST", requires = "access_log")]
    host: Option<String>,
    /// A further method to send, such as POST; may be given several times. Endpoints receive such a request twice.
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,
    /// The requests per second to each controller. 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// The timeout of each response.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    timeout: Duration,
    /// The longest time for all requests. Further requests are left out.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = humantime::parse_duration)]
    longest: Duration,
    /// The response header by which endpoints name their Service.
    #[arg(long, value_name = "NAME")]
    service_header: Option<HeaderName>,
    /// A response header that is not compared; may be given several times.
    #[arg(long, value_name = "NAME")]
    ignore_header: Vec<HeaderName>,
    /// Do not compare bodies.
    #[arg(long)]
    ignore_bodies: bool,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    class: ClassArgs,
}

pub(crate) fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (requests, left_out) = args.requests()?;
    if requests.is_empty() {
        let reason = left_out.map(|left_out| format!("; {left_out}")).unwrap_or_default();
        anyhow::bail!("there are no requests to send{reason}");
    }
    let options = Options {
        rate: args.rate,
        timeout: args.timeout,
        methods: args.method.clone(),
        longest: args.longest,
        rules: Rules {
            ignored: args.ignore_header.clone(),
            service_header: args.service_header.clone(),
            ignores_bodies: args.ignore_bodies,
        },
    };
    let report = runtime()?.block_on(async {
        let (old, new) = (Controller::at(&args.old).await?, Controller::at(&args.new).await?);
        Ok::<_, ControllerError>(sluicegate_migrate::run(&old, &new, &requests, &options).await)
    })?;
    match args.json {
        true => crate::say(&serde_json::to_string_pretty(&report)?),
        false => crate::say(&report.to_string()),
    }
    if let Some(left_out) = left_out {
        crate::complain(&left_out);
    }
    let is_same = report.compared > 0 && report.mismatches.is_empty() && report.without_response == 0;
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl DiffArgs {
    /// The requests, and the parts of the input that are left out.
    fn requests(&self) -> anyhow::Result<(Vec<Request>, Option<String>)> {
        let read = |path: &PathBuf| {
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let entries = |(requests, skipped): (Vec<Request>, usize)| {
            let left_out = format!("entries that are no requests, or name no host: {skipped}");
            (requests, (skipped > 0).then_some(left_out))
        };
        let (requests, left_out) = match (&self.access_log, &self.har, &self.path) {
            (Some(file), ..) => entries(source::log::read(&read(file)?, self.host.as_deref())),
            (None, Some(file), _) => {
                entries(source::har::read(&read(file)?).with_context(|| file.display().to_string())?)
            }
            (None, None, Some(path)) => {
                let options = self.class.migration();
                let IngressTargets { requests, other_classes } = ingress_targets(&texts(path)?, &options);
                let requests = requests.iter().filter_map(|(host, path)| Request::new(host, "GET", path));
                (requests.collect(), other_classes_in_words(&other_classes))
            }
            (None, None, None) => (Vec::new(), None),
        };
        Ok((source::unique(requests), left_out))
    }
}

/// The Ingresses that are left out because of their classes.
fn other_classes_in_words(classes: &BTreeMap<String, usize>) -> Option<String> {
    let name = |(class, ingresses): (&String, &usize)| match &**class {
        "" => format!("without a class ({ingresses})"),
        class => format!("{class} ({ingresses})"),
    };
    let names: Vec<String> = classes.iter().map(name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "Ingresses of other classes are left out: {}. Name a class with --ingress-class",
            names.join(", ")
        )
    })
}

impl ClassArgs {
    /// The options for a translation of Ingresses of ingress-nginx.
    fn migration(&self) -> TranslateOptions {
        let ingress_class = self.named_class().unwrap_or_default().to_owned();
        TranslateOptions { ingress_class, ingress_nginx: Some(self.dialect()), ..TranslateOptions::default() }
    }
}

/// The manifests of a path, or of standard input.
fn texts(path: &Path) -> anyhow::Result<Vec<(PathBuf, String)>> {
    if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(vec![(PathBuf::from("standard input"), text)]);
    }
    read_manifests(path).context("cannot read the manifests")
}

pub(crate) fn report(args: &ReportArgs) -> anyhow::Result<()> {
    args.cluster.need("--kubernetes", args.kubernetes)?;
    let texts = match &args.path {
        None => runtime()?.block_on(read_ingresses(&args.cluster.credentials()))?,
        Some(path) => texts(path)?,
    };
    let report = migration_report(&texts, &args.class.migration());
    match args.output {
        Output::Text => crate::say(report.to_string().trim_end()),
        Output::Json => crate::say(&serde_json::to_string_pretty(&report)?),
        Output::Html => crate::say(report.html().trim_end()),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::Migrate;
    use crate::cli::{Cli, Command};

    fn parse(more: &[&str]) -> Result<Command, clap::Error> {
        let line = ["sluicegate", "migrate", "diff", "--old", "http://a", "--new", "http://b"];
        Cli::try_parse_from(line.iter().chain(more)).map(|cli| cli.command)
    }

    #[test]
    fn requests_are_for_the_ingresses_of_the_named_class_and_others_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let requests = |more: &[&str]| {
            let Ok(Command::Migrate(Migrate::Diff(args))) = parse(&[&[path], more].concat()) else {
                panic!("{more:?}")
            };
            let (requests, left_out) = args.requests().unwrap();
            (requests.len(), left_out)
        };
        let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: a}, spec: {ingressClassName: nginx-next, \
                       rules: [{host: a.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}}]}}\n";
        std::fs::write(dir.path().join("a.yaml"), ingress).unwrap();
        let (sent, left_out) = requests(&[]);
        let expected =
            "Ingresses of other classes are left out: nginx-next (1). Name a class with --ingress-class";
        assert_eq!((sent, left_out.as_deref()), (0, Some(expected)));
        assert_eq!(requests(&["--ingress-class", "nginx-next"]), (3, None));
        // The controller of the class does not matter.
        for controller in ["sluicegate.dev/ingress-controller", "other.test/controller"] {
            let class = format!(
                "{{apiVersion: networking.k8s.io/v1, kind: IngressClass, metadata: {{name: nginx-next}}, spec: {{controller: {controller}}}}}\n"
            );
            std::fs::write(dir.path().join("class.yaml"), class).unwrap();
            assert_eq!(requests(&["--ingress-class", "nginx-next"]), (3, None), "{controller}");
            assert_eq!(requests(&[]).0, 0, "{controller}");
        }
    }

    #[test]
    fn requests_come_from_exactly_one_source() {
        for source in [&["--access-log", "x"][..], &["--har", "x"], &["x"]] {
            let Ok(Command::Migrate(Migrate::Diff(args))) = parse(source) else { panic!("{source:?}") };
            let given = [args.access_log.is_some(), args.har.is_some(), args.path.is_some()];
            assert_eq!(given.iter().filter(|is_given| **is_given).count(), 1);
        }
        assert!(parse(&[]).is_err() && parse(&["x", "--har", "y"]).is_err());
    }
}
