//! Several files as one configuration, as decK merges them: the lists of entities together.

use std::collections::HashSet;

use crate::node::{Node, ReadError, Value};

/// The lines of several texts, counted on: the first line of a text follows the last line of the text before.
#[derive(Clone, Debug, Default)]
pub struct Places(Vec<Text>);

#[derive(Clone, Debug)]
struct Text {
    name: Box<str>,
    /// The number of lines before the text.
    before: u32,
}

impl Places {
    /// Adds a text with its name in messages. Returns the number of lines before the text.
    pub(crate) fn add(&mut self, name: &str, text: &str, before: u32) -> u32 {
        self.0.push(Text { name: name.into(), before });
        let lines = u32::try_from(text.lines().count()).unwrap_or(u32::MAX);
        // A fault at the end of a text is behind its last line.
        before.saturating_add(lines).saturating_add(1)
    }

    /// The number of the text with a line, from 0, and the line in this text.
    #[must_use]
    pub fn of(&self, line: u32) -> (usize, u32) {
        let index = self.0.partition_point(|text| text.before < line).saturating_sub(1);
        let before = self.0.get(index).map_or(0, |text| text.before);
        (index, line.saturating_sub(before))
    }

    /// A line in words: `line 7`, or `b.yaml:7` if there are several texts.
    pub(crate) fn in_words(&self, line: u32) -> String {
        let (index, line) = self.of(line);
        match self.0.get(index).filter(|_| self.0.len() > 1) {
            Some(text) => format!("{}:{line}", text.name),
            None => format!("line {line}"),
        }
    }
}

/// One root in place of several roots. Lists are joined, and mappings have the keys of all roots.
pub(super) fn merged(roots: Vec<Node>, places: &Places) -> Result<Node, ReadError> {
    let mut roots = roots.into_iter();
    let Some(first) = roots.next() else { return Err(ReadError::new(1, "there is no file")) };
    let transforms = |root: &Node| root.get("_transform").and_then(Node::flag).unwrap_or(true);
    roots.try_fold(first, |one, other| {
        // A missing key is `true`.
        if transforms(&one) != transforms(&other) {
            let line = other.get("_transform").map_or(other.line, |of| of.line);
            let first = one.get("_transform").map_or(one.line, |of| of.line);
            return Err(differs("_transform", (line, first), places));
        }
        merge(&one, &other, "", places)
    })
}

fn differs(key: &str, (line, first): (u32, u32), places: &Places) -> ReadError {
    let first = places.in_words(first);
    ReadError::new(
        line,
        format!("{key} differs from the value in {first}: write the same value in all files"),
    )
}

fn merge(one: &Node, other: &Node, path: &str, places: &Places) -> Result<Node, ReadError> {
    let value = match (&one.value, &other.value) {
        (_, Value::Null) => one.value.clone(),
        (Value::Null, _) => other.value.clone(),
        (Value::Scalar { text, .. }, Value::Scalar { text: same, .. }) if text == same => one.value.clone(),
        (Value::List(items), Value::List(others)) => {
            Value::List(items.iter().chain(others.iter()).cloned().collect())
        }
        (Value::Map(entries), Value::Map(others)) => {
            let mut merged = Vec::with_capacity(entries.len() + others.len());
            for (key, value) in entries.iter() {
                let same = others.iter().find(|(known, _)| known == key);
                // Comments have no effect.
                let same = same.filter(|_| &**key != "_comment");
                let path = if path.is_empty() { (**key).to_owned() } else { format!("{path}.{key}") };
                let value = same.map_or_else(|| Ok(value.clone()), |(_, of)| merge(value, of, &path, places));
                merged.push((key.clone(), value?));
            }
            let known: HashSet<&str> = entries.iter().map(|(key, _)| &**key).collect();
            merged.extend(others.iter().filter(|(key, _)| !known.contains(&**key)).cloned());
            Value::Map(merged.into())
        }
        _ => return Err(differs(path, (other.line, one.line), places)),
    };
    Ok(Node { line: one.line, value })
}

#[cfg(test)]
mod tests {
    use super::super::{File, Source};

    fn read(texts: &[&str]) -> Result<File, String> {
        let names = ["a.yaml", "b.yaml", "c.yaml"];
        let sources = texts.iter().zip(names).map(|(text, name)| Source { name, text });
        File::read_all(&sources.collect::<Vec<_>>(), &|_| None)
            .map_err(|fault| format!("{}:{}: {}", names[fault.file], fault.line, fault.message))
    }

    const SERVICES: &str = "_format_version: \"3.0\"\n_info: {defaults: {route: {strip_path: false}}}\nservices:\n- {name: shop, host: shop.test}\n";
    const ROUTES: &str =
        "_format_version: \"3.0\"\n\nroutes:\n- {name: cart, paths: [/cart], service: {name: shop}}\n";

    #[test]
    fn references_and_defaults_are_those_of_all_files() {
        for texts in [[SERVICES, ROUTES], [ROUTES, SERVICES]] {
            let file = read(&texts).unwrap();
            assert_eq!(file.notes, []);
            assert_eq!((file.routes[0].service, file.routes[0].strip_path), (Some(0), false));
        }
    }

    #[test]
    fn entity_has_the_line_of_its_file() {
        let file = read(&[SERVICES, ROUTES]).unwrap();
        assert_eq!(file.places.of(file.services[0].line), (0, 4));
        assert_eq!(file.places.of(file.routes[0].line), (1, 4));
    }

    #[test]
    fn duplicate_names_both_places() {
        let other = |name: &str, id: u8| {
            format!(
                "_format_version: \"3.0\"\nservices:\n- {{name: {name}, host: other.test, id: 00000000-0000-0000-0000-00000000000{id}}}\n"
            )
        };
        for (texts, place, expected) in [
            ([SERVICES, &other("shop", 1)], (1, 3), "has the name of another service (a.yaml:4)"),
            ([&other("one", 1), &other("two", 1)], (1, 3), "has the id of another service (a.yaml:3)"),
        ] {
            let file = read(&texts).unwrap();
            let [note] = &file.notes[..] else { panic!("{:?}", file.notes) };
            assert_eq!(file.places.of(note.line), place);
            assert!(note.message.contains(expected), "{note}");
        }
        let alone = read(&[&format!("{SERVICES}- {{name: shop, host: other.test}}\n")]).unwrap();
        assert!(alone.notes[0].message.contains("another service (line 4)"), "{:?}", alone.notes);
    }

    #[test]
    fn files_that_contradict_each_other_are_an_error_with_both_places() {
        for (texts, expected) in [
            (
                [SERVICES, "_format_version: \"2.1\"\n"],
                "b.yaml:1: _format_version differs from the value in a.yaml:1: write the same value in all files",
            ),
            (
                [SERVICES, "_format_version: \"3.0\"\n_info: {defaults: {route: {strip_path: true}}}\n"],
                "b.yaml:2: _info.defaults.route.strip_path differs from the value in a.yaml:2",
            ),
            (
                [SERVICES, "_format_version: \"3.0\"\n_transform: false\n"],
                "b.yaml:2: _transform differs from the value in a.yaml:1",
            ),
            ([SERVICES, "services: []\n"], "b.yaml:1: _format_version is missing"),
            ([SERVICES, "_format_version: \"3.0\"\na: [\n"], "b.yaml:2: the text is not valid YAML"),
            (
                [SERVICES, "_format_version: \"3.0\"\na: ${{ env \"DECK_NONE\" }}\n"],
                "b.yaml:2: the environment",
            ),
        ] {
            let fault = read(&texts).unwrap_err();
            assert!(fault.starts_with(expected), "{fault}");
        }
    }
}
