//! The count of a quota of one subscription.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::QuotaKey;
use super::window::Windows;

/// The window of a counter whose window changes at this moment.
const CHANGING: u64 = u64::MAX;

/// How often a worker checks whether another worker has changed the window.
const SPINS: u32 = 1000;

/// The count in the present window. Windows start in seconds since 1970; 0: no request came yet.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) key: QuotaKey,
    windows: Windows,
    window: AtomicU64,
    /// The uses by all data planes, as far as they are known.
    used: AtomicU64,
    /// The uses that the others do not know yet. They are a part of `used`.
    pending: AtomicU64,
    /// Whether a request was denied since the last exchange. The place that counts may have lost its counts, and must learn them
    /// again, although there are no new uses.
    has_denied: AtomicBool,
    /// Whether an exchange has asked for the uses of the others.
    has_asked: AtomicBool,
    /// Uses in earlier windows that the others do not know yet.
    late: Mutex<Vec<Taken>>,
}

/// Uses in a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) window: u64,
    pub(crate) count: u64,
    /// All uses of the window that are known here, by all data planes. The place that counts may have lost its counts.
    pub(crate) known: u64,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) is_allowed: bool,
    /// How much the window still allows.
    pub(crate) left: u64,
    /// The time until the next window, in seconds.
    pub(crate) reset: u64,
}

impl Counter {
    pub(super) fn new(key: QuotaKey, windows: Windows) -> Self {
        Self {
            key,
            windows,
            window: AtomicU64::new(0),
            used: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            has_denied: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            late: Mutex::default(),
        }
    }

    /// Uses `amount` of the `most` that the window allows, unless all is used.
    pub(crate) fn count(&self, most: u64, now: u64, amount: u64) -> Counted {
        let reset = self.enter(now);
        let mut used = self.used.load(Ordering::Acquire);
        loop {
            if used >= most {
                if !self.has_denied.load(Ordering::Relaxed) {
                    self.has_denied.store(true, Ordering::Relaxed);
                }
                return Counted { is_allowed: false, left: 0, reset };
            }
            let next = used.saturating_add(amount);
            match self.used.compare_exchange_weak(used, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => break,
                Err(newer) => used = newer,
            }
        }
        if amount > 0 {
            self.pending.fetch_add(amount, Ordering::AcqRel);
        }
        Counted { is_allowed: true, left: most.saturating_sub(used.saturating_add(amount)), reset }
    }

    /// Adds a use that is known only after it happened.
    pub(crate) fn add(&self, now: u64, amount: u64) {
        self.enter(now);
        self.used.fetch_add(amount, Ordering::AcqRel);
        self.pending.fetch_add(amount, Ordering::AcqRel);
    }

