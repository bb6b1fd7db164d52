//! nginx that learns of endpoints and certificates through Lua, as from the community's controller, ingress-nginx.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use sluicegate_netns::Process;

use super::api::{ApiKeys, ISSUER, JwtKey, Limit, Managed};
use super::{Api, Config, Driver, Kind, Part, Pem, Prepared, Site, catalogue, fill, nginx, replace};
use crate::experiment::{Functions, Work};
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "nginx-lua",
    title: "nginx, Lua",
    learns: "Endpoints and certificates are posted to it and kept in shared memory; each worker looks for endpoints every \
             second, as those of the community's controller (ingress-nginx) do. New hosts take a reload, as there. The \
             pause of 3.3 s that its controller makes between two changes is left out. The functions of an API gateway are \
             written in Lua, as Kong's are; Kong itself does more for each call.",
    version: |_| version(),
    works: &[Work::Single, Work::Http, Work::Https, Work::Http2, Work::TlsRsa, Work::TlsP256],
    functions: Functions::OF_PEERS,
    prepare,
};

/// The folder of the modules in Debian's package.
const MODULES: &str = "/usr/lib/nginx/modules";

/// The timeout of one exchange with the configuration's address, and of the distribution to all workers.
const LIMIT: Duration = Duration::from_secs(5);

const LUA: &str = include_str!("templates/gateway.lua");

/// The functions of an API gateway, and their dependencies.
const API: [(&str, &str); 2] =
    [("api.lua", include_str!("templates/api.lua")), ("json.lua", include_str!("templates/json.lua"))];

fn version() -> anyhow::Result<String> {
    let version = nginx::version()?;
    let module = Path::new(MODULES).join("ngx_http_lua_module.so");
    ensure!(module.is_file(), "there is no {}: on Debian, install libnginx-mod-http-lua", module.display());
    Ok(format!("{version} with ngx_http_lua"))
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let driver = NginxLua { site: site.clone() };
    nginx::write_certificate(site, &config.certificate)?;
    replace(&site.directory.join("gateway.lua"), LUA)?;
    driver.write(config)?;
    let mut files =
        vec![ConfigFile::new("nginx.conf", &driver.text(config)), ConfigFile::new("gateway.lua", LUA)];
    files.extend(write_api(site, &config.api)?);
    Ok(Prepared { command: nginx::command(site), files, driver: Box::new(driver) })
}

/// Writes the functions of an API gateway, with the credentials of callers.
fn write_api(site: &Site, api: &Api) -> anyhow::Result<Vec<ConfigFile>> {
    let functions = match api {
        Api::Nothing | Api::Validation => return Ok(Vec::new()),
        Api::Jwt(_) => "Jwt",
        Api::Keys(ApiKeys { limit: None, .. }) => "ApiKey",
        Api::Keys(ApiKeys { limit: Some(_), .. }) => "ApiKeyAndLimit",
        Api::Managed(managed) => {
            replace(&site.directory.join("subscriptions"), &subscriptions(managed))?;
            "Managed"
        }
    };
    let identity = match api {
        Api::Managed(managed) => &managed.identity,
        _ => api,
    };
    let (name, secret, algorithm) = match identity {
        Api::Jwt(jwt) => match &jwt.key {
            JwtKey::Secret(secret) => ("jwt.key", secret.clone(), "HS256"),
            JwtKey::Public { pem, .. } => ("jwt.key", pem.clone(), "RS256"),
        },
        Api::Keys(ApiKeys { consumers, .. }) => {
            ("consumers", consumers.iter().map(|each| format!("{} {}\n", each.key, each.name)).collect(), "")
        }
        Api::Nothing | Api::Managed(_) | Api::Validation => return Ok(Vec::new()),
    };
    replace(&site.directory.join(name), &secret)?;
    let Limit { requests, per } = api.limit().unwrap_or(Limit::HIGH);
    let window = per.as_secs().max(1);
    let settings = format!(
        "return {{ functions = \"{functions}\", algorithm = \"{algorithm}\", issuer = \"{ISSUER}\", limit = {requests}, \
         window = {window}, apis = {}, resources = {} }}\n",
        catalogue::APIS,
        catalogue::RESOURCES
    );
    let files = API.iter().map(|(name, text)| ConfigFile::new(name, text));
    let files: Vec<ConfigFile> = files.chain([ConfigFile::new("settings.lua", &settings)]).collect();
    for file in &files {
        replace(&site.directory.join(&file.name), &file.text)?;
    }
    Ok(files)
}

