//! Connection IDs that name the process and the worker of a connection.

use std::sync::Arc;

use aws_lc_rs::aead::quic::{AES_128, HeaderProtectionKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use aws_lc_rs::{hmac, rand};
use quinn::crypto::{HandshakeTokenKey, HmacKey};
use quinn::{ConnectionId, ConnectionIdGenerator};

/// The length of the gateway's connection IDs.
pub(super) const LENGTH: usize = 16;
/// The encrypted part: the process, the worker, and two bytes that are zero.
const OWNER: usize = 5;
/// The length of the secret that a process and its successors share.
pub(super) const SECRET: usize = 32;

/// The owner of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) process: u16,
    pub(super) worker: u8,
}

/// Makes and reads connection IDs. An observer without the secret cannot tell which IDs have the same owner
/// (RFC 9000, 5.1).
pub(crate) struct Ids {
    secret: [u8; SECRET],
    process: u16,
    key: HeaderProtectionKey,
    reset_key: Arc<hmac::Key>,
    token_key: Arc<Prk>,
}

impl Ids {
    /// With a new secret.
    pub(super) fn new() -> Result<Self, aws_lc_rs::error::Unspecified> {
        let mut secret = [0; SECRET];
        rand::fill(&mut secret)?;
        Self::with_secret(secret, 0)
    }

    /// For a process with the secret of its predecessor.
    pub(super) fn with_secret(
        secret: [u8; SECRET],
        process: u16,
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let derived = Salt::new(HKDF_SHA256, b"sluicegate connection ids").extract(&secret);
        let derive =
            |purpose: &[u8], out: &mut [u8]| derived.expand(&[purpose], Length(out.len()))?.fill(out);
        let (mut id, mut reset, mut token) = ([0; 16], [0; 32], [0; 32]);
        derive(b"id", &mut id)?;
        derive(b"reset", &mut reset)?;
        derive(b"token", &mut token)?;
        Ok(Self {
            secret,
            process,
            key: HeaderProtectionKey::new(&AES_128, &id)?,
            reset_key: Arc::new(hmac::Key::new(hmac::HMAC_SHA256, &reset)),
            token_key: Arc::new(Salt::new(HKDF_SHA256, &[]).extract(&token)),
        })
    }

    pub(super) fn secret(&self) -> &[u8; SECRET] {
        &self.secret
    }

    pub(super) fn process(&self) -> u16 {
        self.process
    }

    /// The key of stateless resets (RFC 9000, 10.3), by which a process can end the connections of its predecessor.
    pub(super) fn reset_key(&self) -> Arc<dyn HmacKey> {
        self.reset_key.clone()
    }

    /// The key of address validation tokens (RFC 9000, 8.1).
    pub(super) fn token_key(&self) -> Arc<dyn HandshakeTokenKey> {
        self.token_key.clone()
    }

    pub(super) fn generator(self: &Arc<Self>, worker: u8) -> Generator {
        Generator { ids: self.clone(), worker }
    }

    fn make(&self, worker: u8) -> ConnectionId {
        let mut id = [0; LENGTH];
        fastrand::fill(&mut id[OWNER..]);
        // Random numbers of a better kind if the system has them, as always.
        let _ = rand::fill(&mut id[OWNER..]);
        let process = self.process.to_be_bytes();
        let mask = self.mask(&id[OWNER..]);
        let owner = [process[0], process[1], worker, 0, 0];
        for (place, (byte, mask)) in id.iter_mut().zip(owner.into_iter().zip(mask)) {
            *place = byte ^ mask;
        }
        ConnectionId::new(&id)
    }

    /// The owner of a connection ID. `None` if a client chose the ID.
    pub(super) fn owner(&self, id: &[u8]) -> Option<Owner> {
        let (owner, rest) = id.split_first_chunk::<OWNER>()?;
        if id.len() != LENGTH {
            return None;
        }
        let mask = self.mask(rest);
        match std::array::from_fn(|at| owner[at] ^ mask[at]) {
            [high, low, worker, 0, 0] => Some(Owner { process: u16::from_be_bytes([high, low]), worker }),
            _ => None,
        }
    }

    fn mask(&self, rest: &[u8]) -> [u8; OWNER] {
        let mut sample = [0; 16];
        sample[..LENGTH - OWNER].copy_from_slice(rest);
        // The sample has the length of the algorithm.
        self.key.new_mask(&sample).unwrap_or_default()
    }
}

/// The destination of a packet (RFC 9000, 17). `None` if the packet has no connection ID of the gateway's length.
pub(super) fn destination(packet: &[u8]) -> Option<&[u8]> {
    let (first, rest) = packet.split_first()?;
    if first & 0x80 == 0 {
        return rest.get(..LENGTH);
    }
    // A long header: the version, then the length of the ID.
    let (length, rest) = rest.get(4..)?.split_first()?;
    if usize::from(*length) == LENGTH { rest.get(..LENGTH) } else { None }
}

/// Generates the connection IDs of one worker.
pub(super) struct Generator {
    ids: Arc<Ids>,
    worker: u8,
}

impl ConnectionIdGenerator for Generator {
    fn generate_cid(&mut self) -> ConnectionId {
        self.ids.make(self.worker)
    }

    fn cid_len(&self) -> usize {
        LENGTH
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

/// The number of bytes to derive.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_id_names_its_process_and_worker_to_every_process_with_the_secret() {
        let first = Arc::new(Ids::new().unwrap());
        let next = Ids::with_secret(*first.secret(), 1).unwrap();
        let mut generator = first.generator(7);
        let (one, other) = (generator.generate_cid(), generator.generate_cid());
        assert_eq!(next.owner(&one), Some(Owner { process: 0, worker: 7 }));
        assert_eq!(next.owner(&other), Some(Owner { process: 0, worker: 7 }));
        assert_ne!(one[..OWNER], other[..OWNER], "an observer sees no relation");
        assert_eq!(first.owner(&next.make(0)), Some(Owner { process: 1, worker: 0 }));
        assert_eq!(Ids::new().unwrap().owner(&one), None, "another secret");
    }

    #[test]
    fn destinations_of_short_and_long_headers_are_found() {
        let id = [7; LENGTH];
        let short = [&[0x40][..], &id, &[1, 2, 3]].concat();
        assert_eq!(destination(&short), Some(&id[..]));
        let long = [&[0xc0, 0, 0, 0, 1, 16][..], &id, &[0]].concat();
        assert_eq!(destination(&long), Some(&id[..]));
        assert_eq!(destination(&[&[0xc0, 0, 0, 0, 1, 8][..], &id].concat()), None);
        for length in 0..short.len() - 3 {
            assert_eq!(destination(&short[..length]), None);
        }
    }
}