    /// Gives a use back, because the request was rejected for another reason.
    pub(crate) fn give_back(&self, amount: u64) {
        let less = |count: u64| count.checked_sub(amount);
        if self.pending.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).is_ok() {
            // The result is an error if a new window began meanwhile; then there is nothing to give back.
            let _ = self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
        }
    }

    /// Whether the windows are units of the calendar.
    pub(crate) fn is_of_calendar(&self) -> bool {
        matches!(self.windows, Windows::Calendar(_))
    }

    /// The length of windows that start with the first request; 0 for windows of the calendar.
    pub(super) fn length(&self) -> u64 {
        match &self.windows {
            Windows::Calendar(_) => 0,
            Windows::FromFirstRequest(length) => *length,
        }
    }

    /// The end of the window with this start.
    pub(crate) fn end_of(&self, start: u64) -> u64 {
        match &self.windows {
            Windows::Calendar(calendar) => calendar.compute(start).map_or(start, |(_, end)| end),
            Windows::FromFirstRequest(length) => start.saturating_add(*length),
        }
    }

    /// The end of the window that is open at this time, and its uses; `None` if no request came in the window.
    pub(super) fn present(&self, now: u64) -> Option<(u64, u64)> {
        let (start, used) = (self.window.load(Ordering::Acquire), self.used.load(Ordering::Acquire));
        if start == 0 || start == CHANGING {
            return None;
        }
        let end = self.end_of(start);
        (now < end).then_some((end, used))
    }

    /// The window and its uses.
    #[cfg(test)]
    fn state(&self) -> (u64, u64) {
        (self.window.load(Ordering::Acquire), self.used.load(Ordering::Acquire))
    }

    /// Opens the window of this time, if it is not open. Returns the time until its end.
    fn enter(&self, now: u64) -> u64 {
        let mut open = self.window.load(Ordering::Acquire);
        for _ in 0..SPINS {
            if open != CHANGING {
                break;
            }
            spin_loop();
            open = self.window.load(Ordering::Acquire);
        }
        let (start, end) = match &self.windows {
            Windows::Calendar(calendar) => calendar.at(now),
            Windows::FromFirstRequest(length) if open != 0 && now < open.saturating_add(*length) => {
                (open, open + length)
            }
            Windows::FromFirstRequest(length) => (now, now + length),
        };
        // A clock that is set back does not reopen an earlier window, whose count is gone.
        if start > open {
            self.change(open, start);
        }
        end.saturating_sub(now).max(1)
    }

    /// Replaces a window by a new window without uses.
    fn change(&self, from: u64, to: u64) {
        let begun = self.window.compare_exchange(from, CHANGING, Ordering::AcqRel, Ordering::Acquire);
        if begun.is_err() {
            return;
        }
        let count = self.pending.swap(0, Ordering::AcqRel);
        let known = self.used.swap(0, Ordering::AcqRel);
        if count > 0 && from > 0 {
            self.late().push(Taken { window: from, count, known });
        }
        self.window.store(to, Ordering::Release);
    }

    /// Takes the uses that the others do not know yet.
    pub(crate) fn take(&self) -> Vec<Taken> {
        let mut taken = std::mem::take(&mut *self.late());
        let window = self.window.load(Ordering::Acquire);
        let has_denied = self.has_denied.swap(false, Ordering::Relaxed);
        if window == CHANGING || self.pending.load(Ordering::Acquire) == 0 && !has_denied {
            return taken;
        }
        let count = self.pending.swap(0, Ordering::AcqRel);
        if count > 0 || has_denied {
            taken.push(Taken { window, count, known: self.used.load(Ordering::Acquire) });
        }
        taken
    }

    /// The present window, whose uses this process does not know yet; once.
    pub(super) fn ask(&self, now: u64) -> Option<u64> {
        if self.has_asked.load(Ordering::Relaxed) || self.has_asked.swap(true, Ordering::Relaxed) {
            return None;
        }
        match &self.windows {
            Windows::Calendar(calendar) => calendar.compute(now).map(|(start, _)| start),
            Windows::FromFirstRequest(_) => Some(now),
        }
    }

    /// Keeps uses for the next exchange, because this one failed.
    pub(crate) fn put_back(&self, taken: Taken) {
        let mut late = self.late();
        match late.iter_mut().find(|late| late.window == taken.window) {
            Some(late) => {
                late.count += taken.count;
                late.known = late.known.max(taken.known);
            }
            None => late.push(taken),
        }
    }

    /// Adopts the total of all data planes in a window, which includes all uses that were taken here.
    pub(crate) fn merge(&self, (window, total): (u64, u64), now: u64) {
        let open = self.window.load(Ordering::Acquire);
        if open == CHANGING {
            return;
        }
        if let Windows::FromFirstRequest(length) = &self.windows
            && window != open
        {
            // Another data plane had the first request.
            let is_open = now < window.saturating_add(*length) && window <= now;
            let is_taken = is_open
                && self.window.compare_exchange(open, window, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !is_taken {
                return;
            }
        } else if window != open {
            // The answer to a question before the first request.
            let is_open = open == 0 && window <= now && now < self.end_of(window);
            let is_taken = is_open
                && self.window.compare_exchange(0, window, Ordering::AcqRel, Ordering::Acquire).is_ok();
            if !is_taken {
                return;
            }
        }
        let kept: u64 = self.late().iter().filter(|late| late.window == window).map(|late| late.count).sum();
        let mut used = self.used.load(Ordering::Acquire);
        loop {
            let next = total.saturating_add(self.pending.load(Ordering::Acquire)).saturating_add(kept);
            match self.used.compare_exchange_weak(used, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(newer) => used = newer,
            }
        }
    }

    fn late(&self) -> std::sync::MutexGuard<'_, Vec<Taken>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for Counter {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for Counter {}

#[cfg(test)]
mod tests {
    use sluicegate_model::usage::QuotaName;

    use super::*;

    fn counter(fields: &str) -> Counter {
        let quota = format!("{{\"name\": \"a\", \"requests\": 1, {fields}}}");
        let windows = Windows::new(&serde_json::from_str(&quota).unwrap());
        let name = QuotaName { subscription: "shop/a".into(), quota: "a".into(), terms: "".into() };
        let key = QuotaKey { name, server: None };
        Counter::new(key, windows)
    }

    const DAY: u64 = 86_400;
    const NOW: u64 = 20_000 * DAY + 100;

    #[test]
    fn calendar_quota_allows_exactly_its_requests_in_each_window() {
        let counter = counter("\"calendar\": \"Day\"");
        let count = |now| counter.count(3, now, 1);
        let reset = DAY - 100;
        assert_eq!(count(NOW), Counted { is_allowed: true, left: 2, reset });
        assert_eq!([count(NOW), count(NOW)].map(|counted| counted.left), [1, 0]);
        assert_eq!(count(NOW), Counted { is_allowed: false, left: 0, reset });
        assert!(!count(NOW + reset - 1).is_allowed);
        assert_eq!(count(NOW + reset), Counted { is_allowed: true, left: 2, reset: DAY });
        // The clock is set back.
        assert_eq!(count(NOW).left, 1);
    }

    #[test]
    fn present_use_is_of_the_open_window() {
        let counter = counter("\"period\": \"1h\"");
        assert_eq!(counter.present(NOW), None);
        counter.count(9, NOW, 1);
        counter.count(9, NOW + 5, 1);
        assert_eq!(counter.present(NOW + 3599), Some((NOW + 3600, 2)));
        assert_eq!(counter.present(NOW + 3600), None, "the window has ended");
    }

    #[test]
    fn window_from_the_first_request_ends_after_its_period() {
        let counter = counter("\"period\": \"1h\"");
        let count = |now| counter.count(2, now, 1).is_allowed;
        assert_eq!([count(NOW), count(NOW + 3599), count(NOW + 3599)], [true, true, false]);
        assert_eq!([count(NOW + 3700), count(NOW + 3700 + 3599)], [true, true], "from its own first request");
        assert!(!count(NOW + 3700 + 3599));
        assert!(count(NOW + 3700 + 3600));
    }

    #[test]
    fn totals_of_all_data_planes_include_each_use_once() {
        let counter = counter("\"calendar\": \"Day\"");
        let window = NOW - 100;
        counter.count(10, NOW, 1);
        counter.count(10, NOW, 1);
        assert_eq!(counter.take(), [Taken { window, count: 2, known: 2 }]);
        assert_eq!(counter.take(), []);
        counter.count(10, NOW, 1);
        // Others have used five.
        counter.merge((window, 7), NOW);
        assert_eq!(counter.state(), (window, 8));
        // The exchange fails: the uses stay, and the total does not lose them.
        let taken = counter.take();
        taken.iter().for_each(|taken| counter.put_back(*taken));
        counter.merge((window, 7), NOW);
        assert_eq!(counter.state(), (window, 8));
        assert_eq!(counter.take(), taken);
        // A total of yesterday says nothing about today.
        counter.merge((window - DAY, 100), NOW);
        assert_eq!(counter.state(), (window, 8));
    }

    #[test]
    fn uses_of_an_ended_window_are_still_reported() {
        let counter = counter("\"calendar\": \"Day\"");
        counter.count(10, NOW, 1);
        counter.count(10, NOW + DAY, 1);
        let window = NOW - 100;
        let taken = |window| Taken { window, count: 1, known: 1 };
        assert_eq!(counter.take(), [taken(window), taken(window + DAY)]);
    }

    #[test]
    fn data_planes_adopt_the_earliest_window_from_the_first_request() {
        let counter = counter("\"period\": \"1h\"");
        counter.count(10, NOW, 1);
        counter.take();
        counter.merge((NOW - 600, 4), NOW);
        assert_eq!(counter.state(), (NOW - 600, 4));
        assert_eq!(counter.count(10, NOW + 1, 1).reset, 3600 - 601);
        counter.merge((NOW - 4000, 9), NOW);
        assert_eq!(counter.state(), (NOW - 600, 5), "an ended window");
    }

    #[test]
    fn denied_request_tells_the_total_again_without_a_new_use() {
        let counter = counter("\"calendar\": \"Day\"");
        assert!(counter.count(1, NOW, 1).is_allowed);
        let window = NOW - 100;
        assert_eq!(counter.take(), [Taken { window, count: 1, known: 1 }]);
        assert!(!counter.count(1, NOW, 1).is_allowed);
        assert_eq!(counter.take(), [Taken { window, count: 0, known: 1 }]);
        assert_eq!(counter.take(), []);
    }

    #[test]
    fn concurrent_workers_allow_exactly_as_many_requests_as_the_quota() {
        let counter = counter("\"calendar\": \"Day\"");
        let allowed = || (0..50_000).filter(|_| counter.count(60_000, NOW, 1).is_allowed).count();
        let total: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(allowed)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(total, 60_000);
        assert_eq!(counter.take().iter().map(|taken| taken.count).sum::<u64>(), 60_000);
    }
}
