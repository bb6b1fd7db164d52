//! The ConfigMap of global settings: options for limits and TLS by their names, and the equivalent keys of ingress-nginx and
//! of the NGINX Ingress Controller.
//!
//! | module | content |
//! |---|---|
//! | [`table`] | the keys of other controllers |
//! | `page` | the reference page of the keys of ingress-nginx |

use std::borrow::Cow;
use std::sync::Arc;

use clap::builder::Resettable;
use clap::{Args, Command, FromArgMatches as _};
use sluicegate_control::{Globals, ReadGlobals};

use crate::settings::SettingsArgs;
use crate::tls::TlsArgs;
use table::Means;

#[cfg(test)]
mod page;
mod table;

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

/// The reader of the ConfigMap. Its values take precedence over the command line.
pub(crate) fn reader(settings: SettingsArgs, tls: TlsArgs) -> ReadGlobals {
    let base = Options { settings, tls };
    ReadGlobals(Arc::new(move |values| read(&base, values)))
}

/// The reader of a ConfigMap without a command line.
pub(crate) fn reader_of_defaults() -> ReadGlobals {
    let command = Options::augment_args(Command::new("configmap").no_binary_name(true));
    let defaults =
        command.try_get_matches_from([""; 0]).and_then(|matches| Options::from_arg_matches(&matches));
    match defaults {
        Ok(Options { settings, tls }) => reader(settings, tls),
        // Each option has a default.
        Err(_) => ReadGlobals::default(),
    }
}

fn read(base: &Options, values: &[(&str, &str)]) -> Globals {
    let mut faults = Vec::new();
    let mut line: Vec<Setting> = Vec::new();
    // The names of options have precedence over the keys of other controllers.
    let (own, foreign): (Vec<_>, Vec<_>) = values.iter().partition(|(key, _)| table::foreign(key).is_none());
    for (key, value) in own.into_iter().chain(foreign) {
        let settings = settings(key, value.trim()).and_then(|settings| {
            let checked = settings.iter().try_for_each(|setting| parse(&[setting.argument()]).map(drop));
            checked.map(|()| settings).map_err(|fault| format!("{fault}; the key has no effect"))
        });
        let added =
            settings.and_then(|settings| settings.into_iter().try_for_each(|new| add(&mut line, new)));
        if let Err(fault) = added {
            faults.push((format!("data[{key}]"), fault));
        }
    }
    faults.sort_by(|(one, _), (other, _)| one.cmp(other));
    let mut options = base.clone();
    let arguments: Vec<String> = line.iter().map(Setting::argument).collect();
    // Each key was valid alone, so the remaining fault is a key that needs another key.
    let updated = parse(&arguments)
        .and_then(|matches| options.update_from_arg_matches(&matches).map_err(|error| in_short(&error)));
    if let Err(fault) = updated {
        faults.push(("data".to_owned(), format!("{fault}: no key of the ConfigMap is used, and the settings of the command line apply; remove the key")));
        options = base.clone();
    }
    Globals {
        settings: sluicegate_model::Settings { tls: options.tls.settings(), ..options.settings.settings() },
        ssl_redirect: options.tls.ssl_redirect(),
        faults,
    }
}

/// An option with the value of a key.
struct Setting {
    option: Cow<'static, str>,
    value: String,
    /// The key.
    key: String,
}

impl Setting {
    fn argument(&self) -> String {
        format!("--{}={}", self.option, self.value)
    }
}

/// Adds a setting. Some keys of ingress-nginx share an option; of other keys with one option, the first has precedence.
fn add(line: &mut Vec<Setting>, new: Setting) -> Result<(), String> {
    let Some(known) = line.iter_mut().find(|known| known.option == new.option) else {
        line.push(new);
        return Ok(());
    };
    let are_foreign = table::foreign(&known.key).is_some() && table::foreign(&new.key).is_some();
    let number = |text: &str| text.parse::<u64>().unwrap_or(u64::MAX);
    match &*new.option {
        // nginx prefers brotli.
        "compression" if are_foreign => "br,gzip".clone_into(&mut known.value),
        "compression-types" if are_foreign => {
            known.value.push(',');
            known.value.push_str(&new.value);
        }
        "compression-min-length" | "max-requests-per-connection" if are_foreign => {
            if number(&new.value) < number(&known.value) {
                *known = new;
            }
        }
        option => {
            return Err(format!(
                "is ignored: {} sets the option {option} already; remove one of the keys",
                known.key
            ));
        }
    }
    Ok(())
}

