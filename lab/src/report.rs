//! The results of an experiment for readers: a page of HTML, a summary in Markdown, plots as files, a few lines for a
//! terminal.
//!
//! The input is results, and the output is text. This module measures nothing, so it can repeat the report from stored
//! results.
//!
//! | module | content |
//! |---|---|
//! | [`api`] | API gateways: denied calls, the latency added to one request, the cost of functions |
//! | [`contest`] | the compared gateways, with their baselines |
//! | [`verdict`] | the conclusions from the figures, in sentences |
//! | [`errors`] | errors |
//! | [`percentiles`], [`over_time`] | latency, by percentile and over time |
//! | [`cpu`] | CPU time, memory, and the delay until changes take effect |
//! | [`costs`] | single figures of several turns, combined |
//! | [`mod@bench`], [`rates`], [`sizing`] | the cost of requests: by gateway, by rate, by workers |
//! | [`idle`] | the memory of idle connections |
//! | [`fit`] | a straight line through points |
//! | [`setting`] | the setting of the measurement |
//! | [`words`], [`table`], [`plot`] | the form of numbers, tables and plots |
//! | [`page`] | the page around them |

mod api;
mod bench;
mod contest;
mod costs;
mod cpu;
mod errors;
mod fit;
mod idle;
mod over_time;
mod page;
mod percentiles;
mod plot;
mod rates;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_costs;
mod setting;
mod sizing;
mod table;
#[cfg(test)]
mod tests;
mod verdict;
mod words;

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

pub(crate) use self::contest::median;
pub(crate) use self::words::counted;

use self::contest::Contestant;
use self::costs::{Shape, Work};
use self::page::{paragraph, section};
use self::plot::Plot;
use self::sizing::Prices;
use self::table::Table;
use self::verdict::Verdict;
use crate::published::{self, Published};
use crate::results::Results;

