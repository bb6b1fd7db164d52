//! The tunnel after a 101: bytes both ways, of any protocol (RFC 9110, 7.8).

use super::exchange::{Exchange, Persist};
use crate::failure::{Failure, Fault};
use crate::relay::{End, Relay};
use crate::stream::delivered;
use crate::upstream::Connection;

impl Exchange<'_> {
    /// Passes bytes both ways until the tunnel ends. Returns the number of bytes to the client, and the state of the
    /// client's connection. `sent` holds the bytes that the client sent behind its request.
    pub(super) async fn tunnel(
        &mut self,
        connection: &mut Connection,
        sent: &[u8],
    ) -> (u64, Persist, Result<(), Fault>) {
        let idle = self.settings().timeouts.tunnel_idle;
        let endpoint = connection.endpoint().clone();
        let mut relay = Relay::new(sent, self.scratch.reply.filled());
        self.scratch.reply.clear();
        let (client, upstream) = (&mut self.client.wire, &mut connection.socket.stream);
        let end = relay.run(client, upstream, &endpoint, &mut self.client.deadline, idle, |_| {}).await;
        if end == End::ClientBroke
            && let Some(tcp) = upstream.tcp()
        {
            // A close with unread data would discard bytes that the endpoint has not acknowledged.
            delivered(tcp).await;
        }
        let result = match end {
            End::Done | End::ClientBroke | End::EndpointBroke | End::EndpointClosed => Ok(()),
            End::Idle => Err(Fault::Upstream(Failure::BodyTimeout)),
            End::Drained => Err(Fault::Upstream(Failure::Drained)),
        };
        let persist = match end {
            // If the client still sends, a close would become a reset and lose the last bytes of the tunnel.
            End::EndpointBroke | End::EndpointClosed | End::Drained => Persist::Linger,
            End::Done | End::ClientBroke | End::Idle => Persist::Close,
        };
        (relay.moved().down, persist, result)
    }
}
