"""Differences that are intended. The table "Differences in detail" of docs/migrate/ingress-nginx.md has the same reasons."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Intended:
    """A difference: the cases, the requests and the parts by regular expressions, and the text of the docs."""

    case: str
    request: str
    part: str
    reason: str

    def covers(self, case: str, request: str, part: str) -> bool:
        return bool(re.fullmatch(self.case, case) and re.search(self.request, request) and re.fullmatch(self.part, part))


INTENDED = [
    Intended(".*", "", "header x-request-id of an own response", "The own error responses of the gateway have `X-Request-ID`."),
    Intended("auth-.*", "", "auth receives header connection", "The gateway reuses connections to authentication services."),
    Intended("auth-method", "", "auth receives header content-length", "The gateway sends `Content-Length: 0` with `auth-method: POST`."),
    Intended("error-pages-of-the-gateway", "", "header x-request-id", "The own error responses of the gateway have `X-Request-ID`."),
    Intended("error-pages-of-the-gateway", "", "errors receives header authorization",
        "Error pages do not receive credentials that the gateway checks."),
    Intended("limits-before-access", "", "header retry-after", "A response of a limit has `Retry-After`."),
    Intended("proxy-http-version", "", "web receives header connection",
        "With `proxy-http-version: \"1.0\"`, endpoints receive `Connection: close`."),
    Intended("headers-by-snippet", "", "web receives header x-forwarded-proto",
             "A header of `proxy_set_header` in a snippet replaces the header that the gateway sends, where nginx sends both."),
    Intended("websocket-and-http-1.0", r"HTTP/(1\.2|0\.9)", "status|Services that receive the request",
        "HTTP versions other than 1.0 and 1.1 receive 505."),
    Intended("methods|server-snippet", "^TRACE ", "header allow", "A 405 names the allowed methods in `Allow`."),
    Intended("faulty-requests", r"X-Long: |/x{90}|q{90}", "status|Services that receive the request",
             "Lines of a request head may be longer than 8 KiB."),
    Intended("faulty-requests", r"X-0: ", "status", "A request head that is too large receives 431 in place of 400."),
    Intended("forwarded-headers", r"^GET http://(forwarded\.test:(x|99999)|user@forwarded\.test|for\xe4\.test)/",
        "status|Services that receive the request",
             "A `Host` with an invalid name or port receives 400."),
    Intended("request-headers", r"Connection: X-Drop", "web receives header x-drop",
        "Headers that `Connection` names are not forwarded (RFC 9110, 7.6.1)."),
    Intended("request-headers", r"Proxy-Connection", "web receives header proxy-connection",
        "Headers that `Connection` names are not forwarded (RFC 9110, 7.6.1)."),
    Intended("request-headers", r"Upgrade: h2c", "web receives header (connection|upgrade|http2-settings)", "Upgrades to h2c are not forwarded."),
    Intended("responses-of-endpoints", r"Upgrade: h2c", "header upgrade", "Upgrades to h2c are not forwarded."),
    Intended("responses-of-endpoints", r"X-Accel-Redirect", "status|Services that receive the request",
        "`X-Accel-Redirect` of endpoints has no effect."),
    Intended("responses-of-endpoints", r"X-Pad-To.*X-Pad-To", "status|Services that receive the request",
        "`proxy-buffer-size` is 64 KiB without an annotation."),
    Intended("auth-tls-optional-no-ca", "certificate foreign", "web receives header ssl-client-verify",
        "`FAILED:` in `ssl-client-verify` has other words."),
    Intended("cors-with-origins", "Origin: xhttps", "header access-control-.*", "The whole origin must match, not the end of the header `Origin`."),
    Intended("normal-form", r"http://normal\.test\*", "status", "`OPTIONS *` receives 200 (RFC 9110, 9.3.7)."),
    Intended("normal-form", "/api/\xe4", "status|Services that receive the request", "A path with bytes that are not UTF-8 receives 400."),
    Intended("normal-form", "#y", "status|Services that receive the request", "A target with `#` receives 400."),
    Intended("request-headers", "bad@name", "status|Services that receive the request", "A header with an invalid name receives 400."),
    Intended("rewrite-target", "%0A", "api receives request", "`.` in a path also matches a line break."),
    Intended("auth-url", "X-Original-URL", "web receives header x-original-url",
        "Endpoints behind `auth-url` do not receive `X-Original-URL` of a client."),
    Intended("server-snippet", "^TRACE ", "header x-server", "A 405 of the gateway has no headers of snippets."),
    Intended("redirect-patterns", "/re ", "header location", "`proxy-redirect-to` has no variables of nginx but `$1` to `$9`."),
    Intended("redirect-patterns", "/path ", "header location", "A new `Location` that begins with `/` stays relative."),
    Intended("forwarded-tls", r"https://behindtls\.test/x \[X-Forwarded-Proto: http\]", "status|Services that receive the request",
        "A request over TLS is never redirected to HTTPS."),
    Intended("normal-form", r"/api/\.\.;/x", "status|Services that receive the request", "A path with `..;` receives 400."),
    Intended("normal-form", r"http://normal\.testhttp://prefix\.test", "status|Services that receive the request",
             "A request with different hosts in its target and in `Host` receives 400."),
]


def reason(case: str, request: str, part: str) -> str | None:
    """Returns the reason of an intended difference."""
    return next((each.reason for each in INTENDED if each.covers(case, request, part)), None)
