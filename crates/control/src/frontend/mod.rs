//! The dialects: from the objects of a store to what they ask for ([`intent`](crate::intent)).
//!
//! | module | content |
//! |---|---|
//! | [`ingress`] | Ingresses |
//! | [`gateway`] | Gateways and their routes below HTTP |

pub(crate) mod gateway;
pub(crate) mod ingress;
