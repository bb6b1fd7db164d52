"""Responses of endpoints: error pages, sizes, cookies, redirects, added headers."""

from case import Case, Request, ingress, path
from nginx import location, server


def error_page(code: int) -> str:
    return f"""        location @custom_{code} {{
            internal;
            proxy_intercept_errors off;
            proxy_set_header X-Code {code};
            proxy_set_header X-Format $http_accept;
            proxy_set_header X-Original-URI $request_uri;
            proxy_set_header X-Namespace $namespace;
            proxy_set_header X-Ingress-Name $ingress_name;
            proxy_set_header X-Service-Name $service_name;
            proxy_set_header X-Service-Port $service_port;
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header Host $best_http_host;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            rewrite (.*) / break;
            proxy_pass http://errors;
        }}"""


INTERCEPTED = """set $namespace default; set $ingress_name errors; set $service_name web; set $service_port 80;
            proxy_intercept_errors on;
            error_page 404 = @custom_404;
            error_page 503 = @custom_503;"""

CUSTOM = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "custom", "namespace": "default"}, "data": {"X-Custom": "one $uri"}}
PADDED = "X-Web-Header: X-Pad-To: " + "p" * 3000

CASES = [
    Case("custom-http-errors", "errors.test",
        [ingress("errors", "errors.test", annotations={"custom-http-errors": "404,503", "default-backend": "errors"})],
         server("errors.test", error_page(404), error_page(503), location("/", "web", INTERCEPTED)), [
        Request("/x?y=1"), Request("/x?y=1", headers=("X-Web-Status: 404", "Accept: text/html")),
        Request("/x", headers=("X-Web-Status: 503", "X-Errors-Status: 503")),
        Request("/x", headers=("X-Web-Status: 500",)), Request("/x", "HEAD", headers=("X-Web-Status: 404",)),
        Request("/x", headers=("X-Web-Status: 404", "X-Errors-Status: 404", "X-Errors-Header: X-Page: yes", "X-Web-Header: X-Original: no")),
    ]),
    Case("no-endpoint", "none.test", [ingress("none", "none.test", [path("/", "empty")])], server(
        "none.test", "        location / { return 503; }"), [Request("/x"), Request("/x", "POST", body=4)]),
    Case("no-endpoint-with-default-backend", "fallback.test",
        [ingress("fallback", "fallback.test", [path("/", "empty")], {"default-backend": "errors"})],
         server("fallback.test",
             location("/", "errors", """set $namespace default; set $ingress_name fallback; set $service_name empty; set $service_port 80;
            proxy_set_header X-Code 503;
            proxy_set_header X-Format $http_accept;
            proxy_set_header X-Namespace $namespace;
            proxy_set_header X-Ingress-Name $ingress_name;
            proxy_set_header X-Service-Name $service_name;
            proxy_set_header X-Service-Port $service_port;""")), [Request("/x?y", headers=("Accept: text/html",)), Request("/x", "POST", body=4)]),
    Case("dead-endpoint", "dead.test", [ingress("dead", "dead.test", [path("/", "dead")])], server("dead.test", location("/", "dead")), [
        Request("/x"), Request("/x", "POST", body=4)]),
    Case("missing-service", "gone.test", [ingress("gone", "gone.test", [path("/", "missing")])], server(
        "gone.test", "        location / { return 503; }"), [Request("/x")]),
    Case("proxy-body-size", "body.test", [
        ingress("body", "body.test", [path("/small", "web")], {"proxy-body-size": "1k"}),
            ingress("body-any", "body.test", [path("/any", "web")], {"proxy-body-size": "0"}),
        ingress("body-default", "body.test", [path("/", "web")])],
         server("body.test", location("/small/", "web", body_size="1k"), location("= /small", "web", body_size="1k"),
                location("/any/", "web", body_size="0"), location("= /any", "web", body_size="0"), location("/", "web")), [
        Request("/small", "POST", body=1024), Request("/small", "POST", body=1025), Request("/x", "POST", body=1048576),
        Request("/x", "POST", body=1048577), Request("/any", "PUT", body=1500000), Request("/small", "GET", body=2000),
        Request("/small", "POST", headers=("Transfer-Encoding: chunked",), body=-2000),
        Request("/small", "POST", headers=("Transfer-Encoding: chunked",), body=-100),
    ]),
    Case("custom-headers", "custom.test", [CUSTOM, ingress("custom", "custom.test", annotations={"custom-headers": "default/custom"})],
         server("custom.test",
             location("/", "web",
                 "set_by_lua_block $literal_dollar { return '$' }\n            more_set_headers 'X-Custom: one ${literal_dollar}uri';")), [
        Request("/x"), Request("/x", headers=("X-Web-Status: 500",)), Request("/x", headers=("X-Web-Header: X-Custom: two",)),
    ]),
    Case("proxy-cookie-path", "cookies.test", [
        ingress("cookies", "cookies.test", [path("/path", "web")], {"proxy-cookie-path": "/one/ /two/"}),
        ingress("cookies-domain", "cookies.test", [path("/domain", "web")], {"proxy-cookie-domain": "inner.example outer.example"})],
         server("cookies.test", *[location(each, "web", cookie_path="/one/ /two/") for each in ("/path/", "= /path")],
                *[location(each, "web", cookie_domain="inner.example outer.example") for each in ("/domain/", "= /domain")], has_root=False), [
        Request("/path", headers=("X-Web-Header: Set-Cookie: a=1; Path=/one/deep; HttpOnly",)),
        Request("/path", headers=("X-Web-Header: Set-Cookie: a=1; Path=/other",)),
        Request("/path", headers=("X-Web-Header: Set-Cookie: a=1; path=/one/", "X-Web-Header: Set-Cookie: b=2; Path=/one")),
        Request("/domain", headers=("X-Web-Header: Set-Cookie: a=1; Domain=inner.example; Secure",)),
        Request("/domain", headers=("X-Web-Header: Set-Cookie: a=1; Domain=.inner.example",)),
        Request("/domain", headers=("X-Web-Header: Set-Cookie: a=1; Domain=x.inner.example",)),
    ]),
    Case("proxy-redirect", "moved.test", [
        ingress("moved", "moved.test", [path("/to", "web")],
            {"proxy-redirect-from": "http://inner.example/", "proxy-redirect-to": "https://outer.example/app/"}),
        ingress("moved-off", "moved.test", [path("/off", "web")])],
         server("moved.test", *[location(each, "web", redirect="http://inner.example/ https://outer.example/app/") for each in ("/to/", "= /to")],
                *[location(each, "web") for each in ("/off/", "= /off")], has_root=False), [
        *[Request("/to", headers=("X-Web-Status: 302", f"X-Web-Header: Location: {url}")) for url in (
            "http://inner.example/x?y=1", "http://other.example/", "/x", "http://inner.example")],
        Request("/to", headers=("X-Web-Status: 201", "X-Web-Header: Location: http://inner.example/made")),
        Request("/to", headers=("X-Web-Header: Refresh: 5; url=http://inner.example/x",)),
        Request("/off", headers=("X-Web-Status: 302", "X-Web-Header: Location: http://moved.test/x")),
        Request("/off", headers=("X-Web-Status: 301", "X-Web-Header: Location: relative")),
    ]),
    Case("responses-of-endpoints", "endpoint.test", [ingress("endpoint", "endpoint.test", [path("/"), path("/inner", "api")])], server(
        "endpoint.test", location("/", "web"), location("/inner/", "api"), location("= /inner", "api")), [
        *[Request("/x", headers=(f"X-Web-Status: {status}",)) for status in (204, 304, 400, 404, 418, 500, 502, 503, 504, 599)],
        *[Request("/x", headers=(f"X-Web-Header: {line}",)) for line in (
            "Server: inner", "X-Powered-By: x", "X-Accel-Expires: 10", "X-Accel-Buffering: yes", "Set-Cookie: a=1; Path=/; Secure; SameSite=Lax",
            "Cache-Control: no-store", "Vary: Accept", "ETag: \"abc\"", "Content-Encoding: identity", "Upgrade: h2c", "Keep-Alive: timeout=5",
            "X-Empty:",
            "Via: 1.1 inner", "Date: Mon, 01 Jan 2024 00:00:00 GMT", "X-Request-ID: inner", "Strict-Transport-Security: max-age=1", "Alt-Svc: h3",
            "X-Pad: x", "Under_Score: x", "Refresh: 5")],
        Request("/x", headers=("X-Web-Header: Set-Cookie: a=1", "X-Web-Header: Set-Cookie: b=2")), Request("/x", headers=(PADDED,)),
        Request("/x", headers=(PADDED, PADDED)),
        Request("/x", headers=("X-Web-Header: X-Accel-Redirect: /inner",)),
        Request("/x", headers=("X-Web-Header: Accept-Ranges: bytes", "Range: bytes=0-3")),
        Request("/x", headers=("If-None-Match: \"abc\"", "X-Web-Header: ETag: \"abc\"")),
    ]),
]
