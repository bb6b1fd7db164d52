//! `sluicegate check`: what is wrong with a manifest or a directory of them, and what it would serve.

use std::process::ExitCode;

use sluicegate_admin::state::ServedRoute;
use sluicegate_admin::table::routes_table;
use sluicegate_control::{Loaded, Severity, TranslateOptions, load_once};
use sluicegate_model::Settings;

use crate::cli::{CheckArgs, ClassArgs};

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    if let Err(error) = args.dir.metadata() {
        crate::complain(&format!(
            "{} cannot be read: {error}; give a manifest or a directory of manifests",
            args.dir.display()
        ));
        return ExitCode::FAILURE;
    }
    let loaded = load_once(&args.dir, &translate_options(&args.class, Settings::default()));
    for problem in loaded.problems.iter().chain(&loaded.foreign_ingresses) {
        crate::complain(&problem.to_string());
    }
    crate::say(&routes_table(&ServedRoute::all(&loaded.config)));
    let verdict = Verdict::of(&loaded);
    if let Some(summary) = verdict.summary() {
        crate::complain(&summary);
    }
    if verdict.passes(args.strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// How many things are wrong, or worth a note.
struct Verdict {
    errors: usize,
    warnings: usize,
    foreign_ingresses: usize,
}

impl Verdict {
    fn of(loaded: &Loaded) -> Self {
        let count = |severity| loaded.problems.iter().filter(|problem| problem.severity == severity).count();
        Self {
            errors: count(Severity::Error),
            warnings: count(Severity::Warning),
            foreign_ingresses: loaded.foreign_ingresses.len(),
        }
    }

    /// Ingresses of other classes are nobody's mistake.
    fn passes(&self, strict: bool) -> bool {
        self.errors == 0 && (self.warnings == 0 || !strict)
    }

    fn summary(&self) -> Option<String> {
        let foreign = match self.foreign_ingresses {
            0 => None,
            1 => Some("1 Ingress is of another class and is not served here".to_owned()),
            count => Some(format!("{count} Ingresses are of other classes and are not served here")),
        };
        let wrong = (self.errors + self.warnings > 0)
            .then(|| format!("errors: {}, warnings: {}", self.errors, self.warnings));
        let parts: Vec<String> = wrong.into_iter().chain(foreign).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

pub(crate) fn translate_options(class: &ClassArgs, settings: Settings) -> TranslateOptions {
    TranslateOptions {
        settings,
        ingress_class: class.ingress_class.clone(),
        watch_ingress_without_class: class.watch_ingress_without_class,
        ..TranslateOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::ExitCode;

    use sluicegate_control::{TranslateOptions, load_once};

    use super::Verdict;
    use crate::cli::{CheckArgs, ClassArgs};

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

    const WEB: &str = "---\napiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
                       spec: {type: ExternalName, externalName: web.example}\n";

    #[test]
    fn ingresses_of_other_classes_are_counted_and_change_no_exit_code() {
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
    fn a_file_is_checked_as_serve_would_serve_it() {
        let dir = tempfile::tempdir().unwrap();
        let check = |path: &Path| {
            let class = ClassArgs { ingress_class: "sluicegate".into(), watch_ingress_without_class: false };
            super::run(&CheckArgs { dir: path.to_owned(), class, strict: true })
        };
        let file = dir.path().join("manifest");
        std::fs::write(&file, format!("{WEB}{}", ingress("sluicegate", "a"))).unwrap();
        assert_eq!(check(&file), ExitCode::SUCCESS);
        std::fs::write(&file, ingress("sluicegate", "A")).unwrap();
        assert_eq!(check(&file), ExitCode::FAILURE);
        assert_eq!(check(&dir.path().join("nothing")), ExitCode::FAILURE);
    }

    #[test]
    fn a_directory_without_any_route_is_warned_of() {
        for manifests in [vec![], vec![WEB.to_owned()], vec![ingress("nginx", "a")]] {
            let verdict = verdict(&manifests);
            assert!(verdict.passes(false) && !verdict.passes(true));
            assert!(verdict.summary().unwrap().starts_with("errors: 0, warnings: 1"));
        }
    }
}
