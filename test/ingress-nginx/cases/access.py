"""Source ranges, passwords, external authentication, limits."""

from case import Case, Request, ingress, path
from nginx import location, server

USERS = "alice:{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=\n"
"""The password of alice is myPassword."""
GOOD, BAD, UNKNOWN = (f"Authorization: Basic {each}" for each in ("YWxpY2U6bXlQYXNzd29yZA==", "YWxpY2U6d3Jvbmc=", "Ym9iOm15UGFzc3dvcmQ="))
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users", "namespace": "default"}, "stringData": {"auth": USERS}}
BASIC = 'auth_basic "The shop";\n            auth_basic_user_file @FOLDER@/users;\n            proxy_set_header Authorization "";'
BASIC_ANNOTATIONS = {"auth-type": "basic", "auth-secret": "users", "auth-realm": "The shop"}


def auth_location(name: str, more: str = "") -> str:
    return f"""        location = /_external-auth-{name} {{
            internal;
            proxy_pass_request_body off;
            proxy_set_header Content-Length "";
            proxy_set_header X-Forwarded-Proto "";
            proxy_set_header X-Request-ID $req_id;
            proxy_set_header Host 127.0.0.1;
            proxy_set_header X-Original-URL $scheme://$http_host$request_uri;
            proxy_set_header X-Original-Method $request_method;
            proxy_set_header X-Sent-From "nginx-ingress-controller";
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Auth-Request-Redirect $request_uri;
            proxy_buffering off;
            proxy_buffer_size 4k;
            proxy_buffers 4 4k;
            proxy_request_buffering on;
            proxy_ssl_server_name on;
            proxy_pass_request_headers on;
            client_max_body_size 1m;
            proxy_http_version 1.1;
            {more}
            set $target http://127.0.0.1:@auth@/check;
            proxy_pass $target;
        }}"""


def asked(name: str, more: str = "") -> str:
    return f"""auth_request /_external-auth-{name};
            auth_request_set $auth_cookie $upstream_http_set_cookie;
            add_header Set-Cookie $auth_cookie;
            {more}"""


RESPONSE_HEADERS = """auth_request_set $authHeader0 $upstream_http_x_user;
            proxy_set_header X-User $authHeader0;"""
SIGN_IN = """set_by_lua_block $escaped_request_uri { return ngx.escape_uri(ngx.var.request_uri) }
            error_page 401 = @signin;"""
AUTH_URL = "http://127.0.0.1:@auth@/check"
OK = "X-Auth-Header: X-User: alice"

