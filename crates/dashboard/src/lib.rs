//! The dashboard and the developer portal of Sluicegate: web applications inside of the binary.
//!
//! Inputs: the pages of the admin interface of the same process, and what the control plane knows ([`Catalogue`]). Output: the
//! files of the applications, and JSON of bounded size, at an address for each. Only operators change objects in the dashboard, if the
//! caller allows changes. The applications (`app`) are plain ES modules, CSS and HTML, embedded as they are.
//!
//! | module | contents |
//! |---|---|
//! | `site` | what both sites have in common: the limits of connections, and the way from a request to the response |
//! | `server` | the dashboard: its documents and its changes |
//! | `response` | responses, and the checks of requests |
//! | [`portal`] | the developer portal, a second site |
//! | `security` | the headers that protect a page in a browser |
//! | [`access`], `users` | the login by a token, sessions, and the users of a token file |
//! | `openid`, `login` | the login by OpenID Connect, and the steps of a browser |
//! | [`changes`] | changes that users request |
//! | `assets` | the embedded files |
//! | `data` | the JSON documents of the application |
//! | `list` | bounded parts of lists: `limit`, `after`, `search` |
//! | [`history`] | the rates of the last hour |
//! | [`catalogue`] | what the control plane knows: APIs, plans, subscriptions, Consumers and problems |

use std::sync::Arc;

use sluicegate_admin::{Admin, Hosts};

pub mod access;
mod assets;
pub mod catalogue;
pub mod changes;
mod data;
pub mod history;
mod list;
mod login;
mod openid;
pub mod portal;
mod response;
mod security;
mod server;
mod site;
mod users;

pub use access::{Access, Fault, Name, Role, SiteKind, TokenError, TokenFile, User};
pub use catalogue::{Api, Catalogue, Consumer, Environment, Key, Plan, Problem, Subscribed, Subscription};
pub use changes::{Change, ChangeError, Changes, Changing, KeyChange, NewKey};
pub use history::History;
pub use portal::{Portal, QuotaUsage, Quotas};

/// The dashboard of one process.
#[derive(Clone)]
pub struct Dashboard {
    /// The admin interface of the process, whose documents the dashboard shows.
    pub admin: Admin,
    /// The objects that the control plane serves.
    pub catalogue: Arc<dyn Catalogue>,
    /// Whether the process is a control plane alone, which serves no requests of clients.
    pub is_control_plane: bool,
    /// The hosts that the dashboard accepts.
    pub hosts: Hosts,
    /// The clients that may read.
    pub access: Access,
    /// Makes the changes of operators. `None`: the dashboard changes nothing.
    pub changes: Option<Arc<dyn Changes>>,
    /// The rates of the last hour.
    pub history: Arc<History>,
}
