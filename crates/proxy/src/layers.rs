//! The order of the modules: no import points upward.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The modules in the map of `lib.rs`, from top to bottom.
fn declared(lib: &str) -> Vec<String> {
    let rows = lib.lines().filter_map(|line| line.strip_prefix("//! | "));
    let cells = rows.filter_map(|row| row.split(" | ").next());
    let names = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    names.map(str::to_owned).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        match entry.is_dir() {
            true => sources(&entry, found),
            false => found.push(entry),
        }
    }
}

/// The modules that a source names behind `crate::`.
fn used(source: &str) -> BTreeSet<String> {
    let code = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = code.collect::<Vec<_>>().join("\n");
    let mut used = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        // `pub(crate)` and `$crate` have no path behind them that matters here.
        assert!(
            !rest.starts_with('{'),
            "`use crate::{{..}}` hides modules from this test: write one `use` for each"
        );
        let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_').unwrap_or(rest.len());
        used.insert(rest[..end].to_owned());
    }
    used
}

#[test]
fn no_module_imports_a_module_of_a_higher_layer() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let lib = fs::read_to_string(root.join("lib.rs")).expect("lib.rs");
    let order = declared(&lib);
    let layer = |module: &str| order.iter().position(|name| name == module);
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let mut upward = BTreeMap::new();
    for path in paths {
        let inside = path.strip_prefix(&root).expect("below src");
        let first = inside.components().next().expect("a name").as_os_str().to_string_lossy();
        let module = first.trim_end_matches(".rs");
        if matches!(module, "lib" | "layers") {
            continue;
        }
        let own = layer(module).unwrap_or_else(|| panic!("the map of lib.rs has no row for `{module}`"));
        for other in used(&fs::read_to_string(&path).expect("a source")) {
            // Other names are items of `lib.rs`.
            if let Some(of_other) = layer(&other)
                && of_other < own
            {
                upward.entry(inside.display().to_string()).or_insert_with(Vec::new).push(other);
            }
        }
    }
    assert!(upward.is_empty(), "these files use modules above them: {upward:#?}");
}

#[test]
fn map_of_layers_lists_every_module_once() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).expect("lib.rs");
    let modules = lib.lines().filter_map(|line| {
        let line = line.strip_prefix("pub ").unwrap_or(line);
        line.strip_prefix("mod ")?.strip_suffix(';')
    });
    let mut modules: Vec<_> = modules.filter(|module| *module != "layers").collect();
    let order = declared(&lib);
    let mut listed: Vec<_> = order.iter().map(String::as_str).collect();
    modules.sort_unstable();
    listed.sort_unstable();
    assert_eq!(modules, listed);
}
