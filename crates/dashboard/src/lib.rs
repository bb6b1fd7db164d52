//! The dashboard of Sluicegate: a web application inside of the binary.
//!
//! Inputs: the pages of the admin interface of the same process, and what the control plane knows ([`Catalogue`]). Output: the
//! files of the application, and JSON of bounded size, read-only, at an address of its own. The application (`app`) is plain
//! ES modules, CSS and HTML, embedded as they are.
//!
//! | module | contents |
//! |---|---|
//! | `server` | the limits of connections, and the response to each request |
//! | `security` | the headers that protect a page in a browser |
//! | [`access`] | the login by a token, and sessions |
//! | `assets` | the embedded files |
//! | `data` | the JSON documents of the application |
//! | `list` | bounded parts of lists: `limit`, `after`, `search` |
//! | [`history`] | the rates of the last hour |
//! | [`catalogue`] | what the control plane knows: APIs and problems |

use std::sync::Arc;

use sluicegate_admin::{Admin, Hosts};

pub mod access;
mod assets;
pub mod catalogue;
mod data;
pub mod history;
mod list;
mod security;
mod server;

pub use access::{Access, TokenError, TokenFile};
pub use catalogue::{Api, Catalogue, Environment, Problem};
pub use history::History;

/// The dashboard of one process.
#[derive(Clone)]
pub struct Dashboard {
    /// The admin interface of the process, whose documents the dashboard shows.
    pub admin: Admin,
    /// What the control plane knows.
    pub catalogue: Arc<dyn Catalogue>,
    /// Whether the process is a control plane alone, which serves no requests of clients.
    pub is_control_plane: bool,
    /// The hosts that the dashboard accepts.
    pub hosts: Hosts,
    /// Who may read.
    pub access: Access,
    /// The rates of the last hour.
    pub history: Arc<History>,
}
