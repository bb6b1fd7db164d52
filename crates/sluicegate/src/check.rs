//! `sluicegate check`: the problems of a manifest, a directory of manifests or a cluster, and the resulting routes.

use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;
use sluicegate_admin::state::ServedRoute;
use sluicegate_admin::table::routes_table;
use sluicegate_control::{
    Loaded, Problem, Severity, TranslateOptions, foreign_in_words, load_cluster_once, load_once,
};
use sluicegate_model::Settings;

use crate::cli::{CheckArgs, ClassArgs, ObjectsArgs};
use crate::gateways::runtime;

pub(crate) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let loaded = load(&args.objects)?;
    let problems = || loaded.problems.iter().chain(&loaded.foreign);
    if args.output.is_for_people() {
        for problem in problems() {
            crate::complain(&format!("{}: {problem}", problem.severity));
        }
    }
    let routes = ServedRoute::all(&loaded.config);
    let problem =
        |problem: &Problem| json!({"severity": problem.severity.to_string(), "problem": problem.to_string()});
    let document = json!({"routes": routes, "problems": problems().map(problem).collect::<Vec<_>>()});
    args.output.print(&document, |is_wide| routes_table(&routes, is_wide))?;
    let verdict = Verdict::of(&loaded);
    if let Some(summary) = verdict.summary() {
        crate::complain(&summary);
    }
    Ok(if verdict.passes(args.strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Reads the objects of the directory or of the cluster.
pub(crate) fn load(args: &ObjectsArgs) -> anyhow::Result<Loaded> {
    args.cluster.need("--kubernetes", args.kubernetes)?;
    let options = args.manifest.options(args.admin);
    match &args.dir {
        Some(dir) => load_directory(dir, &options),
        None => of_cluster(args, options),
    }
}

fn of_cluster(args: &ObjectsArgs, options: TranslateOptions) -> anyhow::Result<Loaded> {
    // The command prints the problems itself.
    let _quiet = tracing::subscriber::set_default(tracing::subscriber::NoSubscriber::default());
    Ok(runtime()?.block_on(load_cluster_once(
        &args.cluster.credentials(),
        args.watch_namespace.clone(),
        options,
    ))?)
}

/// Reads the objects of a directory of manifests, or of one manifest.
pub(crate) fn load_directory(dir: &Path, options: &TranslateOptions) -> anyhow::Result<Loaded> {
    dir.metadata().with_context(|| {
        format!("cannot read {}; name a manifest or a directory of manifests", dir.display())
    })?;
    Ok(load_once(dir, options))
}

/// The counts of errors and warnings.
struct Verdict {
    errors: usize,
    warnings: usize,
    /// The number of Ingresses and Gateways of other classes, as text.
    foreign: Option<String>,
}

impl Verdict {
    fn of(loaded: &Loaded) -> Self {
        let count = |severity| loaded.problems.iter().filter(|problem| problem.severity == severity).count();
        Self {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            foreign: foreign_in_words(&loaded.foreign),
        }
    }

    /// Ingresses and Gateways of other classes are not a problem.
    fn passes(&self, strict: bool) -> bool {
        self.errors == 0 && (self.warnings == 0 || !strict)
    }

    fn summary(&self) -> Option<String> {
        let wrong = (self.errors + self.warnings > 0)
            .then(|| format!("errors: {}, warnings: {}", self.errors, self.warnings));
        let parts: Vec<String> = wrong.into_iter().chain(self.foreign.clone()).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The ports of the process itself.
pub(crate) struct Ports<'a> {
    pub(crate) http: &'a [SocketAddr],
    pub(crate) https: &'a [SocketAddr],
    pub(crate) admin: SocketAddr,
}

pub(crate) fn translate_options(class: &ClassArgs, settings: Settings, ports: Ports<'_>) -> TranslateOptions {
    let ports_of = |addresses: &[SocketAddr], published: &[u16]| {
        addresses.iter().map(SocketAddr::port).chain(published.iter().copied()).collect()
    };
    TranslateOptions {
        settings,
        ingress_class: class.ingress_class.clone(),
        watch_ingress_without_class: class.watch_ingress_without_class,
        gateway_class: class.gateway_class.clone(),
        gateway_addresses: class.gateway_address.clone(),
        http_ports: ports_of(ports.http, &class.published_http_ports),
        https_ports: ports_of(ports.https, &class.published_https_ports),
        admin_port: Some(ports.admin.port()),
        ignore_nginx_access_annotations: class.ignore_nginx_access_annotations,
        ingress_nginx: class.ingress_nginx(),
        ..TranslateOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::ExitCode;

    use clap::Parser as _;
    use sluicegate_control::{TranslateOptions, load_once};

    use super::Verdict;
    use crate::cli::{Cli, Command};

    fn verdict(manifests: &[String]) -> Verdict {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.yaml"), manifests.concat()).unwrap();
        Verdict::of(&load_once(dir.path(), &TranslateOptions::default()))
    }

    fn ingress(class: &str, name: &str) -> String {
        format!(
            "---\napiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: {name}}}\n\
             spec: {{ingressClassName: {class}, \
             defaultBackend: {{service: {{name: web, port: {{number: 80}}}}}}}}\n"
        )
    }

    #[test]
    fn operation_of_a_document_that_check_does_not_read_is_a_note() {
        let policy = |kind: &str, section: &str, spec: &str| {
            format!(
                "---\napiVersion: sluicegate.dev/v1alpha1\nkind: {kind}\nmetadata: {{name: {}-{}}}\nspec:\n  targetRefs: \
                 [{{group: sluicegate.dev, kind: Api, name: pets, sectionName: {section}}}]\n  {spec}\n",
                section.to_lowercase(),
                kind.to_lowercase()
            )
        };
        let policies = ["listPets", "readers", "production"].map(|section| {
            policy("SecurityPolicy", section, "ipAccess: {allow: [10.0.0.0/8]}")
                + &policy("TrafficPolicy", section, "timeouts: {request: 1s}")
        });
        let api = |document: &str| {
            format!(
                "---\napiVersion: sluicegate.dev/v1alpha1\nkind: Api\nmetadata: {{name: pets}}\nspec:\n  version: \"1\"\n  \
                 document: {document}\n  operationSets: [{{name: readers, methods: [GET]}}]\n  environments: \
                 [{{name: production, hosts: [a.test], basePath: /v1}}]\n"
            )
        };
        let loaded = |document: &str| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a.yaml"), policies.concat() + &api(document)).unwrap();
            load_once(dir.path(), &TranslateOptions::default())
        };
        let at_url = loaded("{url: \"https://a.test/openapi.yaml\"}");
        assert_eq!(Verdict::of(&at_url).errors, 0, "{:#?}", at_url.problems);
        let notes: Vec<String> = at_url.problems.iter().map(ToString::to_string).collect();
        let unchecked = notes.iter().filter(|note| note.contains("\"listPets\", which is not checked"));
        assert_eq!(unchecked.count(), 2, "{notes:#?}");
        assert!(!notes.iter().any(|note| note.contains("\"readers\"") || note.contains("\"production\"")));
        let path = |id: &str| {
            let operation = format!("{{operationId: {id}, responses: {{\"200\": {{description: Ok}}}}}}");
            format!(
                "{{inline: '{{openapi: 3.1.0, info: {{title: A, version: \"1\"}}, paths: {{/pets: {{get: {operation}}}}}}}'}}"
            )
        };
        assert_eq!(
            Verdict::of(&loaded(&path("listPets"))).errors,
            0,
            "{:#?}",
            loaded(&path("listPets")).problems
        );
        assert_eq!(Verdict::of(&loaded(&path("listCats"))).errors, 2);
    }

    fn check(path: &Path, options: &[&str]) -> ExitCode {
        let line = ["sluicegate", "check"].into_iter().chain(path.to_str()).chain(options.iter().copied());
        let Command::Check(args) = Cli::parse_from(line).command else { unreachable!("it is check") };
        super::run(&args).unwrap_or(ExitCode::FAILURE)
    }

    const WEB: &str = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                       spec: {type: ExternalName, externalName: web.example}\n";

    #[test]
    fn check_command_counts_ingresses_of_other_classes_and_succeeds() {
        let (web, ours) = (WEB.to_owned(), ingress("sluicegate", "a"));
        let one = verdict(&[web.clone(), ours.clone(), ingress("nginx", "b")]);
        assert!(one.passes(true));
        assert_eq!(one.summary().unwrap(), "1 Ingress is of another class and is not served here");
        let two = verdict(&[web.clone(), ours.clone(), ingress("nginx", "b"), ingress("nginx", "c")]);
        assert_eq!(two.summary().unwrap(), "2 Ingresses are of other classes and are not served here");
        let none = verdict(&[web, ours]);
        assert!(none.passes(true) && none.summary().is_none());
    }

    #[test]
    fn check_command_accepts_the_path_of_a_single_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &Path| check(path, &["--strict"]);
        let file = dir.path().join("manifest");
        std::fs::write(&file, format!("{WEB}{}", ingress("sluicegate", "a"))).unwrap();
        assert_eq!(check(&file), ExitCode::SUCCESS);
        std::fs::write(&file, ingress("sluicegate", "A")).unwrap();
        assert_eq!(check(&file), ExitCode::FAILURE);
        assert_eq!(check(&dir.path().join("nothing")), ExitCode::FAILURE);
    }

    #[test]
    fn check_command_fails_for_a_gateway_on_a_port_that_the_process_uses() {
        let gateway = |class: &str, port: u16| {
            format!(
                "---\napiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge}}\n\
                 spec: {{gatewayClassName: {class}, listeners: [{{name: x, protocol: TCP, port: {port}}}]}}\n\
                 ---\napiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute\nmetadata: {{name: web}}\n\
                 spec: {{parentRefs: [{{name: edge}}], rules: [{{backendRefs: [{{name: web, port: 80}}]}}]}}\n"
            )
        };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("manifest.yaml");
        for (class, port, options, expected) in [
            ("sluicegate", 5432, &[][..], ExitCode::SUCCESS),
            ("sluicegate", 8080, &[], ExitCode::FAILURE),
            ("sluicegate", 8080, &["--listen", ":80"], ExitCode::SUCCESS),
            ("sluicegate", 443, &["--listen-https", ":443"], ExitCode::FAILURE),
            ("sluicegate", 9901, &[], ExitCode::FAILURE),
            ("sluicegate", 5432, &["--admin", "127.0.0.1:5432"], ExitCode::FAILURE),
            ("gold", 5432, &["--gateway-class", "gold"], ExitCode::SUCCESS),
        ] {
            std::fs::write(&file, format!("{WEB}{}", gateway(class, port))).unwrap();
            let options: Vec<&str> = options.iter().copied().chain(["--strict"]).collect();
            assert_eq!(check(&file, &options), expected, "{class} {port} {options:?}");
        }
        let foreign = verdict(&[WEB.to_owned(), gateway("gold", 5432), ingress("nginx", "b")]);
        let summary =
            "errors: 0, warnings: 1; 1 Ingress and 1 Gateway are of other classes and are not served here";
        assert_eq!(foreign.summary().unwrap(), summary);
    }

    #[test]
    fn message_about_an_api_names_its_line_and_its_field_once() {
        let api = |name: &str, more: &str| {
            format!(
                "---\napiVersion: sluicegate.dev/v1alpha1\nkind: Api\nmetadata: {{name: {name}}}\nspec:\n{more}  document:\n    \
                 inline: '{{openapi: 3.1.0, info: {{title: a, version: \"1\"}}, paths: {{/a: {{get: {{responses: {{}}}}}}}}}}'\n  \
                 environments:\n  - name: production\n    hosts: [a.test]\n    backend:\n      service: web\n      port: http\n"
            )
        };
        let of = |manifests: &[String]| {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("a.yaml"), manifests.concat()).unwrap();
            let loaded = load_once(dir.path(), &TranslateOptions::default());
            let mut messages: Vec<String> = loaded
                .problems
                .iter()
                .map(|problem| problem.to_string().replace(&dir.path().display().to_string(), ""))
                .collect();
            messages.sort();
            messages
        };
        let service = |port: &str| {
            format!(
                "---\napiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{type: ExternalName, externalName: web.example, ports: [{{name: {port}, port: 80}}]}}\n"
            )
        };
        let no_route = "has no Ingress, no Gateway and no Api with a valid route: serve would have no route";
        for (manifests, expected) in [
            (vec![service("http"), api("a", "")], vec![]),
            (
                vec![api("a", "")],
                vec![
                    "/a.yaml:12: Api default/a: spec.environments[0].backend.service: Service default/web does not exist",
                ],
            ),
            (
                vec![api("a", ""), service("web")],
                vec![
                    "/a.yaml:13: Api default/a: spec.environments[0].backend.port: Service default/web has no port",
                ],
            ),
            (
                vec![api("a", "  subscriptions: Yes\n"), service("http")],
                vec![
                    "/a.yaml:6: Api default/a: spec.subscriptions: must be Optional or Required, but is true or false; YAML",
                    no_route,
                ],
            ),
            (
                vec![api("a", "  subscriptions: \"Yes\"\n"), service("http")],
                vec![
                    "/a.yaml:6: Api default/a: spec.subscriptions: \"Yes\" is unknown: write Optional or Required",
                    no_route,
                ],
            ),
            (
                vec![api("a", "  lifecycle: {sunset: soon}\n"), service("http")],
                vec![
                    "/a.yaml:6: Api default/a: spec.lifecycle.sunset: \"soon\" is no time: write 2027-01-01T00:00:00Z",
                ],
            ),
            (vec![service("http")], vec![no_route]),
        ] {
            let messages = of(&manifests);
            assert_eq!(messages.len(), expected.len(), "{messages:?}");
            for (message, expected) in messages.iter().zip(expected) {
                assert!(message.contains(expected), "{message}");
            }
        }
        let conflict = of(&[service("http"), api("a", ""), api("b", "")]);
        let is_expected =
            |message: &String| message.contains("Api default/b: spec.environments[0].basePath: ");
        assert!(!conflict.is_empty() && conflict.iter().all(is_expected), "{conflict:?}");
    }

    #[test]
    fn check_command_warns_about_a_directory_without_routes() {
        for manifests in [vec![], vec![WEB.to_owned()], vec![ingress("nginx", "a")]] {
            let verdict = verdict(&manifests);
            assert!(verdict.passes(false) && !verdict.passes(true));
            assert!(verdict.summary().unwrap().starts_with("errors: 0, warnings: 1"));
        }
    }
}
