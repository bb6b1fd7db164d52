//! The setting of the measurement: the facts that a reader needs to repeat and to judge the measurement.

use super::contest::Contestant;
use super::page::paragraph;
use super::words::{count, counted, escape, escape_markdown, number, round};
use crate::results::{Machine, OfGateway, Results};

/// The limits of every run on one machine.
const LIMITS: [&str; 4] = [
    "Gateway, load and pods share one machine, its kernel and its caches, over a bridge in memory: there is no network card, no \
     distance and no other tenant. Ratios between gateways carry over better than absolute figures.",
    "A run takes minutes. A run does not show effects that take hours, such as a memory leak or fragmentation.",
    "There is no cluster. The lab notifies gateways of changes as their controllers do, without the delays of API server, kubelet \
     and kube-proxy.",
    "Published figures were measured on other hardware, with other versions, and from another machine. Compare only \
     the shapes of the curves, not the absolute figures.",
];

pub(super) fn html(results: &Results, contestants: &[Contestant<'_>]) -> String {
    let mut out = String::from("<dl>\n");
    let mut entry = |term: &str, html: &str| {
        if !html.is_empty() {
            out += &format!("<dt>{}</dt><dd>{html}</dd>\n", escape(term));
        }
    };
    entry("Machine", &escape(&machine(&results.machine)));
    let lines: Vec<String> = results.setting.iter().map(|line| escape(line)).collect();
    entry("All gateways", &lines.join("<br>"));
    let saturation = results
        .saturation
        .iter()
        .map(|each| format!("{}: {} requests/s", escape(&each.gateway), number(each.requests_per_s)));
    entry("In a closed loop, from which the rate was chosen", &saturation.collect::<Vec<_>>().join("<br>"));
    entry("The whole experiment again", &code(&results.command));
    entry("The load alone, by hand", &load(contestants).map(code).unwrap_or_default());
    out += "</dl>\n";
    out += &results.gateways.iter().map(gateway).collect::<String>();
    for skipped in &results.skipped {
        out += &format!(
            "<h3>{}</h3>\n<p>It did not take part: {}</p>\n",
            escape(&skipped.gateway),
            escape(&skipped.why)
        );
    }
    out += &format!(
        "<h3>The experiment</h3>\n{}",
        folded(&format!("{}.yaml", results.experiment), &results.declared)
    );
    out += "<h3>The limits of this measurement</h3>\n<ul>\n";
    for limit in LIMITS {
        out += &format!("<li>{}</li>\n", escape(limit));
    }
    out + "</ul>\n"
}

fn load<'r>(contestants: &[Contestant<'r>]) -> Option<&'r str> {
    contestants.iter().map(|each| each.run.load.command.as_str()).find(|command| !command.is_empty())
}

fn machine(machine: &Machine) -> String {
    let Machine { kernel, processor, cpus, memory_mib, load_before, gateway_cpus, other_cpus } = machine;
    let list = |cpus: &[usize]| cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "{processor}, {}, {} MiB of memory, {kernel}; load average {} before it began.",
        counted(*cpus as u64, "CPU"),
        count(*memory_mib),
        round(*load_before)
    );
    if !gateway_cpus.is_empty() {
        text += &format!(" The gateway ran on CPU {}", list(gateway_cpus));
        text += &if other_cpus.is_empty() {
            ".".to_owned()
        } else {
            format!(", load and pods on CPU {}.", list(other_cpus))
        };
    }
    text
}

fn gateway(gateway: &OfGateway) -> String {
    let OfGateway { title, version, learns, command, files, .. } = gateway;
    let mut out = format!("<h3>{}</h3>\n", escape(title));
    out += &paragraph("meta", version);
    if !learns.is_empty() {
        out += &paragraph("", learns);
    }
    if !command.is_empty() {
        out += &code(command);
    }
    out + &files.iter().map(|file| folded(&file.name, &file.text)).collect::<String>()
}

fn code(text: &str) -> String {
    format!("<pre class=\"command\">{}</pre>\n", escape(text))
}

/// A folded text. On screen the reader opens the text; on paper the text is always visible.
fn folded(name: &str, text: &str) -> String {
    let lines = counted(text.lines().count() as u64, "line");
    format!(
        "<details><summary>{} ({lines})</summary><pre tabindex=\"0\">{}</pre></details>\n",
        escape(name),
        escape(text.trim_end())
    )
}

/// The setting in short.
pub(super) fn markdown(results: &Results, contestants: &[Contestant<'_>]) -> String {
    let mut out = format!("- Machine: {}\n", escape_markdown(&machine(&results.machine)));
    for line in &results.setting {
        out += &format!("- {}\n", escape_markdown(line));
    }
    for gateway in &results.gateways {
        let (title, version) = (escape_markdown(&gateway.title), escape_markdown(&gateway.version));
        out += &format!("- {title} ({version}): {}\n", escape_markdown(&gateway.learns));
    }
    for skipped in &results.skipped {
        let (name, why) = (escape_markdown(&skipped.gateway), escape_markdown(&skipped.why));
        out += &format!("- {name} did not take part: {why}\n");
    }
    out += &fenced(&results.command);
    if let Some(command) = load(contestants) {
        out += &format!("\nThe load alone:\n{}", fenced(command));
    }
    out
}

/// Text as code, even if it contains a fence.
fn fenced(text: &str) -> String {
    let mut fence = "```".to_owned();
    while text.contains(&fence) {
        fence.push('`');
    }
    format!("\n{fence}\n{text}\n{fence}\n")
}
