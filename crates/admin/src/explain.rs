//! `/explain`: the parameters of a described request, and the explanation as text.

use std::net::{AddrParseError, IpAddr};

use form_urlencoded::{Serializer, parse};
use serde::{Deserialize, Serialize};
use sluicegate_model::text::one_line;
use sluicegate_proxy::explain::{
    Described, DescriptionError, Destination, Explanation, HostTried, Outcome, Route, Step, Verdict, reasons,
};
use sluicegate_proxy::record::refusals::RefusedRequest;
use sluicegate_proxy::registry::Registry;

/// The width of the text, in characters.
const WIDTH: usize = 100;

/// The width of the first column.
const INDENT: usize = 10;

/// The most headers that the text shows of a request to an endpoint.
const HEADERS_MAX: usize = 40;

/// The reason why the parameters describe no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// A parameter is unknown.
    #[error("the parameter {0:?} is unknown: write method, url, header, from and certificate")]
    Unknown(String),
    /// The URL is missing.
    #[error("the parameter url is missing: write /explain?url=http://HOST/PATH")]
    NoUrl,
    /// The client IP is no address.
    #[error("the parameter from is no IP address ({0}): write the address from which the connection comes")]
    From(#[from] AddrParseError),
    /// The parts describe no request.
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

/// A request in the notation of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers, each as `NAME: VALUE`.
    pub headers: Vec<String>,
    /// The address from which the connection comes.
    pub from: Option<IpAddr>,
    /// The client's certificate in PEM format.
    pub certificate: Option<String>,
}

impl Question {
    /// The question of a query. The method is GET without a parameter.
    ///
    /// # Errors
    ///
    /// If a parameter is unknown or invalid.
    pub fn of_query(query: &str) -> Result<Self, ExplainError> {
        let (mut question, mut url) = (Self { method: "GET".to_owned(), ..Self::default() }, None);
        for (name, value) in parse(query.as_bytes()) {
            match &*name {
                "method" => question.method = value.into_owned(),
                "url" => url = Some(value.into_owned()),
                "header" => question.headers.push(value.into_owned()),
                "from" if value.is_empty() => {}
                "from" => question.from = Some(value.trim().parse()?),
                "certificate" => question.certificate = Some(value.into_owned()),
                other => return Err(ExplainError::Unknown(other.chars().take(100).collect())),
            }
        }
        Ok(Self { url: url.ok_or(ExplainError::NoUrl)?, ..question })
    }

    /// The described request.
    ///
    /// # Errors
    ///
    /// If the parts describe no request.
    pub fn described(&self) -> Result<Described, ExplainError> {
        let headers = self.headers.iter().map(String::as_str);
        let described = Described::new(&self.method, &self.url, headers)?.coming_from(self.from);
        Ok(match &self.certificate {
            Some(certificate) => described.certificate(certificate)?,
            None => described,
        })
    }

    /// The path and the query that ask the admin interface.
    #[must_use]
    pub fn path(&self) -> String {
        let mut query = Serializer::new("/explain?".to_owned());
        query.append_pair("method", &self.method).append_pair("url", &self.url);
        for header in &self.headers {
            query.append_pair("header", header);
        }
        if let Some(from) = self.from {
            query.append_pair("from", &from.to_string());
        }
        if let Some(certificate) = &self.certificate {
            query.append_pair("certificate", certificate);
        }
        query.finish()
    }
}

/// A refused request, the cause and the cure of its reason, and the explanation of the same request now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// The request.
    pub request: RefusedRequest,
    /// The cause.
    pub cause: Option<String>,
    /// The cure.
    pub cure: Option<String>,
    /// The explanation of the request under the current configuration, without its headers and its credentials.
    pub now: Option<Explanation>,
}

