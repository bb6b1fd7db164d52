//! Checks the functions of an API gateway: the gateway accepts the valid call, and denies all other calls.

use super::Api;
use super::api::{Call, Header};
use crate::results::Checked;

/// Makes the calls of the check; `ask` returns the status of a response, or `None` without a response.
pub(crate) fn check(api: &Api, mut ask: impl FnMut(&Call) -> Option<u16>) -> Vec<Checked> {
    let mut checked: Vec<Checked> = Vec::new();
    for call in api.calls() {
        let status = ask(&call);
        checked.push(Checked { call: call.what.to_owned(), expected: call.status, status });
    }
    let good = api.good();
    let with = |header: &Header| Call::good(Some(header.clone()));
    let (Some(limit), Some(one)) = (api.limit(), good.last().map(with)) else { return checked };
    // If a window of the rate limit ends in the meantime, the next window allows the same number again.
    let tries = 2 * limit.requests + 1;
    let answers = (0..tries).map(|_| ask(&one));
    let mut last = None;
    for answer in answers {
        last = answer;
        if answer != Some(200) {
            break;
        }
    }
    checked.push(Checked { call: "over the limit".to_owned(), expected: 429, status: last });
    if let Some(other) = good.first().filter(|_| good.len() > 1) {
        let call = "another below it".to_owned();
        checked.push(Checked { call, expected: 200, status: ask(&with(other)) });
    }
    checked
}
