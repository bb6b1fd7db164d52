//! From the model to messages and back. Back is where everything is checked: what is refused here never comes to the
//! proxy.

use std::time::Duration;

use bytes::Bytes;
use ipnet::IpNet;
use prost::Message;
use sluicegate_model::policy::{RateLimits, Security, Traffic};
use sluicegate_model::{Certificate, ClientAuth, UpstreamTls};
use std::sync::Arc;

use crate::digest::Digest;

mod health;
mod listener;
mod policy;
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
    /// A kind of policies that guards a route.
    #[error("the route has a policy of kind {0}, which this version does not know")]
    Policy(u32),
    /// It says more than was read, which may be what closes something.
    #[error("it has parts that this version does not know")]
    Partial,
    /// Its kind.
    #[error("resources of kind {0} are not known to this version")]
    Kind(u32),
}

/// Where what several resources share is put when it is written, each once.
pub(crate) trait Share {
    fn certificate(&mut self, certificate: &Arc<Certificate>) -> Digest;
    fn client_auth(&mut self, policy: &Arc<ClientAuth>) -> Digest;
    fn upstream_tls(&mut self, tls: &Arc<UpstreamTls>) -> Digest;
    fn security(&mut self, policy: &Arc<Security>) -> Digest;
    fn rate_limits(&mut self, policy: &Arc<RateLimits>) -> Digest;
    fn traffic(&mut self, policy: &Arc<Traffic>) -> Digest;
}

/// Where what several resources share is found when it is read.
pub(crate) trait Shared {
    fn certificate(&self, name: &Bytes) -> Option<Arc<Certificate>>;
    fn client_auth(&self, name: &Bytes) -> Option<Arc<ClientAuth>>;
    fn upstream_tls(&self, name: &Bytes) -> Option<Arc<UpstreamTls>>;
    fn security(&self, name: &Bytes) -> Option<Arc<Security>>;
    fn rate_limits(&self, name: &Bytes) -> Option<Arc<RateLimits>>;
    fn traffic(&self, name: &Bytes) -> Option<Arc<Traffic>>;
}

/// A message that may close something, and has to be known as a whole for that: `prost` passes over unknown fields, and what
/// is left is shorter.
pub(crate) fn whole<M: Message + Default>(body: Bytes) -> Result<M, Refusal> {
    let length = body.len();
    let message = M::decode(body)?;
    if message.encoded_len() == length { Ok(message) } else { Err(Refusal::Partial) }
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

fn texts(texts: &[impl ToString]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}

/// Texts of any kind.
fn of_texts<T: From<String>>(texts: Vec<String>) -> Vec<T> {
    texts.into_iter().map(T::from).collect()
}

fn networks(networks: &[String], field: &'static str) -> Result<Vec<IpNet>, Refusal> {
    let parsed = networks.iter().map(|network| network.parse());
    parsed.collect::<Result<_, _>>().map_err(|_| Refusal::Invalid(field))
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
