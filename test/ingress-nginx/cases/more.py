"""Further annotations: regular expressions, URLs as rewrite targets, authentication options, connections, default backends."""

from case import Case, Request, ingress, path
from nginx import location, server

from .access import AUTH_URL, GOOD, SIGN_IN, asked, auth_location
from .rewrites import rewritten

REGEX = "ImplementationSpecific"

CASES = [
    Case("regex-syntax", "syntax.test", [ingress("syntax", "syntax.test", [
        path("/a.b", "api", REGEX), path("/d/\\d+$", "shop", REGEX), path("/w/[^/]+/end", "api", REGEX), path("/opt(ional)?/x", "shop", REGEX),
            path("/(one|two)/.*", "api", REGEX)],
        {"use-regex": "true"})],
         server("syntax.test", location('~* "^/w/[^/]+/end"', "api"), location('~* "^/opt(ional)?/x"', "shop"),
             location('~* "^/(one|two)/.*"', "api"), location('~* "^/d/\\d+$"', "shop"),
                location('~* "^/a.b"', "api"), '        location ~* "^/" { return 404; }'), [
        Request("/a.b"), Request("/axb"), Request("/a/b"), Request("/d/12"), Request("/d/12/"), Request("/d/x"), Request("/w/q/end"),
        Request("/w/q/r/end"), Request("/opt/x"),
        Request("/OPTIONAL/x1"), Request("/two/"), Request("/three/"), Request("/d/12?x=/y"), Request("/w/a%2Fb/end"), Request("/w/%20/end"),
    ]),
    Case("rewrite-to-url", "tourl.test",
        [ingress("tourl", "tourl.test", [path("/go/(.*)", "web", REGEX)], {"rewrite-target": "https://other.example/$1"})],
         server("tourl.test", rewritten("/go/(.*)", "https://other.example/$1"), '        location ~* "^/" { return 404; }'), [
        Request("/go/x"), Request("/go/x?y=1"), Request("/go/a%20b"), Request("/go/", "POST")]),
    Case("rewrite-without-captures", "nocapture.test", [ingress("nocapture", "nocapture.test", [path("/n", "web")], {"rewrite-target": "/$1"})],
         server("nocapture.test", rewritten("/n", "/$1"), '        location ~* "^/" { return 404; }'), [Request("/n"), Request("/n/x?y")]),
    Case("rewrite-with-three-captures", "three.test",
        [ingress("three", "three.test", [path("/(v[0-9])/([^/]+)/?(.*)", "api", REGEX)], {"rewrite-target": "/$2/$1/$3"})],
         server("three.test", rewritten("/(v[0-9])/([^/]+)/?(.*)", "/$2/$1/$3", "api"), '        location ~* "^/" { return 404; }'), [
        Request("/v1/users"), Request("/v1/users/7?x=1"), Request("/V2/users/a/b/"), Request("/v1/"), Request("/v1/u%20v/w%3Fx")]),
    Case("auth-signin-redirect-param", "param.test", [ingress("param", "param.test", annotations={
        "auth-url": AUTH_URL, "auth-signin": "https://login.example/start?a=b", "auth-signin-redirect-param": "back",
        "auth-request-redirect": "https://fixed.example/", "auth-always-set-cookie": "true"})],
         server("param.test", auth_location("p").replace("X-Auth-Request-Redirect $request_uri", "X-Auth-Request-Redirect https://fixed.example/"),
             """        location @signin {
            internal;
            add_header Set-Cookie $auth_cookie;
            return 302 https://login.example/start?a=b&back=$pass_access_scheme://$http_host$escaped_request_uri;
        }""", location("/", "web", asked("p", SIGN_IN).replace("Set-Cookie $auth_cookie;", "Set-Cookie $auth_cookie always;"))), [
        Request("/x?y=1", headers=("X-Auth-Status: 401",)), Request("/x"),
        Request("/x", headers=("X-Auth-Header: Set-Cookie: s=1; Path=/", "X-Web-Status: 404")),
        Request("/x", headers=("X-Auth-Header: Set-Cookie: s=1; Path=/", "X-Auth-Status: 403")),
    ]),
    Case("auth-signin-with-rd", "rd.test", [ingress("rd", "rd.test", annotations={
        "auth-url": AUTH_URL, "auth-signin": "https://$host/oauth2/start?rd=$escaped_request_uri"})],
         server("rd.test", auth_location("r"), """        location @signin {
            internal;
            add_header Set-Cookie $auth_cookie;
            return 302 https://$host/oauth2/start?rd=$escaped_request_uri;
        }""", location("/", "web", asked("r", SIGN_IN))),
            [Request("/x?y=1&z=%20", headers=("X-Auth-Status: 401",)), Request("/", headers=("X-Auth-Status: 401",))]),
    Case("auth-snippet-and-headers", "several.test", [ingress("several", "several.test", annotations={
        "auth-url": AUTH_URL, "auth-response-headers": "X-User, X-Groups,Authorization"})],
         server("several.test", auth_location("v"), location("/", "web", asked("v", "\n            ".join(
             f"auth_request_set $authHeader{nth} $upstream_http_{name.lower().replace('-', '_')};\n            proxy_set_header {name} $authHeader{nth};"
             for nth, name in enumerate(("X-User", "X-Groups", "Authorization")))))), [
        Request("/x",
        headers=("X-Auth-Header: X-User: alice", "X-Auth-Header: X-Groups: a, b", "X-Auth-Header: Authorization: Bearer inner", GOOD)),
            Request("/x", headers=(GOOD,)),
    ]),
    Case("connection-proxy-header", "connection.test",
        [ingress("connection", "connection.test", annotations={"connection-proxy-header": "keep-alive"})],
         server("connection.test", location("/", "web").replace("Connection $connection_upgrade", "Connection keep-alive")), [Request("/x")]),
    Case("proxy-http-version", "old.test", [ingress("old", "old.test", annotations={"proxy-http-version": "1.0"})],
         server("old.test", location("/", "web").replace("proxy_http_version 1.1", "proxy_http_version 1.0")),
             [Request("/x"), Request("/x", "POST", body=10)]),
    Case("default-backend-of-an-ingress", "specdefault.test", [{
        **ingress("specdefault", "specdefault.test", [path("/only", "web")]), "spec": {
            "ingressClassName": "nginx", "rules": [{"host": "specdefault.test", "http": {"paths": [path("/only", "web")]}}]}}],
         server("specdefault.test", location("/only/", "web"), location("= /only", "web"), has_root=False), [Request("/only"), Request("/else")]),
    Case("prefix-with-a-dot", "dots.test",
        [ingress("dots", "dots.test", [path("/a.b", "api"), path("/"), path("/~user", "shop"), path("/x-y_z", "shop")])],
         server("dots.test", location("/", "web"),
             *[location(each, service) for name,
             service in (("a.b", "api"), ("~user", "shop"), ("x-y_z", "shop")) for each in (f"/{name}/", f"= /{name}")]), [
        Request("/a.b"), Request("/axb"), Request("/a.b/c"), Request("/~user/x"), Request("/%7Euser"), Request("/x-y_z"), Request("/x-y"),
    ]),
    Case("x-forwarded-prefix-without-rewrite", "lonely.test", [ingress("lonely", "lonely.test", annotations={"x-forwarded-prefix": "/svc"})],
         server("lonely.test", location("/", "web")), [Request("/x")]),
    Case("relative-redirects", "relative.test",
        [ingress("relative", "relative.test", [path("/dir/", "web", REGEX)], {"relative-redirects": "true"})],
         server("relative.test", location("/dir/", "web", "absolute_redirect off;"), has_root=False), [Request("/dir"), Request("/dir?x")]),
    Case("port-of-a-service-by-name", "byname.test", [{
        **ingress("byname", "byname.test"), "spec": {"ingressClassName": "nginx", "rules": [{"host": "byname.test", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "api", "port": {"name": "http"}}}}]}}]}}],
         server("byname.test", location("/", "api")), [Request("/x")]),
    Case("missing-port", "noport.test", [{
        **ingress("noport", "noport.test"), "spec": {"ingressClassName": "nginx", "rules": [{"host": "noport.test", "http": {"paths": [
            {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "api", "port": {"number": 81}}}}]}}]}}],
         server("noport.test", "        location / { return 503; }"), [Request("/x")]),
]
