//! Paths with variables.

use std::collections::HashSet;
use std::fmt;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use serde::{Serialize, Serializer};

use crate::encoding::Fault;
use crate::value::syntax::normal_path;

/// A path with variables in braces, such as `/pets/{id}/toys` (OpenAPI 3.1, "Path Templating Matching"). A variable matches one
/// or more bytes other than `/`. The text between variables is in the normal form of [`PathPattern`](crate::PathPattern).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PathTemplate {
    text: Box<str>,
    /// The text before the first variable.
    prefix: Box<str>,
    /// The rest of the path behind `prefix`, by elements.
    elements: Box<[Element]>,
}

/// The text between two slashes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Element {
    Literal(Box<str>),
    /// The texts before, between and behind the variables: one more than there are variables.
    Variables(Box<[Box<str>]>),
}

/// The text is no path with variables.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The text is longer than [`PathTemplate::LENGTH_MAX`].
    #[error("has {0} bytes; at most {max} are allowed", max = PathTemplate::LENGTH_MAX)]
    TooLong(usize),
    /// A brace has no partner, or is inside of braces.
    #[error("has a '{0}' without its partner: write each variable as {{name}}")]
    Brace(char),
    /// A variable without a name.
    #[error("has a variable without a name: write {{name}}")]
    NoName,
    /// Two variables have one name.
    #[error("has two variables with the name {0:?}: rename one")]
    Repeated(Box<str>),
    /// Two variables without text between them.
    #[error("has two variables side by side: write text between them")]
    Adjacent,
    /// The text without its variables is no path.
    #[error("{0}")]
    Path(String),
}

impl PathTemplate {
    /// The longest text, in bytes: the limit of Gateway API for a path.
    pub const LENGTH_MAX: usize = 4096;

    /// Reads a path with variables.
    ///
    /// # Errors
    ///
    /// The text is too long, has a fault in its braces, or is no path.
    pub fn new(text: &str) -> Result<Self, TemplateError> {
        if text.len() > Self::LENGTH_MAX {
            return Err(TemplateError::TooLong(text.len()));
        }
        let (literals, names) = split(text)?;
        let mut known = HashSet::with_capacity(names.len());
        if let Some(name) = names.iter().find(|name| !known.insert(**name)) {
            return Err(TemplateError::Repeated((*name).into()));
        }
        // A letter in the place of each variable shows whether the rest is a path, and normalizes that.
        let stand_in = literals.join("v");
        let normal = normal_path(&stand_in).map_err(TemplateError::Path)?;
        let literals = match *normal == *stand_in {
            true => literals.into_iter().map(str::to_owned).collect(),
            false => literals.into_iter().map(normal_part).collect::<Result<Vec<String>, _>>()?,
        };
        let mut written = literals[0].clone();
        for (name, literal) in names.iter().zip(&literals[1..]) {
            written.extend(["{", name, "}", literal]);
        }
        let mut elements = vec![vec![String::new()]];
        for literal in &literals[1..] {
            let mut parts = literal.split('/');
            let behind = parts.next().unwrap_or_default();
            elements.last_mut().into_iter().for_each(|last| last.push(behind.to_owned()));
            elements.extend(parts.map(|part| vec![part.to_owned()]));
        }
        let elements = elements.into_iter().map(|mut texts| match texts.len() {
            1 => Element::Literal(texts.pop().unwrap_or_default().into()),
            _ => Element::Variables(texts.into_iter().map(Into::into).collect()),
        });
        let elements = if names.is_empty() { Box::default() } else { elements.collect() };
        Ok(Self { text: written.into(), prefix: literals[0].as_str().into(), elements })
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The text before the first variable.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The names of the variables, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let variables = self.text.split('{').skip(1);
        variables.filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
    }

    /// Whether a path matches that begins with the [`prefix`](Self::prefix). `rest` is the path behind the prefix.
    #[must_use]
    pub fn takes(&self, rest: &[u8]) -> bool {
        if self.elements.is_empty() {
            return rest.is_empty();
        }
        let mut parts = rest.split(|byte| *byte == b'/');
        let all = self.elements.iter().all(|element| parts.next().is_some_and(|part| element.takes(part)));
        all && parts.next().is_none()
    }

    /// The names of the variables and their values in a path; `None` if the path does not match.
    #[must_use]
    pub fn values<'p>(&self, path: &'p [u8]) -> Option<Vec<(&str, &'p [u8])>> {
        let mut parts = path.strip_prefix(self.prefix.as_bytes())?.split(|byte| *byte == b'/');
        let mut values = Vec::new();
        for element in &self.elements {
            if !element.read(parts.next()?, &mut |value| values.push(value)) {
                return None;
            }
        }
        let is_whole = parts.next().is_none();
        is_whole.then(|| self.names().zip(values).collect())
    }

    /// A number that orders templates by their elements from left to right: an element without a variable comes before an
    /// element with a variable. Only the first 16 elements count.
    #[must_use]
    pub fn rank(&self) -> u16 {
        let elements = self.text.split('/').skip(1).take(16);
        elements.zip(0..).fold(0, |rank, (element, at)| rank | u16::from(element.contains('{')) << (15 - at))
    }
}

impl Element {
    fn takes(&self, part: &[u8]) -> bool {
        self.read(part, &mut |_| ())
    }

