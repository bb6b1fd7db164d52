//! `sluicegate key`: the API keys of Consumers.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use sluicegate_control::{ConsumerKeys, Edited, IssuedKey, KeyError, Kind, ListedKey, reference};

use crate::gateways::{ClusterArgs, runtime};
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
    /// Remove the entry of an expired or revoked key.
    Remove(RevokeArgs),
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
    #[command(flatten)]
    cluster: ClusterArgs,
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
        Key::Remove(args) => {
            args.place.change(|keys| keys.remove(&args.name))?;
            complain(&format!("The entry of the key {:?} is removed.", args.name));
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
        change: impl FnMut(&mut ConsumerKeys<'_>) -> Result<T, KeyError>,
    ) -> anyhow::Result<T> {
        let consumer = reference(Kind::Consumer, &self.namespace, &self.consumer);
        let changed = runtime()?.block_on(async {
            if let Some(file) = &self.manifest {
                return Edited::File(file).change_keys(&consumer, change).await;
            }
            let client = self.cluster.credentials().client().await?;
            Edited::Cluster(&client).change_keys(&consumer, change).await
        });
        changed.with_context(|| format!("Consumer {}/{}", self.namespace, self.consumer))
    }
}
