//! Mock responses: an example of the document, or else a value that is generated from the schema.

use std::fmt;

use serde_json::{Map, Value};
use sluicegate_model::contract::{MediaContract, ResponseContract, StatusRange};

use crate::media::{is_in, is_json};
use crate::sample::sample;

/// The wishes of a client in `Prefer` (RFC 7240): `Prefer: code=404, example=cat`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences {
    /// The status.
    pub code: Option<u16>,
    /// The name of an example.
    pub example: Option<String>,
}

impl Preferences {
    /// Reads the values of `Prefer`. Unknown and invalid wishes have no effect (RFC 7240, 2).
    #[must_use]
    pub fn of<'h>(values: impl IntoIterator<Item = &'h [u8]>) -> Self {
        let mut preferences = Self::default();
        for value in values {
            for wish in String::from_utf8_lossy(value).split([',', ';']) {
                let Some((name, value)) = wish.split_once('=') else { continue };
                let value = value.trim().trim_matches('"');
                match &*name.trim().to_ascii_lowercase() {
                    "code" => preferences.code = value.parse().ok().or(preferences.code),
                    "example" => preferences.example = Some(value.to_owned()),
                    _ => {}
                }
            }
        }
        preferences
    }
}

/// A mock response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mock {
    /// The status.
    pub status: u16,
    /// The media type; `None` for a response without content.
    pub media_type: Option<Box<str>>,
    /// The content.
    pub body: Vec<u8>,
}

/// The document has no such response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MockFault {
    /// The operation has no responses.
    NoResponse,
    /// The operation has no response with the preferred status.
    NoCode(u16),
    /// The response has no example with the preferred name.
    NoExample,
    /// The response has no media type that the client accepts.
    NotAcceptable,
}

impl MockFault {
    /// The status of the response to the client.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::NoResponse => 501,
            Self::NoCode(_) | Self::NoExample => 404,
            Self::NotAcceptable => 406,
        }
    }

    /// The title of the status.
    #[must_use]
    pub fn title(&self) -> &'static str {
        match self {
            Self::NoResponse => "Not Implemented",
            Self::NoCode(_) | Self::NoExample => "Not Found",
            Self::NotAcceptable => "Not Acceptable",
        }
    }
}

impl fmt::Display for MockFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoResponse => f.write_str("The document describes no response of the operation."),
            Self::NoCode(code) => write!(f, "The document describes no response with status {code}."),
            Self::NoExample => f.write_str("The response has no example with this name."),
            Self::NotAcceptable => f.write_str("The response has no media type that the request accepts."),
        }
    }
}

/// Chooses the response.
pub(crate) fn choose(
    responses: &[ResponseContract],
    schemas: &Map<String, Value>,
    accept: Option<&[u8]>,
    preferences: &Preferences,
) -> Result<Mock, MockFault> {
    let (status, response) = match preferences.code.filter(|code| (200..600).contains(code)) {
        Some(code) => {
            let found = responses.iter().find(|response| response.status.contains(code));
            (code, found.ok_or(MockFault::NoCode(code))?)
        }
        None => default_response(responses).ok_or(MockFault::NoResponse)?,
    };
    if response.bodies.is_empty() || matches!(status, 204 | 304) {
        return Ok(Mock { status, media_type: None, body: Vec::new() });
    }
    let media = acceptable(&response.bodies, accept).ok_or(MockFault::NotAcceptable)?;
    // A range is no media type of a response.
    let media_type = if media.media_type.ends_with('*') { "application/json" } else { &media.media_type };
    let example = match &preferences.example {
        Some(name) => {
            let named = media.examples.iter().find(|example| example.name.as_deref() == Some(&**name));
            Some(named.ok_or(MockFault::NoExample)?)
        }
        None => media.examples.first(),
    };
    let schema = || schemas.get(&media.schema?.to_string());
    let body = match example {
        Some(example) => match serde_json::from_str(&example.value) {
            // The example of other content is its text.
            Ok(Value::String(text)) if !is_json(media_type) => text.into_bytes(),
            _ => example.value.as_bytes().to_vec(),
        },
        None => schema().map(|schema| sample(schema, schemas).to_string().into_bytes()).unwrap_or_default(),
    };
    Ok(Mock { status, media_type: Some(media_type.into()), body })
}

/// The first success, or else the first response.
fn default_response(responses: &[ResponseContract]) -> Option<(u16, &ResponseContract)> {
    let status = |response: &ResponseContract| match response.status {
        StatusRange::Code(code) => code,
        StatusRange::Class(class) => u16::from(class) * 100,
        StatusRange::Default => 200,
    };
    let is_final = |response: &&ResponseContract| status(response) >= 200;
    let mut known = responses.iter().filter(is_final);
    let success = known.clone().find(|response| (200..300).contains(&status(response)));
    success.or_else(|| known.next()).map(|response| (status(response), response))
}

