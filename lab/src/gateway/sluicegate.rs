//! Sluicegate: manifests in a directory, each of which is replaced when it changes.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sluicegate_netns::Process;

use super::api::{ApiKeys, ISSUER, JwtKey, KEY_HEADER, Limit, Managed};
use super::{
    Api, Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, catalogue, order, replace,
    version_of,
};
use crate::experiment::{Functions, Work};
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "sluicegate",
    title: "Sluicegate",
    learns: "Watches a directory of manifests, as its controller watches the API server; no reload.",
    version: |_| version_of(&program(), &["--version"]),
    works: &Work::ALL,
    functions: Functions::ALL,
    prepare,
};

/// Options with a fault that the lab must detect: each request has one attempt, and waits for an endpoint that does not
/// respond. Endpoints take turns, because the gateway could otherwise avoid an endpoint that was slow once. The death
/// of that endpoint would then have no effect.
pub(crate) const BARE: Kind = Kind {
    name: "sluicegate-bare",
    title: "Sluicegate, retries and hedging off",
    learns: "As Sluicegate, with one attempt for each request, without retries, hedged connects and waits, and with round-robin load balancing.",
    version: KIND.version,
    works: KIND.works,
    functions: Functions::ALL,
    prepare: prepare_bare,
};

/// The environment variable with the program of [`BASELINE`].
const BASELINE_PROGRAM: &str = "SLUICEGATE_BASELINE";

/// Another build, such as the last release, to measure the effect of a change in one run.
pub(crate) const BASELINE: Kind = Kind {
    name: "sluicegate-baseline",
    title: "Sluicegate, baseline",
    learns: "As Sluicegate. The program is another build, which the environment variable SLUICEGATE_BASELINE names.",
    version: |_| version_of(&baseline()?, &["--version"]),
    works: KIND.works,
    functions: Functions::ALL,
    prepare: |site, config| prepare_with(&baseline()?, site, config, "{}"),
};

fn baseline() -> anyhow::Result<PathBuf> {
    let named = std::env::var_os(BASELINE_PROGRAM).map(PathBuf::from);
    named.with_context(|| format!("{BASELINE_PROGRAM} is not set: set it to the program of the other build"))
}

/// The additional options of [`BARE`].
const ONE_TRY: [&str; 8] =
    ["--attempts", "1", "--connect-hedge", "0s", "--unacknowledged-timeout", "0s", "--endpoint-wait", "0s"];

/// The program that was built for this program, else the program in PATH.
fn program() -> PathBuf {
    let built = std::env::current_exe().ok().and_then(|lab| built_for(&lab).find(|file| file.is_file()));
    built.unwrap_or_else(|| "sluicegate".into())
}

/// The places of the program beside this program, or one folder above it: Cargo builds the programs of tests in the
/// folder deps. The lab of the profile `local` measures the program of the profile `release`, never the program that
/// was built fast.
fn built_for(lab: &Path) -> impl Iterator<Item = PathBuf> {
    let profile = |folder: &Path| match folder.ends_with("local") {
        true => folder.with_file_name("release"),
        false => folder.to_owned(),
    };
    lab.ancestors().skip(1).take(2).map(move |folder| profile(folder).join("sluicegate"))
}

fn prepare_bare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    // These options are first, so that the options of the user have precedence.
    let options = ONE_TRY.iter().map(|option| (*option).to_owned()).chain(site.options.clone()).collect();
    let site = Site { options, ..site.clone() };
    prepare_with(&program(), &site, config, "{sluicegate.dev/load-balance: RoundRobin}")
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    prepare_with(&program(), site, config, "{}")
}

