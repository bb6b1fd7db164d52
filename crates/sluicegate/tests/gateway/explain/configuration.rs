//! Random configurations.

use std::fmt::Write as _;
use std::net::SocketAddr;

use aws_lc_rs::digest::{SHA256, digest};
use fastrand::Rng;

/// The hosts of routes.
pub(super) const HOSTS: [&str; 4] = ["a.test", "b.test", "*.w.test", "api.test"];

/// The paths of routes.
pub(super) const PATHS: [&str; 8] = ["/", "/a", "/a/b", "/ab", "/a/b/c", "/admin", "/old", "/pets"];

/// The objects of every configuration: Services, Consumers, Secrets and an Api.
const COMMON: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: empty}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Secret
metadata: {name: users}
stringData: {auth: "alice:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ="}
---
apiVersion: v1
kind: Secret
metadata: {name: shared}
stringData: {secret: a-secret-of-at-least-16-bytes}
"#;

pub(super) fn choose<'a>(random: &mut Rng, all: &[&'a str]) -> &'a str {
    all[random.usize(..all.len())]
}

fn object(group: &str, kind: &str, name: &str, spec: &str) -> String {
    format!("---\napiVersion: {group}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {spec}\n")
}

/// A configuration whose Gateway listens at this port.
pub(super) fn random(random: &mut Rng, port: u16, backend: SocketAddr) -> String {
    let mut all = COMMON.to_owned();
    for service in ["web", "other"] {
        let _ = write!(
            all,
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {{name: {service}-1, labels: {{kubernetes.io/service-name: {service}}}}}\n\
             addressType: IPv4\nports: [{{name: http, port: {}}}]\nendpoints: [{{addresses: [{}]}}]\n",
            backend.port(),
            backend.ip()
        );
    }
    for (name, key, more, groups) in [
        ("alice", "key-of-alice", "", "gold"),
        ("bob", "key-of-bob", ", revoked: true", "silver"),
        ("carol", "key-of-carol", "", "silver"),
    ] {
        let hash: String =
            digest(&SHA256, key.as_bytes()).as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let users = if name == "alice" {
            ", basicUsers: [alice], tokens: [{issuer: \"https://issuer.test\", subject: alice}]"
        } else {
            ""
        };
        let spec = format!("{{groups: [{groups}], apiKeys: [{{sha256: \"{hash}\"{more}}}]{users}}}");
        all.push_str(&object("sluicegate.dev/v1alpha1", "Consumer", name, &spec));
    }
    all.push_str(&object(
        "gateway.networking.k8s.io/v1",
        "Gateway",
        "edge",
        &format!(
            "{{gatewayClassName: sluicegate, listeners: [{{name: http, protocol: HTTP, port: {port}}}]}}"
        ),
    ));
    for number in 0..random.usize(4..8) {
        let name = format!("ingress-{number}");
        all.push_str(&ingress(random, &name));
        all.push_str(&policies(random, "networking.k8s.io", "Ingress", &name));
    }
    for number in 0..random.usize(4..9) {
        let name = format!("route-{number}");
        all.push_str(&http_route(random, &name));
        all.push_str(&policies(random, "gateway.networking.k8s.io", "HTTPRoute", &name));
    }
    all.push_str(&api(random));
    all.push_str(&policies(random, "sluicegate.dev", "Api", "pets"));
    all
}

fn ingress(random: &mut Rng, name: &str) -> String {
    let mut rules = Vec::new();
    for _ in 0..random.usize(1..3) {
        let paths: Vec<String> = (0..random.usize(1..4))
            .map(|_| {
                let service = choose(random, &["web", "web", "web", "other", "empty", "missing"]);
                let kind = choose(random, &["Prefix", "Exact", "Prefix", "ImplementationSpecific"]);
                let path = if random.u8(..3) == 0 { "/" } else { choose(random, &PATHS) };
                format!("{{path: {path}, pathType: {kind}, backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}")
            })
            .collect();
        let host = match random.u8(..6) {
            0 => String::new(),
            _ => format!("host: \"{}\", ", choose(random, &HOSTS[..3])),
        };
        rules.push(format!("{{{host}http: {{paths: [{}]}}}}", paths.join(", ")));
    }
    object("networking.k8s.io/v1", "Ingress", name, &format!("{{rules: [{}]}}", rules.join(", ")))
}

