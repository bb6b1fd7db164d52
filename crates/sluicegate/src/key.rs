//! `sluicegate key`: the API keys of Consumers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sluicegate_control::{
    ConsumerKeys, Credentials, IssuedKey, KeyError, ListedKey, change_keys, read_yaml, write_yaml,
};

use crate::settings::time;
use crate::{complain, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a random key, add its hash to a Consumer, and print the key. Nothing stores the key, so no command can show it again.
    Issue(IssueArgs),
    /// Issue a key in place of another key, which stays valid for --overlap.
    Rotate(RotateArgs),
    /// Make a key invalid at once. Requests with the key receive 401 with the reason.
    Revoke(RevokeArgs),
    /// Print the names and states of the keys of a Consumer.
    List(ListArgs),
}

#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The name of the Consumer.
    consumer: String,
    /// The namespace of the Consumer. In a manifest, an object without a namespace is in namespace default.
    #[arg(long, short, value_name = "NAME", default_value = "default")]
    namespace: String,
    /// Change the Consumer in this file, in place of a cluster. The command writes the Consumer anew, without its comments; other
    /// objects of the file stay as they are.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    manifest: Option<PathBuf>,
    /// The kubeconfig of the cluster. [default: as kubectl]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. [default: its current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    #[command(flatten)]
    place: Place,
    /// The name of the key. [default: key- and the first 8 digits of its hash]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The time for which the key is valid, such as 2160h (90 days). [default: the key does not expire]
    #[arg(long, value_name = "TIME", value_parser = time)]
    valid_for: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    place: Place,
    /// The name of the old key.
    #[arg(long, value_name = "NAME")]
    name: String,
    /// The time for which the old key stays valid.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "24h")]
    overlap: Duration,
    /// The time for which the new key is valid. [default: the key does not expire]
    #[arg(long, value_name = "TIME", value_parser = time)]
    valid_for: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    place: Place,
    /// The name of the key.
    #[arg(long, value_name = "NAME")]
    name: String,
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    place: Place,
}

pub(crate) fn run(command: &Key) -> anyhow::Result<ExitCode> {
    match command {
        Key::Issue(args) => {
            let (name, valid_for) = (args.name.as_deref(), args.valid_for);
            show(&args.place.change(|keys| keys.issue(name, valid_for))?);
        }
        Key::Rotate(args) => {
            let times = (args.overlap, args.valid_for);
            show(&args.place.change(|keys| keys.rotate(&args.name, times))?);
        }
        Key::Revoke(args) => {
            args.place.change(|keys| keys.revoke(&args.name))?;
            complain(&format!("The key {:?} is revoked.", args.name));
        }
        Key::List(args) => {
            let keys = args.place.change(|keys| Ok(keys.list()))?;
            say(&format!("{:<24} {:<8} EXPIRES", "NAME", "STATE"));
            for ListedKey { name, state, expires } in keys {
                let or_none = |text: String| if text.is_empty() { "-".to_owned() } else { text };
                say(&format!("{:<24} {state:<8} {}", or_none(name), or_none(expires)));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a new key: the key alone on standard output, for scripts.
fn show(IssuedKey { key, name }: &IssuedKey) {
    complain(&format!("The key {name:?} is shown only now:"));
    say(key);
}

impl Place {
    /// Changes the keys of the Consumer, in the cluster or in the manifest.
    fn change<T>(
        &self,
        change: impl FnOnce(&mut ConsumerKeys<'_>) -> Result<T, KeyError>,
    ) -> anyhow::Result<T> {
        if let Some(file) = &self.manifest {
            return self.change_manifest(file, change);
        }
        let credentials = Credentials { kubeconfig: self.kubeconfig.clone(), context: self.context.clone() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let named = (&*self.namespace, &*self.consumer);
        runtime
            .block_on(change_keys(&credentials, named, change))
            .with_context(|| format!("Consumer {}/{}", self.namespace, self.consumer))
    }

    fn change_manifest<T>(
        &self,
        file: &Path,
        change: impl FnOnce(&mut ConsumerKeys<'_>) -> Result<T, KeyError>,
    ) -> anyhow::Result<T> {
        let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        let mut documents = documents(&text);
        for document in &mut documents {
            let Ok(mut object) = read_yaml(document) else { continue };
            let metadata = &object["metadata"];
            let namespace = metadata["namespace"].as_str().unwrap_or("default");
            if metadata["name"] != *self.consumer || namespace != self.namespace {
                continue;
            }
            let before = object.clone();
            let Some(mut keys) = ConsumerKeys::of(&mut object) else { continue };
            let result = change(&mut keys)
                .with_context(|| format!("Consumer {}/{}", self.namespace, self.consumer))?;
            if object != before {
                let mut written = write_yaml(&object);
                if !written.ends_with('\n') {
                    written.push('\n');
                }
                *document = if document.starts_with("---") { format!("---\n{written}") } else { written };
                save(file, &documents.concat())?;
            }
            return Ok(result);
        }
        anyhow::bail!(
            "{} has no Consumer {}/{}: write one, or set --namespace",
            file.display(),
            self.namespace,
            self.consumer
        )
    }
}

/// The documents of a file, each with its separator. Together they are the file.
fn documents(text: &str) -> Vec<String> {
    let mut documents = vec![String::new()];
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(String::new());
        }
        if let Some(last) = documents.last_mut() {
            last.push_str(line);
        }
    }
    documents
}

/// Replaces a file at once: the gateway never reads a half-written file.
fn save(file: &Path, text: &str) -> anyhow::Result<()> {
    let name = file.file_name().context("the path names no file")?.to_string_lossy();
    let hidden = file.with_file_name(format!(".{name}.new"));
    let write = || {
        fs::write(&hidden, text)?;
        fs::set_permissions(&hidden, fs::metadata(file)?.permissions())?;
        fs::rename(&hidden, file)
    };
    write().with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::documents;

    #[test]
    fn documents_of_a_file_are_the_whole_file() {
        for (text, count) in [("a: 1\n", 1), ("---\na: 1\n---\nb: |\n  ---\n", 3), ("", 1)] {
            let found = documents(text);
            assert_eq!((found.concat().as_str(), found.len()), (text, count));
        }
    }
}
