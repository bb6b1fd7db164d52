//! Tests of BackendTLSPolicies: TLS to the endpoints of Services, and the state of the policies.

use sluicegate_model::rule::Backend;
use sluicegate_model::{AlternativeName, UpstreamTls, Verification};
use sluicegate_testkit::tls::Authority;

use super::http::{TO_ECHO, http, http_route};
use super::*;
use crate::object::{Kind, ObjectRef};
use crate::status::Content;
use crate::translate::tests::ECHO;
use crate::translate::{Translation, named};

/// A BackendTLSPolicy for `echo`, or for a port of `echo`, with this validation.
fn policy(metadata: &str, section: &str, validation: &str) -> String {
    let section = if section.is_empty() { String::new() } else { format!(", sectionName: {section}") };
    let spec = format!(
        "targetRefs: [{{group: \"\", kind: Service, name: echo{section}}}], validation: {{{validation}}}"
    );
    object("BackendTLSPolicy", metadata, &spec)
}

/// A validation with the ConfigMap `ca` and this hostname.
fn by_ca(hostname: &str) -> String {
    format!("caCertificateRefs: [{}], hostname: {hostname}", reference("ConfigMap", "ca"))
}

fn reference(kind: &str, name: &str) -> String {
    format!("{{group: \"\", kind: {kind}, name: {name}}}")
}

/// A ConfigMap or a Secret with this value of `ca.crt`.
pub(super) fn authorities(kind: &str, name: &str, ca: &str) -> String {
    let field = if kind == "Secret" { "stringData" } else { "data" };
    let ca = ca.replace('\n', "\\n");
    format!("---\napiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n{field}: {{ca.crt: \"{ca}\"}}\n")
}

pub(super) fn pem() -> String {
    Authority::of_process().pem()
}

/// A Gateway with an HTTPRoute to `echo:80`, the Service `echo`, and these manifests.
fn store(manifests: &[String]) -> Store {
    let route = http_route("name: r", "{name: edge}", "", TO_ECHO);
    stored(&[edge(&http("http", 80, "")), route, ECHO.to_owned(), manifests.concat()].concat())
}

fn translated(store: &Store) -> Translation {
    translate(store, &TranslateOptions::default())
}

/// The first backend of the first rule.
fn backend(translation: &Translation) -> &Backend {
    &translation.config.hosts[0].rules[0].backends[0]
}

fn tls_of<'t>(translation: &'t Translation, backend: &Backend) -> &'t UpstreamTls {
    translation.config.upstreams[&backend.upstream].tls.as_ref().expect("TLS")
}

pub(super) fn problems(store: &Store, translation: &Translation) -> Vec<String> {
    store.problems().chain(translation.problems.iter().cloned()).map(|problem| problem.to_string()).collect()
}

/// Each policy with each of its Gateways, and the reasons of both conditions.
pub(super) fn verdicts(translation: &Translation) -> Vec<String> {
    let mut verdicts = Vec::new();
    for status in &translation.statuses {
        let Content::Policy(ancestors) = &status.content else { continue };
        for (gateway, conditions) in ancestors {
            let reasons = conditions.iter().map(|condition| {
                assert_eq!(condition.is_true, condition.reason == condition.name, "{condition:?}");
                condition.reason
            });
            let reasons: Vec<&str> = reasons.collect();
            verdicts.push(format!("{} {}: {}", status.object.name, gateway.name, reasons.join(" ")));
        }
    }
    verdicts
}

#[test]
fn endpoints_of_a_service_with_a_backend_tls_policy_are_verified_with_its_ca_and_names() {
    let names = "subjectAltNames: [{type: Hostname, hostname: \"*.shop.test\"}, {type: URI, uri: \"spiffe://shop.test/web\"}]";
    let both = format!("{}, {}", reference("ConfigMap", "ca"), reference("Secret", "ca"));
    for (validation, roots, alternative_names) in [
        (by_ca("web.test"), 1, None),
        (format!("caCertificateRefs: [{both}], hostname: web.test"), 2, None),
        (
            format!("{}, {names}", by_ca("web.test")),
            1,
            Some(vec![
                AlternativeName::Dns("*.shop.test".into()),
                AlternativeName::Uri("spiffe://shop.test/web".into()),
            ]),
        ),
    ] {
        let ca = [authorities("ConfigMap", "ca", &pem()), authorities("Secret", "ca", &pem())].concat();
        let store = store(&[policy("name: p", "", &validation), ca]);
        let translation = translated(&store);
        assert_problems(&problems(&store, &translation), &[]);
        let backend = backend(&translation);
        assert_eq!(backend.upstream.to_string(), "default/echo:http (https web.test, verified, default/p)");
        let tls = tls_of(&translation, backend);
        assert_eq!((&*tls.server_name, tls.sends_name), ("web.test", true));
        assert_eq!(tls.alternative_names, alternative_names);
        assert!(
            matches!(&tls.verification, Verification::Authorities { roots: known, .. } if known.len() == roots)
        );
        assert_lines(&verdicts(&translation), &["p edge: Accepted ResolvedRefs"]);
    }
}

