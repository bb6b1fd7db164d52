//! The endpoints: their processes, and how they treat requests.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use fastrand::Rng;
use tokio::sync::Notify;
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{sleep, timeout};

use super::history::{Delivery, Outcome};
use super::schedule::{End, Pod, RETRYING};
use super::wire::{Wire, chunked, letter};
use super::world::World;
use crate::net::simulated::{self, Reach, Stream};

/// How long a pod may take that never responds.
const NEVER: Duration = Duration::from_secs(3600);

/// A pod, from its start to its end.
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) plan: Pod,
    pub(super) address: SocketAddr,
    accepting: RefCell<Option<AbortHandle>>,
    orders: Cell<Orders>,
    ordered: Notify,
    /// The open connections.
    pub(super) open: Cell<usize>,
    pub(super) is_running: Cell<bool>,
    pub(super) is_silent: Cell<bool>,
    pub(super) was_silent: Cell<bool>,
    /// Treats every request well from now on.
    pub(super) is_healed: Cell<bool>,
}

/// What the connections of a pod must do. A change of a number is an order.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Orders {
    close_idle: u32,
    resets: bool,
    finish: bool,
    die: bool,
}

/// How a pod treats a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Treatment {
    Respond,
    /// Responds with the status of [`RETRYING`].
    Unavailable,
    Never,
    /// Closes the connection, or resets it, instead of a response.
    Close,
    Reset,
    /// Closes the connection within the head or the body of the response.
    CutHead,
    CutBody,
}

impl Process {
    pub(super) fn new(number: usize, plan: Pod) -> Self {
        let address = ([10, 1, plan.upstream as u8, plan.host as u8 + 1], 80).into();
        Self {
            number,
            plan,
            address,
            accepting: RefCell::default(),
            orders: Cell::default(),
            ordered: Notify::new(),
            open: Cell::new(0),
            is_running: Cell::new(false),
            is_silent: Cell::new(false),
            was_silent: Cell::new(false),
            is_healed: Cell::new(false),
        }
    }

    pub(super) fn start(self: &Rc<Self>, world: &Rc<World>) {
        self.is_running.set(true);
        simulated::replace_host(self.address, Duration::from_millis(self.plan.latency));
        self.accept(world);
    }

