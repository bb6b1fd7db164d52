"""Headers of requests, methods and sizes of heads."""

from case import Case, Request, ingress
from nginx import location, server

FORGED = ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Host: evil.example", "X-Forwarded-Proto: https", "X-Forwarded-Port: 444",
    "X-Forwarded-Scheme: https",
          "X-Scheme: https", "X-Real-IP: 192.0.2.7", "X-Original-Forwarded-For: 192.0.2.8", "Forwarded: for=192.0.2.9", "X-Original-URI: /x",
          "Proxy: http://evil/")
LINES = (
    "under_score: 1", "bad@name: 1", "X-Empty:", "X-Request-ID: given", "Connection: close", "Connection: X-Drop\r\nX-Drop: 1", "TE: trailers",
    "Expect: 100-continue",
    "Upgrade-Insecure-Requests: 1", "Accept-Encoding: gzip", "Via: 1.1 cdn", "Keep-Alive: 5", "X-Many: 1\r\nX-Many: 2",
    "Cookie: a=1\r\nCookie: b=2", "X-Latin: \xe4\xf6",
    "Authorization: Bearer token", "Referer: https://x.example/y", "User-Agent: test", "Proxy-Connection: keep-alive",
    "Proxy-Authorization: Basic x", "X-Spaces:   padded   ",
    "X-Tab: a\tb", "Max-Forwards: 3", "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: x", "Content-Length: 0",
    "Trailer: X-End", "Origin: https://x.example",
    "Content-Type: text/plain", "If-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT", "Accept: */*", "X-Forwarded-Server: x",
    "X-Forwarded-Prefix: /x", "Keep-Alive: x", "1-Digit: x",
    "X.Dot: x",
)
INVALID = (
    "Content-Length: x", "Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2", "Transfer-Encoding: gzip",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "no colon", " leading: space", "X-Space : x", "X-Nul: a\0b", "Host: other.test", "X-Long: " + "x" * 7000, "X-Long: " + "x" * 9000,
    "\r\n".join(f"X-{nth}: " + "x" * 1000 for nth in range(30)), "\r\n".join(f"X-{nth}: " + "x" * 1000 for nth in range(36)),
    "\r\n".join(f"X-{nth}: x" for nth in range(150)), "Cookie: " + "c" * 7500,
)

CASES = [
    Case("forwarded-headers", "forwarded.test", [ingress("forwarded", "forwarded.test")], server("forwarded.test", location("/", "web")), [
        Request("/x"), Request("/x", headers=FORGED), Request("/x", headers=("Host: forwarded.test:8443",)), Request("/x", host="FORWARDED.test"),
        Request("/x", tls=True), Request("/x", headers=("X-Forwarded-For: 1.1.1.1, 2.2.2.2",)), Request("/x", host="forwarded.test:80"),
        Request("/x", host="forwarded.test."), Request("/x", host="forwarded.test:x"), Request("/x", host="user@forwarded.test"),
        Request("/x", host="forwarded.test:99999"),
        Request("/x", host="forwarded.test/x"), Request("/x", host="forwarded.test:"), Request("/x", host="for\xe4.test"),
    ]),
    Case("request-headers", "lines.test", [ingress("lines", "lines.test")], server("lines.test", location("/", "web")),
         [Request("/x", headers=(line,)) for line in LINES]),
    Case("faulty-requests", "faulty.test", [ingress("faulty", "faulty.test")], server("faulty.test", location("/", "web")), [
        *[Request("/x", headers=(line,)) for line in INVALID], Request("/" + "x" * 7500), Request("/" + "x" * 9000), Request("/x?" + "q" * 9000),
        Request("/x y"),
        Request("/x", "POST"), Request("/x", "POST", headers=("Transfer-Encoding: chunked",), body=-5),
        Request("/x", "POST", headers=("Transfer-Encoding: CHUNKED",), body=-5),
        Request("/x", "GET", headers=("Transfer-Encoding: chunked",), body=-5),
    ]),
    Case("methods", "verbs.test", [ingress("verbs", "verbs.test")], server("verbs.test", location("/", "web")), [
        *[Request("/x", method) for method in ("HEAD", "OPTIONS", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "PURGE", "FOO", "FOO-BAR",
        "FOO_BAR", "get", "G@T", "M-SEARCH",
                                               "A" * 40)],
        Request("verbs.test:443", "CONNECT"), Request("/x", "DELETE", body=3),
    ]),
]
