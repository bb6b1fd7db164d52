//! `sluicegate apis` and `sluicegate top`: numbers of running gateways, from their metrics or from analytics.
//!
//! | module | content |
//! |---|---|
//! | [`samples`] | metrics pages |
//! | [`live`] | rates from the metrics |
//! | [`lines`] | lines and their table |
//! | [`screen`] | the terminal |

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use sluicegate_admin::table::{Column, table};

use crate::gateways::{GatewayArgs, Gateways};
use crate::output::OutputArgs;
use crate::settings::time;

use lines::{Line, Names, lines_table, millis, percent};
use live::{Of, Scrape};
use samples::Samples;
use screen::{Terminal, keys, quits};

mod lines;
mod live;
pub(crate) mod samples;
mod screen;

/// The window of the rates of analytics, in seconds: the current minute and the minute before.
const WINDOW: u64 = 60;

/// The shortest time between two scrapes. The counters of a shorter time are no rate.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(crate) struct ApisArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// The window of the numbers.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1h")]
    since: Duration,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Rates of routes, hosts, upstreams, endpoints, Consumers and errors are what the gateways counted in the last interval. The times are
estimates from the histograms of the metrics. Rates of APIs, operations, plans and statuses are of the last one to two minutes: data planes
hand their sums over every 5 s, or each minute if there are many.

Example: sluicegate top --by error")]
pub(crate) struct TopArgs {
    #[command(flatten)]
    gateway: GatewayArgs,
    /// The lines of the table.
    #[arg(long, value_enum, value_name = "DIMENSION", default_value = "route")]
    by: By,
    /// The interval of updates. [range: 100ms and more]
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    interval: Duration,
    /// Print the table once, after one interval, for scripts. Without a terminal, and in JSON and YAML, the table is always printed once.
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    /// Each host and path of a route.
    Route,
    /// Each host of the routes.
    Host,
    /// Each Service.
    Upstream,
    /// Each address of a Service.
    Endpoint,
    /// Each Consumer.
    Consumer,
    /// Each reason of an error.
    Error,
    /// Each API. Needs a gateway with --analytics, as the next three do.
    Api,
    /// Each operation of an API.
    Operation,
    /// Each plan.
    Plan,
    /// Each status of responses.
    Status,
}

/// The source of the lines.
enum From {
    Metrics(Of),
    Analytics,
}

impl By {
    /// The name, which is also the dimension of a query of analytics.
    fn name(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Host => "host",
            Self::Upstream => "upstream",
            Self::Endpoint => "endpoint",
            Self::Consumer => "consumer",
            Self::Error => "error",
            Self::Api => "api",
            Self::Operation => "operation",
            Self::Plan => "plan",
            Self::Status => "status",
        }
    }

    fn from(self) -> From {
        From::Metrics(match self {
            Self::Route => Of::Route,
            Self::Host => Of::Host,
            Self::Upstream => Of::Upstream,
            Self::Endpoint => Of::Endpoint,
            Self::Consumer => Of::Consumer,
            Self::Error => Of::Error,
            Self::Api | Self::Operation | Self::Plan | Self::Status => return From::Analytics,
        })
    }

    fn names(self) -> Names {
        let (shown, wide, rate): (&'static [&str], &'static [&str], _) = match self {
            Self::Route => (&["host", "path", "from"], &["upstream"], "REQUESTS/s"),
            Self::Host => (&["host"], &[], "REQUESTS/s"),
            Self::Upstream => (&["upstream"], &[], "ATTEMPTS/s"),
            Self::Endpoint => (&["endpoint", "upstream"], &[], "ATTEMPTS/s"),
            Self::Consumer => (&["consumer"], &[], "REQUESTS/s"),
            Self::Error => (&["reason", "counter", "at"], &[], "ERRORS/s"),
            Self::Api => (&["api"], &[], "REQUESTS/s"),
            Self::Operation => (&["operation"], &[], "REQUESTS/s"),
            Self::Plan => (&["plan"], &[], "REQUESTS/s"),
            Self::Status => (&["status"], &[], "REQUESTS/s"),
        };
        Names { shown, wide, rate }
    }
}

/// `sluicegate apis`.
pub(crate) fn apis(args: &ApisArgs) -> anyhow::Result<()> {
    let seconds = args.since.as_secs().max(60);
    let path = format!("/analytics?since={seconds}s&by=api,version&limit=1000");
    let document: Value = args.gateway.open()?.store().ask(&path)?;
    args.output.print(&document, |is_wide| apis_table(&document, is_wide))
}

