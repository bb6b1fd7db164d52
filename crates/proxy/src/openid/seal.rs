//! The encryption of cookies: AES-256-GCM-SIV (RFC 8452), which stays secure if a nonce is used twice. Many data planes
//! encrypt with one key and random nonces.

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// The length of the tag, in bytes.
const TAG: usize = 16;

/// The keys that encrypt cookies for one purpose. The first key encrypts, and all keys decrypt.
pub struct Seal(Vec<RandomizedNonceKey>);

impl Seal {
    /// Derives the keys from secrets for a purpose, so that a cookie of one purpose is never valid for another purpose. `None`: a
    /// secret cannot be used.
    #[must_use]
    pub fn new<'s>(secrets: impl IntoIterator<Item = &'s [u8]>, purpose: &str) -> Option<Self> {
        let derive = |secret: &[u8]| {
            let key = Salt::new(HKDF_SHA256, b"sluicegate cookies").extract(secret);
            let mut derived = [0; 32];
            key.expand(&[purpose.as_bytes()], HKDF_SHA256).ok()?.fill(&mut derived).ok()?;
            RandomizedNonceKey::new(&AES_256_GCM_SIV, &derived).ok()
        };
        secrets.into_iter().map(derive).collect::<Option<Vec<_>>>().map(Self)
    }

    /// Encrypts a text for the holders of the keys. `context` is authenticated.
    #[must_use]
    pub fn seal(&self, context: &[u8], text: &[u8]) -> Option<String> {
        let mut sealed = text.to_vec();
        let key = self.0.first()?;
        let nonce = key.seal_in_place_append_tag(Aad::from(context), &mut sealed).ok()?;
        sealed.splice(0..0, nonce.as_ref().iter().copied());
        Some(URL_SAFE_NO_PAD.encode(sealed))
    }

    /// Decrypts a text. `None`: another context, another key, or a changed text.
    #[must_use]
    pub fn open(&self, context: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let sealed = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, encrypted) = sealed.split_at_checked(NONCE_LEN).filter(|(_, rest)| rest.len() >= TAG)?;
        self.0.iter().find_map(|key| {
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut text = encrypted.to_vec();
            let length = key.open_in_place(nonce, Aad::from(context), &mut text).ok()?.len();
            text.truncate(length);
            Some(text)
        })
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(lines: &str, purpose: &str) -> Seal {
        Seal::new(lines.lines().map(str::as_bytes), purpose).expect("keys")
    }

    const OLD: &str = "0123456789abcdef0123456789abcdef";
    const NEW: &str = "fedcba9876543210fedcba9876543210";

    #[test]
    fn sealed_text_opens_only_unchanged_with_its_key_purpose_and_context() {
        let old = seal(OLD, "session");
        let sealed = old.seal(b"host", b"secret text").expect("sealed");
        assert!(!sealed.contains("secret"));
        assert_ne!(sealed, old.seal(b"host", b"secret text").expect("sealed"), "a random nonce");
        assert_eq!(old.open(b"host", sealed.as_bytes()).as_deref(), Some(&b"secret text"[..]));
        assert_eq!(old.open(b"other", sealed.as_bytes()), None);
        assert_eq!(seal(OLD, "login").open(b"host", sealed.as_bytes()), None);
        assert_eq!(seal(NEW, "session").open(b"host", sealed.as_bytes()), None);
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(old.open(b"host", &changed), None, "at {at}");
            assert_eq!(old.open(b"host", &sealed.as_bytes()[..at]), None, "up to {at}");
        }
    }

    #[test]
    fn first_key_encrypts_and_all_keys_decrypt() {
        let (old, both, new) = (seal(OLD, "s"), seal(&format!("{NEW}\n{OLD}\n"), "s"), seal(NEW, "s"));
        let by_old = old.seal(b"", b"x").expect("sealed");
        assert!(both.open(b"", by_old.as_bytes()).is_some());
        let by_both = both.seal(b"", b"x").expect("sealed");
        assert!(new.open(b"", by_both.as_bytes()).is_some());
        assert!(old.open(b"", by_both.as_bytes()).is_none());
    }
}
