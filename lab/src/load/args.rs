//! The options of `sluicegate-lab load`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use rustls::crypto::SupportedKxGroup;

use super::http2;
use super::http2::request::Ask;
use super::nanos::Nanos;
use super::plan::{Plan, Protocol};
use super::request::{BODY, ID_HEADER, Method, Posts, Request, Values};
use super::schedule::{Pace, Schedule};
use super::target::Target;
use super::tls::{self, TlsOptions};

/// The longest body of a request, in bytes.
const BODY_MAX: u64 = 1 << 20;

/// The time that wrk2 leaves between the connects of a thread.
const BETWEEN_CONNECTS: Nanos = Nanos::from_millis(5);

/// The report has the latency for each second, or for longer intervals beyond this number of intervals.
const MAX_INTERVALS: u64 = 600;

/// The options, as wrk2 has them and more.
#[derive(Clone, Debug, Args)]
#[command(
    disable_version_flag = true,
    after_help = "Counts and rates may end in k, M or G: -R30k. Times may end in us, ms, s, m or h: --timeout 500ms; without \
                  a unit they are in seconds.\n\
                  Latency is the time from when a request was due to the end of its response. So a stalled server is charged \
                  for every request that was due in that time.\n\
                  Exit codes: 0, also if requests failed; 1 if requests failed and --fail-on-errors is set; 2 for invalid \
                  options; 130 or 143 after Ctrl-C or SIGTERM, with the results until then.\n\
                  Example: sluicegate-lab load -t2 -c100 -d30s -R2000 -L http://127.0.0.1:8080/"
)]
pub(crate) struct LoadArgs {
    /// The URL of the requests: http:// or https://, a host name or IP address, an optional port, and a path with an
    /// optional query.
    #[arg(value_parser = url)]
    url: Target,
    /// The number of threads, each with its own connections. 1 to 1024, and at most the number of connections.
    #[arg(short, long, value_name = "N", value_parser = threads, default_value = "2")]
    threads: u64,
    /// The number of open connections of all threads. 1 to 1M.
    #[arg(short, long, value_name = "N", value_parser = connections, default_value = "10")]
    connections: u64,
    /// The time in which requests are due. 1ms to 1000h. It begins after the time for opening all connections (see
    /// --ramp).
    #[arg(short, long, value_name = "TIME", value_parser = duration, default_value = "10s")]
    duration: Duration,
    /// The requests per second of all connections together, also fractions such as 0.5. More than 0, at most 100M.
    /// [default: a closed loop as in wrk, where each connection sends a request after the last response]
    #[arg(short = 'R', long, value_name = "RATE", value_parser = rate)]
    rate: Option<f64>,
    /// Print the latency distribution and the detailed percentile spectrum.
    #[arg(short = 'L', long)]
    latency: bool,
    /// Also print the distribution of the latency from when requests were sent. That latency hides the effect of a
    /// stalled server on waiting requests.
    #[arg(short = 'U', long = "u_latency", visible_alias = "u-latency")]
    uncorrected: bool,
    /// The timeout of a connect with its TLS handshake, and of a response from when its request was sent. 1ms to 1000h.
    /// After a timeout, the load counts an error and opens another connection. In HTTP/2 it resets the stream and keeps
    /// the connection.
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "2s")]
    timeout: Duration,
    /// A request header, "Name: value"; may be given several times. Host replaces the host of the URL. [default: none]
    #[arg(short = 'H', long = "header", value_name = "HEADER", value_parser = header)]
    headers: Vec<(String, String)>,
    /// A request header that takes its values from a file: "Name: FILE". Each request of a thread has the next line of
    /// the file. All lines have the same length. Not with --h2. [default: none]
    #[arg(long, value_name = "HEADER", value_parser = header, conflicts_with = "h2")]
    header_values: Option<(String, String)>,
    /// A file of paths, each with an optional query, that replace the path of the URL. Each request of a thread has the
    /// next line of the file. All lines have the same length. Not with --h2. [default: none]
    #[arg(long, value_name = "FILE", conflicts_with = "h2")]
    paths: Option<PathBuf>,
    /// The IP address and port to connect to, instead of the URL's. Host, the TLS server name and the name in
    /// certificates stay the URL's. [default: the host and port of the URL]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    connect_to: Option<SocketAddr>,
    /// The file with the CA certificates that verify servers, in PEM. [default: accept every certificate]
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// The percentage of the requests that are a POST with a body, evenly spread. 0 to 100. The journals of
    /// backends show which POSTs a gateway delivered twice, by x-lab-id.
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(..=100), default_value = "0")]
    posts: u64,
    /// The file with the body of POST requests, at most 1 MiB. Not with --h2. [default: a text of 64 bytes]
    #[arg(long, value_name = "FILE", conflicts_with = "h2")]
    body: Option<PathBuf>,
    /// The key exchange groups of TLS in the order of preference, comma separated: X25519MLKEM768, X25519, P-256,
    /// P-384. The server must support one of them. [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = tls::group)]
    curves: Vec<&'static dyn SupportedKxGroup>,
    /// Count responses that do not repeat the request's x-lab-id, or whose body does not have the length in
    /// x-lab-length.
    #[arg(long)]
    verify: bool,
    /// Use HTTP/2: with https:// by ALPN, and with http:// by prior knowledge.
    #[arg(long)]
    h2: bool,
    /// The number of requests in flight on one connection. 1 to 1000. Needs --h2. [default: 1]
    #[arg(short = 'm', long, value_name = "N", value_parser = streams, requires = "h2", conflicts_with = "new_connections")]
    streams: Option<u64>,
    /// Make each request a unary gRPC call with an empty message. A response whose trailers lack grpc-status 0 counts
    /// as wrong. The URL's path is /SERVICE/METHOD. Needs --h2.
    #[arg(long, requires = "h2", conflicts_with = "posts")]
    grpc: bool,
    /// Open a connection for each request when it is due, and close the connection after the response. --connections is
    /// the largest number of connections at once. The latency includes the connect, a full TLS handshake and the
    /// request.
    #[arg(long, conflicts_with = "ramp")]
    new_connections: bool,
    /// Open the connections evenly over this time, before the first request is due. 0 to 1000h. [default: 5ms for each
    /// connection of a thread]
    #[arg(long, value_name = "TIME", value_parser = ramp)]
    ramp: Option<Duration>,
    /// Write the corrected latency distribution to this file, in milliseconds, in the format of HdrHistogram's plotter.
    /// [default: none]
    #[arg(long, value_name = "FILE")]
    pub(super) hgrm: Option<PathBuf>,
    /// Write all results to this file as JSON; - is standard output, instead of the text. [default: none]
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
    /// Exit with 1 after any error: a failed connect, handshake or request, a status other than 2xx, a wrong response,
    /// or a request that was due and not sent.
    #[arg(long)]
    pub(super) fail_on_errors: bool,
}

