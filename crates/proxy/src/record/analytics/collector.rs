//! The thread that merges the sums of workers.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::minute::Minute;
use super::{Analytics, AnalyticsBuffer, AnalyticsOut, Limit};

/// How long the thread waits for the sums of other workers. Workers look at the time each second.
const PATIENCE: Duration = Duration::from_millis(1200);
/// The number of series in a batch.
const SERIES: usize = 8192;
/// How many minutes may wait for the thread.
const QUEUE: usize = 64;

/// The thread, and what its workers need.
#[derive(Debug)]
pub(crate) struct Collector {
    limit: Arc<Limit>,
    minutes: SyncSender<Minute>,
    thread: JoinHandle<()>,
}

impl Collector {
    /// Starts the thread.
    pub(crate) fn start(analytics: &Analytics, workers: usize) -> io::Result<Self> {
        let (minutes, receiver) = sync_channel(QUEUE.max(2 * workers));
        let out = analytics.out.clone();
        let thread = std::thread::Builder::new().name("analytics".to_owned());
        let thread = thread.spawn(move || collect(&receiver, &*out))?;
        let max = analytics.max_series;
        Ok(Self { limit: Arc::new(Limit { max, left: max.into() }), minutes, thread })
    }

    /// The buffer of a worker.
    pub(crate) fn buffer(&self) -> AnalyticsBuffer {
        AnalyticsBuffer::new(self.limit.clone(), self.minutes.clone())
    }

    /// The thread, which ends after all buffers are gone and their sums are passed on.
    pub(crate) fn into_thread(self) -> JoinHandle<()> {
        self.thread
    }
}

fn collect(minutes: &Receiver<Minute>, out: &dyn AnalyticsOut) {
    let mut merged: Option<Minute> = None;
    let mut until = Instant::now();
    loop {
        let wait = match merged {
            Some(_) => until.saturating_duration_since(Instant::now()),
            None => Duration::from_secs(3600),
        };
        match minutes.recv_timeout(wait) {
            Ok(minute) => match &mut merged {
                Some(merged) if merged.minute == minute.minute => merged.merge(&minute),
                _ => {
                    pass_on(merged.replace(minute), out);
                    until = Instant::now() + PATIENCE;
                }
            },
            Err(RecvTimeoutError::Timeout) => pass_on(merged.take(), out),
            Err(RecvTimeoutError::Disconnected) => return pass_on(merged.take(), out),
        }
    }
}

fn pass_on(minute: Option<Minute>, out: &dyn AnalyticsOut) {
    for batch in minute.iter().flat_map(|minute| minute.batches(SERIES)) {
        out.batch(batch);
    }
}
