//! nginx with a reload for each change: the way of the controller that NGINX publishes in open source.

use std::process::Command;

use rustix::process::Signal;
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Site, fill, replace, signal, version_of};
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "nginx",
    title: "nginx, reload",
    learns: "Its configuration is written anew and reloaded (SIGHUP) for each change, as the NGINX Open Source controller does.",
    version: |_| version(),
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
        signal(process, Signal::HUP)
    }
}

impl Nginx {
    fn write(&self, config: &Config) -> anyhow::Result<()> {
        write_certificate(&self.site, &config.certificate)?;
        replace(&self.site.directory.join("nginx.conf"), &self.text(config))
    }

    fn text(&self, config: &Config) -> String {
        let Site { http, https, workers, .. } = &self.site;
        let mut servers: Vec<String> = config
            .endpoints
            .iter()
            .map(|endpoint| format!("    server {endpoint} max_fails=1 fail_timeout=10s max_conns=0;"))
            .collect();
        if servers.is_empty() {
            // An upstream without servers is refused; this one answers 502, as the controller's own does.
            servers.push("    server 127.0.0.1:1;".to_owned());
        }
        fill(
            include_str!("templates/nginx.conf"),
            &[
                ("workers", workers),
                ("http", http),
                ("https", https),
                ("servers", &servers.join("\n")),
                ("names", &names(config)),
            ],
        )
    }
}

pub(super) fn write_certificate(site: &Site, Pem { chain, key }: &Pem) -> anyhow::Result<()> {
    replace(&site.directory.join("tls.crt"), chain)?;
    replace(&site.directory.join("tls.key"), key)
}

/// All hosts, for `server_name`.
pub(super) fn names(config: &Config) -> String {
    [HOST].into_iter().chain(config.hosts.iter().map(String::as_str)).collect::<Vec<_>>().join(" ")
}
