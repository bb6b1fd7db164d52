"""Snippets."""

from case import Case, Request, ingress, path
from nginx import location, server

HEADERS = 'add_header X-Added "a $request_method";\n            add_header X-Always b always;\n            more_set_headers "X-More: c" "X-Frame-Options: DENY";\n' \
          "            proxy_hide_header X-Hidden;\n            proxy_set_header X-Sent $uri;"
ROBOTS = 'if ($http_user_agent ~* "(bot|spider)") {\n              return 403;\n            }'
EXPIRES = "expires 1h;\n            more_clear_headers X-Cleared;"
HOST = 'add_header X-Server s always;\n        if ($request_method = TRACE) { return 405; }\n        location = /status { return 200 "up"; }\n        location /private { deny all; }'

CASES = [
    Case("configuration-snippet", "snippet.test", [ingress("snippet", "snippet.test", annotations={"configuration-snippet": HEADERS})],
         server("snippet.test", location("/", "web", HEADERS)), [
        Request("/x"), Request("/x?y", headers=("X-Web-Status: 404",)), Request("/x", headers=("X-Web-Status: 201",)),
        Request("/x", headers=("X-Web-Status: 304",)),
        Request("/x", headers=("X-Web-Header: X-Hidden: 1", "X-Web-Header: X-Frame-Options: SAMEORIGIN", "X-Web-Header: X-Added: own")),
        Request("/a%20b//c"),
        Request("/x", headers=("X-Sent: forged",)), Request("/x", headers=("X-Web-Status: 500",)),
    ]),
    Case("snippet-with-return", "returning.test", [
        ingress("returning", "returning.test", [path("/gone", "web")], {"configuration-snippet": "return 410;"}),
        ingress("returning-text", "returning.test", [path("/text", "web")], {"configuration-snippet": 'return 200 "hello $host";'}),
        ingress("returning-to", "returning.test", [path("/moved", "web")], {"configuration-snippet": "return 302 https://x.example$request_uri;"}),
        ingress("returning-closed", "returning.test", [path("/closed", "web")], {"configuration-snippet": "return 444;"})],
         server("returning.test", *[location(each, "web", text) for name, text in (("gone", "return 410;"), ("text", 'return 200 "hello $host";'),
                ("moved", "return 302 https://x.example$request_uri;"), ("closed", "return 444;")) for each in (f"/{name}/", f"= /{name}")],
                has_root=False), [
        Request("/gone"), Request("/text"), Request("/text", "HEAD"), Request("/moved/a?b"), Request("/closed"), Request("/gone", "POST", body=3),
        Request("/text", "POST", body=3),
    ]),
    Case("snippet-with-conditions", "robots.test", [
        ingress("robots", "robots.test", [path("/")], {"configuration-snippet": ROBOTS}),
        ingress("robots-deny", "robots.test", [path("/deny", "web")], {"configuration-snippet": "deny all;"}),
        ingress("robots-rewrite", "robots.test", [path("/old", "web")], {"configuration-snippet": "rewrite ^/old/(.*)$ /new/$1 redirect;"}),
        ingress("robots-expires", "robots.test", [path("/cached", "web")], {"configuration-snippet": EXPIRES})],
         server("robots.test", location("/", "web", ROBOTS), *[location(each, "web", text) for name, text in (
             ("deny", "deny all;"), ("old", "rewrite ^/old/(.*)$ /new/$1 redirect;"), ("cached", EXPIRES)) for each in (f"/{name}/",
             f"= /{name}")]), [
        Request("/x"), Request("/x", headers=("User-Agent: SpiderBot",)), Request("/deny/x"), Request("/old/a?b=1"), Request("/old"),
        Request("/cached/x"),
        Request("/cached/x", headers=("X-Web-Status: 404",)),
        Request("/cached/x", headers=("X-Web-Header: Cache-Control: no-store", "X-Web-Header: X-Cleared: 1")),
    ]),
    Case("server-snippet", "whole.test", [ingress("whole", "whole.test", annotations={"server-snippet": HOST})],
         server("whole.test", location("/", "web"), extra=HOST), [
        Request("/x"), Request("/status"), Request("/status/x"), Request("/private/x"), Request("/x", headers=("X-Web-Status: 404",)),
        Request("/x", "TRACE"),
    ]),
]