    /// Accepts connections, from now on.
    pub(super) fn accept(self: &Rc<Self>, world: &Rc<World>) {
        if !self.is_running.get() {
            return;
        }
        let listener = simulated::listen(self.address);
        let (pod, of_pod) = (self.clone(), world.clone());
        let task = spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await;
                spawn_local(pod.clone().serve(of_pod.clone(), stream));
            }
        });
        self.refuse(world);
        self.accepting.replace(Some(task.abort_handle()));
        world.note_reach(self, true);
    }

    /// Refuses connects, from now on.
    pub(super) fn refuse(&self, world: &World) {
        if let Some(task) = self.accepting.take() {
            task.abort();
        }
        world.note_reach(self, false);
    }

    pub(super) fn is_accepting(&self) -> bool {
        self.accepting.borrow().is_some() && !self.is_silent.get()
    }

    pub(super) fn silence(&self, world: &World, silent: bool) {
        self.is_silent.set(silent);
        self.was_silent.set(self.was_silent.get() || silent);
        let reach = if silent { Reach::Silent } else { Reach::Open };
        simulated::set_host(self.address, reach, Duration::from_millis(self.plan.latency));
        world.note_reach(self, self.is_accepting());
        world.note_silence(self, silent);
    }

    pub(super) fn close_idle(&self, resets: bool) {
        let orders = self.orders.get();
        self.order(Orders { close_idle: orders.close_idle + 1, resets, ..orders });
    }

    pub(super) fn end(&self, world: &World, end: End) {
        self.is_running.set(false);
        self.refuse(world);
        if matches!(end, End::Vanish) {
            self.silence(world, true);
        }
        let orders = self.orders.get();
        self.order(match end {
            End::Finish => Orders { finish: true, ..orders },
            End::Die | End::Vanish => Orders { die: true, ..orders },
        });
    }

    fn order(&self, orders: Orders) {
        self.orders.set(orders);
        self.ordered.notify_waiters();
    }

    /// Returns once the orders are as wanted.
    async fn wait_for(&self, is_wanted: impl Fn(&Orders) -> bool) {
        loop {
            let ordered = self.ordered.notified();
            if is_wanted(&self.orders.get()) {
                return;
            }
            ordered.await;
        }
    }

    async fn serve(self: Rc<Self>, world: Rc<World>, stream: Stream) {
        self.open.set(self.open.get() + 1);
        let _open = Open(&self);
        let mut wire = Wire::new(stream);
        let is_dead = tokio::select! {
            biased;
            () = self.wait_for(|orders| orders.die) => true,
            // The peer is gone, or the pod closes the connection: both end it.
            _ = self.serve_requests(&world, &mut wire) => false,
        };
        // The kernel of a process that died closes its sockets.
        if is_dead && world.chance(self.number as u64, 50) {
            wire.stream.reset_on_close();
        }
    }

    async fn serve_requests(&self, world: &Rc<World>, wire: &mut Wire) -> io::Result<()> {
        let mut nth = 0;
        loop {
            let before = self.orders.get();
            if before.finish && nth > 0 {
                return Ok(());
            }
            let idle = match (nth, self.plan.keep_alive) {
                (1.., Some(seconds)) => Duration::from_secs(seconds),
                _ => NEVER,
            };
            let began = wire.received.is_empty();
            let readable = async {
                match began {
                    true => wire.fill().await,
                    false => Ok(true),
                }
            };
            tokio::select! {
                biased;
                filled = readable => {
                    if !filled? {
                        return Ok(());
                    }
                }
                () = self.wait_for(|orders| *orders != before) => {
                    let now = self.orders.get();
                    if now.close_idle != before.close_idle && nth > 0 {
                        if now.resets {
                            wire.stream.reset_on_close();
                        }
                        return Ok(());
                    }
                    if now.finish {
                        return Ok(());
                    }
                    continue;
                }
                () = sleep(idle) => return Ok(()),
            }
            let Some(head) = wire.head().await? else { return Ok(()) };
            nth += 1;
            let Some(id) = head.id() else {
                world.violate("Z1: an endpoint received a request without an ID");
                return Ok(());
            };
            let mut random =
                Rng::with_seed(world.schedule.seed ^ (id as u64) << 20 ^ (self.number as u64) << 40 ^ nth);
            let treatment = self.treatment(world, id, &mut random);
            let reads_body = treatment != Treatment::Reset || random.bool();
            let at = world.deliver(Delivery {
                id,
                pod: self.number,
                connection: wire.stream.id(),
                at: world.now(),
                outcome: Outcome::Received,
                settled: world.now(),
            });
            world.log(|| {
                format!(
                    "pod {} receives request {id} as {nth} of connection {}: {treatment:?}",
                    self.number,
                    wire.stream.id()
                )
            });
            if reads_body {
                let body = wire.body(&head).await?;
                if let Some(request) = world.request(id)
                    && (body.len() != request.body.length() || body.iter().any(|byte| *byte != letter(id)))
                {
                    world.violate(&format!(
                        "Z6: request {id} reached pod {} with another body: {} bytes",
                        self.number,
                        body.len()
                    ));
                }
            }
            sleep(Duration::from_millis(match random.u8(..8) {
                _ if self.is_healed.get() => random.u64(..3),
                0 => random.u64(100..600),
                1..3 => random.u64(..40),
                _ => random.u64(..3),
            }))
            .await;
            if !self.respond(world, wire, (id, at), treatment, &mut random).await? {
                return Ok(());
            }
            if wire.stream.is_closed_by_peer() {
                return Ok(());
            }
        }
    }

    fn treatment(&self, world: &World, id: usize, random: &mut Rng) -> Treatment {
        if self.is_healed.get() || random.u8(..100) >= self.plan.bad_percent {
            return Treatment::Respond;
        }
        let retries_status = world.request(id).is_some_and(|request| request.route == RETRYING);
        match random.u8(..16) {
            0..5 => Treatment::Close,
            5..10 => Treatment::Reset,
            10 => Treatment::CutHead,
            11 => Treatment::CutBody,
            12 => Treatment::Never,
            _ if retries_status => Treatment::Unavailable,
            _ => Treatment::Close,
        }
    }

    /// Responds to a request. False if the connection ends.
    async fn respond(
        &self,
        world: &World,
        wire: &mut Wire,
        (id, delivery): (usize, usize),
        treatment: Treatment,
        random: &mut Rng,
    ) -> io::Result<bool> {
        let status = if treatment == Treatment::Unavailable { 503 } else { 200 };
        match treatment {
            Treatment::Respond | Treatment::Unavailable => {}
            Treatment::Never => {
                world.settle(delivery, Outcome::Never);
                // The gateway gives up.
                while wire.fill().await? {}
                return Ok(false);
            }
            Treatment::Close | Treatment::Reset => {
                world.settle(delivery, Outcome::Closed);
                if treatment == Treatment::Reset {
                    wire.stream.reset_on_close();
                }
                return Ok(false);
            }
            Treatment::CutHead => {
                world.settle(delivery, Outcome::Cut);
                wire.send(b"HTTP/1.1 200 OK\r\nContent-").await?;
                return Ok(false);
            }
            Treatment::CutBody => {
                world.settle(delivery, Outcome::Cut);
                let head = format!("HTTP/1.1 200 OK\r\nX-Id: {id}\r\nContent-Length: 100\r\n\r\nhalf");
                wire.send(head.as_bytes()).await?;
                return Ok(false);
            }
        }
        let finishes = self.orders.get().finish || random.u8(..20) == 0;
        let length = random.usize(..200);
        let mut response = format!("HTTP/1.1 {status} OK\r\nX-Id: {id}\r\nX-Pod: {}\r\n", self.number);
        if finishes {
            response.push_str("Connection: close\r\n");
        } else if let Some(seconds) = self.plan.keep_alive {
            response.push_str(&format!("Keep-Alive: timeout={seconds}\r\n"));
        }
        let (head, body) = match random.u8(..4) {
            0 => ("Transfer-Encoding: chunked\r\n\r\n".to_owned(), chunked(letter(id), length)),
            1 if finishes => ("\r\n".to_owned(), vec![letter(id); length]),
            _ => (format!("Content-Length: {length}\r\n\r\n"), vec![letter(id); length]),
        };
        response.push_str(&head);
        let mut response = response.into_bytes();
        response.extend_from_slice(&body);
        let cut = random.usize(..response.len() * 2);
        if (1..response.len()).contains(&cut) {
            if treatment == Treatment::Respond {
                world.settle(delivery, Outcome::Cut);
            }
            wire.send(&response[..cut]).await?;
            sleep(Duration::from_millis(random.u64(..30))).await;
            wire.send(&response[cut..]).await?;
        } else {
            wire.send(&response).await?;
        }
        world.settle(delivery, Outcome::Responded(status));
        // A connection that ends soon without notice.
        if random.u8(..12) == 0 && !self.is_healed.get() {
            let _ = timeout(Duration::from_millis(random.u64(..60)), std::future::pending::<()>()).await;
            return Ok(false);
        }
        Ok(!finishes)
    }
}

/// Counts a connection until it ends.
struct Open<'p>(&'p Process);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
    }
}
