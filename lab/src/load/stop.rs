//! Signals, which end a load early: after the first signal the load prints its results, a second signal kills the load.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::nanos::Nanos;

/// The time between the detection of a signal and the last due requests. Each thread checks for the signal more often
/// than this, so that all threads end at the same time and the number of due requests is known.
const NOTICE: Nanos = Nanos::from_millis(150);

/// Whether a load must end early, for all of its threads.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The number of the received signal; 0 for none.
    signal: Arc<AtomicUsize>,
    /// The time of the end: 0 until a thread has seen the signal.
    end: AtomicU64,
}

/// A signal that ends a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C.
    Interrupt,
    Terminate,
}

impl Stop {
    /// Listens for signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // The order matters. At the first signal the conditional handler runs first, and does not kill the process.
            flag::register_conditional_default(signal, is_second.clone())?;
            flag::register(signal, is_second.clone())?;
            flag::register_usize(signal, stop.signal.clone(), signal.unsigned_abs() as usize)?;
        }
        Ok(stop)
    }

    /// The end of the load, if a signal requires it.
    pub(crate) fn end(&self, now: Nanos) -> Option<Nanos> {
        // The check runs often, and a signal is rare.
        if self.signal.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let end = (now + NOTICE).0;
        let set = self.end.compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed);
        Some(Nanos(set.err().unwrap_or(end)))
    }

    /// The time of the early end, and its signal.
    pub(crate) fn ended(&self) -> Option<(Nanos, Signal)> {
        let signal = match self.signal.load(Ordering::Relaxed) as i32 {
            SIGINT => Signal::Interrupt,
            SIGTERM => Signal::Terminate,
            _ => return None,
        };
        let end = self.end.load(Ordering::Relaxed);
        // If no thread has seen the signal, the signal arrived after the end of the load.
        (end > 0).then_some((Nanos(end), signal))
    }
}

impl Signal {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Interrupt => SIGINT as u8,
            Self::Terminate => SIGTERM as u8,
        }
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Interrupt => "SIGINT",
            Self::Terminate => "SIGTERM",
        })
    }
}
