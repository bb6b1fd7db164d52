//! Reviews with the objects of a store.

use std::path::Path;

use super::*;
use crate::translate::IngressNginx;

/// An Ingress of class nginx, with annotations as `name: value` lines, and one path.
fn ingress(name: &str, annotations: &[&str], host: &str, path: &str) -> Value {
    let annotations = annotations.iter().map(|line| {
        let (name, value) = line.split_once(": ").expect("name: value");
        (format!("nginx.ingress.kubernetes.io/{name}"), Value::from(value))
    });
    let backend = serde_json::json!({"service": {"name": "web", "port": {"number": 80}}});
    serde_json::json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": annotations.collect::<serde_json::Map<_, _>>(),
        },
        "spec": {
            "ingressClassName": "nginx",
            "rules": [{"host": host, "http": {"paths": [{"path": path, "pathType": "Prefix", "backend": backend}]}}],
        },
    })
}

const SERVICE: &str = "
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{port: 80}]}
";

fn options() -> TranslateOptions {
    TranslateOptions { ingress_nginx: Some(IngressNginx::default()), ..TranslateOptions::default() }
}

/// A store with the Service `web`, and with these objects.
fn store(objects: &[Value]) -> Store {
    let mut store = Store::default();
    store.set_file(Path::new("service.yaml"), SERVICE);
    for (nth, object) in objects.iter().enumerate() {
        store.set_file(Path::new(&format!("{nth}.json")), &object.to_string());
    }
    store
}

fn reviewed_with(store: &Store, options: &TranslateOptions, object: Value) -> Reviewed {
    match parse(object).expect("a reviewed kind") {
        Ok(parsed) => review(store, options, &parsed),
        Err(reviewed) => reviewed,
    }
}

fn reviewed(store: &Store, object: Value) -> Reviewed {
    reviewed_with(store, &options(), object)
}

#[track_caller]
fn assert_contains(texts: &[String], expected: &[&str]) {
    assert_eq!(texts.len(), expected.len(), "{texts:#?}");
    for (text, expected) in texts.iter().zip(expected) {
        assert!(text.contains(expected), "{text:?} lacks {expected:?}");
    }
}

#[test]
fn correct_ingress_has_no_error_and_no_warning() {
    let object = ingress("cart", &["proxy-read-timeout: 30", "limit-rps: 5"], "shop.example.com", "/");
    assert_eq!(reviewed(&store(&[]), object), Reviewed::default());
}

#[test]
fn error_of_an_annotation_names_the_object_the_field_and_the_consequence() {
    let object = ingress("cart", &["limit-rps: many"], "shop.example.com", "/");
    let reviewed = reviewed(&store(&[]), object);
    let expected = "Ingress shop/cart: metadata.annotations[nginx.ingress.kubernetes.io/limit-rps]: ";
    assert_contains(&reviewed.errors, &[expected]);
    assert!(reviewed.warnings.is_empty());
}

#[test]
fn references_to_objects_that_do_not_exist_yet_are_no_errors() {
    let mut object = ingress(
        "cart",
        &["auth-type: basic", "auth-secret: users", "default-backend: pages", "auth-tls-secret: shop/ca"],
        "shop.example.com",
        "/",
    );
    object["spec"]["tls"] = serde_json::json!([{"hosts": ["shop.example.com"], "secretName": "later"}]);
    let reviewed = reviewed(&Store::default(), object);
    assert_contains(&reviewed.errors, &[]);
    // The gateway reads other Secrets only once a served object names them, so it cannot tell whether they exist.
    assert_contains(
        &reviewed.warnings,
        &[
            "Secret shop/later does not exist",
            "Service shop/pages does not exist",
            "Service shop/web does not exist",
        ],
    );
}

#[test]
fn content_of_other_objects_causes_warnings() {
    let secret = serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "users", "namespace": "shop"}, "data": {},
    });
    let object = ingress("cart", &["auth-type: basic", "auth-secret: users"], "shop.example.com", "/");
    let reviewed = reviewed(&store(&[secret]), object);
    assert_contains(&reviewed.errors, &[]);
    assert_contains(&reviewed.warnings, &["Secret shop/users has no data[auth]"]);
}