/// The requested parts of the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts {
    pub(crate) latency: bool,
    pub(crate) uncorrected: bool,
}

impl LoadArgs {
    pub(super) fn parts(&self) -> Parts {
        // As in wrk2, -U includes -L.
        Parts { latency: self.latency || self.uncorrected, uncorrected: self.uncorrected }
    }

    /// The plan that the options make together.
    pub(super) fn plan(&self) -> anyhow::Result<Plan> {
        let (threads, connections) = (self.threads, self.connections);
        ensure!(
            threads <= connections,
            "-t {threads}: there are fewer connections than threads; give -c at least {threads}"
        );
        let address = self.connect_to.map_or_else(|| self.url.resolve(), Ok)?;
        ensure!(self.curves.is_empty() || self.url.is_tls, "--curves is for https:// URLs only");
        ensure!(self.cacert.is_none() || self.url.is_tls, "--cacert is for https:// URLs only");
        let tls = match self.url.is_tls {
            true => Some(TlsOptions::new(&self.url, self.cacert.as_deref(), &self.curves, self.h2)?),
            false => None,
        };
        let [get, post] = self.requests()?;
        let first = match self.ramp {
            _ if self.new_connections => Nanos::ZERO,
            Some(ramp) => ramp.into(),
            None => Nanos(BETWEEN_CONNECTS.0 * connections.div_ceil(threads)),
        };
        let schedule = Schedule {
            connections,
            first,
            end: first + self.duration.into(),
            pace: self.rate.map_or(Pace::Closed, Pace::Rate),
        };
        let seconds = self.duration.as_secs().div_ceil(MAX_INTERVALS).max(1);
        Ok(Plan {
            target: self.url.clone(),
            address,
            tls,
            threads: usize::try_from(threads).context("-t")?,
            schedule,
            timeout: self.timeout.into(),
            get,
            post,
            posts: Posts { percent: if self.grpc { 100 } else { self.posts } },
            protocol: match self.h2 {
                true => Protocol::Http2 {
                    streams: usize::try_from(self.streams.unwrap_or(1)).context("-m")?,
                    is_grpc: self.grpc,
                },
                false => Protocol::Http1,
            },
            is_new_each: self.new_connections,
            interval: Nanos::from_millis(1000 * seconds),
            verify: self.verify,
            run: fastrand::u32(..),
        })
    }

    /// The GET, and the POST.
    fn requests(&self) -> anyhow::Result<[Request; 2]> {
        let methods = [Method::Get, Method::Post];
        if self.h2 {
            let ask = methods.map(|method| if self.grpc { Ask::Call } else { Ask::Plain(method) });
            let [get, post] = ask.map(|ask| http2::request::new(ask, &self.url, &self.headers));
            return Ok([get?, post?]);
        }
        let mut headers = self.headers.clone();
        if self.new_connections {
            headers.push(("Connection".to_owned(), "close".to_owned()));
        }
        let body = self.body.as_deref().map_or_else(|| Ok(BODY.to_vec()), body)?;
        let mut requests = methods.map(|method| Request::new(method, &self.url, &headers, &body));
        if let Some(path) = &self.paths {
            let values = values(path, || format!("--paths {}", path.display()))?;
            requests = requests.map(|request| request.with_paths(&self.url.path, &values));
        }
        if let Some((name, path)) = &self.header_values {
            let values = values(Path::new(path), || format!("--header-values {name}: {path}"))?;
            requests = requests.map(|request| request.with_values(name, &values));
        }
        Ok(requests)
    }
}

