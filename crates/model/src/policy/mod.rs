//! Policies: who may call a route, how often, and how requests go on.
//!
//! A route holds the policies that govern it, already chosen and checked by the control plane. What cannot be honoured
//! stays in them as a refusal, so that a fault closes a route instead of opening it.
//!
//! | module | what |
//! |---|---|
//! | [`security`] | addresses, cross-origin requests, authentication, authorization |
//! | [`external`] | the HTTP service that is asked about a request |
//! | [`jwt`] | whose tokens are taken, and by which keys they are verified |
//! | [`consumer`] | who calls |
//! | [`rate_limit`] | how often |
//! | [`traffic`] | how requests go on |

pub mod consumer;
pub mod external;
pub mod jwt;
pub mod rate_limit;
pub mod security;
pub mod traffic;

pub use consumer::{Consumer, KeyHash};
pub use external::{External, ExternalCache, KeyPart, SignIn};
pub use jwt::{Jwt, JwtKeys, JwtProvider, RemoteKeys};
pub use rate_limit::{Concurrency, Limit, LimitKey, RateLimits, Redis, RedisTls, Shared, Window};
pub use security::{
    Access, Authentication, Authorization, AuthorizationRule, Basic, Cors, Credential, Method, Security,
};
pub use traffic::Traffic;

/// Something that was written in an object.
pub trait Written {
    /// The object.
    fn id(&self) -> &crate::RouteId;
}

impl Written for Security {
    fn id(&self) -> &crate::RouteId {
        &self.id
    }
}

impl Written for RateLimits {
    fn id(&self) -> &crate::RouteId {
        &self.id
    }
}

impl Written for Traffic {
    fn id(&self) -> &crate::RouteId {
        &self.id
    }
}
