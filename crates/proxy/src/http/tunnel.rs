//! What follows a 101: bytes both ways, whatever they mean (RFC 9110, 7.8).

use super::exchange::Exchange;
use crate::failure::{Failure, Fault};
use crate::relay::{End, Relay};
use crate::upstream::Connection;

impl Exchange<'_> {
    /// Passes bytes both ways until the tunnel ends. Returns how many went to the client. `sent` is what the client sent
    /// behind its request.
    pub(super) async fn tunnel(
        &mut self,
        connection: &mut Connection,
        sent: &[u8],
    ) -> (u64, Result<(), Fault>) {
        let idle = self.settings().timeouts.tunnel_idle;
        let endpoint = connection.endpoint().clone();
        let mut relay = Relay::new(sent, self.scratch.reply.filled());
        self.scratch.reply.clear();
        let (client, upstream) = (&mut self.client.wire, &mut connection.socket.stream);
        let end = relay.run(client, upstream, &endpoint, &mut self.client.deadline, idle, |_| {}).await;
        let result = match end {
            End::Done | End::ClientBroke | End::EndpointBroke => Ok(()),
            End::Idle => Err(Fault::Upstream(Failure::BodyTimeout)),
            End::Drained => Err(Fault::Upstream(Failure::Drained)),
        };
        (relay.moved().down, result)
    }
}
