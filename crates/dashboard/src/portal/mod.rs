//! The developer portal: a second site for the users of APIs.
//!
//! A visitor sees the APIs and plans whose `catalogue.visibleTo` names a group of the visitor, or all visitors. A user also sees the
//! subscriptions, the keys and the usage of the own Consumers. The server decides for each request: the response to a request for
//! an object that the visitor may not see is the response to a request for an object that does not exist.
//!
//! | module | contents |
//! |---|---|
//! | `site` | the response to each request |
//! | `data` | the JSON documents, each for one visitor |
//! | `pace` | the pace of the changes of each user |

mod data;
mod pace;
mod site;
#[cfg(test)]
pub(crate) mod tests;

use std::io;
use std::sync::Arc;

use sluicegate_admin::{Admin, Hosts};
use sluicegate_http_server::{Counters, Plain, Server};
use sluicegate_model::feature::Quota;
use tokio::net::TcpListener;

use crate::access::{Name, TokenFile};
use crate::catalogue::Catalogue;
use crate::changes::Changes;
use crate::site::{BOUNDS, Served};
use site::PortalSite;

/// The developer portal of one process.
#[derive(Clone)]
pub struct Portal {
    /// The admin interface of the process, for the usage of Consumers.
    pub admin: Admin,
    /// The objects that the control plane serves.
    pub catalogue: Arc<dyn Catalogue>,
    /// The hosts that the portal accepts.
    pub hosts: Hosts,
    /// The users. `None`: no visitor can log in.
    pub users: Option<Arc<TokenFile>>,
    /// Makes the changes of users.
    pub changes: Arc<dyn Changes>,
    /// The uses of the quotas of a subscription.
    pub quotas: Arc<dyn Quotas>,
}

/// The uses of quotas.
pub trait Quotas: Send + Sync {
    /// The uses of these quotas of a subscription in their present windows. A quota without a use has no entry. `None`: the uses are
    /// unknown. The call may block.
    fn of(&self, subscription: &Name, quotas: &[Quota]) -> Option<Vec<QuotaUsage>>;
}

/// The uses of a quota in its present window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The name of the quota.
    pub quota: String,
    /// The requests or bytes.
    pub used: u64,
    /// The end of the window, in seconds since 1970.
    pub end: u64,
}

impl Portal {
    /// Serves until the future is dropped, which closes every connection.
    ///
    /// # Errors
    /// If `listener` is not a listening socket.
    pub async fn serve(self, listener: TcpListener) -> io::Result<()> {
        let counters = Arc::<Counters>::default();
        let handler = Served(PortalSite::new(self));
        Server { name: "the portal", bounds: BOUNDS, counters, transport: Plain, handler }
            .serve(listener)
            .await
    }
}