/// The options that a key sets.
fn settings(key: &str, value: &str) -> Result<Vec<Setting>, String> {
    let setting =
        |option: &'static str, value| Setting { option: Cow::Borrowed(option), value, key: key.to_owned() };
    let Some(means) = table::foreign(key) else {
        own(key)?;
        let is_time = key.ends_with("-timeout") || key == "hsts-max-age";
        let value = if is_time { table::seconds(value) } else { value.to_owned() };
        return Ok(vec![Setting { option: Cow::Owned(key.to_owned()), value, key: key.to_owned() }]);
    };
    // As in ingress-nginx, a key without a value has no effect.
    if value.is_empty() {
        return Ok(Vec::new());
    }
    match means {
        Means::Option(option) => Ok(vec![setting(option, value.to_owned())]),
        Means::Time(options) => {
            Ok(options.iter().map(|option| setting(option, table::seconds(value))).collect())
        }
        Means::Types(option) => {
            let types = value.split_whitespace().map(|of| if of == "*" { "*/*" } else { of });
            let types: Vec<&str> = std::iter::once("text/html").chain(types).collect();
            Ok(vec![setting(option, types.join(","))])
        }
        Means::Choice(option, choice) => match value {
            "true" => Ok(vec![setting(option, choice.to_owned())]),
            "false" => Ok(Vec::new()),
            other => Err(format!("is ignored: {other:?} is neither \"true\" nor \"false\"")),
        },
        Means::Of(read, _) => {
            Ok(read(value)?.into_iter().map(|(option, value)| setting(option, value)).collect())
        }
        Means::Is(expected, _) if value == expected => Ok(Vec::new()),
        Means::Harmless(_) => Ok(Vec::new()),
        Means::Is(_, instead) | Means::Otherwise(instead) => Err(format!("is ignored: {instead}")),
    }
}

