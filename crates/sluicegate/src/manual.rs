//! `sluicegate completions`: completions of shells. `sluicegate man-pages`: the manual pages. Both come from the command line's
//! definition.

use std::io::{self, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use clap_complete::Shell;

use crate::help;

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManPagesArgs {
    /// The directory for the pages, which is created if it does not exist.
    dir: PathBuf,
}

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<()> {
    // The library panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "sluicegate", &mut script);
    match io::stdout().write_all(&script) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the completions to standard output")
        }
        _ => Ok(()),
    }
}

/// Writes a page for the program and for each command, such as `sluicegate-serve.1`.
pub(crate) fn man_pages(args: &ManPagesArgs) -> anyhow::Result<()> {
    let dir = args.dir.display();
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot create the directory {dir}"))?;
    clap_mangen::generate_to(help::command(), &args.dir)
        .with_context(|| format!("cannot write the manual pages to {dir}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_has_a_manual_page() -> anyhow::Result<()> {
        let dir = tempfile::tempdir()?;
        man_pages(&ManPagesArgs { dir: dir.path().join("man1") })?;
        let page = |name: &str| std::fs::read_to_string(dir.path().join("man1").join(name));
        let mut expected = vec!["sluicegate.1".to_owned()];
        pages(&mut expected, "sluicegate", &help::command());
        for name in &expected {
            assert!(page(name)?.contains(".SH SYNOPSIS"), "{name}");
        }
        assert!(page("sluicegate-serve.1")?.contains(r"\-\-manifests"));
        assert!(expected.contains(&"sluicegate-api-lint.1".to_owned()), "{expected:?}");
        Ok(())
    }

    fn pages(expected: &mut Vec<String>, parent: &str, command: &clap::Command) {
        for each in command.get_subcommands().filter(|each| !each.is_hide_set()) {
            let name = format!("{parent}-{}", each.get_name());
            pages(expected, &name, each);
            expected.push(format!("{name}.1"));
        }
    }
}
