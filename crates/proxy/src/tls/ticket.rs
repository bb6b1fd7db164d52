//! Session tickets (RFC 8446, 4.6.1; RFC 5077), with which clients resume sessions.
//!
//! The keys are derived from a secret and the time. So all workers, and all processes with the same secret, encrypt and
//! decrypt the same tickets, and the keys change without coordination.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Salt};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use sluicegate_model::tls::TicketSecret;

/// How long one key encrypts.
const EPOCH: Duration = Duration::from_secs(6 * 3600);
/// How many further epochs a ticket is valid.
const OLDER: u64 = 2;
/// The lifetime that clients receive (RFC 8446, 4.6.1: a week at most).
const LIFETIME: Duration = Duration::from_secs(2 * 6 * 3600);
const NAME_LEN: usize = 16;

/// Encrypts the tickets of one group of hosts.
pub(super) struct Tickets {
    /// The first secret encrypts, all decrypt.
    secrets: Vec<TicketSecret>,
    /// Separates groups whose tickets are not interchangeable: a client with a certificate under one policy has not shown
    /// it under another.
    purpose: Vec<u8>,
    keys: Mutex<Keys>,
}

#[derive(Default)]
struct Keys {
    epoch: u64,
    /// The first key encrypts, all decrypt.
    keys: Arc<[Key]>,
}

struct Key {
    name: [u8; NAME_LEN],
    key: LessSafeKey,
}

impl Tickets {
    pub(super) fn new(secrets: Vec<TicketSecret>, purpose: Vec<u8>) -> Self {
        Self { secrets, purpose, keys: Mutex::default() }
    }

    /// The current keys.
    fn keys(&self, now: SystemTime) -> Arc<[Key]> {
        let seconds = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let epoch = seconds / EPOCH.as_secs();
        // The lock is taken once in a handshake, never in a request.
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.epoch != epoch || keys.keys.is_empty() {
            // One epoch ahead, for processes with clocks ahead.
            let epochs =
                [epoch].into_iter().chain((epoch.saturating_sub(OLDER)..epoch).rev()).chain([epoch + 1]);
            let of_epoch = |epoch| self.secrets.iter().filter_map(move |secret| self.derive(secret, epoch));
            keys.keys = epochs.flat_map(of_epoch).collect();
            keys.epoch = epoch;
        }
        keys.keys.clone()
    }

    fn derive(&self, secret: &TicketSecret, epoch: u64) -> Option<Key> {
        let derived = Salt::new(HKDF_SHA256, b"sluicegate session tickets").extract(&secret.0);
        let epoch = epoch.to_be_bytes();
        let mut bytes = [0; NAME_LEN + 32];
        let info = [&epoch[..], &self.purpose];
        derived.expand(&info, Length(bytes.len())).ok()?.fill(&mut bytes).ok()?;
        let (name, key) = bytes.split_first_chunk::<NAME_LEN>()?;
        Some(Key { name: *name, key: LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?) })
    }

    fn seal(&self, plain: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let keys = self.keys(now);
        let key = keys.first()?;
        let mut nonce = [0; NONCE_LEN];
        rand::fill(&mut nonce).ok()?;
        let mut sealed = plain.to_vec();
        let aad = Aad::from(key.name);
        key.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).ok()?;
        let mut ticket = Vec::with_capacity(NAME_LEN + NONCE_LEN + sealed.len());
        ticket.extend_from_slice(&key.name);
        ticket.extend_from_slice(&nonce);
        ticket.extend_from_slice(&sealed);
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_LEN>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys(now);
        let key = keys.iter().find(|key| key.name == *name)?;
        let mut sealed = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = key.key.open_in_place(nonce, Aad::from(key.name), &mut sealed).ok()?.len();
        sealed.truncate(length);
        Some(sealed)
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        u32::try_from(LIFETIME.as_secs()).unwrap_or(u32::MAX)
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.seal(plain, SystemTime::now())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.open(cipher, SystemTime::now())
    }
}

impl fmt::Debug for Tickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tickets(confidential)")
    }
}

/// The number of bytes to derive.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// A secret that is unique to this process.
pub(super) fn own_secret() -> Result<TicketSecret, aws_lc_rs::error::Unspecified> {
    let mut secret = [0; TicketSecret::MIN];
    rand::fill(&mut secret)?;
    Ok(TicketSecret(Arc::from(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(byte: u8) -> TicketSecret {
        TicketSecret(Arc::from([byte; 32]))
    }

    fn tickets(secrets: &[u8], purpose: &[u8]) -> Tickets {
        Tickets::new(secrets.iter().copied().map(secret).collect(), purpose.to_vec())
    }

    fn hours(hours: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(500_000 * 3600 + hours * 3600)
    }

    #[test]
    fn session_tickets_decrypt_only_with_the_same_secret_and_purpose() {
        let sealed = tickets(&[1], b"").seal(b"state", hours(0)).unwrap();
        assert!(!sealed.windows(5).any(|bytes| bytes == b"state"));
        assert_eq!(tickets(&[1], b"").open(&sealed, hours(0)).as_deref(), Some(&b"state"[..]));
        assert_eq!(
            tickets(&[2, 1], b"").open(&sealed, hours(0)).as_deref(),
            Some(&b"state"[..]),
            "an older secret"
        );
        assert_eq!(tickets(&[2], b"").open(&sealed, hours(0)), None);
        assert_eq!(tickets(&[1], b"other policy").open(&sealed, hours(0)), None);
    }

    #[test]
    fn session_tickets_decrypt_for_the_advertised_lifetime_while_keys_rotate() {
        let tickets = tickets(&[1], b"");
        let first = tickets.seal(b"state", hours(0)).unwrap();
        let later = tickets.seal(b"state", hours(6)).unwrap();
        assert_ne!(first[..NAME_LEN], later[..NAME_LEN]);
        assert_ne!(first, tickets.seal(b"state", hours(0)).unwrap(), "a nonce of its own");
        let lifetime = LIFETIME.as_secs() / 3600;
        for hour in 0..=lifetime {
            assert!(tickets.open(&first, hours(hour)).is_some(), "after {hour} h");
        }
        assert!(tickets.open(&first, hours(lifetime + 7)).is_none());
        assert!(tickets.open(&later, hours(0)).is_some(), "from a process whose clock is ahead");
    }

    #[test]
    fn tampered_or_truncated_session_tickets_are_rejected() {
        let tickets = tickets(&[1], b"");
        let sealed = tickets.seal(b"state", hours(0)).unwrap();
        for at in 0..sealed.len() {
            let mut tampered = sealed.clone();
            tampered[at] ^= 1;
            assert_eq!(tickets.open(&tampered, hours(0)), None, "byte {at}");
            assert_eq!(tickets.open(&sealed[..at], hours(0)), None, "{at} bytes");
        }
    }
}
