"""The order of redirects, access rules and limits of one location."""

from case import Case, Request, ingress, path
from nginx import location, server

from .access import AUTH_URL, BASIC, BASIC_ANNOTATIONS, GOOD, asked, auth_location
from .cors import ORIGIN, PREFLIGHT, cors
from .responses import error_page

ANY = cors("set $http_origin *;\n            set $cors 'true';")
DENIED = "allow 192.0.2.0/24; deny all;"
ELSEWHERE = {"whitelist-source-range": "192.0.2.0/24"}
PAGES = """set $namespace default; set $ingress_name order-pages; set $service_name web; set $service_port 80;
            proxy_intercept_errors on;
            error_page 401 = @custom_401; error_page 403 = @custom_403; error_page 413 = @custom_413; error_page 502 = @custom_502; error_page 503 = @custom_503;"""

CASES = [
    Case("tls-before-access", "tlsaccess.test",
        [ingress("tlsaccess", "tlsaccess.test", annotations={**BASIC_ANNOTATIONS, **ELSEWHERE, "enable-cors": "true"}, tls=True)],
         server("tlsaccess.test", location("/", "web", f"{DENIED}\n            {BASIC}\n            {ANY}", tls=True)), [
        Request("/x"), Request("/x", headers=(GOOD,)), Request("/x", "OPTIONS", headers=PREFLIGHT), Request("/x", tls=True),
        Request("/x", "OPTIONS", headers=PREFLIGHT, tls=True),
        Request("/x", "POST", body=1100000), Request("/x", "POST", body=1100000, tls=True),
    ]),
    Case("tls-and-redirects", "tlsredirect.test", [
        ingress("tlsredirect", "tlsredirect.test", [path("/moved")], {"permanent-redirect": "https://new.example/"}, tls=True, age=9),
        ingress("tlsredirect-root", "tlsredirect.test", [path("/")], {"app-root": "/app"}, tls=True, age=1)],
         server("tlsredirect.test", *[location(each, "web", "return 301 https://new.example/;", tls=True) for each in ("/moved/", "= /moved")],
                location("/", "web", tls=True), extra="if ($uri = /) { return 302 $scheme://$http_host/app; }"), [
        Request("/moved"), Request("/moved/x", tls=True), Request("/"), Request("/", tls=True), Request("/x"),
    ]),
    Case("auth-url-with-cors", "corsurl.test", [ingress("corsurl", "corsurl.test", annotations={"enable-cors": "true", "auth-url": AUTH_URL})],
         server("corsurl.test", auth_location("c"), location("/", "web", f"{ANY}\n            {asked('c')}")), [
        Request("/x", "OPTIONS", headers=PREFLIGHT), Request("/x", headers=(*ORIGIN, "X-Auth-Status: 401")), Request("/x", headers=ORIGIN),
    ]),
    Case("ranges-and-passwords", "both.test", [
        ingress("both-there", "both.test", [path("/there")], {**BASIC_ANNOTATIONS, **ELSEWHERE}, age=1),
        ingress("both-here", "both.test", [path("/")], {**BASIC_ANNOTATIONS, "whitelist-source-range": "127.0.0.1"}, age=9)],
         server("both.test", *[location(each, "web", f"{DENIED}\n            {BASIC}") for each in ("/there/", "= /there")],
                location("/", "web", f"allow 127.0.0.1; deny all;\n            {BASIC}")), [
        Request("/there"), Request("/there", headers=(GOOD,)), Request("/x"), Request("/x", headers=(GOOD,)),
    ]),
    Case("limits-before-access", "limitorder.test",
        [ingress("limitorder", "limitorder.test", annotations={**BASIC_ANNOTATIONS, "limit-rpm": "1", "limit-burst-multiplier": "2"})],
         server("limitorder.test", location("/", "web", f"limit_req zone=order burst=2 nodelay;\n            {BASIC}")),
             [Request("/x", times=5), Request("/x", headers=(GOOD,))],
         http="    limit_req_zone $binary_remote_addr zone=order:5m rate=1r/m;"),
    Case("error-pages-of-the-gateway", "pages.test", [
        ingress("order-pages", "pages.test", [path("/")],
            {"custom-http-errors": "401,403,413,502,503", "default-backend": "errors", **BASIC_ANNOTATIONS}),
        ingress("order-pages-denied", "pages.test", [path("/denied")],
            {"custom-http-errors": "401,403,413,502,503", "default-backend": "errors", **ELSEWHERE}),
        ingress("order-pages-dead", "pages.test", [path("/dead", "dead")],
            {"custom-http-errors": "401,403,413,502,503", "default-backend": "errors"})],
         server("pages.test", *[error_page(code) for code in (401, 403, 413, 502, 503)], location("/", "web", f"{PAGES}\n            {BASIC}"),
                *[location(each, "web", PAGES.replace("order-pages", "order-pages-denied") + f"\n            {DENIED}") for each in ("/denied/",
                "= /denied")],
                *[location(each, "dead",
                PAGES.replace("order-pages", "order-pages-dead").replace("$service_name web", "$service_name dead")) for each in ("/dead/",
                    "= /dead")]), [
        Request("/x"), Request("/x", headers=(GOOD,)), Request("/denied"), Request("/dead"),
        Request("/x", headers=(GOOD, "X-Web-Status: 503")),
    ]),
    Case("snippets-before-access", "early.test", [
        ingress("early", "early.test", [path("/")], {"configuration-snippet": "if ($arg_gone) { return 410; }", **ELSEWHERE})],
         server("early.test", location("/", "web", f"{DENIED}\n            if ($arg_gone) {{ return 410; }}")),
             [Request("/x"), Request("/x?gone=1")]),
]
