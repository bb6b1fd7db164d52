//! nginx that is told of endpoints and certificates through Lua: the way of the community's controller, ingress-nginx.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use rustix::process::Signal;
use sluicegate_netns::Process;

use super::{Config, Driver, Kind, Part, Pem, Prepared, Site, fill, nginx, replace};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "nginx-lua",
    title: "nginx, Lua",
    learns: "Endpoints and certificates are posted to it and kept in shared memory; each worker looks for endpoints every \
             second, as those of the community's controller (ingress-nginx) do. New hosts take a reload, as there. The \
             pause of 3.3 s that its controller makes between two changes is left out.",
    version: |_| version(),
    works: &[Work::Http, Work::Https, Work::Http2, Work::TlsRsa, Work::TlsP256],
    prepare,
};

/// Where Debian's package puts them.
const MODULES: &str = "/usr/lib/nginx/modules";

/// For one exchange with the configuration's address, and for all workers to have what was posted.
const LIMIT: Duration = Duration::from_secs(5);

const LUA: &str = include_str!("templates/gateway.lua");

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
    let files =
        vec![ConfigFile::new("nginx.conf", &driver.text(config)), ConfigFile::new("gateway.lua", LUA)];
    Ok(Prepared { command: nginx::command(site), files, driver: Box::new(driver) })
}

struct NginxLua {
    site: Site,
}

impl Driver for NginxLua {
    fn started(&mut self, _: &Process, config: &Config) -> anyhow::Result<()> {
        self.post_certificate(config)?;
        self.post_endpoints(config)?;
        // One worker that has them answers 200 while another has none yet and answers 503.
        let deadline = Instant::now() + LIMIT;
        while ask(self.site.admin, "GET", "/synced", "").is_err() {
            ensure!(Instant::now() < deadline, "the workers of nginx do not take the endpoints");
            sleep(Duration::from_millis(10));
        }
        Ok(())
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
            // Writing to a String does not fail.
            let _ = writeln!(lines, "{} {}", endpoint.ip(), endpoint.port());
        }
        ask(self.site.admin, "POST", "/endpoints", &lines)
    }

    fn post_certificate(&self, config: &Config) -> anyhow::Result<()> {
        let Pem { chain, key } = &config.certificate;
        // In one, so that no handshake sees the one without the other.
        ask(self.site.admin, "POST", "/certificate", &format!("{chain}\n{key}"))
    }

    fn write(&self, config: &Config) -> anyhow::Result<()> {
        replace(&self.site.directory.join("nginx.conf"), &self.text(config))
    }

    fn text(&self, config: &Config) -> String {
        let Site { http, https, admin, workers, .. } = &self.site;
        fill(
            include_str!("templates/nginx-lua.conf"),
            &[
                ("modules", &MODULES),
                ("workers", workers),
                ("http", http),
                ("https", https),
                ("admin", admin),
                ("names", &nginx::names(config)),
            ],
        )
    }
}

/// One HTTP request; an error unless it is answered 200.
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
