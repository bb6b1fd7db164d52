"""A gateway that logs browsers in, its endpoint, an OpenID provider, and a browser."""

import base64
import http.client
import json
import os
import shutil
import ssl
import sys
import threading
import time
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT / "test/ingress-nginx"))

import process  # noqa: E402
from browser import Browser  # noqa: E402
from certified import CLIENT_SECRET, TOOLS, Certified  # noqa: E402
from process import Program, free_ports  # noqa: E402

PROGRAM = Path(os.environ.get("SLUICEGATE") or PROJECT / "target/debug/sluicegate").resolve()
"""The program: the file of the environment variable SLUICEGATE, or the debug build."""

ACCESS_SECONDS = 6
"""The lifetime of an access token, in seconds: the gateway refreshes a session in the last tenth."""

SSO = ["shop.sso.localhost", "docs.sso.localhost"]
"""Two hosts with one session."""

SOLO = "solo.localhost"
"""A host with a session of its own."""

API = "api.localhost"
"""A host with introspection."""


class Endpoint(BaseHTTPRequestHandler):
    """Responds with the request."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers: dict[str, list[str]] = {}
        for name, value in self.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        body = json.dumps({"path": self.path, "method": self.command, "headers": headers}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing."""


class Keycloak:
    """Keycloak in its development mode, with a realm."""

    def __init__(self, folder: Path, origins: list[str], access_seconds: int) -> None:
        port, management = free_ports(2)
        home = folder / "keycloak"
        shutil.copytree(TOOLS / "keycloak", home, symlinks=True)
        # Keycloak tells a client only about tokens for the client.
        audience = {"name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper", "config": {"included.client.audience": "shop", "access.token.claim": "true"}}
        client = {
            "protocolMappers": [audience], "clientId": "shop", "secret": CLIENT_SECRET, "protocol": "openid-connect", "publicClient": False, "standardFlowEnabled": True,
            "redirectUris": [f"{origin}/oauth2/callback" for origin in origins],
            "attributes": {"pkce.code.challenge.method": "S256", "post.logout.redirect.uris": "##".join(f"{origin}/bye" for origin in origins)},
        }
        user = {
            "username": "alice", "enabled": True, "email": "alice@example.com", "emailVerified": True, "firstName": "Alice", "lastName": "A",
            "credentials": [{"type": "password", "value": "x", "temporary": False}],
        }
        realm = {"realm": "shop", "enabled": True, "sslRequired": "none", "accessTokenLifespan": access_seconds, "clients": [client], "users": [user]}
        (home / "data/import").mkdir(parents=True, exist_ok=True)
        (home / "data/import/realm.json").write_text(json.dumps(realm))
        process.START = 300.0
        self.issuer = f"http://127.0.0.1:{port}/realms/shop"
        command = [str(home / "bin/kc.sh"), "start-dev", "--import-realm", "--http-host=127.0.0.1", f"--http-port={port}", "--http-management-host=127.0.0.1", f"--http-management-port={management}"]
        self.program = Program(["env", "JAVA_OPTS_APPEND=-Djava.net.preferIPv4Stack=true -XX:TieredStopAtLevel=1", *command], folder / "provider.log", lambda: self.is_ready(port))
        self.introspection = f"{self.issuer}/protocol/openid-connect/token/introspect"

    @staticmethod
    def is_ready(port: int) -> bool:
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as connection:
                connection.request("GET", "/realms/shop/.well-known/openid-configuration")
                return connection.getresponse().status == 200
        except OSError:
            time.sleep(0.5)
            return False

    form = "document.querySelector('#username') !== null"

    def log_in(self, browser: Browser) -> None:
        browser.wait(self.form, 60)
        browser.value("document.querySelector('#username').value = 'alice'; document.querySelector('#password').value = 'x'; document.querySelector('#kc-login').click()")

    def confirm_logout(self, browser: Browser) -> None:
        """Keycloak asks no question if the gateway sends the ID token."""

    def stop(self) -> None:
        self.program.stop()


PROVIDERS = {"certified": Certified, "keycloak": Keycloak}


