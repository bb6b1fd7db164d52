//! The effect of more workers: requests and new TLS connections per second, lines through them, and prices.

use std::collections::BTreeMap;

use super::costs::{Measured, Work};
use super::fit::Line;
use super::percentiles::{fit as shorten, series};
use super::plot::Plot;
use super::plot::canvas::{Anchor, Canvas};
use super::plot::frame::Frame;
use super::plot::label::spread;
use super::plot::mark::Mark;
use super::plot::scale::Scale;
use super::table::{Cell, Column, Row, Table};
use super::words::{number, round, slug};
use crate::published::{Places, Published, Sizing};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 330.0;

/// The price of hardware with this many CPUs.
#[derive(Clone, Debug)]
pub(super) struct Prices {
    by_cpus: BTreeMap<usize, f64>,
    /// Whether the prices are those of the study's hardware, because the user gave none.
    pub(super) are_published: bool,
}

impl Prices {
    /// The given prices, or else the published prices.
    pub(super) fn of(given: &BTreeMap<usize, f64>, published: Option<&Published>) -> Self {
        if !given.is_empty() {
            return Self { by_cpus: given.clone(), are_published: false };
        }
        let rows = published.map_or(&[][..], |published| &published.rows);
        Self {
            by_cpus: rows.iter().map(|row| (row.cores, row.cost)).collect(),
            are_published: !rows.is_empty(),
        }
    }

    fn is_empty(&self) -> bool {
        self.by_cpus.is_empty()
    }

    fn get(&self, cpus: usize) -> Option<f64> {
        self.by_cpus.get(&cpus).copied().filter(|price| *price > 0.0)
    }

    fn column(&self) -> Column {
        let column = Column::number("price").with_note("US dollars");
        Column { is_published: self.are_published, ..column }
    }
}

pub(super) fn plot(work: &Work<'_>) -> Plot {
    let all = || work.measured.iter().chain(&work.limits);
    let workers = all().map(|each| each.workers as f64).fold(1.0, f64::max);
    let most = all().map(|each| each.requests_per_s().most).fold(0.0, f64::max);
    let frame = Frame {
        left: 66.0,
        top: 46.0,
        width: WIDTH - 66.0 - 212.0,
        height: HEIGHT - 46.0 - 66.0,
        x: Scale::Linear { low: 0.0, high: workers },
        y: Scale::from_zero(most),
    };
    let mut canvas = Canvas::default();
    canvas.text("title", Anchor::Start, 12.0, 22.0, work.name);
    canvas.text("axis-title", Anchor::Start, frame.left, 38.0, work.unit());
    frame.draw_y(&mut canvas, round);
    draw_workers(&mut canvas, &frame, work);
    canvas.text("axis-title", Anchor::End, frame.right(), frame.bottom() + 34.0, "workers");
    let y = HEIGHT - 12.0;
    canvas.line("key fitted", (frame.left, y - 4.0), (frame.left + 26.0, y - 4.0));
    canvas.text(
        "tick",
        Anchor::Start,
        frame.left + 34.0,
        y,
        "straight line by least squares, from the medians",
    );

    let limits = work.limits_by_kind();
    let mut groups = work.by_gateway();
    groups.sort_by_key(|group| group[0].slot == 0);
    let ends: Vec<f64> = limits
        .iter()
        .chain(&groups)
        .filter_map(|group| group.last())
        .map(|last| frame.at(point(last)).1)
        .collect();
    let mut places = spread(&ends, 17.0, frame.top, frame.bottom()).into_iter();
    for (group, place) in limits.iter().zip(&mut places) {
        draw_limit(&mut canvas, &frame, group, place);
    }
    for (group, place) in groups.iter().zip(places) {
        draw(&mut canvas, &frame, group, place);
    }
    let each = groups.iter().filter_map(|group| {
        let line = line(group)?;
        Some(format!("{}: {} for each further worker", group[0].gateway.title, number(line.slope)))
    });
    Plot {
        name: format!("sizing-{}", slug(work.name)),
        title: format!("{}: {} over workers", work.name, work.unit()),
        description: format!("{}.", each.collect::<Vec<_>>().join("; ")),
        width: WIDTH,
        height: HEIGHT,
        body: canvas.into_body(),
    }
}