impl Refusal {
    /// The refused request with an ID.
    #[must_use]
    pub fn find(registry: &Registry, id: &str) -> Option<Self> {
        let request = registry.refused(id)?;
        let reason = request.reason.as_deref().and_then(reasons::of);
        let scheme = if request.is_https { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", request.host, request.target);
        let described = Described::new(&request.method, &url, []).ok();
        let described = described.map(|described| described.coming_from(Some(request.client_ip)));
        Some(Self {
            cause: reason.map(|reason| reason.cause.to_owned()),
            cure: reason.map(|reason| reason.cure.to_owned()),
            now: described.and_then(|described| registry.explain(&described)),
            request,
        })
    }

    /// Formats the refusal for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let RefusedRequest { at, request_id, method, is_https, host, target, client_ip, .. } = &self.request;
        let RefusedRequest { status, reason, policy, route, .. } = &self.request;
        let mut out = Lines::default();
        let scheme = if *is_https { "https" } else { "http" };
        out.line("request", &format!("{method} {scheme}://{host}{target}"));
        out.line("  id", request_id);
        out.line("  time", at);
        out.line("  from", &client_ip.to_string());
        let reason = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        out.line("refused", &format!("{status}{reason}"));
        for (name, value) in
            [("  route", route), ("  policy", policy), ("cause", &self.cause), ("cure", &self.cure)]
        {
            if let Some(value) = value {
                out.line(name, value);
            }
        }
        out.0.push(String::new());
        match &self.now {
            Some(now) => {
                out.0.push("The same request now, without its headers:".to_owned());
                out.0.push(explanation_text(now));
            }
            None => out.0.push("The request cannot be described, so it is not explained again.".to_owned()),
        }
        out.0.join("\n")
    }
}

/// The path and the query that ask the admin interface about a refused request.
#[must_use]
pub fn question_of_refusal(id: &str) -> String {
    Serializer::new("/refused?".to_owned()).append_pair("id", id).finish()
}

/// The ID of a query about a refused request.
#[must_use]
pub fn id_of_refusal(query: &str) -> Option<String> {
    parse(query.as_bytes()).find(|(name, _)| name == "id").map(|(_, id)| id.into_owned())
}

/// The request that a query describes.
///
/// # Errors
///
/// If the parameters describe no request.
pub fn described(query: &str) -> Result<Described, ExplainError> {
    Question::of_query(query)?.described()
}

/// Formats an explanation for a terminal of 100 columns. The last line is the outcome.
#[must_use]
pub fn explanation_text(explained: &Explanation) -> String {
    let mut out = Lines::default();
    out.request(explained);
    explained.hosts.iter().for_each(|host| out.host(host));
    if let Some(route) = &explained.route {
        out.route(route, explained);
    }
    explained.steps.iter().for_each(|step| out.step(step));
    explained.destinations.iter().for_each(|destination| out.destination(destination));
    if let Some(cure) = &explained.cure {
        out.line("cure", cure);
    }
    out.line("outcome", &outcome(explained));
    out.0.join("\n")
}

fn outcome(explained: &Explanation) -> String {
    let mut words = String::from(match (explained.outcome, &explained.reason) {
        (Outcome::Rejected, _) => "rejected",
        (Outcome::NoRoute, _) => "no route",
        (Outcome::Responds, Some(_)) => "refused",
        (Outcome::Responds, None) => "the gateway responds",
        (Outcome::Forwards, _) => "forwarded",
    });
    if let Some(status) = explained.status {
        words.push_str(&format!(", {status}"));
    }
    if let Some(reason) = &explained.reason {
        words.push_str(&format!(" ({reason})"));
    }
    if !explained.is_certain {
        words.push_str(", if each unknown step lets the request pass");
    }
    format!("{words}. {}", explained.because)
}

#[derive(Default)]
struct Lines(Vec<String>);

