//! The audit trail as options, and `sluicegate audit`.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::Value;
use sluicegate_admin::Measure;
use sluicegate_admin::table::{Column, table};
use sluicegate_analytics::{Audit, AuditOptions, Chain, TRAIL, Verified};
use sluicegate_control::{Kind, write_yaml};

use crate::analytics::StoreArgs;
use crate::gateways::GatewayArgs;
use crate::settings::time;
use crate::source::{Source, SourceArgs};

/// How long the end of the process waits until the last changes are stored.
const LAST: Duration = Duration::from_secs(3);
/// How long a change of a cluster waits for the request of its user, which another process may have received.
const DELAY: Duration = Duration::from_secs(1);
/// The kinds whose objects the gateway reads from a cluster only if another object names them.
const NAMED: &[&str] = &["ConfigMap", "Secret"];
/// The entries of one request to the admin interface.
const PAGE: usize = 1000;
/// The longest cell of a table, in characters.
const CELL: usize = 100;

/// The audit trail of a control plane.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit trail")]
pub(crate) struct AuditArgs {
    /// Record who changed which object when, in the database of --analytics-database, for sluicegate audit and the page /audit of the
    /// admin interface. Users of a cluster are known by the admission webhook (--validating-webhook). No entry has the value of a
    /// secret.
    #[arg(long, requires = "analytics_database")]
    audit: bool,
    /// The days for which entries are kept. [default: for ever] [range: 1 to 36600]
    #[arg(long, value_name = "DAYS", requires = "audit", value_parser = clap::value_parser!(u32).range(1..=36_600))]
    audit_keep_days: Option<u32>,
}

impl AuditArgs {
    /// Starts the audit trail of a source, if it is requested.
    pub(crate) fn start(
        &self,
        store: &StoreArgs,
        args: &SourceArgs,
        source: &mut Source,
    ) -> anyhow::Result<Option<Arc<Audit>>> {
        if !self.audit {
            return Ok(None);
        }
        let (may_be_absent, delay) = match source {
            Source::Directory(_) => (&[][..], Duration::ZERO),
            Source::Cluster(_) => (NAMED, DELAY),
        };
        let (location, keep_days) = (store.location(), self.audit_keep_days);
        let options = AuditOptions { location, keep_days, scope: args.scope(), may_be_absent, delay };
        let audit = Arc::new(Audit::start(options).context("cannot start the thread of the audit trail")?);
        let recorder = audit.clone();
        source.record(Arc::new(move |report| recorder.record(report)));
        Ok(Some(audit))
    }
}

/// Waits until the last changes are stored.
pub(crate) async fn finish(audit: Arc<Audit>) {
    let waiting = tokio::task::spawn_blocking(move || audit.finish(LAST)).await.unwrap_or_default();
    if waiting > 0 {
        tracing::warn!(
            changes = waiting,
            "the last changes are not in the audit trail; the next process records them without their writer"
        );
    }
}

/// The numbers of an audit trail, for metrics.
pub(crate) fn measures(audit: Option<&Audit>) -> Vec<Measure> {
    let Some(status) = audit.map(Audit::status) else { return Vec::new() };
    vec![
        Measure::counter(
            "sluicegate_audit_entries",
            "Entries that this process wrote into the audit trail",
            status.written,
        ),
        Measure::counter(
            "sluicegate_audit_dropped",
            "Changes and requests that the audit trail dropped, because too many waited for the database",
            status.dropped,
        ),
        Measure::counter(
            "sluicegate_audit_database_failures",
            "Failures of the database of the audit trail",
            status.failures,
        ),
        Measure::gauge(
            "sluicegate_audit_waiting",
            "Changes and requests that wait for the database of the audit trail",
            status.waiting as u64,
        ),
    ]
}

/// `sluicegate audit`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct AuditCommand {
    #[command(subcommand)]
    verify: Option<AuditSubcommand>,
    #[command(flatten)]
    list: ListArgs,
}

