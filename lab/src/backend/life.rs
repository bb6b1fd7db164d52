//! The life of a pod: a late start, signals, and several ways to end.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::answer::Pod;
use super::args::{BackendArgs, Exit};
use super::body;
use super::connections::IDLE_TICKS;
use super::journal::Writer;
use super::server::Server;

/// The state of the pod after the signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// The process exits.
    Exit,
    /// The process keeps running, but stops all work.
    Hang,
}

/// Runs the pod.
pub(crate) fn run(args: &BackendArgs) -> anyhow::Result<ExitCode> {
    // The backend fails before the start-up if it cannot write the journal.
    let journal = args.journal.as_deref().map(Writer::open).transpose()?;
    allow_files();
    let name = args.name_for_header();
    let message = body::message(args.grpc_size);
    let pod = Pod { name, journal, message, patience: args.idle_timeout };
    let mut server = Server::new(pod, &args.listen);
    let runtime = runtime()?;
    if runtime.block_on(live(args, &mut server))? == End::Hang {
        // The listeners and connections are in the runtime, which does not run any more.
        self::runtime()?.block_on(async { anyhow::Ok(Signals::listen()?.interrupt.recv().await) })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The runtime has one thread, because a pod is small.
fn runtime() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}

async fn live(args: &BackendArgs, server: &mut Server) -> anyhow::Result<End> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        () = tokio::time::sleep(args.start_up) => {}
        // Before the start-up the pod has no connections, so every way to end is an exit.
        _ = signals.interrupt.recv() => return Ok(End::Exit),
        _ = signals.terminate.recv() => return Ok(End::Exit),
    }
    server.accept().await?;
    if !args.quiet {
        let addresses: Vec<String> = server.addresses().iter().map(ToString::to_string).collect();
        // A closed output is no error.
        let _ = writeln!(io::stdout(), "{} serves at {}", args.name, addresses.join(", "));
    }
    let mut idle = tokio::time::interval(args.idle_timeout / IDLE_TICKS);
    // After a stall, the interval skips the missed ticks.
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = signals.interrupt.recv() => return Ok(End::Exit),
            _ = signals.terminate.recv() => break,
            _ = signals.user1.recv() => server.refuse().await,
            _ = signals.user2.recv() => server.accept().await?,
            _ = idle.tick() => server.close_idle(),
        }
    }
    tokio::select! {
        _ = signals.interrupt.recv() => Ok(End::Exit),
        end = terminate(args.exit, args.drain_timeout, server) => Ok(end),
    }
}

/// Carries out SIGTERM.
async fn terminate(exit: Exit, drain_timeout: Duration, server: &mut Server) -> End {
    match exit {
        Exit::AtOnce => End::Exit,
        Exit::Hang => End::Hang,
        Exit::Drain => {
            server.drain(drain_timeout).await;
            End::Exit
        }
        Exit::Refuse => {
            server.refuse().await;
            std::future::pending().await
        }
    }
}

/// The signals since the beginning of listening for them.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    user1: Signal,
    user2: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
        })
    }
}

/// Each connection is a file, and a shell usually allows 1024.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile);
    // If the limit cannot be raised, connections wait for others to end.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
