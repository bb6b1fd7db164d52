//! When a certificate is due, and the pauses after failures. Without I/O and without a clock of its own.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, SystemTime};

use crate::{Issued, Wish};

/// The factor of the pause after each further failure.
const FACTOR: u32 = 3;

/// The longest pause after failures. A limit of Let's Encrypt is 5 failed validations of a host in an hour: with the default first
/// pause of 60 s, the fifth attempt is after 40 minutes.
const PAUSE_MAX: Duration = Duration::from_secs(12 * 3600);

/// The least pause after the ACME server said that a rate limit is reached.
pub(crate) const RATE_LIMITED: Duration = Duration::from_secs(3600);

/// Renewals without a suggestion of the ACME server start at this part of the lifetime.
const RENEW_AT: f64 = 2.0 / 3.0;

/// The renewals of certificates that were issued together are spread over this part of the lifetime.
const SPREAD: f64 = 1.0 / 12.0;

/// The time from which a certificate is due.
///
/// `window` is the suggestion of the ACME server (RFC 9773, 4.2).
pub(crate) fn due(wish: &Wish, window: Option<&Range<SystemTime>>) -> SystemTime {
    let Some(issued) = wish.current.as_ref().filter(|issued| issued.covers(&wish.hosts)) else {
        return SystemTime::UNIX_EPOCH;
    };
    let by_lifetime = by_lifetime(issued);
    let Some(window) = window else { return by_lifetime };
    let length = window.end.duration_since(window.start).unwrap_or_default();
    // A server that suggests a time after the end, or an endless window, must not prevent the renewal.
    (window.start + length.mul_f64(issued.jitter())).min(latest(issued))
}

fn by_lifetime(issued: &Issued) -> SystemTime {
    issued.not_before + lifetime(issued).mul_f64(RENEW_AT + SPREAD * issued.jitter())
}

/// The latest time for a renewal: the last tenth of the lifetime remains for attempts.
fn latest(issued: &Issued) -> SystemTime {
    issued.not_before + lifetime(issued).mul_f64(0.9)
}

fn lifetime(issued: &Issued) -> Duration {
    issued.not_after.duration_since(issued.not_before).unwrap_or_default()
}

/// The failures of each host since its last success.
#[derive(Debug, Default)]
pub(crate) struct Failures(BTreeMap<Box<str>, Failure>);

#[derive(Clone, Copy, Debug)]
struct Failure {
    count: u32,
    until: SystemTime,
}

impl Failures {
    /// The time from which no host pauses.
    pub(crate) fn until(&self, hosts: &[Box<str>]) -> SystemTime {
        let of = hosts.iter().filter_map(|host| self.0.get(host));
        of.map(|failure| failure.until).max().unwrap_or(SystemTime::UNIX_EPOCH)
    }

    /// Notes a failure of these hosts, which then pause within the `limits`. Returns the end of the pause.
    pub(crate) fn fail(
        &mut self,
        hosts: &[Box<str>],
        first: Duration,
        limits: Range<Duration>,
        now: SystemTime,
    ) -> SystemTime {
        for host in hosts {
            let known = self.0.entry(host.clone()).or_insert(Failure { count: 0, until: now });
            known.until = now + pause(known.count, first).clamp(limits.start, limits.end);
            known.count = known.count.saturating_add(1);
        }
        self.until(hosts)
    }

    /// Notes a success.
    pub(crate) fn succeed(&mut self, hosts: &[Box<str>]) {
        for host in hosts {
            self.0.remove(host);
        }
    }

    /// Forgets hosts whose pause ended long ago, so that hosts that come and go take no memory for ever. A host that goes and comes
    /// again pauses as before.
    pub(crate) fn forget(&mut self, now: SystemTime) {
        self.0.retain(|_, failure| failure.until + PAUSE_MAX > now);
    }
}

/// The pause after `count` failures before this failure, with a jitter of a fifth.
pub(crate) fn pause(count: u32, first: Duration) -> Duration {
    let factor = FACTOR.checked_pow(count).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(PAUSE_MAX).mul_f64(0.9 + fastrand::f64() / 5.0)
}

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;

    use super::*;
    use crate::SecretName;
    use crate::issued::tests::certificate;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn wish(hosts: &[&str], current: Option<Issued>) -> Wish {
        let secret = SecretName { namespace: "shop".into(), name: "tls".into() };
        Wish { secret, hosts: hosts.iter().map(|host| (*host).into()).collect(), current }
    }

    fn issued(names: &[&str], not_before: SystemTime) -> Issued {
        let key = KeyPair::generate().expect("a key");
        let made = certificate(names, &key, not_before, 90 * DAY);
        Issued::of_der(made.der().clone()).expect("a certificate")
    }

    fn start() -> SystemTime {
        SystemTime::UNIX_EPOCH + 20_000 * DAY
    }

    #[test]
    fn missing_certificate_and_certificate_for_other_hosts_are_due_now() {
        assert_eq!(due(&wish(&["a.test"], None), None), SystemTime::UNIX_EPOCH);
        let other = wish(&["a.test", "b.test"], Some(issued(&["a.test"], start())));
        assert_eq!(due(&other, None), SystemTime::UNIX_EPOCH);
    }

    #[test]
    fn renewals_are_spread_after_two_thirds_of_the_lifetime() {
        let mut times: Vec<SystemTime> =
            (0..20).map(|_| due(&wish(&["a.test"], Some(issued(&["a.test"], start()))), None)).collect();
        assert!(
            times.iter().all(|time| (start() + 60 * DAY..=start() + 68 * DAY).contains(time)),
            "{times:?}"
        );
        times.sort_unstable();
        times.dedup();
        assert!(times.len() > 15, "{times:?}");
    }

    #[test]
    fn suggested_window_decides_unless_it_is_too_late() {
        let wish = wish(&["a.test"], Some(issued(&["a.test"], start())));
        let window = start() + 10 * DAY..start() + 11 * DAY;
        assert!((window.start..=window.end).contains(&due(&wish, Some(&window))));
        let late = start() + 1000 * DAY..start() + 2000 * DAY;
        assert_eq!(due(&wish, Some(&late)), start() + 81 * DAY);
        let reversed = start() + 11 * DAY..start() + 10 * DAY;
        assert_eq!(due(&wish, Some(&reversed)), start() + 11 * DAY);
    }

    #[test]
    fn hosts_pause_longer_after_each_failure_until_a_success() {
        let (mut failures, first, hosts) = (Failures::default(), Duration::from_secs(60), ["a.test".into()]);
        let mut seconds = Vec::new();
        for _ in 0..9 {
            let until = failures.fail(&hosts, first, Duration::ZERO..Duration::MAX, start());
            seconds.push(until.duration_since(start()).expect("later").as_secs());
        }
        for (at, expected) in [(0, 60), (1, 180), (2, 540), (6, 43_200), (8, 43_200)] {
            let near = expected * 9 / 10..=expected * 11 / 10;
            assert!(near.contains(&seconds[at]), "{seconds:?}");
        }
        assert_eq!(failures.until(&["b.test".into()]), SystemTime::UNIX_EPOCH, "other hosts do not pause");
        assert!(failures.until(&["b.test".into(), "a.test".into()]) > start());
        failures.succeed(&hosts);
        assert_eq!(failures.until(&hosts), SystemTime::UNIX_EPOCH);
        assert!(failures.fail(&hosts, first, RATE_LIMITED..Duration::MAX, start()) >= start() + RATE_LIMITED);
        failures.forget(start() + 2 * PAUSE_MAX);
        assert_eq!(failures.until(&hosts), SystemTime::UNIX_EPOCH);
    }
}
