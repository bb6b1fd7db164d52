//! All requests, one pair at a time, and the report.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;
use sluicegate_model::text::one_line;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::client::Controller;
use crate::compare::{Difference, Rules};
use crate::source::Request;

/// The methods that change nothing (RFC 9110, 9.2.1).
const SAFE: [&str; 3] = ["GET", "HEAD", "OPTIONS"];

/// How the requests are sent.
#[derive(Clone, Debug)]
pub struct Options {
    /// The requests per second to each controller.
    pub rate: u32,
    /// The timeout of each response.
    pub timeout: Duration,
    /// The methods to send beside the safe methods.
    pub methods: Vec<String>,
    /// The longest time for all requests.
    pub longest: Duration,
    /// The parts of responses that the comparison covers.
    pub rules: Rules,
}

/// The result of a comparison.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DiffReport {
    /// The compared requests.
    pub compared: usize,
    /// The requests with equal responses.
    pub same: usize,
    /// The requests that were not sent: their method is not safe, or the time was over.
    pub left_out: usize,
    /// The requests without a response from either controller.
    pub without_response: usize,
    /// The requests with different responses.
    pub mismatches: Vec<Mismatch>,
}

/// A request with different responses.
#[derive(Debug, Serialize)]
pub struct Mismatch {
    /// The method, and the URL without a scheme.
    pub request: String,
    /// The differences between both responses.
    pub differences: Vec<Difference>,
}

/// Sends each request to both controllers.
pub async fn run(old: &Controller, new: &Controller, requests: &[Request], options: &Options) -> DiffReport {
    let mut report = DiffReport::default();
    let end = Instant::now() + options.longest;
    let mut ticks = interval(Duration::from_secs(1) / options.rate.max(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for request in requests {
        let is_allowed = |method: &str| {
            SAFE.contains(&method)
                || options.methods.iter().any(|allowed| allowed.eq_ignore_ascii_case(method))
        };
        if !is_allowed(&request.method) || Instant::now() >= end {
            report.left_out += 1;
            continue;
        }
        ticks.tick().await;
        let (old, new) = tokio::join!(old.ask(request, options.timeout), new.ask(request, options.timeout));
        report.compared += 1;
        if old.is_err() && new.is_err() {
            report.without_response += 1;
            continue;
        }
        let differences = options.rules.differences(&old, &new);
        match differences.is_empty() {
            true => report.same += 1,
            false => report.mismatches.push(Mismatch {
                request: format!("{} {}{}", request.method, request.host, request.target),
                differences,
            }),
        }
    }
    report
}

impl DiffReport {
    /// The share of equal responses in percent, rounded down, so that 100 means no difference.
    #[must_use]
    pub fn percent_same(&self) -> usize {
        match self.compared {
            0 => 0,
            compared => self.same * 100 / compared,
        }
    }
}

/// Every difference, the number of differences by what differs, and the percentage.
impl fmt::Display for DiffReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut by_part: BTreeMap<&str, usize> = BTreeMap::new();
        for Mismatch { request, differences } in &self.mismatches {
            writeln!(f, "{}", one_line(request))?;
            for difference in differences {
                writeln!(f, "  {}", one_line(&difference.to_string()))?;
                *by_part.entry(&difference.part).or_default() += 1;
            }
        }
        for (part, count) in by_part {
            let differ = if count == 1 { "response differs" } else { "responses differ" };
            writeln!(f, "{count} {differ} in {part}")?;
        }
        let are = if self.compared == 1 { "response is" } else { "responses are" };
        write!(f, "{} of {} {are} the same ({}%)", self.same, self.compared, self.percent_same())?;
        let requests = |count: usize| if count == 1 { "request" } else { "requests" };
        if self.left_out > 0 {
            write!(
                f,
                "; {} {} not sent",
                self.left_out,
                if self.left_out == 1 { "request was" } else { "requests were" }
            )?;
        }
        if self.without_response > 0 {
            let count = self.without_response;
            write!(f, "; {count} {} had no response from either controller", requests(count))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_without_any_response_are_not_the_same() {
        let report =
            DiffReport { compared: 3, same: 1, without_response: 2, left_out: 1, ..DiffReport::default() };
        assert_eq!(
            report.to_string(),
            "1 of 3 responses are the same (33%); 1 request was not sent; 2 requests had no response from either controller"
        );
        let report = DiffReport { compared: 1, same: 1, ..DiffReport::default() };
        assert_eq!(report.to_string(), "1 of 1 response is the same (100%)");
    }
}