/// The body in a file.
fn body(path: &Path) -> anyhow::Result<Vec<u8>> {
    let option = || format!("--body {}", path.display());
    let length = std::fs::metadata(path).with_context(option)?.len();
    ensure!(length <= BODY_MAX, "{}: it has {length} bytes; at most {BODY_MAX} are sent", option());
    std::fs::read(path).with_context(option)
}

/// The lines of a file; `option` names the option in errors.
fn values(path: &Path, option: impl Fn() -> String) -> anyhow::Result<Values> {
    let text = std::fs::read_to_string(path).with_context(&option)?;
    Values::of(&text).map_err(anyhow::Error::msg).with_context(option)
}

fn streams(text: &str) -> Result<u64, String> {
    whole(text, 1000)
}

fn url(text: &str) -> Result<Target, String> {
    text.parse()
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let address: Option<SocketAddr> = text.parse().ok().filter(|address: &SocketAddr| address.port() > 0);
    address.ok_or_else(|| "write it as 127.0.0.1:8443 or [::1]:8443".to_owned())
}

/// A number that may end in k, M or G.
fn scaled(text: &str) -> Result<f64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 1e6),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 1e9),
        _ => (text, 1.0),
    };
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = digits.parse().ok().filter(|_| is_plain);
    Ok(number.ok_or("write it as 100, 2k or 1.5M")? * factor)
}

fn whole(text: &str, most: u64) -> Result<u64, String> {
    let number = scaled(text)?;
    let is_whole = number.fract() == 0.0 && (1.0..=most as f64).contains(&number);
    if is_whole { Ok(number as u64) } else { Err(format!("it has to be a whole number from 1 to {most}")) }
}

fn threads(text: &str) -> Result<u64, String> {
    whole(text, 1024)
}

fn connections(text: &str) -> Result<u64, String> {
    whole(text, 1_000_000)
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = scaled(text)?;
    let is_good = rate > 0.0 && rate <= 100e6;
    if is_good { Ok(rate) } else { Err("it has to be over 0 and at most 100M requests a second".to_owned()) }
}

/// A time of zero or more.
fn ramp(text: &str) -> Result<Duration, String> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (digits, seconds) = unit.unwrap_or((text, 1.0));
    let is_plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number: Option<f64> = digits.parse().ok().filter(|_| is_plain);
    let seconds = number.ok_or("write it as 30s, 500ms or 1.5m")? * seconds;
    if seconds > 3_600_000.0 {
        return Err("it has to be at most 1000h".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = ramp(text)?;
    if duration < Duration::from_millis(1) {
        return Err("it has to be at least 1ms".to_owned());
    }
    Ok(duration)
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write it as \"Name: value\"")?;
    let value = value.trim_matches([' ', '\t']);
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(format!("{name:?} is not the name of a header"));
    }
    if value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        return Err("its value has a control character".to_owned());
    }
    let reserved = [ID_HEADER, "content-length", "transfer-encoding", "upgrade", "expect"];
    if reserved.iter().any(|reserved| name.eq_ignore_ascii_case(reserved)) {
        return Err(format!("{name} cannot be chosen: requests have a body and an id of their own, or none"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_rates_accept_the_suffixes_k_and_m() {
        assert_eq!(connections("1k"), Ok(1000));
        assert_eq!(connections("1.5k"), Ok(1500));
        assert_eq!(rate("30k"), Ok(30_000.0));
        assert_eq!(rate("0.5"), Ok(0.5));
        assert_eq!(rate("2M"), Ok(2e6));
        for text in ["", "0", "-1", "1.5", "k", "x", "1e3", "2M", "inf", "nan"] {
            assert!(connections(text).is_err(), "{text}");
        }
        for text in ["", "0", "0k", "-1", "inf", "nan", "101M", "1e3"] {
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn duration_without_a_unit_is_in_seconds() {
        for (text, millis) in [("2", 2000), ("2s", 2000), ("250ms", 250), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(ramp("0"), Ok(Duration::ZERO));
        for text in ["", "0", "s", "-1s", "1d", "2 s", "500us", "1001h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn header_option_is_parsed_into_name_and_value() {
        assert_eq!(header("Accept:  */* "), Ok(("Accept".to_owned(), "*/*".to_owned())));
        assert_eq!(header("X-Empty:"), Ok(("X-Empty".to_owned(), String::new())));
        for text in ["", "Accept", ": x", "A b: c", "A: b\r\nC: d", "X-Lab-Id: 5", "content-length: 4"] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }
}
