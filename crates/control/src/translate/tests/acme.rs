//! Tests of certificates of an ACME server.

use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sluicegate_acme::Link;
use sluicegate_model::KeyKind;
use sluicegate_testkit::tls::{Authority, Issued};

use super::{ECHO, assert_problems, ingress, rules, serve_with};
use crate::acme::{Acme, AcmeManifests, AcmeOptions};
use crate::{ObjectName, Store, TranslateOptions, Translation, translate};

const THUMBPRINT: &str = "LPJNul-wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ";

const ASKS: &str = "annotations: {sluicegate.dev/acme: \"true\"}";

fn options() -> TranslateOptions {
    let name = |name: &str| ObjectName { namespace: "gate".into(), name: name.into() };
    let acme = AcmeOptions {
        account: name("acme"),
        challenges: name("challenges"),
        link: Link::default(),
        manifests: AcmeManifests::default(),
    };
    TranslateOptions { acme: Acme::On(acme), https_ports: vec![443], ..TranslateOptions::default() }
}

/// A Secret of the gateway's namespace.
fn own(name: &str, data: &[(&str, &str)]) -> String {
    let data: Vec<String> =
        data.iter().map(|(key, value)| format!("{key}: {}", BASE64_STANDARD.encode(value))).collect();
    let data = data.join(", ");
    format!(
        "---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: gate}}\ndata: {{{data}}}\n"
    )
}

fn account() -> String {
    own("acme", &[("thumbprint", THUMBPRINT)])
}

/// An Ingress that asks for a certificate for its hosts.
fn asking(name: &str, hosts: &str, secret: &str) -> String {
    let rules = rules(&["a.test Prefix / echo:80"]);
    ingress(
        &format!("name: {name}, {ASKS}"),
        &format!("{rules}, tls: [{{hosts: [{hosts}], secretName: {secret}}}]"),
    )
}

fn translated(text: &str) -> Translation {
    let mut store = Store::default();
    store.set_file(Path::new("m.yaml"), text);
    translate(&store, &options())
}

/// The wishes, each as `namespace/name: hosts`, with a `+` if there is a certificate.
fn wishes(translation: &Translation) -> Vec<String> {
    let wish = |wish: &sluicegate_acme::Wish| {
        let mark = if wish.current.is_some() { " +" } else { "" };
        format!("{}/{}: {}{mark}", wish.secret.namespace, wish.secret.name, wish.hosts.join(" "))
    };
    translation.acme.state.wishes.iter().map(wish).collect()
}

fn issued(names: &[&str]) -> Issued {
    let later = SystemTime::now() + Duration::from_secs(3600);
    Authority::of_process().issue_with(names, KeyKind::Ecdsa, later)
}

fn labelled(secret: &str) -> String {
    secret.replace("metadata: {", "metadata: {labels: {sluicegate.dev/acme: issued}, ")
}

#[test]
fn ingress_with_the_annotation_asks_for_its_certificate_and_data_planes_know_its_hosts() {
    let text = format!("{}{ECHO}{}", asking("a", "a.test, b.test", "cert"), account());
    let translation = translated(&text);
    assert_eq!(wishes(&translation), ["default/cert: a.test b.test"]);
    let hosts: Vec<_> =
        translation.config.tls.acme.iter().map(|host| (&*host.host, &*host.thumbprint)).collect();
    assert_eq!(hosts, [("a.test", THUMBPRINT), ("b.test", THUMBPRINT)]);
    let problems = serve_with(&text, &options()).problems;
    assert_problems(
        &problems,
        &["is not ordered yet; hosts without another certificate use the default certificate"],
    );
    // Without the account, the data planes answer nothing.
    for broken in [String::new(), own("acme", &[("thumbprint", "short")])] {
        let translation = translated(&format!("{}{ECHO}{broken}", asking("a", "a.test", "cert")));
        assert_eq!((wishes(&translation).len(), translation.config.tls.acme.len()), (1, 0));
    }
}

