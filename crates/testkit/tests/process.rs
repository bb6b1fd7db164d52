//! Tests of child processes.

use std::process::Command;
use std::time::{Duration, Instant};

use sluicegate_netns::process::{self, Process};

fn shell(script: &str) -> anyhow::Result<Process> {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    Process::start(command)
}

#[tokio::test]
async fn output_and_exit_code_are_available_after_a_process_ends() -> anyhow::Result<()> {
    let mut process = shell("echo out; echo err >&2; exit 3")?;
    assert_eq!(process.wait(Duration::from_secs(5)).await?.code(), Some(3));
    assert_eq!(process.output(), "out\nerr\n");
    Ok(())
}

#[tokio::test]
async fn terminate_sends_sigterm_to_the_process() -> anyhow::Result<()> {
    let mut process = shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done")?;
    while process.output() != "up\n" {
        assert!(process.is_running());
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    process.terminate()?;
    assert!(process.wait(Duration::from_secs(5)).await?.success());
    assert_eq!(process.output(), "up\nbye\n");
    Ok(())
}

#[tokio::test]
async fn wait_for_port_fails_with_the_output_if_the_process_ends() -> anyhow::Result<()> {
    let mut process = shell("echo no such luck; exit 1")?;
    let started = Instant::now();
    let error = process.wait_for_port(([127, 0, 0, 1], 1).into(), Duration::from_secs(30)).await.unwrap_err();
    assert!(error.to_string().contains("no such luck"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
    Ok(())
}

#[tokio::test]
async fn cpu_time_of_a_process_includes_its_descendants() -> anyhow::Result<()> {
    let mut process =
        shell("(i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; echo done; sleep 10) & wait")?;
    let deadline = Instant::now() + Duration::from_secs(10);
    while process.output() != "done\n" {
        assert!(process.is_running() && Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let (all, own) = (process.cpu_time()?, process::cpu_time(process.pid())?);
    assert!(all > own + Duration::from_millis(20), "{all:?} in all, {own:?} of the parent");
    Ok(())
}

#[test]
fn process_is_killed_when_its_handle_is_dropped() -> anyhow::Result<()> {
    let process = shell("sleep 60")?;
    let pid = process.pid();
    drop(process);
    assert!(process::cpu_time(pid).is_err(), "{pid} is still running");
    Ok(())
}
