//! `sluicegate routes`, `sluicegate upstreams` and `sluicegate explain`: answers of a running gateway. `sluicegate ready`: the readiness of a
//! gateway. `sluicegate crds`: the CustomResourceDefinitions, for an API server.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use sluicegate_admin::explain::{Question, Refusal, explanation_text, question_of_refusal};
use sluicegate_admin::fetch_text;
use sluicegate_admin::state::{ServedRoute, UpstreamState};
use sluicegate_admin::table::{routes_table, upstreams_table};
use sluicegate_model::Change;
use sluicegate_proxy::explain::Explanation;
use sluicegate_proxy::registry::Registry;

use crate::check::load_directory;
use crate::cli::{ExplainArgs, ReadyArgs, ShowArgs};
use crate::gateways::runtime;

pub(crate) fn routes(args: &ShowArgs) -> anyhow::Result<()> {
    let routes: Vec<ServedRoute> = args.gateway.open()?.ask("/routes")?;
    args.output.print(&routes, |is_wide| routes_table(&routes, is_wide))
}

pub(crate) fn upstreams(args: &ShowArgs) -> anyhow::Result<()> {
    let upstreams: Vec<UpstreamState> = args.gateway.open()?.ask("/upstreams")?;
    args.output.print(&upstreams, |is_wide| upstreams_table(&upstreams, is_wide))
}

pub(crate) fn explain(args: &ExplainArgs) -> anyhow::Result<()> {
    if let Some(id) = &args.request_id {
        // Only the gateway that refused the request remembers it.
        let refusal: Refusal = args.gateway.open()?.ask_any(&question_of_refusal(id))?;
        return args.output.print(&refusal, |_| refusal.text());
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
        None => args.gateway.open()?.ask(&question.path())?,
    };
    let explained = explained.context("the gateway has no configuration yet; try again when it is ready")?;
    args.output.print(&explained, |_| explanation_text(&explained))
}

/// Explains a request with the objects of a directory, without a running gateway.
fn explain_manifests(
    dir: &Path,
    args: &ExplainArgs,
    question: &Question,
) -> anyhow::Result<Option<Explanation>> {
    let described = question.described()?;
    let options = args.manifest.options(args.gateway.admin.admin);
    let loaded = load_directory(dir, &options)?;
    for problem in &loaded.problems {
        crate::complain(&format!("{}: {problem}", problem.severity));
    }
    Ok(Registry::of_manifests(&Change::Config(Arc::new(loaded.config)), &described))
}

pub(crate) fn ready(args: &ReadyArgs) -> anyhow::Result<()> {
    let path = args.pod_name.as_ref().map_or("/readyz".to_owned(), |pod| format!("/readyz?pod={pod}"));
    let answer = runtime()?.block_on(fetch_text(args.admin.admin, &path))?;
    crate::say(answer.trim_end());
    Ok(())
}

pub(crate) fn definitions() {
    let definitions: Vec<String> =
        sluicegate_control::definitions().into_iter().map(|definition| definition.yaml).collect();
    crate::say(definitions.join("---\n").trim_end());
}