#[test]
fn setting_of_the_configmap_that_an_ingress_cannot_use_causes_a_warning() {
    let map = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "sluicegate"},
        "data": {"global-auth-url": "http://$host/check"},
    });
    let name = ObjectName { namespace: "sluicegate".into(), name: "settings".into() };
    let options = TranslateOptions { configmap: Some(name), ..options() };
    let object = ingress("cart", &[], "*.example.com", "/");
    let reviewed = reviewed_with(&store(&[map]), &options, object);
    assert_contains(&reviewed.errors, &[]);
    assert_contains(&reviewed.warnings, &["needs a rule with a host"]);
}

#[test]
fn services_of_other_namespaces_are_known() {
    let sso = SERVICE.replace("web", "sso").replace("shop", "login");
    let mut store = store(&[]);
    store.set_file(Path::new("sso.yaml"), &sso);
    let url = "auth-url: http://sso.login.svc.cluster.local/check";
    let object = ingress("cart", &[url], "shop.example.com", "/");
    assert_eq!(reviewed(&store, object), Reviewed::default());
}

#[test]
fn path_of_another_ingress_is_rejected() {
    let first = ingress("first", &[], "shop.example.com", "/cart");
    let known = store(&[first]);
    // As in ingress-nginx, the age of the objects does not count.
    let second = reviewed(&known, ingress("second", &[], "shop.example.com", "/cart"));
    let expected = "Ingress shop/second: spec.rules[0].http.paths[0].path: Ingress shop/first already has the path \"/cart\" of \
                    host shop.example.com.";
    assert_contains(&second.errors, &[expected]);
    for (host, path) in [("shop.example.com", "/pay"), ("www.example.com", "/cart")] {
        assert_contains(&reviewed(&known, ingress("second", &[], host, path)).errors, &[]);
    }
}

#[test]
fn path_of_an_ingress_of_another_class_is_no_conflict() {
    let mut first = ingress("first", &[], "shop.example.com", "/cart");
    first["spec"]["ingressClassName"] = "other".into();
    let second = ingress("second", &[], "shop.example.com", "/cart");
    assert_eq!(reviewed(&store(&[first]), second), Reviewed::default());
}

#[test]
fn ingress_keeps_a_path_that_it_shares_already() {
    let shared = |name| ingress(name, &[], "shop.example.com", "/cart");
    let known = store(&[shared("first"), shared("second")]);
    assert_contains(&reviewed(&known, shared("second")).errors, &[]);
}

