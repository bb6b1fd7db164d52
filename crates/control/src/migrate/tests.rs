//! Tests of the report.

use std::path::PathBuf;

use super::{MigrationReport, Verdict, migration_report};
use crate::translate::{IngressNginx, TranslateOptions};

fn ingress(name: &str, class: &str, path: &str, annotations: &[(&str, &str)]) -> String {
    let annotations: String = annotations
        .iter()
        .map(|(name, value)| format!("    nginx.ingress.kubernetes.io/{name}: {value:?}\n"))
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: shop\n  annotations:\n    \
         owner: shop\n{annotations}spec:\n  ingressClassName: {class}\n  rules:\n  - host: {name}.test\n    http:\n      paths:\n      \
         - path: {path:?}\n        pathType: ImplementationSpecific\n        backend: {{service: {{name: web, port: {{number: 80}}}}}}\n"
    )
}

fn report(yaml: &str) -> MigrationReport {
    let options =
        TranslateOptions { ingress_nginx: Some(IngressNginx::default()), ..TranslateOptions::default() };
    migration_report(&[(PathBuf::from("m.yaml"), yaml.to_owned())], &options)
}

#[test]
fn report_has_a_verdict_for_each_annotation_and_the_worst_verdict_for_each_ingress() {
    let yaml = ingress("same", "nginx", "/", &[("proxy-body-size", "8m"), ("auth-keepalive", "4")])
        + &ingress("different", "nginx", "/", &[("proxy-send-timeout", "5")])
        + &ingress("refused", "nginx", "/", &[("enable-modsecurity", "true"), ("proxy-body-size", "8m")])
        + &ingress("closed", "nginx", "/", &[("auth-of-tomorrow", "yes")])
        + &ingress("regex", "nginx", "/(?!admin)", &[("use-regex", "true")])
        + &ingress("other", "traefik", "/", &[]);
    let report = report(&yaml);
    let verdicts: Vec<_> = report.ingresses.iter().map(|of| (&*of.name, of.verdict)).collect();
    let expected = [
        ("closed", Verdict::Closed),
        ("different", Verdict::Different),
        ("refused", Verdict::Refused),
        ("regex", Verdict::Closed),
        ("same", Verdict::Same),
    ];
    assert_eq!(verdicts, expected);
    assert_eq!((report.of_other_classes, report.percent_same()), (1, 20));
    assert_eq!(report.annotations["proxy-body-size"].uses, 2);
    let text = report.to_string();
    assert!(
        text.contains("Ingress shop/refused: refused\n  enable-modsecurity: refused: is not supported"),
        "{text}"
    );
    assert!(text.contains("spec.rules[0].http.paths[0].path: "), "{text}");
    assert!(text.contains("5 Ingresses: 1 same, 1 different, 1 refused, 2 closed (20% same)"), "{text}");
}

#[test]
fn page_escapes_the_values_of_users() {
    let page =
        report(&ingress("a", "nginx", "/", &[("proxy-body-size", "<script>alert(1)</script>")])).html();
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script>"), "{page}");
}

#[test]
fn report_without_ingresses_is_empty() {
    let report = report("");
    assert_eq!((report.ingresses.len(), report.percent_same()), (0, 0));
}