class Site:
    """A gateway with a provider."""

    def __init__(self, folder: Path) -> None:
        self.http, self.https, self.admin = free_ports(3)
        self.endpoints = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
        self.endpoints.daemon_threads = True
        threading.Thread(target=self.endpoints.serve_forever, daemon=True).start()
        self.provider = PROVIDERS[os.environ.get("PROVIDER") or "certified"](folder, [self.origin(host) for host in [*SSO, SOLO]], ACCESS_SECONDS)
        manifests = folder / "manifests"
        manifests.mkdir()
        (manifests / "site.yaml").write_text("\n---\n".join(json.dumps(each) for each in self.objects()))
        self.program = Program([str(PROGRAM), "serve", "--manifests", str(manifests), "--listen", f"127.0.0.1:{self.http}", "--listen-https", f"127.0.0.1:{self.https}",
                                "--admin", f"127.0.0.1:{self.admin}", "--access-log", str(folder / "access.log"), "--workers", "2", "--no-takeover", "--shutdown-grace", "0s",
                                "--shutdown-idle", "0s", "--shutdown-timeout", "1s"], folder / "gateway.log", self.is_ready)
        self.folder = folder

    def origin(self, host: str) -> str:
        return f"https://{host}:{self.https}"

    def objects(self) -> list[dict[str, Any]]:
        def named(kind: str, version: str, name: str, **fields: Any) -> dict[str, Any]:
            return {"apiVersion": version, "kind": kind, "metadata": {"namespace": "shop", "name": name}, **fields}

        def ingress(name: str, hosts: list[str]) -> dict[str, Any]:
            backend = {"service": {"name": "echo", "port": {"number": 80}}}
            rules = [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}} for host in hosts]
            return named("Ingress", "networking.k8s.io/v1", name, spec={"ingressClassName": "sluicegate", "rules": rules})

        def policy(name: str, authentication: dict[str, Any]) -> dict[str, Any]:
            targets = [{"group": "networking.k8s.io", "kind": "Ingress", "name": name}]
            return named("SecurityPolicy", "sluicegate.dev/v1alpha1", name, spec={"targetRefs": targets, "authentication": authentication})

        port = self.endpoints.server_address[1]
        secret = {name: base64.b64encode(value.encode()).decode() for name, value in (("client-secret", CLIENT_SECRET), ("cookie-secret", "k" * 20 + os.urandom(16).hex()))}
        claims = [{"claim": "sub", "header": "X-User"}, {"claim": "email", "header": "X-Email"}]
        oidc = {
            "issuer": self.provider.issuer, "clientId": "shop", "clientSecretRef": {"name": "login"}, "cookieSecretRef": {"name": "login"},
            "scopes": ["openid", "email"], "claimToHeaders": claims, "forwardAccessToken": True, "postLogoutPath": "/bye",
        }
        introspection = {"url": self.provider.introspection, "clientId": "shop", "clientSecretRef": {"name": "login"}, "claimToHeaders": [{"claim": "sub", "header": "X-User"}]}
        return [
            named("Service", "v1", "echo", spec={"ports": [{"name": "http", "port": 80, "targetPort": port}]}),
            {**named("EndpointSlice", "discovery.k8s.io/v1", "echo-1", addressType="IPv4", ports=[{"name": "http", "port": port}], endpoints=[{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}]),
             "metadata": {"namespace": "shop", "name": "echo-1", "labels": {"kubernetes.io/service-name": "echo"}}},
            named("Secret", "v1", "login", data=secret),
            ingress("sso", SSO), policy("sso", {"oidc": {**oidc, "cookieDomain": "sso.localhost"}}),
            ingress("solo", [SOLO]), policy("solo", {"oidc": oidc}),
            ingress("api", [API]), policy("api", {"introspection": introspection}),
        ]

    def is_ready(self) -> bool:
        try:
            return self.get(self.admin, "/readyz")[0] == 200
        except OSError:
            return False

    def get(self, port: int, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    def over_tls(self, host: str, path: str, **headers: str) -> tuple[int, bytes]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with closing(http.client.HTTPSConnection("127.0.0.1", self.https, timeout=30, context=context)) as connection:
            connection.request("GET", path, headers={"Host": host, **headers})
            response = connection.getresponse()
            return response.status, response.read()

    def sessions(self, event: str) -> int:
        """The number of events of sessions, of all policies."""
        lines = self.get(self.admin, "/metrics")[2].decode().splitlines()
        return sum(int(float(line.rsplit(" ", 1)[1])) for line in lines if line.startswith("sluicegate_policy_sessions_total") and f'event="{event}"' in line)

    def stop(self) -> None:
        self.program.stop()
        self.provider.stop()
        self.endpoints.shutdown()
        self.endpoints.server_close()
