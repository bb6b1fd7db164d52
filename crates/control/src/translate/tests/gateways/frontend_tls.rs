//! Tests of the validation of client certificates by HTTPS listeners.

use sluicegate_model::{ClientAuth, ClientAuthMode};
use sluicegate_testkit::tls::Authority;

use super::backend_tls::{authorities, bundle, pem};
use super::http::{TO_ECHO, http, http_route};
use super::*;
use crate::object::Kind;
use crate::status::Content;
use crate::translate::named;
use crate::translate::tests::ECHO;

/// The Gateway `edge` with `tls.frontend`, HTTPS listeners `a` (port 443) and `b` (port 444, name b.test), and an HTTP
/// listener `plain`. Its certificate and the ConfigMap `ca` exist. The HTTPRoute `r` is attached to all listeners.
fn store(frontend: &str, manifests: &[String]) -> Store {
    let https = |name: &str, port: u16, hostname: &str| {
        format!(
            "{{name: {name}, protocol: HTTPS, port: {port}{hostname}, tls: {{certificateRefs: [{{name: cert}}]}}}}"
        )
    };
    let listeners =
        [https("a", 443, ""), https("b", 444, ", hostname: b.test"), http("plain", 80, "")].join(", ");
    let spec =
        format!("gatewayClassName: sluicegate, listeners: [{listeners}], tls: {{frontend: {{{frontend}}}}}");
    let fixed = [
        object("Gateway", "name: edge", &spec),
        http_route("name: r", "{name: edge}", "", TO_ECHO),
        Authority::of_process().issue(&["b.test"]).secret("cert"),
        authorities("ConfigMap", "ca", &pem()),
        ECHO.to_owned(),
    ];
    stored(&[fixed.concat(), manifests.concat()].concat())
}

/// A validation by these references.
fn by(references: &str, mode: &str) -> String {
    format!("{{validation: {{caCertificateRefs: [{references}]{mode}}}}}")
}

const CA: &str = "{group: \"\", kind: ConfigMap, name: ca}";

/// The policy of the TLS host of each HTTPS listener, and of the rules of each HTTP host, by the port.
fn policies(store: &Store) -> Vec<(String, Option<ClientAuth>)> {
    let config = translate(store, &TranslateOptions::default()).config;
    let (mut of_tls, mut of_rules) = (Vec::new(), Vec::new());
    for host in &config.tls.hosts {
        of_tls.push((host.entry_point.to_string(), host.client_auth.as_deref().cloned()));
    }
    for host in &config.hosts {
        for rule in &host.rules {
            let policy = rule.client_auth.as_deref().cloned();
            of_rules.push((host.entry_point.to_string(), policy));
        }
    }
    let of_https = of_rules.iter().filter(|(entry_point, _)| !entry_point.ends_with(":80"));
    assert!(of_https.eq(&of_tls), "the rules of a listener have the policy of its names: {of_rules:?}");
    of_rules
}

/// The mode of each listener, and the number of its CA certificates.
fn admitted(store: &Store) -> Vec<String> {
    let word = |(entry_point, policy): (String, Option<ClientAuth>)| {
        let policy = policy.map(|policy| format!("{:?} {}", policy.mode, policy.roots.len()));
        format!("{entry_point} {}", policy.as_deref().unwrap_or("-"))
    };
    policies(store).into_iter().map(word).collect()
}

#[test]
fn https_listeners_validate_client_certificates_by_the_default_or_by_the_entry_of_their_port() {
    let authority = authorities("Secret", "other", &Authority::named("Other").pem());
    let other = "{group: \"\", kind: Secret, name: other}";
    let port = |tls: &str| format!("default: {}, perPort: [{{port: 444, tls: {tls}}}]", by(CA, ""));
    let all = store(&format!("default: {}", by(CA, "")), &[]);
    assert_eq!(admitted(&all), ["0.0.0.0:443 Required 1", "0.0.0.0:444 Required 1", "0.0.0.0:80 -"]);
    let policy = policies(&all).remove(0).1.expect("a policy");
    assert_eq!((&*policy.source, policy.forward), ("ConfigMap default/ca", false));
    assert_eq!(policy.roots, [Authority::of_process().certificate()]);
    let insecure = port(&by(other, ", mode: AllowInsecureFallback"));
    let own = store(&insecure, &[authority]);
    assert_eq!(admitted(&own), ["0.0.0.0:443 Required 1", "0.0.0.0:444 OptionalNoCa 1", "0.0.0.0:80 -"]);
    let none = store(&port("{}"), &[]);
    assert_eq!(admitted(&none), ["0.0.0.0:443 Required 1", "0.0.0.0:444 -", "0.0.0.0:80 -"]);
    let named = named::Named::find(&own, &TranslateOptions::default());
    let others: Vec<String> = named.others.iter().map(ToString::to_string).collect();
    assert_eq!(others, ["Secret default/other", "ConfigMap default/ca"]);
}

