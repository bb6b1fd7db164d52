//! The help of the command line: `-h` has the first sentence of each description, `--help` has all sentences.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use crate::cli::Cli;

/// Reads the command line. Ends the process with the help, the version or an error, if the command line asks for one or is wrong.
pub(crate) fn parse() -> Cli {
    let mut command = command_for(std::env::args_os());
    let matches = command.get_matches_mut();
    match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.format(&mut command).exit(),
    }
}

/// The command line with short and long help.
pub(crate) fn command() -> Command {
    with_short_help(Cli::command())
}

/// The name of the program as a plugin of kubectl.
const PLUGIN: &str = "kubectl-sluicegate";

/// The command line of the program, or of the program as a plugin of kubectl, whose commands ask pods unless an argument names an
/// address.
fn command_for(arguments: impl Iterator<Item = OsString>) -> Command {
    let mut arguments = arguments.map(|argument| argument.to_string_lossy().into_owned());
    let program = arguments.next().map(PathBuf::from);
    let is_plugin = program.as_ref().and_then(|program| program.file_stem()) == Some(OsStr::new(PLUGIN));
    let names_address = arguments.any(|argument| argument == "--admin" || argument.starts_with("--admin="));
    match (is_plugin, names_address) {
        (false, _) => command(),
        (true, true) => command().bin_name("kubectl sluicegate"),
        (true, false) => asking_pods(command()).bin_name("kubectl sluicegate"),
    }
}

fn asking_pods(command: Command) -> Command {
    let asks = command.get_arguments().any(|option| option.get_id() == "gateway_namespace");
    let with_default = |option: Arg| option.default_value("sluicegate");
    let command = if asks { command.mut_arg("gateway_namespace", with_default) } else { command };
    command.mut_subcommands(asking_pods)
}

fn with_short_help(command: Command) -> Command {
    command.mut_args(short).mut_subcommands(with_short_help)
}

fn short(arg: Arg) -> Arg {
    let Some(long) = arg.get_long_help().or(arg.get_help()).map(StyledStr::to_string) else { return arg };
    let short = first_sentence(&long).to_owned();
    arg.help(short).long_help(long)
}

/// The first sentence of a text, without its full stop.
fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").or_else(|| text.find(".\n"));
    let first = end.map_or(text, |end| &text[..end]).trim();
    first.strip_suffix('.').unwrap_or(first)
}

