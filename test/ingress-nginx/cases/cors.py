"""CORS: preflights, other requests, and origins."""

from case import Case, Request, ingress, path
from nginx import location, server

METHODS = "GET, PUT, POST, DELETE, PATCH, OPTIONS"
HEADERS = "DNT,Keep-Alive,User-Agent,X-Requested-With,If-Modified-Since,Cache-Control,Content-Type,Range,Authorization"


def cors(origins: str, methods: str = METHODS, headers: str = HEADERS, age: str = "1728000", expose: str = "", credentials: bool = True) -> str:
    """Returns the directives of CORS. `origins` sets `$cors`."""
    allowed = [f"more_set_headers 'Access-Control-Allow-Origin: $http_origin';", f"more_set_headers 'Access-Control-Allow-Methods: {methods}';",
               f"more_set_headers 'Access-Control-Allow-Headers: {headers}';", f"more_set_headers 'Access-Control-Max-Age: {age}';"]
    if credentials:
        allowed.append("more_set_headers 'Access-Control-Allow-Credentials: true';")
    if expose:
        allowed.append(f"more_set_headers 'Access-Control-Expose-Headers: {expose}';")
    text = "\n                ".join(allowed)
    return f"""{origins}
            if ($request_method = 'OPTIONS') {{ set $cors ${{cors}}options; }}
            if ($cors = "true") {{
                {text}
            }}
            if ($cors = "trueoptions") {{
                {text}
                more_set_headers 'Content-Type: text/plain charset=UTF-8';
                more_set_headers 'Content-Length: 0';
                return 204;
            }}"""


PREFLIGHT = ("Origin: https://app.example", "Access-Control-Request-Method: PUT", "Access-Control-Request-Headers: x-one")
ORIGIN = ("Origin: https://app.example",)
WRONG = ("Origin: https://evil.example",)
NAMED = "if ($http_origin ~* ((https://app\\.example)|(https://[A-Za-z0-9\\-]+\\.sub\\.example))$ ) { set $cors 'true'; }"

CASES = [
    Case("cors-with-defaults", "cors.test", [ingress("cors", "cors.test", annotations={"enable-cors": "true"})],
         server("cors.test", location("/", "web", cors("set $http_origin *;\n            set $cors 'true';"))), [
        Request("/x"), Request("/x", headers=ORIGIN), Request("/x", "OPTIONS", headers=PREFLIGHT), Request("/x", "OPTIONS"),
        Request("/x", headers=(*ORIGIN, "X-Web-Header: Access-Control-Allow-Origin: https://own.example")),
        Request("/x", headers=(*ORIGIN, "X-Web-Status: 404")),
        Request("/x", "POST", headers=ORIGIN, body=5),
    ]),
    Case("cors-with-origins", "origins.test", [ingress("origins", "origins.test", annotations={
        "enable-cors": "true", "cors-allow-origin": "https://app.example, https://*.sub.example", "cors-allow-methods": "GET, PUT",
        "cors-allow-headers": "X-One, X-Two", "cors-expose-headers": "X-Three", "cors-max-age": "600", "cors-allow-credentials": "false"})],
         server("origins.test", location("/", "web", cors(NAMED, "GET, PUT", "X-One, X-Two", "600", "X-Three", credentials=False))), [
        Request("/x"), Request("/x", headers=ORIGIN), Request("/x", headers=WRONG), Request("/x", "OPTIONS", headers=PREFLIGHT),
        Request("/x", "OPTIONS", headers=(*WRONG, "Access-Control-Request-Method: PUT")), Request("/x", headers=("Origin: https://a.sub.example",)),
        Request("/x", headers=("Origin: https://a.b.sub.example",)), Request("/x", headers=("Origin: HTTPS://APP.example",)),
        Request("/x", "OPTIONS"),
        Request("/x", headers=(*WRONG, "X-Web-Header: Access-Control-Allow-Origin: https://own.example")),
        Request("/x", headers=("Origin: xhttps://app.example",)),
    ]),
    Case("cors-with-authentication", "corsauth.test", [ingress("corsauth", "corsauth.test", [path("/")], {
        "enable-cors": "true", "whitelist-source-range": "192.0.2.0/24"})],
         server("corsauth.test",
             location("/", "web", "allow 192.0.2.0/24; deny all;\n            " + cors("set $http_origin *;\n            set $cors 'true';"))), [
        Request("/x", headers=ORIGIN), Request("/x", "OPTIONS", headers=PREFLIGHT),
    ]),
]