#[test]
fn listener_without_a_valid_ca_certificate_admits_no_client() {
    let far = "{group: \"\", kind: ConfigMap, name: ca, namespace: far}";
    let fallback = ", mode: AllowInsecureFallback";
    let closed = "every client is rejected";
    for (references, mode, problem) in [
        ("", "", format!("caCertificateRefs: is missing: name a ConfigMap with ca.crt; {closed}")),
        (
            "{group: \"\", kind: ConfigMap, name: gone}",
            "",
            format!("[0]: ConfigMap default/gone does not exist; {closed}"),
        ),
        (
            "{group: \"\", kind: ConfigMap, name: gone}",
            fallback,
            format!("ConfigMap default/gone does not exist; {closed}"),
        ),
        ("{group: \"\", kind: Service, name: ca}", "", "[0].kind: \"Service\" is not supported".to_owned()),
        (far, "", format!("allows a Gateway of namespace default to name ConfigMap far/ca; {closed}")),
    ] {
        let store = store(&format!("default: {}", by(references, mode)), &[]);
        let problems: Vec<String> = translate(&store, &TranslateOptions::default())
            .problems
            .iter()
            .cloned()
            .chain(store.problems())
            .map(|problem| problem.to_string())
            .collect();
        assert_problems(&problems, &[&problem]);
        assert_eq!(
            admitted(&store),
            ["0.0.0.0:443 Required 0", "0.0.0.0:444 Required 0", "0.0.0.0:80 -"],
            "{references}"
        );
    }
}

#[test]
fn valid_ca_certificates_are_trusted_beside_invalid_references() {
    let references = format!("{CA}, {{group: \"\", kind: ConfigMap, name: gone}}");
    let store = store(&format!("default: {}", by(&references, "")), &[]);
    assert_eq!(admitted(&store)[0], "0.0.0.0:443 Required 1");
}

#[test]
fn unknown_mode_requires_valid_client_certificates() {
    let store = store(&format!("default: {}", by(CA, ", mode: AllowAll")), &[]);
    assert_eq!(policies(&store)[0].1.as_ref().map(|policy| policy.mode), Some(ClientAuthMode::Required));
    let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    assert_problems(&problems, &["spec.tls.frontend.default.validation.mode: \"AllowAll\" is unknown"]);
}

#[test]
fn reference_grant_allows_ca_certificates_of_another_namespace() {
    let grant = "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {name: g, namespace: far}\nspec: \
                 {from: [{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}], to: [{group: \"\", kind: ConfigMap}]}\n";
    let ca = authorities("ConfigMap", "ca", &pem()).replace("name: ca", "name: ca, namespace: far");
    let far = "{group: \"\", kind: ConfigMap, name: ca, namespace: far}";
    let store = store(&format!("default: {}", by(far, "")), &[grant.to_owned(), ca]);
    assert_eq!(admitted(&store)[0], "0.0.0.0:443 Required 1");
}

#[test]
fn listener_without_its_own_certificate_does_not_admit_clients_by_the_default_certificate() {
    let spec = format!(
        "gatewayClassName: sluicegate, listeners: [{{name: a, protocol: HTTPS, port: 443, tls: {{certificateRefs: [{{name: \
         none}}]}}}}], tls: {{frontend: {{default: {}}}}}",
        by(CA, "")
    );
    let manifests = [object("Gateway", "name: edge", &spec), authorities("ConfigMap", "ca", &pem())];
    let options = TranslateOptions { https_ports: vec![443], ..TranslateOptions::default() };
    let config = translate(&stored(&manifests.concat()), &options).config;
    let roots = config.tls.hosts[0].client_auth.as_ref().map(|policy| policy.roots.len());
    assert_eq!(roots, Some(0));
}

#[test]
fn cluster_trust_bundle_validates_clients_without_a_reference_grant_and_without_a_namespace() {
    let bundle = bundle("x.test:ca:v1", &pem());
    let reference = |more: &str| {
        format!("{{group: certificates.k8s.io, kind: ClusterTrustBundle, name: \"x.test:ca:v1\"{more}}}")
    };
    let listeners = |store: &Store| {
        let translation = translate(store, &TranslateOptions::default());
        let mut reasons = Vec::new();
        for status in translation.statuses {
            if let Content::Gateway(gateway) = status.content {
                let https = gateway.listeners.into_iter().filter(|listener| *listener.name != *"plain");
                reasons.extend(
                    https.map(|listener| (listener.conditions[0].reason, listener.conditions[2].reason)),
                );
            }
        }
        reasons.dedup();
        reasons
    };
    let valid = store(&format!("default: {}", by(&reference(""), "")), std::slice::from_ref(&bundle));
    assert_eq!(admitted(&valid)[0], "0.0.0.0:443 Required 1");
    assert_eq!(&*policies(&valid)[0].1.as_ref().expect("a policy").source, "ClusterTrustBundle x.test:ca:v1");
    assert_eq!(listeners(&valid), [("Accepted", "ResolvedRefs")]);
    let with_namespace = by(&reference(", namespace: default"), "");
    let with_namespace = store(&format!("default: {with_namespace}"), std::slice::from_ref(&bundle));
    assert_eq!(admitted(&with_namespace)[0], "0.0.0.0:443 Required 0");
    assert_eq!(listeners(&with_namespace), [("NoValidCACertificate", "InvalidCACertificateRef")]);
    let missing = store(&format!("default: {}", by(&reference(""), "")), &[]);
    assert_eq!(admitted(&missing)[0], "0.0.0.0:443 Required 0");
    assert_eq!(listeners(&missing), [("NoValidCACertificate", "InvalidCACertificateRef")]);
    let mut lacking = valid;
    lacking.set_lacks(Kind::ClusterTrustBundle, true);
    assert_eq!(admitted(&lacking)[0], "0.0.0.0:443 Required 0");
    assert_eq!(listeners(&lacking), [("NoValidCACertificate", "InvalidCACertificateKind")]);
    let beside = store(&format!("default: {}", by(&format!("{CA}, {}", reference("")), "")), &[]);
    assert_eq!(admitted(&beside)[0], "0.0.0.0:443 Required 1", "the other CA certificates are trusted");
}
