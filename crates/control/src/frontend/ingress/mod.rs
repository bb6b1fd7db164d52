//! Ingresses.
//!
//! | module | content |
//! |---|---|
//! | [`class`] | the Ingresses that are ours |
//! | [`restriction`] | annotations of ingress-nginx that restrict access and are not read |

pub(crate) mod class;
pub(crate) mod restriction;
