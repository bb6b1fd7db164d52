//! The reference page of the keys of the ConfigMap of ingress-nginx, `docs/migrate/ingress-nginx-configmap.md`, which a test keeps true.

use std::fmt::Write as _;
use std::path::Path;

use sluicegate_control::{ingress_nginx_keys, is_ingress_nginx_key};

use clap::{Arg, Args as _, Command};

use super::table::{FOREIGN, Means, foreign};
use super::{Options, own};
use crate::help::meaning;

/// The keys of ingress-nginx 1.15.
const OF_INGRESS_NGINX: &str = "\
access-log-params access-log-path add-headers allow-backend-server-header allow-cross-namespace-resources
allow-snippet-annotations annotation-value-word-blocklist annotations-risk-level bind-address block-cidrs block-referers
block-user-agents brotli-level brotli-min-length brotli-types client-body-buffer-size client-body-timeout
client-header-buffer-size client-header-timeout compute-full-forwarded-for custom-http-errors debug-connections default-type
denylist-source-range disable-access-log disable-http-access-log disable-ipv6 disable-ipv6-dns disable-proxy-intercept-errors
disable-stream-access-log enable-access-log-for-default-backend enable-aio-write enable-auth-access-log enable-brotli
enable-modsecurity enable-multi-accept enable-ocsp enable-opentelemetry enable-owasp-modsecurity-crs enable-real-ip
enable-serial-reloads enable-syslog enable-underscores-in-headers error-log-level error-log-path force-ssl-redirect
forwarded-for-header generate-request-id global-allowed-response-headers global-auth-always-set-cookie
global-auth-cache-duration global-auth-cache-key global-auth-method global-auth-request-redirect global-auth-response-headers
global-auth-signin global-auth-signin-redirect-param global-auth-snippet global-auth-url grpc-buffer-size-kb gzip-disable
gzip-level gzip-min-length gzip-types hide-headers hsts hsts-include-subdomains hsts-max-age hsts-preload
http-access-log-path http-redirect-code http-snippet http2-max-concurrent-streams http2-max-field-size http2-max-header-size
http2-max-requests ignore-invalid-headers keep-alive keep-alive-requests large-client-header-buffers limit-conn-status-code
limit-conn-zone-variable limit-rate limit-rate-after limit-req-status-code load-balance location-snippet log-format-escape-json
log-format-escape-none log-format-stream log-format-upstream lua-shared-dicts main-snippet map-hash-bucket-size
max-worker-connections max-worker-open-files modsecurity-snippet nginx-status-ipv4-whitelist nginx-status-ipv6-whitelist
no-auth-locations no-tls-redirect-locations opentelemetry-config opentelemetry-operation-name
opentelemetry-trust-incoming-span otel-max-export-batch-size otel-max-queuesize otel-sampler otel-sampler-parent-based
otel-sampler-ratio otel-schedule-delay-millis otel-service-name otlp-collector-host otlp-collector-port plugins
preserve-trailing-slash proxy-add-original-uri-header proxy-body-size proxy-buffer-size proxy-buffering proxy-buffers-number
proxy-busy-buffers-size proxy-connect-timeout proxy-cookie-domain proxy-cookie-path proxy-headers-hash-bucket-size
proxy-headers-hash-max-size proxy-http-version proxy-max-temp-file-size proxy-next-upstream proxy-next-upstream-timeout
proxy-next-upstream-tries proxy-protocol-header-timeout proxy-read-timeout proxy-real-ip-cidr proxy-redirect-from
proxy-redirect-to proxy-request-buffering proxy-send-timeout proxy-set-headers proxy-ssl-location-only
proxy-stream-next-upstream proxy-stream-next-upstream-timeout proxy-stream-next-upstream-tries proxy-stream-responses
proxy-stream-timeout relative-redirects retry-non-idempotent reuse-port server-name-hash-bucket-size
server-name-hash-max-size server-snippet server-tokens service-upstream skip-access-log-urls ssl-buffer-size ssl-ciphers
ssl-dh-param ssl-early-data ssl-ecdh-curve ssl-protocols ssl-redirect ssl-reject-handshake ssl-session-cache
ssl-session-cache-size ssl-session-ticket-key ssl-session-tickets ssl-session-timeout stream-access-log-path stream-snippet
strict-validate-path-type syslog-host syslog-port upstream-keepalive-connections upstream-keepalive-requests
upstream-keepalive-time upstream-keepalive-timeout use-forwarded-headers use-geoip2 use-gzip use-http2 use-proxy-protocol
variables-hash-bucket-size variables-hash-max-size whitelist-source-range worker-cpu-affinity worker-processes
worker-shutdown-timeout";

/// The keys of ingress-nginx that are also names of options.
const SAME_NAME: &[&str] = &["http2-max-concurrent-streams"];

/// The kinds of keys of the process, in the order of the page.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    Option,
    Harmless,
    Otherwise,
}

fn keys() -> impl Iterator<Item = &'static str> {
    OF_INGRESS_NGINX.split_whitespace()
}

