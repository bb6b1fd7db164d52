//! The addresses of a service.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::Instant;

use crate::http_client::Server;

/// How long the gateway uses the addresses of a name.
const GOOD_FOR: Duration = Duration::from_secs(10);

/// How long the gateway does not look up a name without addresses again.
const BAD_FOR: Duration = Duration::from_secs(1);

/// The addresses of a service, as one worker knows them.
#[derive(Default)]
pub(super) struct Addresses {
    known: RefCell<Option<Known>>,
    /// The look-up in flight. Each look-up takes a thread, so there is only one, even if many requests wait and give up.
    lookup: Mutex<Option<JoinHandle<io::Result<Vec<SocketAddr>>>>>,
}

struct Known {
    until: Instant,
    addresses: Result<Rc<[SocketAddr]>, io::ErrorKind>,
}

impl Addresses {
    /// At least one address.
    pub(super) async fn of(&self, server: &Server) -> io::Result<Rc<[SocketAddr]>> {
        if let Ok(address) = server.host.parse::<IpAddr>() {
            return Ok([SocketAddr::new(address, server.port)].into());
        }
        if let Some(known) = self.known() {
            return known;
        }
        let mut lookup = self.lookup.lock().await;
        // Another request may have finished the look-up during the wait.
        if let Some(known) = self.known() {
            return known;
        }
        let running = lookup.get_or_insert_with(|| {
            let (host, port) = (server.host.to_string(), server.port);
            spawn_local(async move { Ok(lookup_host((host, port)).await?.collect()) })
        });
        let found = running.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        *lookup = None;
        let addresses = match found {
            Ok(found) if found.is_empty() => Err(io::ErrorKind::NotFound),
            Ok(found) => Ok(found.into()),
            Err(error) => Err(error.kind()),
        };
        let time_to_live = if addresses.is_ok() { GOOD_FOR } else { BAD_FOR };
        let until = Instant::now() + time_to_live;
        *self.known.borrow_mut() = Some(Known { until, addresses: addresses.clone() });
        addresses.map_err(Into::into)
    }

    /// No address responds: the gateway looks the name up again.
    pub(super) fn doubt(&self) {
        self.known.borrow_mut().take_if(|known| known.addresses.is_ok());
    }

    fn known(&self) -> Option<io::Result<Rc<[SocketAddr]>>> {
        let known = self.known.borrow();
        let known = known.as_ref().filter(|known| Instant::now() < known.until)?;
        Some(known.addresses.clone().map_err(Into::into))
    }
}
