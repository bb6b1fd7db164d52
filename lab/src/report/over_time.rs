//! A run over time: latency, errors and CPUs above each other, with the changes. Each gateway has a plot, and all plots
//! have the same scales.

use super::contest::Contestant;
use super::percentiles::{fit, series};
use super::plot::Plot;
use super::plot::canvas::{Anchor, Canvas, width};
use super::plot::frame::Frame;
use super::plot::label::spread;
use super::plot::mark::Mark;
use super::plot::scale::Scale;
use super::words::{count, counted, round, round_time, time};
use crate::results::{Interval, Run};

const WIDTH: f64 = 480.0;
const LEFT: f64 = 54.0;
const RIGHT: f64 = 38.0;
const TOP: f64 = 46.0;
const LATENCY: f64 = 140.0;
/// The height of the strips below, and the room above each for its name.
const STRIP: f64 = 34.0;
const GAP: f64 = 22.0;

/// The common scales of all plots.
struct Scales {
    seconds: Scale,
    latency: Scale,
    /// [`None`] if no run has values for the strip. The plot then omits the strip.
    errors: Option<Scale>,
    cpus: Option<Scale>,
}

/// A plot for each run with intervals.
pub(super) fn plots(contestants: &[Contestant<'_>]) -> Vec<Plot> {
    let shown = || contestants.iter().filter(|each| !each.run.load.intervals.is_empty());
    let Some(scales) = Scales::of(shown().map(|each| each.run)) else { return Vec::new() };
    shown().map(|each| plot(each, &scales)).collect()
}

impl Scales {
    /// [`None`] if no run has a response.
    fn of<'r>(runs: impl Iterator<Item = &'r Run> + Clone) -> Option<Self> {
        let answered =
            || runs.clone().flat_map(|run| &run.load.intervals).filter(|interval| interval.answered > 0);
        let least = answered().map(|interval| millis(interval.p50_us)).fold(f64::INFINITY, f64::min);
        let most = answered().map(|interval| millis(interval.max_us)).fold(0.0, f64::max);
        let seconds = runs.clone().map(length).fold(0.0, f64::max);
        let errors = runs.clone().flat_map(|run| rates(run).map(|(_, rate)| rate)).fold(0.0, f64::max);
        let cpus = runs.flat_map(|run| &run.cpu).map(|sample| sample.cpus).fold(0.0, f64::max);
        (least.is_finite() && seconds > 0.0).then(|| Self {
            seconds: Scale::Linear { low: 0.0, high: seconds },
            latency: Scale::log(least, most),
            // The scale starts below 1, so that a single error is visible.
            errors: (errors > 0.0).then(|| Scale::log(0.5, errors.max(1.0))),
            cpus: (cpus > 0.0).then(|| Scale::from_zero(cpus)),
        })
    }
}

fn length(run: &Run) -> f64 {
    let last = run.load.intervals.last().map_or(0.0, |interval| interval.at_s + run.load.interval_s);
    last.max(run.load.duration_s)
}

fn millis(us: u64) -> f64 {
    us.max(1) as f64 / 1e3
}

/// The time of each interval, and its errors per second.
fn rates(run: &Run) -> impl Iterator<Item = (f64, f64)> {
    let seconds = run.load.interval_s.max(1e-9);
    run.load.intervals.iter().map(move |interval| (interval.at_s, interval.errors as f64 / seconds))
}

fn plot(each: &Contestant<'_>, scales: &Scales) -> Plot {
    let mut canvas = Canvas::default();
    canvas.begin(&series(each.slot), &each.title());
    canvas.mark("mark", Mark::of(each.slot), (12.0, 14.0), 4.2);
    canvas.text("title", Anchor::Start, 23.0, 19.0, &fit(&each.title(), 360.0));
    let strip = |top: f64, height: f64, y: Scale| Frame {
        left: LEFT,
        top,
        width: WIDTH - LEFT - RIGHT,
        height,
        x: scales.seconds,
        y,
    };
    let mut frames = vec![strip(TOP, LATENCY, scales.latency)];
    for scale in [scales.errors, scales.cpus].into_iter().flatten() {
        let top = frames.last().map_or(TOP, Frame::bottom) + GAP;
        frames.push(strip(top, STRIP, scale));
    }
    let bottom = frames.last().map_or(TOP, Frame::bottom);
    let mut rest = frames.into_iter();
    if let Some(frame) = rest.next() {
        frame.draw_y(&mut canvas, round_time);
        frame.draw_base(&mut canvas);
        draw_events(&mut canvas, &frame, bottom, each.run);
        draw_latency(&mut canvas, &frame, each.run);
    }
    if let Some(frame) = rest.next().filter(|_| scales.errors.is_some()) {
        draw_errors(&mut canvas, &frame, each.run);
        if let Some(frame) = rest.next() {
            draw_cpus(&mut canvas, &frame, each.run);
        }
    } else if scales.cpus.is_some() {
        let below = strip(TOP + LATENCY + GAP, STRIP, scales.cpus.unwrap_or(scales.latency));
        draw_cpus(&mut canvas, &below, each.run);
    }
    draw_seconds(&mut canvas, scales.seconds, bottom);
    canvas.end();
    Plot {
        name: format!("over-time-{}", each.name()),
        title: format!("{} over time", each.title()),
        description: description(each),
        width: WIDTH,
        height: bottom + 28.0,
        body: canvas.into_body(),
    }
}

