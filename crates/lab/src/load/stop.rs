//! Signals, which end a load early: the first one lets it tell what it counted, a second one kills it.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use super::nanos::Nanos;

/// How long after a signal was seen the last requests are due. Each thread looks for it more often than this, so that all
/// end at the same time and what was due until then is known.
const NOTICE: Nanos = Nanos::from_millis(150);

/// Whether a load is to end early, for all of its threads.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    /// The number of the signal that came; 0 for none.
    signal: Arc<AtomicUsize>,
    /// When it ends: 0 until a thread has seen the signal.
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
    /// Listens to signals from now on.
    pub(crate) fn on_signals() -> io::Result<Self> {
        let stop = Self::default();
        let is_second = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the first signal finds that it is not the second one.
            flag::register_conditional_default(signal, is_second.clone())?;
            flag::register(signal, is_second.clone())?;
            flag::register_usize(signal, stop.signal.clone(), signal.unsigned_abs() as usize)?;
        }
        Ok(stop)
    }

    /// When the load ends, if a signal says so.
    pub(crate) fn end(&self, now: Nanos) -> Option<Nanos> {
        // It is looked at often, and is hardly ever there.
        if self.signal.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let end = (now + NOTICE).0;
        let set = self.end.compare_exchange(0, end, Ordering::Relaxed, Ordering::Relaxed);
        Some(Nanos(set.err().unwrap_or(end)))
    }

    /// When it was ended early, and by what.
    pub(crate) fn ended(&self) -> Option<(Nanos, Signal)> {
        let signal = match self.signal.load(Ordering::Relaxed) as i32 {
            SIGINT => Signal::Interrupt,
            SIGTERM => Signal::Terminate,
            _ => return None,
        };
        let end = self.end.load(Ordering::Relaxed);
        // A signal that nobody has seen came after everything was over.
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
