//! The queue of the objects whose status may differ from the intended status.

use std::collections::BTreeSet;
use std::ops::Bound;

use crate::object::{Kind, ObjectRef};

/// The objects that wait for a write. Each object is in the queue once, so the queue is never longer than the number of
/// objects.
///
/// Classes, Gateways and ListenerSets take every second turn. There are few of them, and their status counts routes: the
/// count must not wait for the status of a thousand new routes.
#[derive(Debug, Default)]
pub(super) struct Queue {
    parents: Turns,
    others: Turns,
    /// Whether a parent had the last turn.
    was_parent: bool,
}

/// Objects that take turns in their order.
#[derive(Debug, Default)]
struct Turns {
    waiting: BTreeSet<ObjectRef>,
    /// The object of the last turn: the other objects take their turn before it returns.
    last: Option<ObjectRef>,
}

impl Queue {
    /// Returns whether the object was not in the queue yet.
    pub(super) fn insert(&mut self, object: &ObjectRef) -> bool {
        self.turns(object).waiting.insert(object.clone())
    }

    pub(super) fn remove(&mut self, object: &ObjectRef) {
        self.turns(object).waiting.remove(object);
    }

    /// Takes the next object out of the queue.
    pub(super) fn next(&mut self) -> Option<ObjectRef> {
        let next = match self.was_parent {
            true => self.others.next().map(|object| (object, false)),
            false => self.parents.next().map(|object| (object, true)),
        };
        let (object, is_parent) = next
            .or_else(|| self.others.next().map(|object| (object, false)))
            .or_else(|| self.parents.next().map(|object| (object, true)))?;
        self.was_parent = is_parent;
        Some(object)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.parents.waiting.len() + self.others.waiting.len()
    }

    fn turns(&mut self, object: &ObjectRef) -> &mut Turns {
        match object.kind {
            Kind::GatewayClass | Kind::Gateway | Kind::ListenerSet => &mut self.parents,
            _ => &mut self.others,
        }
    }
}

impl Turns {
    fn next(&mut self) -> Option<ObjectRef> {
        let after = self.last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let next =
            self.waiting.range((after, Bound::Unbounded)).next().or_else(|| self.waiting.first()).cloned()?;
        self.waiting.remove(&next);
        self.last = Some(next.clone());
        Some(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: Kind, name: &str) -> ObjectRef {
        ObjectRef { kind, namespace: "default".into(), name: name.into() }
    }

    fn drained(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.next()).map(|object| object.name.to_string()).collect()
    }

    #[test]
    fn gateway_does_not_wait_for_all_routes() {
        let mut queue = Queue::default();
        for name in ["a", "b", "c"] {
            assert!(queue.insert(&object(Kind::HttpRoute, name)));
        }
        assert!(queue.insert(&object(Kind::Gateway, "edge")));
        assert!(!queue.insert(&object(Kind::Gateway, "edge")), "each object is in the queue once");
        assert_eq!(drained(&mut queue), ["edge", "a", "b", "c"]);
    }

    #[test]
    fn routes_do_not_wait_for_all_gateways() {
        let mut queue = Queue::default();
        queue.insert(&object(Kind::HttpRoute, "a"));
        for name in ["edge", "inner", "outer"] {
            queue.insert(&object(Kind::Gateway, name));
        }
        assert_eq!(drained(&mut queue), ["edge", "a", "inner", "outer"]);
    }

    #[test]
    fn object_that_returns_to_the_queue_lets_the_others_pass() {
        let mut queue = Queue::default();
        for name in ["a", "b"] {
            queue.insert(&object(Kind::Ingress, name));
        }
        let first = queue.next().expect("two objects wait");
        queue.insert(&first);
        assert_eq!(drained(&mut queue), ["b", "a"]);
    }
}