#[test]
fn well_known_ca_certificates_are_those_that_browsers_trust() {
    let store = store(&[policy("name: p", "", "wellKnownCACertificates: System, hostname: web.test")]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let tls = tls_of(&translation, backend(&translation));
    assert!(tls.verification == Verification::WellKnown);
}

#[test]
fn service_with_an_invalid_backend_tls_policy_receives_no_request() {
    let refs = |references: &str| format!("caCertificateRefs: [{references}], hostname: web.test");
    let other =
        |name: &str, text: &str| (refs(&reference("ConfigMap", name)), authorities("ConfigMap", name, text));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let with = |names: &str| format!("{}, subjectAltNames: [{names}]", by_ca("web.test"));
    let empty = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: empty}\ndata: {}\n";
    let (no_ca, invalid) = ("NoValidCACertificate InvalidCACertificateRef", "Invalid ResolvedRefs");
    for ((validation, more), reasons, problem) in [
        (
            (refs(&reference("ConfigMap", "none")), String::new()),
            no_ca,
            "caCertificateRefs[0]: ConfigMap default/none does not exist",
        ),
        (
            (refs(&reference("ConfigMap", "empty")), empty.to_owned()),
            no_ca,
            "ConfigMap default/empty has no data[ca.crt]",
        ),
        (other("blank", ""), no_ca, "data[ca.crt] of ConfigMap default/blank has no valid certificate"),
        (other("bad", "x"), no_ca, "data[ca.crt] of ConfigMap default/bad has no valid certificate"),
        (
            other("garbage", garbage),
            no_ca,
            "data[ca.crt] of ConfigMap default/garbage has an unusable certificate",
        ),
        (
            (refs("{group: invalid.io, kind: InvalidKind, name: x}"), String::new()),
            "NoValidCACertificate InvalidKind",
            "\"InvalidKind\" is not supported",
        ),
        (
            (refs("{group: x.test, kind: ConfigMap, name: ca}"), String::new()),
            "NoValidCACertificate InvalidKind",
            "\"ConfigMap\" is not supported",
        ),
        (("hostname: web.test".to_owned(), String::new()), invalid, "caCertificateRefs: is missing"),
        (
            ("wellKnownCACertificates: Ours, hostname: web.test".to_owned(), String::new()),
            invalid,
            "\"Ours\" is unknown",
        ),
        (
            (format!("{}, wellKnownCACertificates: System", by_ca("web.test")), String::new()),
            invalid,
            "is not allowed beside",
        ),
        ((by_ca("\"\""), String::new()), invalid, "hostname: is missing"),
        ((by_ca("\"*.test\""), String::new()), invalid, "hostname: *.test must not be a wildcard"),
        ((by_ca("10.0.0.1"), String::new()), invalid, "is an IP address"),
        (
            (with("{type: Hostname, hostname: 10.0.0.1}"), String::new()),
            invalid,
            "subjectAltNames[0].hostname: \"10.0.0.1\" is an IP address",
        ),
        (
            (with("{type: URI, uri: web}"), String::new()),
            invalid,
            "subjectAltNames[0].uri: \"web\" is not a URI",
        ),
        ((with("{type: Email}"), String::new()), invalid, "subjectAltNames[0].type: \"Email\" is unknown"),
    ] {
        let ca = authorities("ConfigMap", "ca", &pem());
        let store = store(&[policy("name: p", "", &validation), ca, more]);
        let translation = translated(&store);
        assert!(backend(&translation).is_invalid, "{validation}");
        assert!(translation.config.upstreams.keys().all(|key| *key.service != *"echo"), "{validation}");
        assert_lines(&verdicts(&translation), &[&format!("p edge: {reasons}")]);
        let told = problems(&store, &translation).join("\n");
        assert!(told.contains(problem), "{problem}: {told}");
        let of_route = "spec.rules[0].backendRefs[0].name: BackendTLSPolicy default/p requires TLS to the Service, but is invalid";
        assert!(told.contains(of_route), "{told}");
    }
}

