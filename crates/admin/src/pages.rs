//! The page at each path.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;

use hyper::header::{ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use sluicegate_analytics::{Audit, QueryError, Store};
use sluicegate_http_server::Counters;

use crate::content::{Content, Writer};
use crate::explain;
use crate::hosts::HostFault;
use crate::metrics::{Format, Metrics};
use crate::readiness::Phase;
use crate::state::{ConfigDocument, ServedRoute, Upstreams};
use crate::{Admin, Problems};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// Every path with its description, for the index page.
const PATHS: [(&str, &str); 14] = [
    ("/", "this list"),
    ("/healthz", "200 while the process runs"),
    ("/readyz", "200 while the gateway is ready for traffic, otherwise 503; ?pod=NAME: 503 in any other pod"),
    ("/metrics", "metrics for Prometheus (OpenMetrics if the client accepts it)"),
    ("/config", "the configuration in service, and its problems (JSON)"),
    ("/problems", "the problems of the configuration: errors and warnings (JSON)"),
    ("/routes", "each route with its upstream (JSON)"),
    ("/upstreams", "each upstream with the live state of its endpoints (JSON)"),
    (ANALYTICS, "the sums of requests: ?since=1h&by=api, with step, where, limit and format (JSON or CSV)"),
    (
        AUDIT,
        "who changed which object when: ?since=24h&kind=Plan, with namespace, name, actor, limit and format (JSON lines or CSV)",
    ),
    (AUDIT_HEAD, "the number and the hash of the last entry of the audit trail (JSON)"),
    (
        "/explain",
        "?method=GET&url=URL&header=NAME:VALUE&from=IP: what happens to such a request, and why (JSON)",
    ),
    (
        "/refused",
        "?id=ID: one of the last refused requests by its ID in the access log, its cause and its cure (JSON)",
    ),
    ("/planes", "with split planes: the connected planes, and their versions (JSON)"),
];

/// The response about a request that is not there.
const NOT_REFUSED: &str = "no refused request has this ID; the gateway remembers the last refused requests (--refused-requests), and the ID is request_id in the access log\n";

/// The page of queries to the database.
const ANALYTICS: &str = "/analytics";

/// The page of the audit trail, which needs the database.
const AUDIT: &str = "/audit";

/// The page of the last entry of the audit trail.
const AUDIT_HEAD: &str = "/audit/head";

/// The pages for probes.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

const CLOSE: HeaderValue = HeaderValue::from_static("close");

/// The pages of one admin interface.
pub struct Pages {
    admin: Admin,
    metrics: Arc<Metrics>,
    counters: Arc<Counters>,
}

impl Pages {
    /// The pages of this interface.
    #[must_use]
    pub fn new(admin: Admin) -> Self {
        let counters = Arc::<Counters>::default();
        Self { metrics: Metrics::new(admin.clone(), counters.clone()).into(), admin, counters }
    }

    /// Counters of the connections to the admin interface.
    pub(crate) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Responds to a request in a place for probes. The connection is closed after the response.
    pub(crate) fn respond_to_probe<B>(&self, request: &Request<B>) -> Response<Content> {
        let mut response = if PROBES.contains(&request.uri().path()) {
            self.respond(request)
        } else {
            self.counters.count_refused();
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "Clients that do not read their responses hold every connection of the admin interface. Until one of \
                 them ends, the interface serves only /healthz and /readyz. Try again later.\n"
                    .into(),
            )
        };
        response.headers_mut().insert(CONNECTION, CLOSE);
        response
    }

    /// Responds to a request in an ordinary place.
    pub async fn respond_in_time<B>(&self, request: Request<B>) -> Response<Content> {
        // The body is not read.
        let request = request.map(drop);
        if request.uri().path() == ANALYTICS && self.refusal(&request).is_none() {
            let document = Document { head_only: request.method() == Method::HEAD };
            let query = request.uri().query().unwrap_or_default().to_owned();
            return analytics(self.admin.analytics.clone(), query, document).await;
        }
        if [AUDIT, AUDIT_HEAD].contains(&request.uri().path()) && self.refusal(&request).is_none() {
            let document = Document { head_only: request.method() == Method::HEAD };
            let query = request.uri().query().unwrap_or_default().to_owned();
            let wants_head = request.uri().path() == AUDIT_HEAD;
            return audit(self.admin.audit.clone(), query, wants_head, document).await;
        }
        self.respond(&request)
    }

    /// Responds to a request, except for queries to the database.
    pub fn respond<B>(&self, request: &Request<B>) -> Response<Content> {
        if let Some(refusal) = self.refusal(request) {
            return refusal;
        }
        let path = request.uri().path();
        let document = Document { head_only: request.method() == Method::HEAD };
        let admin = self.admin.clone();
        match path {
            "/healthz" => text(StatusCode::OK, "ok\n".into()),
            "/readyz" => self.readyz(request.uri().query()),
            "/metrics" => {
                let (metrics, format) = (self.metrics.clone(), Format::accepted(request.headers()));
                document.written(format.content_type(), move |out| metrics.write(out, format))
            }
            "/config" => document.json(move |out| {
                let config = admin.registry.config();
                let Problems { errors, warnings } = (admin.problems)();
                json(out, &ConfigDocument { config: config.as_ref(), problems: &[errors, warnings].concat() })
            }),
            "/problems" => document.json(move |out| json(out, &(admin.problems)())),
            "/routes" => document.json(move |out| {
                let routes = admin.registry.config().map(|config| ServedRoute::all(&config));
                json(out, &routes.unwrap_or_default())
            }),
            "/explain" => match explain::described(request.uri().query().unwrap_or_default()) {
                Ok(described) => document.json(move |out| json(out, &admin.registry.explain(&described))),
                Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
            },
            "/refused" => match explain::id_of_refusal(request.uri().query().unwrap_or_default()) {
                Some(id) => match explain::Refusal::find(&admin.registry, &id) {
                    Some(refusal) => document.json(move |out| json(out, &refusal)),
                    None => text(StatusCode::NOT_FOUND, NOT_REFUSED.to_owned()),
                },
                None => text(StatusCode::BAD_REQUEST, "write /refused?id=ID\n".to_owned()),
            },
            "/planes" => document.json(move |out| json(out, &(admin.planes)().document)),
            "/upstreams" => document.json(move |out| json(out, &Upstreams(&admin.registry))),
            _ => text(StatusCode::OK, format!("The admin interface of Sluicegate.\n\n{}", list())),
        }
    }

    /// The response to a request with a wrong host, path or method.
    fn refusal<B>(&self, request: &Request<B>) -> Option<Response<Content>> {
        match self.admin.hosts.check(request) {
            Ok(()) => {}
            Err(HostFault::Invalid) => {
                let mut response = text(
                    StatusCode::BAD_REQUEST,
                    "A request needs exactly one valid Host header (RFC 9112, 3.2).\n".into(),
                );
                response.headers_mut().insert(CONNECTION, CLOSE);
                return Some(response);
            }
            Err(HostFault::Foreign(host)) => {
                return Some(text(
                    StatusCode::FORBIDDEN,
                    format!(
                        "The admin interface does not accept the host {host:?}, so that pages of other sites cannot \
                         read it through a browser. Use localhost or an IP address, or start the gateway with \
                         --admin-host NAME.\n"
                    ),
                ));
            }
        }
        let path = request.uri().path();
        if !PATHS.iter().any(|(known, _)| *known == path) {
            return Some(text(
                StatusCode::NOT_FOUND,
                format!("The admin interface has no page {path}. Its pages:\n{}", list()),
            ));
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut response =
                text(StatusCode::METHOD_NOT_ALLOWED, format!("{path} accepts only GET and HEAD.\n"));
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return Some(response);
        }
        None
    }

    fn readyz(&self, query: Option<&str>) -> Response<Content> {
        let asked = query.and_then(|query| query.split('&').find_map(|part| part.strip_prefix("pod=")));
        if let Some(asked) = asked
            && self.admin.pod.as_deref() != Some(asked)
        {
            let answering = self.admin.pod.as_deref().unwrap_or("no pod");
            return text(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("not ready: this is {answering}, not {}\n", asked.escape_debug()),
            );
        }
        match self.admin.readiness.phase() {
            Phase::Ready => text(StatusCode::OK, "ready\n".into()),
            Phase::Starting => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: starting, and waiting for the first configuration\n".into(),
            ),
            Phase::Draining => text(
                StatusCode::SERVICE_UNAVAILABLE,
                "not ready: draining, and ending once the requests in flight are done\n".into(),
            ),
        }
    }
}