#[derive(Debug, Subcommand)]
enum AuditSubcommand {
    /// Check that no entry was changed, removed or inserted. Exit with 1 if the chain of hashes is broken.
    Verify(VerifyArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// The window of the entries, before now.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "24h")]
    since: Duration,
    /// Only objects of this kind, such as Plan. Upper case, lower case and the plural are accepted, as in plans.
    #[arg(long, value_name = "KIND", value_parser = kind)]
    kind: Option<String>,
    /// Only objects of this namespace.
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Only objects of this name.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Only changes by this user, manager or owner.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// The maximum number of entries, the newest first.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    limit: u32,
    /// The format of the entries.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Text,
    /// A table with more columns, and with changes in full.
    Wide,
    /// JSON lines.
    Json,
    /// One YAML document.
    Yaml,
    /// Comma-separated values.
    Csv,
}

#[derive(Debug, Args)]
struct VerifyArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// Check this export (all entries as JSON lines, or - for standard input) in place of a running gateway.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The number and the hash of an entry that an earlier check printed. The entry must still be in the trail.
    #[arg(long, value_name = "NUMBER:HASH", value_parser = anchor)]
    anchor: Option<(i64, String)>,
}

fn anchor(text: &str) -> Result<(i64, String), String> {
    let wrong = || "write NUMBER:HASH, as sluicegate audit verify prints them".to_owned();
    let (number, hash) = text.split_once(':').ok_or_else(wrong)?;
    let number = number.parse().map_err(|_| wrong())?;
    if hash.len() == 64 { Ok((number, hash.to_owned())) } else { Err(wrong()) }
}

/// The name of a kind that the audit trail has.
fn kind(text: &str) -> Result<String, String> {
    if text.eq_ignore_ascii_case(TRAIL) {
        return Ok(TRAIL.to_owned());
    }
    let kind = Kind::recorded().find(|kind| kind.is_named(text)).map(Kind::as_str);
    kind.map(str::to_owned).ok_or_else(|| {
        let kinds: Vec<&str> = Kind::recorded().map(Kind::as_str).chain([TRAIL]).collect();
        format!("the audit trail has no such kind; write one of {}", kinds.join(", "))
    })
}

pub(crate) fn run(command: &AuditCommand) -> anyhow::Result<()> {
    match &command.verify {
        Some(AuditSubcommand::Verify(args)) => verify(args),
        None => list(&command.list),
    }
}

fn list(args: &ListArgs) -> anyhow::Result<()> {
    let gateways = args.gateway.open()?;
    let store = gateways.store();
    let mut path = format!("/audit?since={}s", args.since.as_secs());
    let filters =
        [("kind", &args.kind), ("namespace", &args.namespace), ("name", &args.name), ("actor", &args.actor)];
    for (name, value) in filters {
        if let Some(value) = value {
            path.push_str(&format!("&{name}={}", encoded(value)));
        }
    }
    let (mut left, mut before) = (usize::try_from(args.limit)?, None);
    let mut rows = Vec::new();
    while left > 0 {
        let limit = left.min(PAGE);
        let mut page = format!("{path}&limit={limit}");
        if let Some(before) = before {
            page.push_str(&format!("&before={before}"));
        }
        let entries = store.text(&page)?;
        let read = entries.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let is_last = read.len() < limit;
        left -= read.len();
        let first = before.is_none();
        before = read.last().and_then(|entry| entry["number"].as_i64());
        match args.output {
            Format::Json => print(&entries)?,
            Format::Csv => {
                // The same page in another form. New entries have higher numbers, so the rows are the same.
                let page = match (first, read.first().and_then(|entry| entry["number"].as_i64())) {
                    (true, Some(newest)) => format!("{page}&before={}&format=csv", newest + 1),
                    _ => format!("{page}&format=csv"),
                };
                let text = store.text(&page)?;
                print(if first { &text } else { text.split_once('\n').map_or("", |(_, rows)| rows) })?;
            }
            Format::Text | Format::Wide | Format::Yaml => rows.extend(read),
        }
        if is_last {
            break;
        }
    }
    match args.output {
        Format::Json | Format::Csv => {}
        Format::Yaml => crate::say(write_yaml(&Value::Array(rows)).trim_end()),
        Format::Text => crate::say(entries_table(rows, false).trim_end()),
        Format::Wide => crate::say(entries_table(rows, true).trim_end()),
    }
    Ok(())
}