/// The meaning of an option, with its values and its default, as the cell of a Markdown table.
#[cfg(test)]
pub(crate) fn meaning(option: &Arg) -> String {
    use std::fmt::Write as _;

    let takes = option.get_action().takes_values();
    let text = option.get_long_help().or(option.get_help()).map(ToString::to_string).unwrap_or_default();
    // Some URLs of the descriptions have placeholders, so they are no links.
    let word = |word: &str| match word.contains("://") {
        true => format!("`{}`", word.trim_end_matches([',', '.', ';'])),
        false => word.to_owned(),
    };
    let mut text = text.split_whitespace().map(word).collect::<Vec<_>>().join(" ");
    if !text.ends_with(['.', ']', '!']) && !text.is_empty() {
        text.push('.');
    }
    let possible: Vec<String> =
        option.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if takes && !possible.is_empty() {
        let _ = write!(text, " Values: {}.", possible.join(", "));
    }
    let defaults = option.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let defaults: Vec<String> = defaults.collect();
    if takes && !defaults.is_empty() && !defaults.concat().is_empty() {
        let _ = write!(text, " Default: `{}`.", defaults.join(","));
    }
    text.replace('|', "\\|").replace('<', "&lt;").replace("*", "\\*")
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;
    use std::path::Path;

    use super::*;

    #[test]
    fn plugin_asks_pods_unless_an_address_is_given() {
        let shown = |line: &[&str]| {
            let line = [&["/usr/bin/kubectl-sluicegate"], line].concat();
            let matches = command_for(line.iter().map(OsString::from)).try_get_matches_from(&line);
            let Ok(cli) = matches.and_then(|matches| Cli::from_arg_matches(&matches)) else {
                panic!("{line:?}")
            };
            format!("{:?}", cli.command)
        };
        let pods = "gateway_namespace: Some(\"sluicegate\")";
        for line in [
            &["routes"][..],
            &["status"],
            &["top"],
            &["audit", "verify"],
            &["diff", "dir"],
            &["explain", "http://a/"],
        ] {
            assert!(shown(line).contains(pods), "{}", shown(line));
        }
        assert!(shown(&["routes", "--gateway-pod", "a"]).contains(pods));
        assert!(shown(&["routes", "--admin", "127.0.0.1:1"]).contains("gateway_namespace: None"));
        let other = shown(&["routes", "--gateway-namespace", "edge", "--gateway-pod", "a"]);
        assert!(other.contains("Some(\"edge\")") && other.contains("Some(\"a\")"), "{other}");
    }

    /// The reference page of all commands and options.
    fn page() -> String {
        let mut page = "\
<!-- This page is generated from the command line. Edit the descriptions in crates/sluicegate/src, and run
`SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --bins reference_page`. -->

# Command line

`sluicegate COMMAND -h` lists the options of a command in short, and `--help` in full.

"
        .to_owned();
        let command = command();
        for each in command.get_subcommands().filter(is_listed) {
            let _ = writeln!(page, "- [`sluicegate {}`](#sluicegate-{})", each.get_name(), each.get_name());
        }
        for each in command.get_subcommands().filter(is_listed) {
            section(&mut page, &["sluicegate"], each.clone());
        }
        let _ = write!(page, "\n## Options of all commands\n\n");
        table(&mut page, &command, true);
        page
    }

    fn is_listed(command: &&Command) -> bool {
        command.get_name() != "help" && !command.is_hide_set()
    }

    fn section(page: &mut String, parents: &[&str], command: Command) {
        let name = command.get_name().to_owned();
        let path = [parents, &[&name]].concat();
        let usage = command.clone().bin_name(path.join(" ")).render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").split_whitespace().collect::<Vec<_>>().join(" ");
        let level = "#".repeat(path.len());
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string);
        let _ = write!(page, "\n{level} {}\n\n", path.join(" "));
        let _ = write!(page, "{}\n\n```text\n{usage}\n```\n\n", about.unwrap_or_default());
        table(page, &command, false);
        for each in command.get_subcommands().filter(is_listed) {
            section(page, &path, each.clone());
        }
    }

    /// A table of options. `is_global`: only the options of all commands, or only the others.
    fn table(page: &mut String, command: &Command, is_global: bool) {
        let options = command.get_arguments().filter(|option| {
            let is_shown = !option.is_hide_set() && !["help", "version"].contains(&option.get_id().as_str());
            is_shown && option.is_global_set() == is_global
        });
        let options: Vec<_> = options.collect();
        if options.is_empty() {
            return;
        }
        page.push_str("| option | meaning |\n|---|---|\n");
        for option in options {
            let names = option.get_value_names().unwrap_or_default();
            let takes = option.get_action().takes_values();
            let value = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ");
            let long = option.get_long().map(|long| format!("--{long}"));
            let short = option.get_short().map(|short| format!("-{short}"));
            let flags: Vec<String> = short.into_iter().chain(long).collect();
            let shown = match (flags.is_empty(), takes) {
                (true, _) => value,
                (false, true) if !value.is_empty() => format!("{} {value}", flags.join(", ")),
                (false, _) => flags.join(", "),
            };
            let text = meaning(option);
            let _ = writeln!(page, "| `{shown}` | {text} |");
        }
    }

    #[test]
    fn reference_page_matches_the_command_line() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/cli.md");
        if std::env::var_os("SLUICEGATE_UPDATE_PAGES").is_some() {
            std::fs::write(&path, page()).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == page(),
            "run `SLUICEGATE_UPDATE_PAGES=1 cargo test --workspace --bins reference_page`"
        );
    }

    #[test]
    fn short_help_has_the_first_sentence_and_long_help_all_sentences() {
        for (text, first) in [
            ("The path of a file. Default none. Reads YAML.", "The path of a file"),
            (
                "Addresses such as 127.0.0.1:80 or sluicegate.dev. More",
                "Addresses such as 127.0.0.1:80 or sluicegate.dev",
            ),
            ("One sentence", "One sentence"),
            ("", ""),
        ] {
            assert_eq!(first_sentence(text), first);
        }
        let mut command = command();
        let serve = command.find_subcommand_mut("serve").expect("there is serve");
        let (short, long) = (serve.render_help().to_string(), serve.render_long_help().to_string());
        assert!(short.len() * 3 < long.len() * 2, "{} and {}", short.len(), long.len());
        assert!(short.contains("--manifests") && long.contains("--manifests"));
    }

    #[test]
    fn command_line_is_consistent() {
        command().debug_assert();
    }
}
