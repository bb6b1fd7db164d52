//! The help of the command line: `-h` has the first sentence of each description, `--help` has all sentences.

use clap::builder::StyledStr;
use clap::{Arg, Command, CommandFactory as _, FromArgMatches as _};

use crate::cli::Cli;

/// Reads the command line. Ends the process with the help, the version or an error, if the command line asks for one or is wrong.
pub(crate) fn parse() -> Cli {
    let mut command = command();
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

#[cfg(test)]
mod tests {
    use super::*;

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
