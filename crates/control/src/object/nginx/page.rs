//! The reference page of the annotations of ingress-nginx, `docs/migrate/ingress-nginx-annotations.md`, which a test keeps true.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use super::{GROUPS, Meaning, Row, row, rows};

/// The annotations of ingress-nginx 1.15.
const OF_INGRESS_NGINX: [&str; 138] = [
    "affinity",
    "affinity-canary-behavior",
    "affinity-mode",
    "allowlist-source-range",
    "app-root",
    "auth-always-set-cookie",
    "auth-cache-duration",
    "auth-cache-key",
    "auth-keepalive",
    "auth-keepalive-requests",
    "auth-keepalive-share-vars",
    "auth-keepalive-timeout",
    "auth-method",
    "auth-proxy-set-headers",
    "auth-realm",
    "auth-request-redirect",
    "auth-response-headers",
    "auth-secret",
    "auth-secret-type",
    "auth-signin",
    "auth-signin-redirect-param",
    "auth-snippet",
    "auth-tls-error-page",
    "auth-tls-match-cn",
    "auth-tls-pass-certificate-to-upstream",
    "auth-tls-secret",
    "auth-tls-verify-client",
    "auth-tls-verify-depth",
    "auth-type",
    "auth-url",
    "backend-protocol",
    "canary",
    "canary-by-cookie",
    "canary-by-header",
    "canary-by-header-pattern",
    "canary-by-header-value",
    "canary-weight",
    "canary-weight-total",
    "client-body-buffer-size",
    "configuration-snippet",
    "connection-proxy-header",
    "cors-allow-credentials",
    "cors-allow-headers",
    "cors-allow-methods",
    "cors-allow-origin",
    "cors-expose-headers",
    "cors-max-age",
    "custom-headers",
    "custom-http-errors",
    "default-backend",
    "denylist-source-range",
    "disable-proxy-intercept-errors",
    "enable-access-log",
    "enable-cors",
    "enable-global-auth",
    "enable-modsecurity",
    "enable-opentelemetry",
    "enable-owasp-core-rules",
    "enable-rewrite-log",
    "fastcgi-index",
    "fastcgi-params-configmap",
    "force-ssl-redirect",
    "from-to-www-redirect",
    "http2-push-preload",
    "limit-allowlist",
    "limit-burst-multiplier",
    "limit-connections",
    "limit-rate",
    "limit-rate-after",
    "limit-rpm",
    "limit-rps",
    "limit-whitelist",
    "load-balance",
    "mirror-host",
    "mirror-request-body",
    "mirror-target",
    "modsecurity-snippet",
    "modsecurity-transaction-id",
    "opentelemetry-operation-name",
    "opentelemetry-trust-incoming-span",
    "permanent-redirect",
    "permanent-redirect-code",
    "preserve-trailing-slash",
    "proxy-body-size",
    "proxy-buffer-size",
    "proxy-buffering",
    "proxy-buffers-number",
    "proxy-busy-buffers-size",
    "proxy-connect-timeout",
    "proxy-cookie-domain",
    "proxy-cookie-path",
    "proxy-http-version",
    "proxy-max-temp-file-size",
    "proxy-next-upstream",
    "proxy-next-upstream-timeout",
    "proxy-next-upstream-tries",
    "proxy-read-timeout",
    "proxy-redirect-from",
    "proxy-redirect-to",
    "proxy-request-buffering",
    "proxy-send-timeout",
    "proxy-ssl-ciphers",
    "proxy-ssl-name",
    "proxy-ssl-protocols",
    "proxy-ssl-secret",
    "proxy-ssl-server-name",
    "proxy-ssl-verify",
    "proxy-ssl-verify-depth",
    "relative-redirects",
    "rewrite-target",
    "satisfy",
    "server-alias",
    "server-snippet",
    "service-upstream",
    "session-cookie-change-on-failure",
    "session-cookie-conditional-samesite-none",
    "session-cookie-domain",
    "session-cookie-expires",
    "session-cookie-max-age",
    "session-cookie-name",
    "session-cookie-path",
    "session-cookie-samesite",
    "session-cookie-secure",
    "ssl-ciphers",
    "ssl-passthrough",
    "ssl-prefer-server-ciphers",
    "ssl-redirect",
    "stream-snippet",
    "temporal-redirect",
    "temporal-redirect-code",
    "upstream-hash-by",
    "upstream-hash-by-subset",
    "upstream-hash-by-subset-size",
    "upstream-vhost",
    "use-port-in-redirects",
    "use-regex",
    "whitelist-source-range",
    "x-forwarded-prefix",
];

/// The folders with the tests of annotations.
const TESTS: [&str; 4] = [
    "crates/control/src/translate/tests/nginx",
    "crates/control/src/object/nginx",
    "crates/sluicegate/tests/gateway",
    "crates/proxy/tests",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The tests that name each annotation: the file and the name of the test.
fn tests() -> BTreeMap<&'static str, Vec<(String, String)>> {
    let mut tests: BTreeMap<&str, Vec<(String, String)>> = BTreeMap::new();
    for folder in TESTS {
        let mut files = Vec::new();
        collect(&root().join(folder), &mut files);
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).unwrap_or_default();
            let shown = file.strip_prefix(root()).unwrap().display().to_string();
            // Each part begins with a test's name.
            for part in text.split("#[test]").skip(1).chain(text.split("#[tokio::test]").skip(1)) {
                let Some((_, rest)) = part.split_once("fn ") else { continue };
                let Some((name, body)) = rest.split_once('(') else { continue };
                let body = body.split("#[test]").next().unwrap_or_default();
                let body = body.split("#[tokio::test]").next().unwrap_or_default();
                for row in rows().filter(|row| names(body, row.name)) {
                    let found = (shown.clone(), name.trim().to_owned());
                    let known = tests.entry(row.name).or_default();
                    if !known.contains(&found) {
                        known.push(found);
                    }
                }
            }
        }
    }
    tests
}

