//! `sluicegate check`: what is wrong with a directory of manifests, and what it would serve.

use std::process::ExitCode;

use sluicegate_admin::state::ServedRoute;
use sluicegate_admin::table::routes_table;
use sluicegate_control::{Severity, TranslateOptions, load_once};
use sluicegate_model::Settings;

use crate::cli::{CheckArgs, ClassArgs};

pub(crate) fn run(args: &CheckArgs) -> ExitCode {
    if !args.dir.is_dir() {
        crate::complain(&format!(
            "{} is not a directory; give the directory of your manifests",
            args.dir.display()
        ));
        return ExitCode::FAILURE;
    }
    let loaded = load_once(&args.dir, &translate_options(&args.class, Settings::default()));
    for problem in &loaded.problems {
        crate::complain(&problem.to_string());
    }
    crate::say(&routes_table(&ServedRoute::all(&loaded.config)));
    if loaded.foreign_ingresses > 0 {
        crate::say(&format!(
            "{} Ingresses are of other classes and are not served here.",
            loaded.foreign_ingresses
        ));
    }
    let errors = loaded.problems.iter().filter(|problem| problem.severity == Severity::Error).count();
    let warnings = loaded.problems.len() - errors;
    if errors + warnings > 0 {
        crate::complain(&format!("errors: {errors}, warnings: {warnings}"));
    }
    if errors > 0 || args.strict && warnings > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

pub(crate) fn translate_options(class: &ClassArgs, settings: Settings) -> TranslateOptions {
    TranslateOptions {
        settings,
        ingress_class: class.ingress_class.clone(),
        watch_ingress_without_class: class.watch_ingress_without_class,
    }
}
