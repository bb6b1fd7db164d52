//! A radix tree of path patterns: one walk down a path finds all patterns that match the path.

use std::collections::VecDeque;

use sluicegate_model::{PathPattern, PathTemplate};

use super::conditions::Conditions;
use crate::request::HeadView;

/// Marks a missing node or entry.
const NONE: u32 = u32::MAX;

/// The target and the conditions of a match.
#[derive(Debug)]
pub(super) struct Entry {
    /// Of the entries that match a request, the entry with the lowest order decides. Below [`Entry::LAST`].
    pub(super) order: u32,
    /// The number of the target.
    pub(super) target: u32,
    /// The conditions on the request other than the path.
    pub(super) conditions: Option<Box<Conditions>>,
}

impl Entry {
    /// Higher than the order of any entry.
    pub(super) const LAST: u32 = NONE;

    pub(super) fn takes(&self, request: HeadView<'_>) -> bool {
        self.conditions.as_ref().is_none_or(|conditions| conditions.are_met_by(request))
    }
}

/// Path patterns, each with an entry.
///
/// A walk reads two pieces of memory for each node: the node, and its bytes. Children of one node are side by side.
#[derive(Debug)]
pub(super) struct PathTree {
    nodes: Vec<Node>,
    /// For each node: its label, and the first byte of each child's label.
    bytes: Vec<u8>,
    /// The entries of each node, side by side and in order.
    entries: Vec<(Kind, Entry)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Where the label begins in the bytes. The label is the text between the parent and this node.
    label: u32,
    label_len: u32,
    /// The first child, and the number of children.
    children: (u32, u32),
    /// The index of the first entry of the patterns that end here, and the number of these entries.
    entries: (u32, u32),
    /// The length of the patterns that end here.
    depth: u32,
    /// The nearest ancestor that has entries.
    above: u32,
    /// The lowest order of the entries here and in the ancestors.
    lowest: u32,
}

/// A node of a tree that grows.
#[derive(Debug, Default)]
struct Sprout {
    label: Box<[u8]>,
    /// The first byte of each child's label, parallel to `children`.
    firsts: Vec<u8>,
    children: Vec<u32>,
}

/// A pattern, or a path with variables: the text at the start of each path that matches, and the condition on the rest.
pub(super) struct PathKey<'p> {
    prefix: &'p str,
    kind: Kind,
}

impl<'p> From<&'p PathPattern> for PathKey<'p> {
    fn from(pattern: &'p PathPattern) -> Self {
        let kind = match pattern {
            PathPattern::Exact(_) => Kind::Exact,
            PathPattern::Prefix(_) => Kind::Prefix,
            PathPattern::Starts(_) => Kind::Starts,
        };
        Self { prefix: pattern.as_str(), kind }
    }
}

impl<'p> From<&'p PathTemplate> for PathKey<'p> {
    fn from(template: &'p PathTemplate) -> Self {
        Self { prefix: template.prefix(), kind: Kind::Template(Box::new(template.clone())) }
    }
}

/// The condition on the rest of a path.
#[derive(Debug)]
enum Kind {
    Exact,
    Prefix,
    Starts,
    Template(Box<PathTemplate>),
}

impl Kind {
    /// The order among entries with the same order.
    fn rank(&self) -> u8 {
        match self {
            Self::Exact => 0,
            Self::Prefix => 1,
            Self::Starts => 2,
            Self::Template(_) => 3,
        }
    }

    /// Whether a pattern of length `depth` matches a path with `rest` behind the pattern.
    fn takes(&self, rest: &[u8], depth: u32) -> bool {
        match self {
            Self::Exact => rest.is_empty(),
            Self::Prefix => depth <= 1 || rest.first().is_none_or(|byte| *byte == b'/'),
            Self::Starts => true,
            Self::Template(template) => template.takes(rest),
        }
    }
}

