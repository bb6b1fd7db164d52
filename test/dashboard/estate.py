"""A directory of manifests like that of a company: a shop with policies, and any number of other Ingresses and Apis."""

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

DOCUMENT = """
openapi: 3.1.0
info:
  title: Orders
  version: "2.4"
  description: |
    Creates, reads and cancels the orders of the shop.

    Every request needs an API key. A list has at most 100 orders: ask for the next part with `after`.
  contact: {name: Team Checkout, email: checkout@shop.example}
  license: {name: Apache-2.0}
servers: [{url: https://api.shop.example/orders}]
tags:
- {name: orders, description: Orders and their items.}
- {name: payments, description: Payments of an order.}
paths:
  /orders:
    get:
      operationId: listOrders
      summary: Lists the orders of a customer
      tags: [orders]
      parameters:
      - {name: customer, in: query, required: true, description: The number of the customer., schema: {type: integer, minimum: 1}, example: 4711}
      - {name: state, in: query, description: Only orders in this state., schema: {type: string, enum: [open, paid, sent, cancelled]}}
      - {name: after, in: query, schema: {type: string}, description: The last id of the previous part.}
      responses:
        "200":
          description: The orders, the newest first.
          content: {application/json: {schema: {type: array, items: {$ref: "#/components/schemas/Order"}}}}
        "401": {description: The API key is missing or unknown.}
    post:
      operationId: createOrder
      summary: Creates an order
      tags: [orders]
      requestBody:
        required: true
        content: {application/json: {schema: {$ref: "#/components/schemas/NewOrder"}}}
      responses:
        "201": {description: The new order., content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}
        "422": {description: An item is not in stock.}
  /orders/{id}:
    parameters:
    - {name: id, in: path, required: true, schema: {type: string, format: uuid}}
    get:
      operationId: getOrder
      summary: Reads an order
      tags: [orders]
      responses: {"200": {description: The order., content: {application/json: {schema: {$ref: "#/components/schemas/Order"}}}}, "404": {description: There is no such order.}}
    delete:
      operationId: cancelOrder
      summary: Cancels an order that is not sent
      tags: [orders]
      deprecated: true
      responses: {"204": {description: The order is cancelled.}}
  /orders/{id}/payment:
    parameters:
    - {name: id, in: path, required: true, schema: {type: string, format: uuid}}
    put:
      operationId: payOrder
      summary: Pays an order
      tags: [payments]
      requestBody: {content: {application/json: {schema: {type: object, required: [token], properties: {token: {type: string, description: The token of the payment provider.}}}}}}
      responses: {"204": {description: The order is paid.}}
components:
  schemas:
    NewOrder:
      type: object
      required: [customer, items]
      properties:
        customer: {type: integer, minimum: 1, example: 4711}
        items: {type: array, minItems: 1, items: {$ref: "#/components/schemas/Item"}}
        note: {type: string, maxLength: 500}
    Item:
      type: object
      required: [article, quantity]
      properties:
        article: {type: string, pattern: "^[A-Z]{2}-[0-9]+$", example: AB-1234}
        quantity: {type: integer, minimum: 1, maximum: 999, default: 1}
        related: {type: array, items: {$ref: "#/components/schemas/Item"}, description: Articles that belong to this article.}
    Order:
      allOf:
      - {$ref: "#/components/schemas/NewOrder"}
      - type: object
        required: [id, state]
        properties:
          id: {type: string, format: uuid, readOnly: true}
          state: {type: string, enum: [open, paid, sent, cancelled]}
          created: {type: string, format: date-time, readOnly: true}
          customer_of: {oneOf: [{type: "null"}, {type: object, properties: {name: {type: string}}}]}
"""

PARCELS = """openapi: 3.1.0
info: {{title: Parcels, version: "{0}"}}
paths: {{/parcels: {{get: {{operationId: {1}, summary: Version {0}}}}}}}
"""

# These texts are secret: no document of the dashboard may have them.
SECRETS = ["key-of-the-mobile-app-7d1f", "ab" * 32, "cd" * 32, "token-of-ada-0123456789"]

# The users of the dashboard, and of the portal.
OPERATORS = """users:
- {name: ada, role: operator, token: token-of-ada-0123456789}
- {name: victor, role: viewer, token: token-of-victor-0123456}
"""
VISITORS = """users:
- {name: paula, groups: [partners], consumers: [shop/partner], token: token-of-paula-01234567}
- {name: otto, groups: [others], token: token-of-otto-0123456789}
"""