/// Whether an option has the name of a key.
fn own(key: &str) -> Result<(), String> {
    if FIXED.contains(&key) {
        return Err(format!("is ignored: set --{key} on the command line"));
    }
    if command().get_arguments().any(|option| option.get_long() == Some(key)) {
        return Ok(());
    }
    if sluicegate_control::is_ingress_nginx_key(key) {
        return Err(
            "is ignored: the key is for Ingresses of ingress-nginx. Set --ingress-nginx-compatibility"
                .to_owned(),
        );
    }
    Err("is unknown and ignored: write the name of an option for clients, endpoints, failures, compression, \
         traces or TLS from sluicegate serve --help"
        .to_owned())
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
    fn keys_of_other_controllers_are_sorted_and_map_to_existing_options() {
        assert!(table::FOREIGN.is_sorted_by(|(one, _), (other, _)| one < other));
        let command = command();
        let is_option = |name: &str| command.get_arguments().any(|known| known.get_long() == Some(name));
        for (key, means) in table::FOREIGN {
            let options = match means {
                Means::Option(option) | Means::Types(option) | Means::Choice(option, _) => {
                    std::slice::from_ref(option)
                }
                Means::Time(options) => options,
                _ => continue,
            };
            assert!(options.iter().all(|option| is_option(option)), "{key}: {options:?}");
        }
    }

    #[test]
    fn keys_of_ingress_nginx_with_one_option_are_joined() {
        let values = [
            ("brotli-level", "6"),
            ("brotli-min-length", "20"),
            ("brotli-types", "text/css"),
            ("enable-brotli", "true"),
            ("gzip-min-length", "1000"),
            ("gzip-types", "*"),
            ("use-gzip", "true"),
        ];
        let read = globals(&[], &values);
        assert!(read.faults.is_empty(), "{:?}", read.faults);
        let compression = &read.settings.compression;
        assert_eq!(compression.codings.to_string(), "br, gzip");
        assert_eq!((compression.min_length, compression.levels.brotli.get()), (20, 4));
        let types: Vec<String> = compression.types.iter().map(ToString::to_string).collect();
        assert!(types.contains(&"*/*".to_owned()) && types.contains(&"text/css".to_owned()), "{types:?}");
        let gzip = globals(&[], &[("use-gzip", "true")]).settings.compression.codings;
        assert_eq!(gzip.to_string(), "gzip");
    }

    #[test]
    fn second_key_of_an_option_is_ignored_and_the_other_keys_apply() {
        let values =
            [("attempts", "2"), ("keepalive", "5"), ("pool-size", "7"), ("proxy-next-upstream-tries", "9")];
        let globals = globals(&[], &values);
        assert_eq!((globals.settings.resilience.attempts, globals.settings.limits.pool_per_endpoint), (2, 7));
        let faults: Vec<&str> = globals.faults.iter().map(|(field, _)| &**field).collect();
        assert_eq!(faults, ["data[keepalive]", "data[proxy-next-upstream-tries]"]);
        assert!(globals.faults[0].1.contains("pool-size sets the option pool-size already"));
    }

    #[test]
    fn keep_alive_of_zero_closes_connections_after_the_first_response() {
        let requests = |values: &[(&str, &str)]| globals(&[], values).settings.limits.requests_per_connection;
        assert_eq!(requests(&[("keep-alive", "0"), ("keep-alive-requests", "1000")]), Some(1));
        assert_eq!(requests(&[("keep-alive", "75"), ("keep-alive-requests", "1000")]), Some(1000));
        assert_eq!(requests(&[("keep-alive-requests", "0")]), Some(1));
    }

    #[test]
    fn values_of_ingress_nginx_that_the_gateway_always_has_are_no_fault() {
        let faults = |key: &'static str, value: &'static str| globals(&[], &[(key, value)]).faults;
        for (key, value, is_fault) in [
            ("use-http2", "true", false),
            ("use-http2", "false", true),
            ("generate-request-id", "true", false),
            ("worker-processes", "auto", false),
            ("worker-processes", "4", true),
            ("reuse-port", "false", false),
            ("ssl-session-tickets", "false", true),
            ("server-name-hash-max-size", "4096", false),
            ("use-gzip", "false", false),
            ("ssl-protocols", "TLSv1.2 TLSv1.3", false),
            ("ssl-protocols", "TLSv1.1 TLSv1.2", true),
            ("http-snippet", "", false),
            ("http-snippet", "map a b {}", true),
            ("block-cidrs", "10.0.0.0/8", true),
        ] {
            assert_eq!(!faults(key, value).is_empty(), is_fault, "{key}: {value}");
        }
        assert!(faults("block-cidrs", "10.0.0.0/8")[0].1.contains("Set --ingress-nginx-compatibility"));
        let settings =
            globals(&[], &[("proxy-stream-timeout", "600s"), ("ssl-protocols", "TLSv1.3")]).settings;
        assert_eq!(
            (settings.timeouts.tunnel_idle.as_secs(), settings.timeouts.udp_idle.as_secs()),
            (600, 600)
        );
        assert_eq!(settings.tls.min_version, sluicegate_model::tls::TlsVersion::Tls13);
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
        assert_eq!(fields, ["data[atempts]", "data[attempts]", "data[listen-https]"]);
        assert!(globals.faults[1].1.contains("invalid value '0'"), "{:?}", globals.faults[0]);
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
    fn hsts_can_be_set_by_keys_alone() {
        let globals = globals(
            &[],
            &[("hsts-max-age", "86400"), ("hsts-preload", "true"), ("hsts-include-subdomains", "true")],
        );
        assert_eq!(globals.faults, []);
        let hsts = globals.settings.tls.hsts.map(|hsts| hsts.to_string());
        assert_eq!(hsts.as_deref(), Some("max-age=86400; includeSubDomains; preload"));
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
        let types: Vec<_> = globals.settings.compression.types.iter().map(ToString::to_string).collect();
        assert_eq!(types, ["text/html", "text/html", "text/css"]);
    }
}
