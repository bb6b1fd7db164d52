//! The text of a file as a tree of values, each with its line.

use std::collections::HashMap;
use std::sync::Arc;

use granit_parser::{Event, Parser, ScalarStyle, StrInput};

use crate::environment::Filled;

/// The greatest depth of nested lists and mappings.
const DEPTH_MAX: usize = 64;

/// The largest number of values, with all aliases expanded.
const NODES_MAX: usize = 4_000_000;

/// The file cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ReadError {
    /// The number of the file, from 0.
    pub file: usize,
    /// The line in the file, from 1.
    pub line: u32,
    /// The fault and the remedy, without a value of the file.
    pub message: String,
}

impl ReadError {
    pub(crate) fn new(line: u32, message: impl Into<String>) -> Self {
        Self { file: 0, line, message: message.into() }
    }
}

/// A value with its line. A clone shares the content.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The line of the value, or of its key in a mapping, from 1.
    pub line: u32,
    /// The value.
    pub value: Value,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// A text, number or boolean.
    Scalar {
        /// The text.
        text: Arc<str>,
        /// Whether the text has no quotes, so that it may be a number or a boolean.
        is_plain: bool,
    },
    /// A list.
    List(Arc<[Node]>),
    /// A mapping, in the order of the file.
    Map(Arc<[(Arc<str>, Node)]>),
}

impl Node {
    /// A text.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    /// A boolean, as YAML 1.1 writes it.
    #[must_use]
    pub fn flag(&self) -> Option<bool> {
        match &self.value {
            Value::Scalar { text, is_plain: true } => match &*text.to_ascii_lowercase() {
                "true" | "yes" | "on" => Some(true),
                "false" | "no" | "off" => Some(false),
                _ => None,
            },
            _ => None,
        }
    }

    /// A number.
    #[must_use]
    pub fn number(&self) -> Option<f64> {
        match &self.value {
            Value::Scalar { text, is_plain: true } => {
                text.parse::<f64>().ok().filter(|number| number.is_finite() && !text.contains(['n', 'N']))
            }
            _ => None,
        }
    }

    /// The entries of a list.
    #[must_use]
    pub fn list(&self) -> Option<&[Self]> {
        match &self.value {
            Value::List(items) => Some(items),
            // An empty mapping is an empty list in Lua.
            Value::Map(entries) if entries.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The entries of a mapping.
    #[must_use]
    pub fn map(&self) -> Option<&[(Arc<str>, Self)]> {
        match &self.value {
            Value::Map(entries) => Some(entries),
            Value::List(items) if items.is_empty() => Some(&[]),
            _ => None,
        }
    }

    /// The value of a key of a mapping; `None` without the key, or if the value is null.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let (_, value) = self.map()?.iter().find(|(known, _)| **known == *key)?;
        Some(value).filter(|value| value.value != Value::Null)
    }

    /// This mapping with the entries of `other` that it lacks, also inside mappings.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let (Some(own), Some(others)) = (self.map(), other.map()) else { return self.clone() };
        let mut entries: Vec<(Arc<str>, Self)> = Vec::with_capacity(own.len() + others.len());
        for (key, value) in own {
            let below = others.iter().find(|(known, _)| known == key);
            entries.push((key.clone(), below.map_or_else(|| value.clone(), |(_, below)| value.or(below))));
        }
        let added = others.iter().filter(|(key, _)| !own.iter().any(|(known, _)| known == key));
        entries.extend(added.cloned());
        Self { line: self.line, value: Value::Map(entries.into()) }
    }
}

/// The keys that a mapping has twice, each with its line. As in Kong, the last value applies.
pub(crate) type Repeated = Vec<(u32, Arc<str>)>;

