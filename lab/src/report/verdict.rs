//! The conclusions from the figures, in sentences. The same rules apply to every gateway. Errors of Sluicegate come
//! first.

use super::api;
use super::contest::{Contestant, OURS, percentile};
use super::costs::{Measured, Shape, Work};
use super::cpu;
use super::words::{count, counted, list, number, ratio, share, time};
use crate::results::{OfGateway, Results};

/// A sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) text: String,
    /// Whether it reports an error.
    pub(super) is_bad: bool,
    /// Whether it reports an error of Sluicegate alone.
    is_our_fault: bool,
}

impl Verdict {
    fn good(text: String) -> Self {
        Self { text, is_bad: false, is_our_fault: false }
    }

    fn bad(text: String) -> Self {
        Self { text, is_bad: true, is_our_fault: false }
    }

    fn bad_of(gateway: &OfGateway, text: String) -> Self {
        Self { text, is_bad: true, is_our_fault: gateway.name == OURS }
    }
}

pub(super) fn all(results: &Results, contestants: &[Contestant<'_>], works: &[Work<'_>]) -> Vec<Verdict> {
    let mut all = Vec::new();
    all.extend(lets_in(results));
    all.extend(ours(contestants));
    all.extend(clean(contestants));
    all.extend(worst(contestants));
    all.extend(elsewhere(contestants));
    all.extend(tail(contestants));
    all.extend(untold(contestants));
    all.extend(against_baseline(contestants));
    for work in works {
        all.extend(failed(work));
        all.extend(adds(work));
        all.extend(cheapest(work));
        all.extend(most(work));
        all.extend(idle(work));
    }
    // The errors of Sluicegate precede everything else, also in comparisons of costs.
    all.sort_by_key(|verdict| !verdict.is_our_fault);
    all
}

/// The gateways that accept calls that they must deny, or deny calls that they must accept.
fn lets_in(results: &Results) -> Vec<Verdict> {
    let gateways = results.gateways.iter();
    let broken = gateways.filter_map(|gateway| {
        let broken = api::broken(gateway)?;
        let text = format!(
            "{} allowed or denied calls wrongly, so the lab did not measure it with these functions. {broken}.",
            gateway.title
        );
        Some(Verdict::bad_of(gateway, text))
    });
    let mut all: Vec<Verdict> = broken.collect();
    let kept = results
        .gateways
        .iter()
        .filter(|gateway| !gateway.checks.is_empty() && api::broken(gateway).is_none());
    let kept: Vec<String> = kept.map(|gateway| gateway.title.clone()).collect();
    if !kept.is_empty() {
        all.push(Verdict::good(format!(
            "These gateways allowed every valid call and denied every invalid call: {}.",
            list(&kept)
        )));
    }
    all
}

/// The latency that gateways add to one request.
fn adds(work: &Work<'_>) -> Option<Verdict> {
    let mut all: Vec<(f64, &str)> = work
        .measured
        .iter()
        .filter_map(|each| Some((each.added()?[1].median, &*each.gateway.title)))
        .collect();
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let each = all.iter().map(|(added, title)| format!("{title} {}", time(*added)));
    let each: Vec<String> = each.collect();
    (!each.is_empty()).then(|| Verdict::good(format!("{}, latency added: {}.", work.name, each.join("; "))))
}

