//! The flags of ingress-nginx that Sluicegate does not have, each with what to write instead. Flags with the same name and
//! meaning are options (see `cli` and `source`).

use std::ffi::OsString;

const APPLIED: &str = "Sluicegate applies each change at once. Remove the option";
const METRICS: &str = "The metrics are always at /metrics of --admin. Remove the option";
const HEALTH: &str = "The admin interface (--admin) has /healthz and /readyz. Remove the option";
const PROFILER: &str = "Sluicegate has no profiler. Remove the option";
const PORT: &str = "Sluicegate needs no such port. Remove the option";
const LOG: &str = "Write --log debug for more lines, or --log warn for fewer";
const CLIENT: &str = "Write a kubeconfig with the address and the CA certificate of the API server, and name it with --kubeconfig";
const GEO: &str =
    "Sluicegate has no database of places. Let a proxy in front of the gateway add the place as a header";
const BUCKETS: &str = "The buckets of the metrics are fixed. Remove the option";

/// The flags, by name, with a sentence about each.
const REFUSED: &[(&str, &str)] = &[
    ("alsologtostderr", LOG),
    ("apiserver-host", CLIENT),
    ("bucket-factor", BUCKETS),
    ("certificate-authority", CLIENT),
    ("deep-inspect", "Sluicegate always parses each value. Remove the option"),
    ("default-server-port", PORT),
    (
        "disable-catch-all",
        "Sluicegate serves Ingresses with a default backend. Remove their default backend in place of the option",
    ),
    ("disable-full-test", "Sluicegate always checks each object alone. Remove the option"),
    (
        "disable-leader-election",
        "Write --no-status in place of the option: without a Lease, the gateway writes no status",
    ),
    (
        "disable-svc-external-name",
        "Sluicegate serves Services of type ExternalName. Forbid these Services with a ValidatingAdmissionPolicy",
    ),
    ("disable-sync-events", "Sluicegate writes Events only for problems. Remove the option"),
    ("dynamic-configuration-retries", APPLIED),
    ("election-ttl", "The duration of the Lease is fixed. Remove the option"),
    ("enable-annotation-validation", "Sluicegate always validates annotations. Remove the option"),
    ("enable-metrics", METRICS),
    ("enable-ssl-chain-completion", "Write the intermediate certificates into tls.crt of the Secret"),
    (
        "enable-ssl-passthrough",
        "TLS passthrough needs no option: the annotation ssl-passthrough is enough. Remove the option",
    ),
    ("enable-topology-aware-routing", "Sluicegate uses all ready endpoints. Remove the option"),
    ("exclude-socket-metrics", METRICS),
    ("health-check-path", HEALTH),
    ("health-check-timeout", HEALTH),
    ("healthz-host", HEALTH),
    ("healthz-port", HEALTH),
    ("http-port", "Write --listen :PORT in place of --http-port PORT"),
    ("https-port", "Write --listen-https :PORT in place of --https-port PORT"),
    ("ingress-class-by-name", "Write the controller of the IngressClass as --controller-class"),
    ("internal-logger-address", PORT),
    ("length-buckets", BUCKETS),
    ("log_backtrace_at", LOG),
    ("log_dir", LOG),
    ("log_file", LOG),
    ("logtostderr", LOG),
    ("max-buckets", BUCKETS),
    ("maxmind-edition-ids", GEO),
    ("maxmind-license-key", GEO),
    ("maxmind-mirror", GEO),
    ("maxmind-retries-count", GEO),
    ("maxmind-retries-timeout", GEO),
    ("metrics-per-host", METRICS),
    ("metrics-per-undefined-host", METRICS),
    ("monitor-max-batch-size", METRICS),
    ("post-shutdown-grace-period", "The process ends when it has drained. Remove the option"),
    ("profiler-address", PROFILER),
    ("profiler-port", PROFILER),
    ("profiling", PROFILER),
    (
        "report-node-internal-ip-address",
        "Write --publish-node-addresses, which uses internal addresses of nodes without external addresses",
    ),
    ("report-status-classes", METRICS),
    (
        "shutdown-grace-period",
        "Write --shutdown-grace with a unit, such as 10s, in place of --shutdown-grace-period 10",
    ),
    ("size-buckets", BUCKETS),
    ("ssl-passthrough-proxy-port", PORT),
    ("status-port", PORT),
    ("status-update-interval", APPLIED),
    ("stderrthreshold", LOG),
    ("stream-port", PORT),
    ("sync-period", APPLIED),
    ("sync-rate-limit", APPLIED),
    ("time-buckets", BUCKETS),
    (
        "update-status",
        "Write --no-status in place of --update-status=false, and nothing in place of --update-status=true",
    ),
    ("update-status-on-shutdown", "The status of Ingresses stays when the gateway ends. Remove the option"),
    ("v", LOG),
    ("vmodule", LOG),
    ("watch-namespace-selector", "Write each namespace as --watch-namespace"),
];

