//! The choice of a route (flavor `traditional_compatible`).
//!
//! Kong splits a route by its paths into [`Part`]s, gives each part a 64-bit priority, and chooses the matching part with
//! the greatest priority. Of equal priorities, the greater id decides.
//!
//! | module | content |
//! |---|---|
//! | [`matching`] | whether a request matches a part |

use std::cmp::Reverse;
use std::net::IpAddr;

use regex::bytes::{Regex, RegexBuilder};

use crate::file::Route;
use crate::id::Id;

mod matching;
#[cfg(test)]
mod tests;

pub use matching::{Request, host_and_port};

/// The protocols without HTTP.
const STREAM: [&str; 4] = ["tcp", "tls", "udp", "tls_passthrough"];

/// A path of a route.
#[derive(Clone, Debug)]
pub enum Path {
    /// A prefix by character.
    Prefix(String),
    /// A regular expression in the syntax of the crate `regex`, without the `~`. It matches from the beginning of the path.
    Regex(String, Option<Regex>),
}

impl Path {
    /// A path as a file of format 3.0 writes it.
    #[must_use]
    pub fn of(written: &str) -> Self {
        match written.strip_prefix('~') {
            Some(expression) => Self::Regex(syntax(expression), compile(expression).ok()),
            None => Self::Prefix(written.to_owned()),
        }
    }

    /// The length of the part of a path that matches; `None` if the path does not match.
    #[must_use]
    pub fn matched(&self, path: &str) -> Option<usize> {
        match self {
            Self::Prefix(prefix) => path.starts_with(&**prefix).then_some(prefix.len()),
            Self::Regex(_, compiled) => compiled.as_ref()?.find(path.as_bytes()).map(|found| found.end()),
        }
    }
}

/// A path expression in the syntax of the crate `regex`.
fn syntax(expression: &str) -> String {
    // The syntax of named groups in other engines. `(?<=` and `(?<!` stay invalid.
    expression.replace("?<", "?P<").replace("?PP<", "?P<")
}

/// Compiles the path expression of a route, without the `~`.
///
/// # Errors
///
/// The reason why the expression is invalid.
pub fn compile(expression: &str) -> Result<Regex, String> {
    program(&format!("^{}", syntax(expression)))
}

/// Compiles a regular expression as the data plane does, without Unicode classes.
fn program(expression: &str) -> Result<Regex, String> {
    RegexBuilder::new(expression).unicode(false).build().map_err(|fault| {
        let fault = fault.to_string();
        let last = fault.lines().last().unwrap_or_default().trim();
        last.strip_prefix("error: ").unwrap_or(last).to_owned()
    })
}

/// A part of a route: all its paths are regular expressions, or prefixes of one length.
#[derive(Clone, Debug)]
pub struct Part<'f> {
    /// The place of the route in the file.
    pub place: usize,
    /// The route.
    pub route: &'f Route,
    /// The number of the part among the parts of its route, from 0.
    pub number: usize,
    /// The paths; empty: all paths.
    pub paths: Vec<Path>,
    /// The priority: of the parts that match a request, the greatest decides.
    pub priority: u64,
    /// The id that decides among equal priorities. `None`: Kong gives a random id at each start.
    pub id: Option<Id>,
}

impl<'f> Part<'f> {
    /// The parts of a route, in the order of their first paths.
    #[must_use]
    pub fn of(place: usize, route: &'f Route) -> Vec<Self> {
        // Regular expressions are of length 0.
        let length = |path: &str| if path.starts_with('~') { 0 } else { path.len() };
        let mut groups: Vec<(usize, Vec<&str>)> = Vec::new();
        for path in &route.paths {
            match groups.iter_mut().find(|(of, _)| *of == length(path)) {
                Some((_, paths)) => paths.push(path),
                None => groups.push((length(path), vec![path])),
            }
        }
        if groups.is_empty() {
            groups.push((0, Vec::new()));
        }
        let is_split = groups.len() > 1;
        let parts = groups.into_iter().enumerate().map(|(number, (length, paths))| Self {
            place,
            route,
            number,
            priority: priority(route, length, paths.first().is_some_and(|path| path.starts_with('~'))),
            paths: paths.into_iter().map(Path::of).collect(),
            id: if is_split { route.id.map(|id| id.of_part(number + 1)) } else { route.id },
        });
        parts.collect()
    }

    /// The length of the part of the path that matches the request; `None` if the request does not match. Without a path
    /// the length is 1, the first slash.
    #[must_use]
    pub fn matched(&self, request: &Request<'_>) -> Option<usize> {
        if !matching::meets(self.route, request) {
            return None;
        }
        match self.paths.is_empty() {
            true => Some(1),
            false => self.paths.iter().find_map(|path| path.matched(request.path)),
        }
    }
}

/// Whether a route is for connections without HTTP.
#[must_use]
pub fn is_stream(route: &Route) -> bool {
    route.protocols.first().is_some_and(|protocol| STREAM.contains(&&**protocol))
}

/// The priority of a part whose paths are regular expressions, or prefixes of this length.
fn priority(route: &Route, length: usize, is_regex: bool) -> u64 {
    let hosts = route.hosts.as_deref();
    let criteria = [
        !route.methods.is_empty(),
        hosts.is_some_and(|hosts| !hosts.is_empty()),
        !route.headers.is_empty(),
        !route.snis.is_empty(),
        !route.sources.is_empty(),
        !route.destinations.is_empty(),
        !route.paths.is_empty(),
    ];
    let criteria = criteria.into_iter().filter(|is_used| *is_used).count() as u64;
    let is_plain_host = hosts.is_some_and(|hosts| !hosts.iter().any(|host| host.contains('*')));
    let headers = route.headers.len().min(255) as u64;
    // The fields overlap if regex_priority has more than 32 bits.
    let regex_priority = if is_regex { route.regex_priority << 19 } else { 0 };
    let length = if is_regex { 0 } else { length as u64 & 0x7_ffff };
    criteria << 61
        | u64::from(is_plain_host) << 60
        | headers << 52
        | u64::from(is_regex) << 51
        | regex_priority
        | length
}

/// The parts of all routes for HTTP, in the order in which Kong compares them with a request: the first match decides.
#[must_use]
pub fn order(routes: &[Route]) -> Vec<Part<'_>> {
    let http = routes.iter().enumerate().filter(|(_, route)| !is_stream(route));
    let mut parts: Vec<Part<'_>> = http.flat_map(|(place, route)| Part::of(place, route)).collect();
    parts.sort_by_key(|part| (Reverse(part.priority), Reverse(part.id), part.place, part.number));
    parts
}

/// The part that Kong chooses for a request, and the length of the matching part of the path.
#[must_use]
pub fn choose<'p, 'f>(parts: &'p [Part<'f>], request: &Request<'_>) -> Option<(&'p Part<'f>, usize)> {
    parts.iter().find_map(|part| Some((part, part.matched(request)?)))
}

/// An address, or a network in CIDR notation, with the length of its prefix.
#[must_use]
pub fn network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = match text.split_once('/') {
        Some((address, bits)) => (address.parse::<IpAddr>().ok()?, Some(bits.parse::<u8>().ok()?)),
        None => (text.parse::<IpAddr>().ok()?, None),
    };
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(all);
    (bits <= all).then_some((address, bits))
}
