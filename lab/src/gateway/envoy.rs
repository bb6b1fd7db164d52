//! Envoy, which watches files for endpoints, routes and the certificate. Its controllers send the same resources by
//! xDS.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sluicegate_netns::Process;

use super::api::{ApiKeys, CONSUMER_HEADER, ISSUER, Jwt, JwtKey, KEY_HEADER, Limit};
use super::{
    Api, Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, catalogue, fill, replace,
    version_of,
};
use crate::experiment::{Functions, Work};
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "envoy",
    title: "Envoy",
    learns: "Watches files of endpoints, routes and the certificate (EDS, RDS, SDS), which its controllers send by gRPC; \
             no reload. No retries, which is the default of Envoy, of Contour and of Envoy Gateway.",
    version,
    works: &Work::ALL,
    functions: Functions::OF_PEERS,
    prepare,
};

fn version(tools: &Path) -> anyhow::Result<String> {
    // The line is "envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL", after the program's path.
    let line = version_of(&program(tools), &["--version"])?;
    let number = line.split('/').rev().nth(3).map(|number| format!("Envoy {number}"));
    Ok(number.unwrap_or(line))
}

/// The program in the folder of `scripts/setup peers`, else in PATH.
fn program(tools: &Path) -> PathBuf {
    Some(tools.join("envoy/bin/envoy")).filter(|file| file.is_file()).unwrap_or_else(|| "envoy".into())
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let driver = Envoy { directory: site.directory.clone() };
    for part in [Part::Hosts, Part::Endpoints, Part::Certificate] {
        driver.write(part, config)?;
    }
    if let Api::Jwt(jwt) = identity(&config.api) {
        replace(&site.directory.join("jwks.json"), &jwks(jwt))?;
    }
    let file = site.directory.join("envoy.yaml");
    replace(&file, &bootstrap(site, config, &credentials(&config.api)))?;
    let text = bootstrap(site, config, "              # one line for each consumer");
    let mut command = Command::new(program(&site.tools));
    // Hot restart needs shared memory, for which several Envoys would conflict.
    command.arg("--concurrency").arg(site.workers.to_string()).args([
        "--disable-hot-restart",
        "--log-level",
        "error",
    ]);
    command.arg("-c").arg(file).args(&site.options);
    let files = vec![
        ConfigFile::new("envoy.yaml", &text),
        ConfigFile::new("routes.yaml", &shown_routes(config)),
        ConfigFile::new("endpoints.yaml", &endpoints(config)),
    ];
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Envoy {
    directory: PathBuf,
}

impl Driver for Envoy {
    fn apply(&mut self, _: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        self.write(part, config)
    }
}

impl Envoy {
    /// Envoy reads a file again when another file is renamed to its name, as [`replace`] does.
    fn write(&self, part: Part, config: &Config) -> anyhow::Result<()> {
        let (name, text) = match part {
            Part::Endpoints => ("endpoints.yaml", endpoints(config)),
            Part::Certificate => ("certificate.yaml", certificate(&config.certificate)),
            Part::Hosts => ("routes.yaml", routes(config)),
        };
        replace(&self.directory.join(name), &text)
    }
}

/// The keys that verify JWTs. A shared secret is also a JWK.
fn jwks(jwt: &Jwt) -> String {
    match &jwt.key {
        JwtKey::Secret(secret) => {
            let key = BASE64_URL_SAFE_NO_PAD.encode(secret);
            format!(r#"{{"keys":[{{"kty":"oct","alg":"HS256","k":"{key}"}}]}}"#)
        }
        JwtKey::Public { jwks, .. } => jwks.clone(),
    }
}

/// The functions that find out who calls.
fn identity(api: &Api) -> &Api {
    match api {
        Api::Managed(managed) => &managed.identity,
        _ => api,
    }
}

/// The keys of consumers.
fn credentials(api: &Api) -> String {
    let Api::Keys(keys) = identity(api) else { return String::new() };
    let each = keys
        .consumers
        .iter()
        .map(|each| format!("              - {{key: {}, client: {}}}", each.key, each.name));
    each.collect::<Vec<_>>().join("\n")
}

/// The filters before the router.
fn functions(site: &Site, api: &Api, credentials: &str) -> String {
    let headers: [(&str, &dyn ToString); 2] =
        [("key_header", &KEY_HEADER), ("consumer_header", &CONSUMER_HEADER)];
    let keys = || {
        fill(&fill(include_str!("templates/envoy-api-key.yaml"), &headers), &[("credentials", &credentials)])
    };
    let jwt = |claims: &str| {
        fill(
            include_str!("templates/envoy-jwt.yaml"),
            &[("issuer", &ISSUER), ("claims", &claims), ("directory", &site.directory.display())],
        )
    };
    let limit = |Limit { requests, per }: Limit, consumers: usize| {
        let text = fill(include_str!("templates/envoy-limit.yaml"), &headers);
        fill(&text, &[("requests", &requests), ("per", &per.as_secs()), ("consumers", &consumers)])
    };
    match api {
        Api::Nothing | Api::Validation => String::new(),
        Api::Jwt(_) => jwt(""),
        Api::Keys(ApiKeys { consumers, limit: of_each }) => {
            keys() + &of_each.map_or(String::new(), |of_each| limit(of_each, consumers.len()))
        }
        // A bucket for each caller, whose subscriptions share it.
        Api::Managed(managed) => {
            let identity = match managed.identity {
                Api::Jwt(_) => jwt(&fill(include_str!("templates/envoy-claims.yaml"), &headers)),
                _ => keys(),
            };
            identity + &limit(managed.limit, managed.callers.len())
        }
    }
}

fn bootstrap(site: &Site, config: &Config, credentials: &str) -> String {
    let Site { directory, http, https, admin, .. } = site;
    let options = match config.protocol {
        Protocol::Http1 => "http_protocol_options",
        Protocol::Grpc => "http2_protocol_options",
    };
    fill(
        include_str!("templates/envoy.yaml"),
        &[
            ("directory", &directory.display()),
            ("options", &options),
            ("functions", &functions(site, &config.api, credentials)),
            ("http_ip", &http.ip()),
            ("http_port", &http.port()),
            ("https_ip", &https.ip()),
            ("https_port", &https.port()),
            ("admin_ip", &admin.ip()),
            ("admin_port", &admin.port()),
        ],
    )
}

fn routes(config: &Config) -> String {
    let domains: Vec<String> = [HOST]
        .into_iter()
        .chain(config.hosts.iter().map(String::as_str))
        .map(|host| format!("    - \"{host}\""))
        .collect();
    let routes = match &config.api {
        Api::Managed(_) => managed_routes(),
        _ => include_str!("templates/envoy-route.yaml").to_owned(),
    };
    fill(
        include_str!("templates/envoy-routes.yaml"),
        &[("domains", &domains.join("\n")), ("routes", &routes)],
    )
}

/// The routes for the report, in which the first API stands for all APIs.
fn shown_routes(config: &Config) -> String {
    let text = routes(config);
    let second = api_key(1);
    text.split(&second).next().unwrap_or_default().to_owned()
}

/// The prefix of the paths of an API, as a key of the tree of routes.
fn api_key(api: usize) -> String {
    format!("\"{}/\":", catalogue::base(api))
}

/// The routes of all APIs. A tree finds the API by the prefix of the path. Each operation is a route with its own statistics
/// (`stat_prefix`).
fn managed_routes() -> String {
    let mut text = include_str!("templates/envoy-apis.yaml").to_owned();
    for api in 0..catalogue::APIS {
        let (name, base) = (catalogue::name(api), catalogue::base(api));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "            {}
              action:
                name: {name}
                typed_config:
                  \"@type\": type.googleapis.com/envoy.config.route.v3.RouteList
                  routes:",
            api_key(api)
        );
        for resource in 0..catalogue::RESOURCES {
            let path = base.clone() + &catalogue::collection(resource);
            for (operation, path) in [
                ("list", format!("path: \"{path}\"")),
                ("get", format!("safe_regex: {{regex: \"{path}/[^/]+\"}}")),
            ] {
                let _ = writeln!(
                    text,
                    "                  - match: {{{path}, headers: [{{name: \":method\", string_match: {{exact: GET}}}}]}}
                    stat_prefix: {name}-{operation}-{resource}
                    route: {{cluster: app, timeout: 60s}}"
                );
            }
        }
    }
    text
}

fn endpoints(config: &Config) -> String {
    let endpoints: Vec<String> = config
        .endpoints
        .iter()
        .map(|addr| {
            let (ip, port) = (addr.ip(), addr.port());
            format!("{{endpoint: {{address: {{socket_address: {{address: {ip}, port_value: {port}}}}}}}}}")
        })
        .collect();
    format!(
        "resources:
- \"@type\": type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment
  cluster_name: app
  endpoints:
  - lb_endpoints: [{}]
",
        endpoints.join(",\n      ")
    )
}

fn certificate(Pem { chain, key }: &Pem) -> String {
    // A JSON string is a YAML string.
    let [chain, key] = [chain, key].map(|pem| serde_json::Value::from(pem.as_str()));
    format!(
        "resources:
- \"@type\": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret
  name: app
  tls_certificate:
    certificate_chain: {{inline_string: {chain}}}
    private_key: {{inline_string: {key}}}
"
    )
}