#[test]
fn unreadable_backend_tls_policy_lets_no_request_through_in_clear_text() {
    let spec = "targetRefs: [{group: \"\", kind: Service, name: echo}], validation: true";
    let store = store(&[object("BackendTLSPolicy", "name: p", spec)]);
    assert!(backend(&translated(&store)).is_invalid);
}

#[test]
fn valid_references_are_trusted_beside_invalid_references() {
    let references = format!("{}, {}", reference("ConfigMap", "none"), reference("ConfigMap", "ca"));
    let validation = format!("caCertificateRefs: [{references}], hostname: web.test");
    let store = store(&[policy("name: p", "", &validation), authorities("ConfigMap", "ca", &pem())]);
    let translation = translated(&store);
    assert!(!backend(&translation).is_invalid);
    assert_lines(&verdicts(&translation), &["p edge: Accepted InvalidCACertificateRef"]);
    let expected =
        "caCertificateRefs[0]: ConfigMap default/none does not exist; the other CA certificates are trusted";
    assert_problems(&problems(&store, &translation), &[expected]);
}

#[test]
fn policy_of_a_port_has_precedence_and_of_equal_targets_the_oldest_policy() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: echo}\nspec: {ports: [{name: one, port: 1}, {name: two, port: \
                   2}]}\n";
    let created =
        |name: &str, day: u8| format!("name: {name}, creationTimestamp: \"2026-01-0{day}T00:00:00Z\"");
    let manifests = [
        edge(&http("http", 80, "")),
        http_route(
            "name: r",
            "{name: edge}",
            "",
            "{backendRefs: [{name: echo, port: 1}, {name: echo, port: 2}]}",
        ),
        service.to_owned(),
        authorities("ConfigMap", "ca", &pem()),
        policy(&created("young", 5), "", &by_ca("young.test")),
        policy(&created("old", 2), "", &by_ca("old.test")),
        policy(&created("port", 9), "one", &by_ca("port.test")),
        policy(&created("younger-port", 9), "one", &by_ca("younger.test")),
    ];
    let store = stored(&manifests.concat());
    let translation = translated(&store);
    let backends = &translation.config.hosts[0].rules[0].backends;
    let names: Vec<&str> =
        backends.iter().map(|backend| &*tls_of(&translation, backend).server_name).collect();
    assert_eq!(names, ["port.test", "old.test"]);
    assert_lines(
        &verdicts(&translation),
        &[
            "old edge: Accepted ResolvedRefs",
            "young edge: Conflicted ResolvedRefs",
            "port edge: Accepted ResolvedRefs",
            "younger-port edge: Conflicted ResolvedRefs",
        ],
    );
    assert_problems(
        &problems(&store, &translation),
        &[
            "young: spec.targetRefs[0].name: BackendTLSPolicy default/old (older, or first by name) applies there already",
            "younger-port: spec.targetRefs[0].sectionName: BackendTLSPolicy default/port (older, or first by name)",
        ],
    );
}

#[test]
fn invalid_older_policy_is_not_replaced_by_a_younger_policy() {
    let policies = [policy("name: a", "", "hostname: web.test"), policy("name: b", "", &by_ca("web.test"))];
    let store = store(&[policies.concat(), authorities("ConfigMap", "ca", &pem())]);
    let translation = translated(&store);
    assert!(backend(&translation).is_invalid);
    assert_lines(
        &verdicts(&translation),
        &["a edge: Invalid ResolvedRefs", "b edge: Conflicted ResolvedRefs"],
    );
}

#[test]
fn policy_for_a_port_that_the_service_lacks_closes_the_ports_without_a_policy() {
    let ca = authorities("ConfigMap", "ca", &pem());
    let typo = policy("name: p", "htp", &by_ca("web.test"));
    let closed = store(&[typo.clone(), ca.clone()]);
    let translation = translated(&closed);
    assert!(backend(&translation).is_invalid);
    let told = problems(&closed, &translation).join("\n");
    assert!(
        told.contains("spec.targetRefs[0].sectionName: Service default/echo has no port \"htp\""),
        "{told}"
    );
    let open = store(&[typo, policy("name: q", "", &by_ca("web.test")), ca]);
    assert!(!backend(&translated(&open)).is_invalid);
}