/// Prepares the gateway, with these annotations of the Service.
fn prepare_with(
    program: &Path,
    site: &Site,
    config: &Config,
    of_service: &'static str,
) -> anyhow::Result<Prepared> {
    let manifests = site.directory.join("manifests");
    fs::create_dir(&manifests).with_context(|| format!("making {}", manifests.display()))?;
    let driver = Sluicegate { manifests, of_service };
    for part in [Part::Hosts, Part::Endpoints, Part::Certificate] {
        driver.write(part, config)?;
    }
    let policies = policies(&config.api);
    replace(&driver.manifests.join("policies.yaml"), &policies)?;
    replace(&driver.manifests.join("callers.yaml"), &callers(&config.api))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--manifests").arg(&driver.manifests);
    command.arg("--listen").arg(site.http.to_string()).arg("--listen-https").arg(site.https.to_string());
    command.arg("--admin").arg(site.admin.to_string()).arg("--workers").arg(site.workers.to_string());
    if let Api::Managed(_) = &config.api {
        let database = format!("sqlite:{}", site.directory.join("analytics.db").display());
        command.args(["--analytics", "--analytics-database", &database]);
    }
    if let Api::Managed(_) | Api::Validation = &config.api {
        command.arg("--ssl-redirect=false");
    }
    command.args(&site.options);
    let mut files = vec![
        ConfigFile::new("ingress.yaml", &ingress(config, of_service)),
        ConfigFile::new("endpoints.yaml", &endpoints(config)),
    ];
    let shown = match &config.api {
        // The first API stands for all APIs.
        Api::Managed(managed) => {
            let target = format!("group: sluicegate.dev, kind: Api, name: {}", catalogue::name(0));
            managed_api(0) + "---\n" + &security(&catalogue::name(0), &target, &managed.identity)
        }
        _ => policies,
    };
    if !shown.is_empty() {
        files.push(ConfigFile::new("policies.yaml", &shown));
    }
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Sluicegate {
    manifests: PathBuf,
    /// The annotations of the Service.
    of_service: &'static str,
}

impl Driver for Sluicegate {
    fn apply(&mut self, _: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        self.write(part, config)
    }
}

impl Sluicegate {
    fn write(&self, part: Part, config: &Config) -> anyhow::Result<()> {
        let (name, text) = match part {
            Part::Endpoints => ("endpoints.yaml", endpoints(config)),
            Part::Certificate => ("secret.yaml", secret(&config.certificate)),
            Part::Hosts => ("ingress.yaml", ingress(config, self.of_service)),
        };
        replace(&self.manifests.join(name), &text)
    }
}

/// The manifests: one Ingress for all hosts, and the Service.
fn ingress(config: &Config, of_service: &str) -> String {
    let mut text = "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: app, namespace: default, annotations: {sluicegate.dev/ssl-redirect: \"false\"}}
spec:
  tls: [{secretName: app}]
  rules:
"
    .to_owned();
    for host in [HOST].into_iter().chain(config.hosts.iter().map(String::as_str)) {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "    - host: {host}
      http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: app, port: {{name: http}}}}}}}}]}}"
        );
    }
    let protocol = match config.protocol {
        Protocol::Http1 => "http",
        Protocol::Grpc => "kubernetes.io/h2c",
    };
    text + &format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: app, namespace: default, annotations: {of_service}}}
spec:
  ports: [{{name: http, port: 80, appProtocol: {protocol}}}]
"
    )
}

/// All pods of a Service have the same port.
fn endpoints(config: &Config) -> String {
    let port = config.endpoints.first().map_or(80, std::net::SocketAddr::port);
    let mut text = format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: app-1, namespace: default, labels: {{kubernetes.io/service-name: app}}}}
addressType: IPv4
ports: [{{name: http, port: {port}, protocol: TCP}}]
endpoints:
"
    );
    for endpoint in &config.endpoints {
        let _ = writeln!(text, "  - {{addresses: [{}], conditions: {{ready: true}}}}", endpoint.ip());
    }
    if config.endpoints.is_empty() {
        text += "  []\n";
    }
    text
}

fn secret(Pem { chain, key }: &Pem) -> String {
    let (chain, key) = (BASE64_STANDARD.encode(chain), BASE64_STANDARD.encode(key));
    format!(
        "apiVersion: v1
kind: Secret
metadata: {{name: app, namespace: default}}
type: kubernetes.io/tls
data: {{tls.crt: {chain}, tls.key: {key}}}
"
    )
}

/// The functions for calls, as policies.
fn policies(api: &Api) -> String {
    let app = "group: networking.k8s.io, kind: Ingress, name: app";
    match api {
        Api::Nothing => String::new(),
        Api::Validation => validated(),
        Api::Jwt(_) => security("app", app, api),
        Api::Keys(ApiKeys { limit: None, .. }) => security("app", app, api),
        Api::Keys(ApiKeys { limit: Some(Limit { requests, per }), .. }) => {
            let limit = format!(
                "  limits: [{{name: each, requests: {requests}, per: {}s, key: [{{type: Consumer}}]}}]\n",
                per.as_secs()
            );
            format!("{}---\n{}{limit}", security("app", app, api), policy("RateLimitPolicy", "app", app))
        }
        Api::Managed(managed) => {
            let each = (0..catalogue::APIS).map(|number| {
                let name = catalogue::name(number);
                let target = format!("group: sluicegate.dev, kind: Api, name: {name}");
                format!("{}---\n{}---\n", managed_api(number), security(&name, &target, &managed.identity))
            });
            each.chain([subscriptions(managed)]).collect()
        }
    }
}

/// The head of a policy.
fn policy(kind: &str, name: &str, target: &str) -> String {
    format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: {kind}
metadata: {{name: {name}, namespace: default}}
spec:
  targetRefs: [{{{target}}}]
"
    )
}

