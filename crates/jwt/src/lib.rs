//! JSON Web Tokens (RFC 7519), with no I/O.
//!
//! In come the bytes of a token, the keys of whoever may have signed it, and what it has to say. Out come its
//! [`Claims`], or the [`Fault`] for which it is refused. Nobody gets at the claims of a token that was not verified, but
//! for its issuer, by which the keys are chosen.
//!
//! A key is for the algorithms that fit its kind, and the token's header chooses among these only: `none` does not exist
//! here, and a public key is never taken for a shared secret. Whatever comes is bounded in length, depth and work.
//!
//! | module | what |
//! |---|---|
//! | [`algorithm`] | the algorithms (RFC 7518, 3.1; RFC 8037) |
//! | [`key`] | keys: JWK sets (RFC 7517), PEM, shared secrets |
//! | [`token`] | a token in its parts, and its signature (RFC 7515) |
//! | [`claims`] | what a token says, and what it has to say |

pub mod algorithm;
pub mod claims;
mod jwk;
pub mod key;
pub mod token;

pub use algorithm::Algorithm;
pub use claims::{Claims, Rules, Wanted};
pub use key::{KeyFault, KeySet};
pub use token::Token;

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// It is longer than [`token::MAX`].
    #[error("the token is too long")]
    TooLong,
    /// It is not three parts in base64url, of which two are JSON objects.
    #[error("the token is malformed")]
    Malformed,
    /// Its header asks for something that is not understood (`crit`; RFC 7515, 4.1.11).
    #[error("the token needs an extension")]
    Critical,
    /// Its algorithm is unknown, or none of those that its issuer's keys are for.
    #[error("the token's algorithm is not accepted")]
    Algorithm,
    /// No key has the `kid` that it names.
    #[error("the token names an unknown key")]
    UnknownKey,
    /// Nobody whose key is known has signed it.
    #[error("the token's signature is wrong")]
    Signature,
    /// Nobody whose tokens are taken has issued it.
    #[error("the token is of another issuer")]
    Issuer,
    /// It is for somebody else.
    #[error("the token is for another audience")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// It says nothing of its end.
    #[error("the token does not expire")]
    Eternal,
    /// It lacks a claim, or the claim has another value.
    #[error("the token lacks a claim that is required")]
    Claim,
}

impl Fault {
    /// Every kind, in the order of their numbers.
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
