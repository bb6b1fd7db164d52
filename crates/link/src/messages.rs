//! What the planes say to each other. A data plane makes one call, `Follow`, and both sides send messages on it until it ends.
//!
//! The encoding is that of the model ([`sluicegate_model::encoding`]). Unknown fields of a message are skipped, and so is a
//! message of an unknown kind.
//!
//! 1. The data plane sends [`Hello`], with what it has.
//! 2. The control plane sends [`Welcome`]. If that asks for it, the data plane sends its [`Inventory`].
//! 3. The control plane sends a [`Batch`] for each difference. One batch may be several messages.
//! 4. The data plane sends [`Served`] when it serves a batch, and when it gets a [`Heartbeat`].

use std::fmt;

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode};
use sluicegate_model::encoding::{self, Adapt as _, Fault, Maybe, Raw};

/// A message of a data plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct FromProxy {
    /// Nothing, if it is of a kind that this version does not know.
    #[n(0)]
    pub(crate) say: Option<FromProxySay>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) enum FromProxySay {
    #[n(0)]
    Hello(#[n(0)] Hello),
    #[n(1)]
    Inventory(#[n(0)] Inventory),
    #[n(2)]
    Served(#[n(0)] Served),
}

/// Who calls, and what it has.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Hello {
    /// The pod or node, for people.
    #[n(0)]
    pub(crate) node: String,
    /// The version of the program, for people.
    #[n(1)]
    pub(crate) build: String,
    /// The epoch of the control plane whose configuration it has; empty, if it has none.
    #[cbor(n(2), with = "Raw")]
    pub(crate) epoch: Bytes,
    /// The version that it has of that epoch.
    #[n(3)]
    pub(crate) version: u64,
    /// The digest of all that it has (`resource::state_of`).
    #[cbor(n(4), with = "Raw")]
    pub(crate) state: Bytes,
}

/// All resources that a data plane has.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Inventory {
    #[n(0)]
    pub(crate) held: Vec<Held>,
    /// Whether another message goes on with it.
    #[n(1)]
    pub(crate) more: bool,
}

/// One resource that a data plane has.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
pub(crate) struct Held {
    #[n(0)]
    pub(crate) kind: u32,
    #[cbor(n(1), with = "Raw")]
    pub(crate) name: Bytes,
    /// The first 16 bytes of the SHA-256 of its body.
    #[cbor(n(2), with = "Raw")]
    pub(crate) digest: Bytes,
}

/// What a data plane serves.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Served {
    #[n(0)]
    pub(crate) version: u64,
    /// How many resources it serves in an older form or not at all, because it cannot read them.
    #[n(1)]
    pub(crate) refused: u32,
}

/// A message of a control plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct FromControl {
    /// Nothing, if it is of a kind that this version does not know.
    #[n(0)]
    pub(crate) say: Option<FromControlSay>,
}

#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) enum FromControlSay {
    #[n(0)]
    Welcome(#[n(0)] Welcome),
    #[n(1)]
    Batch(#[n(0)] Batch),
    #[n(2)]
    Heartbeat(#[n(0)] Heartbeat),
}

/// The first message of a control plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Welcome {
    /// Which run of a control plane it is: versions of different epochs cannot be compared.
    #[cbor(n(0), with = "Raw")]
    pub(crate) epoch: Bytes,
    /// The version of the program, for people.
    #[n(1)]
    pub(crate) build: String,
    /// Whether the difference is not known, and the inventory is needed for it.
    #[n(2)]
    pub(crate) wants_inventory: bool,
}

/// What leads to a version. It is served as a whole, or not at all.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Batch {
    #[n(0)]
    pub(crate) version: u64,
    /// Whether another message goes on with it.
    #[n(1)]
    pub(crate) more: bool,
    /// The last field: a message is made of its [`head`](Self::head) and of changes that are encoded already.
    #[n(2)]
    pub(crate) changes: Vec<ResourceChange>,
}

impl Batch {
    /// What a message begins with that has this number of changes.
    pub(crate) fn head(version: u64, more: bool, changes: usize) -> Vec<u8> {
        let batch = Self { version, more, changes: Vec::new() };
        let mut head = encoded(&FromControl { say: Some(FromControlSay::Batch(batch)) });
        // The list without items is its last byte.
        head.pop();
        let mut encoder = minicbor::Encoder::new(head);
        // Memory takes all bytes.
        let _ = encoder.array(changes as u64);
        encoder.into_writer()
    }
}

/// A resource that is new or another one now, or that is gone.
#[derive(Clone, PartialEq, Encode, Decode)]
pub(crate) struct ResourceChange {
    #[n(0)]
    pub(crate) kind: u32,
    #[cbor(n(1), with = "Raw")]
    pub(crate) name: Bytes,
    /// Its encoding, if it is not gone.
    #[cbor(n(2), with = "Maybe::<Raw>")]
    pub(crate) body: Option<Bytes>,
}

/// Bodies may be keys.
impl fmt::Debug for ResourceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(|_| format_args!("(confidential)"));
        f.debug_struct("ResourceChange").field("kind", &self.kind).field("body", &body).finish()
    }
}

/// The control plane is there, and has nothing new.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Heartbeat {
    #[n(0)]
    pub(crate) version: u64,
}

/// The encoding of a message, or of a part of one.
pub(crate) fn encoded<M: Encode<()>>(message: &M) -> Vec<u8> {
    encoding::encode(message, &mut ())
}

/// Reads a message, or a part of one.
pub(crate) fn decoded<M: for<'b> Decode<'b, ()>>(bytes: &[u8]) -> Result<M, Fault> {
    let mut decoder = Decoder::new(bytes);
    let message = decoder.decode()?;
    if decoder.position() != bytes.len() {
        return Err(Fault::Malformed("it goes on behind its end".into()));
    }
    Ok(message)
}
