//! `sluicegate routes`, `sluicegate upstreams` and `sluicegate explain`: answers of a running gateway. `sluicegate ready`: the readiness of a
//! gateway. `sluicegate crds`: the CustomResourceDefinitions, for an API server.

use anyhow::Context as _;
use sluicegate_admin::explain::{explanation_text, question};
use sluicegate_admin::state::{ServedRoute, UpstreamState};
use sluicegate_admin::table::{routes_table, upstreams_table};
use sluicegate_admin::{fetch, fetch_text};
use sluicegate_proxy::explain::Explanation;

use crate::cli::{AdminArgs, ExplainArgs, ReadyArgs};

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
    let question = question(&args.method, &args.url, args.header.iter().map(String::as_str));
    let explained: Option<Explanation> = runtime()?.block_on(fetch(args.admin.admin, &question))?;
    let explained = explained.context("the gateway has no configuration yet; try again when it is ready")?;
    crate::say(&explanation_text(&explained));
    Ok(())
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
