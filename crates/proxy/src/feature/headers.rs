//! Changes to the headers of requests and responses.

use sluicegate_http1::{Known, Line};
use sluicegate_model::feature::{BackendFeatures, Header, HeaderEdits, UrlRewrite};
use sluicegate_model::rule::PathMatch;

use super::authentication::credential::line_has_name;
use super::edit::Edits;
use super::session_affinity::Affinity;
use super::url_rewrite::MatchedPrefix;
use crate::request::HeadView;

/// Changes to headers.
#[derive(Debug, PartialEq)]
pub(crate) struct HeaderEdit {
    /// The names of headers to remove.
    names: Box<[(Known, Box<str>)]>,
    /// The header lines to add.
    pub(crate) lines: Box<[u8]>,
}

/// The changes for requests to one backend, and for its responses.
#[derive(Debug, PartialEq)]
pub(crate) struct BackendEdits {
    pub(crate) request: HeaderEdit,
    pub(crate) response: HeaderEdit,
    pub(crate) url_rewrite: UrlRewrite,
    pub(crate) matched: MatchedPrefix,
    pub(crate) affinity: Option<Affinity>,
}

impl BackendEdits {
    /// `path` is the path that the route matches.
    pub(crate) fn new(features: &BackendFeatures, path: &PathMatch) -> Self {
        Self {
            request: HeaderEdit::new(&features.request_headers),
            response: HeaderEdit::new(&features.response_headers),
            url_rewrite: features.url_rewrite.clone(),
            matched: MatchedPrefix::of(path),
            affinity: features.affinity.as_ref().map(Affinity::new),
        }
    }
}

impl HeaderEdit {
    pub(super) fn new(edits: &HeaderEdits) -> Self {
        let names = edits.removed();
        let mut lines = Vec::new();
        for Header { name, value } in edits.set.iter().chain(&edits.add) {
            for part in [name.as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        Self {
            names: names.map(|name| (Known::of(name.as_bytes()), name.as_str().into())).collect(),
            lines: lines.into(),
        }
    }

    /// Removes headers with these names.
    pub(super) fn removing<'n>(names: impl Iterator<Item = &'n str>) -> Self {
        let names = names.map(|name| (Known::of(name.as_bytes()), name.into())).collect();
        Self { names, lines: Box::default() }
    }

    /// Edits the headers of a request.
    pub(crate) fn edit(&self, HeadView { head, buf }: HeadView<'_>, edits: &mut Edits) {
        edits.request_lines.extend_from_slice(&self.lines);
        if self.names.is_empty() {
            return;
        }
        for (index, line) in head.lines.iter().enumerate() {
            if self.removes(line, buf) {
                edits.remove(index);
            }
        }
        edits.discards_trailers = true;
    }

    fn removes(&self, line: &Line, buf: &[u8]) -> bool {
        self.names.iter().any(|(known, name)| line_has_name(line, *known, name, buf))
    }

    /// Marks the header lines of a response that are removed.
    pub(crate) fn strip(&self, lines: &mut [Line], buf: &[u8]) {
        if self.names.is_empty() {
            return;
        }
        for line in lines {
            line.hop_by_hop |= self.removes(line, buf);
        }
    }
}