fn http_route(random: &mut Rng, name: &str) -> String {
    let rules: Vec<String> = (0..random.usize(1..4)).map(|_| http_rule(random)).collect();
    let hosts = match random.u8(..5) {
        0 => String::new(),
        _ => format!("\"{}\"", choose(random, &HOSTS[..3])),
    };
    let spec =
        format!("{{parentRefs: [{{name: edge}}], hostnames: [{hosts}], rules: [{}]}}", rules.join(", "));
    object("gateway.networking.k8s.io/v1", "HTTPRoute", name, &spec)
}

fn http_rule(random: &mut Rng) -> String {
    let is_prefix = random.u8(..3) > 0;
    let path = if is_prefix && random.u8(..3) == 0 { "/" } else { choose(random, &PATHS) };
    let path = match (is_prefix, random.u8(..3)) {
        (true, _) => format!("{{type: PathPrefix, value: {path}}}"),
        (false, 0) => "{type: RegularExpression, value: \"/a/[a-z]+\"}".to_owned(),
        (false, _) => format!("{{type: Exact, value: {path}}}"),
    };
    let mut of = format!("path: {path}");
    if random.u8(..4) == 0 {
        let _ = write!(of, ", method: {}", choose(random, &["GET", "POST"]));
    }
    if random.u8(..4) == 0 {
        let _ = write!(of, ", headers: [{{name: X-V, value: \"{}\"}}]", choose(random, &["1", "2"]));
    }
    if random.u8(..5) == 0 {
        let _ = write!(of, ", queryParams: [{{name: q, value: \"{}\"}}]", choose(random, &["1", "2"]));
    }
    let filters = match random.u8(..8) {
        0 => choose(
            random,
            &[
                "{type: RequestRedirect, requestRedirect: {statusCode: 301, hostname: new.test}}",
                "{type: RequestRedirect, requestRedirect: {statusCode: 302, path: {type: ReplaceFullPath, replaceFullPath: /new}}}",
            ],
        ),
        1 if is_prefix => {
            "{type: URLRewrite, urlRewrite: {hostname: in.test, path: {type: ReplacePrefixMatch, replacePrefixMatch: /in}}}"
        }
        2 => "{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /full}}}",
        3 => {
            "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: X-Set, value: y}], remove: [X-V]}}"
        }
        _ => "",
    };
    let backends = match random.u8(..9) {
        _ if filters.contains("RequestRedirect") => "",
        0 => "{name: missing, port: 80}",
        1 => "{name: empty, port: 80}",
        2 => "{name: web, port: 80, weight: 3}, {name: other, port: 80}",
        3 => "{name: web, port: 80, weight: 0}",
        4 => "{name: web, port: 80}, {name: missing, port: 80}",
        5 => {
            "{name: other, port: 80, filters: [{type: URLRewrite, urlRewrite: {hostname: b.in.test, path: {type: ReplaceFullPath, replaceFullPath: /of-backend}}}]}"
        }
        _ => "{name: web, port: 80}",
    };
    format!("{{matches: [{{{of}}}], filters: [{filters}], backendRefs: [{backends}]}}")
}

/// The policies of an object, if it has any.
fn policies(random: &mut Rng, group: &str, kind: &str, name: &str) -> String {
    let target = format!("targetRefs: [{{group: {group}, kind: {kind}, name: {name}}}]");
    let lower = kind.to_lowercase();
    let mut all = String::new();
    if random.bool() {
        let spec = format!("{{{target}, {}}}", security(random));
        all.push_str(&object(
            "sluicegate.dev/v1alpha1",
            "SecurityPolicy",
            &format!("s-{lower}-{name}"),
            &spec,
        ));
    }
    if random.u8(..3) == 0 {
        let spec = format!("{{{target}, {}}}", traffic(random));
        all.push_str(&object(
            "sluicegate.dev/v1alpha1",
            "TrafficPolicy",
            &format!("t-{lower}-{name}"),
            &spec,
        ));
    }
    if random.u8(..5) == 0 {
        let spec = format!(
            "{{{target}, limits: [{{name: all, requests: 100000, per: 1s, key: [{{type: Address}}]}}]}}"
        );
        all.push_str(&object(
            "sluicegate.dev/v1alpha1",
            "RateLimitPolicy",
            &format!("r-{lower}-{name}"),
            &spec,
        ));
    }
    all
}

