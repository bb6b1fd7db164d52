//! Tests of the classes: which Ingresses the gateway serves.

use super::{assert_problems, ingress, rules, serve_with};
use crate::Severity;
use crate::translate::TranslateOptions;

fn class(name: &str, controller: &str, annotations: &str) -> String {
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: IngressClass\n\
         metadata: {{name: {name}, {annotations}}}\nspec: {{controller: {controller}}}\n"
    )
}

const DEFAULT: &str = "annotations: {ingressclass.kubernetes.io/is-default-class: \"true\"}";
const OURS: &str = "sluicegate.dev/ingress-controller";

/// The names of the served Ingresses. The manifests have an Ingress without a class, and an Ingress for each way to
/// name a class.
fn served(classes: &str, options: &TranslateOptions) -> Vec<&'static str> {
    let rule = |service: &str| rules(&[&format!("{service}.example Prefix / {service}:80")]);
    let annotated = |class: &str| format!("annotations: {{kubernetes.io/ingress.class: {class}}}");
    let ingresses = [
        ("none", ingress("name: none", &rule("none"))),
        ("sluicegate", ingress("name: a", &format!("ingressClassName: sluicegate, {}", rule("sluicegate")))),
        ("gold", ingress("name: b", &format!("ingressClassName: gold, {}", rule("gold")))),
        ("nginx", ingress("name: c", &format!("ingressClassName: nginx, {}", rule("nginx")))),
        ("@sluicegate", ingress(&format!("name: d, {}", annotated("sluicegate")), &rule("at-sluicegate"))),
        ("@gold", ingress(&format!("name: e, {}", annotated("gold")), &rule("at-gold"))),
        ("@nginx", ingress(&format!("name: f, {}", annotated("nginx")), &rule("at-nginx"))),
    ];
    let text: String = ingresses.iter().map(|(_, text)| text.as_str()).collect();
    let served = serve_with(&format!("{text}{classes}"), options);
    ingresses
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| {
            let host = format!("{}.example ", name.replace('@', "at-"));
            served.routes.iter().any(|route| route.starts_with(&host))
        })
        .collect()
}

#[test]
fn ingress_is_served_according_to_its_class() {
    let nginx = class("nginx", "k8s.io/ingress-nginx", "");
    let nginx_default = class("nginx", "k8s.io/ingress-nginx", DEFAULT);
    let gold = class("gold", OURS, "");
    let gold_default = class("gold", OURS, DEFAULT);
    let own_name_of_others = class("sluicegate", "k8s.io/ingress-nginx", "");
    for (what, classes, expected) in [
        ("no classes at all", String::new(), "none sluicegate @sluicegate"),
        ("others' alone", nginx.clone(), "sluicegate @sluicegate"),
        ("ours and others'", format!("{nginx}{gold}"), "sluicegate gold @sluicegate @gold"),
        ("ours by default", format!("{nginx}{gold_default}"), "none sluicegate gold @sluicegate @gold"),
        ("others' by default", format!("{nginx_default}{gold}"), "sluicegate gold @sluicegate @gold"),
        ("our name for others", own_name_of_others, ""),
    ] {
        assert_eq!(served(&classes, &TranslateOptions::default()).join(" "), expected, "{what}");
    }
}

#[test]
fn options_can_set_the_ingress_class_and_include_ingresses_without_a_class() {
    let options = TranslateOptions {
        ingress_class: "nginx".to_owned(),
        watch_ingress_without_class: true,
        ..TranslateOptions::default()
    };
    assert_eq!(served(&class("gold", OURS, ""), &options), ["none", "gold", "nginx", "@gold", "@nginx"]);
    let others_default = class("other", "example.com/other", DEFAULT);
    assert_eq!(served(&others_default, &options), ["none", "nginx", "@nginx"]);
}

#[test]
fn newest_default_ingress_class_has_precedence() {
    let created = |name: &str, controller: &str, created: &str| {
        class(name, controller, &format!("creationTimestamp: \"{created}\", {DEFAULT}"))
    };
    for (ours, others, is_served) in [
        ("2024-02-01T00:00:00Z", "2024-01-01T00:00:00Z", true),
        ("2024-01-01T00:00:00Z", "2024-02-01T00:00:00Z", false),
        ("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", true),
    ] {
        let classes = format!("{}{}", created("z", "example.com/other", others), created("gold", OURS, ours));
        let served = served(&classes, &TranslateOptions::default());
        assert_eq!(served.contains(&"none"), is_served, "{ours} {others}");
    }
}

#[test]
fn ingress_class_field_has_precedence_over_the_class_annotation() {
    let text = ingress(
        "name: a, annotations: {kubernetes.io/ingress.class: nginx}",
        &format!("ingressClassName: sluicegate, {}", rules(&["* Prefix / echo:80"])),
    );
    let served = serve_with(&text, &TranslateOptions::default());
    assert_eq!(served.routes.len(), 1);
    assert!(served.problems[0].contains("metadata.annotations[kubernetes.io/ingress.class]: is ignored"));
}

#[test]
fn note_about_an_ingress_of_another_class_states_the_remedy() {
    let spec = rules(&["* Prefix / missing:80"]);
    let nginx = class("nginx", "k8s.io/ingress-nginx", "");
    let nginx_default = class("nginx", "k8s.io/ingress-nginx", DEFAULT);
    let of_nginx = ingress("name: a", &format!("ingressClassName: nginx, {spec}"));
    for (text, note) in [
        (
            of_nginx.clone(),
            "m.yaml:5: Ingress default/a: spec.ingressClassName: \"nginx\" is not served here; start with --ingress-nginx-compatibility to serve it as ingress-nginx does, or with --ingress-class nginx",
        ),
        (
            format!("{of_nginx}{nginx}"),
            "spec.ingressClassName: \"nginx\" is not served here: IngressClass nginx belongs to the controller \
             \"k8s.io/ingress-nginx\"; name a class of sluicegate.dev/ingress-controller",
        ),
        (
            ingress("name: a, annotations: {kubernetes.io/ingress.class: nginx}", &spec),
            "metadata.annotations[kubernetes.io/ingress.class]: \"nginx\" is not served here; start with --ingress-nginx-compatibility",
        ),
        (
            format!("{}{nginx}", ingress("name: a", &spec)),
            "spec.ingressClassName: is missing, and no IngressClass is the default; \
             start with --watch-ingress-without-class to serve it",
        ),
        (
            format!("{}{nginx_default}", ingress("name: a", &spec)),
            "is missing, and the default IngressClass nginx belongs to another controller; start with --watch-ingress-without-class",
        ),
    ] {
        let served = serve_with(&text, &TranslateOptions::default());
        assert!(served.routes.is_empty() && served.problems.is_empty());
        let mut store = crate::Store::default();
        store.set_file(std::path::Path::new("m.yaml"), &text);
        let notes = crate::translate(&store, &TranslateOptions::default()).foreign;
        assert!(notes.iter().all(|note| note.severity == Severity::Note));
        let notes: Vec<String> = notes.iter().map(ToString::to_string).collect();
        assert_problems(&notes, &[note]);
    }
}