/// The media type that the client prefers (RFC 9110, 12.5.1); of equal ones JSON, then the first.
fn acceptable<'m>(bodies: &'m [MediaContract], accept: Option<&[u8]>) -> Option<&'m MediaContract> {
    let accept = accept.map(String::from_utf8_lossy).filter(|accept| !accept.trim().is_empty());
    let quality = |media: &MediaContract| -> u32 {
        let Some(accept) = &accept else { return 1000 };
        let media_type =
            if media.media_type.ends_with('*') { "application/json" } else { &*media.media_type };
        let mut best = (0, 0);
        for range in accept.split(',') {
            let mut parts = range.split(';');
            let name = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
            if !is_in(media_type, &name) {
                continue;
            }
            let quality = parts.find_map(|part| part.trim().strip_prefix("q=")?.parse::<f32>().ok());
            let quality = (quality.unwrap_or(1.0).clamp(0.0, 1.0) * 1000.0) as u32;
            // The most specific range applies.
            let specificity = if name == "*/*" {
                1
            } else if name.ends_with('*') {
                2
            } else {
                3
            };
            best = best.max((specificity, quality));
        }
        best.1
    };
    let rated = bodies.iter().rev().map(|media| (quality(media), is_json(&media.media_type), media));
    rated
        .filter(|(quality, ..)| *quality > 0)
        .max_by_key(|(quality, json, _)| (*quality, *json))
        .map(|of| of.2)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluicegate_model::contract::Example;

    use super::*;

    fn media(media_type: &str, examples: &[(Option<&str>, Value)]) -> MediaContract {
        let example = |(name, value): &(Option<&str>, Value)| Example {
            name: name.map(Into::into),
            value: value.to_string().into(),
        };
        let examples = examples.iter().map(example).collect();
        MediaContract {
            media_type: media_type.into(),
            schema: Some(0),
            examples,
            fields: vec![],
            parts: vec![],
        }
    }

    fn responses() -> Vec<ResponseContract> {
        vec![
            ResponseContract {
                status: StatusRange::Code(200),
                headers: vec![],
                bodies: vec![
                    media("application/xml", &[(None, json!("<a/>"))]),
                    media(
                        "application/json",
                        &[(Some("cat"), json!({"a": 1})), (Some("dog"), json!({"a": 2}))],
                    ),
                ],
            },
            ResponseContract { status: StatusRange::Code(204), bodies: vec![], headers: vec![] },
            ResponseContract {
                status: StatusRange::Class(4),
                headers: vec![],
                bodies: vec![media("application/problem+json", &[])],
            },
        ]
    }

    fn mocked(accept: &str, prefer: &str) -> Result<(u16, String, String), MockFault> {
        let schemas = json!({"0": {"type": "integer", "minimum": 7}});
        let accept = Some(accept.as_bytes()).filter(|accept| !accept.is_empty());
        let preferences = Preferences::of([prefer.as_bytes()]);
        let mock = choose(&responses(), schemas.as_object().unwrap(), accept, &preferences)?;
        let media_type = mock.media_type.map(String::from).unwrap_or_default();
        Ok((mock.status, media_type, String::from_utf8(mock.body).unwrap()))
    }

    #[test]
    fn mock_follows_accept_and_prefer() {
        let ok = |status, media_type: &str, body: &str| Ok((status, media_type.to_owned(), body.to_owned()));
        assert_eq!(mocked("", ""), ok(200, "application/json", r#"{"a":1}"#));
        assert_eq!(mocked("*/*", "example=dog"), ok(200, "application/json", r#"{"a":2}"#));
        assert_eq!(mocked("application/xml, */*;q=0.1", ""), ok(200, "application/xml", "<a/>"));
        assert_eq!(
            mocked("application/*;q=0.5, application/json;q=0", ""),
            ok(200, "application/xml", "<a/>")
        );
        assert_eq!(mocked("", "code=404"), ok(404, "application/problem+json", "7"));
        assert_eq!(mocked("image/png", "code=204"), ok(204, "", ""));
        assert_eq!(mocked("image/png", ""), Err(MockFault::NotAcceptable));
        assert_eq!(mocked("", "code=500"), Err(MockFault::NoCode(500)));
        assert_eq!(mocked("", "example=cow"), Err(MockFault::NoExample));
        assert_eq!(choose(&[], &Map::new(), None, &Preferences::default()), Err(MockFault::NoResponse));
    }

    #[test]
    fn preferences_ignore_unknown_wishes() {
        let of = |text: &str| Preferences::of([text.as_bytes()]);
        let expected = Preferences { code: Some(404), example: Some("a b".to_owned()) };
        assert_eq!(of("respond-async, Code=404; example=\"a b\""), expected);
        assert_eq!(of("code=x"), Preferences::default());
    }
}
