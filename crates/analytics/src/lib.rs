//! The database of a control plane: the analytics of APIs, the uses of quotas, and the audit trail.
//!
//! Inputs: the batches of data planes, each with the sums of a minute. Output: answers to queries, as JSON or CSV. The store is a
//! database of SQLite, in a file or in memory, or a database of PostgreSQL that several control planes share.
//!
//! A data plane keeps its batches in an [`Outbox`] until they are stored. A batch has a number, so that a repeated batch counts once.
//!
//! | module | contents |
//! |---|---|
//! | [`outbox`] | the batches that are not stored yet |
//! | `packing` | batches as bytes |
//! | [`location`] | the place of the database |
//! | [`store`] | the thread that writes, and connections for queries |
//! | `schema` | the tables, and their versions |
//! | `rows` | rows of sums |
//! | [`background`] | the sums of hours and days, and retention |
//! | `quotas` | the uses of quotas by all data planes |
//! | [`query`] | queries and their answers |
//! | [`audit`] | the audit trail |
//! | `sql` | connections to SQLite and PostgreSQL |

pub mod audit;
pub mod background;
pub mod location;
pub mod outbox;
mod packing;
pub mod query;
mod quotas;
mod rows;
mod schema;
mod sql;
pub mod store;
#[cfg(test)]
mod tests;

pub use audit::{Audit, AuditAnswer, AuditOptions, AuditStatus, Chain, ChainError, TRAIL, Verified};
pub use background::Retention;
pub use location::{Location, LocationError};
pub use outbox::{Outbox, OutboxStatus};
pub use packing::PackingError;
pub use query::{Answer, QueryError};
pub use quotas::QuotaWindow;
pub use store::{Store, StoreError, StoreOptions, StoreStatus, Stored};
