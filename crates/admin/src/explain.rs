//! `/explain`: the parameters of a described request, and the explanation as text.

use form_urlencoded::{Serializer, parse};
use sluicegate_model::text::one_line;
use sluicegate_proxy::explain::{Described, DescriptionError, Explanation, Outcome};

/// The reason why the parameters describe no request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// A parameter is unknown.
    #[error("the parameter {0:?} is unknown: write method, url and header")]
    Unknown(String),
    /// The URL is missing.
    #[error("the parameter url is missing: write /explain?url=http://HOST/PATH")]
    NoUrl,
    /// The parts describe no request.
    #[error(transparent)]
    Description(#[from] DescriptionError),
}

/// The request that a query describes. The method is GET without a parameter.
///
/// # Errors
///
/// If the parameters describe no request.
pub fn described(query: &str) -> Result<Described, ExplainError> {
    let (mut method, mut url, mut headers) = ("GET".to_owned(), None, Vec::new());
    for (name, value) in parse(query.as_bytes()) {
        match &*name {
            "method" => method = value.into_owned(),
            "url" => url = Some(value.into_owned()),
            "header" => headers.push(value.into_owned()),
            other => return Err(ExplainError::Unknown(other.chars().take(100).collect())),
        }
    }
    let url = url.ok_or(ExplainError::NoUrl)?;
    Ok(Described::new(&method, &url, headers.iter().map(String::as_str))?)
}

/// The path and the query that ask the admin interface about a request.
#[must_use]
pub fn question<'h>(method: &str, url: &str, headers: impl IntoIterator<Item = &'h str>) -> String {
    let mut query = Serializer::new("/explain?".to_owned());
    query.append_pair("method", method).append_pair("url", url);
    for header in headers {
        query.append_pair("header", header);
    }
    query.finish()
}

/// Formats an explanation for a terminal.
#[must_use]
pub fn explanation_text(explained: &Explanation) -> String {
    // Users choose names and paths, and no name may forge a line.
    lines(explained).iter().map(|line| one_line(line)).collect::<Vec<_>>().join("\n")
}

fn lines(explained: &Explanation) -> Vec<String> {
    let mut out = Vec::new();
    let outcome = match explained.outcome {
        Outcome::Rejected => "rejected",
        Outcome::NoRoute => "no route",
        Outcome::Responds => "the gateway responds",
        Outcome::Forwards => "forwarded",
    };
    match explained.status {
        Some(status) => out.push(format!("{outcome}, {status}")),
        None => out.push(outcome.to_owned()),
    }
    out.push(explained.because.clone());
    if explained.outcome == Outcome::Rejected {
        return out;
    }
    out.push(String::new());
    out.push(format!("listener  {}", explained.listener));
    out.push(format!("path      {}", explained.path));
    for host in &explained.hosts {
        let result = match (host.selected, host.continues) {
            (true, _) => "has the route",
            (false, true) => "no match: the next less specific host is next",
            (false, false) => "no match",
        };
        out.push(format!("host      {} ({} matches): {result}", host.host, host.matches));
        for near in &host.near {
            let why = match (near.selected, &near.unmet[..]) {
                (true, _) => "selected".to_owned(),
                (false, []) => "another match has precedence".to_owned(),
                (false, unmet) => format!("not met: {}", unmet.join(", ")),
            };
            out.push(format!("  match   {} {} of {}: {why}", near.path_type, near.path, near.from));
        }
    }
    if let Some(route) = &explained.route {
        out.push(format!("route     {} {} of {}", route.path_type, route.path, route.from));
        for condition in &route.conditions {
            out.push(format!("  where   {condition}"));
        }
        if let Some(api) = &route.api {
            let operation = api.operation.as_deref().unwrap_or("no operation");
            out.push(format!("api       version {}, {}, {operation}", api.version, api.environment));
        }
    }
    for step in &explained.steps {
        match &step.from {
            Some(from) => out.push(format!("step      {}: {} ({from})", step.phase, step.effect)),
            None => out.push(format!("step      {}: {}", step.phase, step.effect)),
        }
    }
    for upstream in explained.route.iter().flat_map(|route| &route.upstreams) {
        out.push(format!(
            "upstream  {}, weight {}, {}/{} endpoints ready",
            upstream.upstream, upstream.weight, upstream.ready, upstream.endpoints
        ));
    }
    out
}
