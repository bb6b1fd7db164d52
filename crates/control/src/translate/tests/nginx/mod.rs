//! Ingresses of ingress-nginx.

use sluicegate_model::{Features, Rule};

use super::ECHO;
use crate::store::Store;
use crate::translate::{IngressNginx, TranslateOptions, Translation, translate};

mod access;
mod configmap;
mod locations;
mod redirects;
mod responses;
mod services;
mod snippets;

/// The options with the dialect.
fn options() -> TranslateOptions {
    TranslateOptions { ingress_nginx: Some(IngressNginx::default()), ..TranslateOptions::default() }
}

/// An Ingress of class nginx with annotations as `name: value` lines without the prefix, and paths as `host pathType path service:port`.
fn ingress(name: &str, annotations: &str, paths: &[&str]) -> String {
    let annotations: String = annotations
        .lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("    nginx.ingress.kubernetes.io/{}\n", line.trim()))
        .collect();
    format!(
        "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations:\n    owner: shop\n{annotations}spec: \
         {{ingressClassName: nginx, {}}}\n",
        super::rules(paths)
    )
}

/// The translation of a text with the Service `echo`.
fn translated(yaml: &str) -> Translation {
    let mut store = Store::default();
    store.set_file(std::path::Path::new("m.yaml"), &format!("{yaml}{ECHO}"));
    let mut translation = translate(&store, &options());
    translation.problems.extend(store.problems());
    translation
}

/// The problems of a translation, each as `field: message`.
fn problems(translation: &Translation) -> Vec<String> {
    translation.problems.iter().map(|problem| format!("{}: {}", problem.field, problem.message)).collect()
}

/// The rules of a host, each as `pathType path`, in the order of their precedence.
fn paths(translation: &Translation, host: &str) -> Vec<String> {
    let host = translation.config.hosts.iter().find(|known| known.host.to_string() == host).unwrap();
    let mut matches: Vec<_> = host.rules.iter().flat_map(|rule| &rule.matches).collect();
    matches.sort_by_key(|of| of.precedence);
    matches.into_iter().map(|of| format!("{} {}", of.path.path_type(), of.path)).collect()
}

/// The only rule of the only host.
fn rule(translation: &Translation) -> &Rule {
    let [host] = &translation.config.hosts[..] else { panic!("{:?}", translation.config.hosts) };
    let [rule] = &host.rules[..] else { panic!("{:?}", host.rules) };
    rule
}

/// The features of the only rule of an Ingress with these annotations.
fn features(annotations: &str) -> Features {
    let translation = translated(&ingress("a", annotations, &["a.test Prefix / echo:http"]));
    assert_eq!(problems(&translation), [""; 0]);
    rule(&translation).traffic.as_ref().unwrap().features.clone()
}