fn entries_table(entries: Vec<Value>, is_wide: bool) -> String {
    let columns = [
        Column::wide("NUMBER", |entry: &Value| entry["number"].to_string()),
        Column::new("TIME", |entry: &Value| {
            let time = text(&entry["time"]);
            time.split_once('.').map_or(time.clone(), |(seconds, _)| format!("{seconds}Z"))
        }),
        Column::new("ACTOR", |entry: &Value| {
            match (entry["actor"]["type"].as_str(), text(&entry["actor"]["name"])) {
                (Some("user"), name) => name,
                (Some(kind @ ("manager" | "owner")), name) => format!("{kind}: {name}"),
                _ => String::new(),
            }
        }),
        Column::new("OPERATION", |entry: &Value| text(&entry["operation"])),
        Column::new("OBJECT", object),
        Column::new("CHANGE", move |entry: &Value| said(entry, if is_wide { usize::MAX } else { CELL })),
    ];
    table(&columns, entries, is_wide)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn object(entry: &Value) -> String {
    let (kind, namespace, name) = (text(&entry["kind"]), text(&entry["namespace"]), text(&entry["name"]));
    match (namespace.is_empty(), name.is_empty()) {
        (_, true) => kind,
        (true, false) => format!("{kind} {name}"),
        (false, false) => format!("{kind} {namespace}/{name}"),
    }
}

/// The meaning of an entry, or else its changed fields, shortened.
fn said(entry: &Value, longest: usize) -> String {
    let summary = entry["summary"].as_str().unwrap_or_default();
    let fields = entry["changes"].as_array().into_iter().flatten().map(|change| {
        let field = change["field"].as_str().unwrap_or_default();
        match (&change["old"], &change["new"], change["secret"].as_str()) {
            (_, _, Some(secret)) => format!("{field} ({secret})"),
            (Value::Null, new, None) => format!("{field}: {new}"),
            (old, Value::Null, None) => format!("{field}: {old} removed"),
            (old, new, None) => format!("{field}: {old} -> {new}"),
        }
    });
    let fields = match (summary.is_empty(), entry["operation"].as_str()) {
        (true, Some("changed")) => fields.collect::<Vec<_>>().join(", "),
        _ => summary.to_owned(),
    };
    let fault = match entry["applied"] == false {
        true => format!("not applied: error at {}; ", entry["fault"].as_str().unwrap_or_default()),
        false => String::new(),
    };
    let all = fault + &fields;
    match all.char_indices().nth(longest) {
        Some((end, _)) => format!("{}...", &all[..end]),
        None => all,
    }
}

fn verify(args: &VerifyArgs) -> anyhow::Result<()> {
    let mut chain = Chain::with_anchor(args.anchor.clone());
    let verified = if let Some(file) = &args.file {
        let reader: Box<dyn io::Read> = match file.as_os_str() == "-" {
            true => Box::new(io::stdin()),
            false => Box::new(
                std::fs::File::open(file).with_context(|| format!("cannot read {}", file.display()))?,
            ),
        };
        let lines = io::BufRead::lines(io::BufReader::new(reader)).collect::<io::Result<Vec<_>>>()?;
        let number = |line: Option<&String>| {
            let entry = serde_json::from_str::<Value>(line?).ok()?;
            entry["number"].as_i64()
        };
        // Exports of sluicegate audit have the newest entry first.
        match number(lines.first()) > number(lines.last()) {
            true => lines.iter().rev().try_for_each(|line| chain.take(line))?,
            false => lines.iter().try_for_each(|line| chain.take(line))?,
        }
        chain.finish(None)?
    } else {
        let gateways = args.gateway.open()?;
        let store = gateways.store();
        // Before the entries: entries that come meanwhile are beyond the head.
        let head: Value = store.ask("/audit/head")?;
        let (number, hash) =
            (head["number"].as_i64().unwrap_or_default(), head["hash"].as_str().unwrap_or_default());
        while chain.last() < number {
            let page = format!("/audit?after={}&limit={PAGE}", chain.last());
            let entries = store.text(&page)?;
            if entries.is_empty() {
                break;
            }
            for line in entries.lines() {
                if chain.last() < number {
                    chain.take(line)?;
                }
            }
        }
        chain.finish(Some((number, hash)))?
    };
    let Verified { entries, first, last, hash } = verified;
    crate::say(&match entries {
        0 => "The audit trail has no entry.".to_owned(),
        1 => format!("1 entry, {last}, is complete and unchanged.\nanchor: {last}:{hash}"),
        _ => format!(
            "{entries} entries, {first} to {last}, are complete and unchanged.\nanchor: {last}:{hash}"
        ),
    });
    Ok(())
}

/// Prints text of lines. The reader may stop before the end, as `head` does.
fn print(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

/// A value in the query of a URL.
fn encoded(value: &str) -> String {
    let mut text = String::new();
    for byte in value.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'/' | b':' | b'@' => {
                text.push(byte.into());
            }
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use serde_json::json;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn audit_trail_needs_a_database() {
        let parsed = |options: &[&str]| {
            Cli::try_parse_from(["sluicegate", "serve", "--manifests=x"].iter().chain(options)).is_ok()
        };
        assert!(parsed(&["--audit", "--analytics-database=sqlite:a.db", "--audit-keep-days=400"]));
        assert!(!parsed(&["--audit"]));
        assert!(!parsed(&["--audit-keep-days=400", "--analytics-database=sqlite:a.db"]));
        assert!(!parsed(&["--audit", "--analytics-database=sqlite:a.db", "--audit-keep-days=0"]));
    }

    #[test]
    fn unknown_kind_is_an_error_with_the_known_kinds() {
        let parsed = |kind: &str| Cli::try_parse_from(["sluicegate", "audit", "--kind", kind]);
        for known in ["Plan", "plan", "PLANS", "httproutes", "audittrail"] {
            assert!(parsed(known).is_ok(), "{known}");
        }
        assert_eq!(kind("plans").as_deref(), Ok("Plan"));
        for unknown in ["Plam", "", "EndpointSlice", "Namespace"] {
            let error = parsed(unknown).map(drop).expect_err(unknown).to_string();
            assert!(
                error.contains("write one of IngressClass, Ingress, ") && error.contains(" Plan, "),
                "{error}"
            );
        }
    }

    #[test]
    fn entry_is_a_row_of_a_table() {
        let entry = json!({"time": "2026-11-26T10:00:00.123Z", "operation": "changed", "kind": "Plan", "namespace": "shop",
            "name": "gold", "actor": {"type": "manager", "name": "kubectl-edit"}, "applied": false, "fault": "spec.limits",
            "changes": [{"field": "/spec/a", "old": 1, "new": 2}, {"field": "/spec/b", "secret": "added"}]});
        let table = entries_table(vec![entry], false);
        let row: Vec<&str> = table.lines().nth(1).unwrap_or_default().split("   ").map(str::trim).collect();
        assert_eq!(
            row.into_iter().filter(|cell| !cell.is_empty()).collect::<Vec<_>>(),
            [
                "2026-11-26T10:00:00Z",
                "manager: kubectl-edit",
                "changed",
                "Plan shop/gold",
                "not applied: error at spec.limits; /spec/a: 1 -> 2, /spec/b (added)"
            ]
        );
        assert_eq!(encoded("a b&c=ü"), "a%20b%26c%3D%C3%BC");
    }
}