impl PathTree {
    /// Builds the tree of these patterns. Among entries with the same order, the longest pattern wins, then an exact
    /// pattern, then a prefix by element, then a prefix by character, then the earlier pattern.
    pub(super) fn new(patterns: Vec<(PathKey<'_>, Entry)>) -> Self {
        let mut sprouts = Sprouts(vec![Sprout::default()]);
        // Nodes split and move until all patterns are inserted.
        for (key, _) in &patterns {
            sprouts.node_at(key.prefix.as_bytes());
        }
        let (mut nodes, bytes, places) = sprouts.grown();
        let placed = patterns
            .into_iter()
            .map(|(key, entry)| (places[sprouts.node_at(key.prefix.as_bytes())] as usize, key.kind, entry));
        let mut placed: Vec<_> = placed.collect();
        placed.sort_by_key(|(node, kind, entry)| (*node, entry.order, kind.rank()));
        let mut entries = Vec::with_capacity(placed.len());
        for (node, kind, entry) in placed {
            let place = &mut nodes[node].entries;
            if place.1 == 0 {
                place.0 = number(entries.len());
            }
            place.1 += 1;
            entries.push((kind, entry));
        }
        let mut tree = Self { nodes, bytes, entries };
        tree.link();
        tree
    }

    /// The matching entry with the lowest order; `best` if no matching entry here has a lower order.
    pub(super) fn find<'t>(
        &'t self,
        path: &[u8],
        request: HeadView<'_>,
        mut best: Option<&'t Entry>,
    ) -> Option<&'t Entry> {
        let mut at = self.lowest_node(path);
        while let Some(node) = self.nodes.get(at as usize) {
            let limit = best.map_or(NONE, |best| best.order);
            if node.lowest >= limit {
                break;
            }
            let rest = &path[node.depth as usize..];
            let found = self
                .entries(node)
                .iter()
                .take_while(|(_, entry)| entry.order < limit)
                .find(|(kind, entry)| kind.takes(rest, node.depth) && entry.takes(request));
            best = found.map(|(_, entry)| entry).or(best);
            at = node.above;
        }
        best
    }

    /// The deepest node with entries whose pattern is a prefix of the path.
    fn lowest_node(&self, path: &[u8]) -> u32 {
        let (mut node, mut rest) = (&self.nodes[0], path);
        let mut deepest = if node.entries.1 > 0 { 0 } else { NONE };
        while let Some(at) = rest.first().and_then(|first| self.child(node, *first)) {
            node = &self.nodes[at as usize];
            let Some(below) = rest.strip_prefix(self.label(node)) else { break };
            rest = below;
            if node.entries.1 > 0 {
                deepest = at;
            }
        }
        deepest
    }

    fn label(&self, node: &Node) -> &[u8] {
        &self.bytes[node.label as usize..][..node.label_len as usize]
    }

    fn child(&self, node: &Node, first: u8) -> Option<u32> {
        let (child, count) = node.children;
        let firsts = &self.bytes[(node.label + node.label_len) as usize..][..count as usize];
        Some(child + number(memchr::memchr(first, firsts)?))
    }

    fn entries(&self, node: &Node) -> &[(Kind, Entry)] {
        let (first, count) = node.entries;
        &self.entries[first as usize..(first + count) as usize]
    }

    /// Sets the depth and the nearest ancestor with entries of each node.
    fn link(&mut self) {
        let mut open = vec![(0_u32, NONE, u32::MAX, 0_u32)];
        while let Some((at, above, lowest_above, depth)) = open.pop() {
            let node = &self.nodes[at as usize];
            let depth = depth + node.label_len;
            // The entries of a node are sorted.
            let first = self.entries(node).first().map(|(_, entry)| entry.order);
            let lowest = first.unwrap_or(u32::MAX).min(lowest_above);
            let below = if first.is_some() { at } else { above };
            let (child, count) = node.children;
            open.extend((child..child + count).map(|child| (child, below, lowest, depth)));
            let node = &mut self.nodes[at as usize];
            (node.depth, node.above, node.lowest) = (depth, above, lowest);
        }
    }
}

/// The nodes of a tree that grows; the first node is the root.
struct Sprouts(Vec<Sprout>);

impl Sprouts {
    /// The nodes with their bytes, and the place of each node.
    fn grown(&self) -> (Vec<Node>, Vec<u8>, Vec<u32>) {
        let mut nodes = vec![Node::default()];
        let (mut bytes, mut places) = (Vec::new(), vec![0; self.0.len()]);
        let mut open = VecDeque::from([0_usize]);
        while let Some(at) = open.pop_front() {
            let sprout = &self.0[at];
            let (label, child) = (number(bytes.len()), number(nodes.len()));
            bytes.extend_from_slice(&sprout.label);
            bytes.extend_from_slice(&sprout.firsts);
            nodes[places[at] as usize] = Node {
                label,
                label_len: number(sprout.label.len()),
                children: (child, number(sprout.children.len())),
                ..Node::default()
            };
            for child in &sprout.children {
                places[*child as usize] = number(nodes.len());
                nodes.push(Node::default());
                open.push_back(*child as usize);
            }
        }
        (nodes, bytes, places)
    }

