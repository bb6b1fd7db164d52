//! The options of `sluicegate-lab backend`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use hyper::header::HeaderValue;

/// The longest time that makes sense in this program.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The options.
#[derive(Clone, Debug, Args)]
#[command(
    disable_version_flag = true,
    after_help = "The URL sets the response: ?s=SIZE is the length of the body in bytes (with k or m, up to 1024m), ?t=MS a delay in \
                  milliseconds (up to 600000), ?r=STATUS the status (200 to 599); join them by &. /healthz responds with 200. \
                  The backend reads a request body to its end before it responds, and responds with 413 to a body over 16 MiB. \
                  It responds to a gRPC call (over HTTP/2) with one message and the status 0, see --grpc-size.\n\
                  Times are written as 500ms, 12s or 2m.\n\
                  Signals: SIGTERM does what --exit says, SIGINT ends at once. After SIGUSR1 the backend refuses connects and \
                  resets its connections; after SIGUSR2 it accepts again at the same addresses.\n\
                  Exit codes: 0 after SIGTERM and SIGINT; 2 for invalid options, and for addresses and files that cannot be \
                  opened.\n\
                  Example: sluicegate-lab backend --listen 127.0.0.1:9000 --name web-1 & curl '127.0.0.1:9000/?s=1k&t=5'"
)]
pub(crate) struct BackendArgs {
    /// The address for HTTP/1.1, and for HTTP/2 by prior knowledge: an IP address and a port, such as 127.0.0.1:9000,
    /// or localhost:9000. Port 0 is a free port. May be given several times.
    #[arg(long, value_name = "ADDRESS", value_parser = address, default_value = "127.0.0.1:9000")]
    pub(super) listen: Vec<SocketAddr>,
    /// The pod's name in responses: 1 to 253 letters, digits, dots, hyphens and underscores.
    #[arg(long, value_name = "NAME", value_parser = name, default_value = "backend")]
    pub(super) name: String,
    /// The time before the backend listens. Until then, connects are refused. 0s to 24h.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "0s")]
    pub(super) start_up: Duration,
    /// The effect of SIGTERM.
    #[arg(long, value_name = "STYLE", value_enum, default_value = "at-once")]
    pub(super) exit: Exit,
    /// With --exit drain, the time that requests in flight may take before the backend cuts them off. 0s to 24h.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "30s")]
    pub(super) drain_timeout: Duration,
    /// The time after which the backend closes a connection without requests, and up to a quarter longer. The body of a
    /// request may take as long. 100ms to 24h.
    #[arg(long, value_name = "TIME", value_parser = idle, default_value = "10m")]
    pub(super) idle_timeout: Duration,
    /// The file to which the backend appends the x-lab-id of each POST and PATCH, one line each. The backend writes the
    /// line after the end of the request, before its response. [default: no journal]
    #[arg(long, value_name = "FILE")]
    pub(super) journal: Option<PathBuf>,
    /// The length of the string in the response message of each gRPC call, in bytes. 0 to 4194304.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(..=4 << 20), default_value_t = 1024)]
    pub(super) grpc_size: u32,
    /// Do not print a line when the backend serves.
    #[arg(long)]
    pub(super) quiet: bool,
}

/// The effect of SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Exit {
    /// Exit at once, and cut all connections.
    AtOnce,
    /// Stop listening, finish the requests in flight, close each connection after them, and exit.
    Drain,
    /// Keep the listener and the connections, but send no further responses, until SIGKILL or SIGINT.
    Hang,
    /// Refuse connects and reset the connections, but keep running, until SIGKILL or SIGINT.
    Refuse,
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let of_localhost = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    match of_localhost {
        Some(port) => Ok((Ipv4Addr::LOCALHOST, port).into()),
        None => text.parse().map_err(|_| {
            "not an IP address and a port up to 65535; write it as 127.0.0.1:9000, [::1]:9000 or localhost:9000"
                .to_owned()
        }),
    }
}

fn name(text: &str) -> Result<String, String> {
    let is_good = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if !(1..=253).contains(&text.len()) || !text.bytes().all(is_good) {
        return Err("it has to be 1 to 253 letters, digits, dots, hyphens and underscores".to_owned());
    }
    Ok(text.to_owned())
}

fn time(text: &str) -> Result<Duration, String> {
    let time =
        humantime::parse_duration(text).map_err(|error| format!("{error}; write it as 500ms, 12s or 2m"))?;
    if time > LONGEST {
        return Err("it has to be at most 24h".to_owned());
    }
    Ok(time)
}

fn idle(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < Duration::from_millis(100) {
        return Err("it has to be at least 100ms".to_owned());
    }
    Ok(time)
}

impl BackendArgs {
    /// The name as a header carries it.
    pub(super) fn name_for_header(&self) -> HeaderValue {
        // A header may contain every character of a name.
        HeaderValue::from_str(&self.name).unwrap_or(HeaderValue::from_static("backend"))
    }
}