/// The input and the output files of a report.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// The file with the results of `sluicegate-lab run`.
    #[arg(value_name = "RESULTS.json")]
    results: PathBuf,
    /// The file for the page. [default: report.html beside the results]
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The file for the summary. The plots go into the same folder. [default: report.md beside the results]
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Makes the report of stored results, and prints a summary.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    match std::io::stdout().lock().write_all(make(args)?.as_bytes()) {
        // A closed output is no error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Writes the files; returns the text for the terminal.
fn make(args: &ReportArgs) -> anyhow::Result<String> {
    let path = &args.results;
    let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let results: Results = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what `run` stores", path.display()))?;
    let beside = |name: &str| path.with_file_name(name);
    let html_path = args.html.clone().unwrap_or_else(|| beside("report.html"));
    let markdown_path = args.markdown.clone().unwrap_or_else(|| beside("report.md"));
    write(&results, &html_path, &markdown_path)?;
    Ok(format!("{}\n{}\n", summary(&results), html_path.display()))
}

/// Writes the page, and the summary with its plots beside it.
pub(crate) fn write(results: &Results, page: &Path, summary: &Path) -> anyhow::Result<()> {
    write_file(page, &html(results))?;
    write_file(summary, &markdown(results))?;
    plots(results).iter().try_for_each(|(name, svg)| write_file(&summary.with_file_name(name), svg))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// The common data of all parts of a report.
struct Report<'r> {
    results: &'r Results,
    contestants: Vec<Contestant<'r>>,
    works: Vec<Work<'r>>,
    verdicts: Vec<Verdict>,
    /// The repeated study.
    published: Option<Published>,
    prices: Prices,
}

impl<'r> Report<'r> {
    fn of(results: &'r Results) -> Self {
        let published = results.published.as_deref().and_then(published::find);
        let contestants = contest::contestants(results);
        let works = costs::works(results);
        let verdicts = verdict::all(results, &contestants, &works);
        let prices = Prices::of(&results.prices, published.as_ref());
        Self { results, contestants, works, verdicts, published, prices }
    }

    /// The study, if the experiment has changes. Only then are the study's statements about changing endpoints
    /// comparable with the measurements.
    fn beside(&self) -> Option<&Published> {
        let changes = self.contestants.iter().any(|each| !each.run.events.is_empty());
        self.published.as_ref().filter(|published| changes && !published.contestants.is_empty())
    }

    fn percentiles(&self) -> Option<Plot> {
        percentiles::plot(&self.results.title, &self.contestants, self.beside())
    }

    /// The tables and the plot of each kind of work, in the order of the report.
    fn costs(&self) -> Vec<(&Work<'r>, Plot, Vec<Table>)> {
        let shown = self.works.iter().filter(|work| !work.measured.is_empty());
        shown
            .map(|work| match work.shape {
                Shape::Bench => (work, bench::plot(work), vec![bench::table(work)]),
                Shape::Rates => (work, rates::plot(work), vec![rates::table(work)]),
                Shape::Sizing => {
                    let table = sizing::table(work, self.published.as_ref(), &self.prices);
                    (work, sizing::plot(work), vec![table, sizing::lines(work, &self.prices)])
                }
            })
            .collect()
    }

    /// The tables of API gateways; empty if the experiment measured none.
    fn api(&self) -> Vec<Table> {
        api::tables(self.results, &self.works, self.published.as_ref())
    }

    /// The numbers of requests by gateway that are in no percentile.
    fn unanswered(&self) -> String {
        let each = self.contestants.iter().map(|each| match each.unanswered() {
            0 => format!("{}: none", each.title()),
            unanswered => {
                format!(
                    "{}: {} ({})",
                    each.title(),
                    words::count(unanswered),
                    words::share(unanswered, each.due())
                )
            }
        });
        let each: Vec<String> = each.collect();
        format!(
            "Requests without an answer have no latency, so they are in no curve and in no percentile. {}.",
            each.join("; ")
        )
    }

    /// The setting of the study, and the results of the study without a column.
    fn study(&self) -> Option<String> {
        let Published { title, setting, unchanging, .. } = self.published.as_ref()?;
        let unchanging = unchanging.as_deref().filter(|_| self.beside().is_none());
        Some(format!(
            "Published: {title}. {setting}{}",
            unchanging.map_or(String::new(), |text| format!(" {text}"))
        ))
    }
}

/// The page.
pub(crate) fn html(results: &Results) -> String {
    let report = Report::of(results);
    let mut body = head(&report);
    if !report.contestants.is_empty() {
        let errors = errors::table(&report.contestants, report.beside()).html();
        let study = report.study().map(|text| paragraph("under", &text)).unwrap_or_default();
        body += &section("Errors", &(errors + &study));
        let plot = report.percentiles().map(|plot| page::figure(&plot)).unwrap_or_default();
        let under = paragraph("under", &report.unanswered());
        body += &section("Latency", &(plot + &under + &percentiles::table(&report.contestants).html()));
        let over_time = page::figures(&over_time::plots(&report.contestants));
        let under =
            "All plots have the same scales. A request counts when it was due. Vertical lines mark changes.";
        body += &section(
            "Over time",
            &if over_time.is_empty() { over_time } else { paragraph("under", under) + &over_time },
        );
        let tables = cpu::table(&report.contestants).into_iter().chain(cpu::followed(&report.contestants));
        body += &section("CPU, memory and following", &tables.map(|table| table.html()).collect::<String>());
    }
    let api: String = report.api().iter().map(Table::html).collect();
    if !api.is_empty() {
        let study = report.study().map(|text| paragraph("under", &text)).unwrap_or_default();
        body += &section("API gateways", &(api + &study));
    }
    body += &costs_html(&report);
    body += &section("How it was measured", &setting::html(results, &report.contestants));
    page::whole(&results.title, &body)
}

fn head(report: &Report<'_>) -> String {
    let results = report.results;
    let mut out = paragraph(
        "kicker",
        &format!(
            "sluicegate-lab · {} · {} · took {}",
            results.experiment,
            words::date(results.started_unix_ms),
            words::long(results.took_s)
        ),
    );
    out += &format!("<h1>{}</h1>\n", words::escape(&results.title));
    out += &paragraph("lead", &results.about);
    let warnings = warnings(report);
    if !warnings.is_empty() {
        let items: String = warnings.iter().map(|text| format!("<li>{}</li>", words::escape(text))).collect();
        out += &format!(
            "<div class=\"warnings\" role=\"note\"><strong>Before you believe a figure</strong><ul>{items}</ul></div>\n"
        );
    }
    let items = report.verdicts.iter().map(|verdict| {
        let class = if verdict.is_bad { " class=\"bad\"" } else { "" };
        format!("<li{class}>{}</li>\n", words::escape(&words::glue(&verdict.text)))
    });
    let items: String = items.collect();
    if items.is_empty() {
        out + &paragraph("lead", "No gateway was measured.")
    } else {
        out + &format!("<ul class=\"verdicts\">\n{items}</ul>\n")
    }
}

/// The warnings of the experiment and of the load of each run. The report shows equal warnings of several loads once,
/// without figures.
fn warnings(report: &Report<'_>) -> Vec<String> {
    let mut warnings = report.results.warnings.clone();
    // The warning of a load without its figures, its first full text, and its gateways.
    let mut alike: Vec<(String, String, Vec<String>)> = Vec::new();
    for each in &report.contestants {
        for run in each.baseline.into_iter().chain([each.run]) {
            let name = format!("{} ({})", each.gateway.title, run.label);
            let is_new =
                |text: &&String| !report.results.warnings.iter().any(|said| said.contains(text.as_str()));
            for text in run.load.warnings.iter().filter(is_new) {
                let masked = text.replace(|character: char| character.is_ascii_digit(), "");
                match alike.iter_mut().find(|(other, ..)| *other == masked) {
                    Some((_, _, others)) => others.push(name.clone()),
                    None => alike.push((masked, format!("{name}: {text}"), Vec::new())),
                }
            }
        }
    }
    warnings.extend(alike.into_iter().map(|(_, first, others)| {
        if others.is_empty() { first } else { format!("{first} Likewise: {}.", words::list(&others)) }
    }));
    warnings
}

fn costs_html(report: &Report<'_>) -> String {
    let costs = report.costs();
    let of = |shape: Shape| costs.iter().filter(move |(work, ..)| work.shape == shape);
    let tables =
        |shape: Shape| of(shape).flat_map(|(.., tables)| tables).map(Table::html).collect::<String>();
    let plots = |shape: Shape| of(shape).map(|(_, plot, _)| plot.clone()).collect::<Vec<_>>();
    let mut out = String::new();
    let under = "Each kind of work has a scale of its own. Bars are medians over the turns, thin lines reach from the least to the most.";
    let bench = page::figures(&plots(Shape::Bench));
    if !bench.is_empty() {
        out +=
            &section("The cost of a request", &(paragraph("under", under) + &bench + &tables(Shape::Bench)));
    }
    out += &section(
        "The memory of an idle connection",
        &idle::table(report.results).map(|table| table.html()).unwrap_or_default(),
    );
    let rates: String = plots(Shape::Rates).iter().map(page::figure).collect();
    out += &section("CPU over rate", &(rates + &tables(Shape::Rates)));
    let sizing = page::figures(&plots(Shape::Sizing));
    if !sizing.is_empty() {
        let study = report.study().map(|text| paragraph("under", &text)).unwrap_or_default();
        let priced = if report.prices.are_published {
            paragraph("under", "Prices are those of the study's hardware, not of this machine.")
        } else {
            String::new()
        };
        out += &section("Sizing", &(sizing + &tables(Shape::Sizing) + &study + &priced));
    }
    out
}

/// The report in short, for a README or a pull request; the plots are in the same folder.
pub(crate) fn markdown(results: &Results) -> String {
    let report = Report::of(results);
    let escape = words::escape_markdown;
    let mut out = format!("# {}\n\n{}\n\n", escape(&results.title), escape(&results.about));
    out += &format!(
        "sluicegate-lab {}, {}\n\n",
        escape(&results.experiment),
        words::date(results.started_unix_ms)
    );
    for warning in warnings(&report) {
        out += &format!("> **Warning:** {}\n\n", escape(&warning));
    }
    for verdict in &report.verdicts {
        out += &format!("- {}\n", escape(&verdict.text));
    }
    out += "\n";
    if !report.contestants.is_empty() {
        out += &errors::table(&report.contestants, report.beside()).markdown();
        out += &report.percentiles().map(|plot| image(&plot)).unwrap_or_default();
        out += &format!("{}\n\n", escape(&report.unanswered()));
        out += &percentiles::table(&report.contestants).markdown();
        let over_time = over_time::plots(&report.contestants);
        let links = over_time.iter().map(|plot| format!("[{}]({})", escape(&plot.title), plot.file()));
        let links: Vec<String> = links.collect();
        if !links.is_empty() {
            out += &format!("{}\n\n", links.join(" · "));
        }
        for table in cpu::table(&report.contestants).into_iter().chain(cpu::followed(&report.contestants)) {
            out += &table.markdown();
        }
    }
    out += &report.api().iter().map(Table::markdown).collect::<String>();
    for (_, plot, tables) in report.costs() {
        out += &image(&plot);
        out += &tables.iter().map(Table::markdown).collect::<String>();
    }
    out += &idle::table(results).map(|table| table.markdown()).unwrap_or_default();
    if let Some(study) = report.study() {
        out += &format!("{}\n\n", escape(&study));
    }
    out + "## How it was measured\n\n" + &setting::markdown(results, &report.contestants)
}

fn image(plot: &Plot) -> String {
    format!("![{}]({})\n\n", words::escape_markdown(&plot.title), plot.file())
}

/// A few lines for a terminal.
pub(crate) fn summary(results: &Results) -> String {
    let report = Report::of(results);
    let mut out = format!("{}\n\n", results.title);
    for warning in warnings(&report) {
        out += &format!("  ! {warning}\n");
    }
    for verdict in &report.verdicts {
        out += &format!("  {} {}\n", if verdict.is_bad { "x" } else { "-" }, verdict.text);
    }
    for skipped in &results.skipped {
        out += &format!("  - {} did not take part: {}\n", skipped.gateway, skipped.why);
    }
    if !report.contestants.is_empty() {
        out += &format!("\n{}", errors::table(&report.contestants, None).text());
        out += &format!("\n{}", percentiles::table(&report.contestants).text());
    }
    for table in report.api().into_iter().chain(report.costs().into_iter().flat_map(|(.., tables)| tables)) {
        out += &format!("\n  {}\n{}", table.caption, table.text());
    }
    if let Some(table) = idle::table(results) {
        out += &format!("\n  {}\n{}", table.caption, table.text());
    }
    out
}

/// The plots as files of their own: names and SVG.
pub(crate) fn plots(results: &Results) -> Vec<(String, String)> {
    let report = Report::of(results);
    let mut all: Vec<Plot> = report.percentiles().into_iter().collect();
    all.extend(over_time::plots(&report.contestants));
    all.extend(report.costs().into_iter().map(|(_, plot, _)| plot));
    all.into_iter().map(|plot| (plot.file(), plot.standalone())).collect()
}