    /// The node for exactly `path`; created if missing.
    fn node_at(&mut self, path: &[u8]) -> usize {
        let mut at = 0;
        let mut rest = path;
        while let Some(&first) = rest.first() {
            let Some(child) = self.0[at].child(first) else {
                return self.add_child(at, Sprout { label: rest.into(), ..Sprout::default() });
            };
            let child = child as usize;
            let common = common_prefix(&self.0[child].label, rest);
            if common < self.0[child].label.len() {
                self.split(child, common);
            }
            at = child;
            rest = &rest[common..];
        }
        at
    }

    /// Splits the label of a node after `length` bytes: the node keeps the first part, and a new child receives the rest.
    fn split(&mut self, at: usize, length: usize) {
        let node = std::mem::take(&mut self.0[at]);
        let (head, tail) = node.label.split_at(length);
        self.0[at].label = head.into();
        let lower = Sprout { label: tail.into(), ..node };
        self.add_child(at, lower);
    }

    fn add_child(&mut self, parent: usize, node: Sprout) -> usize {
        let index = self.0.len();
        self.0[parent].firsts.push(node.label[0]);
        #[expect(clippy::cast_possible_truncation, reason = "fewer nodes than bytes of all patterns")]
        self.0[parent].children.push(index as u32);
        self.0.push(node);
        index
    }
}

impl Sprout {
    fn child(&self, first: u8) -> Option<u32> {
        let at = memchr::memchr(first, &self.firsts)?;
        self.children.get(at).copied()
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sluicegate_http1::RequestHead;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        match text.split_once(' ').expect("KIND PATH") {
            ("exact", path) => PathPattern::Exact(path.into()),
            ("prefix", path) => PathPattern::Prefix(path.into()),
            (_, path) => PathPattern::Starts(path.into()),
        }
    }

    /// A tree of patterns in the order of an Ingress: the longest first, then exact, prefix by element, prefix by
    /// character.
    fn tree(patterns: &[PathPattern]) -> PathTree {
        let rank = |pattern: &PathPattern| (std::cmp::Reverse(pattern.as_str().len()), pattern.rank());
        let mut ranks: Vec<_> = patterns.iter().map(rank).collect();
        ranks.sort();
        let entry = |(target, pattern)| {
            let order = number(ranks.partition_point(|other| *other < rank(pattern)));
            (PathKey::from(pattern), Entry { order, target, conditions: None })
        };
        PathTree::new((0..).zip(patterns).map(entry).collect())
    }

    fn find(tree: &PathTree, path: &str) -> Option<u32> {
        let head = RequestHead::default();
        let found = tree.find(path.as_bytes(), HeadView { head: &head, buf: &[] }, None);
        found.map(|entry| entry.target)
    }

    #[test]
    fn paths_match_as_in_the_examples_of_kubernetes_ingress() {
        // (pattern, path, whether it matches): the table of the Ingress documentation, and nginx' plain
        // location.
        let cases = [
            ("prefix /", "/any/path", true),
            ("exact /foo", "/foo", true),
            ("exact /foo", "/bar", false),
            ("exact /foo", "/foo/", false),
            ("exact /foo/", "/foo", false),
            ("prefix /foo", "/foo", true),
            ("prefix /foo", "/foo/", true),
            ("prefix /aaa/bb", "/aaa/bbb", false),
            ("prefix /aaa/bbb", "/aaa/bbb", true),
            ("prefix /aaa/bbb", "/aaa/bbb/ccc", true),
            ("prefix /aaa/bbb", "/aaa/bbbxyz", false),
            ("starts /foo", "/foobar", true),
            ("starts /foo", "/fo", false),
            ("starts /", "/x", true),
        ];
        for (text, path, matches) in cases {
            assert_eq!(find(&tree(&[pattern(text)]), path).is_some(), matches, "{text} {path}");
        }
    }

