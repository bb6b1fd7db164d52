//! The changes of an experiment, with their times.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::Context;
use sluicegate_netns::Namespace;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::probe;
use super::running::Gateway;
use super::stage::Stage;
use crate::certificate::Issuer;
use crate::experiment::Step;
use crate::gateway::{Config, Part};
use crate::results::Followed;

/// The time before the gateway is notified again of a change that it did not accept.
const AGAIN: Duration = Duration::from_secs(1);

/// A step with its time, since the first request was due.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Moment {
    pub(crate) at: Duration,
    pub(crate) step: Step,
}

/// The steps of a timeline within this time, with repetitions expanded and without the pauses.
pub(crate) fn moments(steps: &[Step], within: Duration) -> Vec<Moment> {
    let mut moments = Vec::new();
    let mut at = Duration::ZERO;
    unroll(steps, within, &mut at, &mut moments);
    moments
}

fn unroll(steps: &[Step], within: Duration, at: &mut Duration, moments: &mut Vec<Moment>) {
    for step in steps {
        if *at >= within {
            return;
        }
        match step {
            Step::Sleep(time) => *at += *time,
            Step::Repeat(steps) => loop {
                let before = *at;
                unroll(steps, within, at, moments);
                // Steps without a pause would never end.
                if *at >= within || *at == before {
                    break;
                }
            },
            step => moments.push(Moment { at: *at, step: step.clone() }),
        }
    }
}

/// The total number of pods that are started, including these first pods.
pub(crate) fn pods_needed(moments: &[Moment], first: usize) -> usize {
    let (mut now, mut needed) = (first, first);
    for moment in moments {
        match moment.step {
            Step::Scale(count) => {
                needed += count.saturating_sub(now);
                now = count;
            }
            Step::Roll { .. } => needed += now,
            _ => {}
        }
    }
    needed
}

/// The changes, their times, and their effects.
#[derive(Debug, Default)]
pub(crate) struct Happened {
    pub(crate) events: Vec<(SystemTime, &'static str, String)>,
    pub(crate) followed: Vec<(SystemTime, Followed)>,
}

/// Carries out a timeline.
pub(crate) struct Player<'p> {
    pub(crate) stage: &'p mut Stage,
    pub(crate) gateway: &'p mut Gateway,
    pub(crate) issuer: &'p mut Issuer,
    /// The delay between an event and the notification of the gateway.
    pub(crate) notice: Duration,
    pub(crate) happened: &'p mut Happened,
    probes: JoinSet<anyhow::Result<(SystemTime, Followed)>>,
    /// The number of changes of each kind that the gateway was notified of.
    told: HashMap<&'static str, Arc<AtomicU64>>,
    generation: usize,
    /// A change that the gateway did not accept, for another notification.
    untold: Option<Part>,
}

impl<'p> Player<'p> {
    pub(crate) fn new(
        stage: &'p mut Stage,
        gateway: &'p mut Gateway,
        issuer: &'p mut Issuer,
        notice: Duration,
        happened: &'p mut Happened,
    ) -> Self {
        let probes = JoinSet::new();
        Self {
            stage,
            gateway,
            issuer,
            notice,
            happened,
            probes,
            told: HashMap::new(),
            generation: 0,
            untold: None,
        }
    }

    /// Carries out the steps, from `start` to `end`.
    pub(crate) async fn play(
        mut self,
        moments: &[Moment],
        start: Instant,
        end: Instant,
    ) -> anyhow::Result<()> {
        for Moment { at, step } in moments {
            self.wait(start + *at).await?;
            // A slow step may take the time of the next step.
            if Instant::now() >= end {
                break;
            }
            self.step(step).await.with_context(|| format!("{step:?}, {at:?} after the start"))?;
        }
        self.wait(end).await?;
        while let Some(followed) = self.probes.join_next().await {
            self.happened.followed.push(followed??);
        }
        Ok(())
    }

    /// Waits, and repeats failed notifications in the meantime, as controllers do.
    async fn wait(&mut self, until: Instant) -> anyhow::Result<()> {
        while let Some(part) = self.untold {
            let next = Instant::now() + AGAIN;
            if next >= until {
                break;
            }
            sleep_until(next).await;
            self.change(part, |_| ())?;
        }
        sleep_until(until).await;
        Ok(())
    }

    /// Changes a part and notifies the gateway. A gateway that accepts no change at the moment does not end the
    /// experiment. The report shows the failure.
    fn change(&mut self, part: Part, change: impl FnOnce(&mut Config)) -> anyhow::Result<()> {
        self.gateway.ensure_running()?;
        self.untold = None;
        if let Err(error) = self.gateway.change(part, change) {
            self.untold = Some(part);
            self.happen("untold", format!("{error:#}"));
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Scale(count) => self.scale(*count).await,
            Step::Roll { surge } => self.roll((*surge).max(1)).await,
            Step::Blackhole(count) => {
                self.happen("blackhole", format!("{count} silent"));
                self.stage.blackhole(*count)
            }
            Step::Restore => {
                self.happen("restore", "all there again".to_owned());
                self.stage.restore()
            }
            Step::Refuse(count) => {
                self.happen("refuse", format!("{count} refusing"));
                self.stage.refuse(*count)
            }
            Step::Accept => {
                self.happen("accept", "all accept".to_owned());
                self.stage.accept()
            }
            Step::Rotate => self.rotate(),
            Step::Routes(count) => self.routes(*count),
            Step::Sleep(_) | Step::Repeat(_) => Ok(()),
        }
    }

