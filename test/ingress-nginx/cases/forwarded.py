"""Requests behind a trusted proxy: the ConfigMap has `use-forwarded-headers` and `proxy-real-ip-cidr`. These cases run with controllers of their own."""

from case import Case, Request, ingress
from nginx import location, server

SETTINGS = {"use-forwarded-headers": "true", "proxy-real-ip-cidr": "127.0.0.0/8"}

HTTP = """\
    real_ip_header X-Forwarded-For;
    real_ip_recursive on;
    set_real_ip_from 127.0.0.0/8;
    map $http_x_forwarded_proto $trusted_scheme { default $http_x_forwarded_proto; '' $scheme; }
    map $http_x_forwarded_port $trusted_port { default $http_x_forwarded_port; '' $standard_port; }
    map $http_x_forwarded_host $trusted_host { default $http_x_forwarded_host; '' $http_host; "~^(?<first_host>[^,]+)," $first_host; }"""
TRUST = "set $pass_access_scheme $trusted_scheme; set $pass_port $trusted_port; set $best_http_host $trusted_host;"
HEADERS = ("X-Forwarded-For: 192.0.2.7", "X-Forwarded-Proto: https", "X-Forwarded-Host: public.example", "X-Forwarded-Port: 443")

CASES = [
    Case("use-forwarded-headers", "behind.test", [ingress("behind", "behind.test")], server("behind.test", location("/", "web", TRUST)), [
        Request("/x"), Request("/x", headers=HEADERS), Request("/x", headers=("X-Forwarded-For: 192.0.2.7, 198.51.100.9",)),
        Request("/x", headers=("X-Forwarded-Proto: https",)),
        Request("/x", headers=("X-Forwarded-Host: one.example, two.example",)), Request("/x", headers=("X-Forwarded-For: nonsense",)),
        Request("/x", headers=("X-Forwarded-Port: 8443",)),
        Request("/x", headers=("X-Real-IP: 192.0.2.8", "X-Scheme: https", "X-Forwarded-Scheme: https")),
        Request("/x", tls=True, headers=("X-Forwarded-Proto: http",)),
    ], http=HTTP),
    Case("forwarded-tls", "behindtls.test", [ingress("behindtls", "behindtls.test", tls=True)],
         server("behindtls.test", location("/", "web", TRUST, tls=True)), [
        Request("/x"), Request("/x", headers=("X-Forwarded-Proto: https",)), Request("/x", headers=("X-Forwarded-Proto: http",)),
        Request("/x", tls=True),
        Request("/x/?y", headers=("X-Forwarded-Host: public.example:8443",)), Request("/x", tls=True, headers=("X-Forwarded-Proto: http",)),
    ]),
    Case("forwarded-allowlist", "behindlist.test",
        [ingress("behindlist", "behindlist.test", annotations={"whitelist-source-range": "192.0.2.0/24"})],
         server("behindlist.test", location("/", "web", TRUST + "\n            allow 192.0.2.0/24; deny all;")), [
        Request("/x"), Request("/x", headers=("X-Forwarded-For: 192.0.2.7",)), Request("/x", headers=("X-Forwarded-For: 198.51.100.9",)),
        Request("/x", headers=("X-Forwarded-For: 192.0.2.7, 198.51.100.9",)), Request("/x", headers=("X-Forwarded-For: 192.0.2.7:1234",)),
    ]),
    Case("forwarded-to-www", "behindbare.test", [ingress("behindbare", "behindbare.test", annotations={"force-ssl-redirect": "true"})],
         server("behindbare.test", location("/", "web", TRUST, ssl_redirect=True)), [
        Request("/x/"), Request("/x", headers=("X-Forwarded-Proto: https",)), Request("/x", headers=("X-Forwarded-Proto: HTTPS",))]),
]