def dumped(*objects: dict[str, Any]) -> str:
    return "\n---\n".join(json.dumps(each) for each in objects)


def named(kind: str, namespace: str, name: str, spec: dict[str, Any], version: str = "sluicegate.dev/v1alpha1") -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"namespace": namespace, "name": name}, "spec": spec}


def service(namespace: str, name: str, addresses: list[tuple[str, bool]], port: int) -> list[dict[str, Any]]:
    return [
        {"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
         "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port}]}},
        {"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
         "metadata": {"namespace": namespace, "name": f"{name}-1", "labels": {"kubernetes.io/service-name": name}},
         "ports": [{"name": "http", "port": port}],
         "endpoints": [{"addresses": [address], "conditions": {"ready": is_ready}} for address, is_ready in addresses]},
    ]


def ingress(namespace: str, name: str, host: str, paths: list[tuple[str, str]], secret: str | None = None) -> dict[str, Any]:
    rules = [{"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": {"service": {"name": to, "port": {"name": "http"}}}}
                                              for path, to in paths]}}]
    spec: dict[str, Any] = {"ingressClassName": "sluicegate", "rules": rules}
    if secret:
        spec["tls"] = [{"hosts": [host], "secretName": secret}]
    return named("Ingress", namespace, name, spec, "networking.k8s.io/v1")


def certificate(folder: Path, namespace: str, name: str, hosts: list[str], days: int) -> dict[str, Any]:
    key, chain = folder / f"{name}.key", folder / f"{name}.crt"
    names = ",".join(f"DNS:{host}" for host in hosts)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days), "-subj", f"/CN={hosts[0]}",
                    "-addext", f"subjectAltName={names}", "-keyout", str(key), "-out", str(chain)], check=True, capture_output=True)
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"namespace": namespace, "name": name},
            "stringData": {"tls.crt": chain.read_text(), "tls.key": key.read_text()}}


