//! Keys that verify tokens.

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::signature::{
    self, EcdsaVerificationAlgorithm, EdDSAParameters, ParsedPublicKey, RsaParameters,
};
use rustls_pki_types::pem::{PemObject as _, SectionKind};

use crate::{Algorithm, Fault, jwk};

/// The maximum number of keys in one set.
pub const KEYS_MAX: usize = 128;

/// The maximum number of keys to try for a token without a `kid`.
const TRIED_MAX: usize = 8;

/// The shortest secret, in bytes. RFC 7518, 3.2 requires the length of the hash, at least 32; many secrets are shorter.
const SECRET_MIN: usize = 16;

/// The reason why keys cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// The text is neither JSON nor PEM.
    #[error("must be a JWK set, a JWK, or public keys or certificates in PEM: {0}")]
    Unreadable(String),
    /// The key is a private key.
    #[error("include a private key in PEM: write the public key (openssl pkey -in KEY -pubout)")]
    Private,
    /// The text contains no key.
    #[error("include no valid key{0}")]
    None(String),
    /// The text contains too many keys.
    #[error("are too many: write at most {KEYS_MAX}")]
    TooMany,
    /// The secret is too short.
    #[error(
        "has {0} bytes: write a secret of at least {SECRET_MIN} bytes, better the length of the hash (32 for HS256)"
    )]
    ShortSecret(usize),
    /// No accepted algorithm fits the keys.
    #[error("fit none of the accepted algorithms")]
    Algorithm,
}

/// The keys of one issuer.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    keys: Vec<Key>,
}

/// A key with its purpose.
#[derive(Clone)]
pub(crate) struct Key {
    pub(crate) id: Option<Box<str>>,
    /// The algorithms of the key, each with its own verifier.
    pub(crate) verifiers: Vec<(Algorithm, Verifier)>,
}

#[derive(Clone)]
pub(crate) enum Verifier {
    Shared(Box<hmac::Key>),
    Public(ParsedPublicKey),
}

/// Keys are secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let algorithms: Vec<_> = self.verifiers.iter().map(|(algorithm, _)| algorithm).collect();
        f.debug_struct("Key").field("id", &self.id).field("algorithms", &algorithms).finish()
    }
}

impl KeySet {
    /// The keys of a JWK set or a JWK (RFC 7517), or public keys and certificates in PEM, for these algorithms. Without
    /// algorithms: for all algorithms that fit. Keys for other uses and of unknown kinds are ignored (RFC 7517, 5).
    ///
    /// # Errors
    /// If the text cannot be decoded, or has no key for any of the algorithms.
    pub fn given(text: &[u8], algorithms: &[Algorithm]) -> Result<Self, KeyFault> {
        let keys = match text.trim_ascii_start() {
            [b'{', ..] => jwk::read(text, algorithms)?,
            _ => read_pem(text, algorithms)?,
        };
        match keys.len() {
            0 => Err(KeyFault::None(String::new())),
            1..=KEYS_MAX => Ok(Self { keys }),
            _ => Err(KeyFault::TooMany),
        }
    }

    /// A shared secret for these HMAC algorithms. Without algorithms: for all HMAC algorithms.
    ///
    /// # Errors
    /// If the secret is too short, or no algorithm uses a secret.
    pub fn shared(secret: &[u8], algorithms: &[Algorithm]) -> Result<Self, KeyFault> {
        let key = Key::shared(None, secret, algorithms)?;
        Ok(Self { keys: vec![key] })
    }

    /// The number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Checks a signature. A `kid` selects among the keys with a `kid`; keys without a `kid` are tried as well.
    pub(crate) fn verify(
        &self,
        algorithm: Algorithm,
        id: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Fault> {
        let of_algorithm = |key: &'_ &Key| key.verifiers.iter().any(|(of, _)| *of == algorithm);
        let is_named = |key: &'_ &Key| match (id, &key.id) {
            (Some(id), Some(has)) => *id == **has,
            _ => true,
        };
        if !self.keys.iter().any(|key| of_algorithm(&key)) {
            return Err(Fault::Algorithm);
        }
        let mut fault = Fault::UnknownKey;
        for key in self.keys.iter().filter(is_named).filter(of_algorithm).take(TRIED_MAX) {
            if key.verify(algorithm, message, signature) {
                return Ok(());
            }
            fault = Fault::Signature;
        }
        Err(fault)
    }
}

