//! The objects that a source has read, by name, each in the version in service.
//!
//! An invalid object or file removes nothing that is in service:
//!
//! - An object with an error does not replace its last valid version, unless its parts have a status each (a Gateway of
//!   a cluster). Without such a version, as after a start, the valid parts of the object are served.
//! - A document that cannot be read removes no object: the earlier objects of its file stay. If it cannot be read from
//!   the start, and may hold a SecurityPolicy, the routes that the policy may guard are closed until the document can
//!   be read. A file or a folder that cannot be opened may hold a SecurityPolicy of any namespace.
//! - An empty file removes nothing either; an editor or `>` leaves an empty file for a moment. Deleting the file
//!   removes its objects.
//!
//! If two files hold an object, the first file in the order of paths has precedence. Objects of a cluster come one by
//! one, and differ by their names alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use foldhash::HashMap;
use sluicegate_model::audit::Version;

use crate::audit::{Changed, Recorded};
use crate::manifest::{Document, Guarded, Manifest, ParsedObject, Syntax};
use crate::object::backend_tls::BackendTlsPolicy;
use crate::object::grant::ReferenceGrant;
use crate::object::kind::{Change, Status};
use crate::object::namespace::Namespace;
use crate::object::secret::{ConfigMap, Data, Secret};
use crate::object::service::Service;
use crate::object::slice::EndpointSlice;
use crate::object::trust_bundle::ClusterTrustBundle;
use crate::object::x_backend::XBackend;
use crate::object::{Checked, Kind, Object, ObjectRef};
use crate::problem::{Finding, Findings, Origin, Problem, Severity, Written};

mod closed;
#[cfg(test)]
mod tests;

use closed::told_of_closed;

/// The objects of a source.
#[derive(Debug, Default)]
pub struct Store {
    slots: Slots,
    files: BTreeMap<Arc<Path>, FileEntry>,
    /// The slices of each Service.
    slices: Arc<HashMap<ServiceRef, BTreeSet<ObjectRef>>>,
    /// The objects with problems to report.
    troubled: Arc<BTreeSet<ObjectRef>>,
    /// The kinds that the cluster does not have.
    lacking: BTreeSet<Kind>,
    /// Whether changes are recorded for the audit trail.
    is_recording: bool,
    /// The changes that the audit trail has not taken yet.
    changed: Changed,
    /// The directory of files that the gateway itself writes. Every other file has precedence over these files.
    written_by_gateway: Option<Arc<Path>>,
}

/// A Service by namespace and name.
pub(crate) type ServiceRef = (Arc<str>, Arc<str>);

/// The parts of the configuration that a change of the store may affect.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    /// Services whose endpoints may have changed.
    pub(crate) services: BTreeSet<ServiceRef>,
    /// Services that changed, are new or are gone. Services that no route names have no effect.
    pub(crate) changed_services: BTreeSet<ServiceRef>,
    /// Ingresses that changed, are new or are gone, each as it was in service before.
    pub(crate) ingresses: BTreeMap<ObjectRef, Option<Object>>,
    /// Secrets that changed, are new or are gone.
    pub(crate) secrets: BTreeSet<ObjectRef>,
    /// Whether anything else may have changed.
    pub(crate) routing: bool,
    /// Whether problems may have come or gone.
    pub(crate) problems: bool,
    /// Whether the lines of objects may have changed in their files, which problems name.
    pub(crate) moved: bool,
}

impl Touched {
    /// Whether routes may have changed, beside the effects of Services.
    pub(crate) fn has_routing(&self) -> bool {
        self.routing || !self.ingresses.is_empty() || !self.secrets.is_empty()
    }

    /// Takes everything that may require a translation.
    pub(crate) fn take_routing(&mut self) -> Self {
        Self {
            changed_services: std::mem::take(&mut self.changed_services),
            ingresses: std::mem::take(&mut self.ingresses),
            secrets: std::mem::take(&mut self.secrets),
            routing: std::mem::take(&mut self.routing),
            ..Self::default()
        }
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.services.extend(other.services);
        self.changed_services.extend(other.changed_services);
        for (object, before) in other.ingresses {
            self.ingresses.entry(object).or_insert(before);
        }
        self.secrets.extend(other.secrets);
        self.routing |= other.routing;
        self.problems |= other.problems;
        self.moved |= other.moved;
    }
}

