"""Certificates of clients."""

from typing import Any

from case import Case, Request, ingress, path
from nginx import location, server

PASSED = """proxy_set_header ssl-client-verify $ssl_client_verify;
            proxy_set_header ssl-client-subject-dn $ssl_client_s_dn;
            proxy_set_header ssl-client-issuer-dn $ssl_client_i_dn;"""
WITH_CERTIFICATE = PASSED + "\n            proxy_set_header ssl-client-cert $ssl_client_escaped_cert;"
GOOD, FOREIGN = {"tls": True, "certificate": "client"}, {"tls": True, "certificate": "foreign"}


def verifying(host: str, verify: str, extra: str = "", headers: str = PASSED) -> str:
    return server(host, location("/", "web", headers, tls=True), extra=f"""ssl_client_certificate @FOLDER@/ca.pem;
        ssl_verify_client {verify};
        ssl_verify_depth 1;
        {extra}""")


def guarded(name: str, more: dict[str, str]) -> list[dict[str, Any]]:
    return [ingress(name, f"{name}.test", [path("/")], {"auth-tls-secret": "default/ca", **more}, tls=True)]


CASES = [
    Case("auth-tls", "mtls.test", guarded("mtls", {}), verifying("mtls.test", "on"), [
        Request("/x", **GOOD), Request("/x", tls=True), Request("/x", **FOREIGN), Request("/x"),
        Request("/x", headers=("ssl-client-verify: SUCCESS", "ssl-client-subject-dn: CN=forged"), **GOOD),
    ]),
    Case("auth-tls-optional", "mtlsopt.test",
        guarded("mtlsopt", {"auth-tls-verify-client": "optional", "auth-tls-pass-certificate-to-upstream": "true"}),
         verifying("mtlsopt.test", "optional", headers=WITH_CERTIFICATE), [
        Request("/x", **GOOD), Request("/x", tls=True), Request("/x", **FOREIGN),
        Request("/x", headers=("ssl-client-cert: forged", "ssl-client-verify: SUCCESS"), tls=True),
    ]),
    Case("auth-tls-optional-no-ca", "mtlsany.test", guarded("mtlsany", {"auth-tls-verify-client": "optional_no_ca"}),
        verifying("mtlsany.test", "optional_no_ca"), [
        Request("/x", **GOOD), Request("/x", tls=True), Request("/x", **FOREIGN)]),
    Case("auth-tls-match-cn", "mtlscn.test", guarded("mtlscn", {"auth-tls-match-cn": "CN=other"}),
         verifying("mtlscn.test", "on", 'if ($ssl_client_s_dn !~ CN=other) { return 403 "client certificate unauthorized"; }'),
             [Request("/x", **GOOD), Request("/x", tls=True)]),
    Case("auth-tls-error-page", "mtlspage.test", guarded("mtlspage", {"auth-tls-error-page": "https://help.example/certificate"}),
         verifying("mtlspage.test", "on", "error_page 495 496 = https://help.example/certificate;"), [
        Request("/x", **GOOD), Request("/x", tls=True), Request("/x", **FOREIGN)]),
]
