//! Tests of the promises of reports, with all samples.

use super::*;

/// All files of a report, by name.
fn files(results: &Results) -> Vec<(String, String)> {
    let mut files = plots(results);
    files.push(("report.html".to_owned(), html(results)));
    files.push(("report.md".to_owned(), markdown(results)));
    files.push(("summary".to_owned(), summary(results)));
    files
}

/// Writes the samples as files for visual inspection: `SLUICEGATE_LAB_SAMPLES=DIRECTORY cargo test --package
/// sluicegate-lab samples`.
#[test]
fn samples_of_reports_are_written_as_files() {
    let temporary = tempfile::tempdir().unwrap();
    let directory =
        std::env::var_os("SLUICEGATE_LAB_SAMPLES").map_or(temporary.path().to_owned(), PathBuf::from);
    for (name, results) in sample::all() {
        let directory = directory.join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("results.json");
        std::fs::write(&path, serde_json::to_string(&results).unwrap()).unwrap();
        make(&ReportArgs { results: path, html: None, markdown: None }).unwrap();
        let is_there = |name: &str| directory.join(name).is_file();
        assert!(is_there("report.html") && is_there("report.md"), "{name}");
        assert!(plots(&results).iter().all(|(name, _)| is_there(name)), "{name}");
    }
}

#[test]
fn every_plot_is_well_formed_svg_with_finite_coordinates() {
    for (name, results) in sample::all() {
        for (file, svg) in plots(&results) {
            let document =
                roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{name}/{file}: {error}"));
            let root = document.root_element();
            assert_eq!(
                (root.tag_name().name(), root.attribute("role")),
                ("svg", Some("img")),
                "{name}/{file}"
            );
            let has = |tag: &str| root.children().any(|child| child.has_tag_name(tag));
            let spaced = |tag: &str| {
                root.children().any(|child| child.tag_name().name() == tag && child.text().is_some())
            };
            assert!(!has("script") && spaced("title") && spaced("desc"), "{name}/{file}");
            assert!(!svg.contains("NaN") && !svg.contains("inf\"") && !svg.contains("inf "), "{name}/{file}");
        }
    }
}

#[test]
fn plots_of_a_report_have_unique_file_names() {
    for (name, results) in sample::all() {
        let mut files: Vec<String> = plots(&results).into_iter().map(|(file, _)| file).collect();
        let count = files.len();
        files.sort_unstable();
        files.dedup();
        assert_eq!(files.len(), count, "{name}: {files:?}");
    }
}

#[test]
fn html_report_loads_no_resource_and_runs_no_script() {
    for (name, results) in sample::all() {
        let page = html(&results);
        for bad in ["<script", "<link", "<img", "<iframe", "@import", "url(", " onload", "href="] {
            assert!(!page.contains(bad), "{name}: {bad}");
        }
        assert!(page.contains("default-src 'none'"), "{name}");
    }
}

#[test]
fn reports_escape_names_that_contain_markup() {
    let (_, results) = sample::all().into_iter().find(|(name, _)| *name == "names").unwrap();
    // The summary has no markup, because a terminal shows the summary.
    for (file, text) in files(&results).into_iter().filter(|(file, _)| file != "summary") {
        for markup in ["<gate>", "<b>", "<i>", "<work>", "<pods>", "<kind>", "<secure>", "<dynamic>", "]]>"] {
            assert!(!text.contains(markup), "{file}: {markup} in {text}");
        }
    }
    assert!(html(&results).contains("Sluice&lt;gate&gt; &amp; &quot;friends&quot;"));
}

#[test]
fn report_shows_warnings_before_verdicts() {
    let (_, results) = sample::all().into_iter().find(|(name, _)| *name == "nothing").unwrap();
    let page = html(&results);
    let place = |text: &str| page.find(text).unwrap_or_else(|| panic!("{text}"));
    assert!(place("the machine was busy") < place("<ul class=\"verdicts\">"));
    let summary = summary(&results);
    assert!(summary.find("  ! the machine").unwrap() < summary.find("  x ").unwrap(), "{summary}");
}

#[test]
fn report_prints_a_repeated_warning_once() {
    let mut results = sample::experiment("static", "static");
    for (name, late) in [("a", 2), ("b", 3)] {
        let mut run = sample::FLAT.run("static", 5, 100, &[]);
        run.load.warnings = vec![format!("sent {late} ms late.")];
        results.gateways.push(sample::gateway(name, name, vec![run]));
    }
    assert_eq!(warnings(&Report::of(&results)), ["a (static): sent 2 ms late. Likewise: b (static)."]);
    results.warnings = vec!["a: sent 2 ms late.".to_owned()];
    assert_eq!(warnings(&Report::of(&results)), ["a: sent 2 ms late.", "b (static): sent 3 ms late."]);
}

#[test]
fn published_figures_of_changing_clusters_are_only_in_reports_about_changes() {
    let of = |wanted: &str| sample::all().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    let changing = html(&of("dynamic"));
    assert!(changing.contains("33,365") && changing.contains("NGINX Plus, 2020"), "{changing}");
    let unchanging = html(&of("one"));
    assert!(!unchanging.contains("33,365") && unchanging.contains("all three were alike"), "{unchanging}");
}

#[test]
fn report_states_that_data_is_missing_instead_of_drawing_an_empty_plot() {
    let of = |wanted: &str| sample::all().into_iter().find(|(name, _)| *name == wanted).unwrap().1;
    assert!(plots(&of("nothing")).is_empty());
    assert!(html(&of("nothing")).contains("answered none of 1,800,000 requests"));
    assert!(html(&of("empty")).contains("No gateway was measured."));
    assert!(html(&of("empty")).contains("It did not take part: not found"));
}

#[test]
fn results_of_older_versions_without_prices_are_readable() {
    let (_, results) = sample::all().swap_remove(0);
    let mut json = serde_json::to_value(&results).unwrap();
    json.as_object_mut().unwrap().remove("prices");
    let read: Results = serde_json::from_value(json).unwrap();
    assert_eq!(html(&read), html(&results));
}

#[test]
fn prices_in_the_results_replace_the_prices_of_the_study() {
    let (_, mut results) = sample::all().into_iter().find(|(name, _)| *name == "sizing").unwrap();
    assert!(html(&results).contains("Prices are those of the study"));
    results.prices = [(1, 42.0), (2, 83.0)].into();
    let page = html(&results);
    assert!(!page.contains("Prices are those of the study") && page.contains(">83.0<"), "{page}");
}
