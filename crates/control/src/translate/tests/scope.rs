//! The translation of single hosts. Each such translation is compared with a translation of everything.

use std::collections::BTreeSet;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use sluicegate_testkit::tls::Authority;

use super::{ECHO, rules};
use crate::store::{Store, Touched};
use crate::translate::scope::{Scopes, assert_same};
use crate::translate::{IngressNginx, ObjectName, TranslateOptions, Translation, translate};

/// A store that is translated after each change.
struct World {
    store: Store,
    options: TranslateOptions,
    scopes: Scopes,
    translation: Translation,
}

impl World {
    /// A world with these objects, in which both dialects are served.
    fn new(objects: &str) -> Self {
        let options =
            TranslateOptions { ingress_nginx: Some(IngressNginx::default()), ..TranslateOptions::default() };
        let mut store = Store::default();
        store.set_file(Path::new("objects.yaml"), objects);
        let translation = translate(&store, &options);
        Self { store, options, scopes: Scopes::default(), translation }
    }

    /// Writes or removes a file. Returns whether only a part of the hosts was translated.
    fn change(&mut self, file: &str, text: Option<&str>) -> bool {
        let touched = match text {
            Some(text) => self.store.set_file(Path::new(file), text),
            None => self.store.remove_file(Path::new(file)),
        };
        self.follow(&touched)
    }

    fn follow(&mut self, touched: &Touched) -> bool {
        let before = self.translation.config.clone();
        let Self { store, options, scopes, translation } = self;
        let changed = (&touched.ingresses, &touched.secrets);
        let change = match touched.routing {
            true => None,
            false => scopes.translate(store, options, &before, translation, changed),
        };
        match change {
            Some(change) => {
                change.apply(&mut translation.config);
                let config = translation.config.clone();
                assert_same(&config, translation, &translate(store, options));
                true
            }
            None => {
                scopes.clear();
                *translation = translate(store, options);
                false
            }
        }
    }

    /// The routes of a host, each as `path service`.
    fn routes(&self, host: &str) -> Vec<String> {
        let hosts = &self.translation.config.hosts;
        let host = hosts.iter().find(|known| known.host.to_string() == host);
        let rules = host.into_iter().flat_map(|host| &host.rules);
        rules.map(|rule| format!("{} {}", rule.path(), rule.backends[0].upstream.service)).collect()
    }
}

/// An Ingress with an age in days, annotations in flow style, and further fields of its spec.
fn ingress(name: &str, age: usize, annotations: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  namespace: {}\n  creationTimestamp: \
         \"2026-01-{:02}T00:00:00Z\"\n  annotations: {{{annotations}}}\nspec: {{{spec}}}\n",
        if name.ends_with('x') { "other" } else { "default" },
        28 - age
    )
}

/// Two Services in each of two namespaces, and Secrets.
fn objects() -> String {
    let service = |name: &str, namespace: &str| {
        format!(
            "---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, spec: {{ports: [{{port: 80}}]}}}}\n"
        )
    };
    let mut objects = ECHO.to_owned();
    for namespace in ["default", "other"] {
        objects.push_str(&service("one", namespace));
        objects.push_str(&service("two", namespace));
    }
    objects
}

/// A Secret with a certificate for some names.
fn secret(name: &str, names: &[&str]) -> String {
    Authority::of_process().issue(names).secret(name)
}

#[test]
fn change_of_an_ingress_translates_only_its_hosts() {
    let mut world = World::new(&objects());
    let of = |host: &str, service: &str| rules(&[&format!("{host} Prefix / {service}:80")]);
    assert!(world.change("a", Some(&ingress("a", 1, "", &of("a.test", "one")))));
    assert!(world.change("b", Some(&ingress("b", 2, "", &of("b.test", "one")))));
    let untouched = world.translation.config.hosts[1].clone();
    assert!(world.change("a", Some(&ingress("a", 1, "", &of("a.test", "two")))));
    assert_eq!(world.routes("a.test"), ["/ two"]);
    assert!(std::sync::Arc::ptr_eq(&world.translation.config.hosts[1], &untouched));
    assert_eq!(world.translation.config.upstreams.len(), 2);
    // The newer Ingress loses the path, and has it after the older one is gone.
    assert!(world.change("c", Some(&ingress("c", 0, "", &of("b.test", "two")))));
    assert_eq!((world.routes("b.test"), world.translation.problems.len()), (vec!["/ one".to_owned()], 1));
    assert!(world.change("b", None));
    assert_eq!((world.routes("b.test"), world.translation.problems.len()), (vec!["/ two".to_owned()], 0));
    assert_eq!(world.translation.config.upstreams.len(), 1, "no route names the other Service");
    assert!(world.change("c", None) && world.change("a", None));
    assert!(world.translation.config.hosts.is_empty() && world.translation.config.upstreams.is_empty());
}

#[test]
fn change_of_a_secret_translates_only_the_hosts_that_use_it() {
    let mut world = World::new(&objects());
    let of = |host: &str| {
        format!(
            "{}, tls: [{{hosts: [{host}], secretName: cert}}]",
            rules(&[&format!("{host} Prefix / one:80")])
        )
    };
    assert!(world.change("a", Some(&ingress("a", 1, "", &of("a.test")))));
    assert!(world.change("b", Some(&ingress("b", 1, "", &rules(&["b.test Prefix / one:80"])))));
    assert_eq!(world.translation.problems.len(), 1, "the Secret is missing");
    let names = |world: &World| {
        world.translation.config.tls.hosts[0].certificates.iter().map(|of| of.names.len()).sum::<usize>()
    };
    for (of_certificate, count) in [(&["a.test"][..], 1), (&["a.test", "x.test"], 2)] {
        assert!(world.change("secret", Some(&secret("cert", of_certificate))));
        assert_eq!((world.translation.problems.len(), names(&world)), (0, count));
    }
    assert!(world.change("secret", None));
    assert_eq!((world.translation.problems.len(), names(&world)), (1, 0));
    let default = ObjectName { namespace: "default".into(), name: "cert".into() };
    world.options.default_certificate = Some(default);
    assert!(!world.change("secret", Some(&secret("cert", &["a.test"]))), "an option names the Secret");
}

