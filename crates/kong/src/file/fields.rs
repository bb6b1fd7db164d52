//! The fields of an entity, as the file writes them.

use std::sync::Arc;

use crate::node::{Node, Value};
use crate::note::Notes;

/// Fields without an effect on requests.
const WITHOUT_EFFECT: [&str; 6] = ["tags", "created_at", "updated_at", "ws_id", "_comment", "_ignore"];

/// The fields of an entity. [`finish`](Self::finish) reports each field that the reader of the entity did not take.
pub(super) struct Fields<'n> {
    pub(super) line: u32,
    /// The entity in messages.
    pub(super) entity: String,
    entries: &'n [(Arc<str>, Node)],
    taken: Vec<bool>,
    /// The entity whose fields apply where the entity has no field of its own (`_info.defaults`).
    defaults: Option<&'n Node>,
}

impl<'n> Fields<'n> {
    /// The fields of a node; `None`, with an error, if the node is no mapping.
    pub(super) fn new(
        node: &'n Node,
        entity: String,
        defaults: Option<&'n Node>,
        notes: &mut Notes,
    ) -> Option<Self> {
        let Some(entries) = node.map() else {
            notes.error(node.line, &entity, "is no mapping: write its fields");
            return None;
        };
        Some(Self { line: node.line, entity, entries, taken: vec![false; entries.len()], defaults })
    }

    /// The value of a field; `None` without the field, or if it is null.
    pub(super) fn take(&mut self, key: &str) -> Option<&'n Node> {
        let own = self.entries.iter().position(|(known, _)| **known == *key);
        match own {
            Some(place) => {
                self.taken[place] = true;
                let node = &self.entries[place].1;
                (node.value != Value::Null).then_some(node)
            }
            None => self.defaults.and_then(|defaults| defaults.get(key)),
        }
    }

    /// A text. Numbers and booleans are texts too.
    pub(super) fn text(&mut self, key: &str, notes: &mut Notes) -> Option<String> {
        let node = self.take(key)?;
        let text = node.text().map(str::to_owned);
        if text.is_none() {
            notes.error(node.line, &self.entity, format!("{key} is no text"));
        }
        text
    }

    /// A boolean.
    pub(super) fn flag(&mut self, key: &str, notes: &mut Notes) -> Option<bool> {
        let node = self.take(key)?;
        let flag = node.flag();
        if flag.is_none() {
            notes.error(node.line, &self.entity, format!("{key} is neither true nor false"));
        }
        flag
    }

    /// An integer from `min` to `max`.
    pub(super) fn integer(&mut self, key: &str, (min, max): (u64, u64), notes: &mut Notes) -> Option<u64> {
        let number = self.number(key, (min as f64, max as f64), notes)?;
        if number.fract() != 0.0 {
            notes.error(self.line, &self.entity, format!("{key} is no integer"));
            return None;
        }
        Some(number as u64)
    }

    /// A number from `min` to `max`.
    pub(super) fn number(&mut self, key: &str, (min, max): (f64, f64), notes: &mut Notes) -> Option<f64> {
        let node = self.take(key)?;
        let number = node.number().filter(|number| (min..=max).contains(number));
        if number.is_none() {
            notes.error(node.line, &self.entity, format!("{key} is no number from {min} to {max}"));
        }
        number
    }

    /// A list of texts; `None` without the field.
    pub(super) fn texts(&mut self, key: &str, notes: &mut Notes) -> Option<Vec<String>> {
        let node = self.take(key)?;
        let Some(items) = node.list() else {
            notes.error(node.line, &self.entity, format!("{key} is no list"));
            return None;
        };
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match item.text() {
                Some(text) => texts.push(text.to_owned()),
                None => notes.error(item.line, &self.entity, format!("{key} has an entry that is no text")),
            }
        }
        Some(texts)
    }

    /// The entries of a list; empty without the field.
    pub(super) fn list(&mut self, key: &str, notes: &mut Notes) -> &'n [Node] {
        let Some(node) = self.take(key) else { return &[] };
        node.list().unwrap_or_else(|| {
            notes.error(node.line, &self.entity, format!("{key} is no list"));
            &[]
        })
    }

    /// The name or id of another entity: `service: name`, `service: {name: x}` or `service: {id: x}`.
    pub(super) fn reference(&mut self, key: &str, notes: &mut Notes) -> Option<(u32, String)> {
        let node = self.take(key)?;
        let named = ["id", "name", "username", "custom_id"].iter().find_map(|field| node.get(field));
        let text = node.text().or_else(|| named.and_then(Node::text));
        if text.is_none() {
            notes.error(node.line, &self.entity, format!("{key} has neither a name nor an id"));
        }
        Some((node.line, text?.to_owned()))
    }

    /// Reports the fields that the reader of the entity did not take. `replacement` says what to write instead of a field.
    pub(super) fn finish(self, replacement: impl Fn(&str) -> Option<&'static str>, notes: &mut Notes) {
        let untaken = self.entries.iter().zip(&self.taken).filter(|(_, is_taken)| !**is_taken);
        for ((key, node), _) in untaken.filter(|((key, _), _)| !WITHOUT_EFFECT.contains(&&**key)) {
            if node.value == Value::Null {
                continue;
            }
            let message = match replacement(key) {
                Some(instead) => format!("{key} is not converted: {instead}"),
                None => format!("{key} is unknown and not converted: remove the field, or correct its name"),
            };
            notes.unconverted(node.line, &self.entity, message);
        }
    }
}
