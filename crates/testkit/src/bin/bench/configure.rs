//! What each program is told, so that all do the same work: two hosts over HTTP and HTTPS, gRPC by its path, five back ends,
//! the same forwarding headers, one worker.

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use serde_json::{Value, json};
use sluicegate_testkit::tls::Issued;

use crate::gateway::{Backends, Certificates, ECDSA, Kind, RSA, SERVICE};

/// Where a gateway listens, what it shows and what is behind it.
pub(crate) struct Site<'a> {
    pub(crate) http: SocketAddr,
    pub(crate) tls: SocketAddr,
    /// For an admin interface, if there has to be one.
    pub(crate) admin: SocketAddr,
    pub(crate) backends: &'a Backends,
    pub(crate) certificates: &'a Certificates,
    /// Where files may be made.
    pub(crate) directory: &'a Path,
}

impl Site<'_> {
    /// What starts a gateway.
    pub(crate) fn command(&self, kind: Kind, program: &Path) -> anyhow::Result<Command> {
        match kind {
            Kind::Sluicegate => self.sluicegate(program),
            Kind::Nginx => nginx(self.directory, "nginx", &self.nginx_proxy()?),
            Kind::Haproxy => self.haproxy(program),
            Kind::Envoy => self.envoy(program),
            Kind::Floor => {
                let mut command = Command::new(program);
                command.arg(self.http.to_string());
                command.args(self.backends.addrs().iter().map(ToString::to_string));
                Ok(command)
            }
        }
    }

    fn sluicegate(&self, program: &Path) -> anyhow::Result<Command> {
        let manifests = self.directory.join("manifests");
        fs::create_dir(&manifests)?;
        let Certificates { rsa, ecdsa } = self.certificates;
        let text = [
            format!(
                "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {{name: bench, namespace: default, annotations: {{sluicegate.dev/ssl-redirect: \"false\"}}}}
spec:
  tls: [{{secretName: rsa}}, {{secretName: ecdsa}}]
  rules:
    - http:
        paths:
          - {{path: /, pathType: Prefix, backend: {{service: {{name: bench, port: {{name: main}}}}}}}}
          - {{path: {SERVICE}, pathType: Prefix, backend: {{service: {{name: unary, port: {{name: main}}}}}}}}
"
            ),
            service("bench", "http", &self.backends.addrs()),
            service("unary", "kubernetes.io/h2c", &self.backends.grpc_addrs()),
            rsa.secret("rsa"),
            ecdsa.secret("ecdsa"),
        ];
        fs::write(manifests.join("bench.yaml"), text.concat())?;
        let mut command = Command::new(program);
        command.arg("serve").arg("--manifests").arg(manifests);
        command.arg("--listen").arg(self.http.to_string()).arg("--listen-https").arg(self.tls.to_string());
        command.arg("--admin").arg(self.admin.to_string()).args(["--workers", "1"]);
        Ok(command)
    }

    fn nginx_proxy(&self) -> anyhow::Result<String> {
        let Self { http, tls, .. } = self;
        let mut text = String::new();
        for (name, addrs) in [("backends", self.backends.addrs()), ("unary", self.backends.grpc_addrs())] {
            let servers: String = addrs.iter().map(|addr| format!("server {addr};\n")).collect();
            writeln!(text, "upstream {name} {{\n{servers}keepalive 256;\nkeepalive_requests 100000000;\n}}")?;
        }
        let Certificates { rsa, ecdsa } = self.certificates;
        // The first one is for who names no host.
        for (name, certificate) in [(RSA, rsa), (ECDSA, ecdsa)] {
            let (chain, key) =
                (self.directory.join(name).with_extension("crt"), self.pem(name, certificate)?);
            fs::write(&chain, &certificate.chain_pem)?;
            let (chain, key) = (chain.display(), key.display());
            let headers = |directive: &str| {
                [
                    "Host $http_host",
                    "X-Forwarded-For $remote_addr",
                    "X-Forwarded-Host $http_host",
                    "X-Forwarded-Port $server_port",
                    "X-Forwarded-Proto $scheme",
                    "X-Real-IP $remote_addr",
                    "X-Request-ID $request_id",
                ]
                .map(|header| format!("{directive} {header};\n"))
                .concat()
            };
            writeln!(
                text,
                "server {{\nlisten {http};\nlisten {tls} ssl http2;\nserver_name {name};\n\
                 ssl_certificate {chain};\nssl_certificate_key {key};\nssl_protocols TLSv1.2 TLSv1.3;\n\
                 location / {{\nproxy_pass http://backends;\nproxy_http_version 1.1;\n\
                 proxy_set_header Connection \"\";\n{}}}\n\
                 location {SERVICE}/ {{\ngrpc_pass grpc://unary;\n{}}}\n}}",
                headers("proxy_set_header"),
                headers("grpc_set_header")
            )?;
        }
        Ok(text)
    }

    fn haproxy(&self, program: &Path) -> anyhow::Result<Command> {
        let Self { http, tls, .. } = self;
        let Certificates { rsa, ecdsa } = self.certificates;
        let (rsa, ecdsa) = (self.pem(RSA, rsa)?, self.pem(ECDSA, ecdsa)?);
        let (rsa, ecdsa) = (rsa.display(), ecdsa.display());
        let servers = |addrs: Vec<SocketAddr>, protocol: &str| -> String {
            let line = |(number, addr)| format!("    server s{number} {addr} {protocol}\n");
            addrs.iter().enumerate().map(line).collect()
        };
        let text = format!(
            "global
    nbthread 1
    maxconn 4096
defaults
    mode http
    timeout connect 60s
    timeout client 75s
    timeout server 60s
    timeout http-request 60s
    timeout http-keep-alive 75s
frontend front
    bind {http}
    bind {tls} ssl crt {rsa} crt {ecdsa} alpn h2,http/1.1
    option forwardfor
    http-request set-header X-Forwarded-Host %[req.hdr(host)]
    http-request set-header X-Forwarded-Port %[dst_port]
    http-request set-header X-Forwarded-Proto http if !{{ ssl_fc }}
    http-request set-header X-Forwarded-Proto https if {{ ssl_fc }}
    http-request set-header X-Real-IP %[src]
    http-request set-header X-Request-ID %[uuid()]
    use_backend unary if {{ path_beg {SERVICE}/ }}
    default_backend back
backend back
    balance roundrobin
    http-reuse always
{}backend unary
    balance roundrobin
    http-reuse always
{}",
            servers(self.backends.addrs(), ""),
            servers(self.backends.grpc_addrs(), "proto h2")
        );
        let path = self.directory.join("haproxy.cfg");
        fs::write(&path, text)?;
        let mut command = Command::new(program);
        command.arg("-db").arg("-q").arg("-f").arg(path);
        Ok(command)
    }

    fn envoy(&self, program: &Path) -> anyhow::Result<Command> {
        let Certificates { rsa, ecdsa } = self.certificates;
        let connections = http_connections();
        let http = json!({
            "name": "http",
            "address": socket(self.http),
            "filter_chains": [{ "filters": [connections] }],
        });
        let secured = |certificate: &Issued| {
            let common = json!({
                "alpn_protocols": ["h2", "http/1.1"],
                "tls_certificates": [{
                    "certificate_chain": { "inline_string": certificate.chain_pem },
                    "private_key": { "inline_string": certificate.key_pem },
                }],
            });
            let tls = "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext";
            json!({ "name": "tls", "typed_config": typed(tls, json!({ "common_tls_context": common })) })
        };
        let inspector = typed("envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector", json!({}));
        let tls = json!({
            "name": "tls",
            "address": socket(self.tls),
            "listener_filters": [{ "name": "tls_inspector", "typed_config": inspector }],
            "filter_chains": [
                {
                    "name": ECDSA,
                    "filter_chain_match": { "server_names": [ECDSA] },
                    "filters": [connections],
                    "transport_socket": secured(ecdsa),
                },
                { "name": RSA, "filters": [connections], "transport_socket": secured(rsa) },
            ],
        });
        let http2 = json!({ "explicit_http_config": { "http2_protocol_options": {} } });
        let clusters = [
            cluster("backends", &self.backends.addrs(), None),
            cluster("unary", &self.backends.grpc_addrs(), Some(http2)),
        ];
        let text = json!({ "static_resources": { "listeners": [http, tls], "clusters": clusters } });
        let path = self.directory.join("envoy.json");
        fs::write(&path, text.to_string())?;
        let mut command = Command::new(program);
        command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]).arg(path);
        Ok(command)
    }

    /// Writes a chain with its key to a file.
    fn pem(&self, name: &str, certificate: &Issued) -> io::Result<PathBuf> {
        let path = self.directory.join(format!("{name}.pem"));
        fs::write(&path, [&*certificate.chain_pem, &*certificate.key_pem].concat())?;
        Ok(path)
    }
}