/// Queries the database, on a thread that may block.
async fn analytics(store: Option<Arc<Store>>, query: String, document: Document) -> Response<Content> {
    let Some(store) = store else {
        return text(
            StatusCode::NOT_FOUND,
            "This process stores no analytics. Start sluicegate serve or sluicegate control-plane with --analytics, and ask \
             its admin interface.\n"
                .into(),
        );
    };
    match tokio::task::spawn_blocking(move || store.answer(&query)).await {
        Ok(Ok(answer)) => document.written(answer.content_type(), move |out| answer.write(out)),
        Ok(Err(error)) => no_answer(&error),
        // The panic is in the log.
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "The query failed.\n".into()),
    }
}

/// The answer to a query of the audit trail, or its head. The database may take a while.
async fn audit(
    audit: Option<Arc<Audit>>,
    query: String,
    wants_head: bool,
    document: Document,
) -> Response<Content> {
    let Some(audit) = audit else {
        return text(
            StatusCode::NOT_FOUND,
            "This process has no audit trail. Start sluicegate serve or sluicegate control-plane with --audit, and ask its admin \
             interface.\n"
                .into(),
        );
    };
    let answered = tokio::task::spawn_blocking(move || match wants_head {
        true => audit.head().map(|head| response(StatusCode::OK, JSON, Content::text(head + "\n"))),
        false => audit
            .answer(&query)
            .map(|answer| document.written(answer.content_type(), move |out| answer.write(out))),
    });
    match answered.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => no_answer(&error),
        // The panic is in the log.
        Err(_) => text(StatusCode::INTERNAL_SERVER_ERROR, "The query failed.\n".into()),
    }
}

