//! Regular expressions of paths, and rewrites.

use sluicegate_model::feature::Return;
use sluicegate_model::feature::returns::{Condition, Content, Location, Test};
use sluicegate_model::rule::Pattern;
use sluicegate_model::value::{Entries, Number, Template};

use super::Meaning::Sets;
use super::Row;
use crate::object::ingress::RulePath;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `use-regex`.
    use_regex: bool,
    /// `rewrite-target`; empty without the annotation.
    target: Box<str>,
    /// The parts of `rewrite-target`.
    new_uri: Option<Template>,
    /// `x-forwarded-prefix`.
    pub(crate) forwarded_prefix: Option<Template>,
    /// `upstream-vhost`.
    pub(crate) vhost: Option<Template>,
}

impl Settings {
    /// The redirect of a path whose target is a URL, as `rewrite` of nginx: with 302, and with the query of the request.
    pub(crate) fn redirect_of(&self, target: &Template, pattern: &Pattern) -> Option<Return> {
        let is_url = ["http://", "https://", "$scheme"].iter().any(|begin| self.target.starts_with(begin));
        if !is_url {
            return None;
        }
        let url = match self.target.contains('?') {
            true => target.clone(),
            false => Template::new(&format!("{}$is_args$args", self.target)).ok()?,
        };
        let condition = Condition {
            subject: Template::new("$uri").ok()?,
            test: Test::Matches(pattern.clone()),
            is_negated: false,
        };
        let location = Location { url, is_relative: false, has_port: false };
        Some(Return {
            conditions: Entries::new(vec![condition])?,
            status_code: Number::of(302),
            content: Some(Content::Location(location)),
        })
    }

    /// Whether this path turns all paths of its host into regular expressions.
    pub(crate) fn uses_regex(&self, path: &RulePath) -> bool {
        self.use_regex || self.rewrites(path)
    }

    /// Whether the path of requests for a path changes.
    fn rewrites(&self, path: &RulePath) -> bool {
        !self.target.is_empty() && *self.target != *path.written
    }

    /// The new path and query of requests for a path.
    pub(crate) fn target_of(&self, path: &RulePath) -> Option<&Template> {
        self.new_uri.as_ref().filter(|_| self.rewrites(path))
    }
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "use-regex",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.rewrite.use_regex = value.switch()?;
            Ok(())
        }),
        sets: "Matches all paths of the hosts, of all Ingresses, as regular expressions without regard to case.",
        default: "`false`",
    },
    Row {
        name: "rewrite-target",
        restricts: false,
        meaning: Sets(|settings, value| {
            // The paths of the host become regular expressions also if the target is invalid.
            settings.rewrite.target = value.text.into();
            settings.rewrite.new_uri = Some(value.template()?);
            Ok(())
        }),
        sets: "The path that endpoints receive, with captures of the path such as `/$2`. Implies `use-regex`.",
        default: "",
    },
    Row {
        name: "x-forwarded-prefix",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.rewrite.forwarded_prefix = Some(value.template()?);
            Ok(())
        }),
        sets: "Endpoints receive this text in `X-Forwarded-Prefix`, with captures. Only with `rewrite-target`.",
        default: "",
    },
    Row {
        name: "upstream-vhost",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.rewrite.vhost = Some(value.template()?);
            Ok(())
        }),
        sets: "The `Host` that endpoints receive. The text may have variables of nginx.",
        default: "the host of the client",
    },
];
