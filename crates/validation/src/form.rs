//! Bodies of forms: from `application/x-www-form-urlencoded` and `multipart/form-data` to a JSON object (OpenAPI 3.1, "Encoding
//! Object").
//!
//! A field with a style has the form of a query parameter with this style. Of the other fields, an object is a JSON text, an
//! array is a field for each item, and everything else is text. The media type of a part of `multipart/form-data` must be one of
//! the media types that the contract names for the part.

use std::borrow::Cow;
use std::collections::HashSet;

use futures_util::{FutureExt as _, stream};
use multer::Multipart;
use multer::bytes::Bytes;
use serde_json::{Map, Value};
use sluicegate_model::contract::{Parameter, ParameterStyle, PartContract};

use crate::charset::names_foreign_charset;
use crate::media::{essence, is_in, is_json, is_multipart, matches};
use crate::parameter::{Found, Pairs, of_pairs, of_texts};
use crate::shape::Shape;

/// The most fields of a form.
const FIELDS_MAX: usize = 1000;

/// Why a body is no form: the name of the field at fault, and the fault, without a part of the body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FormFault {
    pub(crate) field: Option<String>,
    pub(crate) detail: Cow<'static, str>,
}

fn fault(detail: &'static str) -> FormFault {
    FormFault { field: None, detail: detail.into() }
}

/// How a form is read.
#[derive(Debug)]
pub(crate) struct Form {
    /// The fields with a style.
    pub(crate) fields: Box<[Parameter]>,
    /// The parts with media types of their own.
    pub(crate) parts: Box<[PartContract]>,
    pub(crate) shape: Shape,
}

impl Form {
    /// Reads a form of this media type. Returns the objects that it may stand for, the most likely first.
    pub(crate) fn read(
        &self,
        (content_type, media_type): (&[u8], &str),
        body: &[u8],
    ) -> Result<[Value; 2], FormFault> {
        let Self { fields, shape, .. } = self;
        if is_multipart(media_type) {
            let parts = self.parts(content_type, body)?;
            let pairs = parts.iter().map(|(name, text)| (Cow::Borrowed(&**name), &**text));
            return objects(&Pairs::of_parts(pairs), fields, shape);
        }
        let text = std::str::from_utf8(body).map_err(|_| fault("is no form: it is not UTF-8"))?;
        objects(&Pairs::of_query(text), fields, shape)
    }

    /// The names and the texts of the parts. In the text of a file, a replacement character stands for bytes that are not UTF-8.
    fn parts(&self, content_type: &[u8], body: &[u8]) -> Result<Vec<(String, String)>, FormFault> {
        let content_type = String::from_utf8_lossy(content_type);
        let boundary = multer::parse_boundary(&content_type)
            .map_err(|_| fault("is no form: Content-Type has no boundary"))?;
        let all = stream::iter([Ok::<_, std::convert::Infallible>(Bytes::copy_from_slice(body))]);
        let read = async {
            let (mut form, mut parts) = (Multipart::new(all, boundary), Vec::new());
            while let Some(part) = form.next_field().await.map_err(|_| fault("is no multipart/form-data"))? {
                let name = part.name().ok_or_else(|| fault("has a part without a name"))?.to_owned();
                self.check_part(&name, part.headers().get("content-type").map(|value| value.as_bytes()))?;
                let content = part.bytes().await.map_err(|_| fault("is no multipart/form-data"))?;
                if parts.len() >= FIELDS_MAX {
                    return Err(fault("has too many fields"));
                }
                parts.push((name, String::from_utf8_lossy(&content).into_owned()));
            }
            Ok(parts)
        };
        // The whole body is there, so that nothing waits.
        read.now_or_never().unwrap_or_else(|| Err(fault("is no multipart/form-data")))
    }

    /// Checks the `Content-Type` of a part.
    fn check_part(&self, name: &str, content_type: Option<&[u8]>) -> Result<(), FormFault> {
        let contract = self.parts.iter().find(|part| *part.name == *name);
        let detail = contract.and_then(|contract| foreign_type(contract, content_type)).or_else(|| {
            content_type.is_some_and(has_foreign_text).then(|| "has another charset than UTF-8".into())
        });
        // Other names are data of the client.
        let is_named = contract.is_some() || self.shape.property(name).is_some();
        let field = is_named.then(|| name.to_owned());
        detail.map_or(Ok(()), |detail| Err(FormFault { field, detail }))
    }
}

/// Why the media type of a part is none of its media types. A part without `Content-Type` is text (RFC 7578, 4.4), or JSON where
/// JSON is expected.
fn foreign_type(contract: &PartContract, content_type: Option<&[u8]>) -> Option<Cow<'static, str>> {
    let types = &contract.media_types;
    let is_expected = match content_type {
        Some(content_type) => matches(content_type, types),
        None => types.iter().any(|of| is_json(of) || is_in("text/plain", of)),
    };
    (!is_expected).then(|| format!("has another content type than {}", types.join(", ")).into())
}

/// Whether the content of a part is text in another charset than UTF-8.
fn has_foreign_text(content_type: &[u8]) -> bool {
    essence(content_type).is_some_and(|media_type| media_type.starts_with("text/") || is_json(&media_type))
        && names_foreign_charset(content_type)
}

fn objects(pairs: &Pairs<'_>, fields: &[Parameter], shape: &Shape) -> Result<[Value; 2], FormFault> {
    if pairs.len() > FIELDS_MAX {
        return Err(fault("has too many fields"));
    }
    let mut objects = [Map::new(), Map::new()];
    let mut add = |name: &str, found: Found| {
        let mut values = match found {
            Found::Absent => return Ok(()),
            Found::Malformed(detail) => {
                // Other names are data of the client.
                let field = shape.property(name).map(|_| name.to_owned());
                return Err(FormFault { field, detail: detail.into() });
            }
            Found::Values(values) => values,
        };
        let Some(last) = values.pop() else { return Ok(()) };
        let first = values.into_iter().next().unwrap_or_else(|| last.clone());
        for (object, value) in objects.iter_mut().zip([first, last]) {
            object.insert(name.to_owned(), value);
        }
        Ok(())
    };
    let any = Shape::default();
    for field in fields {
        add(&field.name, of_pairs(field, shape.property(&field.name).unwrap_or(&any), pairs))?;
    }
    let mut done = HashSet::new();
    for name in pairs.names() {
        let has_style = || fields.iter().any(|field| owns(field, shape, name));
        if done.insert(name) && !has_style() {
            add(name, of_texts(shape.property(name).unwrap_or(&any), &pairs.texts(name)))?;
        }
    }
    Ok(objects.map(Value::Object))
}

/// Whether a pair with this name is a part of a field with a style.
fn owns(field: &Parameter, shape: &Shape, name: &str) -> bool {
    let part = || match field.style {
        ParameterStyle::DeepObject => {
            name.strip_prefix(&*field.name).is_some_and(|rest| rest.starts_with('['))
        }
        ParameterStyle::Form if field.explodes => shape.property(&field.name).is_some_and(|of| {
            of.is_object() && of.properties.iter().any(|(property, _)| **property == *name)
        }),
        _ => false,
    };
    *field.name == *name || part()
}