/// A line for each caller and each of its APIs.
fn subscriptions(managed: &Managed) -> String {
    let callers = managed.callers.iter().enumerate();
    let lines = callers.flat_map(|(caller, name)| {
        let apis = catalogue::subscribed(caller, managed.callers.len());
        apis.into_iter().map(move |api| format!("{name} {}\n", catalogue::name(api)))
    });
    lines.collect()
}

struct NginxLua {
    site: Site,
}

impl Driver for NginxLua {
    fn started(&mut self, _: &Process, config: &Config) -> anyhow::Result<()> {
        // nginx listens at one address after the other, and the addresses for clients may be first.
        until("nginx does not listen for its certificate", || TcpStream::connect(self.site.admin).is_ok())?;
        self.post_certificate(config)?;
        self.post_endpoints(config)?;
        // A worker with endpoints responds with 200 while a worker without endpoints responds with 503.
        until("the workers of nginx do not take the endpoints", || {
            ask(self.site.admin, "GET", "/synced", "").is_ok()
        })
    }

    fn apply(&mut self, process: &Process, part: Part, config: &Config) -> anyhow::Result<()> {
        match part {
            Part::Endpoints => self.post_endpoints(config),
            Part::Certificate => self.post_certificate(config),
            Part::Hosts => {
                self.write(config)?;
                process.signal(Signal::HUP)
            }
        }
    }
}

impl NginxLua {
    fn post_endpoints(&self, config: &Config) -> anyhow::Result<()> {
        let mut lines = String::new();
        for endpoint in &config.endpoints {
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{} {}", endpoint.ip(), endpoint.port());
        }
        ask(self.site.admin, "POST", "/endpoints", &lines)
    }

    fn post_certificate(&self, config: &Config) -> anyhow::Result<()> {
        let Pem { chain, key } = &config.certificate;
        // One request carries both, so that no handshake uses a certificate without its key.
        ask(self.site.admin, "POST", "/certificate", &format!("{chain}\n{key}"))
    }

    fn write(&self, config: &Config) -> anyhow::Result<()> {
        replace(&self.site.directory.join("nginx.conf"), &self.text(config))
    }

    fn text(&self, config: &Config) -> String {
        let Site { http, https, admin, workers, kept, .. } = &self.site;
        let [counters, init, access] = match config.api {
            Api::Nothing | Api::Validation => [""; 3],
            Api::Managed(_) => [
                "  lua_shared_dict counters 12m;\n",
                "require(\"api\").init_worker()",
                "      access_by_lua_block { require(\"api\").access() }\n      \
                 log_by_lua_block { require(\"api\").log() }\n",
            ],
            // Kong uses 12m for each of these.
            Api::Jwt(_) | Api::Keys(_) => [
                "  lua_shared_dict counters 12m;\n",
                "require(\"api\").init_worker()",
                "      access_by_lua_block { require(\"api\").access() }\n",
            ],
        };
        fill(
            include_str!("templates/nginx-lua.conf"),
            &[
                ("modules", &MODULES),
                ("workers", workers),
                ("kept", kept),
                ("http", http),
                ("https", https),
                ("admin", admin),
                ("names", &nginx::names(config)),
                ("counters", &counters),
                ("init", &init),
                ("access", &access),
            ],
        )
    }
}

fn until(otherwise: &'static str, holds: impl Fn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !holds() {
        ensure!(Instant::now() < deadline, otherwise);
        sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Makes one HTTP request. Returns an error unless the response has status 200.
fn ask(addr: SocketAddr, method: &str, path: &str, body: &str) -> anyhow::Result<()> {
    let exchange = || {
        let mut stream = TcpStream::connect_timeout(&addr, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map(|_| answer)
    };
    let answer = exchange().with_context(|| format!("{method} http://{addr}{path}"))?;
    if !answer.starts_with("HTTP/1.1 200 ") {
        bail!("{method} http://{addr}{path} is answered {:?}", answer.lines().next().unwrap_or_default());
    }
    Ok(())
}
