//! The order of paths, the defaults, and the classes.

use sluicegate_model::value::Size;

use super::{features, ingress, options, paths, problems, rule, translated};
use crate::store::Store;
use crate::translate::{TranslateOptions, translate};

#[test]
fn without_the_dialect_an_ingress_of_class_nginx_is_not_served() {
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &ingress("a", "", &["a.test Prefix / echo:http"]));
    assert!(translate(&store, &TranslateOptions::default()).config.hosts.is_empty());
    assert_eq!(translate(&store, &options()).config.hosts.len(), 1);
}

#[test]
fn regular_expression_of_one_ingress_applies_to_all_paths_of_the_host_without_regard_to_case() {
    let yaml =
        ingress("a", "use-regex: \"true\"", &["a.test ImplementationSpecific /items/[0-9]+ echo:http"])
            + &ingress(
                "b",
                "",
                &[
                    "a.test Prefix /shop echo:http",
                    "a.test Exact /Shop/cart echo:http",
                    "b.test Prefix /shop echo:http",
                ],
            );
    let translation = translated(&yaml);
    assert_eq!(problems(&translation), [""; 0]);
    let expected = ["^/items/[0-9]+", "^/Shop/cart", "^/shop/", "^/shop"];
    assert_eq!(paths(&translation, "a.test"), expected.map(|path| format!("RegularExpression {path}")));
    assert_eq!(paths(&translation, "b.test"), ["Prefix /shop"]);
}

#[test]
fn request_that_lacks_the_final_slash_of_a_path_is_redirected_with_301() {
    let translation = translated(&ingress("a", "", &["a.test Prefix /shop/ echo:http"]));
    assert_eq!(paths(&translation, "a.test"), ["Exact /shop", "ImplementationSpecific /shop/"]);
    let both = ["a.test Prefix /shop/ echo:http", "a.test Exact /shop echo:http"];
    assert_eq!(
        paths(&translated(&ingress("a", "", &both)), "a.test"),
        ["Exact /shop", "ImplementationSpecific /shop/"]
    );
}

#[test]
fn path_with_an_unsupported_regular_expression_responds_with_503_and_is_an_error() {
    let translation = translated(&ingress(
        "a",
        "use-regex: \"true\"",
        &["a.test ImplementationSpecific /shop/(?!admin) echo:http"],
    ));
    let found = problems(&translation);
    assert!(found.len() == 1 && found[0].contains("look-around"), "{found:?}");
    assert!(rule(&translation).security.as_ref().unwrap().refuses.is_some());
}

#[test]
fn request_body_is_limited_to_1_mebibyte_by_default() {
    assert_eq!(features("").limits.request_body, Some(Size::of(1 << 20)));
    assert_eq!(features("proxy-body-size: 8m").limits.request_body, Some(Size::of(8 << 20)));
    assert_eq!(features("proxy-body-size: \"0\"").limits.request_body, Some(Size::of(0)));
}

#[test]
fn request_for_a_path_without_a_rule_receives_404_under_the_settings_of_the_ingress() {
    let translation = translated(&ingress("a", "", &["a.test Prefix /shop echo:http"]));
    let fallback = translation.config.hosts[0].fallback.as_ref().unwrap();
    let response = fallback.traffic.as_ref().unwrap().features.direct_response.as_ref().unwrap();
    assert_eq!(response.status_code.get(), 404);
}