fn security(random: &mut Rng) -> String {
    let mut parts = Vec::new();
    if random.u8(..3) == 0 {
        parts.push(choose(
            random,
            &[
                "ipAccess: {allow: [10.0.0.0/8]}",
                "ipAccess: {allow: [10.0.0.0/8, 127.0.0.1], deny: [10.9.9.9]}",
                "ipAccess: {deny: [10.1.2.3]}",
            ],
        ));
    }
    if random.u8(..3) == 0 {
        parts.push("cors: {allowOrigins: [\"https://app.test\"], allowMethods: [GET]}");
    }
    let methods = [
        "apiKey: {}",
        "basic: {secretRef: {name: users}}",
        "jwt: {providers: [{name: i, issuer: \"https://issuer.test\", keys: {sharedSecretRef: {name: shared}}}]}",
    ];
    let authentication;
    if random.u8(..3) > 0 || parts.is_empty() {
        let one = random.usize(..3);
        let mut chosen = vec![methods[one]];
        let mut require = "";
        if random.u8(..3) == 0 {
            chosen.push(methods[(one + 1) % 3]);
            require = choose(random, &["require: All, ", "require: Any, ", "require: Optional, "]);
        }
        // A header cannot hold two credentials.
        if chosen.len() == 2 && !chosen.contains(&"apiKey: {}") {
            chosen.pop();
        }
        authentication = format!("authentication: {{{require}{}}}", chosen.join(", "));
        parts.push(&authentication);
        if random.bool() {
            parts.push(choose(random, &[
                "authorization: {rules: [{action: Allow, consumers: [alice]}]}",
                "authorization: {rules: [{action: Allow, groups: [gold], methods: [GET, HEAD]}]}",
                "authorization: {defaultAction: Allow, rules: [{action: Deny, paths: [{type: Prefix, value: /admin}]}]}",
                "authorization: {rules: [{action: Deny, paths: [{type: Prefix, value: /a/b}]}, {action: Allow, addresses: [10.0.0.0/8]}]}",
            ]));
        }
    }
    parts.join(", ")
}

fn traffic(random: &mut Rng) -> String {
    choose(random, &[
        "directResponse: {statusCode: 418, body: tea}",
        "redirect: {statusCode: 301, hostname: moved.test}",
        "urlRewrite: {path: {type: ReplaceFullPath, value: /rewritten}}",
        "urlRewrite: {regex: {pattern: \"^/a/(.*)$\", value: \"/r/$1\"}}",
        "fault: {abort: {statusCode: 503}}",
        "fault: {abort: {statusCode: 502, percent: 50}}",
        "split: {weight: 1, backends: [{serviceRef: {name: other, port: http}, weight: 1}]}",
        "split: {backends: [{serviceRef: {name: empty, port: http}, match: [{header: X-Canary, value: always}]}]}",
        "requestHeaders: {set: [{name: X-By, value: policy}]}, loadBalancing: {hash: [{type: ClientIP}]}",
    ])
    .to_owned()
}

/// An Api with validated parameters.
fn api(random: &mut Rng) -> String {
    let validation =
        choose(random, &["request: Enforce", "request: Report", "request: Enforce, statusCode: 422"]);
    format!(
        r#"---
apiVersion: sluicegate.dev/v1alpha1
kind: Api
metadata: {{name: pets}}
spec:
  validation: {{{validation}}}
  document:
    inline: |
      openapi: 3.1.0
      info: {{title: Pets, version: '1'}}
      paths:
        /pets:
          get:
            operationId: listPets
            parameters: [{{name: limit, in: query, schema: {{type: integer}}}}]
            responses: {{'200': {{description: ok}}}}
          post: {{operationId: createPet, responses: {{'200': {{description: ok}}}}}}
        /a/{{id}}:
          get:
            operationId: getPet
            parameters: [{{name: id, in: path, required: true, schema: {{type: string, maxLength: 2}}}}]
            responses: {{'200': {{description: ok}}}}
  environments:
  - name: production
    hosts: [api.test]
    backend: {{service: web, port: http}}
"#
    )
}
