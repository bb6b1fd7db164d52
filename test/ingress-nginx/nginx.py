"""nginx, with the configuration that ingress-nginx generates for the Ingresses of the cases.

The functions give the parts that ingress-nginx writes for every location. Each case states the directives of its annotations itself."""

import subprocess
from pathlib import Path

from process import Program, accepts, free_ports

MODULES = Path("/usr/lib/nginx/modules")
"""The folder of the modules of Debian."""

MAIN = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log info;
{modules}
events {{ worker_connections 1024; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    access_log off;
    default_type text/html;
    server_tokens off;
    more_clear_headers Server;
    client_header_buffer_size 1k;
    large_client_header_buffers 4 8k;
    client_body_buffer_size 8k;
    client_header_timeout 60s;
    client_body_timeout 60s;
    keepalive_timeout 75s;
    underscores_in_headers off;
    ignore_invalid_headers on;
    limit_req_status 503;
    limit_conn_status 503;
    uninitialized_variable_warn off;
    server_name_in_redirect off;
    port_in_redirect off;
    server_names_hash_bucket_size 128;
    variables_hash_max_size 4096;
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}
    map $http_x_request_id $req_id {{ default $http_x_request_id; '' $request_id; }}
    map $scheme $standard_port {{ default 80; https 443; }}
{upstreams}
    server {{
        listen 127.0.0.1:{http} default_server;
        listen 127.0.0.1:{https} default_server ssl;
        server_name _;
        location / {{ return 404; }}
    }}
{servers}
}}
"""

PROXY = """\
            port_in_redirect off;
            set $pass_access_scheme $scheme;
            set $best_http_host $http_host;
            set $pass_port $standard_port;
            {extra}
            client_max_body_size {body_size};
            proxy_set_header Host {host};
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $connection_upgrade;
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Host $best_http_host;
            proxy_set_header X-Forwarded-Port $pass_port;
            proxy_set_header X-Forwarded-Proto $pass_access_scheme;
            proxy_set_header X-Forwarded-Scheme $pass_access_scheme;
            proxy_set_header X-Scheme $pass_access_scheme;
            proxy_set_header X-Original-Forwarded-For $http_x_forwarded_for;
            proxy_set_header Proxy "";
            proxy_connect_timeout 5s;
            proxy_send_timeout 60s;
            proxy_read_timeout 60s;
            proxy_buffering off;
            proxy_buffer_size 4k;
            proxy_buffers 4 4k;
            proxy_request_buffering on;
            proxy_http_version 1.1;
            proxy_cookie_domain {cookie_domain};
            proxy_cookie_path {cookie_path};
            proxy_next_upstream error timeout;
            proxy_next_upstream_timeout 0;
            proxy_next_upstream_tries 3;
            proxy_redirect {redirect};
            proxy_pass http://{service};
"""

TO_HTTPS = """\
rewrite_by_lua_block {
                if ngx.var.pass_access_scheme == "http" then
                    local uri = ngx.var.request_uri
                    if uri:sub(-1) == "/" then uri = uri:sub(1, -2) end
                    local host = ngx.re.match(ngx.var.best_http_host or ngx.var.host, "^[^:]*")[0]
                    return ngx.redirect("https://" .. host .. uri, 308)
                end
            }
"""
"""The redirect of `ssl-redirect` and `force-ssl-redirect`."""

HSTS = """\
header_filter_by_lua_block {
                if ngx.var.scheme == "https" then
                    ngx.header["Strict-Transport-Security"] = "max-age=31536000; includeSubDomains"
                end
            }
"""


def server(hosts: str, *locations: str, extra: str = "", has_root: bool = True, root: str = "") -> str:
    """Returns a server. ingress-nginx adds the location / of the default backend to a server without one, with the annotations of the oldest
    Ingress of the host: `root`."""
    root = [] if has_root else [f"        location / {{\n            {root}\n            try_files /none =404;\n        }}"]
    return "\n".join(["    server {", "        listen 127.0.0.1:@HTTP@;", "        listen 127.0.0.1:@HTTPS@ ssl;",
                      f"        server_name {hosts};", f"        {extra}", *locations, *root, "    }"])


def location(path: str, service: str, extra: str = "", *, tls: bool = False, ssl_redirect: bool | None = None, host: str = "$best_http_host",
             body_size: str = "1m", cookie_path: str = "off", cookie_domain: str = "off", redirect: str = "off") -> str:
    """Returns a location that passes requests to a Service. `tls` is for a host with a certificate of its own."""
    if tls if ssl_redirect is None else ssl_redirect:
        extra += "\n            " + TO_HTTPS
    if tls:
        extra += "\n            " + HSTS
    text = PROXY.format(extra=extra, host=host, body_size=body_size, cookie_path=cookie_path, cookie_domain=cookie_domain,
                        redirect=redirect, service=service)
    return f"        location {path} {{\n{text}        }}"


class Nginx:
    """A running nginx with the servers of all cases."""

    def __init__(self, folder: Path, http_parts: str, servers: str, ports: dict[str, int], certificate: Path, key: Path) -> None:
        self.http, self.https = free_ports(2)
        # Two servers of one process may listen on one address, and `nginx -t` may not: the ports are free.
        upstreams = "\n".join(f"    upstream {name} {{ server 127.0.0.1:{port}; keepalive 16; }}" for name, port in ports.items())
        modules = "\n".join(f"load_module {MODULES / name};" for name in (
            "ndk_http_module.so", "ngx_http_lua_module.so", "ngx_http_headers_more_filter_module.so"))
        text = MAIN.format(folder=folder, modules=modules, upstreams=upstreams + "\n" + http_parts, servers=servers, http=self.http,
                           https=self.https, certificate=certificate, key=key)
        text = text.replace("@HTTP@", str(self.http)).replace("@HTTPS@", str(self.https)).replace("@FOLDER@", str(folder))
        for name, port in ports.items():
            text = text.replace(f"@{name}@", str(port))
        config = folder / "nginx.conf"
        config.write_text(text)
        command = ["nginx", "-p", str(folder), "-c", str(config), "-e", str(folder / "error.log")]
        tested = subprocess.run([*command, "-t"], capture_output=True, text=True)
        if tested.returncode:
            raise RuntimeError(f"nginx rejects {config}:\n{tested.stderr}")
        self.program = Program(command, folder / "output.log", lambda: accepts(self.http) and accepts(self.https))

    def stop(self) -> None:
        self.program.stop()
