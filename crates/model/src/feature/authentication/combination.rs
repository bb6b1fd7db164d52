//! Combinations of credentials.

use minicbor::{Decode, Encode};
use serde::Serialize;

use super::Credential;
use crate::value::ScopeList;

/// Credentials that authenticate a caller together. `security` of an OpenAPI document sets them (OpenAPI 3.1, "Security Requirement
/// Object").
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub struct Combination {
    /// The credentials, all of which a request needs.
    #[n(0)]
    pub needs: Vec<Need>,
    /// The scopes that a token needs: all scopes of one entry. Empty: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[n(1)]
    pub scopes: Vec<ScopeList>,
}

/// A credential of a [`Combination`]. The method of the policy verifies the credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[cbor(map)]
pub enum Need {
    /// An API key at this place; `None`: at any place of the method.
    #[n(0)]
    ApiKey(#[n(0)] Option<Credential>),
    /// A user name and a password.
    #[n(1)]
    Password,
    /// A token.
    #[n(2)]
    Token,
    /// A token, or the session of a login.
    #[n(3)]
    TokenOrSession,
    /// A client certificate that a CA certificate of the host or the listener has signed.
    #[n(4)]
    ClientCertificate,
    /// The permission of the external authorization service.
    #[n(5)]
    Service,
}
