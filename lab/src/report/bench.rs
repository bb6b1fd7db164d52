//! The cost of each kind of work, gateway by gateway.

use super::contest::OURS;
use super::costs::{Measured, Work};
use super::percentiles::{fit, series};
use super::plot::Plot;
use super::plot::canvas::{Anchor, Canvas};
use super::plot::frame::Frame;
use super::plot::scale::Scale;
use super::table::{Cell, Column, Row, Table};
use super::words::{number, ratio, round, slug, time};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 190.0;
const BAR: f64 = 15.0;
const STEP: f64 = 25.0;

pub(super) fn table(work: &Work<'_>) -> Table {
    let reference = reference(work);
    let columns = vec![
        Column::words("gateway"),
        Column::number("CPU/request").with_note("median"),
        Column::number("least – most"),
        Column::number("cost")
            .with_note(reference.map_or(String::new(), |each| format!("of {}", each.gateway.title))),
        Column::number(work.unit()),
        Column::number("CPUs").with_note("busy with it"),
        Column::number("p99"),
        Column::number("errors"),
        Column::words("version"),
    ];
    let row = |each: &Measured<'_>, is_limit: bool| {
        let cost = each.cost();
        let head = if is_limit {
            Cell::plain(each.limit_name())
        } else {
            Cell::contestant(each.gateway.title.clone(), each.slot)
        };
        let relative = reference.map_or("–".to_owned(), |other| ratio(cost.median, other.cost().median));
        let cells = [
            head,
            Cell::plain(format!("{} µs", number(cost.median))),
            Cell::plain(format!("{} – {}", number(cost.least), number(cost.most))),
            Cell::plain(relative),
            Cell::plain(number(each.requests_per_s().median)),
            Cell::plain(number(each.cpus().median)),
            Cell::plain(time(each.spread(|point| point.p99_ms).median)),
            Cell::errors(each.errors()),
            Cell::quiet(if is_limit { "" } else { &each.gateway.version }),
        ];
        if is_limit { Row::detail(cells) } else { Row::of(cells) }
    };
    let mut rows: Vec<Row> = work.measured.iter().map(|each| row(each, false)).collect();
    rows.extend(work.limits.iter().map(|each| row(each, true)));
    Table { caption: work.name.to_owned(), columns, rows }
}

/// The figures that the others are compared with: Sluicegate, or the lowest cost.
fn reference<'w, 'r>(work: &'w Work<'r>) -> Option<&'w Measured<'r>> {
    let ours = work.measured.iter().find(|each| each.gateway.name == OURS);
    ours.or_else(|| {
        work.measured.iter().min_by(|one, other| one.cost().median.total_cmp(&other.cost().median))
    })
}

/// A bar for each gateway, with its spread; each kind of work has its own scale.
pub(super) fn plot(work: &Work<'_>) -> Plot {
    let most = work.measured.iter().map(|each| each.cost().most).fold(0.0, f64::max);
    let frame = Frame {
        left: LEFT,
        top: 32.0,
        width: WIDTH - LEFT - 52.0,
        height: STEP * work.measured.len() as f64 + 4.0,
        x: Scale::from_zero(most),
        y: Scale::Linear { low: 0.0, high: 1.0 },
    };
    let mut canvas = Canvas::default();
    canvas.text("title", Anchor::Start, 4.0, 18.0, work.name);
    for tick in frame.x.ticks() {
        let x = frame.at_x(tick.value);
        canvas.line("grid", (x, frame.top), (x, frame.bottom()));
        canvas.text("tick", Anchor::Middle, x, frame.bottom() + 16.0, &round(tick.value));
    }
    canvas.line("axis", (frame.left, frame.top), (frame.left, frame.bottom()));
    for (index, each) in work.measured.iter().enumerate() {
        draw(&mut canvas, &frame, each, frame.top + 4.0 + STEP * index as f64);
    }
    for limit in &work.limits {
        let x = frame.at_x(limit.cost().median);
        canvas.begin("limit", &limit.limit_name());
        canvas.line("line", (x, frame.top - 4.0), (x, frame.bottom()));
        canvas.text("note start", Anchor::Start, x + 3.0, frame.top - 2.0, &limit.limit_name());
        canvas.end();
    }
    canvas.text(
        "axis-title",
        Anchor::End,
        frame.right(),
        frame.bottom() + 31.0,
        "CPU time per request in µs, least – median – most",
    );
    let each =
        work.measured.iter().map(|each| format!("{} {} µs", each.gateway.title, number(each.cost().median)));
    Plot {
        name: format!("cost-{}", slug(work.name)),
        title: format!("{}: CPU time per request", work.name),
        description: format!("Medians: {}.", each.collect::<Vec<_>>().join(", ")),
        width: WIDTH,
        height: frame.bottom() + 40.0,
        body: canvas.into_body(),
    }
}

fn draw(canvas: &mut Canvas, frame: &Frame, each: &Measured<'_>, top: f64) {
    let cost = each.cost();
    let middle = top + BAR / 2.0;
    let [least, median, most] = [cost.least, cost.median, cost.most].map(|value| frame.at_x(value));
    let title = &each.gateway.title;
    canvas.begin(&series(each.slot), &format!("{title}: {} µs", number(cost.median)));
    canvas.text("name", Anchor::End, LEFT - 8.0, middle + 4.0, &fit(title, LEFT - 12.0));
    canvas.rect("bar", LEFT, top, median - LEFT, BAR);
    canvas.line("whisker", (least, middle), (most, middle));
    for x in [least, most] {
        canvas.line("whisker", (x, middle - 4.0), (x, middle + 4.0));
    }
    canvas.text("value", Anchor::Start, most.max(median) + 6.0, middle + 4.0, &number(cost.median));
    canvas.end();
}
