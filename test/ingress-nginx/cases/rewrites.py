"""Rewrites of paths, and names of hosts and prefixes for endpoints."""

from case import Case, Request, ingress, path
from nginx import location, server


def rewritten(pattern: str, target: str, service: str = "web", more: str = "") -> str:
    return location(f'~* "^{pattern}"', service, f'rewrite "(?i){pattern}" {target} break;\n            {more}')


REST = "/svc(/|$)(.*)"

CASES = [
    Case("rewrite-target", "rewrite.test", [ingress("rewrite", "rewrite.test", [path(REST, "api", "ImplementationSpecific")],
                                                    {"rewrite-target": "/$2"})],
         server("rewrite.test", rewritten(REST, "/$2", "api"), '        location ~* "^/" { return 404; }'), [
        Request("/svc"), Request("/svc/"), Request("/svc/a/b"), Request("/svc/a?x=1&y=%20"), Request("/SVC/a"), Request("/svcx"),
        Request("/a/svc/b"),
        Request("/svc/a%20b"), Request("/svc/a%2Fb"), Request("/svc/%C3%A4"), Request("/svc//a"), Request("/svc/../x"), Request("/svc/a%3Fb"),
        Request("/svc/a%25b"), Request("/svc/a+b"), Request("/svc/?"), Request("/svc/a;b=c"), Request("/svc/a%0Ab"), Request('/svc/a"b'),
        Request("/svc/a:b@c!$&'()*,="),
    ]),
    Case("rewrite-to-fixed-path", "fixed.test", [ingress("fixed", "fixed.test", [path("/old", "web")], {"rewrite-target": "/new/"})],
         server("fixed.test", rewritten("/old", "/new/"), '        location ~* "^/" { return 404; }'), [
        Request("/old"), Request("/old/x/y"), Request("/older?x=1"), Request("/x/old"), Request("/"),
    ]),
    Case("rewrite-with-query", "query.test", [ingress("query", "query.test", [path("/q/(.*)", "web", "ImplementationSpecific")],
                                                      {"rewrite-target": "/search?term=$1"})],
         server("query.test", rewritten("/q/(.*)", "/search?term=$1"), '        location ~* "^/" { return 404; }'), [
        Request("/q/shoes"), Request("/q/shoes?page=2"), Request("/q/a%20b"), Request("/q/a%26b"), Request("/q/"),
    ]),
    Case("rewrite-of-the-root", "root.test",
        [ingress("root", "root.test", [path("/(.*)", "web", "ImplementationSpecific")], {"rewrite-target": "/base/$1"})],
         server("root.test", rewritten("/(.*)", "/base/$1")), [Request("/"), Request("/x?y"), Request("//x"), Request("/x/")]),
    Case("rewrite-equal-to-path", "equal.test", [ingress("equal", "equal.test", [path("/same", "web")], {"rewrite-target": "/same"})],
         server("equal.test", location("/same/", "web"), location("= /same", "web"), has_root=False), [
        Request("/same"), Request("/same/x"), Request("/samex"),
    ]),
    Case("app-root", "approot.test", [ingress("approot", "approot.test", [path("/")], {"app-root": "/app"})],
         server("approot.test", location("/", "web"), extra="if ($uri = /) { return 302 $scheme://$http_host/app; }"), [
        Request("/"), Request("/?x=1"), Request("//"), Request("/app"), Request("/", "POST"), Request("/", headers=("Host: approot.test:81",)),
    ]),
    Case("x-forwarded-prefix", "xprefix.test", [ingress("xprefix", "xprefix.test", [path(REST, "api", "ImplementationSpecific")],
                                                        {"rewrite-target": "/$2", "x-forwarded-prefix": "/svc"})],
         server("xprefix.test", rewritten(REST, "/$2", "api", 'proxy_set_header X-Forwarded-Prefix "/svc";'),
             '        location ~* "^/" { return 404; }'), [
        Request("/svc/a"), Request("/svc/a", headers=("X-Forwarded-Prefix: /forged",)),
    ]),
    Case("upstream-vhost", "vhost.test", [ingress("vhost", "vhost.test", annotations={"upstream-vhost": "internal.example"})],
         server("vhost.test", location("/", "web", host='"internal.example"')), [Request("/x"), Request("/x", headers=("Host: vhost.test:8080",))]),
]