fn no_answer(error: &QueryError) -> Response<Content> {
    let status = match error {
        QueryError::Parameter(_) => StatusCode::BAD_REQUEST,
        QueryError::Database(_) => StatusCode::SERVICE_UNAVAILABLE,
    };
    text(status, format!("{error}\n"))
}

/// A page that streams a document of any length.
struct Document {
    head_only: bool,
}

impl Document {
    fn json(self, write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static) -> Response<Content> {
        self.written(JSON, write)
    }

    fn written(
        self,
        content_type: &'static str,
        write: impl FnOnce(&mut Writer) -> io::Result<()> + Send + 'static,
    ) -> Response<Content> {
        let content = if self.head_only { Content::unwritten() } else { Content::written_by(write) };
        response(StatusCode::OK, content_type, content)
    }
}

fn json(out: &mut Writer, document: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, document)?;
    out.write_all(b"\n")
}

fn list() -> String {
    PATHS.iter().fold(String::new(), |mut list, (path, what)| {
        // Writing to a String does not fail.
        let _ = writeln!(list, "{path:<11} {what}");
        list
    })
}

fn text(status: StatusCode, text: String) -> Response<Content> {
    response(status, TEXT, Content::text(text))
}

fn response(status: StatusCode, content_type: &'static str, content: Content) -> Response<Content> {
    let mut response = Response::new(content);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