/// The part of the page with a key of the process, and the text there.
fn part(key: &str) -> Option<(Part, String)> {
    let sentence = |text: &str| {
        let mut text = text[..1].to_uppercase() + &text[1..];
        if !text.ends_with('.') {
            text.push('.');
        }
        text
    };
    if SAME_NAME.contains(&key) {
        return Some((Part::Option, format!("`--{key}`")));
    }
    let options =
        |names: &[&str]| names.iter().map(|name| format!("`--{name}`")).collect::<Vec<_>>().join(", ");
    Some(match foreign(key)? {
        Means::Option(option) => (Part::Option, options(&[option])),
        Means::Time(names) => (Part::Option, options(names)),
        Means::Types(option) => (Part::Option, format!("{}, with `text/html`", options(&[option]))),
        Means::Choice(option, choice) => (Part::Option, format!("`true`: `--{option} {choice}`")),
        Means::Of(_, text) => (Part::Option, text.to_owned()),
        Means::Is(value, instead) => {
            (Part::Harmless, format!("`{value}` has no effect. For other values: {}", sentence(instead)))
        }
        Means::Harmless(reason) => (Part::Harmless, reason.to_owned()),
        Means::Otherwise(instead) => (Part::Otherwise, sentence(instead)),
    })
}

fn page() -> String {
    let of_ingresses = ingress_nginx_keys();
    let mut page = "\
<!-- Generated from crates/sluicegate/src/configmap/table.rs and crates/control/src/object/nginx. Do not edit this file: run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --lib --bins configmap::page`. -->

# Keys of the ConfigMap of ingress-nginx

`--configmap NAMESPACE/NAME` (chart: `config`) names the ConfigMap. The gateway follows its changes. The log and `sluicegate check` report
each key with a fault and each key without an effect. See [Ingresses of ingress-nginx](ingress-nginx.md).

## Keys for Ingresses

With `--ingress-nginx-compatibility`, these keys apply to all Ingresses of ingress-nginx. An annotation of an Ingress has precedence over
the key of the same name. A fault in a key with a † closes the routes of all Ingresses: they respond with 503.

| key | effect | default |
|---|---|---|
"
    .to_owned();
    for key in of_ingresses.iter().filter(|key| key.instead.is_none()) {
        let mark = if key.restricts { " †" } else { "" };
        let _ = match key.is_annotation {
            true => writeln!(
                page,
                "| `{}`{mark} | The [annotation](ingress-nginx-annotations.md) of Ingresses without it. | {} |",
                key.name, key.default
            ),
            false => writeln!(page, "| `{}`{mark} | {} | {} |", key.name, key.effect, key.default),
        };
    }
    page.push_str("\n## Keys for the whole gateway\n\nEach option is in `sluicegate serve --help`. Options of these names are also keys of the ConfigMap, and have precedence.\n\n| key | option |\n|---|---|\n");
    let mut write = |heading: &str, part_of: Part| {
        page.push_str(heading);
        for key in keys().filter(|key| !is_ingress_nginx_key(key)) {
            if let Some((_, text)) = part(key).filter(|(part, _)| *part == part_of) {
                let _ = writeln!(page, "| `{key}` | {text} |");
            }
        }
    };
    write("", Part::Option);
    write("\n## Keys that need no setting\n\n| key | reason |\n|---|---|\n", Part::Harmless);
    write(
        "\n## Refused keys\n\nThe gateway ignores these keys, and reports what to write instead. A key with a † closes the routes of all Ingresses.\n\n| key | instead |\n|---|---|\n",
        Part::Otherwise,
    );
    for key in &of_ingresses {
        let mark = if key.restricts { " †" } else { "" };
        if let Some(instead) = key.instead {
            let _ = writeln!(page, "| `{}`{mark} | {instead} |", key.name);
        }
    }
    page
}

/// The page of the keys that are options.
fn page_of_options() -> String {
    let mut page = "\
<!-- Generated from crates/sluicegate/src/settings.rs and crates/sluicegate/src/tls.rs. Do not edit this file: run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --lib --bins configmap::page`. -->

# ConfigMap

`--configmap NAMESPACE/NAME` names a ConfigMap with settings of the whole gateway. With the chart, write the keys and their values under `config`.
A key is the name of an option without `--`, and its value has precedence over the option. The gateway follows changes without a restart. The
gateway ignores a key with an unknown name or an invalid value, and applies the other keys. The log, `sluicegate status` and `sluicegate check`
report ignored keys.

The gateway also reads [the keys of ingress-nginx](../migrate/ingress-nginx-configmap.md).
"
    .to_owned();
    let options = Options::augment_args(Command::new("configmap"));
    let is_key = |option: &&Arg| option.get_long().is_some_and(|name| own(name).is_ok());
    let mut heading = None;
    for option in options.get_arguments().filter(is_key) {
        if heading != option.get_help_heading() {
            heading = option.get_help_heading();
            let _ = write!(
                page,
                "\n## {}\n\n| key | meaning |\n|---|---|\n",
                heading.unwrap_or("Other settings")
            );
        }
        let _ = writeln!(page, "| `{}` | {} |", option.get_long().unwrap_or_default(), meaning(option));
    }
    page
}

#[test]
fn reference_pages_match_the_tables_of_keys() {
    for (name, page) in
        [("migrate/ingress-nginx-configmap.md", page()), ("reference/configmap.md", page_of_options())]
    {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
        if std::env::var_os("SLUICEGATE_UPDATE_PAGES").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == page,
            "run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --lib --bins configmap::page`"
        );
    }
}

#[test]
fn every_key_of_ingress_nginx_has_a_meaning() {
    let lacking: Vec<&str> = keys().filter(|key| !is_ingress_nginx_key(key) && part(key).is_none()).collect();
    assert_eq!(lacking, [""; 0]);
    assert!(FOREIGN.iter().all(|(key, _)| !SAME_NAME.contains(key)));
}
