//! Responses without an endpoint that depend on the request.

use std::time::SystemTime;

use sluicegate_model::feature::returns::{Body, Condition, Content, Location, Return, Test};

use crate::template::{Captured, Place, TemplateView, TooLong};

/// A response without an endpoint.
pub(crate) struct Returned {
    pub(crate) status: u16,
    pub(crate) content: ReturnedContent,
}

/// The content of a response.
pub(crate) enum ReturnedContent {
    /// A line with the status.
    Status,
    /// A redirect to this URL.
    Location(Vec<u8>),
    Body {
        text: Vec<u8>,
        media_type: Box<str>,
    },
}

/// The response for a request: the first response whose conditions hold.
pub(crate) fn returned(responses: &[Return], view: &TemplateView<'_>) -> Result<Option<Returned>, TooLong> {
    for response in responses {
        if let Some(captured) = holds(&response.conditions, view)? {
            let view = TemplateView { captured: captured.as_ref().or(view.captured), ..*view };
            let content = content(response.content.as_ref(), &view)?;
            return Ok(Some(Returned { status: response.status_code.get(), content }));
        }
    }
    Ok(None)
}

fn content(content: Option<&Content>, view: &TemplateView<'_>) -> Result<ReturnedContent, TooLong> {
    let mut out = Vec::new();
    match content {
        None => Ok(ReturnedContent::Status),
        Some(Content::Location(Location { url, is_relative, has_port })) => {
            view.render(url, Place::Url, &mut out)?;
            if !is_relative && out.first() == Some(&b'/') {
                out = [&view.origin(*has_port)[..], &out].concat();
            }
            Ok(ReturnedContent::Location(out))
        }
        Some(Content::Body(Body { text, media_type })) => {
            view.render(text, Place::Body, &mut out)?;
            Ok(ReturnedContent::Body { text: out, media_type: media_type.as_str().into() })
        }
    }
}

/// The time in seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Whether all conditions hold. The value has the captures of the last regular expression, if there is one.
fn holds(conditions: &[Condition], view: &TemplateView<'_>) -> Result<Option<Option<Captured>>, TooLong> {
    let mut captured = None;
    for Condition { subject, test, is_negated } in conditions {
        let mut text = Vec::new();
        view.render(subject, Place::Body, &mut text)?;
        let holds = match test {
            Test::Equals(other) => text == other.as_bytes(),
            Test::IsSet => !matches!(&*text, b"" | b"0"),
            Test::Since(at) => *at <= now(),
            Test::Matches(pattern) => match Captured::of(pattern, &text) {
                Some(found) => {
                    captured = Some(found);
                    true
                }
                None => false,
            },
        };
        if holds == *is_negated {
            return Ok(None);
        }
    }
    Ok(Some(captured))
}
