//! Certificates from an ACME server (RFC 8555): which certificates are due, one order for each, and the stores of the results.
//!
//! Inputs: a [`State`] of the configuration, which a control plane publishes through a [`Link`], and the Secrets in a [`Secrets`]
//! store. Outputs: Secrets with certificates, a Secret with the account's key, a Secret with the certificates of challenges in
//! progress, and [`Faults`] for certificates that cannot be ordered. Data planes receive the Secrets through the
//! configuration, so this crate never talks to a data plane. Before the ACME server may validate a challenge, the crate waits
//! until the data planes serve a configuration with the challenge ([`Link::set_served`]).
//!
//! One process orders: the process for which `leads` is true. An ACME server that is away, slow or hostile delays orders, and
//! changes nothing that is served. Every exchange, order and answer has a limit: [`Options`], [`ORDER_MAX`], [`VALIDATION_MAX`],
//! [`SERVED_MAX`], [`NAMES_MAX`].
//!
//! | module | content |
//! |---|---|
//! | [`link`] | the states, faults and counters that the control plane and the worker share |
//! | [`secrets`] | the store of Secrets, as a trait |
//! | [`directory`] | the store in a directory |
//! | [`issued`] | certificates as the schedule sees them, and the check of an issued certificate |
//! | [`schedule`] | when a certificate is due, and the pauses after failures; without I/O |
//! | [`account`] | the account and its key |
//! | [`client`] | the HTTP client of the ACME protocol |
//! | [`order`] | the life of an order |
//! | [`worker`] | the orders in progress |

mod account;
mod client;
pub mod directory;
pub mod issued;
pub mod link;
mod order;
mod schedule;
pub mod secrets;
mod worker;

use std::num::NonZero;
use std::time::Duration;

pub use client::{Exchange, HttpRequest, HttpResponse};
pub use directory::DirectorySecrets;
pub use issued::Issued;
pub use link::{Counters, Faults, Link, State, Wish};
pub use secrets::{NewSecret, SecretName, Secrets, SecretsError, Stored};
pub use worker::Worker;

/// The directory of Let's Encrypt.
pub const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";

/// The label of a Secret that this crate writes, and its value.
pub const LABEL: (&str, &str) = ("sluicegate.dev/acme", "issued");

/// The key of the account Secret with the thumbprint of the account's key.
pub const THUMBPRINT_KEY: &str = "thumbprint";

/// The most names of a certificate. Let's Encrypt issues certificates with at most 100 names.
pub const NAMES_MAX: usize = 100;

/// The longest time of an order, from the first request to the certificate.
pub const ORDER_MAX: Duration = Duration::from_secs(300);

/// The longest time for the validation of all challenges of an order, and for the issuance after it.
pub const VALIDATION_MAX: Duration = Duration::from_secs(120);

/// The longest wait for the data planes before the ACME server may validate. Then the order continues: one data plane that is
/// behind must not prevent the renewal of all certificates.
pub const SERVED_MAX: Duration = Duration::from_secs(30);

/// The way to prove control of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeKind {
    /// A request over plain HTTP to port 80 (RFC 8555, 8.3).
    Http01,
    /// A TLS handshake at port 443 (RFC 8737).
    TlsAlpn01,
}

/// The options of orders.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL of the ACME server's directory.
    pub directory: String,
    /// The address for mail from the CA.
    pub email: Option<String>,
    /// The way to prove control.
    pub challenge: ChallengeKind,
    /// The most orders at a time.
    pub orders: NonZero<usize>,
    /// The pause after the first failed order of a host. The pause triples with each further failure, up to 12 hours.
    pub retry: Duration,
    /// The Secret with the account's key.
    pub account: SecretName,
    /// The Secret with the certificates of challenges in progress.
    pub challenges: SecretName,
}
