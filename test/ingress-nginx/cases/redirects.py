"""Redirects to URLs, to HTTPS and between hosts, and aliases of hosts."""

from case import Case, Request, ingress, path
from nginx import location, server


def to_host(from_host: str, to: str) -> str:
    """Returns the server of `from-to-www-redirect`."""
    return server(from_host, extra="""set_by_lua_block $redirect_to {
            local uri = ngx.var.request_uri
            if uri:sub(-1) == "/" then uri = uri:sub(1, -2) end
            return ngx.var.scheme .. "://""" + to + """" .. uri
        }
        return 308 $redirect_to;""")


CASES = [
    Case("permanent-redirect", "permanent.test", [
        ingress("permanent", "permanent.test", [path("/old", "web")], {"permanent-redirect": "https://new.example/landing"}, age=9),
        ingress("permanent-code", "permanent.test", [path("/coded", "web")],
            {"permanent-redirect": "https://new.example$request_uri", "permanent-redirect-code": "308"})],
         server("permanent.test", *[location(each, "web", f"return {code} {url};") for each, code, url in (
             ("/old/", 301, "https://new.example/landing"), ("= /old", 301, "https://new.example/landing"),
             ("/coded/", 308, "https://new.example$request_uri"), ("= /coded", 308, "https://new.example$request_uri"))],
                has_root=False, root="return 301 https://new.example/landing;"), [
        Request("/old"), Request("/old/x?y=1"), Request("/coded/a%20b?x=1"), Request("/old", "POST"), Request("/old", "HEAD"), Request("/other"),
    ]),
    Case("temporal-redirect", "temporal.test", [
        ingress("temporal", "temporal.test", [path("/now", "web")], {"temporal-redirect": "https://now.example/x"}, age=9),
        ingress("temporal-code", "temporal.test", [path("/coded", "web")],
            {"temporal-redirect": "https://now.example/", "temporal-redirect-code": "307"})],
         server("temporal.test", *[location(each, "web", f"return {code} {url};") for each, code, url in (
             ("/now/", 302, "https://now.example/x"), ("= /now", 302, "https://now.example/x"),
             ("/coded/", 307, "https://now.example/"), ("= /coded", 307, "https://now.example/"))],
                has_root=False, root="return 302 https://now.example/x;"), [
        Request("/now"), Request("/now/x?y"), Request("/other"), Request("/coded", "POST"),
    ]),
    Case("tls", "tls.test", [ingress("tls", "tls.test", [path("/"), path("/api", "api")], tls=True)],
         server("tls.test", location("/", "web", tls=True), location("/api/", "api", tls=True), location("= /api", "api", tls=True)), [
        Request("/"), Request("/x"), Request("/x/"), Request("/api/?x=1"), Request("/x?y=/"), Request("/", "POST"), Request("/", "HEAD"),
        Request("//x//y/"), Request("/x", headers=("Host: tls.test:8080",)), Request("/x", host="TLS.test"),
        Request("/.well-known/acme-challenge/token"), Request("/x", headers=("X-Forwarded-Proto: https",)),
        Request("/", tls=True), Request("/api/x?y=1", tls=True), Request("/", tls=True, headers=("X-Web-Status: 500",)),
        Request("/x", tls=True, headers=("X-Web-Header: Strict-Transport-Security: max-age=1",)), Request("/x", tls=True, host="prefix.test"),
    ]),
    Case("acme-path", "acme.test", [ingress("acme", "acme.test", [path("/"), path("/.well-known/acme-challenge/token", "api", "Exact")], tls=True)],
         server("acme.test", location("/", "web", tls=True), location("= /.well-known/acme-challenge/token", "api", tls=True, ssl_redirect=False)),
             [
        Request("/.well-known/acme-challenge/token"), Request("/.well-known/acme-challenge/other"),
        Request("/.well-known/acme-challenge/token", tls=True),
    ]),
    Case("ssl-redirect-off", "plain.test", [ingress("plain", "plain.test", annotations={"ssl-redirect": "false"}, tls=True)],
         server("plain.test", location("/", "web", tls=True, ssl_redirect=False)), [Request("/x"), Request("/x", tls=True)]),
    Case("force-ssl-redirect", "force.test", [ingress("force", "force.test", annotations={"force-ssl-redirect": "true"})],
         server("force.test", location("/", "web", ssl_redirect=True)), [
        Request("/x/?y=1"), Request("/"), Request("/x", headers=("X-Forwarded-Proto: https",)), Request("/x", tls=True),
    ]),
    Case("preserve-trailing-slash", "preserve.test", [ingress("preserve", "preserve.test", annotations={
        "force-ssl-redirect": "true", "preserve-trailing-slash": "true"})],
         server("preserve.test", location("/", "web", """rewrite_by_lua_block {
                if ngx.var.scheme == "http" then return ngx.redirect("https://preserve.test" .. ngx.var.request_uri, 308) end
            }""")), [Request("/x/"), Request("/"), Request("/x")]),
    Case("from-to-www-redirect", "bare.test", [ingress("bare", "bare.test", annotations={"from-to-www-redirect": "true"})],
         server("bare.test", location("/", "web")) + "\n" + to_host("www.bare.test", "bare.test"), [
        Request("/x"), Request("/x?y=1", host="www.bare.test"), Request("/x/", host="www.bare.test"), Request("/", host="www.bare.test"),
        Request("/x", host="www.bare.test:8080"), Request("/x", "POST", host="www.bare.test"), Request("/x", host="WWW.bare.test"),
    ]),
    Case("from-www-redirect", "www.full.test", [ingress("full", "www.full.test", annotations={"from-to-www-redirect": "true"})],
         server("www.full.test", location("/", "web")) + "\n" + to_host("full.test", "www.full.test"), [
        Request("/x"), Request("/x", host="full.test"), Request("/x", host="full.test", tls=True),
    ]),
    Case("server-alias", "named.test", [ingress("named", "named.test", annotations={"server-alias": "alias.test,*.alias.test"})],
         server("named.test alias.test *.alias.test", location("/", "web")), [
        Request("/x"), Request("/x", host="alias.test"), Request("/x", host="a.alias.test"), Request("/x", host="other-alias.test"),
    ]),
]