#[test]
fn secret_of_the_gateway_is_renewed_and_a_secret_of_another_origin_is_not() {
    let secret = issued(&["a.test"]).secret("cert");
    let ingress = asking("a", "a.test", "cert");
    let ours = format!("{ingress}{ECHO}{}{}", account(), labelled(&secret));
    assert_eq!(wishes(&translated(&ours)), ["default/cert: a.test +"]);
    assert_problems(&serve_with(&ours, &options()).problems, &[]);
    let foreign = format!("{ingress}{ECHO}{}{secret}", account());
    assert_eq!(wishes(&translated(&foreign)), [""; 0]);
    assert_problems(
        &serve_with(&foreign, &options()).problems,
        &[
            "spec.tls[0].secretName: Secret default/cert was not ordered from an ACME server, so the gateway does not renew it",
        ],
    );
    assert!(
        translated(&foreign).config.tls.acme.is_empty(),
        "another controller may prove control of the host"
    );
}

#[test]
fn hosts_that_cannot_be_proved_are_reported() {
    for (hosts, problem) in [
        (
            "\"*.a.test\"",
            "no certificate is ordered for *.a.test: the challenges http-01 and tls-alpn-01 prove no wildcard",
        ),
        ("", "no certificate is ordered, because the entry names no hosts"),
    ] {
        let text = format!("{}{ECHO}{}", asking("a", hosts, "cert"), account());
        assert_eq!(wishes(&translated(&text)), [""; 0], "{hosts}");
        let problems = serve_with(&text, &options()).problems;
        assert!(problems.iter().any(|of| of.contains(problem)), "{problems:#?}");
    }
}

#[test]
fn no_other_namespace_receives_a_certificate_for_a_host() {
    let older =
        ingress("name: a, creationTimestamp: 2020-01-01T00:00:00Z", &rules(&["a.test Prefix / echo:80"]));
    let younger = asking("b", "a.test, b.test", "cert")
        .replace("metadata: {", "metadata: {namespace: other, creationTimestamp: 2021-01-01T00:00:00Z, ");
    let text = format!("{older}{younger}{ECHO}{}", account());
    assert_eq!(wishes(&translated(&text)), ["other/cert: b.test"]);
    let problems = serve_with(&text, &options()).problems;
    let expected = "no certificate is ordered for a.test: Ingress default/a of another namespace is older and has the host";
    assert!(problems.iter().any(|problem| problem.contains(expected)), "{problems:#?}");
}

#[test]
fn listener_of_a_gateway_with_the_annotation_asks_for_its_certificate() {
    let gateway = |hostname: &str, secret: &str| {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, {ASKS}}}\n\
             spec: {{gatewayClassName: sluicegate, listeners: [{{name: x, protocol: HTTPS, port: 443{hostname}, \
             tls: {{certificateRefs: [{secret}]}}}}]}}\n{}",
            account()
        )
    };
    let own = gateway(", hostname: g.test", "{name: cert}");
    assert_eq!(wishes(&translated(&own)), ["default/cert: g.test"]);
    assert_eq!(translated(&own).config.tls.acme.len(), 1);
    let other = gateway(", hostname: g.test", "{name: cert, namespace: other}");
    assert_eq!(wishes(&translated(&other)), [""; 0], "another namespace grants no making of Secrets");
    for (hostname, problem) in
        [("", "the listener has no hostname"), (", hostname: \"*.g.test\"", "prove no wildcard")]
    {
        let problems = serve_with(&gateway(hostname, "{name: cert}"), &options()).problems;
        assert!(problems.iter().any(|of| of.contains(problem)), "{problems:#?}");
    }
}

#[test]
fn certificate_of_a_challenge_in_progress_reaches_the_data_planes() {
    let made = issued(&["a.test"]);
    let parts = [("a.test.crt", &*made.chain_pem), ("a.test.key", &made.key_pem), ("b.test.crt", "garbage")];
    let text =
        format!("{}{ECHO}{}{}", asking("a", "a.test, b.test", "cert"), account(), own("challenges", &parts));
    let translation = translated(&text);
    let challenges: Vec<_> =
        translation.config.tls.acme.iter().map(|host| host.challenge.is_some()).collect();
    assert_eq!(challenges, [true, false]);
    let first = made.certificate.chain[0].to_vec();
    assert_eq!(translation.acme.state.challenges, [("a.test".into(), first)].into());
}

#[test]
fn annotation_is_reported_if_the_gateway_orders_no_certificates() {
    let text = format!("{}{ECHO}{}", asking("a", "a.test", "cert"), account());
    let off = TranslateOptions { acme: Acme::Off, ..options() };
    assert_problems(
        &serve_with(&text, &off).problems,
        &[
            "is not ordered yet",
            "has no effect: start the gateway with --acme-terms-agreed, or remove the annotation",
        ],
    );
}
