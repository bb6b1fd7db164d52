//! Sources of objects, and the publication of changes.
//!
//! | module | content |
//! |---|---|
//! | [`directory`] | follows a directory of manifests |
//! | [`cluster`] | follows the Kubernetes API |
//! | [`output`] | the common part: translate, publish, report |
//! | [`publish`] | the smallest change from the published state to the new state |
//! | [`resolve`] | addresses of external names |

use crate::object::Kind;
use crate::problem::Problem;

pub mod cluster;
pub mod directory;
mod output;
mod publish;
mod resolve;

pub use cluster::{ClusterSource, Contact};
pub use directory::{DirectorySource, Loaded, load_once, read_manifests};
pub use output::{Publish, Served};

/// The number of Ingresses and Gateways of other classes, in words, from their notes; `None` without notes.
pub fn foreign_in_words<'a>(notes: impl IntoIterator<Item = &'a Problem>) -> Option<String> {
    let (mut ingresses, mut gateways) = (0, 0);
    for note in notes {
        match note.object.as_ref().map(|object| object.kind) {
            Some(Kind::Gateway) => gateways += 1,
            _ => ingresses += 1,
        }
    }
    let counted = [(ingresses, "Ingress", "Ingresses"), (gateways, "Gateway", "Gateways")];
    let counted: Vec<String> = counted
        .into_iter()
        .filter(|(count, ..)| *count > 0)
        .map(|(count, one, many)| format!("{count} {}", if count == 1 { one } else { many }))
        .collect();
    match ingresses + gateways {
        0 => None,
        1 => Some(format!("{} is of another class and is not served here", counted.concat())),
        _ => Some(format!("{} are of other classes and are not served here", counted.join(" and "))),
    }
}
