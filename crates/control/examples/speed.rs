//! How fast the control plane is with many objects: `cargo run --release --example speed -p sluicegate-control [INGRESSES
//! [policies]]`.
//!
//! Writes that many Ingresses, Services and EndpointSlices into a temporary directory, with `policies` a SecurityPolicy and a
//! RateLimitPolicy for each Ingress and a Consumer as well, and prints how long it takes to
//! read and to translate them, how long after its file is written a change of an EndpointSlice is published, and
//! how much processor time that takes at 100 changes a second.
#![allow(clippy::print_stdout, reason = "its output is what it is for")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sluicegate_control::{DirectorySource, Store, TranslateOptions, load_once, translate};
use sluicegate_model::Change;

/// Endpoints in each slice.
const ENDPOINTS: usize = 2;
/// Changes that are timed.
const CHANGES: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(5000), |count| count.parse())?;
    let has_policies = std::env::args().nth(2).is_some_and(|word| word == "policies");
    let dir = tempfile::tempdir()?;
    let mut store = Store::default();
    for nth in 0..count {
        let (app, slice) = (app(nth), slice(nth, 0));
        fs::write(dir.path().join(format!("app-{nth:05}.yaml")), &app)?;
        fs::write(dir.path().join(format!("slice-{nth:05}.yaml")), &slice)?;
        if has_policies {
            let policies = policies(nth);
            fs::write(dir.path().join(format!("policies-{nth:05}.yaml")), &policies)?;
            store.set_file(Path::new(&format!("policies-{nth:05}.yaml")), &policies);
        }
        store.set_file(Path::new(&format!("app-{nth:05}.yaml")), &app);
        store.set_file(Path::new(&format!("slice-{nth:05}.yaml")), &slice);
    }
    println!(
        "{count} Ingresses, Services and EndpointSlices of {ENDPOINTS} endpoints, in {} files",
        2 * count
    );

    let options = TranslateOptions::default();
    let (started, busy) = (Instant::now(), processor_time()?);
    let loaded = load_once(dir.path(), &options);
    println!(
        "load_once: {:?}, processor {:?}, {} problems",
        started.elapsed(),
        processor_time()? - busy,
        loaded.problems.len()
    );

    let mut times = Vec::new();
    for _ in 0..20 {
        let busy = processor_time()?;
        let translation = translate(&store, &options);
        times.push(processor_time()? - busy);
        assert_eq!(translation.config.upstreams.len(), count);
    }
    times.sort_unstable();
    println!("translate: processor {:?} (median), {:?} (most)", times[10], times[19]);
    drop((loaded, store));

    let (sender, changes) = mpsc::channel();
    let source = DirectorySource::new(dir.path(), options);
    let started = Instant::now();
    std::thread::spawn(move || -> Result<(), std::io::Error> {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(source.run(
            move |change, _| {
                // The receiver is gone at the end.
                let _ = sender.send((Instant::now(), change));
                Box::pin(std::future::ready(()))
            },
        ));
        Ok(())
    });
    changes.recv()?;
    println!("first configuration: {:?}, resident {} MB", started.elapsed(), resident()?);

    let busy = processor_time()?;
    let begun = Instant::now();
    let mut delays = Vec::with_capacity(CHANGES);
    for nth in 0..CHANGES {
        let text = slice(nth % count, 1 + nth);
        fs::write(dir.path().join(format!("slice-{:05}.yaml", nth % count)), text)?;
        let written = Instant::now();
        let (published, change) = changes.recv()?;
        assert!(matches!(change, Change::Endpoints { .. }));
        delays.push(published.saturating_duration_since(written));
        std::thread::sleep((begun + Duration::from_millis(10) * (nth as u32 + 1)) - Instant::now());
    }
    let busy = processor_time()? - busy;
    delays.sort_unstable();
    println!(
        "one slice, 100 changes a second: published {:?} (median), {:?} (p99), {:?} (slowest) after the file was written; \
         {:.1} % of one processor with the writing",
        delays[CHANGES / 2],
        delays[CHANGES * 99 / 100],
        delays[CHANGES - 1],
        busy.as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0
    );

    let mut delays = Vec::new();
    for nth in 0..100 {
        let text = app(nth % count).replace("path: /", &format!("path: /changed-{nth}"));
        fs::write(dir.path().join(format!("app-{:05}.yaml", nth % count)), text)?;
        let written = Instant::now();
        let (published, change) = changes.recv()?;
        assert!(matches!(change, Change::Config(_)));
        delays.push(published.saturating_duration_since(written));
    }
    delays.sort_unstable();
    println!(
        "one Ingress: published {:?} (median), {:?} (slowest) after the file was written",
        delays[50], delays[99]
    );
    println!("resident {} MB", resident()?);
    Ok(())
}

