//! Latency by percentile, on the axis of the studies: each additional nine has the same width.

use super::contest::{Contestant, is_known, percentile};
use super::plot::Plot;
use super::plot::canvas::{Anchor, Canvas};
use super::plot::frame::Frame;
use super::plot::label::spread;
use super::plot::mark::Mark;
use super::plot::scale::{Scale, percent};
use super::table::{Cell, Column, Row, Table};
use super::words::{ratio, round_time, time};
use crate::published::Published;
use crate::results::Latency;

/// The percentiles of the table.
const NAMES: [&str; 6] = ["50", "90", "99", "99.9", "99.99", "99.999"];

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 500.0;
/// The room to the right of the axis.
const NAMES_ROOM: f64 = 212.0;

/// The shapes of published points. They are outlines, which no contestant has.
const PUBLISHED_MARKS: [Mark; 4] = [Mark::Square, Mark::Triangle, Mark::Diamond, Mark::Circle];

/// The curves of all runs; [`None`] if no run has a response.
pub(super) fn plot(
    title: &str,
    contestants: &[Contestant<'_>],
    published: Option<&Published>,
) -> Option<Plot> {
    let all: Vec<(f64, f64)> = contestants
        .iter()
        .flat_map(|each| [Some(each.run), each.baseline])
        .flatten()
        .flat_map(|run| curve(&run.load.latency))
        .collect();
    if all.is_empty() {
        return None;
    }
    let theirs: Vec<(f64, f64)> = published
        .iter()
        .flat_map(|published| &published.contestants)
        .flat_map(|other| &other.curve)
        .map(|point| (point.percentile / 100.0, point.seconds * 1e3))
        .collect();
    let both = || all.iter().chain(&theirs);
    let least = both().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let most = both().map(|point| point.1).fold(0.0, f64::max);
    let nines = both().map(|point| -(1.0 - point.0).log10()).fold(1.0, f64::max);
    let frame = Frame {
        left: 64.0,
        top: 46.0,
        width: WIDTH - 64.0 - NAMES_ROOM,
        height: HEIGHT - 46.0 - 88.0,
        x: Scale::Quantile { nines },
        y: Scale::log(least, most),
    };
    let mut canvas = Canvas::default();
    canvas.text("title", Anchor::Start, 12.0, 22.0, title);
    frame.draw_y(&mut canvas, round_time);
    frame.draw_x(&mut canvas, percent);
    canvas.text("axis-title", Anchor::Start, frame.left, 38.0, "latency, from when a request was due");
    let below = frame.bottom() + 36.0;
    canvas.text(
        "axis-title",
        Anchor::End,
        frame.right(),
        below,
        "percentile of the requests that were answered",
    );
    if let Some(published) = published {
        draw_published(&mut canvas, &frame, published);
    }
    // Sluicegate is last, so that its line is not hidden; all others are in their order.
    let mut order: Vec<&Contestant<'_>> = contestants.iter().collect();
    order.sort_by_key(|each| each.slot == 0);
    for each in &order {
        draw(&mut canvas, &frame, each);
    }
    draw_names(&mut canvas, &frame, contestants);
    draw_key(&mut canvas, &frame, contestants, published);
    Some(Plot {
        name: "percentiles".to_owned(),
        title: format!("Latency by percentile: {title}"),
        description: description(contestants),
        width: WIDTH,
        height: HEIGHT,
        body: canvas.into_body(),
    })
}

/// Quantiles with their latency in milliseconds, as far as the number of responses determines them.
pub(super) fn curve(latency: &Latency) -> Vec<(f64, f64)> {
    if latency.count == 0 {
        return Vec::new();
    }
    let last = 1.0 - 1.0 / latency.count as f64;
    // A logarithmic axis has no 0.
    let millis = |us: u64| us.max(1) as f64 / 1e3;
    let mut points = vec![(0.0, millis(latency.min_us))];
    let known = latency.spectrum.iter().filter(|(_, quantile, _)| *quantile > 0.0 && *quantile < last);
    points.extend(known.map(|(value, quantile, _)| (*quantile, millis(*value))));
    points.push((last, millis(latency.max_us)));
    points
}

fn draw(canvas: &mut Canvas, frame: &Frame, each: &Contestant<'_>) {
    let series = series(each.slot);
    canvas.begin(&series, &each.title());
    if let Some(baseline) = each.baseline {
        let points = curve(&baseline.load.latency);
        canvas.path("line baseline", points.into_iter().map(|point| Some(frame.at(point))));
    }
    let latency = &each.run.load.latency;
    let points = curve(latency);
    let end = points.last().copied();
    canvas.path("line", points.into_iter().map(|point| Some(frame.at(point))));
    for name in NAMES {
        let quantile = name.parse::<f64>().unwrap_or_default() / 100.0;
        if let Some(millis) = percentile(latency, name) {
            let hint = format!("{}, p{name}: {}", each.title(), time(millis));
            canvas.begin("", &hint);
            canvas.mark("mark", Mark::of(each.slot), frame.at((quantile, millis.max(0.001))), 3.6);
            canvas.end();
        }
    }
    if let Some(end) = end.filter(|_| each.unanswered() > 0) {
        canvas.mark("cross", Mark::Cross, frame.at(end), 6.0);
    }
    canvas.end();
}

/// Names to the right of the axis, with a thin line to the end of their curve.
fn draw_names(canvas: &mut Canvas, frame: &Frame, contestants: &[Contestant<'_>]) {
    let named: Vec<(&Contestant<'_>, (f64, f64))> = contestants
        .iter()
        .filter_map(|each| Some((each, frame.at(*curve(&each.run.load.latency).last()?))))
        .collect();
    let wanted: Vec<f64> = named.iter().map(|(_, end)| end.1).collect();
    let places = spread(&wanted, 17.0, frame.top + 4.0, frame.bottom() - 4.0);
    let x = frame.right() + 14.0;
    for ((each, (end_x, end_y)), y) in named.into_iter().zip(places) {
        canvas.begin(&series(each.slot), &each.title());
        canvas.path("leader", [Some((end_x + 7.0, end_y)), Some((frame.right() + 2.0, y)), Some((x, y))]);
        canvas.mark("mark", Mark::of(each.slot), (x + 6.0, y), 3.6);
        canvas.text("name", Anchor::Start, x + 16.0, y + 4.0, &fit(&each.title(), NAMES_ROOM - 32.0));
        canvas.end();
    }
}

/// A title with limited room, also for a wide and bold font.
pub(super) fn fit(title: &str, room: f64) -> String {
    let most = (room / 8.0) as usize;
    if title.chars().count() <= most {
        return title.to_owned();
    }
    let short: String = title.chars().take(most.saturating_sub(1)).collect();
    short.trim_end().to_owned() + "…"
}

fn draw_published(canvas: &mut Canvas, frame: &Frame, published: &Published) {
    for (other, mark) in published.contestants.iter().zip(PUBLISHED_MARKS.into_iter().cycle()) {
        let points: Vec<(f64, f64)> = other
            .curve
            .iter()
            .map(|point| frame.at((point.percentile / 100.0, point.seconds * 1e3)))
            .collect();
        canvas.begin("published", &format!("{} ({}): {}", other.name, published.short, other.latency));
        canvas.path("line", points.iter().copied().map(Some));
        for point in &points {
            canvas.mark("mark", mark, *point, 4.5);
        }
        if let Some((x, y)) = points.first() {
            // At the ends of the curves there is room to the left only.
            let is_late = *x > frame.left + frame.width * 0.8;
            let (anchor, x) = if is_late { (Anchor::End, x - 10.0) } else { (Anchor::Start, x + 2.0) };
            let y = if is_late { y + 4.0 } else { y - 10.0 };
            canvas.text("note", anchor, x, y, &format!("{}, {}", other.name, published.short));
        }
        canvas.end();
    }
}

/// The key to the kinds of lines and marks.
fn draw_key(
    canvas: &mut Canvas,
    frame: &Frame,
    contestants: &[Contestant<'_>],
    published: Option<&Published>,
) {
    let y = HEIGHT - 22.0;
    let mut x = frame.left;
    let mut entry = |canvas: &mut Canvas, text: &str, draw: &dyn Fn(&mut Canvas, f64)| {
        draw(canvas, x);
        canvas.text("tick start", Anchor::Start, x + 34.0, y + 4.0, text);
        x += 34.0 + super::plot::canvas::width(text, 12.0) + 14.0;
    };
    let has_baseline = contestants.iter().any(|each| each.baseline.is_some());
    if has_baseline {
        entry(canvas, "while it changes", &|canvas, x| canvas.line("key", (x, y), (x + 26.0, y)));
        entry(canvas, "while nothing changes", &|canvas, x| {
            canvas.line("key baseline", (x, y), (x + 26.0, y));
        });
    }
    if contestants.iter().any(|each| each.unanswered() > 0) {
        entry(canvas, "requests without an answer are missing", &|canvas, x| {
            canvas.mark("cross", Mark::Cross, (x + 18.0, y), 6.0);
        });
    }
    if let Some(published) = published {
        entry(canvas, &format!("published in {}", published.short), &|canvas, x| {
            canvas.mark("published-mark", Mark::Square, (x + 18.0, y), 4.5);
        });
    }
}

fn description(contestants: &[Contestant<'_>]) -> String {
    let each = contestants.iter().map(|each| {
        let latency = &each.run.load.latency;
        let at = |name: &str| percentile(latency, name).map(|millis| format!("p{name} {}", time(millis)));
        let figures: Vec<String> = NAMES.iter().filter_map(|name| at(name)).collect();
        format!(
            "{}: {}.",
            each.title(),
            if figures.is_empty() { "no answers".to_owned() } else { figures.join(", ") }
        )
    });
    each.collect::<Vec<_>>().join(" ")
}

/// The class of a contestant's elements.
pub(super) fn series(slot: usize) -> String {
    if slot == 0 { "s0 ours".to_owned() } else { format!("s{slot}") }
}

/// Percentiles, and their ratio to the percentiles of the same gateway while nothing changed.
pub(super) fn table(contestants: &[Contestant<'_>]) -> Table {
    let has_baseline = contestants.iter().any(|each| each.baseline.is_some());
    let mut columns = vec![Column::words("gateway")];
    columns.extend(NAMES.iter().map(|name| Column::number(format!("p{name}"))));
    columns.extend([Column::number("max")]);
    if has_baseline {
        columns.push(Column::number("p99.9").with_note("of its baseline"));
    }
    let rows = contestants.iter().flat_map(|each| {
        let latency = &each.run.load.latency;
        let mut main = figures(Cell::contestant(each.title(), each.slot), latency);
        if !has_baseline {
            return vec![Row::of(main)];
        }
        let Some(baseline) = each.baseline else {
            main.push(Cell::quiet("–"));
            return vec![Row::of(main)];
        };
        let (now, before) = (percentile(latency, "99.9"), percentile(&baseline.load.latency, "99.9"));
        main.push(Cell::plain(now.zip(before).map_or("–".to_owned(), |(now, before)| ratio(now, before))));
        let mut other = figures(Cell::plain("while nothing changes"), &baseline.load.latency);
        other.push(Cell::quiet(""));
        vec![Row::of(main), Row::detail(other)]
    });
    Table { caption: "Latency of the requests that were answered".to_owned(), columns, rows: rows.collect() }
}

fn figures(head: Cell, latency: &Latency) -> Vec<Cell> {
    let mut cells = vec![head];
    let known = |millis: Option<f64>| millis.map_or(Cell::quiet("–"), |millis| Cell::plain(time(millis)));
    cells.extend(NAMES.iter().map(|name| known(percentile(latency, name))));
    cells.push(known(is_known(latency, 0.0).then_some(latency.max_us as f64 / 1e3)));
    cells
}

#[cfg(test)]
mod tests {
    use super::super::contest::contestants;
    use super::super::sample::{FLAT, Shape, experiment, gateway, scaling};
    use super::*;
    use crate::results::Results;

    fn results(shape: Shape, rate: u64) -> Results {
        let mut results = experiment("dynamic", "pods change");
        results.gateways = vec![gateway("one", "One", vec![shape.run("dynamic", 10, rate, &scaling(10))])];
        results
    }

    #[test]
    fn latency_curve_ends_at_the_last_measured_percentile() {
        let latency = FLAT.latency(1000);
        let curve = curve(&latency);
        let (last, millis) = *curve.last().unwrap();
        assert!((last - 0.999).abs() < 1e-12, "{last}");
        assert!((millis - latency.max_us as f64 / 1e3).abs() < 1e-9, "{millis}");
        assert!(curve.is_sorted_by(|one, other| one.0 <= other.0 && one.1 <= other.1));
        assert!(percentile(&latency, "99.9").is_some());
        assert_eq!(percentile(&latency, "99.99"), None);
    }

    #[test]
    fn axis_ends_at_the_last_measured_percentile() {
        let results = results(FLAT, 100);
        let plot = plot("", &contestants(&results), None).unwrap();
        assert!(plot.body.contains(">99.9 %<") && !plot.body.contains(">99.99 %<"), "{}", plot.body);
    }

    #[test]
    fn latency_curve_needs_at_least_one_response() {
        assert_eq!(curve(&FLAT.latency(0)), []);
        assert!(curve(&FLAT.latency(1)).iter().all(|point| point.0 == 0.0));
        assert!(percentile(&FLAT.latency(1), "50").is_none());
        assert!(plot("", &contestants(&results(FLAT, 1)), None).is_some());
    }

    #[test]
    fn latency_curve_with_missing_responses_ends_in_a_cross() {
        let crosses = |shape: Shape| {
            let results = results(shape, 100);
            let plot = plot("", &contestants(&results), None).unwrap();
            plot.body.matches("class=\"cross\"").count()
        };
        assert_eq!(crosses(FLAT), 0);
        // The plot has one cross at the end of the curve, and one cross in the key.
        assert_eq!(crosses(Shape { timeout: 1, ..FLAT }), 2);
        assert_eq!(crosses(Shape { unsent: 1, ..FLAT }), 2);
    }

    #[test]
    fn table_shows_the_ratio_of_tail_latency_under_change() {
        let mut results = results(FLAT, 1000);
        let slow = Shape { median: FLAT.median * 3.0, ..FLAT };
        let gateway = &mut results.gateways[0];
        gateway.runs = vec![FLAT.run("static", 10, 1000, &[]), slow.run("dynamic", 10, 1000, &scaling(60))];
        let table = table(&contestants(&results));
        let last = table.rows[0].cells.last().unwrap();
        assert_eq!((last.text.as_str(), table.rows.len()), ("3.00×", 2));
    }
}
