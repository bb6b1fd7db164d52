//! API gateways: denied calls, the latency added to one request, the cost of functions, and the comparison with the
//! study.

use super::contest::OURS;
use super::costs::{Measured, Work};
use super::table::{Cell, Column, Row, Table};
use super::words::{count, number, ratio, time};
use crate::published::{Claim, Measure, Published};
use crate::results::{Checked, Checks, OfGateway, Results};

/// All tables, in the order of the report.
pub(super) fn tables(results: &Results, works: &[Work<'_>], published: Option<&Published>) -> Vec<Table> {
    let mut all = Vec::new();
    all.extend(checks(results));
    all.extend(works.iter().filter_map(added));
    all.extend(functions(results, works, published));
    all.extend(callers(results, works));
    all.extend(published.and_then(|published| beside(results, works, published)));
    all
}

/// The results of the calls that each gateway must accept or deny.
fn checks(results: &Results) -> Option<Table> {
    let gateways = columns_of(results, |gateway| !gateway.checks.is_empty());
    let mut calls: Vec<(&str, &Checked)> = Vec::new();
    for checks in results.gateways.iter().flat_map(|gateway| &gateway.checks) {
        for checked in &checks.calls {
            if !calls
                .iter()
                .any(|(functions, other)| *functions == checks.functions && other.call == checked.call)
            {
                calls.push((&checks.functions, checked));
            }
        }
    }
    let mut columns = vec![Column::words("functions"), Column::words("call"), Column::number("has to be")];
    columns.extend(gateways.iter().map(|gateway| Column::number(gateway.title.clone())));
    let rows = calls.into_iter().map(|(functions, wanted)| {
        let mut cells = vec![
            Cell::plain(functions),
            Cell::plain(wanted.call.clone()),
            Cell::plain(wanted.expected.to_string()),
        ];
        cells.extend(gateways.iter().map(|gateway| {
            let checks = gateway.checks.iter().find(|checks| checks.functions == functions);
            checks.map_or(Cell::quiet("–"), |checks| status(checks, &wanted.call))
        }));
        Row::of(cells)
    });
    let rows: Vec<Row> = rows.collect();
    (!rows.is_empty()).then(|| Table { caption: "Allowed and denied calls".to_owned(), columns, rows })
}

fn status(checks: &Checks, call: &str) -> Cell {
    match checks.calls.iter().find(|checked| checked.call == call) {
        None => Cell::bad("not served"),
        Some(checked) => {
            let text = checked.status.map_or("no answer".to_owned(), |status| status.to_string());
            if checked.is_kept() { Cell::plain(text) } else { Cell::bad(text) }
        }
    }
}

/// The gateways with figures to show, in their order.
fn columns_of(results: &Results, is_shown: impl Fn(&OfGateway) -> bool) -> Vec<&OfGateway> {
    results.gateways.iter().filter(|gateway| is_shown(gateway)).collect()
}

/// The latency that each gateway adds to one request.
fn added(work: &Work<'_>) -> Option<Table> {
    let ours = work.measured.iter().find(|each| each.gateway.name == OURS).and_then(Measured::added);
    let columns = vec![
        Column::words("gateway"),
        Column::number("straight").with_note("to a back end"),
        Column::number("through it"),
        Column::number("added").with_note("median"),
        Column::number("least – most").with_note("medians of the turns"),
        Column::number("added").with_note("of Sluicegate's"),
        Column::number("CPU/request"),
        Column::number("errors"),
    ];
    let rows = work.measured.iter().filter_map(|each| {
        let [straight, added] = each.added()?;
        let through = each.spread(|point| point.p50_ms);
        let of_ours = ours.map_or("–".to_owned(), |[_, ours]| ratio(added.median, ours.median));
        Some(Row::of([
            Cell::contestant(each.gateway.title.clone(), each.slot),
            Cell::plain(time(straight.median)),
            Cell::plain(time(through.median)),
            Cell::plain(time(added.median)),
            Cell::plain(format!("{} – {}", number(added.least), number(added.most))),
            Cell::plain(of_ours),
            Cell::plain(format!("{} µs", number(each.cost().median))),
            Cell::errors(each.errors()),
        ]))
    });
    let rows: Vec<Row> = rows.collect();
    let caption = format!("{}: latency that a gateway adds", work.name);
    (!rows.is_empty()).then_some(Table { caption, columns, rows })
}

/// A number of callers; none if the functions need no key or token.
fn number_of_callers(number: usize) -> Cell {
    if number > 0 { Cell::plain(count(number as u64)) } else { Cell::quiet("–") }
}

/// The cost of functions: a row for each, a column for each gateway, and the published figures.
fn functions(results: &Results, works: &[Work<'_>], published: Option<&Published>) -> Option<Table> {
    let with: Vec<&Work<'_>> = works.iter().filter(|work| work.functions().is_some()).collect();
    let gateways = columns_of(results, |gateway| with.iter().any(|work| work.of(gateway).is_some()));
    let published = published.filter(|published| !published.functions.is_empty());
    let mut columns = vec![Column::words("functions"), Column::number("callers")];
    let note = "added CPU time per call, calls per CPU second relative to no functions";
    columns.extend(gateways.iter().map(|gateway| Column::number(gateway.title.clone()).with_note(note)));
    if published.is_some() {
        columns.push(Column::published("Kong 3.10", "published: calls/s of those without"));
    }
    let rows = with.iter().filter_map(|work| {
        let functions = work.functions()?;
        let without = works.iter().find(|other| other.name == functions.without)?;
        let mut cells = vec![Cell::plain(functions.name.clone()), number_of_callers(functions.callers)];
        cells.extend(gateways.iter().map(|gateway| {
            let costs = work.of(gateway).zip(without.of(gateway));
            costs.map_or(Cell::quiet("–"), |(with, without)| {
                let (with, without) = (with.cost().median, without.cost().median);
                let sign = if with >= without { "+" } else { "" };
                Cell::plain(format!("{sign}{} µs, {}", number(with - without), ratio(without, with)))
            })
        }));
        if let Some(published) = published {
            let rps = |name: &str| {
                published.functions.iter().find(|each| each.functions == name).map(|each| each.rps)
            };
            // The first entry is without functions.
            let whole = published.functions.first().map(|each| each.rps);
            // The published figures are for one caller.
            let share = rps(&functions.name).zip(whole).filter(|_| functions.callers <= 1);
            cells.push(share.map_or(Cell::quiet("–"), |(part, whole)| Cell::plain(ratio(part, whole))));
        }
        Some(Row::of(cells))
    });
    let rows: Vec<Row> = rows.collect();
    let caption = "The cost of functions, compared with the same calls without functions".to_owned();
    (!rows.is_empty()).then_some(Table { caption, columns, rows })
}

/// The cost of many callers compared with few.
fn callers(results: &Results, works: &[Work<'_>]) -> Option<Table> {
    let mut rows = Vec::new();
    let gateways = columns_of(results, |gateway| {
        works.iter().any(|work| {
            work.functions().is_some_and(|functions| functions.callers > 0) && work.of(gateway).is_some()
        })
    });
    for work in works {
        let Some(many) = work.functions().filter(|functions| functions.callers > 0) else { continue };
        let fewer = works.iter().filter(|other| {
            other.functions().is_some_and(|few| {
                (&few.name, &few.without) == (&many.name, &many.without)
                    && few.callers > 0
                    && few.callers < many.callers
            })
        });
        let Some(few) = fewer.min_by_key(|other| other.functions().map(|functions| functions.callers)) else {
            continue;
        };
        let few_callers = few.functions().map_or(0, |functions| functions.callers);
        let mut cells = vec![
            Cell::plain(many.name.clone()),
            Cell::plain(format!("{} by {}", count(many.callers as u64), count(few_callers as u64))),
        ];
        cells.extend(gateways.iter().map(|gateway| {
            let costs = work.of(gateway).zip(few.of(gateway));
            costs.map_or(Cell::quiet("–"), |(many, few)| {
                Cell::plain(ratio(many.cost().median, few.cost().median))
            })
        }));
        rows.push(Row::of(cells));
    }
    let mut columns = vec![Column::words("functions"), Column::number("callers")];
    columns.extend(
        gateways
            .iter()
            .map(|gateway| Column::number(gateway.title.clone()).with_note("CPU time, many by few")),
    );
    let caption = "The cost of many callers, compared with few callers".to_owned();
    (!rows.is_empty()).then_some(Table { caption, columns, rows })
}

/// The advantage of Sluicegate over each other gateway, beside the advantage of the study's gateway over Kong.
fn beside(results: &Results, works: &[Work<'_>], published: &Published) -> Option<Table> {
    let ours = results.gateways.iter().find(|gateway| gateway.name == OURS)?;
    let others = columns_of(results, |gateway| {
        gateway.name != OURS && works.iter().any(|work| work.of(gateway).is_some())
    });
    let mut columns = vec![
        Column::words("what"),
        Column::published("the study's gateway", format!("published {}", published.short)),
        Column::published("times as good", format!("as Kong, {}", published.short)),
    ];
    columns.extend(
        others
            .iter()
            .map(|other| Column::number("Sluicegate").with_note(format!("times as good as {}", other.title))),
    );
    let rows = published.claims.iter().filter_map(|claim| {
        let work = works.iter().find(|work| work.name == claim.work)?;
        let mut cells = vec![
            Cell::plain(claim.what.clone()),
            Cell::plain(claim.says.clone()),
            Cell::plain(format!("{}×", number(claim.factor))),
        ];
        cells.extend(
            others
                .iter()
                .map(|other| advantage(claim, work, ours, other).map_or(Cell::quiet("–"), Cell::plain)),
        );
        Some(Row::of(cells))
    });
    let rows: Vec<Row> = rows.collect();
    let caption =
        format!("Advantage of Sluicegate as a factor, compared with the study of {}", published.short);
    (!rows.is_empty() && !others.is_empty()).then_some(Table { caption, columns, rows })
}

/// The factor of Sluicegate's advantage.
fn advantage(claim: &Claim, work: &Work<'_>, ours: &OfGateway, other: &OfGateway) -> Option<String> {
    let (one, two) = match claim.measure {
        Measure::Cpu => at_one_rate(work, ours, other)?,
        Measure::Added | Measure::Calls => (work.of(ours)?, work.of(other)?),
    };
    let cost = || ratio(two.cost().median, one.cost().median);
    match claim.measure {
        Measure::Added => {
            let ([_, ours], [_, theirs]) = (one.added()?, two.added()?);
            Some(ratio(theirs.median, ours.median))
        }
        // If the load is slower than the gateways, only the requests per second of CPU time distinguish them.
        Measure::Calls => {
            let calls = ratio(one.requests_per_s().median, two.requests_per_s().median);
            Some(format!("{calls}, by CPU {}", cost()))
        }
        Measure::Cpu => {
            let rate = one.rate.map_or(String::new(), |rate| format!(" at {}/s", number(rate)));
            Some(cost() + &rate)
        }
    }
}

/// Both gateways at the highest rate that both sustain.
fn at_one_rate<'w, 'r>(
    work: &'w Work<'r>,
    ours: &OfGateway,
    other: &OfGateway,
) -> Option<(&'w Measured<'r>, &'w Measured<'r>)> {
    let kept = |gateway: &OfGateway, rate: Option<f64>| {
        work.measured
            .iter()
            .find(|each| std::ptr::eq(each.gateway, gateway) && each.rate == rate && !each.is_saturated())
    };
    let of_ours =
        work.measured.iter().filter(|each| std::ptr::eq(each.gateway, ours) && !each.is_saturated());
    let both = of_ours.filter_map(|each| Some((each, kept(other, each.rate)?)));
    both.max_by(|(one, _), (two, _)| one.rate.unwrap_or(0.0).total_cmp(&two.rate.unwrap_or(0.0)))
}

/// The calls that the gateway should deny or accept, but did not.
pub(super) fn broken(gateway: &OfGateway) -> Option<String> {
    let broken = gateway.checks.iter().filter(|checks| !checks.are_kept());
    let each: Vec<String> = broken
        .map(|Checks { functions, calls, failure }| {
            let calls = calls.iter().filter(|checked| !checked.is_kept()).map(
                |Checked { call, expected, status }| {
                    let status = status.map_or("not answered".to_owned(), |status| status.to_string());
                    format!("{call} {status} instead of {expected}")
                },
            );
            let calls: Vec<String> = calls.collect();
            if failure.is_some() {
                format!("{functions}: it does not come to serve")
            } else {
                format!("{functions}: {}", calls.join(", "))
            }
        })
        .collect();
    (!each.is_empty()).then(|| each.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::costs::works;
    use super::super::sample;
    use super::*;
    use crate::published;

    /// The tables of the sample results, as text.
    fn texts() -> Vec<(String, String)> {
        let (_, results) = sample::all().into_iter().find(|(name, _)| *name == "gateway").unwrap();
        let study = published::find("gateway-2019");
        let tables = tables(&results, &works(&results), study.as_ref());
        tables.into_iter().map(|table| (table.caption.clone(), table.markdown())).collect()
    }

    #[test]
    fn table_highlights_a_wrongly_allowed_call() {
        let (caption, text) = &texts()[0];
        assert_eq!(caption, "Allowed and denied calls");
        assert!(text.contains("| JWT HS256 | expired | 401 | 200 | 401 |"), "{text}");
        let checks = super::super::sample_costs::checks(200);
        assert_eq!(status(&checks, "expired").tone, super::super::table::Tone::Bad);
        assert_eq!(status(&checks, "good").tone, super::super::table::Tone::Plain);
    }

    #[test]
    fn table_compares_the_latency_that_each_gateway_adds_with_that_of_sluicegate() {
        let (_, text) = &texts()[1];
        // The medians of 0.051 and 0.052, and of 0.101 and 0.102.
        assert!(
            text.contains("| nginx, Lua | 0.100 ms | 0.200 ms | 0.102 ms | 0.101 – 0.102 | 1.97× |"),
            "{text}"
        );
    }

    #[test]
    fn tables_compare_each_function_with_plain_http_and_many_callers_with_few_callers() {
        let all = texts();
        let (_, functions) = &all[2];
        assert!(
            functions.contains("| JWT HS256 | 1 | +4.00 µs, 0.909× | +8.00 µs, 0.909× | – |"),
            "{functions}"
        );
        assert!(
            functions
                .contains("| API key and rate limit | 10,000 | +6.00 µs, 0.870× | +12.0 µs, 0.870× | – |"),
            "{functions}"
        );
        assert!(
            functions
                .contains("| API key and rate limit | 1 | +3.00 µs, 0.930× | +6.00 µs, 0.930× | 0.764× |"),
            "{functions}"
        );
        let (_, callers) = &all[3];
        assert!(callers.contains("| API key and rate limit | 10,000 by 1 | 1.07× | 1.07× |"), "{callers}");
    }

    #[test]
    fn table_shows_published_figures_beside_measured_figures() {
        let all = texts();
        let (_, text) = all.last().unwrap();
        let has = |row: &str| assert!(text.contains(row), "{row}\n{text}");
        has("| latency added to one request, 0 KB | Kong adds 44 % more | 1.44× | 1.97× | 1.49× |");
        has("| calls/s, 0 KB | twice Kong's | 2.00× | 2.00×, by CPU 2.00× | 1.50×, by CPU 1.50× |");
        // No gateway sustains 20,000 calls a second.
        has("| 40 % less than Kong | 1.67× | 2.00× at 5,000/s | 1.50× at 5,000/s |");
        // A case that was not measured has no row.
        assert!(
            !text.contains("0 KB, JWT") && !text.contains("latency added to one request, 1 KB"),
            "{text}"
        );
    }

    #[test]
    fn only_reports_of_the_experiment_gateway_have_api_tables() {
        for (name, results) in sample::all().into_iter().filter(|(name, _)| *name != "gateway") {
            let study = results.published.as_deref().and_then(published::find);
            assert!(tables(&results, &works(&results), study.as_ref()).is_empty(), "{name}");
        }
    }
}