fn app(nth: usize) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: app-{nth}
  labels: {{app.kubernetes.io/name: app-{nth}, team: team-{}}}
spec:
  rules:
    - host: app-{nth}.example.com
      http:
        paths:
          - path: /
            pathType: Prefix
            backend:
              service:
                name: app-{nth}
                port:
                  number: 80
---
apiVersion: v1
kind: Service
metadata:
  name: app-{nth}
spec:
  selector: {{app: app-{nth}}}
  ports:
    - name: http
      port: 80
      targetPort: 8080
",
        nth % 50
    )
}

fn policies(nth: usize) -> String {
    let target = format!("targetRefs: [{{group: networking.k8s.io, kind: Ingress, name: app-{nth}}}]");
    format!(
        "apiVersion: sluicegate.dev/v1alpha1
kind: SecurityPolicy
metadata: {{name: app-{nth}}}
spec:
  {target}
  access: {{allow: [10.0.0.0/8, 192.0.2.0/24]}}
  authentication: {{apiKey: {{}}, basic: {{secretRef: {{name: app-{nth}}}}}}}
  authorization: {{rules: [{{action: Allow, groups: [team-{nth}]}}]}}
---
apiVersion: sluicegate.dev/v1alpha1
kind: RateLimitPolicy
metadata: {{name: app-{nth}}}
spec:
  {target}
  limits: [{{name: per-consumer, requests: 100, per: 1m, key: [{{type: Consumer}}]}}]
---
apiVersion: sluicegate.dev/v1alpha1
kind: Consumer
metadata: {{name: app-{nth}}}
spec: {{groups: [team-{nth}], apiKeys: [{{secretRef: {{name: app-{nth}}}}}], basicUsers: [app-{nth}]}}
---
apiVersion: v1
kind: Secret
metadata: {{name: app-{nth}}}
stringData: {{key: 0123456789abcdef-{nth}, auth: \"app-{nth}:{{SHA}}W6ph5Mm5Pz8GgiULbPgzG37mj9g=\"}}
"
    )
}

fn slice(nth: usize, change: usize) -> String {
    let endpoints: String = (0..ENDPOINTS)
        .map(|endpoint| {
            let octet = (change * ENDPOINTS + endpoint) % 65_536;
            format!(
                "  - addresses: [10.{}.{}.{}]\n    conditions: {{ready: true, serving: true, terminating: false}}\n",
                nth % 256,
                octet / 256,
                octet % 256
            )
        })
        .collect();
    format!(
        "apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: app-{nth}-x1
  labels: {{kubernetes.io/service-name: app-{nth}}}
addressType: IPv4
ports:
  - name: http
    port: 8080
endpoints:
{endpoints}"
    )
}

/// Memory in use, in MB.
fn resident() -> Result<usize, Box<dyn Error>> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmRSS")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no number")?.parse::<usize>()? / 1024)
}

/// Processor time of this process so far.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let nanoseconds: u64 = fs::read_dir("/proc/self/task")?
        .filter_map(|task| fs::read_to_string(task.ok()?.path().join("schedstat")).ok())
        .filter_map(|stat| stat.split_whitespace().next()?.parse::<u64>().ok())
        .sum();
    Ok(Duration::from_nanos(nanoseconds))
}
