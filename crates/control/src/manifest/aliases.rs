//! The expanded size of the aliases of a YAML document, counted without an expansion.
//!
//! An alias stands for a copy of the node that its anchor marks, and anchors may mark aliases: 300 bytes can stand for
//! millions of nodes. The parser would create them before it noticed. So a first pass over the text counts the nodes of
//! each anchor. A document that would grow too much is rejected before the parser creates any of it.

use std::fmt;

use granit_parser::{Event, Parser};

use super::syntax::YAML_DEPTH_MAX;

/// Aliases may add this many nodes to any document: keys, values, lists and mappings.
const NODES_MIN: u64 = 4096;

/// Aliases may add this many bytes of text to any document.
const BYTES_MIN: u64 = 256 * 1024;

/// Aliases may add this many times the nodes, and this many times the bytes, of the document as written.
const TIMES_MAX: u64 = 16;

/// A document whose aliases expand to too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expansion {
    /// The line of the alias that goes beyond the limit, from 1.
    pub(super) line: u32,
    pub(super) excess: Excess,
}

/// The exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    Nodes { limit: u64 },
    Bytes { limit: u64 },
    Depth { limit: u64 },
}

impl fmt::Display for Excess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes { limit } => write!(f, "its aliases expand to more than {limit} nodes"),
            Self::Bytes { limit } => write!(f, "its aliases expand to more than {limit} bytes of text"),
            Self::Depth { limit } => write!(f, "its aliases expand to more than {limit} levels of nesting"),
        }?;
        f.write_str(": write the parts out, or use fewer aliases")
    }
}

/// The size of a part of a document, with its aliases expanded.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    nodes: u64,
    bytes: u64,
    /// Levels of lists and mappings.
    depth: u64,
}

/// A list or a mapping that has not ended.
struct Open {
    /// The anchor that marks it; 0 without an anchor.
    anchor: usize,
    size: Size,
}

/// The sizes of a document's parts.
#[derive(Default)]
struct Sizes {
    /// The size of each anchor's node, by the number of the anchor.
    anchors: Vec<Option<Size>>,
    open: Vec<Open>,
    /// The size of the document as written, without aliases.
    written: Size,
    /// The size that aliases add.
    added: Size,
    /// The line of the first alias beyond the size that any document may add.
    first_beyond: Option<u32>,
}

/// Checks the expanded size of the aliases of a document. A document that is no valid YAML passes as far as it can be
/// read: the parser reports its error.
pub(super) fn check(text: &str) -> Result<(), Expansion> {
    // Most documents have no alias, and cost two searches.
    if !text.contains('*') || !text.contains('&') {
        return Ok(());
    }
    let mut sizes = Sizes::default();
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { break };
        let line = u32::try_from(span.start.line()).unwrap_or(u32::MAX);
        match event {
            Event::Scalar(value, _, anchor, _) => {
                let size = Size { nodes: 1, bytes: value.len() as u64, depth: 0 };
                sizes.written.add(size);
                sizes.end_node(anchor, size);
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                sizes.written.add(Size { nodes: 1, ..Size::default() });
                sizes.open.push(Open { anchor, size: Size { nodes: 1, ..Size::default() } });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { anchor, mut size }) = sizes.open.pop() else { break };
                size.depth += 1;
                sizes.end_node(anchor, size);
            }
            Event::Alias(anchor) => sizes.alias(anchor, line)?,
            _ => {}
        }
        if sizes.open.len() > YAML_DEPTH_MAX {
            break;
        }
    }
    sizes.verdict()
}

impl Size {
    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.depth = self.depth.max(other.depth);
    }
}

impl Sizes {
    /// Completes a part.
    fn end_node(&mut self, anchor: usize, size: Size) {
        if let Some(around) = self.open.last_mut() {
            around.size.add(size);
        }
        if anchor > 0 {
            if self.anchors.len() <= anchor {
                self.anchors.resize(anchor + 1, None);
            }
            self.anchors[anchor] = Some(size);
        }
    }

    fn alias(&mut self, anchor: usize, line: u32) -> Result<(), Expansion> {
        // An anchor that has not ended contains itself: the parser reports the error.
        let Some(size) = self.anchors.get(anchor).copied().flatten() else { return Ok(()) };
        let limit = YAML_DEPTH_MAX as u64;
        if self.open.len() as u64 + size.depth > limit {
            return Err(Expansion { line, excess: Excess::Depth { limit } });
        }
        self.added.add(size);
        if self.added.nodes > NODES_MIN || self.added.bytes > BYTES_MIN {
            self.first_beyond.get_or_insert(line);
        }
        self.end_node(0, size);
        Ok(())
    }

    /// Written nodes may follow their aliases, so the limits are known at the end.
    fn verdict(&self) -> Result<(), Expansion> {
        let line = self.first_beyond.unwrap_or(1);
        let nodes = NODES_MIN.max(self.written.nodes.saturating_mul(TIMES_MAX));
        let bytes = BYTES_MIN.max(self.written.bytes.saturating_mul(TIMES_MAX));
        if self.added.nodes > nodes {
            return Err(Expansion { line, excess: Excess::Nodes { limit: nodes } });
        }
        if self.added.bytes > bytes {
            return Err(Expansion { line, excess: Excess::Bytes { limit: bytes } });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten aliases of ten aliases, and so on, to this many levels.
    fn bomb(levels: usize) -> String {
        let mut text = format!("a0: &a0 [{}]\n", "x,".repeat(9));
        for level in 1..=levels {
            let aliases = format!("*a{},", level - 1).repeat(9);
            text.push_str(&format!("a{level}: &a{level} [{aliases}]\n"));
        }
        text
    }

    #[test]
    fn yaml_alias_expansion_over_the_node_limit_is_rejected_with_its_line() {
        assert_eq!(check(&bomb(2)), Ok(()));
        let refused = check(&bomb(6)).unwrap_err();
        assert_eq!(refused, Expansion { line: 4, excess: Excess::Nodes { limit: NODES_MIN } });
        // A size beyond the range of a u64.
        assert!(check(&bomb(40)).is_err());
    }

    #[test]
    fn yaml_alias_expansion_of_long_text_over_the_byte_limit_is_rejected() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(10_000), "*a,".repeat(1000));
        let limit = TIMES_MAX * 10_002;
        assert_eq!(
            check(&text).map_err(|refused| refused.excess),
            Err(Excess::Bytes { limit: limit.max(BYTES_MIN) })
        );
    }

    #[test]
    fn yaml_alias_expansion_over_the_depth_limit_is_rejected() {
        let nested = |inner: &str| format!("{}{inner}{}", "[".repeat(40), "]".repeat(40));
        let text = format!("a: &a {}\nb: {}\n", nested("x"), nested("*a"));
        let refused = check(&text).unwrap_err();
        assert_eq!(refused, Expansion { line: 2, excess: Excess::Depth { limit: YAML_DEPTH_MAX as u64 } });
    }

    #[test]
    fn yaml_with_ordinary_anchors_is_accepted() {
        let mut text = "base: &base {a: 1, b: [1, 2, 3], c: {d: e, f: g}}\nitems:\n".to_owned();
        for nth in 0..5000 {
            text.push_str(&format!("- {{<<: *base, name: \"{nth}\", again: *base}}\n"));
        }
        assert_eq!(check(&text), Ok(()));
        assert_eq!(check("a: &a 1\nb: *a\nc: \"*a\"\n"), Ok(()));
        assert_eq!(check("a: *a\nb: &b [*b]\nc: [*b, "), Ok(()));
    }
}
