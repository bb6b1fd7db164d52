//! The messages of the planes. A data plane makes one call, `Follow`, and both planes send messages on the call until
//! it ends.
//!
//! The encoding is the encoding of the model ([`sluicegate_model::encoding`]). A reader skips unknown fields, and
//! messages of an unknown kind.
//!
//! 1. The data plane sends [`Hello`], with its version and a digest of its resources.
//! 2. The control plane sends [`Welcome`]. If the Welcome requests an inventory, the data plane sends its
//!    [`Inventory`].
//! 3. The control plane sends a [`Batch`] for each difference. One batch may be several messages.
//! 4. The data plane sends [`Served`] when it serves a batch, and when it receives a [`Heartbeat`].
//! 5. If the Welcome says that the control plane stores reports, the data plane sends a [`Report`]. The control plane sends [`Stored`] when
//!    it has stored the report. The data plane then sends the next report.
//! 6. If the Welcome says that the control plane counts quotas, the data plane sends [`Uses`]. The control plane answers with [`Totals`].
//!    The data plane then sends the next uses.

use std::fmt;

use bytes::Bytes;
use minicbor::{Decode, Decoder, Encode};
use sluicegate_model::encoding::{self, Adapt as _, Fault, Maybe, Raw};
use sluicegate_model::usage::{QuotaTotal, QuotaUse};

/// A message of a data plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct FromProxy {
    /// `None` if this version does not know the kind.
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
    #[n(3)]
    Report(#[n(0)] Report),
    #[n(4)]
    Uses(#[n(0)] Uses),
}

/// The identity and state of a data plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Hello {
    /// The pod or node, for logs.
    #[n(0)]
    pub(crate) node: String,
    /// The version of the program, for logs.
    #[n(1)]
    pub(crate) build: String,
    /// The epoch of the control plane that the resources come from. Empty: no resources.
    #[cbor(n(2), with = "Raw")]
    pub(crate) epoch: Bytes,
    /// The version of the resources in that epoch.
    #[n(3)]
    pub(crate) version: u64,
    /// The digest of all resources (`resource::state_of`).
    #[cbor(n(4), with = "Raw")]
    pub(crate) state: Bytes,
}

/// All resources of a data plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Inventory {
    #[n(0)]
    pub(crate) held: Vec<Held>,
    /// Whether another message continues the inventory.
    #[n(1)]
    pub(crate) more: bool,
}

/// One resource of a data plane.
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

/// The version that a data plane serves.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Served {
    #[n(0)]
    pub(crate) version: u64,
    /// The number of resources that the data plane cannot read. For each of these resources, the data plane serves the
    /// last valid version or nothing.
    #[n(1)]
    pub(crate) refused: u32,
}

/// A report of a data plane, for the store of the control plane.
#[derive(Clone, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Report {
    /// The run of the data plane.
    #[n(0)]
    pub(crate) instance: String,
    /// The number of the report in this run.
    #[n(1)]
    pub(crate) sequence: u64,
    #[cbor(n(2), with = "Raw")]
    pub(crate) body: Bytes,
}

impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { instance, sequence, body } = self;
        f.debug_struct("Report")
            .field("instance", instance)
            .field("sequence", sequence)
            .field("bytes", &body.len())
            .finish()
    }
}

/// Uses of quotas, for the control plane to count.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Uses {
    /// The run of the data plane.
    #[n(0)]
    pub(crate) instance: String,
    /// The number of the uses in this run.
    #[n(1)]
    pub(crate) sequence: u64,
    #[n(2)]
    pub(crate) uses: Vec<QuotaUse>,
}

/// A message of a control plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct FromControl {
    /// `None` if this version does not know the kind.
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
    #[n(3)]
    Stored(#[n(0)] Stored),
    #[n(4)]
    Totals(#[n(0)] Totals),
}

/// The first message of a control plane.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Welcome {
    /// The identity of this run of the control plane. Versions of different epochs cannot be compared.
    #[cbor(n(0), with = "Raw")]
    pub(crate) epoch: Bytes,
    /// The version of the program, for logs.
    #[n(1)]
    pub(crate) build: String,
    /// Whether the control plane needs the inventory to compute the difference.
    #[n(2)]
    pub(crate) wants_inventory: bool,
    /// Whether the control plane stores reports. Older control planes do not.
    #[n(3)]
    #[cbor(default)]
    pub(crate) stores_reports: bool,
    /// Whether the control plane counts uses of quotas. Older control planes do not.
    #[n(4)]
    #[cbor(default)]
    pub(crate) counts_quotas: bool,
}

/// The difference to a version. A data plane serves the whole batch, or keeps the previous version.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Batch {
    #[n(0)]
    pub(crate) version: u64,
    /// Whether another message continues the batch.
    #[n(1)]
    pub(crate) more: bool,
    /// The last field: a message consists of its [`head`](Self::head) and of encoded changes.
    #[n(2)]
    pub(crate) changes: Vec<ResourceChange>,
}

impl Batch {
    /// The first bytes of a message with this number of changes.
    pub(crate) fn head(version: u64, more: bool, changes: usize) -> Vec<u8> {
        let batch = Self { version, more, changes: Vec::new() };
        let mut head = encoded(&FromControl { say: Some(FromControlSay::Batch(batch)) });
        // The last byte is the empty list.
        head.pop();
        let mut encoder = minicbor::Encoder::new(head);
        // Writing to memory does not fail.
        let _ = encoder.array(changes as u64);
        encoder.into_writer()
    }
}

/// A new, changed or removed resource.
#[derive(Clone, PartialEq, Encode, Decode)]
pub(crate) struct ResourceChange {
    #[n(0)]
    pub(crate) kind: u32,
    #[cbor(n(1), with = "Raw")]
    pub(crate) name: Bytes,
    /// The encoding of the resource. `None`: the resource is removed.
    #[cbor(n(2), with = "Maybe::<Raw>")]
    pub(crate) body: Option<Bytes>,
}

/// A body may be a private key.
impl fmt::Debug for ResourceChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body.as_ref().map(|_| format_args!("(confidential)"));
        f.debug_struct("ResourceChange").field("kind", &self.kind).field("body", &body).finish()
    }
}

/// The control plane is alive, and has no changes.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Heartbeat {
    #[n(0)]
    pub(crate) version: u64,
}

/// The control plane has stored a report.
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Stored {
    #[n(0)]
    pub(crate) sequence: u64,
}

/// The totals of the quotas of a [`Uses`].
#[derive(Clone, Debug, PartialEq, Encode, Decode)]
#[cbor(map)]
pub(crate) struct Totals {
    #[n(0)]
    pub(crate) sequence: u64,
    #[n(1)]
    pub(crate) totals: Vec<QuotaTotal>,
}

/// The encoding of a message, or of a part of one.
pub(crate) fn encoded<M: Encode<()>>(message: &M) -> Vec<u8> {
    encoding::encode(message, &mut ())
}

/// Decodes a message, or a part of a message.
pub(crate) fn decoded<M: for<'b> Decode<'b, ()>>(bytes: &[u8]) -> Result<M, Fault> {
    let mut decoder = Decoder::new(bytes);
    let message = decoder.decode()?;
    if decoder.position() != bytes.len() {
        return Err(Fault::Malformed("it goes on behind its end".into()));
    }
    Ok(message)
}
