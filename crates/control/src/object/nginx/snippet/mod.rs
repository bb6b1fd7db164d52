//! Snippets: directives of nginx, read as data.
//!
//! The gateway knows the directives that change requests and responses. A snippet with another directive may restrict access, so
//! that the routes of its Ingress respond with 503.
//!
//! | module | content |
//! |---|---|
//! | [`syntax`] | directives, words and blocks |
//! | `directive` | the meaning of directives |

mod directive;
mod syntax;

use sluicegate_model::feature::returns::Condition;
use sluicegate_model::feature::{ResponseHeader, ResponseHeaderMode, TargetRewrite, TemplateHeaders};
use sluicegate_model::value::{Network, Size, Template, Timeout};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `configuration-snippet`.
    pub(crate) configuration: Snippet,
    /// `server-snippet`.
    pub(crate) server: Snippet,
    /// Whether the Ingress has a `server-snippet`, beside the snippet of the ConfigMap.
    pub(crate) has_own_server: bool,
}

/// The effect of a snippet.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Snippet {
    pub(crate) responses: Vec<Response>,
    pub(crate) rewrites: Vec<TargetRewrite>,
    pub(crate) headers: TemplateHeaders,
    /// The host for endpoints.
    pub(crate) host: Option<Template>,
    pub(crate) body_size: Option<Size>,
    pub(crate) connect_timeout: Option<Timeout>,
    pub(crate) read_timeout: Option<Timeout>,
    pub(crate) send_timeout: Option<Timeout>,
    pub(crate) allow: Vec<Network>,
    pub(crate) deny: Vec<Network>,
    /// The faults of directives that restrict no access, each as a sentence with its line.
    pub(crate) faults: Vec<String>,
}

impl Snippet {
    /// The directives of the ConfigMap, and then those of this snippet, whose headers and sizes have precedence.
    fn over(self, global: &Self) -> Result<Self, String> {
        if *global == Self::default() {
            return Ok(self);
        }
        if !global.rewrites.is_empty() && !self.responses.is_empty() {
            return Err("has a response behind a rewrite of the ConfigMap".to_owned());
        }
        let has_access = |snippet: &Self| !snippet.allow.is_empty() || !snippet.deny.is_empty();
        if has_access(global) && has_access(&self) {
            return Err("has allow or deny beside those of the ConfigMap: write all addresses in one place"
                .to_owned());
        }
        let mut headers = global.headers.clone();
        headers.request.retain(|header| {
            !self.headers.request.iter().any(|own| own.name.eq_ignore_ascii_case(&header.name))
        });
        headers.response.retain(|global| {
            let replaces = |own: &ResponseHeader| {
                own.mode == ResponseHeaderMode::Set
                    && own.header.name.eq_ignore_ascii_case(&global.header.name)
            };
            !self.headers.response.iter().any(replaces)
        });
        let added = self.headers.request.iter().all(|header| headers.request.push(header.clone()))
            && self.headers.response.iter().all(|header| headers.response.push(header.clone()));
        if !added {
            return Err("has too many headers beside those of the ConfigMap".to_owned());
        }
        let mut merged = global.clone();
        merged.responses.extend(self.responses);
        merged.rewrites.extend(self.rewrites);
        merged.allow.extend(self.allow);
        merged.deny.extend(self.deny);
        Ok(Self {
            headers,
            host: self.host.or(merged.host),
            body_size: self.body_size.or(merged.body_size),
            connect_timeout: self.connect_timeout.or(merged.connect_timeout),
            read_timeout: self.read_timeout.or(merged.read_timeout),
            send_timeout: self.send_timeout.or(merged.send_timeout),
            faults: self.faults,
            ..merged
        })
    }
}

/// A response to requests that satisfy conditions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Response {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) status: u16,
    /// The URL of a redirect, or the body.
    pub(crate) text: Option<Template>,
}

/// The keys of the ConfigMap that no annotation has, or that have another meaning than the annotation.
pub(super) const KEYS: &[Row] = &[
    Row {
        name: "location-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.snippet.configuration = directive::read(value.text, false)?;
            Ok(())
        }),
        sets: "Directives of nginx for all paths, before `configuration-snippet`. [Some directives](ingress-nginx-snippets.md) are known.",
        default: "",
    },
    Row {
        name: "server-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            settings.snippet.server = directive::read(value.text, true)?;
            Ok(())
        }),
        sets: "Directives of nginx for all hosts, before the annotation `server-snippet`. [Some directives](ingress-nginx-snippets.md) are known.",
        default: "",
    },
];

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "configuration-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            let own = directive::read(value.text, false)?;
            settings.snippet.configuration = own.over(&settings.snippet.configuration)?;
            Ok(())
        }),
        sets: "Directives of nginx for all paths. [Some directives](ingress-nginx-snippets.md) are known.",
        default: "",
    },
    Row {
        name: "server-snippet",
        restricts: true,
        meaning: Sets(|settings, value| {
            let own = directive::read(value.text, true)?;
            settings.snippet.server = own.over(&settings.snippet.server)?;
            settings.snippet.has_own_server = true;
            Ok(())
        }),
        sets: "Directives of nginx for the hosts of the Ingress, as `configuration-snippet`.",
        default: "",
    },
];
