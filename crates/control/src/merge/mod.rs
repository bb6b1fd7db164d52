//! The one place that decides conflicts between objects.
//!
//! | module | content |
//! |---|---|
//! | [`rule`] | the owner of each host, and of each match of a host |
//! | [`tls`] | certificates, and client certificates |
//! | [`passthrough`] | TLS passthrough of HTTPS listeners |

pub(crate) mod passthrough;
pub(crate) mod rule;
pub(crate) mod tls;