#[test]
fn backend_tls_policy_has_each_gateway_of_its_routes_as_ancestor() {
    let ca = authorities("ConfigMap", "ca", &pem());
    let manifests = [
        gateway("name: second", &http("http", 81, "")),
        gateway("name: unused", &http("http", 82, "")),
        http_route("name: s", "{name: second}", "", TO_ECHO),
        policy("name: p", "", &by_ca("web.test")),
        object("BackendTLSPolicy", "name: q", "targetRefs: [{group: \"\", kind: Service, name: other}]"),
        ca,
    ];
    let translation = translated(&store(&manifests));
    assert_lines(
        &verdicts(&translation),
        &["p edge: Accepted ResolvedRefs", "p second: Accepted ResolvedRefs"],
    );
}

#[test]
fn each_gateway_presents_its_own_client_certificate_to_endpoints() {
    let spec = "gatewayClassName: sluicegate, listeners: [{name: a, protocol: HTTP, port: 81}], tls: {backend: \
                {clientCertificateRef: {name: client}}}";
    let mirror = "{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: echo, port: 80}}}], backendRefs: [{name: echo, port: \
                  80}]}";
    let manifests = [
        object("Gateway", "name: presenting", spec),
        http_route("name: s", "{name: edge}, {name: presenting}", "s.test", mirror),
        policy("name: p", "", &by_ca("web.test")),
        authorities("ConfigMap", "ca", &pem()),
        Authority::of_process().issue(&["client.test"]).secret("client"),
    ];
    let store = store(&manifests);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    for (entry_point, identity) in [("0.0.0.0:80", false), ("0.0.0.0:81", true)] {
        let mut hosts = translation.config.hosts.iter();
        let host = hosts
            .find(|host| host.entry_point.to_string() == entry_point && host.host.to_string() == "s.test");
        let rule = &host.expect(entry_point).rules[0];
        for upstream in
            rule.upstreams().chain(rule.traffic.iter().flat_map(|traffic| traffic.features.upstreams()))
        {
            let tls = translation.config.upstreams[upstream].tls.as_ref().expect("TLS");
            assert_eq!(tls.identity.is_some(), identity, "{entry_point} {upstream}");
        }
    }
    assert_eq!(translation.config.upstreams.len(), 2);
}

#[test]
fn changed_ca_keeps_the_upstream_and_the_last_valid_ca_stays_trusted() {
    let file = Path::new("ca.yaml");
    let mut store = store(&[policy("name: p", "", &by_ca("web.test"))]);
    let mut roots = |text: &str| {
        assert!(store.set_file(file, &authorities("ConfigMap", "ca", text)).routing || text == "x");
        let translation = translated(&store);
        let backend = backend(&translation).clone();
        match &tls_of(&translation, &backend).verification {
            Verification::Authorities { roots, .. } => (backend.upstream, roots.clone()),
            _ => panic!("other CA certificates"),
        }
    };
    let next = Authority::named("Next");
    let (upstream, first) = roots(&pem());
    let (same, both) = roots(&format!("{}{}", pem(), next.pem()));
    assert_eq!(same, upstream);
    assert_eq!((first.len(), both.len()), (1, 2));
    assert_eq!(roots("x").1, both, "an invalid version does not replace a valid version");
    assert_eq!(roots(&next.pem()).1, [next.certificate()]);
}

#[test]
fn invalid_version_of_a_policy_is_not_in_service_and_the_status_says_so() {
    let file = Path::new("p.yaml");
    let mut store = store(&[authorities("ConfigMap", "ca", &pem())]);
    let valid = policy("name: p, generation: 1", "", &by_ca("web.test"));
    let refs = valid.replace("kind: ConfigMap", "kind: Bucket");
    for (text, generation, reasons) in [
        (valid.clone(), 1, "Accepted ResolvedRefs"),
        (valid.replace("web.test", "10.0.0.1"), 2, "Invalid ResolvedRefs"),
        (refs, 3, "NoValidCACertificate InvalidKind"),
    ] {
        store.set_file(file, &text.replace("generation: 1", &format!("generation: {generation}")));
        let translation = translated(&store);
        assert!(!backend(&translation).is_invalid);
        assert_lines(&verdicts(&translation), &[&format!("p edge: {reasons}")]);
        let status = translation.statuses.iter().find(|status| &*status.object.name == "p");
        assert_eq!(status.and_then(|status| status.generation), Some(generation));
    }
}

