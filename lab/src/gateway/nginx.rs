//! nginx with a reload for each change, as from the controller that NGINX publishes in open source.

use std::process::Command;

use rustix::process::Signal;
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Protocol, Site, fill, replace, version_of};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "nginx",
    title: "nginx, reload",
    learns: "Its configuration is written anew and reloaded (SIGHUP) for each change, as the NGINX Open Source controller does.",
    version: |_| version(),
    works: &Work::ALL,
    functions: &[],
    prepare,
};

pub(super) fn version() -> anyhow::Result<String> {
    Ok(version_of("nginx".as_ref(), &["-v"])?.trim_start_matches("nginx version: ").to_owned())
}

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let driver = Nginx { site: site.clone() };
    driver.write(config)?;
    let files = vec![ConfigFile::new("nginx.conf", &driver.text(config))];
    Ok(Prepared { command: command(site), files, driver: Box::new(driver) })
}

/// nginx with `nginx.conf` in the site's directory.
pub(super) fn command(site: &Site) -> Command {
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&site.directory).args(["-e", "stderr", "-c", "nginx.conf"]).args(&site.options);
    command
}

struct Nginx {
    site: Site,
}

impl Driver for Nginx {
    fn apply(&mut self, process: &Process, _: Part, config: &Config) -> anyhow::Result<()> {
        self.write(config)?;
        process.signal(Signal::HUP)
    }
}

impl Nginx {
    fn write(&self, config: &Config) -> anyhow::Result<()> {
        write_certificate(&self.site, &config.certificate)?;
        replace(&self.site.directory.join("nginx.conf"), &self.text(config))
    }

    fn text(&self, config: &Config) -> String {
        let Site { http, https, workers, kept, .. } = &self.site;
        let mut servers: Vec<String> = config
            .endpoints
            .iter()
            .map(|endpoint| format!("    server {endpoint} max_fails=1 fail_timeout=10s max_conns=0;"))
            .collect();
        if servers.is_empty() {
            // nginx rejects an upstream without servers; with this server nginx responds with 502, as with the server
            // of the controller.
            servers.push("    server 127.0.0.1:1;".to_owned());
        }
        let text = fill(
            include_str!("templates/nginx.conf"),
            &[
                ("workers", workers),
                ("kept", kept),
                ("http", http),
                ("https", https),
                ("servers", &servers.join("\n")),
                ("names", &names(config)),
            ],
        );
        match config.protocol {
            Protocol::Http1 => text,
            Protocol::Grpc => for_grpc(&text),
        }
    }
}

/// The same configuration with a location for gRPC.
fn for_grpc(text: &str) -> String {
    let mut of_location = false;
    let lines = text.lines().filter_map(|line| {
        of_location |= line.trim_start().starts_with("location ");
        let is_of_http1 = line.contains("proxy_http_version") || line.contains("proxy_set_header Connection");
        match of_location {
            true if is_of_http1 => None,
            true => Some(line.replace("proxy_pass http:", "grpc_pass grpc:").replace("proxy_", "grpc_")),
            false => Some(line.to_owned()),
        }
    });
    lines.map(|line| line + "\n").collect()
}

pub(super) fn write_certificate(site: &Site, Pem { chain, key }: &Pem) -> anyhow::Result<()> {
    replace(&site.directory.join("tls.crt"), chain)?;
    replace(&site.directory.join("tls.key"), key)
}

/// All hosts, for `server_name`.
pub(super) fn names(config: &Config) -> String {
    [HOST].into_iter().chain(config.hosts.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}
