//! JSON Web Tokens (RFC 7519), with no I/O.
//!
//! Inputs: the bytes of a token, the keys of its possible issuers, and the rules for its claims. Output: the
//! [`Claims`], or the [`Fault`] for which the token is rejected. The claims of an unverified token are not accessible,
//! except the issuer, which selects the keys.
//!
//! Each key has only the algorithms that fit its kind, and the token's header chooses among these algorithms. The crate
//! has no algorithm `none`, and never uses a public key as a shared secret. Input is bounded in length, depth and work.
//!
//! | module | contents |
//! |---|---|
//! | [`algorithm`] | the algorithms (RFC 7518, 3.1; RFC 8037) |
//! | [`key`] | keys: JWK sets (RFC 7517), PEM, shared secrets |
//! | [`token`] | a token in its parts, and its signature (RFC 7515) |
//! | [`claims`] | the claims of a token, and the rules for claims |

pub mod algorithm;
pub mod claims;
mod jwk;
pub mod key;
pub mod token;

pub use algorithm::Algorithm;
pub use claims::{Claims, Rules, Wanted};
pub use key::{KeyFault, KeySet};
pub use token::Token;

/// The reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The token is longer than [`token::MAX`].
    #[error("the token is too long")]
    TooLong,
    /// The token does not consist of three parts in base64url, of which two are JSON objects.
    #[error("the token is malformed")]
    Malformed,
    /// The header requires an unsupported extension (`crit`; RFC 7515, 4.1.11).
    #[error("the token needs an extension")]
    Critical,
    /// The algorithm is unknown, or does not fit the issuer's keys.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// No key has the `kid` of the token.
    #[error("the token names an unknown key")]
    UnknownKey,
    /// No key verifies the signature.
    #[error("the token's signature is wrong")]
    Signature,
    /// The issuer is not accepted.
    #[error("the token is of another issuer")]
    Issuer,
    /// The token is for another audience.
    #[error("the token is for another audience")]
    Audience,
    /// The token has expired.
    #[error("the token has expired")]
    Expired,
    /// The token is not valid yet.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// The token has no expiry.
    #[error("the token does not expire")]
    Eternal,
    /// The token lacks a required claim, or the claim has another value.
    #[error("the token lacks a claim that is required")]
    Claim,
}

impl Fault {
    /// Every fault, in the order of its number.
    pub const ALL: [Self; 12] = [
        Self::TooLong,
        Self::Malformed,
        Self::Critical,
        Self::Algorithm,
        Self::UnknownKey,
        Self::Signature,
        Self::Issuer,
        Self::Audience,
        Self::Expired,
        Self::NotYetValid,
        Self::Eternal,
        Self::Claim,
    ];

    /// The stable name for metrics and logs.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::TooLong => "token_too_long",
            Self::Malformed => "token_malformed",
            Self::Critical => "token_critical",
            Self::Algorithm => "token_algorithm",
            Self::UnknownKey => "token_unknown_key",
            Self::Signature => "token_signature",
            Self::Issuer => "token_issuer",
            Self::Audience => "token_audience",
            Self::Expired => "token_expired",
            Self::NotYetValid => "token_not_yet_valid",
            Self::Eternal => "token_without_expiry",
            Self::Claim => "token_claim",
        }
    }
}