/// The objects of each kind, which a translation looks up by the ten thousand.
#[derive(Clone, Debug, Default)]
struct Slots([Arc<HashMap<ObjectRef, Slot>>; Kind::COUNT]);

impl Slots {
    fn of(&self, kind: Kind) -> &HashMap<ObjectRef, Slot> {
        &self.0[kind as usize]
    }

    fn get(&self, object: &ObjectRef) -> Option<&Slot> {
        self.of(object.kind).get(object)
    }

    fn get_mut(&mut self, object: &ObjectRef) -> Option<&mut Slot> {
        self.of_mut(object.kind).get_mut(object)
    }

    fn of_mut(&mut self, kind: Kind) -> &mut HashMap<ObjectRef, Slot> {
        Arc::make_mut(&mut self.0[kind as usize])
    }

    fn get_or_default(&mut self, object: &ObjectRef) -> &mut Slot {
        self.of_mut(object.kind).entry(object.clone()).or_default()
    }

    fn remove(&mut self, object: &ObjectRef) {
        self.of_mut(object.kind).remove(object);
    }
}

#[derive(Debug, Default)]
struct FileEntry {
    manifest: Manifest,
    /// The objects of which this file holds, or held, a readable version.
    objects: BTreeSet<ObjectRef>,
    faults: Vec<Problem>,
    /// The routes that are closed because an unreadable policy may guard them.
    closed: Vec<Guarded>,
    /// Whether the file had a version in which every policy named its targets.
    was_told: bool,
    /// Whether it is a file or a folder that could never be opened.
    is_unopened: bool,
    /// Whether it is a file of Kong.
    is_kong: bool,
}

/// One object, in each file that holds it, in the order of their paths.
#[derive(Clone, Debug, Default)]
struct Slot {
    candidates: Vec<Candidate>,
}

#[derive(Clone, Debug)]
struct Candidate {
    origin: Origin,
    /// The version in service.
    form: Option<Object>,
    /// The findings of the newest version.
    findings: Vec<Finding>,
    /// Whether the newest version has errors, so that an older version is in service.
    is_kept: bool,
    /// The newest version, if an older version is in service.
    newest: Option<Object>,
    /// The newest version for the audit trail, valid or not.
    version: Option<Arc<Version>>,
}

impl Slot {
    /// The candidate in service.
    fn winner(&self) -> Option<&Candidate> {
        self.candidates.iter().find(|candidate| candidate.form.is_some())
    }

    /// The newest version for the audit trail: of the candidate in service, or else of the first.
    fn recorded(&self) -> Option<Recorded> {
        let candidate = self.winner().or(self.candidates.first())?;
        let version = candidate.version.clone()?;
        let is_in_service = candidate.form.is_some() && !candidate.is_kept;
        let errors = candidate.findings.iter().filter(|finding| finding.severity == Severity::Error);
        let fault = errors.map(|error| error.field.as_str().into()).next().filter(|_| !is_in_service);
        Some(Recorded { version, origin: candidate.origin.clone(), fault })
    }

    fn form(&self) -> Option<&Object> {
        self.winner().and_then(|candidate| candidate.form.as_ref())
    }
}

impl Store {
    /// A store that records changes for the audit trail.
    pub(crate) fn recording() -> Self {
        Self { is_recording: true, ..Self::default() }
    }

    /// Gives every other file precedence over the files in this directory.
    pub(crate) fn set_written_by_gateway(&mut self, dir: &Arc<Path>) {
        self.written_by_gateway = Some(dir.clone());
    }

    /// Whether the store records changes for the audit trail.
    pub(crate) fn is_recording(&self) -> bool {
        self.is_recording
    }

    /// Whether there are changes for the audit trail.
    pub(crate) fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// The changes for the audit trail since the last call.
    pub(crate) fn take_changed(&mut self) -> Changed {
        std::mem::take(&mut self.changed)
    }

    /// The newest version of an object for the audit trail, valid or not.
    pub(crate) fn recorded(&self, object: &ObjectRef) -> Option<Recorded> {
        self.slots.get(object)?.recorded()
    }

    /// The objects of which the store has versions for the audit trail.
    pub(crate) fn recorded_objects(&self) -> Vec<ObjectRef> {
        let slots = self.slots.0.iter().flat_map(|slots| slots.iter());
        let mut objects: Vec<_> =
            slots.filter(|(_, slot)| slot.recorded().is_some()).map(|(object, _)| object.clone()).collect();
        // A report must not depend on the order of a hash table.
        objects.sort_unstable();
        objects
    }

