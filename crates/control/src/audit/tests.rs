//! Tests of versions and of the reports of a source.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sluicegate_model::audit::{Actor, Report};

use super::Trail;
use super::admission::{Admission, requested};
use super::content::version;
use crate::manifest::read_yaml;
use crate::object::{Kind, ObjectRef};
use crate::store::Store;

fn object(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: "default".into(), name: name.into() }
}

fn content(kind: Kind, yaml: &str) -> Value {
    let value = read_yaml(yaml).expect("YAML");
    let version = version(&object(kind, "x"), &value);
    serde_json::from_str(&version.content).expect("JSON")
}

#[test]
fn no_version_has_a_secret() {
    for (kind, yaml) in [
        (Kind::Secret, "data: {key: czNjcjN0}"),
        (Kind::Secret, "stringData: {key: s3cr3t}"),
        (Kind::Secret, "data: s3cr3t"),
        (Kind::Consumer, "spec: {apiKeys: [{name: a, sha256: s3cr3t}]}"),
        (Kind::TrafficPolicy, "spec: {headers: {set: [{name: Authorization, value: s3cr3t}]}}"),
        (Kind::TrafficPolicy, "spec: {headers: {set: [{name: X-Api-Key, value: s3cr3t}]}}"),
        (Kind::HttpRoute, "spec: {rules: [{filters: [{value: 'Bearer s3cr3t'}]}]}"),
        (Kind::SecurityPolicy, "spec: {authentication: {oidc: {clientSecret: s3cr3t}}}"),
        (Kind::RateLimitPolicy, "spec: {shared: {redis: {address: 'redis://user:s3cr3t@redis:6379/0'}}}"),
        (Kind::ConfigMap, "data: {db-password: s3cr3t}"),
        (Kind::ConfigMap, "data: {app.conf: \"a=1\\npassword=s3cr3t\\n\"}"),
        (
            Kind::ConfigMap,
            "data: {key.pem: \"-----BEGIN PRIVATE KEY-----\\ns3cr3t\\n-----END PRIVATE KEY-----\"}",
        ),
        (
            Kind::Ingress,
            "metadata: {annotations: {nginx.ingress.kubernetes.io/configuration-snippet: 'set $a s3cr3t;'}}",
        ),
        (
            Kind::Ingress,
            "metadata: {annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"a\":\"s3cr3t\"}'}}",
        ),
    ] {
        let content = content(kind, yaml).to_string();
        assert!(!content.contains("s3cr3t") && !content.contains("czNjcjN0"), "{kind}: {yaml}: {content}");
    }
}

#[test]
fn version_has_the_fields_that_users_write() {
    let written = "{apiVersion: x, kind: Plan, metadata: {name: a, uid: u, resourceVersion: '7', labels: {team: a}},
                    spec: {title: Gold, secretRef: {name: b, key: c}, tokens: [{subject: s}], tls: {secretName: t}}, status: {a: b}}";
    let expected = json!({"metadata": {"labels": {"team": "a"}}, "spec": {"title": "Gold", "secretRef": {"name": "b", "key": "c"},
        "tokens": [{"subject": "s"}], "tls": {"secretName": "t"}}});
    assert_eq!(content(Kind::Plan, written), expected);
    let service = "{metadata: {labels: {a: b}, annotations: {a/b: c, sluicegate.dev/backend-protocol: HTTP}}, spec: {ports: []}}";
    let expected = json!({"metadata": {"annotations": {"sluicegate.dev/backend-protocol": "HTTP"}}});
    assert_eq!(content(Kind::Service, service), expected);
    let long = content(Kind::ConfigMap, &format!("data: {{a: {}}}", "x".repeat(600)));
    assert!(
        long["data"]["a"].as_str().is_some_and(|text| text.starts_with("(600 bytes, SHA-256 ")),
        "{long}"
    );
}

#[test]
fn change_of_a_secret_changes_the_hash_and_a_repeated_secret_has_another_fingerprint() {
    let of = |yaml: &str| version(&object(Kind::Secret, "x"), &read_yaml(yaml).expect("YAML"));
    assert_ne!(of("stringData: {a: b}").hash, of("stringData: {a: c}").hash);
    assert_eq!(of("{stringData: {a: b}, kind: Secret}").hash, of("stringData: {a: b}").hash);
    let content: Value = serde_json::from_str(&of("stringData: {a: same, b: same}").content).expect("JSON");
    assert_ne!(content["stringData"]["a"], content["stringData"]["b"]);
}

#[test]
fn manager_is_the_newest_that_users_see() {
    let of = |managed: Value| {
        let value = json!({"metadata": {"managedFields": managed}});
        version(&object(Kind::Ingress, "x"), &value).manager
    };
    let entry = |manager: &str, time: &str, fields: Value| json!({"manager": manager, "time": time, "fieldsV1": fields});
    let spec = json!({"f:spec": {}});
    let own = json!({"f:metadata": {"f:annotations": {"f:sluicegate.dev/problems": {}}}});
    let status = json!({"manager": "other", "subresource": "status", "time": "2030-01-01T00:00:00Z"});
    let managed = json!([
        entry("kubectl-create", "2026-01-01T00:00:00Z", spec.clone()),
        entry("kubectl-edit", "2026-01-02T00:00:00Z", spec),
        entry("unknown", "2026-01-03T00:00:00Z", own),
        status
    ]);
    assert_eq!(of(managed).as_deref(), Some("kubectl-edit"));
    assert_eq!(of(json!([])), None);
}

/// A store whose changes are reported.
struct Followed {
    store: Store,
    trail: Trail,
    reports: Arc<Mutex<Vec<Report>>>,
}