/// The policy that demands the credentials of callers.
fn security(name: &str, target: &str, api: &Api) -> String {
    let method = match api {
        Api::Jwt(jwt) => {
            let keys = match &jwt.key {
                JwtKey::Secret(_) => "keys: {sharedSecretRef: {name: acme, key: secret}}".to_owned(),
                JwtKey::Public { jwks, .. } => format!("keys: {{inline: '{jwks}'}}"),
            };
            format!(
                "    jwt:
      providers:
      - {{name: acme, issuer: \"{ISSUER}\", {keys}}}
"
            )
        }
        Api::Nothing | Api::Keys(_) | Api::Managed(_) | Api::Validation => {
            format!("    apiKey: {{from: [{{header: {{name: {KEY_HEADER}}}}}], forward: true}}\n")
        }
    };
    policy("SecurityPolicy", name, target) + "  authentication:\n" + &method
}

/// An API with its OpenAPI document.
fn managed_api(number: usize) -> String {
    let (name, base) = (catalogue::name(number), catalogue::base(number));
    let mut text = format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {{name: {name}, namespace: default}}
spec:
  subscriptions: Required
  environments:
  - {{name: production, hosts: [{HOST}], basePath: {base}, backend: {{service: app, port: http}}}}
  document:
    inline: |
      openapi: 3.1.0
      info: {{title: {name}, version: 1.0.0}}
      paths:
"
    );
    for resource in 0..catalogue::RESOURCES {
        let path = catalogue::collection(resource);
        let name = path.trim_start_matches('/');
        let _ = writeln!(
            text,
            "        {path}: {{get: {{operationId: list-{name}, responses: {{\"200\": {{description: All.}}}}}}}}
        {path}/{{id}}:
          parameters: [{{name: id, in: path, required: true, schema: {{type: integer}}}}]
          get: {{operationId: get-{name}, responses: {{\"200\": {{description: One.}}}}}}"
        );
    }
    text
}

/// The API whose requests are validated.
fn validated() -> String {
    let document: String = order::DOCUMENT.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {{name: orders, namespace: default}}
spec:
  environments:
  - {{name: production, hosts: [{HOST}], basePath: /shop, backend: {{service: app, port: http}}}}
  validation: {{request: Enforce}}
  document:
    inline: |
{document}"
    )
}

/// The plan, and the subscriptions of the callers.
fn subscriptions(managed: &Managed) -> String {
    // The maximum number of APIs of a Subscription.
    const APIS: usize = 64;
    let Limit { requests, per } = managed.limit;
    let mut text = format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: Plan
metadata: {{name: gold, namespace: default}}
spec: {{limits: [{{name: each, requests: {requests}, per: {}s}}]}}
",
        per.as_secs()
    );
    for (caller, name) in managed.callers.iter().enumerate() {
        for (part, apis) in catalogue::subscribed(caller, managed.callers.len()).chunks(APIS).enumerate() {
            let apis: Vec<String> =
                apis.iter().map(|api| format!("{{name: {}}}", catalogue::name(*api))).collect();
            let _ = writeln!(
                text,
                "---
apiVersion: sluicegate.dev/v1alpha1
kind: Subscription
metadata: {{name: {name}-{part}, namespace: default}}
spec: {{consumerRef: {{name: {name}}}, planRef: {{name: gold}}, apis: [{}]}}",
                apis.join(", ")
            );
        }
    }
    text
}

/// The credentials of the callers.
fn callers(api: &Api) -> String {
    let secret = |name: &str, field: &str, value: &str| {
        let value = BASE64_STANDARD.encode(value);
        format!(
            "apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: default}}
data: {{{field}: {value}}}
---
"
        )
    };
    match api {
        Api::Nothing | Api::Validation => String::new(),
        Api::Jwt(jwt) => match &jwt.key {
            JwtKey::Secret(shared) => secret("acme", "secret", shared),
            JwtKey::Public { .. } => String::new(),
        },
        Api::Keys(keys) => {
            let each = keys.consumers.iter().map(|each| {
                let name = &each.name;
                let key = format!("apiKeys: [{{secretRef: {{name: {name}, key: key}}}}]");
                secret(name, "key", &each.key) + &consumer(name, &key)
            });
            each.collect()
        }
        Api::Managed(managed) => {
            let mut text = callers(&managed.identity);
            if let Api::Jwt(_) = managed.identity {
                let each = managed
                    .callers
                    .iter()
                    .map(|name| consumer(name, &format!("tokens: [{{subject: {name}}}]")));
                text.extend(each);
            }
            text
        }
    }
}

/// A consumer with its credential.
fn consumer(name: &str, credential: &str) -> String {
    format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {{name: {name}, namespace: default}}
spec: {{{credential}}}
---
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(lab: &str) -> PathBuf {
        built_for(Path::new(lab)).next().unwrap()
    }

    #[test]
    fn lab_built_with_profile_local_measures_the_gateway_built_with_profile_release() {
        assert_eq!(first("target/local/sluicegate-lab"), Path::new("target/release/sluicegate"));
        let of_test: Vec<PathBuf> = built_for(Path::new("target/local/deps/sluicegate_lab-1")).collect();
        assert_eq!(of_test[1], Path::new("target/release/sluicegate"));
    }

    #[test]
    fn lab_built_with_any_other_profile_measures_the_gateway_in_its_own_folder() {
        assert_eq!(first("target/debug/sluicegate-lab"), Path::new("target/debug/sluicegate"));
        assert_eq!(first("/usr/local/bin/sluicegate-lab"), Path::new("/usr/local/bin/sluicegate"));
    }
}