    /// Takes the text of a manifest, which replaces the earlier content of this file. Files whose name ends in `.json`
    /// (or `.JSON`) are JSON, all others YAML.
    pub fn set_file(&mut self, file: &Path, text: &str) -> Touched {
        let (file, previous) = match self.files.remove_entry(file) {
            Some((file, entry)) => (file, entry),
            None => (file.into(), FileEntry::default()),
        };
        let syntax = Syntax::of(&file);
        let held_something = !previous.objects.is_empty() || !previous.closed.is_empty();
        if text.trim().is_empty() && held_something && !previous.is_unopened {
            return self.keep_emptied(file, previous);
        }
        let manifest = Manifest::parse(text, syntax, &previous.manifest, self.is_recording);
        let mut touched = Touched::default();
        let mut objects = BTreeSet::new();
        let mut faults = Vec::new();
        for (line, document) in &manifest.documents {
            faults.extend(document.faults.iter().map(|fault| Problem {
                severity: fault.severity,
                origin: match fault.line {
                    Some(within) => Origin { line: line + within - 1, ..Origin::file(&file) },
                    None => origin(&file, *line, document, &fault.part),
                },
                object: fault.object.clone(),
                field: fault.field.clone(),
                message: fault.message.clone(),
                cause: None,
            }));
            for parsed in &document.objects {
                let origin = match parsed.line {
                    Some(within) => Origin { line: line + within - 1, ..Origin::file(&file) },
                    None => origin(&file, *line, document, &parsed.part),
                };
                if objects.insert(parsed.object.clone()) {
                    self.set_candidate(parsed, origin, &mut touched);
                } else {
                    let message =
                        "is written twice in this file; the first one is used. Remove one of them".to_owned();
                    let object = Some(parsed.object.clone());
                    faults.push(Problem {
                        severity: Severity::Warning,
                        origin,
                        object,
                        field: String::new(),
                        message,
                        cause: None,
                    });
                }
            }
        }
        let missing: Vec<ObjectRef> = previous.objects.difference(&objects).cloned().collect();
        if manifest.is_complete() {
            for object in missing {
                self.remove_candidate(&object, Some(&file), &mut touched);
            }
        } else if !missing.is_empty() {
            for fault in faults.iter_mut().filter(|fault| fault.severity == Severity::Error) {
                fault.message.push_str(" (the previous content of this file stays in service)");
            }
            objects.extend(missing);
        }
        // A user who corrects a file step by step opens no route on the way.
        let is_told = manifest.unknown_guards().is_empty();
        let was_told = previous.was_told || is_told;
        let closed = if is_told { Vec::new() } else { previous.closed.clone() };
        faults.extend(told_of_closed(&file, &closed, false));
        touched.routing |= closed != previous.closed;
        touched.problems |= faults != previous.faults;
        let is_kong = manifest.documents.iter().any(|(_, document)| document.is_kong);
        let entry = FileEntry { manifest, objects, faults, closed, was_told, is_unopened: false, is_kong };
        self.files.insert(file, entry);
        touched
    }

    fn keep_emptied(&mut self, file: Arc<Path>, previous: FileEntry) -> Touched {
        let mut faults = vec![Problem {
            severity: Severity::Warning,
            origin: Origin::file(&file),
            object: None,
            field: String::new(),
            message: "is empty; its previous content stays in service. Delete the file to remove its objects"
                .to_owned(),
            cause: None,
        }];
        faults.extend(told_of_closed(&file, &previous.closed, false));
        let touched = Touched { problems: faults != previous.faults, ..Touched::default() };
        self.files.insert(file, FileEntry { faults, ..previous });
        touched
    }

    /// Takes the content of a manifest that is no text, as far as it can be read. The earlier content of the file
    /// stays.
    pub(crate) fn set_unreadable(&mut self, file: &Path, text: &str) -> Touched {
        let documents = vec![(1, Arc::new(Document::unreadable(text)))];
        let manifest = Manifest { documents };
        let closed = match self.files.get(file) {
            Some(entry) if !entry.objects.is_empty() || entry.was_told => return Touched::default(),
            Some(entry) if !manifest.unknown_guards().is_empty() => entry.closed.clone(),
            Some(_) | None => Vec::new(),
        };
        let file: Arc<Path> = file.into();
        let faults = told_of_closed(&file, &closed, false).into_iter().collect();
        let touched = Touched { routing: true, problems: true, ..Touched::default() };
        self.files.insert(file, FileEntry { manifest, faults, closed, ..FileEntry::default() });
        touched
    }

