//! nginx with a reload for each change: the way of the controller that NGINX publishes in open source.

use std::fmt::Write as _;

use std::process::Command;

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use sluicegate_netns::Process;

use super::{Config, Driver, HOST, Kind, Part, Pem, Prepared, Site, replace, version_of};
use crate::experiment::Work;
use crate::results::ConfigFile;

pub(crate) const KIND: Kind = Kind {
    name: "nginx",
    title: "nginx, reload",
    learns: "Its configuration is written anew and reloaded (SIGHUP) for each change, as the NGINX Open Source controller does.",
    version: |_| Ok(version_of("nginx".as_ref(), &["-v"])?.trim_start_matches("nginx version: ").to_owned()),
    works: &[Work::Http, Work::Https, Work::Http2, Work::TlsRsa, Work::TlsP256],
    prepare,
};

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let driver = Nginx { site: site.clone() };
    driver.write(config)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&site.directory).args(["-e", "stderr", "-c", "nginx.conf"]).args(&site.options);
    let files = vec![ConfigFile { name: "nginx.conf".to_owned(), text: driver.text(config) }];
    Ok(Prepared { command, files, driver: Box::new(driver) })
}

struct Nginx {
    site: Site,
}

impl Driver for Nginx {
    fn apply(&mut self, process: &Process, _: Part, config: &Config) -> anyhow::Result<()> {
        self.write(config)?;
        let pid =
            i32::try_from(process.pid()).ok().and_then(Pid::from_raw).context("the process id of nginx")?;
        kill_process(pid, Signal::HUP).context("SIGHUP to nginx")
    }
}

impl Nginx {
    fn write(&self, config: &Config) -> anyhow::Result<()> {
        let Pem { chain, key } = &config.certificate;
        let directory = &self.site.directory;
        replace(&directory.join("tls.crt"), chain)?;
        replace(&directory.join("tls.key"), key)?;
        replace(&directory.join("nginx.conf"), &self.text(config))
    }

    fn text(&self, config: &Config) -> String {
        let Site { http, https, workers, .. } = &self.site;
        let mut servers = String::new();
        for endpoint in &config.endpoints {
            // Writing to a String does not fail.
            let _ = writeln!(servers, "    server {endpoint} max_fails=1 fail_timeout=10s;");
        }
        if config.endpoints.is_empty() {
            servers += "    server 127.0.0.1:1;\n";
        }
        let names: String = config.hosts.iter().map(|host| format!(" {host}")).collect();
        format!(
            "daemon off;
worker_processes {workers};
worker_rlimit_nofile 10240;
pid nginx.pid;
error_log stderr crit;
events {{ worker_connections 10000; }}
http {{
  access_log off;
  server_tokens off;
  keepalive_timeout 75s;
  keepalive_requests 100000000;
  server_names_hash_max_size 16384;
  server_names_hash_bucket_size 128;
  ssl_certificate tls.crt;
  ssl_certificate_key tls.key;
  ssl_protocols TLSv1.2 TLSv1.3;
  upstream app {{
    random two least_conn;
{servers}    keepalive 100;
    keepalive_requests 100000000;
  }}
  server {{
    listen {http} default_server reuseport;
    listen {https} ssl http2 default_server reuseport;
    return 404;
  }}
  server {{
    listen {http};
    listen {https} ssl http2;
    server_name {HOST}{names};
    location / {{
      proxy_pass http://app;
      proxy_http_version 1.1;
      proxy_connect_timeout 60s;
      proxy_next_upstream error timeout;
      proxy_set_header Connection \"\";
      proxy_set_header Host $http_host;
      proxy_set_header X-Forwarded-For $remote_addr;
      proxy_set_header X-Forwarded-Host $http_host;
      proxy_set_header X-Forwarded-Port $server_port;
      proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Real-IP $remote_addr;
      proxy_set_header X-Request-ID $request_id;
    }}
  }}
}}
"
        )
    }
}