/// Reads a text of one document. Returns its root and the repeated keys. Lines are counted from `before` on, and lines of errors
/// from the beginning of the text.
pub(crate) fn read(filled: &Filled, before: u32) -> Result<(Node, Repeated), ReadError> {
    let parser = Parser::new_from_str(&filled.text);
    let (anchors, repeated) = (HashMap::new(), Vec::new());
    let mut reader = Reader { parser, filled, before, anchors, nodes: 0, line: 1, repeated };
    let root = match reader.next()? {
        Some(event) => reader.node(event, 0)?,
        None => Node { line: before.saturating_add(1), value: Value::Null },
    };
    match reader.next()? {
        Some(_) => {
            Err(ReadError::new(reader.line, "a file of Kong is one document: split the file at \"---\""))
        }
        None => Ok((root, reader.repeated)),
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    filled: &'t Filled,
    /// The number of lines before the text.
    before: u32,
    /// The nodes of anchors, each with the number of its values.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
    /// The line of the last event in the text.
    line: u32,
    repeated: Repeated,
}

impl<'t> Reader<'t> {
    /// The next value, end of a value, or alias; `None` at the end of the text.
    fn next(&mut self) -> Result<Option<Event<'t>>, ReadError> {
        loop {
            let Some(event) = self.parser.next() else { return Ok(None) };
            let (event, span) = event.map_err(|fault| {
                let line = u32::try_from(fault.marker().line()).unwrap_or(u32::MAX);
                ReadError::new(
                    self.filled.line(line),
                    "the text is not valid YAML: check indentation, quotes and colons",
                )
            })?;
            self.line = self.filled.line(u32::try_from(span.start.line()).unwrap_or(u32::MAX));
            match event {
                Event::StreamEnd => return Ok(None),
                Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd
                | Event::Alias(_) => return Ok(Some(event)),
                _ => {}
            }
        }
    }

    fn required(&mut self) -> Result<Event<'t>, ReadError> {
        self.next()?.ok_or_else(|| ReadError::new(self.line, "the file ends too early"))
    }

    /// The node that begins with an event.
    fn node(&mut self, event: Event<'t>, depth: usize) -> Result<Node, ReadError> {
        if depth > DEPTH_MAX {
            return Err(ReadError::new(
                self.line,
                format!("the file is nested deeper than {DEPTH_MAX} levels"),
            ));
        }
        let (line, before) = (self.line, self.nodes);
        self.count(1)?;
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let is_plain = style == ScalarStyle::Plain;
                let is_null = is_plain && matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                let value =
                    if is_null { Value::Null } else { Value::Scalar { text: (*text).into(), is_plain } };
                (value, anchor)
            }
            Event::SequenceStart(_, anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.required()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
                (Value::List(items.into()), anchor)
            }
            Event::MappingStart(_, anchor, _) => (self.mapping(depth)?, anchor),
            Event::Alias(anchor) => {
                let Some((node, size)) = self.anchors.get(&anchor).cloned() else {
                    return Err(ReadError::new(line, "an alias names no anchor, or the anchor around it"));
                };
                self.count(size)?;
                return Ok(node);
            }
            _ => return Err(ReadError::new(line, "a value is missing")),
        };
        let node = Node { line: line.saturating_add(self.before), value };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
        }
        Ok(node)
    }

    fn count(&mut self, nodes: usize) -> Result<(), ReadError> {
        self.nodes = self.nodes.saturating_add(nodes);
        match self.nodes > NODES_MAX {
            true => {
                Err(ReadError::new(self.line, "the file is too large: split the file, or use fewer aliases"))
            }
            false => Ok(()),
        }
    }

    fn mapping(&mut self, depth: usize) -> Result<Value, ReadError> {
        let mut entries: Vec<(Arc<str>, Node)> = Vec::new();
        let mut merged: Vec<Node> = Vec::new();
        loop {
            let key = match self.required()? {
                Event::MappingEnd => break,
                Event::Scalar(key, ..) => key,
                _ => return Err(ReadError::new(self.line, "a key is a list or a mapping: write text")),
            };
            let line = self.line;
            let event = self.required()?;
            let value = self.node(event, depth + 1)?;
            if &*key == "<<" {
                match &value.value {
                    Value::List(items) => merged.extend(items.iter().cloned()),
                    _ => merged.push(value),
                }
                continue;
            }
            let node = Node { line: line.saturating_add(self.before), ..value };
            match entries.iter_mut().find(|(known, _)| **known == *key) {
                Some((known, first)) => {
                    self.repeated.push((node.line, known.clone()));
                    *first = node;
                }
                None => entries.push(((*key).into(), node)),
            }
        }
        for other in merged {
            let Some(others) = other.map() else {
                return Err(ReadError::new(
                    other.line.saturating_sub(self.before),
                    "'<<' takes a mapping, or a list of mappings",
                ));
            };
            for (key, value) in others {
                if !entries.iter().any(|(known, _)| known == key) {
                    entries.push((key.clone(), value.clone()));
                }
            }
        }
        Ok(Value::Map(entries.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment;

    fn of(text: &str) -> Result<Node, ReadError> {
        read(&environment::fill(text, &|_| None).unwrap(), 0).map(|(root, _)| root)
    }

    #[test]
    fn last_value_of_a_key_applies_and_the_repeat_is_told() {
        let (root, repeated) = read(&environment::fill("a: 1\nb: 2\na: 3\n", &|_| None).unwrap(), 0).unwrap();
        assert_eq!(root.get("a").unwrap().number(), Some(3.0));
        assert_eq!(repeated, [(3, "a".into())]);
    }

    #[test]
    fn value_has_the_line_of_its_key() {
        let root = of("a: 1\nb:\n  - x: 'y'\n    z: [1, 2]\n").unwrap();
        let item = &root.get("b").unwrap().list().unwrap()[0];
        assert_eq!((root.get("b").unwrap().line, item.line, item.get("z").unwrap().line), (2, 3, 4));
        assert_eq!(root.get("a").unwrap().number(), Some(1.0));
        assert_eq!(item.get("x").unwrap().number(), None);
    }

    #[test]
    fn aliases_and_merges_are_expanded_and_bounded() {
        let root = of("d: &d {a: 1, b: 2}\ne: {<<: *d, b: 3}\n").unwrap();
        let merged = root.get("e").unwrap();
        assert_eq!(
            (merged.get("a").unwrap().number(), merged.get("b").unwrap().number()),
            (Some(1.0), Some(3.0))
        );
        let mut text = format!("a0: &a0 [{}]\n", "x,".repeat(10));
        for level in 1..10 {
            text.push_str(&format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(10)));
        }
        assert!(of(&text).unwrap_err().message.contains("too large"));
    }

    #[test]
    fn unreadable_file_is_an_error_with_its_line() {
        for (text, line, message) in [
            ("a: 1\nb: [", 2, "not valid YAML"),
            ("a: 1\n---\nb: 1", 3, "one document"),
            ("a: &a [*a]", 1, "alias"),
            (&format!("a: {}{}", "[".repeat(80), "]".repeat(80)), 1, "deeper than 64"),
        ] {
            let fault = of(text).unwrap_err();
            assert!(fault.message.contains(message), "{text}: {fault}");
            assert_eq!(fault.line, line, "{text}: {fault}");
        }
    }
}