fn apis_table(document: &Value, is_wide: bool) -> String {
    let groups = groups(document).iter().filter(|group| group["of"]["api"] != "");
    let time = |of: &'static str, quantile: &'static str| {
        move |group: &&Value| millis(group["total"][of][quantile].as_f64().unwrap_or_default())
    };
    let columns = [
        Column::new("API", |group: &&Value| text(&group["of"]["api"])),
        Column::new("VERSION", |group: &&Value| text(&group["of"]["version"])),
        Column::new("REQUESTS", |group: &&Value| text(&group["total"]["requests"])),
        Column::new("ERRORS", |group: &&Value| percent(errors(&group["total"]))),
        Column::new("P50", time("latency_ms", "p50")),
        Column::new("P95", time("latency_ms", "p95")),
        Column::new("P99", time("latency_ms", "p99")),
        Column::new("LIMITED", |group: &&Value| text(&group["total"]["limited"])),
        Column::wide("GATEWAY P99", time("gateway_ms", "p99")),
        Column::wide("REQUEST BYTES", |group: &&Value| text(&group["total"]["request_bytes"])),
        Column::wide("RESPONSE BYTES", |group: &&Value| text(&group["total"]["response_bytes"])),
    ];
    with_note(table(&columns, groups, is_wide), document["truncated"] == true)
}

/// The lines at one moment.
struct Rates {
    lines: Vec<Line>,
    /// The seconds of the rates.
    seconds: f64,
    is_truncated: bool,
}

/// `sluicegate top`.
pub(crate) fn top(args: &TopArgs) -> anyhow::Result<()> {
    let gateways = args.gateway.open()?;
    let is_for_people = args.output.is_for_people();
    let is_once = args.once || !is_for_people || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    let interval = args.interval.max(INTERVAL_MIN);
    let mut source = Source { gateways: &gateways, by: args.by, last: None };
    // The first error ends the command before the screen changes.
    let mut rates = source.rates()?;
    if is_once {
        if rates.is_none() {
            std::thread::sleep(interval);
            rates = source.rates()?;
        }
        let Rates { lines, seconds, is_truncated } = rates.context("the gateways have no counters")?;
        let document =
            json!({"seconds": seconds, "by": args.by.name(), "lines": lines, "truncated": is_truncated});
        let rates = Rates { lines, seconds, is_truncated };
        return args.output.print(&document, |is_wide| shown(&rates, args.by, is_wide, ""));
    }
    let terminal = Terminal::open().context("cannot use the terminal; try --once")?;
    let keys = keys();
    let is_wide = args.output.is_wide();
    let text = |rates: Option<Rates>| match rates {
        Some(rates) => shown(&rates, args.by, is_wide, " Press q to quit."),
        None => "Counting. Press q to quit.\n".to_owned(),
    };
    let mut screen = text(rates);
    loop {
        terminal.show(&screen)?;
        if quits(&keys, interval) {
            return Ok(());
        }
        screen = source.rates().map_or_else(|error| format!("{error:#}\n"), text);
    }
}

fn shown(rates: &Rates, by: By, is_wide: bool, hint: &str) -> String {
    let title = format!("Rates of the last {:.0} s, by {}.{hint}\n\n", rates.seconds, by.name());
    with_note(title + &lines_table(&by.names(), &rates.lines, is_wide), rates.is_truncated)
}

/// The source of the rates.
struct Source<'a> {
    gateways: &'a Gateways,
    by: By,
    /// The last scrape of each gateway, by its name.
    last: Option<(Instant, BTreeMap<String, Scrape>)>,
}

