//! A radix tree of path patterns: one walk down the path finds the longest that matches.

use sluicegate_model::PathPattern;

/// Patterns with the number of what each leads to.
#[derive(Debug)]
pub(crate) struct PathTree {
    nodes: Vec<Node>,
}

#[derive(Debug, Default)]
struct Node {
    /// The bytes between the parent and this node.
    label: Box<[u8]>,
    /// The first byte of each child's label, beside `children`.
    firsts: Vec<u8>,
    children: Vec<u32>,
    /// What the pattern that ends here leads to, by [`Kind`].
    targets: [Option<u32>; 3],
}

#[derive(Clone, Copy)]
enum Kind {
    Exact,
    Prefix,
    Starts,
}

impl PathTree {
    pub(crate) fn new() -> Self {
        Self { nodes: vec![Node::default()] }
    }

    /// Adds a pattern. One that is there already keeps its first target.
    pub(crate) fn insert(&mut self, pattern: &PathPattern, target: u32) {
        let kind = match pattern {
            PathPattern::Exact(_) => Kind::Exact,
            PathPattern::Prefix(_) => Kind::Prefix,
            PathPattern::Starts(_) => Kind::Starts,
        };
        let node = self.node_at(pattern.as_str().as_bytes());
        self.nodes[node].targets[kind as usize].get_or_insert(target);
    }

    /// The target of the longest pattern that takes `path`; of equally long ones an exact one wins, then an
    /// element-wise prefix.
    pub(crate) fn find(&self, path: &[u8]) -> Option<u32> {
        let mut best = None;
        let mut node = &self.nodes[0];
        let mut rest = path;
        let mut depth = 0;
        loop {
            if let Some(found) = node.takes(rest, depth) {
                best = Some(found);
            }
            let Some(child) = rest.first().and_then(|first| node.child(*first)) else { return best };
            node = &self.nodes[child as usize];
            let Some(below) = rest.strip_prefix(&*node.label) else { return best };
            rest = below;
            depth += node.label.len();
        }
    }

    /// The node that stands for exactly `path`, made if it is missing.
    fn node_at(&mut self, path: &[u8]) -> usize {
        let mut at = 0;
        let mut rest = path;
        while let Some(&first) = rest.first() {
            let Some(child) = self.nodes[at].child(first) else {
                return self.add_child(at, Node { label: rest.into(), ..Node::default() });
            };
            let child = child as usize;
            let common = common_prefix(&self.nodes[child].label, rest);
            if common < self.nodes[child].label.len() {
                self.split(child, common);
            }
            at = child;
            rest = &rest[common..];
        }
        at
    }

    /// Cuts a node's label after `length` bytes: the node keeps the first part, and a new child takes the rest.
    fn split(&mut self, at: usize, length: usize) {
        let node = std::mem::take(&mut self.nodes[at]);
        let (head, tail) = node.label.split_at(length);
        self.nodes[at].label = head.into();
        let lower = Node { label: tail.into(), ..node };
        self.add_child(at, lower);
    }

    fn add_child(&mut self, parent: usize, node: Node) -> usize {
        let index = self.nodes.len();
        self.nodes[parent].firsts.push(node.label[0]);
        #[expect(clippy::cast_possible_truncation, reason = "fewer nodes than bytes of all patterns")]
        self.nodes[parent].children.push(index as u32);
        self.nodes.push(node);
        index
    }
}

impl Node {
    fn child(&self, first: u8) -> Option<u32> {
        let at = memchr::memchr(first, &self.firsts)?;
        self.children.get(at).copied()
    }

    /// What the pattern that ends at this node leads to, if it takes a path with `rest` behind it.
    fn takes(&self, rest: &[u8], depth: usize) -> Option<u32> {
        let [exact, prefix, starts] = self.targets;
        let exact = exact.filter(|_| rest.is_empty());
        let at_boundary = || depth <= 1 || rest.first().is_none_or(|byte| *byte == b'/');
        exact.or_else(|| prefix.filter(|_| at_boundary())).or(starts)
    }
}

fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pattern(text: &str) -> PathPattern {
        match text.split_once(' ').expect("KIND PATH") {
            ("exact", path) => PathPattern::Exact(path.into()),
            ("prefix", path) => PathPattern::Prefix(path.into()),
            (_, path) => PathPattern::Starts(path.into()),
        }
    }

    fn tree(patterns: &[PathPattern]) -> PathTree {
        let mut tree = PathTree::new();
        for (index, pattern) in (0..).zip(patterns) {
            tree.insert(pattern, index);
        }
        tree
    }

    #[test]
    fn kubernetes_own_examples() {
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
            assert_eq!(tree(&[pattern(text)]).find(path.as_bytes()).is_some(), matches, "{text} {path}");
        }
    }

    #[test]
    fn the_longest_wins_then_exact_then_prefix() {
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
            assert_eq!(tree.find(path.as_bytes()), Some(expected), "{path}");
        }
    }

    /// What the tree stands for, without a tree.
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
        fn the_tree_agrees_with_a_scan(
            patterns in prop::collection::vec(any_pattern(), 0..12),
            path in "(/[ab]{0,3}){1,4}",
        ) {
            prop_assert_eq!(tree(&patterns).find(path.as_bytes()), scan(&patterns, &path));
        }
    }
}
