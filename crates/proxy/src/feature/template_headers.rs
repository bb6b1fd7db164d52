//! Headers whose values have variables of nginx.

use sluicegate_http1::Line;
use sluicegate_model::feature::{ResponseHeader, ResponseHeaderMode, TemplateHeader, TemplateHeaders};

use super::edit::{Edits, drop_lines};
use super::headers::HeaderEdit;
use crate::request::HeadView;
use crate::template::{Place, TemplateView, TooLong};

/// Changes to headers.
#[derive(Debug)]
pub(crate) struct TemplateHeaderEdit {
    source: TemplateHeaders,
    /// Removes the headers that others replace.
    request: HeaderEdit,
    response: HeaderEdit,
    successful_response: HeaderEdit,
}

impl TemplateHeaderEdit {
    pub(super) fn new(source: &TemplateHeaders) -> Self {
        let of_mode = |mode| source.response.iter().filter(move |header| header.mode == mode);
        let removing = |mode| HeaderEdit::removing(of_mode(mode).map(|header| &*header.header.name));
        Self {
            source: source.clone(),
            request: HeaderEdit::removing(source.request.iter().map(|header| &*header.name)),
            response: removing(ResponseHeaderMode::Set),
            successful_response: removing(ResponseHeaderMode::SetIfSuccess),
        }
    }

    /// Removes the headers of a request that others replace.
    pub(crate) fn edit(&self, head: HeadView<'_>, edits: &mut Edits) {
        self.request.edit(head, edits);
    }

    /// Removes the header lines behind `start` that the headers replace.
    pub(crate) fn drop_replaced(&self, out: &mut Vec<u8>, start: usize) {
        let mut lines = out.split_off(start);
        for header in &self.source.request {
            drop_lines(&mut lines, header.name.as_bytes());
        }
        out.append(&mut lines);
    }

    /// Writes the header lines for the endpoint.
    pub(crate) fn write_request(&self, view: &TemplateView<'_>, out: &mut Vec<u8>) -> Result<(), TooLong> {
        self.source.request.iter().try_for_each(|header| write(header, view, out))
    }

    /// Marks the header lines of a response with this status that others replace, and removes lines that the gateway itself
    /// adds.
    pub(crate) fn strip(&self, status: u16, lines: &mut [Line], buf: &[u8], own: &mut Vec<u8>) {
        self.response.strip(lines, buf);
        if is_success(status) {
            self.successful_response.strip(lines, buf);
        }
        for ResponseHeader { header, mode } in &self.source.response {
            let replaces = matches!(mode, ResponseHeaderMode::Set | ResponseHeaderMode::SetIfSuccess);
            if replaces && applies(*mode, status) {
                drop_lines(own, header.name.as_bytes());
            }
        }
    }

    /// Writes the header lines for a response with this status. Returns the number of headers that are too long, and
    /// therefore missing.
    pub(crate) fn write_response(&self, status: u16, view: &TemplateView<'_>, out: &mut Vec<u8>) -> u64 {
        let mut missing = 0;
        for ResponseHeader { header, mode } in &self.source.response {
            if applies(*mode, status) {
                missing += u64::from(write(header, view, out).is_err());
            }
        }
        missing
    }
}

/// Writes a header line, unless its value is empty.
fn write(
    TemplateHeader { name, value }: &TemplateHeader,
    view: &TemplateView<'_>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    let start = out.len();
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    let begin = out.len();
    let rendered = view.render(value, Place::Header, out);
    if rendered.is_err() || out[begin..].trim_ascii().is_empty() {
        out.truncate(start);
    } else {
        out.extend_from_slice(b"\r\n");
    }
    rendered
}

/// Whether responses with a status have a header.
fn applies(mode: ResponseHeaderMode, status: u16) -> bool {
    match mode {
        ResponseHeaderMode::Add | ResponseHeaderMode::SetIfSuccess => is_success(status),
        ResponseHeaderMode::AddAlways | ResponseHeaderMode::Set => true,
    }
}

/// The statuses of `add_header` of nginx without `always`.
pub(crate) fn is_success(status: u16) -> bool {
    matches!(status, 200 | 201 | 204 | 206 | 301..=304 | 307 | 308)
}
