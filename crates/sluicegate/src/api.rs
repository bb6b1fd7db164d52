//! `sluicegate api`: OpenAPI documents.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sluicegate_control::{ApiDocument, api_object, host, write_yaml};
use sluicegate_model::value::syntax::dns_name_fault;

use crate::{complain, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Api {
    /// Check an OpenAPI document 3.0 or 3.1: print each fault with its line and its JSON Pointer. Exit with 1 if there are
    /// errors.
    Lint(LintArgs),
    /// Print an Api that serves the operations of an OpenAPI document, for kubectl apply -f -. If the document has errors, the
    /// Api serves the other operations, and the command exits with 1.
    #[command(after_help = "\
Example:\n  sluicegate api import openapi.yaml --host api.example.com --service pets --port http | kubectl apply -f -")]
    Import(ImportArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LintArgs {
    /// The document in YAML or JSON, or - for standard input.
    document: PathBuf,
    /// Exit with 1 on warnings too.
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The document in YAML or JSON, or - for standard input.
    document: PathBuf,
    /// The name of the Api. [default: the title of the document in lower case, with hyphens]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The namespace of the Api. [default: none, and kubectl chooses]
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// The name of the environment.
    #[arg(long, value_name = "NAME", default_value = "production")]
    environment: String,
    /// A host of the environment; may be given several times. [default: the host of the first server of the document]
    #[arg(long, value_name = "HOST")]
    host: Vec<String>,
    /// The path before the paths of the document. [default: the path of the first server of the document, or /]
    #[arg(long, value_name = "PATH")]
    base_path: Option<String>,
    /// The Service that serves the operations. [default: none, and the gateway responds with the examples of the document]
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// The name or the number of a port of the Service.
    #[arg(long, value_name = "PORT", default_value = "http", value_parser = service_port)]
    port: String,
}

pub(crate) fn run(command: &Api) -> anyhow::Result<ExitCode> {
    match command {
        Api::Lint(args) => lint(args),
        Api::Import(args) => import(args),
    }
}

fn lint(args: &LintArgs) -> anyhow::Result<ExitCode> {
    let document = ApiDocument::read(&read(&args.document)?);
    let is_valid = report(&args.document, &document, say);
    let operations = document.operations();
    // Without a title, the text may be anything.
    if is_valid || !document.title().is_empty() {
        say(&summary(operations, document.title(), document.version()));
    }
    let is_strictly_valid = document.faults().next().is_none();
    Ok(exit(if args.strict { is_strictly_valid } else { is_valid }))
}

fn summary(operations: usize, title: &str, version: &str) -> String {
    let plural = if operations == 1 { "" } else { "s" };
    format!("{operations} operation{plural} of {title:?} {version}")
}

fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let text = read(&args.document)?;
    let document = ApiDocument::read(&text);
    let is_valid = report(&args.document, &document, complain);
    let mut hosts = args.host.clone();
    if hosts.is_empty() {
        hosts.extend(document.host().map(ToOwned::to_owned));
    }
    anyhow::ensure!(!hosts.is_empty(), "the document names no host: give one with --host");
    let name = args.name.clone().unwrap_or_else(|| name_of(document.title()));
    anyhow::ensure!(!name.is_empty(), "the document has no title: give a name with --name");
    for host in &hosts {
        host::parse(host).map_err(anyhow::Error::msg).context("cannot use a host")?;
    }
    let service = args.service.iter().map(|service| ("--service", service));
    for (option, name) in [("--name", &name), ("--environment", &args.environment)].into_iter().chain(service)
    {
        if let Some(fault) = dns_name_fault(name) {
            anyhow::bail!("{option}: {name:?} {fault}");
        }
    }
    let mut environment = serde_json::json!({"name": args.environment, "hosts": hosts});
    if let Some(service) = &args.service {
        environment["backend"] = serde_json::json!({"service": service, "port": args.port});
    }
    if let Some(base_path) = &args.base_path {
        environment["basePath"] = base_path.as_str().into();
    }
    let object = api_object(&name, args.namespace.as_deref(), &text, &environment);
    say(write_yaml(&object).trim_end());
    Ok(exit(is_valid))
}

/// A port of a Service: a name, or a number from 1 to 65535.
fn service_port(text: &str) -> Result<String, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse::<u16>() {
        Ok(1..) => Ok(text.to_owned()),
        _ if is_number => Err("is not from 1 to 65535".to_owned()),
        _ if text.is_empty() => Err("is empty: write a name or a number".to_owned()),
        _ => Ok(text.to_owned()),
    }
}

/// Prints the faults. Returns whether there are no errors.
fn report(file: &Path, document: &ApiDocument, print: impl Fn(&str)) -> bool {
    let mut is_valid = true;
    for (is_error, message) in document.faults() {
        is_valid &= !is_error;
        let severity = if is_error { "error" } else { "warning" };
        print(&format!("{}: {severity}: {message}", file.display()));
    }
    is_valid
}

fn exit(is_valid: bool) -> ExitCode {
    if is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn read(file: &Path) -> anyhow::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input as text")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

/// A title as the name of an object.
fn name_of(title: &str) -> String {
    let mut name = String::new();
    for letter in title.chars() {
        match letter.to_ascii_lowercase() {
            letter if letter.is_ascii_alphanumeric() => name.push(letter),
            _ if name.ends_with('-') || name.is_empty() => {}
            _ => name.push('-'),
        }
    }
    name.truncate(63);
    name.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{name_of, service_port, summary};

    #[test]
    fn port_of_a_service_is_a_name_or_a_number() {
        for (text, is_valid) in [("http", true), ("80", true), ("0", false), ("99999", false), ("", false)] {
            assert_eq!(service_port(text).is_ok(), is_valid, "{text}");
        }
    }

    #[test]
    fn summary_has_the_number_of_operations() {
        for (operations, expected) in [
            (0, "0 operations of \"Pets\" 1"),
            (1, "1 operation of \"Pets\" 1"),
            (2, "2 operations of \"Pets\" 1"),
        ] {
            assert_eq!(summary(operations, "Pets", "1"), expected);
        }
    }

    #[test]
    fn title_becomes_the_name_of_an_object() {
        for (title, name) in
            [("Swagger Petstore - OpenAPI 3.1", "swagger-petstore-openapi-3-1"), ("(Über)", "ber"), ("", "")]
        {
            assert_eq!(name_of(title), name);
        }
    }
}