#[test]
fn canary_shares_the_path_of_its_main_ingress_and_not_of_another_canary() {
    let canary = |name| {
        let mut canary = ingress(name, &["canary: true", "canary-weight: 10"], "shop.example.com", "/cart");
        canary["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "next".into();
        canary
    };
    let main = ingress("main", &[], "shop.example.com", "/cart");
    let first = reviewed(&store(std::slice::from_ref(&main)), canary("first"));
    assert_contains(&first.errors, &[]);
    assert_contains(&first.warnings, &["Service shop/next does not exist"]);
    let known = store(&[main, canary("first")]);
    assert_contains(&reviewed(&known, canary("second")).errors, &["Ingress shop/first already has the path"]);
}

#[test]
fn ingress_of_another_class_is_accepted_without_warnings() {
    let served = ingress("first", &[], "shop.example.com", "/");
    let mut object = ingress("cart", &["limit-rps: many"], "shop.example.com", "/");
    object["metadata"]["annotations"]["sluicegate.dev/ssl-redirect"] = "perhaps".into();
    object["spec"]["ingressClassName"] = "other".into();
    assert_eq!(reviewed(&store(&[served]), object), Reviewed::default());
}

#[test]
fn ingress_of_our_own_class_is_reviewed() {
    let mut object = ingress("cart", &[], "shop.example.com", "/");
    object["spec"]["ingressClassName"] = "sluicegate".into();
    object["metadata"]["annotations"] = serde_json::json!({"sluicegate.dev/ssl-redirect": "perhaps"});
    let reviewed = reviewed(&store(&[]), object);
    assert_contains(&reviewed.errors, &["metadata.annotations[sluicegate.dev/ssl-redirect]"]);
}

#[test]
fn policy_is_reviewed_by_itself() {
    let policy = |limit: Value| {
        serde_json::json!({
            "apiVersion": "sluicegate.dev/v1alpha1", "kind": "RateLimitPolicy",
            "metadata": {"name": "calm", "namespace": "shop"},
            "spec": {"targetRefs": [{"group": "networking.k8s.io", "kind": "Ingress", "name": "cart"}], "limits": [limit]},
        })
    };
    let right =
        policy(serde_json::json!({"name": "all", "requests": 5, "per": "1s", "key": [{"type": "Address"}]}));
    let wrong = policy(serde_json::json!({"requests": "many"}));
    assert_contains(&reviewed(&store(&[]), right).errors, &[]);
    let reviewed = reviewed(&store(&[]), wrong);
    assert!(reviewed.errors.iter().any(|error| error.contains("spec.limits[0]")), "{reviewed:#?}");
}

#[test]
fn kinds_that_no_review_covers_are_refused() {
    for (version, kind) in
        [("apps/v1", "Deployment"), ("v1", "Secret"), ("extensions/v1beta1", "Ingress"), ("", "")]
    {
        let object = serde_json::json!({"apiVersion": version, "kind": kind, "metadata": {"name": "x"}});
        let error = parse(object).expect_err(kind);
        assert!(error.to_string().starts_with(&format!("{version} {kind} is not reviewed")), "{error}");
    }
    assert!(parse(Value::Null).is_err());
}

/// CVE-2025-1974: the webhook of ingress-nginx wrote the reviewed Ingress into a configuration file and let nginx test the file.
/// Any pod could send a review whose values added directives, such as `ssl_engine`, and nginx executed the library of the caller.
///
/// A review here has no template, file or process. Each value becomes a typed setting or an error, and the reviewed object never
/// reaches the store from which the gateway serves.
#[test]
fn review_of_a_hostile_ingress_only_reports_errors() {
    const DIRECTIVES: &str =
        "http://x.example/#;}}}\nssl_engine /proc/self/fd/9;\nhttp { server { location / {";
    let known = store(&[ingress("first", &[], "www.example.com", "/")]);
    let before = translate(&known, &options()).config;
    for annotation in ["auth-url", "mirror-target", "auth-signin"] {
        let hostile = ingress("hostile", &[&format!("{annotation}: {DIRECTIVES}")], "shop.example.com", "/");
        let reviewed = reviewed(&known, hostile);
        let field = format!("metadata.annotations[nginx.ingress.kubernetes.io/{annotation}]");
        assert!(reviewed.errors.iter().any(|error| error.contains(&field)), "{annotation}: {reviewed:#?}");
        // A line of an error can forge no second line of a log.
        assert!(reviewed.errors.iter().all(|error| !error.contains('\n')), "{reviewed:#?}");
    }
    let snippet = format!("configuration-snippet: {DIRECTIVES}");
    let rejected = reviewed(&known, ingress("hostile", &[&snippet], "shop.example.com", "/"));
    assert!(!rejected.errors.is_empty());
    // CVE-2025-1098: the UID of the object was a part of the configuration too.
    let mut by_uid = ingress("hostile", &[], "shop.example.com", "/");
    by_uid["metadata"]["uid"] = DIRECTIVES.into();
    assert_eq!(reviewed(&known, by_uid), Reviewed::default());
    assert_eq!(translate(&known, &options()).config, before);
}

#[tokio::test]
async fn review_before_the_objects_are_known_accepts_with_a_warning() {
    let (reviews, mut questions) = Reviews::new();
    let ask = |is_complete: bool, questions: &mut mpsc::Receiver<Question>| {
        let question = questions.try_recv().expect("a question");
        question.answer(&store(&[]), &options(), is_complete);
    };
    let wrong = ingress("cart", &["limit-rps: many"], "shop.example.com", "/");
    for is_complete in [false, true] {
        let mut reviewed = Box::pin(reviews.review(wrong.clone()));
        tokio::select! {
            biased;
            _ = &mut reviewed => panic!("there is no answer yet"),
            () = std::future::ready(()) => ask(is_complete, &mut questions),
        }
        let reviewed = reviewed.await.expect("a verdict");
        assert_eq!(reviewed.errors.is_empty(), !is_complete);
        assert_eq!(reviewed.warnings.iter().any(|warning| warning.contains("is not checked")), !is_complete);
    }
    drop(questions);
    assert_eq!(reviews.review(wrong).await, Err(ReviewError::Ends));
}
