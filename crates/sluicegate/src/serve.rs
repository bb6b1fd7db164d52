//! `sluicegate serve`: both planes in one process.

use std::sync::Arc;

use clap::Args;
use sluicegate_admin::Problems;
use sluicegate_control::{Problem, Severity};
use tokio::sync::watch;

use crate::acme::AcmeArgs;
use crate::analytics::{StoreArgs, deliver};
use crate::audit::AuditArgs;
use crate::check::{Ports, translate_options};
use crate::cli::ClassArgs;
use crate::dashboard::{DashboardArgs, PortalArgs, SiteParts};
use crate::gateway::{self, GatewayArgs, Told};
use crate::quotas::{Pending, count};
use crate::settings::SettingsArgs;
use crate::source::SourceArgs;
use crate::tls::TlsArgs;
use crate::webhook::WebhookArgs;

#[derive(Debug, Args)]
#[command(after_help = format!("{} {}\n\n{}", gateway::TIME, gateway::SIZE, gateway::LIFE))]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) source: SourceArgs,
    #[command(flatten)]
    gateway: GatewayArgs,
    #[command(flatten)]
    class: ClassArgs,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    #[command(flatten)]
    pub(crate) settings: SettingsArgs,
    #[command(flatten)]
    pub(crate) acme: AcmeArgs,
    #[command(flatten)]
    webhook: WebhookArgs,
    #[command(flatten)]
    store: StoreArgs,
    #[command(flatten)]
    audit: AuditArgs,
    #[command(flatten)]
    dashboard: DashboardArgs,
    #[command(flatten)]
    portal: PortalArgs,
}

pub(crate) fn run(args: ServeArgs) -> anyhow::Result<()> {
    gateway::block_on(1, serve(args))
}

async fn serve(args: ServeArgs) -> anyhow::Result<()> {
    let ports =
        Ports { http: &args.gateway.listen, https: &args.tls.listen_https, admin: args.gateway.admin };
    let mut translation = translate_options(&args.class, args.settings.settings(), ports);
    let (orders, acme) = args.acme.orders(&args.source)?;
    translation.acme = acme;
    let mut source = args.source.source(translation, &args.settings, &args.tls).await?;
    let of_source = source.planes(args.source.lease_name().clone());
    let audit = args.audit.start(&args.store, &args.source, &mut source)?;
    let of_webhook = args.webhook.start(&mut source, audit.as_ref()).await?;
    let of_orders = orders.map(|orders| orders.start(&source, || true));
    let planes = move || {
        let mut planes = of_source();
        planes.measures.extend(of_orders.iter().flat_map(|measures| measures()));
        planes.measures.extend(of_webhook());
        planes
    };
    let outbox = args.gateway.analytics.outbox();
    let has_store = outbox.is_some() || args.store.has_database();
    let of_quotas = has_store.then(|| args.store.start()).transpose()?;
    let store = of_quotas.clone().filter(|_| outbox.is_some());
    let quotas = of_quotas.map(|store| {
        let quotas = Pending::new();
        tokio::spawn(count(quotas.clone(), store));
        quotas
    });
    if let (Some(outbox), Some(store)) = (&outbox, &store) {
        tokio::spawn(deliver(outbox.clone(), store.clone()));
    }
    let sites = SiteParts {
        dashboard: args.dashboard.clone(),
        portal: args.portal.clone(),
        knowledge: source.knowledge(),
        objects: args.source.objects(),
    };
    let told = Told {
        problems: problems(source.problems()),
        planes: Arc::new(planes),
        outbox,
        quotas,
        store,
        audit,
        sites: Some(sites),
    };
    let resignation = source.resignation();
    gateway::run(&args.gateway, &args.tls.listen_https, told, resignation, |mut publish| {
        source.run(move |change, heard| {
            let served = tokio::spawn(publish.change(change, heard));
            // A task that panics serves nothing, and its panic is in the log.
            Box::pin(async { drop(served.await) })
        })
    })
    .await
}

/// The problems of users' objects, for the admin interface.
pub(crate) fn problems(problems: watch::Receiver<Arc<[Problem]>>) -> Arc<dyn Fn() -> Problems + Send + Sync> {
    Arc::new(move || {
        let of = |severity| {
            let problems = problems.borrow();
            let problems = problems.iter().filter(|problem| problem.severity == severity);
            problems.map(ToString::to_string).collect()
        };
        Problems { errors: of(Severity::Error), warnings: of(Severity::Warning) }
    })
}
