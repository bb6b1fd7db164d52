//! `sluicegate.dev/compression`.

use std::path::Path;

use super::{ECHO, assert_problems, backend_to, ingress, rules, served};
use crate::store::Store;
use crate::{TranslateOptions, translate};

/// An Ingress with this value of the annotation, a path and a default backend.
fn compressing(value: &str) -> String {
    let metadata = format!("name: a, annotations: {{sluicegate.dev/compression: \"{value}\"}}");
    let backend = backend_to("echo:80");
    let spec = format!("{}, defaultBackend: {backend}", rules(&["a.test Prefix /a echo:80"]));
    format!("{}{ECHO}", ingress(&metadata, &spec))
}

/// Sets a file to each text in turn, and then checks the compression of the routes, and the problems.
#[track_caller]
fn check(texts: &[&str], expected: Option<&str>, problems: &[&str]) {
    let mut store = Store::default();
    for text in texts {
        store.set_file(Path::new("m.yaml"), text);
    }
    let config = translate(&store, &TranslateOptions::default()).config;
    let routes: Vec<_> = config.rules().collect();
    assert_eq!(routes.len(), 2, "the path and the default backend");
    for route in routes {
        let codings = route.compression.as_ref().map(ToString::to_string);
        assert_eq!(codings.as_deref(), expected, "{}", route.path());
    }
    assert_problems(&served(&store, &TranslateOptions::default()).problems, problems);
}

#[test]
fn compression_annotation_overrides_the_codings_of_the_options() {
    check(&[&compressing("zstd, br, gzip")], Some("zstd, br, gzip"), &[]);
    check(&[&compressing("gzip")], Some("gzip"), &[]);
    check(&[&compressing("off")], Some("off"), &[]);
    let silent = compressing("off").replace(", annotations: {sluicegate.dev/compression: \"off\"}", "");
    check(&[&silent], None, &[]);
}

#[test]
fn invalid_compression_value_disables_compression_or_keeps_the_last_valid_value() {
    for (wrong, message) in [
        ("deflate", "\"deflate\" is no coding: write gzip, br and zstd in the order of preference"),
        ("true", "\"true\" is no coding: write gzip, br and zstd in the order of preference"),
        (
            "br, gzip, br",
            "br is named twice: write each of gzip, br and zstd once in the order of preference",
        ),
        ("", "\"\" is no coding"),
    ] {
        let field = "Ingress default/a: metadata.annotations[sluicegate.dev/compression]: ";
        let problem = format!("{field}{message}");
        check(&[&compressing(wrong)], Some("off"), &[&problem]);
        check(&[&compressing("br"), &compressing(wrong)], Some("br"), &[&problem]);
        check(
            &[&compressing("br"), &compressing(wrong)],
            Some("br"),
            &["(the last valid version stays in service)"],
        );
        check(&[&compressing("br"), &compressing(wrong), &compressing("off")], Some("off"), &[]);
    }
}