/// nginx with one worker, which serves this.
pub(crate) fn nginx(directory: &Path, name: &str, http: &str) -> anyhow::Result<Command> {
    let prefix = directory.join(name);
    fs::create_dir(&prefix)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {what}_temp;\n"))
        .concat();
    let text = format!(
        "daemon off;\nworker_processes 1;\npid nginx.pid;\nerror_log stderr crit;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n{temporary}access_log off;\nkeepalive_requests 100000000;\n{http}\n}}\n"
    );
    fs::write(prefix.join("nginx.conf"), text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&prefix).args(["-e", "stderr", "-c", "nginx.conf"]);
    Ok(command)
}

/// A Service and its EndpointSlice, as Sluicegate takes them.
fn service(name: &str, protocol: &str, addrs: &[SocketAddr]) -> String {
    let endpoints: String = addrs.iter().map(|addr| format!("  - addresses: [{}]\n", addr.ip())).collect();
    let port = addrs[0].port();
    format!(
        "---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: default}}
spec:
  ports:
    - {{name: main, port: 80, appProtocol: {protocol}}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: {name}-1
  namespace: default
  labels: {{kubernetes.io/service-name: {name}}}
addressType: IPv4
ports:
  - {{name: main, port: {port}, protocol: TCP}}
endpoints:
{endpoints}"
    )
}

/// Envoy's HTTP, with the routes.
fn http_connections() -> Value {
    let route = |prefix: &str, cluster: &str| json!({ "match": { "prefix": prefix }, "route": { "cluster": cluster, "timeout": "60s" } });
    let header = |(key, value): (&str, &str)| json!({ "header": { "key": key, "value": value }, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD" });
    // X-Forwarded-For, X-Forwarded-Proto and X-Request-ID it adds by itself.
    let headers = [
        ("X-Forwarded-Host", "%REQ(:AUTHORITY)%"),
        ("X-Forwarded-Port", "%DOWNSTREAM_LOCAL_PORT%"),
        ("X-Real-IP", "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%"),
    ]
    .map(header);
    let host = json!({
        "name": "all",
        "domains": ["*"],
        "routes": [route(SERVICE, "unary"), route("/", "backends")],
    });
    let router =
        typed("envoy.extensions.filters.http.router.v3.Router", json!({ "suppress_envoy_headers": true }));
    let manager = json!({
        "stat_prefix": "bench",
        "use_remote_address": true,
        "route_config": { "virtual_hosts": [host], "request_headers_to_add": headers },
        "http_filters": [{ "name": "router", "typed_config": router }],
    });
    let name = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
    json!({ "name": "http", "typed_config": typed(name, manager) })
}

/// Envoy's back ends, with the protocol's options if it is not HTTP/1.1.
fn cluster(name: &str, addrs: &[SocketAddr], protocol: Option<Value>) -> Value {
    let endpoints: Vec<Value> =
        addrs.iter().map(|addr| json!({ "endpoint": { "address": socket(*addr) } })).collect();
    let mut cluster = json!({
        "name": name,
        "type": "STATIC",
        "load_assignment": { "cluster_name": name, "endpoints": [{ "lb_endpoints": endpoints }] },
    });
    if let Some(protocol) = protocol {
        let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
        cluster["typed_extension_protocol_options"] = json!({ options: typed(options, protocol) });
    }
    cluster
}

/// A piece of Envoy's configuration with the name of its type.
fn typed(name: &str, mut value: Value) -> Value {
    value["@type"] = format!("type.googleapis.com/{name}").into();
    value
}

fn socket(addr: SocketAddr) -> Value {
    json!({ "socket_address": { "address": addr.ip().to_string(), "port_value": addr.port() } })
}
