//! `sluicegate apis` and `sluicegate top`: tables of analytics from a running gateway.

use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;
use sluicegate_admin::fetch;
use sluicegate_admin::table::aligned;

use crate::cli::AdminArgs;
use crate::settings::time;

/// The window of the rates, in seconds: the current minute and the minute before.
const WINDOW: u64 = 60;

#[derive(Debug, Args)]
pub(crate) struct ApisArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The window of the numbers.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "1h")]
    since: Duration,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    #[command(flatten)]
    admin: AdminArgs,
    /// The lines of the table.
    #[arg(long, value_enum, value_name = "DIMENSION", default_value = "api")]
    by: By,
    /// The interval of updates. Data planes hand their sums over every 5 s, or each minute if there are many.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "2s")]
    interval: Duration,
    /// Print the table once, for scripts. Without a terminal, the table is always printed once.
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum By {
    Api,
    Operation,
    Route,
    Consumer,
    Plan,
    Endpoint,
    Status,
}

impl By {
    /// The dimension of the query.
    fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Operation => "operation",
            Self::Route => "route",
            Self::Consumer => "consumer",
            Self::Plan => "plan",
            Self::Endpoint => "endpoint",
            Self::Status => "status",
        }
    }
}

/// `sluicegate apis`.
pub(crate) fn apis(args: &ApisArgs) -> anyhow::Result<()> {
    let seconds = args.since.as_secs().max(60);
    let document: Value = runtime()?.block_on(fetch(
        args.admin.admin,
        &format!("/analytics?since={seconds}s&by=api,version&limit=1000"),
    ))?;
    crate::say(apis_table(&document).trim_end());
    Ok(())
}

fn apis_table(document: &Value) -> String {
    let rows = groups(document).iter().filter(|group| group["of"]["api"] != "").map(|group| {
        let total = &group["total"];
        [
            text(&group["of"]["api"]),
            text(&group["of"]["version"]),
            text(&total["requests"]),
            percent(total),
            millis(&total["latency_ms"]["p50"]),
            millis(&total["latency_ms"]["p95"]),
            millis(&total["latency_ms"]["p99"]),
            text(&total["limited"]),
        ]
    });
    let header = ["API", "VERSION", "REQUESTS", "ERRORS", "P50", "P95", "P99", "LIMITED"];
    with_note(aligned(header, rows), document)
}

/// `sluicegate top`.
pub(crate) fn top(args: &TopArgs) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let is_once = args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal();
    let table = || runtime.block_on(table(args.admin.admin, args.by, is_once));
    if is_once {
        crate::say(table()?.trim_end());
        return Ok(());
    }
    // The first error ends the command before the screen changes.
    let mut shown = table()?;
    let terminal = Terminal::open().context("cannot use the terminal; try --once")?;
    let keys = keys();
    loop {
        terminal.show(&shown)?;
        if quits(&keys, args.interval) {
            return Ok(());
        }
        shown = table().unwrap_or_else(|error| format!("{error}\n"));
    }
}

/// The rates of the last one to two minutes.
async fn table(admin: SocketAddr, by: By, is_once: bool) -> anyhow::Result<String> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let from = (now - WINDOW) / 60 * 60;
    let path = format!("/analytics?from={from}&to={now}&by={}&limit=200", by.name());
    let document: Value = fetch(admin, &path).await?;
    Ok(top_table(&document, by, now - from, is_once))
}

fn top_table(document: &Value, by: By, seconds: u64, is_once: bool) -> String {
    let rate = |count: &Value| format!("{:.1}", count.as_f64().unwrap_or_default() / seconds as f64);
    let rows = groups(document).iter().map(|group| {
        let total = &group["total"];
        let name = text(&group["of"][by.name()]);
        [
            if name.is_empty() { "(none)".to_owned() } else { name },
            rate(&total["requests"]),
            percent(total),
            rate(&total["limited"]),
            millis(&total["latency_ms"]["p50"]),
            millis(&total["latency_ms"]["p99"]),
            millis(&total["gateway_ms"]["p99"]),
            rate(&total["response_bytes"]),
        ]
    });
    let name = by.name().to_uppercase();
    let header = [&*name, "REQUESTS/s", "ERRORS", "LIMITED/s", "P50", "P99", "GATEWAY P99", "BYTES/s"];
    let hint = if is_once { "" } else { " Press q to quit." };
    let title = format!("Rates of the last {seconds} s, by {}.{hint}\n\n", by.name());
    with_note(title + &aligned(header, rows), document)
}

fn with_note(mut table: String, document: &Value) -> String {
    if document["truncated"] == true {
        // Writing to a String does not fail.
        let _ = writeln!(table, "There are more lines with fewer requests.");
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
fn percent(total: &Value) -> String {
    let [errors, requests] = ["errors", "requests"].map(|name| total[name].as_f64().unwrap_or_default());
    format!("{:.2} %", if requests > 0.0 { 100.0 * errors / requests } else { 0.0 })
}

fn millis(value: &Value) -> String {
    match value.as_f64().unwrap_or_default() {
        millis if millis >= 1000.0 => format!("{:.2} s", millis / 1000.0),
        millis if millis >= 10.0 => format!("{millis:.0} ms"),
        millis => format!("{millis:.2} ms"),
    }
}

/// The terminal in raw mode, with another screen.
struct Terminal {
    before: Termios,
}

impl Terminal {
    fn open() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        let this = Self { before };
        // The other screen, without a cursor.
        io::stdout().write_all(b"\x1b[?1049h\x1b[?25l")?;
        Ok(this)
    }

    /// Shows a text, as far as there is room.
    fn show(&self, text: &str) -> io::Result<()> {
        let size = tcgetwinsize(io::stdout())?;
        let (rows, columns) = (usize::from(size.ws_row).max(2), usize::from(size.ws_col).max(2));
        let mut screen = "\x1b[H".to_owned();
        for line in text.lines().take(rows - 1) {
            screen.extend(line.chars().take(columns));
            // Clears the rest of the line. Raw mode does not return the carriage.
            screen.push_str("\x1b[K\r\n");
        }
        screen.push_str("\x1b[J");
        let mut out = io::stdout().lock();
        out.write_all(screen.as_bytes())?;
        out.flush()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = io::stdout().write_all(b"\x1b[?25h\x1b[?1049l");
        let _ = io::stdout().flush();
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// The pressed keys. The thread ends with the process.
fn keys() -> Receiver<u8> {
    let (sender, keys) = channel();
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes().map_while(Result::ok) {
            if sender.send(key).is_err() {
                return;
            }
        }
    });
    keys
}

/// Waits for the interval. Returns whether a key ends the command.
fn quits(keys: &Receiver<u8>, interval: Duration) -> bool {
    // Ctrl-C and Ctrl-D in raw mode.
    const QUIT: [u8; 4] = [b'q', b'Q', 3, 4];
    let end = Instant::now() + interval;
    loop {
        match keys.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(key) if QUIT.contains(&key) => return true,
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
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
        assert_eq!(apis_table(&document()), expected);
    }

    #[test]
    fn table_of_rates_divides_by_the_seconds_of_the_window() {
        let table = top_table(&document(), By::Api, 60, true);
        assert!(table.starts_with("Rates of the last 60 s, by api.\n\n"), "{table}");
        assert!(top_table(&document(), By::Api, 60, false).contains("Press q to quit."));
        assert!(
            table.contains(
                "\nshop/orders   10.0         0.50 %   1.0         1.23 ms   1.50 s   0.20 ms       100.0\n"
            ),
            "{table}"
        );
        assert!(table.contains("\n(none) "), "{table}");
    }
}