    /// Removes the objects of a file that is gone.
    pub fn remove_file(&mut self, file: &Path) -> Touched {
        let mut touched = Touched::default();
        if let Some((file, entry)) = self.files.remove_entry(file) {
            touched.problems = !entry.faults.is_empty();
            touched.routing = !entry.closed.is_empty();
            self.hand_on(&entry.closed);
            for object in entry.objects {
                self.remove_candidate(&object, Some(&file), &mut touched);
            }
        }
        touched
    }

    /// Takes an object of a cluster, which replaces its older version.
    pub(crate) fn set_object(&mut self, parsed: &ParsedObject) -> Touched {
        let mut touched = Touched::default();
        self.set_candidate(parsed, Origin::CLUSTER, &mut touched);
        touched
    }

    /// A store with only these Ingresses, and with the objects of all other kinds; without files. Shares the objects of the other
    /// kinds.
    pub(crate) fn with_ingresses<'o>(&self, ingresses: impl Iterator<Item = &'o ObjectRef>) -> Self {
        let all = self.slots.of(Kind::Ingress);
        let some = ingresses.filter_map(|object| Some((object.clone(), all.get(object)?.clone())));
        let mut slots = self.slots.clone();
        slots.0[Kind::Ingress as usize] = Arc::new(some.collect());
        Self {
            slots,
            slices: self.slices.clone(),
            troubled: self.troubled.clone(),
            lacking: self.lacking.clone(),
            ..Self::default()
        }
    }

    /// Whether there is an object of this kind, valid or not.
    pub(crate) fn has_kind(&self, kind: Kind) -> bool {
        !self.slots.of(kind).is_empty()
    }

    /// Takes the version of an object that is in service in another store, without its problems.
    pub(crate) fn copy(&mut self, object: &ObjectRef, from: &Self) {
        let Some(slot) = from.slots.get(object) else { return };
        let form = slot.form().cloned();
        let parsed = ParsedObject {
            object: object.clone(),
            part: "".into(),
            line: None,
            form,
            findings: Findings::default(),
            version: None,
        };
        self.set_object(&parsed);
    }

    /// Removes an object of a cluster that no watch reports any more, although the object may still exist.
    pub(crate) fn forget_object(&mut self, object: &ObjectRef) -> Touched {
        let touched = self.remove_object(object);
        self.changed.remove(object);
        touched
    }

    /// Removes an object of a cluster.
    pub(crate) fn remove_object(&mut self, object: &ObjectRef) -> Touched {
        let mut touched = Touched::default();
        self.remove_candidate(object, None, &mut touched);
        touched
    }

    /// Whether anything was read from a file.
    pub(crate) fn has_read(&self, file: &Path) -> bool {
        self.files.get(file).is_some_and(|entry| !entry.objects.is_empty() || entry.manifest.is_complete())
    }

    /// Whether all objects of a file are also in other files.
    pub(crate) fn is_redundant(&self, file: &Path) -> bool {
        self.files.get(file).is_some_and(|entry| {
            let mut objects = entry.objects.iter();
            entry.closed.is_empty()
                && objects.all(|object| self.slots.get(object).is_some_and(|slot| slot.candidates.len() > 1))
        })
    }

    /// Whether a file holds EndpointSlices and nothing else.
    pub(crate) fn holds_slices_alone(&self, file: &Path) -> bool {
        self.files.get(file).is_some_and(|entry| {
            let mut objects = entry.objects.iter();
            entry.closed.is_empty() && objects.all(|object| object.kind == Kind::EndpointSlice)
        })
    }

    /// The problems of files and of single objects, in the order of files and lines as far as that is cheap.
    pub fn problems(&self) -> impl Iterator<Item = Problem> {
        let faults = self.files.values().flat_map(|entry| entry.faults.iter().cloned());
        let of_objects = self.troubled.iter().flat_map(|object| self.problems_of(object));
        faults.chain(self.files_of_kong()).chain(of_objects)
    }

    /// An error for each file of Kong beside the first: the plugins of a file do not apply to the routes of another file.
    fn files_of_kong(&self) -> impl Iterator<Item = Problem> {
        self.files.iter().filter(|(_, entry)| entry.is_kong).skip(1).map(|(file, _)| Problem {
            severity: Severity::Error,
            origin: Origin { line: 1, ..Origin::file(file) },
            object: None,
            field: String::new(),
            message: "is a second file of Kong, and plugins apply only to routes of their own file: merge the files, such as with \
                      deck file merge"
                .to_owned(),
            cause: None,
        })
    }

    fn problems_of(&self, object: &ObjectRef) -> Vec<Problem> {
        let Some(slot) = self.slots.get(object) else { return Vec::new() };
        let mut problems = Vec::new();
        for candidate in &slot.candidates {
            problems.extend(candidate.findings.iter().map(|finding| Problem {
                severity: finding.severity,
                origin: candidate.origin.clone(),
                object: Some(object.clone()),
                field: finding.field.clone(),
                message: finding.in_words(candidate.is_kept),
                cause: None,
            }));
            if let Some(winner) = slot.winner()
                && winner.origin.file != candidate.origin.file
            {
                problems.push(Problem {
                    severity: Severity::Warning,
                    origin: candidate.origin.clone(),
                    object: Some(object.clone()),
                    field: String::new(),
                    message: format!(
                        "is also written in {}, and that version is used. Remove one of them",
                        winner.origin.file.as_deref().unwrap_or(Path::new("the cluster")).display()
                    ),
                    cause: None,
                });
            }
        }
        problems
    }

    fn set_candidate(&mut self, parsed: &ParsedObject, origin: Origin, touched: &mut Touched) {
        let recorded = self.recorded_before(&parsed.object);
        let slot = self.slots.get_or_default(&parsed.object);
        let before = slot.form().cloned();
        let is_own =
            |file: &Path| self.written_by_gateway.as_deref().is_some_and(|dir| file.starts_with(dir));
        let rank = |file: &Option<Arc<Path>>| file.as_deref().is_some_and(is_own);
        let place = slot.candidates.binary_search_by(|candidate| {
            let file = &candidate.origin.file;
            rank(file).cmp(&rank(&origin.file)).then_with(|| file.cmp(&origin.file))
        });
        let older = match place {
            Ok(place) => slot.candidates[place].form.take(),
            Err(_) => None,
        };
        touched.moved |= place.is_ok_and(|place| slot.candidates[place].origin.line != origin.line);
        let is_kept = parsed.findings.has_errors()
            && (origin.file.is_some() || !parsed.object.kind.row().has_parts)
            && !parsed.form.as_ref().is_some_and(Object::closes)
            && older.as_ref().is_some_and(|older| !older.is_closed());
        // The status says whether the newest version is in service.
        touched.routing |= parsed.object.kind.row().status == Status::Conditions
            && (is_kept || place.is_ok_and(|place| slot.candidates[place].is_kept));
        let candidate = Candidate {
            origin,
            form: if is_kept { older } else { parsed.form.clone() },
            findings: parsed.findings.0.clone(),
            is_kept,
            newest: parsed.form.clone().filter(|_| is_kept),
            version: parsed.version.clone(),
        };
        match place {
            Ok(place) => slot.candidates[place] = candidate,
            Err(place) => {
                // Most objects have one place.
                slot.candidates.reserve_exact(1);
                slot.candidates.insert(place, candidate);
            }
        }
        self.note(&parsed.object, recorded);
        self.settle(&parsed.object, before, touched);
    }

    fn remove_candidate(&mut self, object: &ObjectRef, file: Option<&Path>, touched: &mut Touched) {
        let recorded = self.recorded_before(object);
        let Some(slot) = self.slots.get_mut(object) else { return };
        let before = slot.form().cloned();
        slot.candidates.retain(|candidate| candidate.origin.file.as_deref() != file);
        self.note(object, recorded);
        self.settle(object, before, touched);
    }

    /// The version of an object for the audit trail before a change.
    fn recorded_before(&self, object: &ObjectRef) -> Option<Recorded> {
        if self.is_recording { self.recorded(object) } else { None }
    }

    /// Notes a change for the audit trail, unless the object has the version that it had `before`.
    fn note(&mut self, object: &ObjectRef, before: Option<Recorded>) {
        if !self.is_recording {
            return;
        }
        let hash =
            |recorded: &Option<Recorded>| recorded.as_ref().map(|recorded| recorded.version.hash.clone());
        if hash(&self.recorded(object)) != hash(&before) {
            self.changed.entry(object.clone()).or_insert(before);
        }
    }

    /// Brings the indices up to date after a change of one object, which was in service as `before`.
    fn settle(&mut self, object: &ObjectRef, before: Option<Object>, touched: &mut Touched) {
        let Some(slot) = self.slots.get(object) else { return };
        let is_troubled = slot.candidates.len() > 1
            || slot.candidates.iter().any(|candidate| !candidate.findings.is_empty());
        let after = slot.form().cloned();
        if slot.candidates.is_empty() {
            self.slots.remove(object);
        }
        let was_troubled = self.troubled.contains(object);
        if is_troubled != was_troubled {
            let troubled = Arc::make_mut(&mut self.troubled);
            if is_troubled {
                troubled.insert(object.clone())
            } else {
                troubled.remove(object)
            };
        }
        touched.problems |= is_troubled || was_troubled;
        // An unreadable Secret exists all the same.
        if object.kind == Kind::Secret && is_troubled != was_troubled {
            touched.secrets.insert(object.clone());
        }
        if before == after {
            return;
        }
        match object.kind.row().change {
            Change::Endpoints => {
                for (form, is_new) in [(before, false), (after, true)] {
                    let slice = form.as_ref().and_then(EndpointSlice::of);
                    let Some(service) = slice.and_then(|slice| slice.service.clone()) else { continue };
                    let service = (object.namespace.clone(), service);
                    self.index_slice(&service, object, is_new);
                    touched.services.insert(service);
                }
            }
            Change::Routing if object.kind == Kind::Ingress => {
                touched.ingresses.entry(object.clone()).or_insert(before);
            }
            Change::Routing if object.kind == Kind::Secret => drop(touched.secrets.insert(object.clone())),
            Change::Routing => touched.routing = true,
            Change::Service => {
                touched.changed_services.insert((object.namespace.clone(), object.name.clone()));
            }
        }
    }

    fn index_slice(&mut self, service: &ServiceRef, slice: &ObjectRef, is_new: bool) {
        let of_services = Arc::make_mut(&mut self.slices);
        if is_new {
            of_services.entry(service.clone()).or_default().insert(slice.clone());
        } else if let Some(slices) = of_services.get_mut(service) {
            slices.remove(slice);
            if slices.is_empty() {
                of_services.remove(service);
            }
        }
    }

    /// The objects in service of one type, in any order.
    pub(crate) fn all<T: Checked>(&self) -> impl Iterator<Item = (&ObjectRef, &T, &Origin)> {
        let slots = T::KINDS.iter().flat_map(|kind| self.slots.of(*kind));
        slots.filter_map(|(object, slot)| {
            let winner = slot.winner()?;
            Some((object, T::of(winner.form.as_ref()?)?, &winner.origin))
        })
    }

    /// An object in service, and the place where it was written.
    fn one<T: Checked>(&self, object: &ObjectRef) -> Option<(&T, &Origin)> {
        let winner = self.slots.get(object)?.winner()?;
        Some((T::of(winner.form.as_ref()?)?, &winner.origin))
    }

    /// Whether an object may name an object of this namespace: of its own namespace, or by a ReferenceGrant.
    pub(crate) fn is_granted(&self, from: &ObjectRef, namespace: &Arc<str>, to: (Kind, &str)) -> bool {
        let mut grants = self.all::<ReferenceGrant>();
        let is_granted = |(object, grant, _): (&ObjectRef, &ReferenceGrant, _)| {
            object.namespace == *namespace && grant.allows(from.kind, &from.namespace, to)
        };
        from.namespace == *namespace || grants.any(is_granted)
    }

    pub(crate) fn namespace(&self, name: &Arc<str>) -> Option<&Namespace> {
        let object = ObjectRef { kind: Kind::Namespace, namespace: "".into(), name: name.clone() };
        self.one(&object).map(|(namespace, _)| namespace)
    }

    pub(crate) fn service(&self, namespace: &Arc<str>, name: &Arc<str>) -> Option<(&Service, &Origin)> {
        self.one(&ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: name.clone() })
    }

    pub(crate) fn backend_tls_policy(&self, object: &ObjectRef) -> Option<&BackendTlsPolicy> {
        self.one(object).map(|(policy, _)| policy)
    }

    /// An XBackend, and the place where it was written.
    pub(crate) fn x_backend(&self, object: &ObjectRef) -> Option<(&XBackend, &Origin)> {
        self.one(object)
    }

    pub(crate) fn secret(&self, object: &ObjectRef) -> Option<&Secret> {
        self.one(object).map(|(secret, _)| secret)
    }

    /// The content of a Secret or a ConfigMap.
    pub(crate) fn data(&self, object: &ObjectRef) -> Option<&Data> {
        match self.slots.get(object)?.form()? {
            Object::Secret(secret) => Some(&secret.data),
            Object::ConfigMap(map) => Some(&map.data),
            _ => None,
        }
    }

    pub(crate) fn trust_bundle(&self, object: &ObjectRef) -> Option<&ClusterTrustBundle> {
        self.one(object).map(|(bundle, _)| bundle)
    }

    /// Whether the source has no objects of this kind because the cluster does not have the kind.
    pub(crate) fn lacks(&self, kind: Kind) -> bool {
        self.lacking.contains(&kind)
    }

    /// Records whether the cluster has a kind.
    pub(crate) fn set_lacks(&mut self, kind: Kind, lacks: bool) -> Touched {
        let is_new = if lacks { self.lacking.insert(kind) } else { self.lacking.remove(&kind) };
        Touched { routing: is_new, ..Touched::default() }
    }

    /// A ConfigMap, and the place where it was written.
    pub(crate) fn configmap(&self, object: &ObjectRef) -> Option<(&ConfigMap, &Origin)> {
        self.one(object)
    }

    /// The identity of a Service, and the place where it was written.
    pub(crate) fn service_entry(
        &self,
        namespace: &Arc<str>,
        name: &Arc<str>,
    ) -> Option<(&ObjectRef, &Origin)> {
        let (_, origin) = self.service(namespace, name)?;
        let object = ObjectRef { kind: Kind::Service, namespace: namespace.clone(), name: name.clone() };
        let (known, _) = self.slots.of(Kind::Service).get_key_value(&object)?;
        Some((known, origin))
    }

    /// A ConfigMap with its identity, and the place where it was written.
    pub(crate) fn configmap_entry(&self, object: &ObjectRef) -> Option<(&ObjectRef, &ConfigMap, &Origin)> {
        let (known, _) = self.slots.of(object.kind).get_key_value(object)?;
        let (configmap, origin) = self.configmap(object)?;
        Some((known, configmap, origin))
    }

    /// The error of an object in service, or of a newer version that is not in service; `None` without an error.
    pub(crate) fn error_of(&self, object: &ObjectRef) -> Option<String> {
        if !self.troubled.contains(object) {
            return None;
        }
        let winner = self.slots.get(object)?.winner()?;
        let error = winner.findings.iter().find(|finding| finding.severity == Severity::Error)?;
        Some(format!("{}: {}", error.field, error.in_words(winner.is_kept)))
    }

    /// The newest version of an object, of which an older version is in service, and the error of the newest version.
    pub(crate) fn not_in_service<T: Checked>(&self, object: &ObjectRef) -> Option<(&T, String)> {
        let newest = self.slots.get(object)?.winner()?.newest.as_ref()?;
        Some((T::of(newest)?, self.error_of(object)?))
    }

    /// Whether a source has the object, even if the object is unusable.
    pub(crate) fn get<T: Checked>(&self, object: &ObjectRef) -> Option<&T> {
        T::of(self.slots.get(object)?.winner()?.form.as_ref()?)
    }

    /// Whether the store has an object, valid or not.
    pub(crate) fn knows(&self, object: &ObjectRef) -> bool {
        self.slots.get(object).is_some()
    }

    /// The slices that belong to a Service, by name.
    pub(crate) fn slices_of(&self, service: &ServiceRef) -> impl Iterator<Item = &EndpointSlice> {
        let slices = self.slices.get(service).into_iter().flatten();
        slices.filter_map(|object| self.one(object).map(|(slice, _)| slice))
    }
}

fn origin(file: &Arc<Path>, line: u32, document: &Document, part: &str) -> Origin {
    let written = Written { text: document.text.clone(), line, part: part.into() };
    Origin { file: Some(file.clone()), line: line + document.line - 1, document: Some(written) }
}
