//! Objects that name other objects, so that a problem between them is reported in the naming object.

use sluicegate_model::{ObjectId, UpstreamKey};

use crate::object::ObjectRef;
use crate::object::ingress::path_field;
use crate::object::policy::traffic::{MIRROR_FIELD, branch_field};
use crate::object::route::backend_field;
use crate::problem::{Origin, Problem, Severity};
use crate::upstream::ANSWERED;

/// An object, and the place where it was written.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    pub(crate) object: &'a ObjectRef,
    pub(crate) origin: &'a Origin,
}

impl At<'_> {
    pub(crate) fn warning(self, field: &str, message: String) -> Problem {
        self.problem(Severity::Warning, field, message)
    }

    pub(crate) fn note(self, field: &str, message: String) -> Problem {
        self.problem(Severity::Note, field, message)
    }

    pub(crate) fn problem(self, severity: Severity, field: &str, message: String) -> Problem {
        Problem {
            severity,
            origin: self.origin.clone(),
            object: Some(self.object.clone()),
            field: field.to_owned(),
            message,
        }
    }

    pub(crate) fn id(self) -> ObjectId {
        self.object.id()
    }

    /// A sort key by age and then by name, so that the object with precedence comes first. An object without a creation
    /// time was never created in a cluster, so it counts as youngest.
    pub(crate) fn age(self, created: Option<i64>) -> impl Ord {
        (created.is_none(), created, self.object.namespace.clone(), self.object.name.clone())
    }
}

/// A backend as an object names it.
pub(crate) struct Reference<'a> {
    pub(crate) at: At<'a>,
    pub(crate) place: Place,
    pub(crate) upstream: UpstreamKey,
}

/// The place in an object that names a backend.
#[derive(Clone, Copy)]
pub(crate) enum Place {
    /// `spec.defaultBackend` of an Ingress.
    DefaultBackend,
    /// The rule and the path of an Ingress.
    Path(usize, usize),
    /// The backend of a route of Gateway API.
    BackendRef(usize),
    /// Another Service of a TrafficPolicy, with a share of the requests.
    Branch(usize),
    /// The mirror of a TrafficPolicy.
    Mirror,
}

impl Reference<'_> {
    /// A problem with the object that is named here: `within` is the field inside the backend of an Ingress.
    pub(crate) fn problem(&self, within: &str, message: String) -> Problem {
        let field = match self.place {
            Place::DefaultBackend => format!("spec.defaultBackend.{within}"),
            Place::Path(rule, path) => format!("{}.backend.{within}", path_field(rule, path)),
            Place::BackendRef(index) => {
                format!("{}.{}", backend_field(index), within.trim_start_matches("service."))
            }
            Place::Branch(index) => {
                format!("{}.{}", branch_field(index), within.trim_start_matches("service."))
            }
            Place::Mirror => {
                // No client waits for mirrored requests.
                let message = message.replace(ANSWERED, "mirrored requests are dropped");
                let field = format!("{MIRROR_FIELD}.{}", within.trim_start_matches("service."));
                return self.at.warning(&field, message);
            }
        };
        self.at.warning(&field, message)
    }
}
