//! From the model to messages and back. Back is where everything is checked: what is refused here never comes to the
//! proxy.

use std::time::Duration;

use bytes::Bytes;
use sluicegate_model::{Certificate, ClientAuth, UpstreamTls};
use std::sync::Arc;

use crate::digest::Digest;

mod listener;
mod route;
mod settings;
mod tls;
mod upstream;

/// Why a resource is not taken over. Never says what is in it: it may be a key.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refusal {
    /// A part without which it has no meaning.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A value of an enumeration.
    #[error("{field} is {value}, which this version does not know")]
    Unknown {
        /// Which one.
        field: &'static str,
        /// What it is.
        value: i32,
    },
    /// A value that cannot be.
    #[error("{0} has a value that is not allowed")]
    Invalid(&'static str),
    /// It names something that is not there, or that was refused itself.
    #[error("the {0} that it names is not there")]
    Unresolved(&'static str),
    /// It is no message, or another one.
    #[error("it cannot be decoded: {0}")]
    Malformed(#[from] prost::DecodeError),
    /// It is not what its name says.
    #[error("its name is not that of what it holds")]
    Misnamed,
    /// Its kind.
    #[error("resources of kind {0} are not known to this version")]
    Kind(u32),
}

/// Where what several resources share is put when it is written, each once.
pub(crate) trait Share {
    fn certificate(&mut self, certificate: &Arc<Certificate>) -> Digest;
    fn client_auth(&mut self, policy: &Arc<ClientAuth>) -> Digest;
    fn upstream_tls(&mut self, tls: &Arc<UpstreamTls>) -> Digest;
}

/// Where what several resources share is found when it is read.
pub(crate) trait Shared {
    fn certificate(&self, name: &Bytes) -> Option<Arc<Certificate>>;
    fn client_auth(&self, name: &Bytes) -> Option<Arc<ClientAuth>>;
    fn upstream_tls(&self, name: &Bytes) -> Option<Arc<UpstreamTls>>;
}

fn required<T>(part: Option<T>, field: &'static str) -> Result<T, Refusal> {
    part.ok_or(Refusal::Missing(field))
}

fn known<E: TryFrom<i32>>(value: i32, field: &'static str) -> Result<E, Refusal> {
    E::try_from(value).map_err(|_| Refusal::Unknown { field, value })
}

fn all<F, T: TryFrom<F, Error = Refusal>>(from: Vec<F>) -> Result<Vec<T>, Refusal> {
    from.into_iter().map(T::try_from).collect()
}

/// Clocks overflow with longer ones.
const LONGEST: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn duration(nanos: u64, field: &'static str) -> Result<Duration, Refusal> {
    let duration = Duration::from_nanos(nanos);
    if duration > LONGEST { Err(Refusal::Invalid(field)) } else { Ok(duration) }
}

/// A digest as the name of something, or nothing.
fn reference(digest: Option<Digest>) -> Bytes {
    digest.map_or_else(Bytes::new, Digest::into_bytes)
}

/// What a reference leads to, if it is one.
fn resolve<T>(
    name: &Bytes,
    what: &'static str,
    find: impl FnOnce(&Bytes) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    match name.is_empty() {
        true => Ok(None),
        false => find(name).map(Some).ok_or(Refusal::Unresolved(what)),
    }
}
