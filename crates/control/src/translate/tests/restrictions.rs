//! Ingresses with annotations of ingress-nginx that restrict access.

use super::{ECHO, ingress, rules, serve, serve_with};
use crate::store::Store;
use crate::{TranslateOptions, translate};

const URL: &str = "nginx.ingress.kubernetes.io/auth-url: \"http://auth.example\"";

/// Each route as `path open` or `path closed`, in the order of the configuration.
fn doors(yaml: &str, options: &TranslateOptions) -> Vec<String> {
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), yaml);
    let config = translate(&store, options).config;
    let door = |route: &sluicegate_model::Rule| {
        let is_closed = route.security.as_ref().is_some_and(|security| security.refuses.is_some());
        format!("{} {}", route.path(), if is_closed { "closed" } else { "open" })
    };
    config.rules().map(door).collect()
}

fn restricted(annotation: &str, paths: &str) -> String {
    format!("{}{ECHO}", ingress(&format!("name: a, annotations: {{{annotation}}}"), paths))
}

#[test]
fn routes_of_an_ingress_with_an_unsupported_access_control_annotation_return_503() {
    let options = TranslateOptions::default();
    let paths = format!(
        "{}, defaultBackend: {{service: {{name: echo, port: {{number: 80}}}}}}",
        rules(&["a.test Prefix /admin echo:http"])
    );
    let yaml = restricted(URL, &paths);
    assert_eq!(doors(&yaml, &options), ["/admin closed", "/ closed"]);
    let problems = serve(&yaml).problems;
    let expected = "metadata.annotations[nginx.ingress.kubernetes.io/auth-url]: restricts access in ingress-nginx, but is not supported; all routes of this Ingress respond with 503";
    assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:#?}");
    for harmless in
        ["nginx.ingress.kubernetes.io/limit-rps: \"0\"", "nginx.ingress.kubernetes.io/proxy-body-size: 8m"]
    {
        assert_eq!(
            doors(&restricted(harmless, &rules(&["a.test Prefix / echo:http"])), &options),
            ["/ open"],
            "{harmless}"
        );
    }
}

/// cert-manager creates such an Ingress for each challenge by HTTP-01.
#[test]
fn ingress_of_cert_manager_for_a_challenge_is_open_and_has_no_problem() {
    let annotation = "nginx.ingress.kubernetes.io/whitelist-source-range: \"0.0.0.0/0,::/0\"";
    let path = "/.well-known/acme-challenge/token";
    let yaml = restricted(annotation, &rules(&[&format!("a.test Exact {path} echo:http")]));
    assert_eq!(doors(&yaml, &TranslateOptions::default()), [format!("{path} open")]);
    assert_eq!(serve(&yaml).problems, Vec::<String>::new());
}

#[test]
fn option_ignore_nginx_access_annotations_opens_the_routes() {
    let options = TranslateOptions { ignore_nginx_access_annotations: true, ..TranslateOptions::default() };
    let yaml = restricted(URL, &rules(&["a.test Prefix / echo:http"]));
    assert_eq!(doors(&yaml, &options), ["/ open"]);
    let problems = serve_with(&yaml, &options).problems;
    assert!(problems.len() == 1 && problems[0].contains("the routes are served without it"), "{problems:#?}");
}

#[test]
fn closed_path_of_an_ingress_does_not_close_paths_of_other_ingresses() {
    let other = ingress("name: b", &rules(&["a.test Prefix / echo:http", "a.test Prefix /shop echo:http"]));
    let yaml = format!("{}{other}", restricted(URL, &rules(&["a.test Prefix /admin echo:http"])));
    assert_eq!(doors(&yaml, &TranslateOptions::default()), ["/admin closed", "/ open", "/shop open"]);
}

#[test]
fn closed_regular_expression_path_closes_all_paths_that_begin_with_its_literal_prefix() {
    let other = ingress("name: b", &rules(&["a.test Prefix / echo:http"]));
    for (path, literal) in [
        ("/admin(/|$)(.*)", "/admin"),
        ("/admin/.*", "/admin/."),
        ("/v1/.+", "/v1/."),
        ("/ab?c", "/a"),
        ("/(.*)", "/"),
    ] {
        let paths = rules(&[&format!("a.test ImplementationSpecific {path} echo:http")]);
        let yaml = format!("{}{other}", restricted(URL, &paths));
        let doors = doors(&yaml, &TranslateOptions::default());
        let literal = literal.trim_end_matches('.');
        assert!(doors.contains(&format!("{literal} closed")), "{path}: {doors:?}");
        assert!(doors.contains(&"/ open".to_owned()), "{path}: {doors:?}");
        let open = format!("{}{other}", restricted("a: b", &paths));
        assert_eq!(
            self::doors(&open, &TranslateOptions::default()).len(),
            2,
            "open paths are as they are written"
        );
    }
}

#[test]
fn access_control_annotations_on_an_ingress_of_another_class_are_ignored() {
    let paths = format!("ingressClassName: nginx, {}", rules(&["a.test Prefix / echo:http"]));
    let served = serve(&restricted(URL, &paths));
    assert!(served.routes.is_empty() && served.problems.is_empty(), "{:#?}", served.problems);
}

#[test]
fn access_control_annotations_of_ingress_nginx_disable_tls_passthrough_of_the_ingress() {
    let paths = rules(&["a.test Prefix / echo:http"]);
    let passthrough = "sluicegate.dev/ssl-passthrough: \"true\"";
    assert_eq!(serve(&restricted(passthrough, &paths)).layer4.len(), 1);
    assert!(serve(&restricted(&format!("{passthrough}, {URL}"), &paths)).layer4.is_empty());
}

#[test]
fn attached_plugins_of_kong_close_the_routes() {
    let plugins = "konghq.com/plugins: key-auth";
    let yaml = restricted(plugins, &rules(&["a.test Prefix / echo:http"]));
    for ignores in [false, true] {
        let options =
            TranslateOptions { ignore_nginx_access_annotations: ignores, ..TranslateOptions::default() };
        assert_eq!(doors(&yaml, &options), ["/ closed"]);
    }
    let problems = serve(&yaml).problems;
    let expected = "metadata.annotations[konghq.com/plugins]: attaches plugins of Kong, which may restrict access, but is not supported; all routes of this Ingress respond with 503";
    assert!(problems.len() == 1 && problems[0].contains(expected), "{problems:#?}");
    let none = restricted("konghq.com/plugins: \" \"", &rules(&["a.test Prefix / echo:http"]));
    assert_eq!(doors(&none, &TranslateOptions::default()), ["/ open"]);
}