/// The subcommands that take the place of ingress-nginx.
const COMMANDS: [&str; 4] = ["serve", "control-plane", "data-plane", "check"];

/// The error about the first flag of ingress-nginx that Sluicegate does not have.
pub(crate) fn refusal(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let arguments = arguments.into_iter().skip(1).map_while(|argument| argument.into_string().ok());
    let arguments: Vec<String> = arguments.take_while(|argument| argument != "--").collect();
    if !arguments.iter().any(|argument| COMMANDS.contains(&&**argument)) {
        return None;
    }
    arguments.iter().find_map(|argument| {
        let name = argument.strip_prefix('-')?;
        let name = name.strip_prefix('-').unwrap_or(name);
        let name = name.split_once('=').map_or(name, |(name, _)| name);
        let place = REFUSED.binary_search_by_key(&name, |(known, _)| known).ok()?;
        Some(format!("--{name}: {}", REFUSED[place].1))
    })
}

/// The hint for a refused flag, by its name without dashes.
pub(crate) fn instead(name: &str) -> Option<&'static str> {
    let place = REFUSED.binary_search_by_key(&name, |(known, _)| known).ok()?;
    Some(REFUSED[place].1)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use clap::{CommandFactory as _, Parser as _};

    use super::*;
    use crate::cli::Cli;

    /// The flags of ingress-nginx with the same name and meaning.
    const SAME: &[&str] = &[
        "annotations-prefix",
        "configmap",
        "controller-class",
        "default-backend-service",
        "default-ssl-certificate",
        "election-id",
        "ingress-class",
        "kubeconfig",
        "publish-service",
        "publish-status-address",
        "tcp-services-configmap",
        "udp-services-configmap",
        "watch-ingress-without-class",
        "watch-namespace",
    ];

    fn refused(line: &str) -> Option<String> {
        refusal(std::iter::once("sluicegate").chain(line.split(' ')).map(OsString::from))
    }

    #[test]
    fn flag_of_ingress_nginx_that_sluicegate_does_not_have_is_refused_with_a_hint() {
        assert!(REFUSED.is_sorted_by(|(one, _), (other, _)| one < other));
        let expected = "--sync-rate-limit: Sluicegate applies each change at once. Remove the option";
        assert_eq!(refused("serve --kubernetes --sync-rate-limit=0.3").as_deref(), Some(expected));
        for line in ["serve --v=2", "serve -v=2", "control-plane --http-port 80", "check x --profiling=false"]
        {
            assert!(refused(line).is_some(), "{line}");
        }
        for line in
            ["serve --manifests v", "serve -- --v", "migrate values --v", "serve --validating-webhook=:8443"]
        {
            assert_eq!(refused(line), None, "{line}");
        }
    }

    #[test]
    fn no_option_of_sluicegate_is_refused() {
        let command = Cli::command();
        for name in COMMANDS {
            let of_command = command.find_subcommand(name).expect(name);
            for option in of_command.get_arguments().filter_map(|option| option.get_long()) {
                assert_eq!(instead(option), None, "{name} --{option}");
            }
        }
    }

    #[test]
    fn flags_of_ingress_nginx_with_the_same_meaning_are_options() {
        let line = "sluicegate serve --kubernetes --ingress-nginx-compatibility --annotations-prefix=nginx.example \
                    --configmap=edge/nginx --controller-class=k8s.io/internal --default-backend-service=edge/errors \
                    --default-ssl-certificate=edge/tls --election-id=leader --ingress-class=internal --kubeconfig=x \
                    --tcp-services-configmap=edge/tcp --udp-services-configmap=edge/udp \
                    --publish-status-address=192.0.2.1,lb.example --watch-ingress-without-class=true --watch-namespace=shop";
        Cli::try_parse_from(line.split_whitespace()).expect("valid");
        let other =
            "sluicegate serve --kubernetes --publish-service=edge/nginx --watch-ingress-without-class";
        Cli::try_parse_from(other.split_whitespace()).expect("valid");
    }

    #[test]
    fn reference_page_matches_the_table_of_flags() {
        let mut page = "\
<!-- Generated from crates/sluicegate/src/flags.rs. Do not edit this file: run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --bins reference_page`. -->

# Flags of ingress-nginx

These flags have the same name and meaning in `sluicegate serve`:

"
        .to_owned();
        for name in SAME {
            let _ = writeln!(page, "- `--{name}`");
        }
        page.push_str("\nSluicegate does not start with one of these flags, and its error says what to write instead:\n\n| flag | instead |\n|---|---|\n");
        for (name, instead) in REFUSED {
            let _ = writeln!(page, "| `--{name}` | {instead}. |");
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/migrate/ingress-nginx-flags.md");
        if std::env::var_os("SLUICEGATE_UPDATE_PAGES").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(text == page, "run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --bins reference_page`");
    }
}
