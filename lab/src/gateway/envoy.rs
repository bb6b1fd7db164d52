//! Envoy, which watches files for endpoints, routes and the certificate. Its controllers send the same resources by
//! xDS.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sluicegate_netns::Process;

use super::api::{ApiKeys, CONSUMER_HEADER, ISSUER, Jwt, JwtKey, KEY_HEADER, Limit};
use super::{
    Api, Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, fill, replace, version_of,
};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "envoy",
    title: "Envoy",
    learns: "Watches files of endpoints, routes and the certificate (EDS, RDS, SDS), which its controllers send by gRPC; \
             no reload. No retries, which is the default of Envoy, of Contour and of Envoy Gateway.",
    version,
    works: &Work::ALL,
    has_functions: true,
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
    if let Api::Jwt(jwt) = &config.api {
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
        ConfigFile::new("routes.yaml", &routes(config)),
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

/// The keys of consumers.
fn credentials(api: &Api) -> String {
    let Api::Keys(keys) = api else { return String::new() };
    let each = keys
        .consumers
        .iter()
        .map(|each| format!("              - {{key: {}, client: {}}}", each.key, each.name));
    each.collect::<Vec<_>>().join("\n")
}

/// The filters before the router.
fn functions(site: &Site, api: &Api, credentials: &str) -> String {
    match api {
        Api::Nothing => String::new(),
        Api::Jwt(_) => fill(
            include_str!("templates/envoy-jwt.yaml"),
            &[("issuer", &ISSUER), ("directory", &site.directory.display())],
        ),
        Api::Keys(ApiKeys { consumers, limit }) => {
            let headers: [(&str, &dyn ToString); 2] =
                [("key_header", &KEY_HEADER), ("consumer_header", &CONSUMER_HEADER)];
            let mut text = fill(include_str!("templates/envoy-api-key.yaml"), &headers);
            text = fill(&text, &[("credentials", &credentials)]);
            if let Some(Limit { requests, per }) = limit {
                let limit = fill(include_str!("templates/envoy-limit.yaml"), &headers);
                text += &fill(
                    &limit,
                    &[("requests", requests), ("per", &per.as_secs()), ("consumers", &consumers.len())],
                );
            }
            text
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
    fill(include_str!("templates/envoy-routes.yaml"), &[("domains", &domains.join("\n"))])
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
