//! Authentication: the credentials of callers, and the consumers that they identify.
//!
//! | module | purpose |
//! |---|---|
//! | `credential` | the places of credentials in requests |
//! | `basic` | passwords |
//! | `jwt`, `jwks` | tokens, and the published keys of their issuers |
//! | `consumer` | the consumers |

pub(crate) mod basic;
pub(crate) mod consumer;
pub(crate) mod credential;
pub(crate) mod jwks;
pub(crate) mod jwt;