impl Key {
    pub(crate) fn shared(
        id: Option<Box<str>>,
        secret: &[u8],
        algorithms: &[Algorithm],
    ) -> Result<Self, KeyFault> {
        if secret.len() < SECRET_MIN {
            return Err(KeyFault::ShortSecret(secret.len()));
        }
        let hash = |algorithm| match algorithm {
            Algorithm::Hs256 => Some(hmac::HMAC_SHA256),
            Algorithm::Hs384 => Some(hmac::HMAC_SHA384),
            Algorithm::Hs512 => Some(hmac::HMAC_SHA512),
            _ => None,
        };
        let verifiers: Vec<_> = accepted(algorithms)
            .filter_map(|algorithm| {
                Some((algorithm, Verifier::Shared(Box::new(hmac::Key::new(hash(algorithm)?, secret)))))
            })
            .collect();
        if verifiers.is_empty() { Err(KeyFault::Algorithm) } else { Ok(Self { id, verifiers }) }
    }

    /// A public key: a SubjectPublicKeyInfo (RFC 5280, 4.1.2.7), or only its key.
    pub(crate) fn public(id: Option<Box<str>>, der: &[u8], algorithms: &[Algorithm]) -> Option<Self> {
        let verifiers: Vec<_> = accepted(algorithms)
            .filter_map(|algorithm| Some((algorithm, Verifier::Public(public_key(algorithm, der)?))))
            .collect();
        (!verifiers.is_empty()).then_some(Self { id, verifiers })
    }

    fn verify(&self, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
        self.verifiers.iter().filter(|(of, _)| *of == algorithm).any(|(_, verifier)| match verifier {
            Verifier::Shared(key) => hmac::verify(key, message, signature).is_ok(),
            Verifier::Public(key) => key.verify_sig(message, signature).is_ok(),
        })
    }
}

/// The accepted algorithms. Empty `algorithms`: all.
fn accepted(algorithms: &[Algorithm]) -> impl Iterator<Item = Algorithm> {
    Algorithm::ALL.into_iter().filter(|algorithm| algorithms.is_empty() || algorithms.contains(algorithm))
}

fn public_key(algorithm: Algorithm, der: &[u8]) -> Option<ParsedPublicKey> {
    let rsa = |with: &'static RsaParameters| ParsedPublicKey::new(with, der).ok();
    let ecdsa = |with: &'static EcdsaVerificationAlgorithm| ParsedPublicKey::new(with, der).ok();
    let eddsa = |with: &'static EdDSAParameters| ParsedPublicKey::new(with, der).ok();
    match algorithm {
        Algorithm::Rs256 => rsa(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::Rs384 => rsa(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::Rs512 => rsa(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::Ps256 => rsa(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::Ps384 => rsa(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::Ps512 => rsa(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::Es256 => ecdsa(&signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::Es384 => ecdsa(&signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::Es512 => ecdsa(&signature::ECDSA_P521_SHA512_FIXED),
        Algorithm::EdDsa => eddsa(&signature::ED25519),
        Algorithm::Hs256 | Algorithm::Hs384 | Algorithm::Hs512 => None,
    }
}

fn read_pem(text: &[u8], algorithms: &[Algorithm]) -> Result<Vec<Key>, KeyFault> {
    let mut keys = Vec::new();
    let mut passed_over = String::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let (kind, der) = section.map_err(|error| KeyFault::Unreadable(error.to_string()))?;
        let key = match kind {
            SectionKind::PublicKey => Key::public(None, &der, algorithms),
            SectionKind::Certificate => match x509_parser::parse_x509_certificate(&der) {
                Ok((_, certificate)) => Key::public(None, certificate.public_key().raw, algorithms),
                Err(error) => return Err(KeyFault::Unreadable(error.to_string())),
            },
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                return Err(KeyFault::Private);
            }
            _ => continue,
        };
        match key {
            Some(key) => keys.push(key),
            None => passed_over = " for any of the accepted algorithms".to_owned(),
        }
    }
    if keys.is_empty() { Err(KeyFault::None(passed_over)) } else { Ok(keys) }
}