    /// Whether a part of a path matches. Passes the values of the variables on.
    fn read<'p>(&self, part: &'p [u8], take: &mut impl FnMut(&'p [u8])) -> bool {
        let texts = match self {
            Self::Literal(text) => return text.as_bytes() == part,
            Self::Variables(texts) => texts,
        };
        let [first, between @ .., last] = &**texts else { return false };
        let Some(mut rest) =
            part.strip_prefix(first.as_bytes()).and_then(|rest| rest.strip_suffix(last.as_bytes()))
        else {
            return false;
        };
        for text in between {
            // The variable before the text has at least one byte.
            let found = rest
                .get(1..)
                .and_then(|rest| rest.windows(text.len()).position(|part| part == text.as_bytes()));
            let Some(at) = found else { return false };
            take(&rest[..=at]);
            rest = &rest[1 + at + text.len()..];
        }
        take(rest);
        !rest.is_empty()
    }
}

/// The texts before, between and behind the variables, and the names of the variables.
fn split(text: &str) -> Result<(Vec<&str>, Vec<&str>), TemplateError> {
    let (mut literals, mut names) = (Vec::new(), Vec::new());
    let mut rest = text;
    loop {
        let Some(at) = rest.find(['{', '}']) else {
            literals.push(rest);
            return Ok((literals, names));
        };
        if rest.as_bytes()[at] == b'}' {
            return Err(TemplateError::Brace('}'));
        }
        let literal = &rest[..at];
        if literal.is_empty() && !literals.is_empty() {
            return Err(TemplateError::Adjacent);
        }
        literals.push(literal);
        let (name, behind) = rest[at + 1..].split_once('}').ok_or(TemplateError::Brace('{'))?;
        if name.contains('{') {
            return Err(TemplateError::Brace('{'));
        }
        if name.is_empty() {
            return Err(TemplateError::NoName);
        }
        names.push(name);
        rest = behind;
    }
}

/// The normal form of a text between variables.
fn normal_part(text: &str) -> Result<String, TemplateError> {
    // A path begins with a slash, and no element of it is empty: the letter protects the slashes at the ends.
    let normal = normal_path(&format!("/v{text}v")).map_err(TemplateError::Path)?;
    let normal = normal.strip_prefix("/v").and_then(|rest| rest.strip_suffix('v')).unwrap_or_default();
    Ok(normal.to_owned())
}

impl fmt::Display for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PathTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PathTemplate").field(&self.text).finish()
    }
}

impl Serialize for PathTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// The text.
impl<C> Encode<C> for PathTemplate {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.str(&self.text)?.ok()
    }
}

impl<'b, C> Decode<'b, C> for PathTemplate {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        Self::new(decoder.str()?).map_err(|_| Fault::Invalid("a path with variables").into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn takes(template: &str, path: &str) -> bool {
        let template = PathTemplate::new(template).unwrap();
        path.strip_prefix(template.prefix()).is_some_and(|rest| template.takes(rest.as_bytes()))
    }

    #[test]
    fn variable_matches_one_element_that_is_not_empty() {
        for (template, path, expected) in [
            ("/pets/{id}", "/pets/7", true),
            ("/pets/{id}", "/pets/", false),
            ("/pets/{id}", "/pets", false),
            ("/pets/{id}", "/pets/7/", false),
            ("/pets/{id}", "/pets/7/toys", false),
            ("/pets/{id}/toys", "/pets/7/toys", true),
            ("/pets/{id}/toys", "/pets/7/toy", false),
            ("/pets/{id}/toys/{toy}", "/pets/7/toys/8", true),
            ("/{a}", "/x%2Fy", true),
            ("/{a}/", "/x/", true),
            ("/{a}/", "/x", false),
            ("/plain", "/plain", true),
            ("/plain", "/plain/x", false),
        ] {
            assert_eq!(takes(template, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn several_variables_in_one_element_have_text_between_them() {
        for (template, path, expected) in [
            ("/v{n}.json", "/v1.json", true),
            ("/v{n}.json", "/v.json", false),
            ("/v{n}.json", "/v1.json.json", true),
            ("/{a}-{b}", "/x-y-z", true),
            ("/{a}-{b}", "/x-", false),
            ("/{a}-{b}", "/-x", false),
            ("/{a}.{b}-{c}", "/p.q-r.s", true),
            ("/{a}-{b}", "/x-y/z", false),
        ] {
            assert_eq!(takes(template, path), expected, "{template} {path}");
        }
    }

    #[test]
    fn text_between_variables_is_normalized() {
        let template = PathTemplate::new("/%7euser/{id}/caf\u{e9} x/{n}").unwrap();
        assert_eq!(template.as_str(), "/~user/{id}/caf%C3%A9%20x/{n}");
        assert_eq!(template.names().collect::<Vec<_>>(), ["id", "n"]);
        assert_eq!(template.prefix(), "/~user/");
    }

    #[test]
    fn faults_say_what_is_wrong() {
        for (text, fault) in [
            ("/{a", "'{'"),
            ("/a}", "'}'"),
            ("/{a{b}}", "'{'"),
            ("/{}", "without a name"),
            ("/{a}/{a}", "\"a\""),
            ("/{a}{b}", "side by side"),
            ("pets/{id}", "begin with '/'"),
            ("/{a}//b", "'//'"),
            ("/{a}/../b", "segment"),
        ] {
            let error = PathTemplate::new(text).unwrap_err().to_string();
            assert!(error.contains(fault), "{text}: {error}");
        }
        assert_eq!(PathTemplate::new(&"/a".repeat(2049)), Err(TemplateError::TooLong(4098)));
    }

    #[test]
    fn element_without_a_variable_comes_first_from_left_to_right() {
        let rank = |text: &str| PathTemplate::new(text).unwrap().rank();
        assert!(rank("/pets/mine/{x}") < rank("/pets/{id}/toys"));
        assert!(rank("/pets/{id}/toys") < rank("/pets/{id}/{x}"));
        assert!(rank("/{a}/b") > rank("/a/{b}"));
    }
}
