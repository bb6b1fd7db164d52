//! The floor: a byte forwarder of this program, which does the unavoidable work of every gateway.

use std::process::Command;

use anyhow::{Context as _, bail};
use sluicegate_netns::Process;

use super::{Config, Driver, Kind, Part, Prepared, Site};
use crate::experiment::Work;

pub(crate) const KIND: Kind = Kind {
    name: "floor",
    title: "The floor: bytes forwarded",
    learns: "Its endpoints are fixed at its start. It forwards bytes and follows no changes.",
    version: |_| Ok("recv, send, recv, send".to_owned()),
    // Reports do not show single requests here. The forwarder opens a pod connection for each request, which gateways
    // avoid.
    works: &[Work::Single, Work::Http],
    functions: &[],
    prepare,
};

fn prepare(site: &Site, config: &Config) -> anyhow::Result<Prepared> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    command.arg("forward").arg("--listen").arg(site.http.to_string());
    command.args(config.endpoints.iter().map(ToString::to_string));
    Ok(Prepared { command, files: Vec::new(), driver: Box::new(Floor) })
}

struct Floor;

impl Driver for Floor {
    fn apply(&mut self, _: &Process, part: Part, _: &Config) -> anyhow::Result<()> {
        bail!("the floor follows no change, and {part:?} is new")
    }
}
