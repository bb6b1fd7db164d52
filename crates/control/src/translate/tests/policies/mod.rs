//! Tests of policies and Consumers.

use std::path::Path;
use std::sync::Arc;

use sluicegate_model::Config;
use sluicegate_model::policy::{RateLimits, Security};

use super::{ECHO, assert_lines, assert_problems, ingress, rules};
use crate::object::policy::consumer::Consumer;
use crate::object::policy::rate_limit::RateLimitPolicy;
use crate::object::policy::security::SecurityPolicy;
use crate::object::policy::traffic::TrafficPolicy;
use crate::problem::Severity;
use crate::store::Store;
use crate::{TranslateOptions, Translation, translate};

mod attachment;
mod consumers;
mod gateways;
mod rate_limits;
mod secrets;
mod security;
mod traffic;
mod unknown;

/// Sets a file to each text in turn, and returns the last translation with its problems.
fn translated(texts: &[&str]) -> (Translation, Vec<String>) {
    let mut store = Store::default();
    for text in texts {
        store.set_file(Path::new("m.yaml"), text);
    }
    let translation = translate(&store, &TranslateOptions::default());
    let problems = store.problems().chain(translation.problems.iter().cloned());
    let problems = problems.map(|problem| problem.to_string()).collect();
    (translation, problems)
}

/// The Ingress `a`, which routes `a.test/` to the port `http` of the Service `echo`, and that Service.
fn shop() -> String {
    format!("{}{ECHO}", ingress("name: a", &rules(&["a.test Prefix / echo:http"])))
}

/// An object of `sluicegate.dev` with this name and this spec in flow style, without braces.
fn object(kind: &str, name: &str, spec: &str) -> String {
    format!(
        "---\napiVersion: sluicegate.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
    )
}

/// A SecurityPolicy for the Ingress `a`.
fn policy(spec: &str) -> String {
    object("SecurityPolicy", "p", &format!("targetRefs: [{A}], {spec}"))
}

fn secret(name: &str, data: &str) -> String {
    format!("---\napiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData: {{{data}}}\n")
}

/// The Ingress `a` as a target.
const A: &str = "{group: networking.k8s.io, kind: Ingress, name: a}";

/// The Service `echo` as a target.
const SERVICE: &str = "{group: \"\", kind: Service, name: echo}";

/// The port `http` of the Service `echo` as a target.
const PORT: &str = "{group: \"\", kind: Service, name: echo, sectionName: http}";

/// The security settings of the only route.
#[track_caller]
fn security_of(config: &Config) -> Arc<Security> {
    let mut routes = config.rules();
    let security = routes.next().and_then(|route| route.security.clone());
    assert!(routes.next().is_none(), "there is one route");
    security.expect("a policy governs the route")
}

#[track_caller]
fn limits_of(config: &Config) -> Arc<RateLimits> {
    let route = config.rules().next().expect("there is a route");
    route.rate_limits.clone().expect("a policy governs the route")
}

#[test]
fn policy_examples_of_the_documentation_are_valid() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages = ["security", "routing"].map(|folder| std::fs::read_dir(docs.join(folder)).unwrap());
    let mut examples = 0;
    for page in pages.into_iter().flatten() {
        let path = page.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
        for example in blocks.filter(|block| block.contains("apiVersion: sluicegate.dev/")) {
            let mut store = Store::default();
            store.set_file(&path, example);
            let errors = store.problems().filter(|problem| problem.severity == Severity::Error);
            let errors: Vec<String> = errors.map(|problem| problem.to_string()).collect();
            assert_problems(&errors, &[]);
            let count = store.all::<SecurityPolicy>().count() + store.all::<RateLimitPolicy>().count();
            let count = count + store.all::<Consumer>().count() + store.all::<TrafficPolicy>().count();
            assert!(count > 0, "{}: {example}", path.display());
            examples += 1;
        }
    }
    assert!(examples >= 30, "{examples} examples");
}