/// Only measured numbers of workers have a label, because half a worker does not exist.
fn draw_workers(canvas: &mut Canvas, frame: &Frame, work: &Work<'_>) {
    let mut counts: Vec<usize> = work.measured.iter().chain(&work.limits).map(|each| each.workers).collect();
    counts.extend([0]);
    counts.sort_unstable();
    counts.dedup();
    let mut free = f64::NEG_INFINITY;
    for workers in counts {
        let x = frame.at_x(workers as f64);
        canvas.line("grid", (x, frame.top), (x, frame.bottom()));
        if x > free {
            canvas.text("tick", Anchor::Middle, x, frame.bottom() + 17.0, &workers.to_string());
            free = x + 16.0;
        }
    }
    frame.draw_base(canvas);
}

/// The number of workers, and their rate per second.
fn point(each: &Measured<'_>) -> (f64, f64) {
    (each.workers as f64, each.requests_per_s().median)
}

fn line(group: &[&Measured<'_>]) -> Option<Line> {
    Line::through(&group.iter().map(|each| point(each)).collect::<Vec<_>>())
}

fn draw(canvas: &mut Canvas, frame: &Frame, group: &[&Measured<'_>], place: f64) {
    let Some(last) = group.last() else { return };
    canvas.begin(&series(last.slot), &last.gateway.title);
    if let Some(line) = line(group) {
        let ends = [0.0, last.workers as f64].map(|x| Some(frame.at((x, line.at(x).max(0.0)))));
        canvas.path("line fitted", ends);
    }
    for each in group {
        let rates = each.requests_per_s();
        let (x, y) = frame.at(point(each));
        canvas.line("whisker", (x, frame.at_y(rates.least)), (x, frame.at_y(rates.most)));
        canvas.mark("mark", Mark::of(each.slot), (x, y), 4.2);
    }
    draw_name(canvas, frame, last, place);
    canvas.end();
}

fn draw_name(canvas: &mut Canvas, frame: &Frame, last: &Measured<'_>, place: f64) {
    let (x, y) = frame.at(point(last));
    let name = frame.right() + 14.0;
    canvas.path("leader", [Some((x + 7.0, y)), Some((frame.right() + 2.0, place)), Some((name, place))]);
    canvas.mark("mark", Mark::of(last.slot), (name + 6.0, place), 3.6);
    canvas.text("name", Anchor::Start, name + 16.0, place + 4.0, &shorten(&last.gateway.title, 180.0));
}

fn draw_limit(canvas: &mut Canvas, frame: &Frame, group: &[&Measured<'_>], place: f64) {
    let Some(last) = group.last() else { return };
    canvas.begin("limit", &last.limit_name());
    let points = group.iter().map(|each| Some(frame.at(point(each))));
    canvas.path("line", points);
    let name = shorten(&last.limit_name(), 200.0);
    canvas.text("note", Anchor::Start, frame.right() + 14.0, place + 4.0, &name);
    canvas.end();
}

/// Rows of workers, a column for each gateway, and the published figures beside.
pub(super) fn table(work: &Work<'_>, published: Option<&Published>, prices: &Prices) -> Table {
    let groups = work.by_gateway();
    let limits = work.limits_by_kind();
    let rows = published.map_or(&[][..], |published| &published.rows);
    let year = published.map_or("", |published| &published.short);
    let mut columns = vec![Column::number("workers")];
    columns.extend(groups.iter().map(|group| Column::number(group[0].gateway.title.clone())));
    columns.extend(limits.iter().map(|group| Column::number(group[0].limit_name())));
    if !rows.is_empty() {
        let places = ["bare metal", "hypervisor", "Kubernetes"];
        columns.extend(places.map(|place| Column::published(place, format!("published {year}"))));
        if work.is_new_tls() {
            columns.push(Column::published("Kubernetes, hyper-threading", format!("published {year}")));
        }
    }
    if !prices.is_empty() {
        columns.push(prices.column());
    }
    let mut counts: Vec<usize> = work.measured.iter().map(|each| each.workers).collect();
    counts.extend(rows.iter().map(|row| row.cores));
    counts.sort_unstable();
    counts.dedup();
    let rows = counts.into_iter().map(|workers| {
        let mut cells = vec![Cell::plain(workers.to_string())];
        for group in groups.iter().chain(&limits) {
            let at = group.iter().find(|each| each.workers == workers);
            cells.push(at.map_or(Cell::quiet("–"), |each| rate_cell(each)));
        }
        if !rows.is_empty() {
            cells.extend(published_cells(work, rows.iter().find(|row| row.cores == workers)));
        }
        if !prices.is_empty() {
            cells.push(prices.get(workers).map_or(Cell::quiet("–"), |price| Cell::plain(number(price))));
        }
        Row::of(cells)
    });
    Table { caption: format!("{}: {}", work.name, work.unit()), rows: rows.collect(), columns }
}

fn rate_cell(each: &Measured<'_>) -> Cell {
    let text = number(each.requests_per_s().median);
    match each.errors() {
        0 => Cell::plain(text),
        errors => Cell::bad(format!("{text} ({errors} errors)")),
    }
}

fn published_cells(work: &Work<'_>, row: Option<&Sizing>) -> Vec<Cell> {
    let cell = |value: Option<f64>| value.map_or(Cell::quiet("–"), |value| Cell::plain(number(value)));
    let places: Option<Places> = row.map(|row| if work.is_new_tls() { row.tps } else { row.rps });
    let mut cells = vec![
        cell(places.map(|places| places.metal)),
        cell(places.map(|places| places.hypervisor)),
        cell(places.map(|places| places.kubernetes)),
    ];
    if work.is_new_tls() {
        cells.push(cell(row.map(|row| row.tps_hyper_threading)));
    }
    cells
}

/// The lines through all points, and the best rate per dollar.
pub(super) fn lines(work: &Work<'_>, prices: &Prices) -> Table {
    let mut columns = vec![
        Column::words("gateway"),
        Column::number("for each further worker").with_note(work.unit()),
        Column::number("at 0 workers").with_note("where the line begins"),
        Column::number("R²"),
    ];
    if !prices.is_empty() {
        columns.push(Column::number("for a dollar").with_note(format!("{}, at best", work.unit())));
    }
    let rows = work.by_gateway().into_iter().map(|group| {
        let line = line(&group);
        let of_line =
            |text: &dyn Fn(Line) -> String| line.map_or(Cell::quiet("–"), |line| Cell::plain(text(line)));
        let mut cells = vec![
            Cell::contestant(group[0].gateway.title.clone(), group[0].slot),
            of_line(&|line| number(line.slope)),
            of_line(&|line| number(line.at_zero)),
            of_line(&|line| format!("{:.4}", line.r_squared)),
        ];
        if !prices.is_empty() {
            let per_dollar = |each: &&Measured<'_>| {
                let price = prices.get(each.workers)?;
                Some((each.requests_per_s().median / price, each.workers))
            };
            let best = group.iter().filter_map(per_dollar).max_by(|one, other| one.0.total_cmp(&other.0));
            cells.push(best.map_or(Cell::quiet("–"), |(rate, workers)| {
                let workers = super::words::counted(workers as u64, "worker");
                Cell::plain(format!("{} ({workers})", number(rate)))
            }));
        }
        Row::of(cells)
    });
    Table {
        caption: format!("{}: straight lines through the medians", work.name),
        rows: rows.collect(),
        columns,
    }
}