#[test]
fn authorities_of_policies_of_http_routes_are_read() {
    let both = format!("{}, {}", reference("ConfigMap", "ca"), reference("Secret", "ca"));
    let used = policy("name: p", "", &format!("caCertificateRefs: [{both}], hostname: web.test"));
    let unused = used
        .replace("name: p", "name: q")
        .replace("name: echo", "name: other")
        .replace("name: ca", "name: x");
    let named = named::Named::find(&store(&[used, unused]), &TranslateOptions::default());
    let names: Vec<String> = named.others.iter().map(ToString::to_string).collect();
    assert_eq!(names, ["Secret default/ca", "ConfigMap default/ca"]);
}

#[test]
fn ingress_uses_the_protocol_of_annotations_whatever_a_backend_tls_policy_requires() {
    let ingress = ingress("name: a", &rules(&["a.test Prefix / echo:80"]));
    let served = serve(&[ingress, ECHO.to_owned(), policy("name: p", "", "hostname: web.test")].concat());
    assert_lines(&served.routes, &["a.test Prefix / -> default/echo:http [10.0.0.1:8080]"]);
}

/// A Gateway `edge` with a listener for TCP, one for TLS that it terminates, and one for passthrough, each with a route to `db`; a
/// BackendTLSPolicy for `db` with this validation; and these manifests.
fn below_http(validation: &str, manifests: &[String]) -> Store {
    let terminated = "{name: t, protocol: TLS, port: 8443, hostname: t.test, tls: {mode: Terminate, certificateRefs: [{name: cert}]}}";
    let listeners = [tcp("tcp", 5432), terminated.to_owned(), tls("p", 8443, "p.test")].join(", ");
    let at = |section: &str| format!("{{name: edge, sectionName: {section}}}");
    let spec =
        format!("targetRefs: [{{group: \"\", kind: Service, name: db}}], validation: {{{validation}}}");
    let own = [
        edge(&listeners),
        attached("TCPRoute", "name: tcp", &at("tcp"), &[], &["db:5432"]),
        attached("TLSRoute", "name: tls", &format!("{}, {}", at("t"), at("p")), &["*.test"], &["db:5432"]),
        object("BackendTLSPolicy", "name: db", &spec),
        authorities("ConfigMap", "ca", &pem()),
        Authority::of_process().issue(&["t.test"]).secret("cert"),
        SERVICES.to_owned(),
    ];
    stored(&[own.concat(), manifests.concat()].concat())
}

/// The upstreams below HTTP, by the name of the route.
fn upstreams_below_http(translation: &Translation) -> Vec<String> {
    let mut upstreams = Vec::new();
    for (host, route) in translation.config.layer4_routes() {
        let of_route =
            route.backends.iter().map(|backend| format!("{} {host}: {}", route.id.name, backend.upstream));
        upstreams.extend(of_route);
    }
    upstreams.sort();
    upstreams
}

