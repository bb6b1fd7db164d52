"""Tests of the login flow of oauth2-proxy behind the gateway, in a browser."""

import base64
import http.client
import json
import shutil
import subprocess
import tempfile
import threading
import time
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from backend import Backends
from browser import Browser
from gateway import PROJECT, Gateway, service
from process import Program, accepts, free_ports

OAUTH2_PROXY = PROJECT / "target/tools/oauth2-proxy"
HOST, PAGE = "app.test", "/reports/week?from=1&to=2"


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider(ThreadingHTTPServer):
    """An OpenID provider with one user, and an authentication service with a fixed response at `/status/CODE`."""

    daemon_threads = True

    def __init__(self, key: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.key, self.issuer = key, f"http://127.0.0.1:{self.server_address[1]}"
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True)
        modulus = subprocess.run(["openssl", "rsa", "-in", str(key), "-noout", "-modulus"], check=True, capture_output=True).stdout
        self.modulus = bytes.fromhex(modulus.decode().strip().partition("=")[2])
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def token(self) -> str:
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": "client", "sub": "ada", "email": "ada@example.test", "email_verified": True,
                  "iat": now, "exp": now + 600}
        text = ".".join(encoded(json.dumps(each).encode()) for each in ({"alg": "RS256", "kid": "1"}, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", str(self.key)], input=text.encode(), check=True,
                                   capture_output=True).stdout
        return f"{text}.{encoded(signature)}"


class Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        at, issuer = urlsplit(self.path), self.server.issuer
        if at.path == "/.well-known/openid-configuration":
            self.send({"issuer": issuer, "authorization_endpoint": f"{issuer}/authorize", "token_endpoint": f"{issuer}/token",
                       "jwks_uri": f"{issuer}/keys", "userinfo_endpoint": f"{issuer}/userinfo",
                       "id_token_signing_alg_values_supported": ["RS256"]})
        elif at.path == "/keys":
            self.send({"keys": [{"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "1", "e": "AQAB", "n": encoded(self.server.modulus)}]})
        elif at.path == "/userinfo":
            self.send({"sub": "ada", "email": "ada@example.test", "email_verified": True})
        elif at.path == "/authorize":
            self.send(f'<title>login</title><form method="post" action="/login?{at.query.replace("&", "&amp;")}">'
                      '<input name="user"><input name="password" type="password"><button>Log in</button></form>')
        elif at.path.startswith("/status/"):
            self.send_response(int(at.path.rpartition("/")[2]))
            for name, value in (("Location", "http://login.test/"), ("Set-Cookie", "portal=1; Path=/"), ("Content-Length", "0")):
                self.send_header(name, value)
            self.end_headers()
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        at = urlsplit(self.path)
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if at.path == "/token":
            self.send({"access_token": "access", "refresh_token": "refresh", "token_type": "Bearer", "expires_in": 600,
                       "id_token": self.server.token()})
        elif form.get("user") == ["ada"] and form.get("password") == ["secret"]:
            query = parse_qs(at.query)
            self.send_response(302)
            self.send_header("Location", f"{query['redirect_uri'][0]}?{urlencode({'code': 'c', 'state': query['state'][0]})}")
            self.end_headers()
        else:
            self.send_error(403)

    def send(self, body: Any) -> None:
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Login(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.provider = Provider(self.folder / "key.pem")
        self.addCleanup(self.provider.server_close)
        self.addCleanup(self.provider.shutdown)
        self.backends = Backends(["web"])
        self.backends.__enter__()
        self.addCleanup(self.backends.__exit__)
        self.proxy, closed = free_ports(2)
        signin = {"auth-signin": "http://$http_host/oauth2/start?rd=$escaped_request_uri",
                  "auth-response-headers": "X-Auth-Request-User,X-Auth-Request-Email"}
        rules = [self.ingress("app", "/", "web", {"auth-url": f"http://127.0.0.1:{self.proxy}/oauth2/auth", **signin}),
                 self.ingress("oauth2", "/oauth2", "oauth2", {}),
                 self.ingress("down", "/down", "web", {"auth-url": f"http://127.0.0.1:{closed}/"})]
        rules += [self.ingress(f"s{status}", f"/s{status}", "web", {"auth-url": f"{self.provider.issuer}/status/{status}"})
                  for status in (204, 302, 401, 403, 404, 503)]
        self.gateway = Gateway(self.folder, [*service("web", self.backends.ports["web"]), *service("oauth2", self.proxy), *rules],
                               {"ssl-redirect": "false"})
        self.addCleanup(self.gateway.stop)
        self.site = f"http://{HOST}:{self.gateway.http}"

    def ingress(self, name: str, path: str, target: str, annotations: dict[str, str]) -> dict[str, Any]:
        return {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": name, "namespace": "default",
            "annotations": {f"nginx.ingress.kubernetes.io/{key}": value for key, value in annotations.items()}},
            "spec": {"ingressClassName": "nginx", "rules": [{"host": HOST, "http": {"paths": [{"path": path, "pathType": "Prefix",
                "backend": {"service": {"name": target, "port": {"number": 80}}}}]}}]}}

    def ask(self, target: str, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.http, timeout=10)
        self.addCleanup(connection.close)
        connection.request("GET", target, headers={"Host": f"{HOST}:{self.gateway.http}", **headers})
        return connection.getresponse()

    @unittest.skipUnless(OAUTH2_PROXY.exists() and shutil.which("chromium"), "needs oauth2-proxy and Chromium")
    def test_browser_logs_in_and_returns_to_its_page(self) -> None:
        proxy = Program([str(OAUTH2_PROXY), "--provider=oidc", f"--oidc-issuer-url={self.provider.issuer}", "--client-id=client",
            "--client-secret=secret", "--cookie-secret=0123456789abcdef0123456789abcdef", "--cookie-secure=false", "--email-domain=*",
            "--cookie-refresh=1s", "--set-xauthrequest", "--reverse-proxy", "--skip-provider-button", "--upstream=static://202",
            f"--redirect-url={self.site}/oauth2/callback", f"--http-address=127.0.0.1:{self.proxy}"],
            self.folder / "proxy.log", lambda: accepts(self.proxy))
        self.addCleanup(proxy.stop)
        for cookie in ({}, {"Cookie": "_oauth2_proxy=forged"}):
            response = self.ask(PAGE, **cookie)
            self.assertEqual((response.status, response.getheader("Location")),
                             (302, f"{self.site}/oauth2/start?rd=%2Freports%2Fweek%3Ffrom%3D1%26to%3D2"))
        browser = Browser(self.folder, [f"--host-resolver-rules=MAP {HOST} 127.0.0.1"])
        self.addCleanup(browser.stop)
        browser.call("Page.navigate", url=self.site + PAGE)
        browser.wait("document.title === 'login'")
        self.assertEqual(self.backends.take(), [])
        browser.value("document.querySelector('[name=user]').value = 'ada'; document.querySelector('[name=password]').value = 'secret';"
                      "document.querySelector('form').submit()")
        browser.wait(f"location.href === {json.dumps(self.site + PAGE)} && document.body.innerText.includes('web')")
        received = next(each for each in self.backends.take() if each.target == PAGE)
        headers = dict(received.headers)
        self.assertEqual((headers.get("x-auth-request-user"), headers.get("x-auth-request-email")), ("ada", "ada@example.test"))
        cookies = browser.call("Network.getCookies", urls=[self.site])["cookies"]
        cookie = "; ".join(f"{each['name']}={each['value']}" for each in cookies)
        end, refreshed = time.monotonic() + 5, None
        while refreshed is None and time.monotonic() < end:
            response = self.ask(PAGE, Cookie=cookie)
            self.assertEqual(response.status, 200)
            refreshed = response.getheader("Set-Cookie")
            time.sleep(0.1)
        self.assertIn("_oauth2_proxy=", refreshed or "")
        browser.call("Page.navigate", url=f"{self.site}/oauth2/sign_out?rd=%2F")
        browser.wait("document.title === 'login'")

    def test_only_2xx_of_the_authentication_service_opens(self) -> None:
        for status, expected in ((204, 200), (302, 500), (401, 401), (403, 403), (404, 500), (503, 500)):
            with self.subTest(status=status):
                self.assertEqual(self.ask(f"/s{status}").status, expected)
        self.assertEqual([each.target for each in self.backends.take()], ["/s204"])

    def test_unreachable_authentication_service_closes(self) -> None:
        self.assertIn(self.ask("/down").status, (500, 503))
        self.assertEqual(self.backends.take(), [])