impl Lines {
    /// Adds a line, and breaks it between words.
    fn line(&mut self, name: &str, text: &str) {
        // Users choose names and paths, and no name may forge a line.
        let text = one_line(text);
        let mut line = format!("{name:INDENT$}");
        let mut is_empty = true;
        for word in text.split(' ') {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
                self.0.push(std::mem::replace(&mut line, " ".repeat(INDENT + 2)));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        self.0.push(line.trim_end().to_owned());
    }

    fn request(&mut self, explained: &Explanation) {
        if explained.outcome == Outcome::Rejected && explained.path.is_empty() {
            return;
        }
        self.line("listener", &explained.listener);
        self.line("path", &explained.path);
    }

    fn host(&mut self, host: &HostTried) {
        let result = match (host.selected, host.continues) {
            (true, _) => "has the route",
            (false, true) => "no match: the next less specific host is next",
            (false, false) => "no match",
        };
        let matches = if host.matches == 1 { "match" } else { "matches" };
        self.line("host", &format!("{} ({} {matches}): {result}", host.host, host.matches));
        for near in &host.near {
            let why = match (near.selected, &near.unmet[..]) {
                (true, _) => "selected".to_owned(),
                (false, []) => "another match has precedence".to_owned(),
                (false, unmet) => format!("not met: {}", unmet.join(", ")),
            };
            self.line("  match", &format!("{} {} of {}: {why}", near.path_type, near.path, near.from));
        }
    }

    fn route(&mut self, route: &Route, explained: &Explanation) {
        self.line("route", &format!("{} {} of {}", route.path_type, route.path, route.from));
        for condition in &route.conditions {
            self.line("  where", condition);
        }
        if let Some(before) = &explained.precedence {
            let text = format!("{} {} of {}: {}", before.path_type, before.path, before.over, before.because);
            self.line("  before", &text);
        }
        if let Some(api) = &route.api {
            let operation = api.operation.as_deref().unwrap_or("no operation");
            self.line("api", &format!("version {}, {}, {operation}", api.version, api.environment));
        }
    }

    fn step(&mut self, step: &Step) {
        let name = match step.verdict {
            Verdict::Allows => "allows",
            Verdict::Denies => "denies",
            Verdict::Responds => "responds",
            Verdict::Changes => "changes",
            Verdict::Counts => "counts",
            Verdict::Unknown => "unknown",
        };
        let mut text = format!("{}: {}", step.phase, step.effect);
        let response = match (step.status, &step.reason) {
            (Some(status), Some(reason)) => Some(format!("{status} {reason}")),
            (Some(status), None) => Some(status.to_string()),
            (None, _) => None,
        };
        match (step.verdict, response) {
            (Verdict::Unknown | Verdict::Counts, Some(response)) => {
                text.push_str(&format!(", or {response}"));
            }
            (_, Some(response)) => text.push_str(&format!(" [{response}]")),
            (_, None) => {}
        }
        if let Some(remedy) = &step.remedy {
            text.push_str(&format!("; {remedy}"));
        }
        if let Some(from) = &step.from {
            text.push_str(&format!(" ({from})"));
        }
        self.line(name, &text);
    }

    fn destination(&mut self, destination: &Destination) {
        let Destination { upstream, percent, because, balancing, .. } = destination;
        self.line("upstream", &format!("{upstream}, {} %: {because}", (percent * 10.0).round() / 10.0));
        if let Some(refusal) = &destination.refusal {
            self.line("  refuses", &format!("{} ({}): {}", refusal.status, refusal.reason, refusal.because));
        }
        if let Some(sent) = &destination.request {
            let query = sent.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
            self.line("  sends", &format!("{}{query}", sent.path));
            self.line("  header", &format!("Host: {}", sent.host));
            for (name, value) in sent.headers.iter().take(HEADERS_MAX) {
                self.line("  header", &format!("{name}: {value}"));
            }
        }
        if !balancing.is_empty() {
            self.line("  balance", balancing);
        }
        for endpoint in &destination.endpoints {
            let state = match (&endpoint.because, destination.is_health_known) {
                (Some(because), _) => because,
                (None, true) => "eligible",
                (None, false) => "eligible; its health is not known here",
            };
            self.line("  to", &format!("{}: {state}", endpoint.address));
        }
        if destination.more_endpoints > 0 {
            self.line("  to", &format!("{} further endpoints", destination.more_endpoints));
        }
    }
}