#[test]
fn policy_applies_to_tcp_and_terminated_tls_but_not_to_passthrough() {
    let store = below_http(&by_ca("db.test"), &[]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let found = upstreams_below_http(&translation);
    let secured = "default/db:pg (tls db.test, verified, default/db)";
    let expected = [
        format!("tcp *: {secured}"),
        "tls p.test: default/db:pg (tcp)".to_owned(),
        format!("tls t.test: {secured}"),
    ];
    assert_lines(&found, &expected.each_ref().map(|line| &**line));
    for (key, upstream) in &translation.config.upstreams {
        assert_eq!(upstream.tls.is_some(), key.transport.tls.is_some(), "{key}");
        assert_eq!(upstream.endpoints.len(), 1, "{key}");
    }
    assert_lines(&verdicts(&translation), &["db edge: Accepted ResolvedRefs"]);
}

#[test]
fn service_with_an_invalid_policy_receives_no_connection_except_by_passthrough() {
    let validation = format!("caCertificateRefs: [{}], hostname: db.test", reference("ConfigMap", "none"));
    let store = below_http(&validation, &[]);
    let translation = translated(&store);
    let found = upstreams_below_http(&translation);
    let expected = [
        "tcp *: default/(refused):5432 (tcp)",
        "tls p.test: default/db:pg (tcp)",
        "tls t.test: default/(refused):5432 (tcp)",
    ];
    assert_lines(&found, &expected);
    assert_lines(&verdicts(&translation), &["db edge: NoValidCACertificate InvalidCACertificateRef"]);
    let of_parents = |kind| {
        let statuses = translation.statuses.iter().filter(move |status| status.object.kind == kind);
        let parents = statuses.filter_map(|status| match &status.content {
            Content::Route(parents) => Some(parents),
            _ => None,
        });
        let reason = |parent: &crate::status::ParentStatus| parent.conditions[1].reason;
        parents.flatten().map(reason).collect::<Vec<_>>()
    };
    assert_eq!(of_parents(Kind::TcpRoute), ["InvalidBackendTLSPolicy"]);
    assert_eq!(of_parents(Kind::TlsRoute), ["InvalidBackendTLSPolicy", "ResolvedRefs"]);
    let told = problems(&store, &translation).join("\n");
    assert!(
        told.contains(
            "backendRefs[0].name: BackendTLSPolicy default/db requires TLS to the Service, but is invalid"
        ),
        "{told}"
    );
    assert!(told.contains("connections of TLSRoutes and TCPRoutes are closed"), "{told}");
}

#[test]
fn policy_of_passthrough_routes_alone_has_no_ancestor() {
    let spec = format!(
        "targetRefs: [{{group: \"\", kind: Service, name: db}}], validation: {{{}}}",
        by_ca("db.test")
    );
    let manifests = [
        edge(&tls("p", 8443, "")),
        route("TLSRoute", "name: p", &["p.test"], "db:5432"),
        object("BackendTLSPolicy", "name: db", &spec),
        SERVICES.to_owned(),
    ];
    let translation = translated(&stored(&manifests.concat()));
    assert_lines(&verdicts(&translation), &[]);
}

#[test]
fn gateway_presents_its_client_certificate_to_endpoints_below_http() {
    let spec = "gatewayClassName: sluicegate, listeners: [{name: a, protocol: TCP, port: 5433}], tls: {backend: {clientCertificateRef: \
                {name: cert}}}";
    let second = [
        object("Gateway", "name: second", spec),
        attached("TCPRoute", "name: u", "{name: second}", &[], &["db:5432"]),
    ];
    let store = below_http(&by_ca("db.test"), &second);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let identified = translation
        .config
        .upstreams
        .iter()
        .filter(|(_, upstream)| upstream.tls.as_ref().is_some_and(|tls| tls.identity.is_some()));
    let identified: Vec<String> = identified.map(|(key, _)| key.to_string()).collect();
    assert_eq!(identified, ["default/db:pg (tls db.test, verified, default/db, default/cert)"]);
}

#[test]
fn authorities_of_policies_of_tcp_routes_are_read() {
    let store = below_http(&by_ca("db.test"), &[]);
    let named = named::Named::find(&store, &TranslateOptions::default());
    assert!(
        named.others.iter().any(|object| object.kind == Kind::ConfigMap && *object.name == *"ca"),
        "{named:?}"
    );
}

/// A ClusterTrustBundle with these CA certificates.
pub(super) fn bundle(name: &str, ca: &str) -> String {
    let ca = ca.replace('\n', "\\n");
    format!(
        "---\napiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata: {{name: \"{name}\"}}\nspec: {{signerName: x.test/ca, \
         trustBundle: \"{ca}\"}}\n"
    )
}

const BUNDLE: &str = "{group: certificates.k8s.io, kind: ClusterTrustBundle, name: \"x.test:ca:v1\"}";

fn by_bundle() -> String {
    format!("caCertificateRefs: [{BUNDLE}], hostname: web.test")
}

#[test]
fn endpoints_are_verified_with_the_ca_certificates_of_a_cluster_trust_bundle() {
    let authorities = Authority::of_process().pem() + &Authority::named("Other").pem();
    let store = store(&[policy("name: p", "", &by_bundle()), bundle("x.test:ca:v1", &authorities)]);
    let translation = translated(&store);
    assert_problems(&problems(&store, &translation), &[]);
    let tls = tls_of(&translation, backend(&translation));
    assert!(matches!(&tls.verification, Verification::Authorities { roots, .. } if roots.len() == 2));
    assert_lines(&verdicts(&translation), &["p edge: Accepted ResolvedRefs"]);
    let named = named::Named::find(&store, &TranslateOptions::default());
    assert!(named.others.is_empty(), "one watch reads all bundles: {named:?}");
    let object =
        |name: &str| ObjectRef { kind: Kind::ClusterTrustBundle, namespace: "".into(), name: name.into() };
    assert!(named.concerns(&object("x.test:ca:v1")) && !named.concerns(&object("other")));
}

#[test]
fn invalid_cluster_trust_bundle_is_not_trusted() {
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let named = |text: &str| bundle("x.test:ca:v1", text);
    for (bundle, problem) in [
        (String::new(), "ClusterTrustBundle x.test:ca:v1 does not exist"),
        (named(""), "spec.trustBundle of ClusterTrustBundle x.test:ca:v1 is missing"),
        (named("x"), "spec.trustBundle of ClusterTrustBundle x.test:ca:v1 has no certificate in PEM"),
        (named(garbage), "spec.trustBundle of ClusterTrustBundle x.test:ca:v1 has an unusable certificate"),
    ] {
        let store = store(&[policy("name: p", "", &by_bundle()), bundle]);
        let translation = translated(&store);
        assert!(backend(&translation).is_invalid, "{problem}");
        assert_lines(&verdicts(&translation), &["p edge: NoValidCACertificate InvalidCACertificateRef"]);
        let told = problems(&store, &translation).join("\n");
        assert!(told.contains(problem), "{problem}: {told}");
    }
}

#[test]
fn changed_cluster_trust_bundle_is_trusted_and_an_invalid_or_deleted_version_is_not() {
    let mut store = store(&[policy("name: p", "", &by_bundle())]);
    let roots = |store: &Store| {
        let translation = translated(store);
        let backend = backend(&translation);
        (!backend.is_invalid).then(|| match &tls_of(&translation, backend).verification {
            Verification::Authorities { roots, .. } => roots.clone(),
            _ => Vec::new(),
        })
    };
    let other = Authority::named("Other");
    for (text, expected) in [
        (pem(), Some(vec![Authority::of_process().certificate()])),
        (other.pem(), Some(vec![other.certificate()])),
        ("x".to_owned(), None),
        (pem(), Some(vec![Authority::of_process().certificate()])),
    ] {
        store.set_file(Path::new("bundle.yaml"), &bundle("x.test:ca:v1", &text));
        assert_eq!(roots(&store), expected, "{text}");
    }
    store.remove_file(Path::new("bundle.yaml"));
    assert_eq!(roots(&store), None, "the bundle is deleted");
}

#[test]
fn reference_to_a_cluster_trust_bundle_is_of_an_invalid_kind_while_the_cluster_lacks_the_kind() {
    let both = format!("caCertificateRefs: [{BUNDLE}, {}], hostname: web.test", reference("ConfigMap", "ca"));
    for (validation, verdict) in
        [(by_bundle(), "p edge: NoValidCACertificate InvalidKind"), (both, "p edge: Accepted InvalidKind")]
    {
        let ca = authorities("ConfigMap", "ca", &pem());
        let mut store = store(&[policy("name: p", "", &validation), ca, bundle("x.test:ca:v1", &pem())]);
        assert!(store.set_lacks(Kind::ClusterTrustBundle, true).routing);
        let translation = translated(&store);
        assert_lines(&verdicts(&translation), &[verdict]);
        let told = problems(&store, &translation).join("\n");
        assert!(told.contains("the Kubernetes API does not have the kind ClusterTrustBundle"), "{told}");
        assert!(store.set_lacks(Kind::ClusterTrustBundle, false).routing, "the kind appears");
        assert_lines(&verdicts(&translated(&store)), &["p edge: Accepted ResolvedRefs"]);
    }
}

#[test]
fn kind_of_another_group_with_the_name_of_a_cluster_trust_bundle_is_not_supported() {
    let validation = by_bundle().replace("certificates.k8s.io", "x.test");
    let store = store(&[policy("name: p", "", &validation), bundle("x.test:ca:v1", &pem())]);
    assert_lines(&verdicts(&translated(&store)), &["p edge: NoValidCACertificate InvalidKind"]);
}