#[test]
fn everything_is_translated_if_a_change_can_affect_all_hosts() {
    let of = |host: &str| rules(&[&format!("{host} Prefix / one:80")]);
    let policy = "{apiVersion: sluicegate.dev/v1alpha1, kind: SecurityPolicy, metadata: {name: p}, spec: {targetRefs: [{group: \
                  networking.k8s.io, kind: Ingress, name: a}], ipAccess: {deny: [10.0.0.0/8]}}}\n";
    for (spec, further) in [
        (of("*"), ""),
        (of("*.test"), ""),
        ("defaultBackend: {service: {name: one, port: {number: 80}}}".to_owned(), ""),
        (of("a.test"), policy),
    ] {
        let mut world = World::new(&objects());
        world.change("further", Some(further));
        assert!(!world.change("a", Some(&ingress("a", 1, "", &spec))), "{spec}");
    }
    let mut world = World::new(&objects());
    let passthrough = "nginx.ingress.kubernetes.io/ssl-passthrough: \"true\"";
    let spec = format!("ingressClassName: nginx, {}", of("a.test"));
    assert!(!world.change("a", Some(&ingress("a", 1, passthrough, &spec))));
    assert!(!world.change("b", Some(&ingress("b", 1, "", &of("b.test")))), "another host uses passthrough");
}

const ANNOTATIONS: &[&str] = &[
    "canary: \"true\"",
    "canary-weight: \"20\"",
    "server-alias: \"b.test,c.x.test\"",
    "from-to-www-redirect: \"true\"",
    "use-regex: \"true\"",
    "rewrite-target: /$1",
    "ssl-redirect: \"false\"",
    "force-ssl-redirect: \"true\"",
    "mirror-target: http://two.default.svc:80/",
    "auth-url: http://echo.default.svc.cluster.local/auth",
    "default-backend: two",
    "custom-http-errors: \"503\"",
    "auth-tls-secret: default/cert",
    "backend-protocol: HTTPS",
    "ssl-ciphers: ECDHE-RSA-AES128-GCM-SHA256",
    "whitelist-source-range: 10.0.0.0/8",
    "limit-rps: \"5\"",
    "server-snippet: \"add_header X-A b;\"",
    "app-root: /app",
];

/// An Ingress of the pool, or its absence.
fn change() -> impl Strategy<Value = (String, Option<String>)> {
    let hosts = select(&["a.test", "b.test", "www.a.test", "c.x.test", "d.x.test"][..]);
    let rare = select(&["*.x.test", "*"][..]);
    let host = prop_oneof![12 => hosts, 1 => rare];
    let path = select(&["/", "/a", "/a/", "/b(.*)"][..]);
    let kind = select(&["Prefix", "Exact", "ImplementationSpecific"][..]);
    let service = select(&["one:80", "two:80", "echo:80", "absent:80", "one:81"][..]);
    let rule = (host, kind, path, service)
        .prop_map(|(host, kind, path, service)| format!("{host} {kind} {path} {service}"));
    let tls = select(
        &[
            "",
            "",
            "tls: [{hosts: [a.test, b.test], secretName: cert}], ",
            "tls: [{secretName: other-cert}], ",
            "tls: [{hosts: [c.x.test]}], ",
            "tls: [{hosts: [\"*.x.test\"], secretName: cert}], ",
        ][..],
    );
    let default = prop_oneof![
        15 => Just(""),
        1 => Just("defaultBackend: {service: {name: one, port: {number: 80}}}, "),
    ];
    let class = select(
        &["", "ingressClassName: nginx, ", "ingressClassName: nginx, ", "ingressClassName: foreign, "][..],
    );
    let annotations = subsequence(ANNOTATIONS, 0..3);
    let written = (proptest::collection::vec(rule, 0..3), tls, default, class, annotations, 0..20usize);
    let secret = |name: &'static str, names: &'static [&'static str]| {
        let names = proptest::option::weighted(0.7, subsequence(names, 1..=names.len()));
        names.prop_map(move |names| (name.to_owned(), names.map(|names| secret(name, &names))))
    };
    let secrets = prop_oneof![
        secret("cert", &["a.test", "*.x.test"]),
        secret("other-cert", &["b.test", "www.a.test"]),
    ];
    let name = select(&["a", "b", "c", "d", "ex", "fx", "g"][..]);
    let ingresses = (name, proptest::option::weighted(0.8, written)).prop_map(|(name, written)| {
        let text = written.map(|(paths, tls, default, class, annotations, age)| {
            let paths: BTreeSet<&str> = paths.iter().map(String::as_str).collect();
            let paths: Vec<&str> = paths.into_iter().collect();
            let annotations: Vec<String> = annotations
                .iter()
                .map(|annotation| format!("nginx.ingress.kubernetes.io/{annotation}"))
                .collect();
            ingress(name, age, &annotations.join(", "), &format!("{class}{tls}{default}{}", rules(&paths)))
        });
        (name.to_owned(), text)
    });
    prop_oneof![4 => ingresses, 1 => secrets]
}

proptest! {
    #[test]
    fn parts_have_the_result_of_a_translation_of_everything(changes in proptest::collection::vec(change(), 1..12)) {
        let mut world = World::new(&objects());
        for (file, text) in changes {
            world.change(&format!("{file}.yaml"), text.as_deref());
        }
    }
}
