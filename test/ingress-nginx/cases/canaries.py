"""Canaries and session affinity."""

from case import Case, Request, ingress, path
from nginx import location, server


def chosen(host: str, variable: str) -> str:
    """Returns a server whose variable names the Service."""
    return server(host, location("/", f"${variable}"))


def by_header(variable: str, on_header: str, on_cookie: str, fallback: str) -> str:
    return f"""    map $http_x_canary ${variable} {{ {on_header} default ${variable}_cookie; }}
    map $cookie_canary ${variable}_cookie {{ {on_cookie} default {fallback}; }}"""


def sticky(cookie: str) -> str:
    return f'add_header Set-Cookie "{cookie}" always;'


def canary(name: str, host: str, annotations: dict[str, str]) -> dict[str, object]:
    return ingress(name, host, [path("/", "canary")], {"canary": "true", **annotations})


ALWAYS = '"~^always$" canary; "~^never$" web;'

CASES = [
    Case("canary-by-header", "canary.test", [ingress("main", "canary.test"), canary("main-canary", "canary.test", {
        "canary-by-header": "X-Canary", "canary-by-cookie": "canary"})], chosen("canary.test", "by_header"), [
        Request("/x"), Request("/x", headers=("X-Canary: always",)), Request("/x", headers=("X-Canary: never",)),
        Request("/x", headers=("X-Canary: other",)),
        Request("/x", headers=("X-Canary: Always",)), Request("/x", headers=("Cookie: canary=always",)),
        Request("/x", headers=("Cookie: a=b; canary=never",)),
        Request("/x", headers=("Cookie: canary=yes",)), Request("/x", headers=("X-Canary: never", "Cookie: canary=always")),
        Request("/x", headers=("X-Canary: other", "Cookie: canary=always")), Request("/y/z?q", "POST", headers=("x-canary: always",), body=3),
    ], http=by_header("by_header", ALWAYS, ALWAYS, "web")),
    Case("canary-by-header-value", "canaryvalue.test", [ingress("value", "canaryvalue.test"), canary("value-canary", "canaryvalue.test", {
        "canary-by-header": "X-Canary", "canary-by-header-value": "blue", "canary-by-cookie": "canary"})], chosen("canaryvalue.test", "by_value"), [
        Request("/x", headers=("X-Canary: blue",)), Request("/x", headers=("X-Canary: always",)), Request("/x", headers=("X-Canary: Blue",)),
        Request("/x", headers=("X-Canary: never", "Cookie: canary=always")),
    ], http='    map $http_x_canary $by_value { "~^blue$" canary; default $by_header_cookie; }'),
    Case("canary-by-header-pattern", "canarypattern.test",
        [ingress("pattern", "canarypattern.test"), canary("pattern-canary", "canarypattern.test", {
        "canary-by-header": "X-Canary", "canary-by-header-pattern": "^v[0-9]+$"})], chosen("canarypattern.test", "by_pattern"), [
        Request("/x", headers=("X-Canary: v2",)), Request("/x", headers=("X-Canary: vx",)), Request("/x", headers=("X-Canary: always",)),
    ], http='    map $http_x_canary $by_pattern { "~^v[0-9]+$" canary; default web; }'),
    Case("canary-with-all-weight", "canaryweight.test", [ingress("weight", "canaryweight.test"), canary("weight-canary", "canaryweight.test", {
        "canary-by-header": "X-Canary", "canary-weight": "200", "canary-weight-total": "200"})], chosen("canaryweight.test", "by_weight"), [
        Request("/x"), Request("/x", headers=("X-Canary: never",)), Request("/x", headers=("X-Canary: always",)),
        Request("/x", headers=("X-Canary: other",)),
    ], http="    map $http_x_canary $by_weight { never web; default canary; }"),
    Case("affinity", "sticky.test", [
        ingress("sticky", "sticky.test", [path("/"), path("/app", "api")], {"affinity": "cookie"})],
         server("sticky.test", location("/", "web", sticky("INGRESSCOOKIE=x; Path=/; HttpOnly")),
                *[location(each, "api", sticky("INGRESSCOOKIE=x; Path=/app; HttpOnly")) for each in ("/app/", "= /app")]), [
        Request("/x"), Request("/app/x"), Request("/app"), Request("/x", headers=("Cookie: INGRESSCOOKIE=forged",)), Request("/x", "HEAD"),
        Request("/x", headers=("X-Web-Header: Set-Cookie: own=1",)), Request("/x", headers=("X-Web-Status: 500",)),
    ]),
    Case("affinity-attributes", "attributes.test", [ingress("attributes", "attributes.test", annotations={
        "affinity": "cookie", "affinity-mode": "persistent", "session-cookie-name": "route", "session-cookie-path": "/shop",
        "session-cookie-max-age": "600",
        "session-cookie-expires": "600", "session-cookie-samesite": "Strict", "session-cookie-secure": "true",
        "session-cookie-domain": "attributes.test"})],
         server("attributes.test", location("/", "web", sticky(
             "route=x; Expires=Thu, 01 Jan 2026 00:00:00 GMT; Max-Age=600; Domain=attributes.test; Path=/shop; Secure; HttpOnly; SameSite=Strict"))), [
        Request("/x"), Request("/x", "POST", body=1)]),
    Case("affinity-over-tls", "stickytls.test",
        [ingress("stickytls", "stickytls.test", annotations={"affinity": "cookie", "session-cookie-samesite": "None"}, tls=True)],
         server("stickytls.test", location("/", "web", sticky("INGRESSCOOKIE=x; Path=/; Secure; HttpOnly; SameSite=None"), tls=True)),
             [Request("/x", tls=True)]),
]