def shop(port: int, scratch: Path) -> str:
    """A shop with endpoints at `port` of 127.0.0.1 and of 127.0.0.2."""
    both = [("127.0.0.1", True), ("127.0.0.2", True)]
    objects = [
        *service("shop", "web", both, port), *service("shop", "cart", [("127.0.0.1", True), ("127.0.0.3", False)], port),
        *service("shop", "search", [("127.0.0.4", False)], port), *service("shop", "orders", both, port), *service("shop", "orders-next", both, port),
        certificate(scratch, "shop", "shop-tls", ["shop.example", "www.shop.example"], 74),
        certificate(scratch, "shop", "api-tls", ["api.shop.example"], 9),
        ingress("shop", "web", "shop.example", [("/", "web"), ("/cart", "cart"), ("/search", "search"), ("/account", "web")], "shop-tls"),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "shop", "name": "mobile-key"}, "stringData": {"key": SECRETS[0]}},
        named("Consumer", "shop", "mobile", {"username": "mobile-app", "groups": ["apps", "gold"], "apiKeys": [{"secretRef": {"name": "mobile-key"}}]}),
        named("Consumer", "shop", "reports", {"username": "reports", "groups": ["internal"], "tokens": [{"issuer": "https://login.shop.example", "subject": "reports"}]}),
        named("SecurityPolicy", "shop", "orders-keys", {"targetRefs": [{"group": "sluicegate.dev", "kind": "Api", "name": "orders"}],
              "authentication": {"apiKey": {}}, "cors": {"allowOrigins": ["http://localhost:9903"], "allowHeaders": ["X-API-Key", "Content-Type"]}}),
        named("RateLimitPolicy", "shop", "account-limit", {"targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "web"}],
              "limits": [{"name": "each-client", "requests": 100000, "per": "1m", "key": [{"type": "Address"}]}]}),
        named("TrafficPolicy", "shop", "web-timeouts", {"targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "web"}],
              "timeouts": {"request": "30s"}, "retries": {"attempts": 3}}),
        named("Consumer", "shop", "partner", {"username": "partner", "apiKeys": [
              {"name": "first", "sha256": "ab" * 32, "expires": "2026-01-01T00:00:00Z"}, {"name": "second", "sha256": "cd" * 32}, {"name": "lost", "sha256": "ef" * 32, "revoked": True}]}),
        named("Plan", "shop", "gold", {"title": "Gold", "description": "For apps with many users.", "approval": "Manual", "catalogue": {"visibleTo": {"groups": ["partners"]}},
              "limits": [{"name": "second", "requests": 50, "per": "1s"}], "quotas": [{"name": "month", "requests": 1000000, "calendar": "Month", "timeZone": "Europe/Berlin"}]}),
        named("Plan", "shop", "trial", {"title": "Trial", "catalogue": {"visibleTo": {"public": True}}, "quotas": [{"name": "day", "requests": 100, "calendar": "Day"}]}),
        named("Subscription", "shop", "partner-orders", {"consumerRef": {"name": "partner"}, "planRef": {"name": "trial"}, "apis": [{"name": "orders"}]}),
        named("Subscription", "shop", "reports-orders", {"consumerRef": {"name": "reports"}, "planRef": {"name": "gold"}, "apis": [{"name": "orders"}]}),
        named("Api", "shop", "orders", {"owner": "Team Checkout", "catalogue": {"visibleTo": {"groups": ["partners", "staff"]}}, "document": {"inline": textwrap.dedent(DOCUMENT)}, "environments": [
              {"name": "production", "hosts": ["api.shop.example"], "backend": {"service": "orders", "port": "http"}, "tls": {"secretName": "api-tls"}},
              {"name": "staging", "hosts": ["api.staging.shop.example", "localhost"], "basePath": "/orders", "backend": {"service": "orders-next", "port": "http"}}]}),
        # An environment with a document of its own.
        named("Api", "shop", "parcels", {"catalogue": {"visibleTo": {"groups": ["partners"]}}, "document": {"inline": PARCELS.format("1", "listParcels")}, "environments": [
              {"name": "production", "hosts": ["parcels.shop.example"], "backend": {"service": "orders", "port": "http"}},
              {"name": "next", "hosts": ["parcels.next.shop.example"], "backend": {"service": "orders-next", "port": "http"}, "document": {"inline": PARCELS.format("2", "findParcels")}}]}),
        named("Api", "shop", "stock", {"title": "Stock", "version": "1", "owner": "Team Warehouse", "catalogue": {"visibleTo": {"public": True}}, "lifecycle": {"state": "Deprecated", "deprecation": "2026-03-01T00:00:00Z", "sunset": "2027-06-30T00:00:00Z"},
              "document": {"inline": "openapi: 3.0.3\ninfo: {title: Stock, version: '1'}\npaths: {'/stock/{article}': {get: {operationId: getStock, summary: Reads the stock of an article, parameters: [{name: article, in: path, required: true, schema: {type: string}}], responses: {'200': {description: The stock.}}}}}\n"},
              "environments": [{"name": "production", "hosts": ["stock.shop.example"], "backend": {"service": "web", "port": "http"}}]}),
    ]
    return dumped(*objects)


# Objects with an error and with a warning.
FAULTY = dumped(
    named("SecurityPolicy", "shop", "account-login", {"targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "legacy"}], "authentication": {"jwt": {"issuer": "https://login.shop.example"}}}),
    ingress("shop", "legacy", "legacy.shop.example", [("/", "web"), ("/old", "missing")]),
)


def estate(folder: Path, routes: int, apis: int, port: int) -> None:
    """Writes `routes` Ingresses with one route each, and `apis` Apis with two operations each, in files of 250 objects."""
    ingresses = [ingress(f"team-{index % 40}", f"app-{index}", f"app-{index}.example", [(f"/v{index % 3}", f"app-{index % 200}")]) for index in range(routes)]
    services = [each for index in range(200) for team in {f"team-{index % 40}"} for each in service(team, f"app-{index}", [("127.0.0.1", True)], port)]
    document = "openapi: 3.1.0\ninfo: {{title: Service {0}, version: '1.{1}'}}\npaths: {{/items: {{get: {{operationId: listItems, summary: Lists items}}, post: {{operationId: createItem}}}}}}\n"
    states = ["Published", "Published", "Published", "PreReleased"]
    written = [named("Api", f"team-{index % 40}", f"api-{index}", {
        "owner": f"Team {index % 40}", "lifecycle": {"state": states[index % 4]}, "document": {"inline": document.format(index, index % 7)},
        "environments": [{"name": "production", "hosts": [f"api-{index}.example"], "backend": {"service": f"app-{index % 200}", "port": "http"}}]}) for index in range(apis)]
    everything = [*services, *ingresses, *written]
    for at in range(0, len(everything), 250):
        (folder / f"estate-{at // 250:03}.yaml").write_text(dumped(*everything[at:at + 250]))