CASES = [
    Case("allowlist-source-range", "allow.test", [
        ingress("allow-here", "allow.test", [path("/here", "web")], {"whitelist-source-range": "10.0.0.0/8,127.0.0.1/32"}, age=9),
        ingress("allow-there", "allow.test", [path("/there", "web")], {"allowlist-source-range": "192.0.2.0/24"}),
        ingress("deny-here", "allow.test", [path("/denied", "web")], {"denylist-source-range": "127.0.0.0/8"})],
         server("allow.test", *[location(each, "web", rules) for name, rules in (
             ("here", "allow 10.0.0.0/8; allow 127.0.0.1/32; deny all;"), ("there", "allow 192.0.2.0/24; deny all;"),
             ("denied", "deny 127.0.0.0/8;")) for each in (f"/{name}/", f"= /{name}")],
                has_root=False, root="allow 10.0.0.0/8; allow 127.0.0.1/32; deny all;"), [
        Request("/here"), Request("/other"), Request("/there"), Request("/there", headers=("X-Forwarded-For: 192.0.2.7",)), Request("/denied/x"),
        Request("/there", "OPTIONS"),
    ]),
    Case("basic-authentication", "basic.test", [SECRET, ingress("basic", "basic.test", annotations=BASIC_ANNOTATIONS)],
         server("basic.test", location("/", "web", BASIC)), [
        Request("/x"), Request("/x", headers=(GOOD,)), Request("/x", headers=(BAD,)), Request("/x", headers=(UNKNOWN,)),
        Request("/x", headers=("Authorization: Bearer abc",)), Request("/x", headers=("Authorization: Basic !!!",)), Request("/x", "HEAD"),
        Request("/x", "OPTIONS"), Request("/x", headers=("authorization: basic YWxpY2U6bXlQYXNzd29yZA==",)),
    ]),
    Case("satisfy-any", "satisfy.test", [
        ingress("satisfy-here", "satisfy.test", [path("/here", "web")],
            {**BASIC_ANNOTATIONS, "satisfy": "any", "whitelist-source-range": "127.0.0.1/32"}),
        ingress("satisfy-there", "satisfy.test", [path("/there", "web")],
            {**BASIC_ANNOTATIONS, "satisfy": "any", "whitelist-source-range": "192.0.2.0/24"}),
        ingress("satisfy-all", "satisfy.test", [path("/all", "web")], {**BASIC_ANNOTATIONS, "whitelist-source-range": "192.0.2.0/24"}, age=9)],
         server("satisfy.test", *[location(each, "web", f"{rules}\n            {BASIC}") for name, rules in (
             ("here", "satisfy any; allow 127.0.0.1/32; deny all;"), ("there", "satisfy any; allow 192.0.2.0/24; deny all;"),
             ("all", "allow 192.0.2.0/24; deny all;")) for each in (f"/{name}/", f"= /{name}")],
                has_root=False, root="allow 192.0.2.0/24; deny all;\n            " + BASIC), [
        Request("/here"), Request("/here", headers=(BAD,)), Request("/other"), Request("/other", headers=(GOOD,)), Request("/there"),
        Request("/there", headers=(GOOD,)), Request("/there", headers=(BAD,)),
        Request("/all"), Request("/all", headers=(GOOD,)),
    ]),
    Case("auth-url", "authurl.test", [ingress("authurl", "authurl.test", annotations={"auth-url": AUTH_URL, "auth-response-headers": "X-User"})],
         server("authurl.test", auth_location("a"), location("/", "web", asked("a", RESPONSE_HEADERS))), [
        Request("/x?y=1", headers=(OK, "Cookie: a=b")), Request("/x", headers=("X-User: forged",)),
        Request("/x", headers=("X-Auth-Status: 204", OK)),
        Request("/x", headers=("X-Auth-Status: 401", "X-Auth-Header: WWW-Authenticate: Bearer realm=\"x\"")),
        Request("/x", headers=("X-Auth-Status: 403",)),
        Request("/x", headers=("X-Auth-Status: 500",)), Request("/x", headers=("X-Auth-Status: 302", "X-Auth-Header: Location: /login")),
        Request("/x", headers=("X-Auth-Status: 404",)), Request("/x", headers=("X-Auth-Header: Set-Cookie: s=1; Path=/",)),
        Request("/x", headers=("X-Auth-Status: 401", "X-Auth-Header: Set-Cookie: s=1; Path=/")),
        Request("/x", headers=("X-Auth-Header: Set-Cookie: s=1; Path=/", "X-Web-Status: 404")), Request("/x", "POST", body=10),
        Request("/x", "HEAD"),
        Request("/x", "OPTIONS"), Request("//x/../y?z"), Request("/x", headers=("Host: authurl.test:8080",)),
        Request("/x", headers=("X-Forwarded-For: 192.0.2.7", "X-Original-URL: http://forged/", "Authorization: Bearer t")),
        Request("/x", headers=("X-Auth-Header: X-User: alice", "X-Auth-Header: Location: /elsewhere")),
    ]),
    Case("auth-signin", "signin.test", [ingress("signin", "signin.test", annotations={
        "auth-url": AUTH_URL, "auth-signin": "https://login.example/start"})],
         server("signin.test", auth_location("s"), """        location @signin {
            internal;
            add_header Set-Cookie $auth_cookie;
            return 302 https://login.example/start?rd=$pass_access_scheme://$http_host$escaped_request_uri;
        }""", location("/", "web", asked("s", SIGN_IN))), [
        Request("/x"), Request("/cart?id=1&b=a%20b", headers=("X-Auth-Status: 401",)), Request("/x", headers=("X-Auth-Status: 403",)),
        Request("/x", headers=("X-Auth-Status: 401", "X-Auth-Header: Set-Cookie: s=1; Path=/; HttpOnly")),
        Request("/x", "POST", headers=("X-Auth-Status: 401",)),
        Request("/x", headers=("X-Auth-Status: 401", "Host: signin.test:8080")), Request("/x", headers=("X-Web-Status: 401",)),
        Request("/x", headers=("X-Auth-Status: 500",)),
    ]),
    Case("auth-method", "method.test", [ingress("method", "method.test", annotations={"auth-url": AUTH_URL, "auth-method": "POST"})],
         server("method.test", auth_location("m", """proxy_method POST;
            proxy_set_header X-Original-URI $request_uri;
            proxy_set_header X-Scheme $pass_access_scheme;"""), location("/", "web", asked("m"))),
                [Request("/x?y=1"), Request("/x", "PUT", body=3)]),
    Case("auth-without-service", "noauth.test", [ingress("noauth", "noauth.test", annotations={"auth-url": "http://127.0.0.1:1/check"})],
         server("noauth.test", auth_location("n").replace("@auth@", "1"), location("/", "web", asked("n"))), [Request("/x")]),
    Case("missing-secret", "closed.test", [ingress("closed", "closed.test", annotations={"auth-type": "basic", "auth-secret": "missing"})],
         server("closed.test", "        location / { return 503; }"), [Request("/x"), Request("/x", headers=(GOOD,))]),
    Case("limit-rps", "rps.test", [ingress("rps", "rps.test", annotations={"limit-rps": "1"})],
         server("rps.test", location("/", "web", "limit_req zone=rps burst=5 nodelay;")), [Request("/x", times=8)],
         http="    limit_req_zone $binary_remote_addr zone=rps:5m rate=1r/s;"),
    Case("limit-rpm", "rpm.test", [ingress("rpm", "rpm.test", annotations={"limit-rpm": "6", "limit-burst-multiplier": "1"})],
         server("rpm.test", location("/", "web", "limit_req zone=rpm burst=6 nodelay;")), [Request("/x", times=9)],
         http="    limit_req_zone $binary_remote_addr zone=rpm:5m rate=6r/m;"),
    Case("limit-allowlist", "unlimited.test",
        [ingress("unlimited", "unlimited.test", annotations={"limit-rps": "1", "limit-whitelist": "127.0.0.1/32"})],
         server("unlimited.test", location("/", "web", "limit_req zone=unlimited burst=5 nodelay;")), [Request("/x", times=9)],
         http="    geo $remote_addr $unlimited { default 0; 127.0.0.1/32 1; }\n    map $unlimited $limited { 0 $binary_remote_addr; 1 ''; }\n"
              "    limit_req_zone $limited zone=unlimited:5m rate=1r/s;"),
]
