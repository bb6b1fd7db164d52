//! What an experiment found, to be looked at: a page of HTML, a summary in Markdown, plots as files, a few lines for a terminal.
//!
//! Results come in, text goes out; nothing is measured here. A report can be made again from stored results.
//!
//! | module | what |
//! |---|---|
//! | [`contest`] | who is compared, with which baseline |
//! | [`errors`] | what went wrong |
//! | [`percentiles`] | latency by percentile |
//! | [`words`], [`table`], [`plot`] | how numbers are written, tables and plots are made |
//! | [`page`] | the page around them |

mod contest;
mod errors;
mod page;
mod percentiles;
mod plot;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod sample_costs;
mod table;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;

use self::contest::Contestant;
use self::plot::Plot;
use crate::published::{self, Published};
use crate::results::Results;

/// Where a report comes from, and goes to.
#[derive(Args, Debug)]
pub(crate) struct ReportArgs {
    /// Results as `run` stored them.
    #[arg(value_name = "RESULTS.json")]
    results: PathBuf,
    /// The page; report.html beside the results if not given.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The summary; report.md beside the results if not given. The plots go beside it.
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// Makes the report of stored results.
pub(crate) fn run(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let path = &args.results;
    let text = std::fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let results: Results = serde_json::from_slice(&text)
        .with_context(|| format!("{} is not what `run` stores", path.display()))?;
    let beside = |name: &str| path.with_file_name(name);
    let html_path = args.html.clone().unwrap_or_else(|| beside("report.html"));
    let markdown_path = args.markdown.clone().unwrap_or_else(|| beside("report.md"));
    write(&html_path, &html(&results))?;
    write(&markdown_path, &markdown(&results))?;
    for (name, svg) in plots(&results) {
        write(&markdown_path.with_file_name(name), &svg)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// What all parts of a report lean on.
struct Report<'r> {
    results: &'r Results,
    contestants: Vec<Contestant<'r>>,
    /// The study that is repeated.
    published: Option<Published>,
}

impl<'r> Report<'r> {
    fn of(results: &'r Results) -> Self {
        let published = results.published.as_deref().and_then(published::find);
        Self { results, contestants: contest::contestants(results), published }
    }

    /// The study, if what it states of changing endpoints can stand beside what was measured: something has to change.
    fn beside(&self) -> Option<&Published> {
        let changes = self.contestants.iter().any(|each| !each.run.events.is_empty());
        self.published.as_ref().filter(|published| changes && !published.contestants.is_empty())
    }

    fn percentiles(&self) -> Option<Plot> {
        percentiles::plot(&self.results.title, &self.contestants, self.beside())
    }
}

/// The page.
pub(crate) fn html(results: &Results) -> String {
    let report = Report::of(results);
    let mut body = format!("<h1>{}</h1>\n", words::escape(&results.title));
    if !report.contestants.is_empty() {
        body += &page::section("Errors", &errors::table(&report.contestants, report.beside()).html());
        let plot = report.percentiles().map(|plot| page::figure(&plot)).unwrap_or_default();
        body += &page::section("Latency", &(plot + &percentiles::table(&report.contestants).html()));
    }
    page::whole(&results.title, &body)
}

/// The same in short, for a README or a pull request.
pub(crate) fn markdown(results: &Results) -> String {
    format!("# {}\n", words::escape_markdown(&results.title))
}

/// The plots as files of their own: names and SVG.
pub(crate) fn plots(results: &Results) -> Vec<(String, String)> {
    let report = Report::of(results);
    let all = report.percentiles();
    all.into_iter().map(|plot| (format!("{}.svg", plot.name), plot.standalone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To look at them: `SLUICEGATE_LAB_SAMPLES=DIRECTORY cargo test --package sluicegate-lab samples`.
    #[test]
    fn samples_can_be_looked_at() {
        let Some(directory) = std::env::var_os("SLUICEGATE_LAB_SAMPLES") else { return };
        for (name, results) in sample::all() {
            let directory = Path::new(&directory).join(name);
            std::fs::create_dir_all(&directory).unwrap();
            let path = directory.join("results.json");
            std::fs::write(&path, serde_json::to_string(&results).unwrap()).unwrap();
            run(&ReportArgs { results: path, html: None, markdown: None }).unwrap();
        }
    }
}