impl Followed {
    fn new() -> Self {
        let reports = Arc::<Mutex<Vec<Report>>>::default();
        let to = reports.clone();
        let trail = Trail::new(Arc::new(move |report| to.lock().expect("a lock").push(report)));
        Self { store: Store::recording(), trail, reports }
    }

    /// The reports after a change, in words.
    fn after(&mut self, file: &str, text: &str, is_used: bool) -> Vec<String> {
        match text {
            "" => self.store.remove_file(Path::new(file)),
            text => self.store.set_file(Path::new(file), text),
        };
        self.trail.follow(&mut self.store, |_| is_used, true);
        let reports = std::mem::take(&mut *self.reports.lock().expect("a lock"));
        let in_words = reports.iter().map(|report| match report {
            Report::Start(all) => format!("start {}", all.len()),
            Report::Change(of) => format!(
                "{} {}{}{}{}",
                of.subject.kind,
                of.subject.name,
                if of.version.is_some() { "" } else { " gone" },
                of.fault.as_ref().map(|fault| format!(" {fault}")).unwrap_or_default(),
                if of.is_used { "" } else { " unused" },
            ),
            Report::Request(_) => String::new(),
        });
        in_words.collect()
    }
}

fn plan(name: &str, requests: &str) -> String {
    format!(
        "---\napiVersion: sluicegate.dev/v1alpha1\nkind: Plan\nmetadata: {{name: {name}}}\n\
         spec: {{limits: [{{name: a, requests: {requests}, per: 1s}}]}}\n"
    )
}

#[test]
fn each_written_version_is_reported_once() {
    let mut of = Followed::new();
    assert_eq!(of.after("a.yaml", &plan("gold", "1"), true), ["start 1"]);
    assert_eq!(of.after("a.yaml", &(plan("gold", "1") + "# a comment\n"), true), [""; 0]);
    assert_eq!(of.after("a.yaml", &plan("gold", "2"), true), ["Plan gold"]);
    assert_eq!(of.after("a.yaml", &plan("gold", "x"), true), ["Plan gold spec.limits[0].requests"]);
    assert_eq!(of.after("b.yaml", &plan("silver", "1"), true), ["Plan silver"]);
    assert_eq!(of.after("a.yaml", &plan("bronze", "1"), true), ["Plan bronze", "Plan gold gone"]);
    assert_eq!(of.after("b.yaml", "", true), ["Plan silver gone"]);
    assert_eq!(of.after("c.yaml", &plan("bronze", "1"), true), [""; 0], "the same object in a second file");
    assert_eq!(of.after("a.yaml", "", true), [""; 0], "the object moved to another file");
}

#[test]
fn object_that_the_gateway_does_not_use_is_reported_once_it_is_used() {
    let mut of = Followed::new();
    assert_eq!(of.after("a.yaml", &plan("gold", "1"), false), ["start 0"]);
    assert_eq!(of.after("a.yaml", &plan("gold", "2"), false), [""; 0]);
    assert_eq!(of.after("b.yaml", "# nothing\n", true), ["Plan gold"]);
    let faulty = "Plan gold spec.limits[0].requests";
    assert_eq!(of.after("a.yaml", &plan("gold", "x"), false), [faulty], "it is not known whether it is used");
    assert_eq!(of.after("a.yaml", &plan("gold", "3"), false), ["Plan gold unused"]);
    assert_eq!(of.after("a.yaml", &plan("gold", "4"), false), [""; 0]);
    assert_eq!(of.after("a.yaml", "", false), [""; 0]);
}

#[test]
fn actor_of_a_manifest_is_the_owner_of_the_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("a.yaml");
    std::fs::write(&file, "").expect("a file");
    let mut of = Followed::new();
    of.trail.follow(&mut of.store, |_| true, true);
    of.store.set_file(&file, &(plan("gold", "1") + &plan("silver", "1")));
    of.trail.follow(&mut of.store, |_| true, true);
    let reports = of.reports.lock().expect("a lock");
    let [.., Report::Change(last)] = &**reports else { panic!("{reports:?}") };
    assert!(matches!(&last.actor, Actor::Owner(_)), "{last:?}");
    assert_eq!(last.place.as_ref().map(|place| place.line), Some(7), "{last:?}");
}

#[test]
fn request_that_changes_a_recorded_field_tells_its_user() {
    let plan = |requests: u32, status: &str| json!({"kind": "Plan", "metadata": {"name": "gold"}, "spec": {"requests": requests}, "status": status});
    let of = |group: &str, new: Option<Value>, old: Option<Value>| {
        requested(&Admission {
            group: group.into(),
            kind: "Plan".into(),
            namespace: "shop".into(),
            name: "gold".into(),
            object: new,
            old,
            user: "alice".into(),
            groups: vec!["admins".into()],
        })
    };
    let ours = "sluicegate.dev";
    let created = of(ours, Some(plan(1, "")), None).expect("a request");
    assert_eq!((&*created.user, &*created.subject.name, &*created.groups[0]), ("alice", "gold", "admins"));
    let object = ObjectRef { namespace: "shop".into(), ..object(Kind::Plan, "gold") };
    assert_eq!(created.hash, version(&object, &plan(1, "x")).hash);
    assert!(of(ours, Some(plan(2, "")), Some(plan(1, ""))).is_some());
    assert!(of(ours, Some(plan(1, "new")), Some(plan(1, "old"))).is_none(), "only the status");
    let deleted = of(ours, None, Some(plan(1, ""))).expect("a request");
    assert_eq!(&*deleted.hash, "");
    assert!(of("other.example", Some(plan(1, "")), None).is_none(), "a kind of another group");
}