fn draw_seconds(canvas: &mut Canvas, scale: Scale, bottom: f64) {
    for tick in scale.ticks() {
        let x = LEFT + scale.place(tick.value) * (WIDTH - LEFT - RIGHT);
        let unit = if tick.value == 0.0 { "" } else { " s" };
        canvas.line("axis", (x, bottom), (x, bottom + 4.0));
        canvas.text("tick", Anchor::Middle, x, bottom + 17.0, &(round(tick.value) + unit));
    }
}

/// Thin lines through all strips, with names where there is room.
fn draw_events(canvas: &mut Canvas, frame: &Frame, bottom: f64, run: &Run) {
    let mut free = 0.0;
    let is_crowded = run.events.len() > 30;
    for event in &run.events {
        let x = frame.at_x(event.at_s);
        canvas.begin(
            if is_crowded { "event crowded" } else { "event" },
            &format!("{} s: {}", round(event.at_s), event.text),
        );
        canvas.line("moment", (x, frame.top - 3.0), (x, bottom));
        let text = if event.text.chars().count() <= 12 { &event.text } else { &event.kind };
        let room = width(text, 10.0);
        let left = (x - room / 2.0).min(WIDTH - room - 2.0);
        if !is_crowded && left > free {
            canvas.text("moment-name", Anchor::Middle, left + room / 2.0, frame.top - 7.0, text);
            free = left + room + 5.0;
        }
        canvas.end();
    }
}

fn draw_latency(canvas: &mut Canvas, frame: &Frame, run: &Run) {
    let half = run.load.interval_s / 2.0;
    // The value that a line shows for an interval.
    type Value = fn(&Interval) -> u64;
    let lines: [(&str, &str, Value); 3] = [
        ("thin line", "max", |interval| interval.max_us),
        ("medium line", "p99", |interval| interval.p99_us),
        ("strong line", "p50", |interval| interval.p50_us),
    ];
    let mut ends = Vec::new();
    for (class, name, value) in lines {
        let points = run.load.intervals.iter().map(|interval| {
            (interval.answered > 0).then(|| frame.at((interval.at_s + half, millis(value(interval)))))
        });
        canvas.path(class, points.clone());
        ends.extend(points.flatten().last().map(|end| (name, end.1)));
    }
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let places = spread(&wanted, 12.0, frame.top + 3.0, frame.bottom() - 3.0);
    for ((name, _), y) in ends.into_iter().zip(places) {
        canvas.text("small", Anchor::Start, frame.right() + 6.0, y + 4.0, name);
    }
}

fn draw_errors(canvas: &mut Canvas, frame: &Frame, run: &Run) {
    let Scale::Log { high, .. } = frame.y else { return };
    let top = 10f64.powf(high.log10().floor());
    let values: &[f64] = if top > 1.0 { &[1.0, top] } else { &[1.0] };
    frame.draw_few(canvas, values, short_count);
    frame.draw_base(canvas);
    canvas.text("small", Anchor::Start, frame.left, frame.top - 5.0, "errors/s, logarithmic");
    let seconds = run.load.interval_s;
    let mut total = 0.0;
    for (at, rate) in rates(run).filter(|(_, rate)| *rate > 0.0) {
        let (left, right) = (frame.at_x(at), frame.at_x(at + seconds));
        // The bar has a minimum height, so that a few errors are visible.
        let height = (frame.bottom() - frame.at_y(rate)).max(2.0);
        let width = (right - left - 0.5).max(0.6);
        canvas.rect("failed", left, frame.bottom() - height, width, height);
        total += rate * seconds;
    }
    let text =
        if total > 0.0 { format!("{} in all", count(total.round() as u64)) } else { "none".to_owned() };
    canvas.text("small", Anchor::End, frame.right(), frame.top - 5.0, &text);
}

/// `20`, `3k`: a short form for small room.
fn short_count(value: f64) -> String {
    if value >= 1e6 {
        format!("{}M", round(value / 1e6))
    } else if value >= 1e3 {
        format!("{}k", round(value / 1e3))
    } else {
        round(value)
    }
}

fn draw_cpus(canvas: &mut Canvas, frame: &Frame, run: &Run) {
    let Scale::Linear { high, .. } = frame.y else { return };
    frame.draw_few(canvas, &[0.0, high], round);
    frame.draw_base(canvas);
    canvas.text("small", Anchor::Start, frame.left, frame.top - 5.0, "CPUs busy");
    let mut steps = Vec::new();
    let mut before = 0.0;
    for sample in &run.cpu {
        steps.extend([Some(frame.at((before, sample.cpus))), Some(frame.at((sample.at_s, sample.cpus)))]);
        before = sample.at_s;
    }
    let area =
        [Some(frame.at((0.0, 0.0)))].into_iter().chain(steps.clone()).chain([Some(frame.at((before, 0.0)))]);
    canvas.path("area", area);
    canvas.path("medium line", steps);
}

fn description(each: &Contestant<'_>) -> String {
    let run = each.run;
    let worst = run.load.intervals.iter().max_by_key(|interval| interval.p99_us);
    let worst = worst.map_or_else(String::new, |interval| {
        format!(
            " The worst p99 of an interval was {}, {} s after the beginning.",
            time(millis(interval.p99_us)),
            round(interval.at_s)
        )
    });
    format!(
        "Latency (p50, p99, max), errors a second and CPUs busy in {} with {}.{worst}",
        counted(run.load.intervals.len() as u64, "interval"),
        counted(run.events.len() as u64, "change"),
    )
}
