//! The clients.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::history::{Attempted, Received};
use super::schedule::{Body, Request};
use super::wire::{Wire, chunked, letter};
use super::world::{GATEWAY, World};
use crate::net::simulated;

/// The longest that a request may take, beyond every limit of the gateway.
const STUCK: Duration = Duration::from_secs(60);

/// Sends requests in order, each when its time has come or the previous request has ended.
pub(super) async fn run(world: Rc<World>, mut requests: mpsc::UnboundedReceiver<Request>) {
    let mut idle: Option<Wire> = None;
    while let Some(request) = requests.recv().await {
        let mut is_repeated = false;
        loop {
            let pooled = idle.take().filter(|wire| !request.fresh && !wire.stream.is_closed_by_peer());
            let is_reused = pooled.is_some();
            let start = world.now();
            let exchange = async {
                match request.abort {
                    None => exchange(&world, &request, pooled).await,
                    Some(after) => {
                        let exchange = exchange(&world, &request, pooled);
                        let aborted = timeout(Duration::from_millis(after), exchange).await;
                        aborted.unwrap_or((Received::Aborted, None))
                    }
                }
            };
            let (result, wire) = timeout(STUCK, exchange).await.unwrap_or((Received::Stuck, None));
            idle = wire;
            let end = world.now();
            world.log(|| format!("client {} with request {}: {result:?}", request.client, request.id));
            let is_race = result == Received::Nothing && is_reused && world.closes_idle(end);
            world.receive(request.id, Attempted { start, end, result });
            if !is_race || std::mem::replace(&mut is_repeated, true) {
                break;
            }
        }
    }
}

async fn exchange(world: &World, request: &Request, idle: Option<Wire>) -> (Received, Option<Wire>) {
    let mut wire = match idle {
        Some(wire) => wire,
        None => match simulated::connect(GATEWAY.into()).await {
            Ok(stream) => Wire::new(stream),
            Err(_) => return (Received::Refused, None),
        },
    };
    world.log(|| format!("client {} sends request {}: {request:?}", request.client, request.id));
    let mut is_answered = false;
    match send_and_receive(&mut wire, request, &mut is_answered).await {
        Ok(Some(received)) => {
            let is_open = matches!(received, Received::Response { closes: false, .. });
            (received, is_open.then_some(wire))
        }
        Ok(None) | Err(_) if is_answered => (Received::Cut, None),
        Ok(None) | Err(_) => (Received::Nothing, None),
    }
}

async fn send_and_receive(
    wire: &mut Wire,
    request: &Request,
    is_answered: &mut bool,
) -> io::Result<Option<Received>> {
    let Request { id, method, body, route, .. } = request;
    let letter = letter(*id);
    let mut head = format!("{} /{route}/{id} HTTP/1.1\r\nHost: a\r\n", method.name());
    let body = match *body {
        Body::None => Vec::new(),
        Body::Length(length) => {
            head.push_str(&format!("Content-Length: {length}\r\n"));
            vec![letter; length]
        }
        Body::Chunked(length) => {
            head.push_str("Transfer-Encoding: chunked\r\n");
            chunked(letter, length)
        }
    };
    head.push_str("\r\n");
    let mut bytes = head.into_bytes();
    let split = bytes.len() + body.len() / 2;
    bytes.extend_from_slice(&body);
    // Half of the bodies arrive in two parts.
    let split = if id % 2 == 0 { split } else { bytes.len() };
    let sent = async {
        wire.send(&bytes[..split]).await?;
        if split < bytes.len() {
            sleep(Duration::from_millis(*id as u64 % 7)).await;
            wire.send(&bytes[split..]).await?;
        }
        Ok::<_, io::Error>(())
    };
    // A response may come before the gateway has taken the whole request.
    let _ = sent.await;
    let Some(head) = wire.head().await? else { return Ok(None) };
    *is_answered = true;
    let body = wire.body(&head).await?;
    let number = |name| head.value(name).and_then(|value| value.parse().ok());
    let of_endpoint = number("x-id");
    let is_intact = of_endpoint.is_none() || body.iter().all(|byte| *byte == letter);
    let closes = head.value("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    Ok(Some(Received::Response {
        status: head.status(),
        id: of_endpoint,
        pod: number("x-pod"),
        is_intact,
        closes,
    }))
}
