//! The audit trail of a source: which versions of which objects it applied, for a [`Recorder`].
//!
//! A source hands over a version after it has published the configuration with the version. An object that no served object names,
//! or of another class, is handed over once the gateway uses it.
//!
//! | module | content |
//! |---|---|
//! | [`content`] | the fields of an object that users write |
//! | [`secrets`] | fingerprints in place of secrets |
//! | [`owner`] | the owner of a file |
//! | [`admission`] | the users who write objects, as the API server tells the webhook |

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::SystemTime;

use sluicegate_model::audit::{Actor, Observed, Place, Report, Subject, Version};

use crate::object::{Kind, ObjectRef};
use crate::problem::Origin;
use crate::store::Store;

pub(crate) mod admission;
pub(crate) mod content;
mod owner;
mod secrets;
#[cfg(test)]
mod tests;

/// Takes the reports of a source. Must not block.
pub type Recorder = Arc<dyn Fn(Report) + Send + Sync>;

impl Kind {
    /// Whether the audit trail has the objects of the kind. Other objects are written by programs, or decide nothing by themselves.
    pub(crate) fn is_recorded(self) -> bool {
        !matches!(self, Self::Namespace | Self::EndpointSlice)
    }

    /// The kinds in the audit trail.
    pub fn recorded() -> impl Iterator<Item = Self> {
        Self::all().filter(|kind| kind.is_recorded())
    }
}

impl ObjectRef {
    fn subject(&self) -> Subject {
        Subject {
            kind: self.kind.as_str().into(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// The newest version of an object, as a store has it.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) version: Arc<Version>,
    pub(crate) origin: Origin,
    /// The first field with an error, if the version is not in service.
    pub(crate) fault: Option<Box<str>>,
}

/// The objects whose newest version changed, each with the version before the changes.
pub(crate) type Changed = BTreeMap<ObjectRef, Option<Recorded>>;

/// Sends the versions of the objects of a source to the audit trail.
pub(crate) struct Trail {
    recorder: Recorder,
    has_started: bool,
    /// The objects of the reports.
    reported: HashSet<ObjectRef>,
    /// The other objects, which the gateway did not use so far.
    unused: HashSet<ObjectRef>,
}

impl Trail {
    pub(crate) fn new(recorder: Recorder) -> Self {
        Self { recorder, has_started: false, reported: HashSet::new(), unused: HashSet::new() }
    }

    /// Hands over the changes of a store, which the source has applied. The first call hands over all objects. `is_used` tells
    /// whether an object concerns the gateway. `may_differ` tells whether its result may differ from the last call.
    pub(crate) fn follow(
        &mut self,
        store: &mut Store,
        is_used: impl Fn(&ObjectRef) -> bool,
        may_differ: bool,
    ) {
        let changed = store.take_changed();
        let time = now();
        if !self.has_started {
            self.has_started = true;
            let mut all = Vec::new();
            for object in store.recorded_objects() {
                let Some(recorded) = store.recorded(&object) else { continue };
                if concerns(&object, &recorded, &is_used) {
                    all.push(observed(&object, &recorded, true, time));
                    self.reported.insert(object);
                } else {
                    self.unused.insert(object);
                }
            }
            (self.recorder)(Report::Start(all));
            return;
        }
        for (object, before) in changed {
            self.changed(store, &object, before, &is_used, time);
        }
        if may_differ {
            let now_used: Vec<_> = self.unused.iter().filter(|object| is_used(object)).cloned().collect();
            for object in now_used {
                self.changed(store, &object, None, &is_used, time);
            }
        }
    }

    fn changed(
        &mut self,
        store: &Store,
        object: &ObjectRef,
        before: Option<Recorded>,
        is_used: impl Fn(&ObjectRef) -> bool,
        time: i64,
    ) {
        match (store.recorded(object), before) {
            (Some(recorded), _) => {
                // An error may hide whom the version of a used object concerns.
                let is_hidden = recorded.fault.is_some() && self.reported.contains(object);
                let is_used = is_hidden || concerns(object, &recorded, is_used);
                let was_used = if is_used {
                    self.unused.remove(object);
                    !self.reported.insert(object.clone())
                } else {
                    self.unused.insert(object.clone());
                    self.reported.remove(object)
                };
                // The last report of an object tells why the gateway uses it no more.
                if is_used || was_used {
                    (self.recorder)(Report::Change(observed(object, &recorded, is_used, time)));
                }
            }
            (None, before) => {
                self.unused.remove(object);
                if self.reported.remove(object) {
                    (self.recorder)(Report::Change(gone(object, before.as_ref(), time)));
                }
            }
        }
    }
}

/// Whether an object concerns the gateway. Of Services, only annotations are recorded.
fn concerns(object: &ObjectRef, recorded: &Recorded, is_used: impl Fn(&ObjectRef) -> bool) -> bool {
    is_used(object) && (object.kind != Kind::Service || *recorded.version.content != *Version::EMPTY)
}

fn observed(object: &ObjectRef, recorded: &Recorded, is_used: bool, time: i64) -> Observed {
    let Recorded { version, origin, fault } = recorded;
    let actor = match (&origin.file, &version.manager) {
        (Some(file), _) => owner::of(file),
        (None, Some(manager)) => Actor::Manager(manager.clone()),
        (None, None) => Actor::Unknown,
    };
    Observed {
        subject: object.subject(),
        uid: version.uid.clone(),
        version: Some(version.clone()),
        time,
        actor,
        place: place(origin, origin.line),
        fault: fault.clone(),
        is_used,
    }
}

/// The end of an object. The owner of a manifest that still exists has removed the object from the manifest.
fn gone(object: &ObjectRef, before: Option<&Recorded>, time: i64) -> Observed {
    let file = before.and_then(|before| before.origin.file.as_ref());
    Observed {
        subject: object.subject(),
        version: None,
        uid: before.map(|before| before.version.uid.clone()).unwrap_or_default(),
        time,
        actor: file.map(|file| owner::of(file)).unwrap_or_default(),
        place: before.and_then(|before| place(&before.origin, 0)),
        fault: None,
        is_used: true,
    }
}

fn place(origin: &Origin, line: u32) -> Option<Place> {
    let file = origin.file.as_ref()?.display().to_string().into();
    Some(Place { file, line })
}

/// The time in milliseconds since 1970.
fn now() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
