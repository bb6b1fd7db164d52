"""Timeouts, sizes of response heads, patterns of cookies and redirects, variables of endpoints, WebSocket and HTTP/1.0."""

from case import Case, Request, ingress, path
from nginx import location, server

from .responses import PADDED

SOCKET = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13"
SENT = "proxy_set_header X-Forwarded-Proto https;\n            proxy_set_header X-Service $service_name;\n            proxy_set_header X-Host $host;"
NAMES = "set $namespace default; set $service_name web; set $service_port 80; set $ingress_name sent;\n            "


def cookie(value: str) -> tuple[str, ...]:
    return (f"X-Web-Header: Set-Cookie: {value}",)


def moved(url: str) -> tuple[str, ...]:
    return ("X-Web-Status: 302", f"X-Web-Header: Location: {url}")


CASES = [
    Case("proxy-read-timeout", "slow.test", [ingress("slow", "slow.test", annotations={"proxy-read-timeout": "1", "proxy-next-upstream": "off"})],
         server("slow.test", location("/", "web").replace("proxy_read_timeout 60s", "proxy_read_timeout 1s").replace(
             "proxy_next_upstream error timeout", "proxy_next_upstream off")), [
        Request("/x"), Request("/x", headers=("X-Web-Delay: 1.5",)), Request("/x", "POST", headers=("X-Web-Delay: 1.5",), body=3),
    ]),
    Case("proxy-buffer-size", "buffer.test", [ingress("buffer", "buffer.test", annotations={"proxy-buffer-size": "8k"})],
         server("buffer.test",
             location("/", "web").replace("proxy_buffer_size 4k", "proxy_buffer_size 8k").replace("proxy_buffers 4 4k", "proxy_buffers 4 8k")), [
        Request("/x", headers=(PADDED, PADDED)), Request("/x", headers=(PADDED, PADDED, PADDED)),
    ]),
    Case("cookie-path-of-the-root", "cookieroot.test", [ingress("cookieroot", "cookieroot.test", annotations={"proxy-cookie-path": "/ /app/"})],
         server("cookieroot.test", location("/", "web", cookie_path="/ /app/")), [
        Request("/x", headers=cookie("a=1; Path=/")), Request("/x", headers=cookie("a=1; Path=/x")), Request("/x", headers=cookie("a=1")),
    ]),
    Case("redirect-patterns", "redirects.test", [
        ingress("redirects", "redirects.test", [path("/re", "web")],
            {"proxy-redirect-from": "~^http://[^/]+:8080/(.*)$", "proxy-redirect-to": "https://$host/$1"}),
        ingress("redirects-default", "redirects.test", [path("/path", "web")], {"proxy-redirect-from": "/inner/", "proxy-redirect-to": "/outer/"})],
         server("redirects.test", *[location(each, "web", redirect=redirect) for name, redirect in (
             ("re", '"~^http://[^/]+:8080/(.*)$" https://$host/$1'), ("path", "/inner/ /outer/")) for each in (f"/{name}/", f"= /{name}")],
             has_root=False), [
        Request("/re", headers=moved("http://x.example:8080/a?b=c")), Request("/re", headers=moved("http://x.example/a")),
        Request("/path", headers=moved("/inner/x")),
        Request("/path", headers=moved("http://x.example/inner/x")), Request("/path", headers=moved("/other")),
    ]),
    Case("upstream-vhost-with-variables", "svc.test",
        [ingress("svc", "svc.test", annotations={"upstream-vhost": "$service_name.$namespace.svc.cluster.local"})],
         server("svc.test", location("/", "web", NAMES, host='"$service_name.$namespace.svc.cluster.local"')), [Request("/x")]),
    Case("headers-by-snippet", "sent.test", [ingress("sent", "sent.test", annotations={"configuration-snippet": SENT})],
         server("sent.test", location("/", "web", NAMES).replace("proxy_redirect off;", "proxy_redirect off;\n            " + SENT)), [
        Request("/x"), Request("/x", headers=("Host: sent.test:81", "X-Service: forged"))]),
    Case("websocket-and-http-1.0", "socket.test", [ingress("socket", "socket.test")], server("socket.test", location("/", "web")), [
        Request("/x", headers=(SOCKET,)), Request("/x", version="HTTP/1.0"), Request("/x", headers=("Connection: keep-alive",), version="HTTP/1.0"),
        Request("/x", "POST", body=3, version="HTTP/1.0"),
        Request("/x", version="HTTP/1.2"), Request("/x", version="HTTP/2.0"), Request("/x", version="HTTP/0.9"), Request("/x", version="HTPP/1.1"),
        Request("/x", version="http/1.1"),
    ]),
    Case("denylist-and-allowlist", "lists.test", [
        ingress("lists", "lists.test", [path("/both", "web")], {"denylist-source-range": "127.0.0.1", "whitelist-source-range": "127.0.0.0/8"}),
        ingress("lists-other", "lists.test", [path("/other", "web")], {"denylist-source-range": "192.0.2.0/24,198.51.100.7"})],
         server("lists.test",
             *[location(each, "web", rules) for name,
             rules in (("both", "deny 127.0.0.1; allow 127.0.0.0/8; deny all;"), ("other", "deny 192.0.2.0/24; deny 198.51.100.7;"))
                                for each in (f"/{name}/", f"= /{name}")], has_root=False, root="deny 127.0.0.1; allow 127.0.0.0/8; deny all;"),
                                    [Request("/both"), Request("/other"), Request("/")]),
]