    #[test]
    fn longest_path_is_selected_and_exact_has_precedence_over_prefix() {
        let tree = tree(&[
            pattern("prefix /"),
            pattern("prefix /api"),
            pattern("exact /api"),
            pattern("starts /api"),
            pattern("prefix /api/v1"),
            pattern("starts /ap"),
        ]);
        let cases =
            [("/", 0), ("/x", 0), ("/api", 2), ("/api/", 1), ("/apis", 3), ("/api/v1/x", 4), ("/apx", 5)];
        for (path, expected) in cases {
            assert_eq!(find(&tree, path), Some(expected), "{path}");
        }
    }

    #[test]
    fn path_with_variables_matches_beside_patterns_with_the_same_start() {
        let templates =
            ["/pets/{id}", "/pets/{id}/toys", "/pets/{id}.json"].map(|text| PathTemplate::new(text).unwrap());
        let patterns = [pattern("exact /pets/mine"), pattern("prefix /pets")];
        let keys = [PathKey::from(&templates[0]), PathKey::from(&templates[1]), PathKey::from(&templates[2])];
        let keys = keys.into_iter().chain(patterns.iter().map(PathKey::from));
        let entry = |(target, order): (u32, u32)| Entry { order, target, conditions: None };
        let tree =
            PathTree::new(keys.zip((0..).zip([2, 2, 1, 0, 3])).map(|(key, of)| (key, entry(of))).collect());
        for (path, expected) in [
            ("/pets/7", Some(0)),
            ("/pets/7.json", Some(2)),
            ("/pets/7/toys", Some(1)),
            ("/pets/mine", Some(3)),
            ("/pets/7/", Some(4)),
            ("/pets", Some(4)),
            ("/pet", None),
        ] {
            assert_eq!(find(&tree, path), expected, "{path}");
        }
    }

    /// The expected result of the tree, found by a linear scan.
    fn scan(patterns: &[PathPattern], path: &str) -> Option<u32> {
        let takes = |pattern: &PathPattern| match pattern {
            PathPattern::Exact(exact) => path == &**exact,
            PathPattern::Prefix(prefix) => {
                &**prefix == "/"
                    || path
                        .strip_prefix(&**prefix)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            PathPattern::Starts(prefix) => path.starts_with(&**prefix),
        };
        let rank = |pattern: &PathPattern| match pattern {
            PathPattern::Exact(_) => 2,
            PathPattern::Prefix(_) => 1,
            PathPattern::Starts(_) => 0,
        };
        (0..)
            .zip(patterns)
            .filter(|(_, pattern)| takes(pattern))
            .max_by_key(|(index, pattern)| (pattern.as_str().len(), rank(pattern), std::cmp::Reverse(*index)))
            .map(|(index, _)| index)
    }

    fn any_pattern() -> impl Strategy<Value = PathPattern> {
        (0..3, "(/[ab]{1,2}){1,3}|/").prop_map(|(kind, path)| match kind {
            0 => PathPattern::Exact(path.into()),
            1 => PathPattern::Prefix(path.into()),
            _ => PathPattern::Starts(path.into()),
        })
    }

    proptest! {
        #[test]
        fn path_tree_selects_the_same_route_as_a_linear_scan(
            patterns in prop::collection::vec(any_pattern(), 0..12),
            path in "(/[ab]{0,3}){1,4}",
        ) {
            prop_assert_eq!(find(&tree(&patterns), &path), scan(&patterns, &path));
        }

        #[test]
        fn match_with_the_lowest_order_is_selected_regardless_of_pattern_length(
            patterns in prop::collection::vec((any_pattern(), 0..6_u32), 0..12),
            path in "(/[ab]{0,3}){1,4}",
        ) {
            let entry = |(target, (pattern, order))| (PathKey::from(pattern), Entry { order, target, conditions: None });
            let found = find(&PathTree::new((0..).zip(&patterns).map(|(target, (p, o))| entry((target, (p, *o)))).collect()), &path);
            let takes = |pattern: &PathPattern| scan(std::slice::from_ref(pattern), &path).is_some();
            let expected = (0..).zip(&patterns).filter(|(_, (pattern, _))| takes(pattern));
            let expected = expected.min_by_key(|(target, (_, order))| (*order, *target));
            let orders = |target: Option<u32>| target.map(|target| patterns[target as usize].1);
            prop_assert_eq!(orders(found), expected.map(|(_, (_, order))| *order));
        }
    }
}