/// Whether a test writes the annotation: the name, then a colon or a quote.
fn names(body: &str, name: &str) -> bool {
    body.match_indices(name).any(|(at, _)| {
        let before = body[..at].chars().next_back();
        let after = body[at + name.len()..].chars().next();
        matches!(before, Some('"' | '/' | ' ' | '\n' | 'n')) && matches!(after, Some(':' | '"'))
    })
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => collect(&path, files),
            false if path.extension().is_some_and(|extension| extension == "rs") => files.push(path),
            false => {}
        }
    }
}

/// The page, as Markdown.
fn page() -> String {
    let tests = tests();
    let count = |is_so: fn(&Meaning) -> bool| {
        OF_INGRESS_NGINX.iter().filter_map(|name| row(name)).filter(|row| is_so(&row.meaning)).count()
    };
    let mut page = format!(
        "\
<!-- Generated from crates/control/src/object/nginx. Do not edit this file: run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --lib nginx::page`. -->

# Annotations of ingress-nginx

With `--ingress-nginx-compatibility`, the gateway reads the annotations of ingress-nginx 1.15 on these Ingresses:
the Ingresses of IngressClasses with the controller of `--controller-class` or the controller `sluicegate.dev/ingress-nginx`,
and the Ingresses of class `nginx` if no IngressClass has this name. With `--ingress-class`, the class of this option replaces `nginx`.
See [Ingresses of ingress-nginx](ingress-nginx.md).

Of {} annotations, the gateway supports {}. {} have no effect that a client or an endpoint could see, and {} are refused.
`sluicegate check` reports each refused annotation. A fault in an annotation with a † closes the routes of the Ingress: they respond
with 503.
",
        OF_INGRESS_NGINX.len(),
        count(|meaning| matches!(meaning, Meaning::Sets(_))),
        count(|meaning| matches!(meaning, Meaning::Harmless)),
        count(|meaning| matches!(meaning, Meaning::Refused(_))),
    );
    for (title, kind) in [("Supported", 0), ("Without an effect", 1), ("Refused", 2)] {
        let heading = match kind {
            0 => "| annotation | effect | default | tests |\n|---|---|---|---|\n",
            1 => "| annotation | reason |\n|---|---|\n",
            _ => "| annotation | reason | instead |\n|---|---|---|\n",
        };
        let _ = write!(page, "\n## {title}\n\n{heading}");
        let mut rows: Vec<&Row> = GROUPS.iter().copied().flatten().collect();
        rows.sort_by_key(|row| row.name);
        for row in rows {
            let mark = if row.restricts { " †" } else { "" };
            match (&row.meaning, kind) {
                (Meaning::Sets(_), 0) => {
                    let tests = tests.get(row.name).map(Vec::as_slice).unwrap_or_default();
                    let links: Vec<String> = tests
                        .iter()
                        .take(3)
                        .enumerate()
                        .map(|(index, (file, name))| format!("[{}](../../{file} \"{name}\")", index + 1))
                        .collect();
                    let _ = writeln!(
                        page,
                        "| `{}`{mark} | {} | {} | {} |",
                        row.name,
                        row.sets,
                        row.default,
                        links.join(" ")
                    );
                }
                (Meaning::Harmless, 1) => {
                    let _ = writeln!(page, "| `{}` | {} |", row.name, row.sets);
                }
                (Meaning::Refused(instead), 2) => {
                    let _ = writeln!(page, "| `{}`{mark} | {} | {instead} |", row.name, row.sets);
                }
                _ => {}
            }
        }
    }
    page
}

#[test]
fn reference_page_matches_the_table_of_annotations() {
    let path = root().join("docs/migrate/ingress-nginx-annotations.md");
    if std::env::var_os("SLUICEGATE_UPDATE_PAGES").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == page(), "run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --lib nginx::page`");
}

#[test]
fn every_annotation_of_ingress_nginx_has_one_row() {
    let lacking: Vec<&str> = OF_INGRESS_NGINX.into_iter().filter(|name| row(name).is_none()).collect();
    assert_eq!(lacking, [""; 0], "annotations without a row");
    let mut names: Vec<&str> = rows().map(|row| row.name).collect();
    names.sort_unstable();
    let mut once = names.clone();
    once.dedup();
    assert_eq!(names, once, "a name has two rows");
}

#[test]
fn every_supported_annotation_has_a_test() {
    let tests = tests();
    let is_supported = |row: &&Row| matches!(row.meaning, Meaning::Sets(_));
    let untested: Vec<&str> =
        rows().filter(is_supported).map(|row| row.name).filter(|name| !tests.contains_key(name)).collect();
    assert_eq!(untested, [""; 0], "annotations without a test");
}
