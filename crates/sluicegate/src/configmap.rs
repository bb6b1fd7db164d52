//! The ConfigMap of global settings: options for limits and TLS by their names, and the equivalent keys of ingress-nginx and
//! of the NGINX Ingress Controller.

use std::sync::Arc;

use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches as _};
use sluicegate_control::{Globals, ReadGlobals};

use crate::settings::SettingsArgs;
use crate::tls::TlsArgs;

/// The options that a ConfigMap can give.
#[derive(Clone, Debug, Args)]
struct Options {
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    tls: TlsArgs,
}

/// Options that cannot change while the process runs.
const FIXED: [&str; 4] = ["listen-https", "default-tls-certificate", "otlp-ca", "tls-ticket-secret"];

/// The meaning of a key of another controller's ConfigMap.
#[derive(Clone, Copy, Debug)]
enum Means {
    /// This option, with the same value.
    Option(&'static str),
    /// This option. A number without a unit is in seconds, as in nginx.
    Time(&'static str),
    /// This option. The key separates values by spaces.
    List(&'static str),
    /// This option, with this value, for a `true`. Other values are ignored.
    Choice(&'static str, &'static str),
    /// No option. The text names the alternative.
    Otherwise(&'static str),
}

use Means::{Choice, List, Option as Same, Otherwise, Time};

/// Keys of ingress-nginx, of the NGINX Ingress Controller and of earlier versions of Sluicegate.
const FOREIGN: &[(&str, Means)] = &[
    ("brotli-level", Same("compression-br-level")),
    ("brotli-min-length", Same("compression-min-length")),
    ("brotli-types", List("compression-types")),
    ("client-body-timeout", Time("request-body-timeout")),
    ("client-header-timeout", Time("request-head-timeout")),
    ("client-max-body-size", Same("max-request-body")),
    ("enable-brotli", Otherwise("write compression: br,gzip")),
    ("enable-opentelemetry", Otherwise("set otlp-endpoint to send traces")),
    ("enable-real-ip", Otherwise("write the trusted networks as trusted-proxies")),
    ("enable-underscores-in-headers", Same("underscores-in-headers")),
    ("generate-request-id", Otherwise("every request has an X-Request-ID")),
    ("gzip-level", Same("compression-gzip-level")),
    ("gzip-min-length", Same("compression-min-length")),
    ("gzip-types", List("compression-types")),
    ("hsts", Otherwise("set hsts-max-age to send the header")),
    ("keep-alive", Time("client-idle-timeout")),
    ("keep-alive-requests", Same("max-requests-per-connection")),
    ("keepalive", Same("pool-size")),
    ("keepalive-requests", Same("max-requests-per-connection")),
    ("keepalive-timeout", Time("client-idle-timeout")),
    ("large-client-header-buffers", Otherwise("write the limit as max-request-head")),
    ("load-balance", Otherwise("write the annotation sluicegate.dev/load-balance on the Service")),
    ("max-worker-connections", Same("max-connections-per-worker")),
    ("max-worker-open-files", Otherwise("a process may open files up to its hard limit")),
    ("otel-sampler-ratio", Otherwise("write the ratio times 100 as trace-sample-percent")),
    ("otel-service-name", Same("trace-service-name")),
    ("otlp-collector-host", Otherwise("write otlp-endpoint: http://HOST:4318, for OTLP over HTTP")),
    ("otlp-collector-port", Otherwise("write otlp-endpoint: http://HOST:4318, for OTLP over HTTP")),
    ("proxy-body-size", Same("max-request-body")),
    ("proxy-buffering", Otherwise("the gateway always streams responses, with bounded buffers")),
    ("proxy-connect-timeout", Time("connect-timeout")),
    ("proxy-next-upstream", Otherwise("the gateway always retries requests that are safe to repeat")),
    ("proxy-next-upstream-tries", Same("attempts")),
    ("proxy-protocol", Otherwise("write the networks of the load balancers as proxy-protocol-peers")),
    ("proxy-read-timeout", Time("response-timeout")),
    ("proxy-real-ip-cidr", Same("trusted-proxies")),
    (
        "proxy-request-buffering",
        Otherwise("the gateway always streams requests; replay-buffer sets what it stores for retries"),
    ),
    ("proxy-send-timeout", Time("upstream-idle-timeout")),
    ("set-real-ip-from", Same("trusted-proxies")),
    ("ssl-protocols", Otherwise("write tls-min-version: 1.2 or 1.3")),
    ("ssl-reject-handshake", Choice("tls-unknown-names", "refuse")),
    ("trusted-peers", Otherwise("write the trusted networks as trusted-proxies")),
    ("upstream-keepalive-connections", Same("pool-size")),
    ("upstream-keepalive-requests", Otherwise("connections to endpoints have no limit of requests")),
    ("upstream-keepalive-timeout", Time("pool-idle-timeout")),
    ("use-forwarded-headers", Otherwise("write the trusted networks as trusted-proxies")),
    ("use-gzip", Choice("compression", "gzip")),
    ("use-http2", Otherwise("HTTP/2 is always on for clients that ask for it")),
    ("use-proxy-protocol", Otherwise("write the networks of the load balancers as proxy-protocol-peers")),
    ("worker-connections", Same("max-connections-per-worker")),
    ("worker-cpu-affinity", Otherwise("set --workers on the command line")),
    ("worker-processes", Otherwise("set --workers on the command line")),
    ("worker-rlimit-nofile", Otherwise("a process may open files up to its hard limit")),
    ("worker-shutdown-timeout", Otherwise("set --shutdown-timeout on the command line")),
];

/// The reader of the ConfigMap. Its values take precedence over the command line.
pub(crate) fn reader(settings: SettingsArgs, tls: TlsArgs) -> ReadGlobals {
    let base = Options { settings, tls };
    ReadGlobals(Arc::new(move |values| read(&base, values)))
}

fn read(base: &Options, values: &[(&str, &str)]) -> Globals {
    let mut faults = Vec::new();
    let mut line = Vec::new();
    for (key, value) in values {
        match option(key, value).and_then(|option| parse(std::slice::from_ref(&option)).map(|_| option)) {
            Ok(option) => line.push(option),
            Err(fault) => faults.push((format!("data[{key}]"), fault)),
        }
    }
    let mut options = base.clone();
    // Each key was valid alone, so the remaining fault is two keys for one option.
    let updated = parse(&line)
        .and_then(|matches| options.update_from_arg_matches(&matches).map_err(|error| in_short(&error)));
    if let Err(fault) = updated {
        faults.push(("data".to_owned(), format!("{fault}: no key of the ConfigMap is used, and the settings of the command line apply; remove one of the two keys")));
        options = base.clone();
    }
    Globals {
        settings: sluicegate_model::Settings { tls: options.tls.settings(), ..options.settings.settings() },
        ssl_redirect: options.tls.ssl_redirect(),
        faults,
    }
}

/// A key and its value as an option of the command line.
fn option(key: &str, value: &str) -> Result<String, String> {
    let value = value.trim();
    let seconds = || match value.parse::<u64>() {
        Ok(number) => format!("{number}s"),
        Err(_) => value.to_owned(),
    };
    if let Ok(place) = FOREIGN.binary_search_by_key(&key, |(name, _)| name) {
        return match FOREIGN[place].1 {
            Same(option) => Ok(format!("--{option}={value}")),
            Time(option) => Ok(format!("--{option}={}", seconds())),
            List(option) => {
                Ok(format!("--{option}={}", value.split_whitespace().collect::<Vec<_>>().join(",")))
            }
            Choice(option, choice) if value == "true" => Ok(format!("--{option}={choice}")),
            Choice(option, choice) => Err(format!("is ignored: write {option}: {choice} to turn it on")),
            Otherwise(instead) => Err(format!("is ignored: {instead}")),
        };
    }
    if FIXED.contains(&key) {
        return Err(format!("is ignored: set --{key} on the command line"));
    }
    let is_option = command().get_arguments().any(|option| option.get_long() == Some(key));
    let is_time = key.ends_with("-timeout") || key == "hsts-max-age";
    match is_option {
        true if is_time => Ok(format!("--{key}={}", seconds())),
        true => Ok(format!("--{key}={value}")),
        false => Err(
            "is unknown and ignored: write the name of an option for clients, endpoints, failures, compression, \
                      traces or TLS from sluicegate serve --help"
                .to_owned(),
        ),
    }
}

/// The options without their defaults, so that only the given options change.
fn command() -> Command {
    Options::augment_args_for_update(Command::new("configmap").no_binary_name(true).disable_help_flag(true))
        .mut_args(|option| option.default_value(Resettable::Reset).hide(true))
}

fn parse(line: &[String]) -> Result<clap::ArgMatches, String> {
    command().try_get_matches_from(line).map_err(|error| in_short(&error))
}

/// The first line of clap's message, which names the option and the fault.
fn in_short(error: &clap::Error) -> String {
    let text = error.render().to_string();
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The global settings of a ConfigMap with these values, merged with these options of the command line.
    fn globals(options: &[&str], values: &[(&str, &str)]) -> Globals {
        let line = ["sluicegate", "serve", "--manifests", "x"].iter().chain(options);
        let Command::Serve(args) = Cli::try_parse_from(line).expect("options").command else {
            unreachable!("it is serve")
        };
        (reader(args.settings.clone(), args.tls.clone()).0)(values)
    }

    #[test]
    fn ingress_nginx_configmap_keys_are_sorted_and_map_to_existing_options() {
        assert!(FOREIGN.is_sorted_by_key(|(key, _)| *key));
        let command = command();
        for (key, means) in FOREIGN {
            let (Same(option) | Time(option) | List(option) | Choice(option, _)) = means else { continue };
            assert!(command.get_arguments().any(|known| known.get_long() == Some(option)), "{key}: {option}");
        }
    }

    #[test]
    fn configmap_overrides_only_options_for_which_it_has_a_key() {
        let options =
            ["--attempts=5", "--response-timeout=7s", "--ssl-redirect=false", "--tls-min-version=1.3"];
        let globals =
            globals(&options, &[("attempts", "2"), ("keep-alive", "30"), ("max-request-head", "64k")]);
        assert!(globals.faults.is_empty(), "{:?}", globals.faults);
        assert_eq!(globals.settings.resilience.attempts, 2);
        assert_eq!(globals.settings.timeouts.response_head.as_secs(), 7);
        assert_eq!(globals.settings.timeouts.client_idle.as_secs(), 30);
        assert_eq!(globals.settings.limits.request_head, 64 * 1024);
        assert_eq!(globals.settings.tls.min_version, sluicegate_model::tls::TlsVersion::Tls13);
        assert!(!globals.ssl_redirect);
    }

    #[test]
    fn configmap_keys_of_the_published_study_are_applied_or_reported() {
        let nginx = [
            ("worker-connections", "10000"),
            ("worker-rlimit-nofile", "10240"),
            ("keepalive", "100"),
            ("keepalive-requests", "100000000"),
        ];
        let community = [
            ("max-worker-connections", "10000"),
            ("max-worker-open-files", "10204"),
            ("upstream-keepalive-connections", "100"),
            ("keep-alive-requests", "100000000"),
        ];
        for values in [nginx, community] {
            let globals = globals(&[], &values);
            assert_eq!(globals.settings.limits.connections_per_worker, 10_000);
            assert_eq!(globals.settings.limits.pool_per_endpoint, 100);
            assert_eq!(globals.settings.limits.requests_per_connection, Some(100_000_000));
            let [(field, fault)] = &*globals.faults else { panic!("{:?}", globals.faults) };
            assert!(field.contains("file") && fault.contains("hard limit"), "{field}: {fault}");
        }
    }

    #[test]
    fn invalid_configmap_keys_are_reported_and_other_keys_apply() {
        let values = [("attempts", "0"), ("atempts", "2"), ("listen-https", ":443"), ("pool-size", "7")];
        let globals = globals(&[], &values);
        assert_eq!(globals.settings.limits.pool_per_endpoint, 7);
        assert_eq!(globals.settings.resilience.attempts, 3);
        let fields: Vec<&str> = globals.faults.iter().map(|(field, _)| &**field).collect();
        assert_eq!(fields, ["data[attempts]", "data[atempts]", "data[listen-https]"]);
        assert!(globals.faults[0].1.contains("invalid value '0'"), "{:?}", globals.faults[0]);
    }

    #[test]
    fn former_configmap_key_is_ignored_and_the_error_names_the_new_key() {
        let globals = globals(&[], &[("trusted-peers", "10.0.0.0/8")]);
        assert!(globals.settings.trusted_proxies.is_empty());
        let [(field, fault)] = &*globals.faults else { panic!("{:?}", globals.faults) };
        assert_eq!(field, "data[trusted-peers]");
        assert_eq!(fault, "is ignored: write the trusted networks as trusted-proxies");
    }

    #[test]
    fn configmap_overrides_lists_and_switches_of_the_command_line() {
        let options = ["--trusted-proxies=10.0.0.0/8", "--underscores-in-headers"];
        let values = [
            ("proxy-real-ip-cidr", "192.0.2.0/24,198.51.100.0/24"),
            ("enable-underscores-in-headers", "false"),
            ("gzip-types", "text/html text/css"),
            ("use-gzip", "true"),
        ];
        let globals = globals(&options, &values);
        assert!(globals.faults.is_empty(), "{:?}", globals.faults);
        assert_eq!(globals.settings.trusted_proxies.len(), 2);
        assert!(!globals.settings.underscores_in_headers);
        assert_eq!(globals.settings.compression.types.len(), 2);
    }
}
