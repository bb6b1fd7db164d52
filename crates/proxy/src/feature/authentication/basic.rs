//! Names and passwords (RFC 7617), as `htpasswd` hashes them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use aws_lc_rs::{constant_time, digest, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use foldhash::HashSet;
use md5::{Digest as _, Md5};
use sluicegate_model::feature::Basic;
use sluicegate_model::value::secret;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use super::credential::Place;

/// The limit of passwords of one policy that wait for a check or are being checked.
const WAITING_MAX: usize = 256;

/// The limit of passwords that a worker remembers as right.
const REMEMBERED_MAX: usize = 4096;

/// User names and password hashes, compiled.
#[derive(Debug)]
pub(crate) struct Passwords {
    /// Unique in this process.
    number: u64,
    users: Arc<HashMap<Box<str>, Hash>>,
    /// The header that carries the credential.
    pub(crate) place: Place,
    pub(in crate::feature) challenge: Box<[u8]>,
    pub(crate) forwards: bool,
    pub(crate) queue: Arc<CheckQueue>,
}

/// The checks of one policy. Policies take turns, so that a flood of passwords on one route does not block other routes.
#[derive(Debug)]
pub(crate) struct CheckQueue {
    waiting: AtomicUsize,
    /// Limits the checks of this policy that run, or wait for their turn beside checks of other policies.
    turns: Arc<Semaphore>,
}

/// The hash of a password.
#[derive(Clone, Debug)]
enum Hash {
    /// `$2a$`, `$2b$`, `$2y$`.
    Bcrypt(Box<str>),
    /// `{SHA}`: SHA-1, base64.
    Sha1([u8; 20]),
    /// `$apr1$SALT$HASH`.
    Apr1 { salt: Box<[u8]>, hash: Box<str> },
    /// Any other text: no password matches.
    Unknown,
}

impl Passwords {
    pub(in crate::feature) fn new(basic: &Basic, users: &secret::Passwords, number: u64) -> Self {
        let users = users.iter().map(|(user, hash)| (user.clone(), Hash::parse(hash))).collect();
        let charset = if basic.without_charset { "" } else { ", charset=\"UTF-8\"" };
        let challenge = format!("WWW-Authenticate: Basic realm=\"{}\"{charset}\r\n", basic.realm);
        Self {
            number,
            users: Arc::new(users),
            place: Place::new(&Basic::place()),
            challenge: challenge.into_bytes().into(),
            forwards: basic.forward,
            queue: Arc::new(CheckQueue::new()),
        }
    }

    /// The hash by which a worker remembers this name and password.
    pub(crate) fn mark(&self, credential: &Credential, memory: &PasswordMemory) -> [u8; 32] {
        let mut context = digest::Context::new(&digest::SHA256);
        context.update(&memory.salt);
        context.update(&self.number.to_be_bytes());
        context.update(credential.text.as_bytes());
        // A SHA-256 has 32 bytes.
        context.finish().as_ref().try_into().unwrap_or_default()
    }

    /// The check itself. The check takes about a thousand times as long as all other steps and belongs on its own thread.
    pub(crate) fn check(&self, credential: Credential) -> impl FnOnce() -> bool + Send + 'static {
        let users = self.users.clone();
        move || {
            let (user, password) = credential.parts();
            match users.get(user) {
                Some(hash) => hash.is_of(password.as_bytes()),
                None => {
                    // The check takes as long as for a known user, so that its time does not reveal user names.
                    if let Some(hash) = users.values().next() {
                        hash.is_of(password.as_bytes());
                    }
                    false
                }
            }
        }
    }
}

impl CheckQueue {
    fn new() -> Self {
        Self { waiting: AtomicUsize::new(0), turns: Arc::new(Semaphore::new((places() / 2).max(1))) }
    }

