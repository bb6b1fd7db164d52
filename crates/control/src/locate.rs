//! The line of a field, found in a second reading of the document.
//!
//! Objects are parsed without the line of every field, which would cost more memory than the objects. Problems are few:
//! to show a problem, the gateway scans its document once more for the field.

use granit_parser::{Event, Parser, StrInput};

/// The line, from 1, of `field` in the YAML or JSON document `text`. If the field is absent, the line of the nearest
/// enclosing node in the text. `None` if even the first node cannot be read.
///
/// `field` has the notation of Kubernetes: `spec.rules[0].http.paths[1].pathType`, and
/// `metadata.annotations[sluicegate.dev/load-balance]` for names that contain dots.
pub(crate) fn line(text: &str, field: &str) -> Option<u32> {
    let mut nodes = Nodes(Parser::new_from_str(text));
    let (mut node, mut best) = nodes.next()?;
    let mut field = field;
    while let Some((segment, rest)) = split_segment(field) {
        field = rest;
        // An unreadable rest does not matter to a field before the rest.
        let Some((child, line)) = nodes.child(node, segment) else { break };
        (node, best) = (child, line);
    }
    Some(best)
}

/// Takes the first segment off a field's path.
fn split_segment(field: &str) -> Option<(&str, &str)> {
    let field = field.strip_prefix('.').unwrap_or(field);
    if let Some(bracketed) = field.strip_prefix('[') {
        return bracketed.split_once(']');
    }
    let end = field.find(['.', '[']).unwrap_or(field.len());
    (end > 0).then(|| field.split_at(end))
}

/// The kind of a node, as far as a descent needs to know.
#[derive(Clone, PartialEq)]
enum Node {
    Scalar(String),
    Sequence,
    Mapping,
    Alias,
    End,
}

/// The nodes of the first document, in the order of the text.
struct Nodes<'a>(Parser<'a, StrInput<'a>>);

impl Nodes<'_> {
    /// The next node or end of a collection, and its line; `None` at the document's end or an error.
    fn next(&mut self) -> Option<(Node, u32)> {
        loop {
            let (event, span) = self.0.next()?.ok()?;
            let node = match event {
                Event::Scalar(value, ..) => Node::Scalar(value.into_owned()),
                Event::SequenceStart(..) => Node::Sequence,
                Event::MappingStart(..) => Node::Mapping,
                Event::SequenceEnd | Event::MappingEnd => Node::End,
                Event::Alias(_) => Node::Alias,
                Event::DocumentEnd | Event::StreamEnd => return None,
                _ => continue,
            };
            return Some((node, u32::try_from(span.start.line()).unwrap_or(u32::MAX)));
        }
    }

    /// Moves from the start of `parent` to the child that `segment` names. The line of a mapping's child is the line of
    /// its key.
    fn child(&mut self, parent: Node, segment: &str) -> Option<(Node, u32)> {
        match parent {
            Node::Sequence => {
                for _ in 0..segment.parse::<usize>().ok()? {
                    let (item, _) = self.next()?;
                    self.skip(&item)?;
                }
                self.next().filter(|(item, _)| *item != Node::End)
            }
            Node::Mapping => loop {
                let (key, line) = self.next()?;
                match &key {
                    Node::End => return None,
                    Node::Scalar(name) if name == segment => return Some((self.next()?.0, line)),
                    _ => self.skip(&key)?,
                }
                let (value, _) = self.next()?;
                self.skip(&value)?;
            },
            Node::Scalar(_) | Node::Alias | Node::End => None,
        }
    }

    /// Moves to the end of `node`, which has just begun. `None` at the end of the enclosing node.
    fn skip(&mut self, node: &Node) -> Option<()> {
        let mut depth = match node {
            Node::Sequence | Node::Mapping => 1,
            Node::Scalar(_) | Node::Alias => 0,
            Node::End => return None,
        };
        while depth > 0 {
            match self.next()?.0 {
                Node::Sequence | Node::Mapping => depth += 1,
                Node::End => depth -= 1,
                Node::Scalar(_) | Node::Alias => {}
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn yaml_field_has_the_line_number_of_its_key() {
        let yaml = "\
# a comment
metadata:
  annotations:
    sluicegate.dev/load-balance: fair
spec:
  rules:
    - host: a.example
      http:
        paths:
          - path: /
          - path: /b
            pathType: prefix
  tls: &tls [ {hosts: [x,
     y]} ]
";
        for (field, expected) in [
            ("", 2),
            ("metadata.annotations[sluicegate.dev/load-balance]", 4),
            ("spec.rules", 6),
            ("spec.rules[0]", 7),
            ("spec.rules[0].http.paths[0].pathType", 10),
            ("spec.rules[0].http.paths[1].pathType", 12),
            ("spec.rules[0].http.paths[7].pathType", 9),
            ("spec.tls[0].hosts[1]", 14),
            ("nothing", 2),
        ] {
            assert_eq!(line(yaml, field), Some(expected), "{field}");
        }
    }

    #[test]
    fn json_field_has_the_line_number_of_its_key() {
        let json = "{\n\t\"spec\": {\n\t\t\"rules\": [\n\t\t\t{\"host\": \"A\"}\n\t\t]\n\t}\n}\n";
        assert_eq!(line(json, "spec.rules[0].host"), Some(4));
    }

    #[test]
    fn field_before_a_yaml_syntax_error_has_a_line_number() {
        assert_eq!(line("a:\n  b: 1\nc: [\n", "a.b"), Some(2));
        assert_eq!(line("", "a"), None);
    }
}