impl Source<'_> {
    /// The rates since the last call, or of the last minutes. `None` for the first call, if the rates need two scrapes.
    fn rates(&mut self) -> anyhow::Result<Option<Rates>> {
        match self.by.from() {
            From::Analytics => self.of_analytics().map(Some),
            From::Metrics(of) => {
                let now = Instant::now();
                let scrapes = self.scrapes(of)?;
                let Some((then, before)) = self.last.replace((now, scrapes)) else { return Ok(None) };
                let (_, scrapes) = self.last.as_ref().context("no scrape")?;
                // A pod that is new since the last scrape has no rate yet.
                let pair = |(name, later)| Some((before.get(name)?, later));
                let pairs: Vec<(&Scrape, &Scrape)> = scrapes.iter().filter_map(pair).collect();
                let seconds = now.duration_since(then).as_secs_f64();
                let lines = live::lines(of, &pairs, seconds);
                Ok(Some(Rates { lines, seconds, is_truncated: false }))
            }
        }
    }

    fn scrapes(&self, of: Of) -> anyhow::Result<BTreeMap<String, Scrape>> {
        let mut scrapes = BTreeMap::new();
        for gateway in self.gateways.serving() {
            let mut scrape = Scrape::default();
            match of {
                Of::Endpoint => scrape.upstreams = self.gateways.ask_one(gateway, "/upstreams")?,
                _ => scrape.samples = Samples::read(&self.gateways.text_of(gateway, "/metrics")?),
            }
            scrapes.insert(gateway.name(), scrape);
        }
        Ok(scrapes)
    }

    /// The rates of the last one to two minutes.
    fn of_analytics(&self) -> anyhow::Result<Rates> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let from = (now - WINDOW) / 60 * 60;
        let path = format!("/analytics?from={from}&to={now}&by={}&limit=200", self.by.name());
        let document: Value = self.gateways.store().ask(&path)?;
        Ok(analysed(&document, self.by, now - from))
    }
}

fn analysed(document: &Value, by: By, seconds: u64) -> Rates {
    #[expect(clippy::cast_precision_loss, reason = "at most two minutes")]
    let seconds = seconds as f64;
    let line = |group: &Value| {
        let total = &group["total"];
        let rate = |name: &str| total[name].as_f64().unwrap_or_default() / seconds;
        let name = text(&group["of"][by.name()]);
        Line {
            of: [(by.name().to_owned(), if name.is_empty() { "(none)".to_owned() } else { name })].into(),
            per_second: rate("requests"),
            error_share: Some(errors(total)),
            limited_per_second: Some(rate("limited")),
            p50_ms: total["latency_ms"]["p50"].as_f64(),
            p99_ms: total["latency_ms"]["p99"].as_f64(),
            gateway_p99_ms: total["gateway_ms"]["p99"].as_f64(),
            bytes_per_second: Some(rate("response_bytes")),
            ..Line::default()
        }
    };
    let lines = groups(document).iter().map(line).collect();
    Rates { lines, seconds, is_truncated: document["truncated"] == true }
}

fn with_note(mut table: String, is_truncated: bool) -> String {
    if is_truncated {
        table.push_str("There are more lines with fewer requests.\n");
    }
    table
}

fn groups(document: &Value) -> &[Value] {
    document["groups"].as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The share of errors.
fn errors(total: &Value) -> f64 {
    let [errors, requests] = ["errors", "requests"].map(|name| total[name].as_f64().unwrap_or_default());
    if requests > 0.0 { errors / requests } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn document() -> Value {
        let total = json!({
            "requests": 600, "errors": 3, "limited": 60, "response_bytes": 6000,
            "latency_ms": {"p50": 1.234, "p95": 56.7, "p99": 1500.0}, "gateway_ms": {"p99": 0.2},
        });
        json!({"truncated": true, "groups": [
            {"of": {"api": "shop/orders", "version": "v1"}, "total": total},
            {"of": {"api": "", "version": ""}, "total": total},
        ]})
    }

    #[test]
    fn table_of_apis_has_a_line_for_each_version_of_an_api() {
        let expected = "\
API           VERSION   REQUESTS   ERRORS   P50       P95     P99      LIMITED
shop/orders   v1        600        0.50 %   1.23 ms   57 ms   1.50 s   60
There are more lines with fewer requests.
";
        assert_eq!(apis_table(&document(), false), expected);
    }

    #[test]
    fn table_of_rates_divides_by_the_seconds_of_the_window() {
        let table = shown(&analysed(&document(), By::Api, 60), By::Api, false, " Press q to quit.");
        assert!(table.starts_with("Rates of the last 60 s, by api. Press q to quit.\n\nAPI "), "{table}");
        assert!(
            table.contains(
                "\nshop/orders   10.0         0.50 %   1.0         1.23 ms   1.50 s   0.20 ms       100.0\n"
            ),
            "{table}"
        );
        assert!(table.contains("\n(none) ") && table.contains("more lines"), "{table}");
    }
}