    /// Checks a password on a blocking thread; `None` if too many checks wait.
    pub(crate) async fn check(self: &Arc<Self>, check: Box<dyn FnOnce() -> bool + Send>) -> Option<bool> {
        static CHECKING: OnceLock<Arc<Semaphore>> = OnceLock::new();
        struct Waiting(Arc<CheckQueue>);
        impl Drop for Waiting {
            fn drop(&mut self) {
                self.0.waiting.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let waiting = Waiting(self.clone());
        if before >= WAITING_MAX {
            return None;
        }
        let turn = self.turns.clone().acquire_owned().await;
        let checking = CHECKING.get_or_init(|| Arc::new(Semaphore::new(places())));
        // The semaphore is fair: the longest wait ends first.
        let place = checking.clone().acquire_owned().await;
        let checked = spawn_blocking(move || {
            // A blocking task cannot be cancelled. So the task holds its permits even if the request is gone.
            let _held = (turn, place, waiting);
            check()
        });
        // A check that did not finish denies the request.
        Some(checked.await.unwrap_or(false))
    }
}

/// The limit of checks at the same time: half of the CPUs.
fn places() -> usize {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    (cpus / 2).max(1)
}

/// A name and a password.
#[derive(Debug)]
pub(crate) struct Credential {
    text: String,
    colon: usize,
}

impl Credential {
    /// Decodes what is behind `Basic `.
    pub(crate) fn decode(value: &[u8]) -> Option<Self> {
        let text = String::from_utf8(STANDARD.decode(value).ok()?).ok()?;
        let colon = text.find(':')?;
        (colon > 0).then_some(Self { text, colon })
    }

    pub(crate) fn user(&self) -> &str {
        self.parts().0
    }

    fn parts(&self) -> (&str, &str) {
        (&self.text[..self.colon], &self.text[self.colon + 1..])
    }
}

/// The passwords that a worker has verified, as salted hashes.
#[derive(Debug)]
pub(crate) struct PasswordMemory {
    salt: [u8; 32],
    young: HashSet<[u8; 32]>,
    old: HashSet<[u8; 32]>,
}

impl Default for PasswordMemory {
    fn default() -> Self {
        let mut salt = [0; 32];
        if rand::fill(&mut salt).is_err() {
            // Without a salt, a memory dump would reveal more.
            tracing::warn!("cannot get random numbers; the cache of verified passwords has no salt");
        }
        Self { salt, young: HashSet::default(), old: HashSet::default() }
    }
}

impl PasswordMemory {
    pub(crate) fn knows(&mut self, mark: &[u8; 32]) -> bool {
        if self.young.contains(mark) {
            return true;
        }
        let is_old = self.old.remove(mark);
        if is_old {
            self.remember(*mark);
        }
        is_old
    }

    pub(crate) fn remember(&mut self, mark: [u8; 32]) {
        if self.young.len() >= REMEMBERED_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(mark);
    }
}

impl Hash {
    fn parse(text: &str) -> Self {
        if ["$2a$", "$2b$", "$2y$"].iter().any(|prefix| text.starts_with(prefix)) {
            return Self::Bcrypt(text.into());
        }
        if let Some(hash) = text.strip_prefix("{SHA}") {
            let hash = STANDARD.decode(hash).ok().and_then(|hash| hash.try_into().ok());
            return hash.map_or(Self::Unknown, Self::Sha1);
        }
        match text.strip_prefix("$apr1$").and_then(|rest| rest.split_once('$')) {
            Some((salt, hash)) => Self::Apr1 { salt: salt.as_bytes().into(), hash: hash.into() },
            None => Self::Unknown,
        }
    }

    fn is_of(&self, password: &[u8]) -> bool {
        let same = |one: &[u8], other: &[u8]| constant_time::verify_slices_are_equal(one, other).is_ok();
        match self {
            Self::Bcrypt(hash) => bcrypt::verify(password, hash).unwrap_or(false),
            Self::Sha1(hash) => {
                same(hash, digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, password).as_ref())
            }
            Self::Apr1 { salt, hash } => same(hash.as_bytes(), apr1(password, salt).as_bytes()),
            Self::Unknown => false,
        }
    }
}

/// Apache's variant of crypt with MD5 (`apr_md5_encode`).
fn apr1(password: &[u8], salt: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let salt = &salt[..salt.len().min(8)];
    let inner = Md5::new().chain_update(password).chain_update(salt).chain_update(password).finalize();
    let mut first = Md5::new().chain_update(password).chain_update(b"$apr1$").chain_update(salt);
    for at in (0..password.len()).step_by(16) {
        first.update(&inner[..16.min(password.len() - at)]);
    }
    let mut length = password.len();
    while length > 0 {
        first.update(if length & 1 == 1 { &[0] } else { &password[..1] });
        length >>= 1;
    }
    let mut hash = first.finalize();
    for round in 0..1000 {
        let mut next = Md5::new();
        let is_odd = round % 2 == 1;
        next.update(if is_odd { password } else { &hash[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if is_odd { &hash[..] } else { password });
        hash = next.finalize();
    }
    let mut out = String::with_capacity(22);
    let mut push = |value: u32, characters: u32| {
        for at in 0..characters {
            out.push(char::from(ALPHABET[(value >> (6 * at)) as usize & 63]));
        }
    };
    for [a, b, c] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        push(u32::from(hash[a]) << 16 | u32::from(hash[b]) << 8 | u32::from(hash[c]), 4);
    }
    push(u32::from(hash[11]), 2);
    out
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc};
    use std::time::Duration;

    use sluicegate_model::value::Realm;
    use sluicegate_model::value::secret::FromSecret;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn cancelled_password_check_holds_its_slot_and_one_policy_cannot_block_another() {
        let (release, held) = mpsc::channel();
        let held = Arc::new(Mutex::new(held));
        let (begins, mut begun) = unbounded_channel();
        let queue = Arc::new(CheckQueue::new());
        let slow = |queue: &Arc<CheckQueue>| {
            let (queue, held, begins) = (queue.clone(), held.clone(), begins.clone());
            tokio::spawn(async move {
                let check = move || {
                    begins.send(()).expect("the test waits");
                    held.lock().expect("no panic").recv().is_ok()
                };
                queue.check(Box::new(check)).await
            })
        };
        // One policy uses all its places for checks without a waiting client, and has more checks that wait.
        let turns = (places() / 2).max(1);
        for _ in 0..turns {
            let check = slow(&queue);
            begun.recv().await.expect("it begins");
            check.abort();
            assert!(check.await.expect_err("it is broken off").is_cancelled());
        }
        let waiting: Vec<_> = (0..50).map(|_| slow(&queue)).collect();
        let next = queue.clone();
        let mut next = tokio::spawn(async move { next.check(Box::new(|| true)).await });
        assert!(timeout(Duration::from_millis(100), &mut next).await.is_err(), "all turns are taken");
        let other = Arc::new(CheckQueue::new());
        let mut other = tokio::spawn(async move { other.check(Box::new(|| true)).await });
        if places() == turns {
            assert!(timeout(Duration::from_millis(100), &mut other).await.is_err(), "all places are taken");
        }
        for _ in 0..turns + usize::from(places() == turns) {
            release.send(()).expect("they wait");
        }
        assert_eq!(other.await.expect("no panic"), Some(true), "before the 50");
        assert!(!next.is_finished());
        for _ in waiting {
            release.send(()).expect("they wait");
        }
        assert_eq!(next.await.expect("no panic"), Some(true));
    }

    #[test]
    fn bcrypt_sha1_and_apr1_hashes_verify_only_their_password() {
        for (hash, password) in [
            // htpasswd -nbB and -nbs; openssl passwd -apr1.
            ("$2y$05$c4WoMPo3SXsafkva.HHa6uXQZWr7oboPiC2bT/r7q1BB8I2s0BRqC", "myPassword"),
            ("{SHA}VBPuJHI7uixaa6LQGWx4s+5GKNE=", "myPassword"),
            ("$apr1$r31.....$HqJZimcKQFAMYayBlzkrA/", "myPassword"),
        ] {
            let hash = Hash::parse(hash);
            assert!(hash.is_of(password.as_bytes()), "{hash:?}");
            assert!(
                !hash.is_of(b"mypassword") && !hash.is_of(b"") && !hash.is_of(b"myPassword "),
                "{hash:?}"
            );
        }
        for hash in ["", "myPassword", "$1$x$y", "{SHA}x", "$2y$", "$apr1$"] {
            assert!(!Hash::parse(hash).is_of(hash.as_bytes()), "{hash}");
        }
    }

    #[test]
    fn password_of_a_basic_credential_may_contain_colons() {
        let decode = |text: &str| Credential::decode(STANDARD.encode(text).as_bytes());
        let credential = decode("alice:a:b").unwrap();
        assert_eq!(credential.parts(), ("alice", "a:b"));
        assert!(decode("alice").is_none() && decode(":x").is_none() && Credential::decode(b"%%%").is_none());
    }

    #[test]
    fn cache_of_verified_passwords_is_bounded_and_separate_for_each_policy() {
        let (realm, secret_ref) = (Realm::of("a"), FromSecret::Unusable("the test passes the users".into()));
        let basic = Basic { realm, secret_ref, forward: false, without_charset: false };
        let passwords = |hash: &str, number| Passwords::new(&basic, &vec![("u".into(), hash.into())], number);
        let (one, two) = (passwords("x", 1), passwords("y", 2));
        let mut memory = PasswordMemory::default();
        let credential = Credential::decode(STANDARD.encode("u:p").as_bytes()).unwrap();
        let mark = one.mark(&credential, &memory);
        memory.remember(mark);
        assert!(memory.knows(&mark));
        assert!(!memory.knows(&two.mark(&credential, &memory)));
        for n in 0..10_000_u32 {
            memory.remember(std::array::from_fn(|at| n.to_be_bytes().get(at).copied().unwrap_or(1)));
        }
        assert!(memory.young.len() + memory.old.len() <= REMEMBERED_MAX);
    }
}