/// The errors of Sluicegate.
fn ours(contestants: &[Contestant<'_>]) -> Vec<Verdict> {
    let failing = contestants.iter().filter(|each| each.gateway.name == OURS && !each.is_clean());
    failing.map(|each| Verdict::bad_of(each.gateway, lost(each))).collect()
}

/// The gateways without errors.
fn clean(contestants: &[Contestant<'_>]) -> Option<Verdict> {
    let clean: Vec<String> =
        contestants.iter().filter(|each| each.is_clean()).map(Contestant::title).collect();
    let by = match (contestants.len(), clean.len()) {
        (0, _) => return None,
        (1, 0) => {
            return Some(Verdict::bad("Some requests did not receive the correct response.".to_owned()));
        }
        (_, 0) => {
            return Some(Verdict::bad(
                "With every gateway, some requests did not receive the correct response.".to_owned(),
            ));
        }
        (all, some) if all == some && all > 1 => format!("all {all} gateways"),
        _ => list(&clean),
    };
    Some(Verdict::good(format!("Every request received the correct response from {by}.")))
}

/// The gateway that lost most requests; Sluicegate has its own sentence.
fn worst(contestants: &[Contestant<'_>]) -> Option<Verdict> {
    let failing = contestants.iter().filter(|each| !each.is_clean() && each.gateway.name != OURS);
    let worst = failing.max_by_key(|each| (each.unanswered(), each.run.load.errors.total))?;
    Some(Verdict::bad(lost(worst)))
}

/// `nginx: 12 of 1,000 requests have no answer (1.2 %); 10 connection timeouts, 2 read errors.`
fn lost(each: &Contestant<'_>) -> String {
    let load = &each.run.load;
    let unanswered = each.unanswered();
    let first = if load.requests.answered == 0 {
        format!("{} answered none of {}", each.title(), counted(each.due(), "request"))
    } else if unanswered == 0 {
        format!("{} answered every request, but not without errors", each.title())
    } else {
        let (due, part) = (counted(each.due(), "request"), share(unanswered, each.due()));
        format!("{} left {} of {due} without an answer ({part})", each.title(), count(unanswered))
    };
    let wrong = load.errors.wrong.values().sum();
    let kinds = [
        (load.errors.connect, "connection error"),
        (load.errors.timeout, "connection timeout"),
        (load.errors.read, "read error"),
        (load.errors.write, "write error"),
        (load.errors.not_2xx, "answer of another status than 2xx"),
        (wrong, "wrong answer"),
        (load.requests.unsent.unwrap_or(0), "request due and never sent"),
        (each.duplicated(), "request delivered more than once"),
    ];
    let named =
        kinds.into_iter().filter(|(number, _)| *number > 0).map(|(number, noun)| plural(number, noun));
    let named: Vec<String> = named.collect();
    if named.is_empty() { format!("{first}.") } else { format!("{first}: {}.", list(&named)) }
}

/// A number with its noun, in the plural where necessary. The noun is the first word, which the plural changes.
fn plural(number: u64, noun: &str) -> String {
    let heads = ["answer of", "request due", "request delivered"];
    match heads.iter().find(|head| noun.starts_with(**head)) {
        Some(_) => {
            let (head, rest) = noun.split_once(' ').unwrap_or((noun, ""));
            format!("{} {rest}", counted(number, head))
        }
        None => counted(number, noun),
    }
}

/// The changes without an effect, and the errors while nothing changed.
fn elsewhere(contestants: &[Contestant<'_>]) -> Vec<Verdict> {
    let never: Vec<String> = contestants.iter().filter_map(cpu::never).collect();
    let mut verdicts = Vec::new();
    if !never.is_empty() {
        verdicts.push(Verdict::bad(format!(
            "Some changes did not take effect within the limit with {}.",
            list(&never)
        )));
    }
    let failed = contestants.iter().filter_map(|each| {
        let errors = each.baseline?.load.errors.total;
        (errors > 0).then(|| format!("{} ({})", each.title(), counted(errors, "error")))
    });
    let failed: Vec<String> = failed.collect();
    if !failed.is_empty() {
        verdicts.push(Verdict::bad(format!("Errors occurred even without changes, with {}.", list(&failed))));
    }
    verdicts
}

/// The gateways with slow responses.
fn tail(contestants: &[Contestant<'_>]) -> Option<Verdict> {
    let name = "99.9";
    let mut known: Vec<(f64, &Contestant<'_>)> = contestants
        .iter()
        .filter(|each| each.is_told_by_answers())
        .filter_map(|each| Some((percentile(&each.run.load.latency, name)?, each)))
        .collect();
    known.sort_by(|one, other| one.0.total_cmp(&other.0));
    let ((least, first), (most, last)) = (known.first()?, known.last()?);
    if known.len() == 1 {
        return Some(Verdict::good(format!("p{name} of the answers was {}.", time(*least))));
    }
    let (first, last) = (first.title(), last.title());
    let mut text = format!(
        "p{name} of the answers was lowest with {first}, {}, and highest with {last}, {}",
        time(*least),
        time(*most)
    );
    let between = known.get(1..known.len() - 1).unwrap_or_default();
    if let Some((ours, each)) = between.iter().find(|(_, each)| each.gateway.name == OURS) {
        text += &format!("; with {} it was {}", each.title(), time(*ours));
    }
    Some(Verdict::good(text + "."))
}

/// The gateways with too few responses for p99.9.
fn untold(contestants: &[Contestant<'_>]) -> Option<Verdict> {
    let untold = contestants.iter().filter(|each| !each.is_told_by_answers());
    let untold: Vec<String> = untold.map(|each| each.title()).collect();
    (!untold.is_empty()).then(|| {
        Verdict::bad(format!(
            "More than one request in a thousand receives no response from {}, so p99.9 of its requests is unknown.",
            list(&untold)
        ))
    })
}

/// The effect of changes on the responses of the same gateway.
fn against_baseline(contestants: &[Contestant<'_>]) -> Option<Verdict> {
    let ratios = contestants.iter().filter(|each| each.is_told_by_answers()).filter_map(|each| {
        let now = percentile(&each.run.load.latency, "99.9")?;
        let before = percentile(&each.baseline?.load.latency, "99.9")?;
        (before > 0.0).then(|| (now / before, format!("{} {}", each.title(), ratio(now, before))))
    });
    let mut ratios: Vec<(f64, String)> = ratios.collect();
    ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
    let texts: Vec<String> = ratios.into_iter().map(|(_, text)| text).collect();
    (!texts.is_empty()).then(|| {
        Verdict::good(format!(
            "Against the same gateway while nothing changes, p99.9 is: {}.",
            texts.join("; ")
        ))
    })
}

/// Errors in a comparison of costs make the costs doubtful.
fn failed(work: &Work<'_>) -> Vec<Verdict> {
    let groups = work.by_gateway().into_iter();
    let failed = groups.filter_map(|group| {
        let errors: u64 = group.iter().map(|each| each.errors()).sum();
        let gateway = group.first()?.gateway;
        let title = &gateway.title;
        (errors > 0).then(|| {
            Verdict::bad_of(
                gateway,
                format!(
                    "{title} had {} at {}: its figures there are doubtful.",
                    counted(errors, "error"),
                    work.name
                ),
            )
        })
    });
    failed.collect()
}

fn cheapest(work: &Work<'_>) -> Option<Verdict> {
    if work.shape != Shape::Bench || work.measured.len() < 2 {
        return None;
    }
    let mut all: Vec<&Measured<'_>> = work.measured.iter().collect();
    all.sort_by(|one, other| one.cost().median.total_cmp(&other.cost().median));
    let (first, last) = (all.first()?, all.last()?);
    let text = |each: &Measured<'_>| format!("{} {} µs", each.gateway.title, number(each.cost().median));
    let mut out = format!(
        "{}: a request costs least CPU time with {}, most with {}",
        work.name,
        text(first),
        text(last)
    );
    let between = all.get(1..all.len() - 1).unwrap_or_default();
    if let Some(ours) = between.iter().find(|each| each.gateway.name == OURS) {
        let of_least = ratio(ours.cost().median, first.cost().median);
        out += &format!("; with {}, {of_least} the least", text(ours));
    }
    Some(Verdict::good(out + "."))
}

fn most(work: &Work<'_>) -> Option<Verdict> {
    if work.shape == Shape::Bench {
        return None;
    }
    let best = work.by_gateway().into_iter().filter_map(|group| {
        group
            .into_iter()
            .max_by(|one, other| one.requests_per_s().median.total_cmp(&other.requests_per_s().median))
    });
    let mut best: Vec<&Measured<'_>> = best.collect();
    best.sort_by(|one, other| other.requests_per_s().median.total_cmp(&one.requests_per_s().median));
    let each =
        best.iter().map(|each| format!("{} {}", each.gateway.title, number(each.requests_per_s().median)));
    let texts: Vec<String> = each.collect();
    (!texts.is_empty())
        .then(|| Verdict::good(format!("{}, most {}: {}.", work.name, work.unit(), texts.join("; "))))
}

/// The least share of its CPUs that a saturated gateway keeps busy.
const BUSY: f64 = 0.8;

/// The gateways that did not sustain a rate although they had free CPU time. Another part of the setup was then
/// saturated.
fn idle(work: &Work<'_>) -> Option<Verdict> {
    let is_idle =
        |each: &&&Measured<'_>| each.is_saturated() && each.cpus().median < BUSY * each.workers as f64;
    let groups = work.by_gateway().into_iter();
    let idle = groups.filter_map(|group| Some(group.iter().find(is_idle)?.gateway.title.clone()));
    let idle: Vec<String> = idle.collect();
    (!idle.is_empty()).then(|| {
        Verdict::bad(format!(
            "{}: {} missed a rate with CPU to spare. The load, the endpoints or other work on the machine were saturated, not the \
             gateway.",
            work.name,
            list(&idle)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::super::contest::contestants;
    use super::super::costs::works;
    use super::super::sample::{FLAT, Shape as Gateway, experiment, gateway, point, scaling};
    use super::*;
    use crate::results::{Deliveries, Point};

    fn sentences(results: &Results) -> Vec<String> {
        all(results, &contestants(results), &works(results)).into_iter().map(|verdict| verdict.text).collect()
    }

    fn changed(ours: Gateway, others: &[(&str, Gateway)]) -> Results {
        let events = scaling(60);
        let mut results = experiment("dynamic", "pods change");
        results.gateways.push(gateway(OURS, "Sluicegate", vec![ours.run("dynamic", 60, 1000, &events)]));
        for (name, shape) in others {
            results.gateways.push(gateway(name, name, vec![shape.run("dynamic", 60, 1000, &events)]));
        }
        results
    }

    #[test]
    fn verdict_reports_failures_of_sluicegate_first() {
        let ours = Gateway { timeout: 12, read: 1, ..FLAT };
        let results = changed(ours, &[("nginx", FLAT)]);
        let sentences = sentences(&results);
        assert_eq!(
            sentences[0],
            "Sluicegate left 13 of 60,000 requests without an answer (0.022 %): 12 connection timeouts and 1 read error."
        );
        assert_eq!(sentences[1], "Every request received the correct response from nginx.");
    }

    #[test]
    fn verdict_names_the_gateway_with_the_most_lost_requests() {
        let worst = Gateway { connect: 500, unsent: 30, status_503: 1, ..FLAT };
        let results = changed(FLAT, &[("a", Gateway { read: 2, ..FLAT }), ("b", worst)]);
        let sentences = sentences(&results);
        assert_eq!(sentences[0], "Every request received the correct response from Sluicegate.");
        assert_eq!(
            sentences[1],
            "b left 30 of 60,000 requests without an answer (0.050 %): 500 connection errors, 1 answer of another status than \
             2xx and 30 requests due and never sent."
        );
        assert_eq!(
            sentences[2],
            "Some changes did not take effect within the limit with b (5 of 5 changes)."
        );
    }

    #[test]
    fn verdict_counts_a_request_delivered_twice_as_an_error() {
        let mut results = changed(FLAT, &[]);
        results.gateways[0].runs[0].deliveries = Some(Deliveries { sent: 10, delivered: 10, duplicated: 2 });
        let sentences = sentences(&results);
        assert_eq!(
            sentences[0],
            "Sluicegate answered every request, but not without errors: 2 requests delivered more than once."
        );
        assert_eq!(sentences[1], "Some requests did not receive the correct response.");
    }

    #[test]
    fn verdict_calls_costs_measured_with_errors_doubtful_and_names_sluicegate_first() {
        let mut results = experiment("bench", "costs");
        for name in ["nginx", OURS] {
            let points = vec![Point { errors: 2, ..point("HTTP", 1, 1, 1000.0, 10.0) }];
            results.gateways.push(OfGateway { points, ..gateway(name, name, Vec::new()) });
        }
        let sentences = sentences(&results);
        assert_eq!(sentences[0], "sluicegate had 2 errors at HTTP: its figures there are doubtful.");
        assert_eq!(sentences[1], "nginx had 2 errors at HTTP: its figures there are doubtful.");
    }

    #[test]
    fn verdict_reports_gateways_that_allow_an_invalid_call_first() {
        let mut results = experiment("gateway", "API gateways");
        for (name, expired) in [("nginx-lua", 401), (OURS, 200)] {
            let checks = vec![super::super::sample_costs::checks(expired)];
            results.gateways.push(OfGateway { checks, ..gateway(name, name, Vec::new()) });
        }
        let sentences = sentences(&results);
        assert_eq!(
            sentences[0],
            "sluicegate allowed or denied calls wrongly, so the lab did not measure it with these functions. JWT HS256: expired 200 instead of 401."
        );
        assert_eq!(
            sentences[1],
            "These gateways allowed every valid call and denied every invalid call: nginx-lua."
        );
    }

    #[test]
    fn verdict_does_not_report_a_gateway_with_idle_cpu_as_saturated() {
        let at = |cost| {
            vec![
                Point { rate: Some(9000.0), ..point("HTTP", 1, 1, 5000.0, cost) },
                point("HTTP", 1, 1, 5000.0, cost),
            ]
        };
        let mut results = experiment("rates", "CPU over rate");
        for (name, cost) in [("a", 190.0), ("b", 40.0)] {
            results.gateways.push(OfGateway { points: at(cost), ..gateway(name, name, Vec::new()) });
        }
        let sentences = sentences(&results);
        let idle = sentences.iter().find(|sentence| sentence.contains("to spare")).unwrap();
        assert!(idle.starts_with("HTTP: b missed a rate with CPU to spare. "), "{idle}");
    }

    #[test]
    fn verdict_says_every_gateway_instead_of_listing_all_names() {
        let results = changed(FLAT, &[("a", FLAT), ("b", FLAT)]);
        assert_eq!(
            sentences(&results)[0],
            "Every request received the correct response from all 3 gateways."
        );
        let bad = Gateway { read: 1, ..FLAT };
        let results = changed(bad, &[("a", bad)]);
        assert_eq!(
            sentences(&results)[1],
            "With every gateway, some requests did not receive the correct response."
        );
    }
}
