//! Busy CPUs over the rate of requests: the CPU time of a gateway at a rate, and the rate at which it is saturated.

use super::costs::{Measured, Work};
use super::percentiles::{fit, series};
use super::plot::Plot;
use super::plot::canvas::{Anchor, Canvas};
use super::plot::frame::Frame;
use super::plot::label::spread;
use super::plot::mark::Mark;
use super::plot::scale::Scale;
use super::table::{Cell, Column, Row, Table};
use super::words::{number, round, slug, time};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 400.0;

pub(super) fn plot(work: &Work<'_>) -> Plot {
    let wanted = |each: &Measured<'_>| each.rate.unwrap_or(0.0);
    let most_x = work.measured.iter().map(wanted).fold(0.0, f64::max);
    let most_y = work.measured.iter().map(cpus).fold(0.0, f64::max);
    let frame = Frame {
        left: 56.0,
        top: 46.0,
        width: WIDTH - 56.0 - 212.0,
        height: HEIGHT - 46.0 - 74.0,
        x: Scale::from_zero(most_x),
        y: Scale::from_zero(most_y),
    };
    let mut canvas = Canvas::default();
    canvas.text("title", Anchor::Start, 12.0, 22.0, &format!("{}: CPU over rate", work.name));
    canvas.text("axis-title", Anchor::Start, frame.left, 38.0, "CPUs busy with the gateway");
    frame.draw_y(&mut canvas, round);
    frame.draw_x(&mut canvas, round);
    canvas.text("axis-title", Anchor::End, frame.right(), frame.bottom() + 34.0, "target rate, requests/s");
    let mut groups = work.by_gateway();
    // Sluicegate is last, so that its line is not hidden.
    groups.sort_by_key(|group| group[0].slot == 0);
    let ends: Vec<f64> =
        groups.iter().filter_map(|group| group.last()).map(|last| frame.at_y(cpus(last))).collect();
    let places = spread(&ends, 17.0, frame.top, frame.bottom());
    for (group, place) in groups.iter().zip(places) {
        draw(&mut canvas, &frame, group, place);
    }
    if work.measured.iter().any(Measured::is_saturated) {
        let y = HEIGHT - 14.0;
        canvas.mark("cross", Mark::Cross, (frame.left + 6.0, y - 4.0), 5.0);
        canvas.text("tick", Anchor::Start, frame.left + 18.0, y, "the gateway did not reach the target rate");
    }
    let each = groups.iter().map(|group| {
        let reached = group.iter().map(|each| each.requests_per_s().median).fold(0.0, f64::max);
        format!("{} reached {} requests/s", group[0].gateway.title, number(reached))
    });
    Plot {
        name: format!("cpu-over-rate-{}", slug(work.name)),
        title: format!("{}: CPUs busy over the rate", work.name),
        description: format!("{}.", each.collect::<Vec<_>>().join("; ")),
        width: WIDTH,
        height: HEIGHT,
        body: canvas.into_body(),
    }
}

fn cpus(each: &Measured<'_>) -> f64 {
    each.cpus().median
}

fn draw(canvas: &mut Canvas, frame: &Frame, group: &[&Measured<'_>], place: f64) {
    let at = |each: &Measured<'_>| frame.at((each.rate.unwrap_or(0.0), cpus(each)));
    let Some(last) = group.last() else { return };
    let title = &last.gateway.title;
    canvas.begin(&series(last.slot), title);
    canvas.path("line", group.iter().map(|each| Some(at(each))));
    for each in group {
        let (class, mark, size) = if each.is_saturated() {
            ("cross", Mark::Cross, 4.5)
        } else {
            ("mark", Mark::of(each.slot), 4.0)
        };
        canvas.mark(class, mark, at(each), size);
    }
    let (x, y) = at(last);
    let name = frame.right() + 14.0;
    canvas.path("leader", [Some((x + 7.0, y)), Some((frame.right() + 2.0, place)), Some((name, place))]);
    canvas.mark("mark", Mark::of(last.slot), (name + 6.0, place), 3.6);
    canvas.text("name", Anchor::Start, name + 16.0, place + 4.0, &fit(title, 180.0));
    canvas.end();
}

/// The highest rate of each gateway, and the cost of a request at half of that rate.
pub(super) fn table(work: &Work<'_>) -> Table {
    let columns = vec![
        Column::words("gateway"),
        Column::number("highest rate kept").with_note("requests/s"),
        Column::number("most answered").with_note("requests/s"),
        Column::number("CPU/request").with_note("at the highest rate kept"),
        Column::number("p99").with_note("at the highest rate kept"),
        Column::number("errors").with_note("all rates"),
    ];
    let rows = work.by_gateway().into_iter().map(|group| {
        let kept = group.iter().rfind(|each| !each.is_saturated());
        let most = group.iter().map(|each| each.requests_per_s().median).fold(0.0, f64::max);
        let at_kept = |text: &dyn Fn(&Measured<'_>) -> String| {
            kept.map_or(Cell::quiet("none"), |each| Cell::plain(text(each)))
        };
        Row::of([
            Cell::contestant(group[0].gateway.title.clone(), group[0].slot),
            at_kept(&|each| number(each.rate.unwrap_or(0.0))),
            Cell::plain(number(most)),
            at_kept(&|each| format!("{} µs", number(each.cost().median))),
            at_kept(&|each| time(each.spread(|point| point.p99_ms).median)),
            Cell::errors(group.iter().map(|each| each.errors()).sum()),
        ])
    });
    Table { caption: format!("{}: the highest rates", work.name), rows: rows.collect(), columns }
}