    async fn scale(&mut self, count: usize) -> anyhow::Result<()> {
        let now = self.stage.len();
        self.happen("scale", format!("{count} pods"));
        if count > now {
            let names = self.stage.add(count - now).await?;
            self.tell(names).await
        } else if count < now {
            self.stage.kill(now - count)?;
            self.tell(Vec::new()).await
        } else {
            Ok(())
        }
    }

    /// Replaces pods as a Deployment does: the gateway knows the ready new pods before the lab kills old pods.
    async fn roll(&mut self, surge: usize) -> anyhow::Result<()> {
        let mut left = self.stage.len();
        self.happen("roll", format!("restart of {left}"));
        while left > 0 {
            let batch = surge.min(left);
            let names = self.stage.add(batch).await?;
            self.tell(names).await?;
            self.stage.kill(batch)?;
            self.tell(Vec::new()).await?;
            left -= batch;
        }
        Ok(())
    }

    /// Notifies the gateway of the current pods; `new` are new pods.
    async fn tell(&mut self, new: Vec<String>) -> anyhow::Result<()> {
        sleep(self.notice).await;
        let endpoints = self.stage.endpoints();
        self.change(Part::Endpoints, |config| config.endpoints = endpoints)?;
        if let Some(pod) = new.into_iter().next_back() {
            let address = self.gateway.site.http;
            self.probe("scale", move || {
                probe::get(address, crate::gateway::HOST, "/")
                    .is_ok_and(|answer| answer.pod.as_ref() == Some(&pod))
            });
        }
        Ok(())
    }

    fn rotate(&mut self) -> anyhow::Result<()> {
        let (pem, leaf) = self.issuer.issue()?;
        self.happen("rotate", "new certificate".to_owned());
        self.change(Part::Certificate, |config| config.certificate = pem)?;
        let (address, config) = (self.gateway.site.https, self.issuer.client());
        self.probe("rotate", move || probe::certificate(address, &config).is_ok_and(|shown| shown == leaf));
        Ok(())
    }

    fn routes(&mut self, count: usize) -> anyhow::Result<()> {
        self.generation += 1;
        let generation = self.generation;
        let hosts: Vec<String> =
            (0..count).map(|number| format!("r{number}.g{generation}.example.com")).collect();
        let last = hosts.last().cloned();
        self.happen("routes", format!("{count} new routes"));
        self.change(Part::Hosts, |config| config.hosts = hosts)?;
        if let Some(host) = last {
            let address = self.gateway.site.http;
            self.probe("routes", move || {
                probe::get(address, &host, "/").is_ok_and(|answer| answer.status == 200)
            });
        }
        Ok(())
    }

    fn happen(&mut self, kind: &'static str, text: String) {
        self.happened.events.push((SystemTime::now(), kind, text));
    }

    /// Checks beside the load when the new configuration takes effect.
    fn probe(&mut self, kind: &'static str, holds: impl FnMut() -> bool + Send + 'static) {
        let (namespace, told): (Arc<Namespace>, _) = (Arc::clone(&self.stage.namespace), SystemTime::now());
        let newest = Arc::clone(self.told.entry(kind).or_default());
        let number = newest.fetch_add(1, Ordering::Relaxed) + 1;
        self.probes.spawn_blocking(move || {
            let is_newest = || newest.load(Ordering::Relaxed) == number;
            let took = probe::follow(&namespace, holds, is_newest)?;
            let took_ms = took.map(|took| took.as_secs_f64() * 1e3);
            let is_overtaken = took.is_none() && !is_newest();
            Ok((told, Followed { at_s: 0.0, kind: kind.to_owned(), took_ms, is_overtaken }))
        });
    }
}

impl Drop for Player<'_> {
    /// The run does not need further results of the probes, which would keep the namespace for seconds.
    fn drop(&mut self) {
        for newest in self.told.values() {
            newest.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    #[test]
    fn repeated_steps_of_a_timeline_continue_until_the_load_ends() {
        let cycle = vec![Step::Scale(5), Step::Sleep(seconds(12)), Step::Scale(7), Step::Sleep(seconds(10))];
        let moments = moments(&[Step::Sleep(seconds(1)), Step::Repeat(cycle)], seconds(36));
        let times: Vec<(u64, Step)> =
            moments.iter().map(|moment| (moment.at.as_secs(), moment.step.clone())).collect();
        assert_eq!(
            times,
            [(1, Step::Scale(5)), (13, Step::Scale(7)), (23, Step::Scale(5)), (35, Step::Scale(7))]
        );
        assert_eq!(pods_needed(&moments, 5), 9);
    }

    #[test]
    fn repeated_timeline_steps_without_a_pause_run_once() {
        let moments = moments(&[Step::Repeat(vec![Step::Rotate])], seconds(10));
        assert_eq!(moments, [Moment { at: Duration::ZERO, step: Step::Rotate }]);
    }

    #[test]
    fn each_rolling_restart_needs_as_many_new_pods_as_are_running() {
        let steps = [Step::Repeat(vec![Step::Sleep(seconds(10)), Step::Roll { surge: 2 }])];
        assert_eq!(pods_needed(&moments(&steps, seconds(35)), 5), 20);
    }
}
