//! `sluicegate routes`, `sluicegate upstreams` and `sluicegate explain`: answers of a running gateway. `sluicegate ready`: the readiness of a
//! gateway. `sluicegate crds`: the CustomResourceDefinitions, for an API server.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use sluicegate_admin::explain::{Question, Refusal, explanation_text, question_of_refusal};
use sluicegate_admin::state::{ServedRoute, UpstreamState};
use sluicegate_admin::table::{routes_table, upstreams_table};
use sluicegate_admin::{fetch, fetch_text};
use sluicegate_model::Change;
use sluicegate_proxy::explain::Explanation;
use sluicegate_proxy::registry::Registry;

use crate::check::load_directory;
use crate::cli::{AdminArgs, ExplainArgs, Output, ReadyArgs};

pub(crate) fn routes(args: &AdminArgs) -> anyhow::Result<()> {
    let routes: Vec<ServedRoute> = runtime()?.block_on(fetch(args.admin, "/routes"))?;
    crate::say(&routes_table(&routes));
    Ok(())
}

pub(crate) fn upstreams(args: &AdminArgs) -> anyhow::Result<()> {
    let upstreams: Vec<UpstreamState> = runtime()?.block_on(fetch(args.admin, "/upstreams"))?;
    crate::say(&upstreams_table(&upstreams));
    Ok(())
}

pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    if let Some(id) = &args.request_id {
        let refusal: Refusal = runtime()?.block_on(fetch(args.admin, &question_of_refusal(id)))?;
        match args.output {
            Output::Text => crate::say(&refusal.text()),
            Output::Json => crate::say(&serde_json::to_string_pretty(&refusal)?),
        }
        return Ok(());
    }
    let certificate = args.client_certificate.as_ref().map(|path| {
        std::fs::read_to_string(path).with_context(|| {
            format!("cannot read {}: name a file with a certificate in PEM format", path.display())
        })
    });
    let question = Question {
        method: args.method.clone(),
        url: args.url.clone().unwrap_or_default(),
        headers: args.header.clone(),
        from: args.from,
        certificate: certificate.transpose()?,
    };
    let explained: Option<Explanation> = match &args.manifests {
        Some(dir) => explain_manifests(dir, args, &question)?,
        None => runtime()?.block_on(fetch(args.admin, &question.path()))?,
    };
    let explained = explained.context("the gateway has no configuration yet; try again when it is ready")?;
    match args.output {
        Output::Text => crate::say(&explanation_text(&explained)),
        Output::Json => crate::say(&serde_json::to_string_pretty(&explained)?),
    }
    Ok(())
}

/// Explains a request with the objects of a directory, without a running gateway.
fn explain_manifests(
    dir: &Path,
    args: &ExplainArgs,
    question: &Question,
) -> anyhow::Result<Option<Explanation>> {
    let described = question.described()?;
    let options = args.manifest.options(args.admin);
    let loaded = load_directory(dir, &options)?;
    for problem in &loaded.problems {
        crate::complain(&format!("{}: {problem}", problem.severity));
    }
    Ok(Registry::of_manifests(&Change::Config(Arc::new(loaded.config)), &described))
}

pub(crate) fn ready(args: &ReadyArgs) -> anyhow::Result<()> {
    let path = args.pod_name.as_ref().map_or("/readyz".to_owned(), |pod| format!("/readyz?pod={pod}"));
    crate::say(runtime()?.block_on(fetch_text(args.admin.admin, &path))?.trim_end());
    Ok(())
}

pub(crate) fn definitions() {
    let definitions: Vec<String> =
        sluicegate_control::definitions().into_iter().map(|definition| definition.yaml).collect();
    crate::say(definitions.join("---\n").trim_end());
}

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
