//! `sluicegate explain` agrees with the gateway: random configurations serve random requests, and the explanation of each request names the
//! status, the route, the policy, the reason and the path that the endpoint receives.
//!
//! `SLUICEGATE_EXPLAIN_SEED=N` repeats a run, and `SLUICEGATE_EXPLAIN_REQUESTS=N` sets the number of requests.

mod configuration;
mod request;

use std::collections::HashMap;

use fastrand::Rng;
use serde_json::Value;
use sluicegate_admin::explain::Question;
use sluicegate_admin::fetch;
use sluicegate_proxy::explain::{Explanation, Outcome, Verdict};
use sluicegate_testkit::backend::{Backend, Behaviour};
use sluicegate_testkit::client::Client;

use crate::support::{LIMIT, Site, free_address, sluicegate};

type TestResult = anyhow::Result<()>;

/// The number of configurations.
const CONFIGURATIONS: usize = 20;

/// The outcome of a request, as far as the client knows it.
#[derive(Debug)]
struct Seen {
    status: u16,
    /// The request line that the endpoint received.
    line: Option<String>,
    /// The host that the endpoint received.
    host: Option<String>,
}

/// A request with its explanation and with what happened.
struct Case {
    seed: u64,
    question: Question,
    explained: Explanation,
    seen: Seen,
}

#[tokio::test]
async fn explanations_agree_with_what_happens_to_random_requests() -> TestResult {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("SLUICEGATE_EXPLAIN_SEED").unwrap_or_else(|| fastrand::u64(..1_000_000));
    let requests = number("SLUICEGATE_EXPLAIN_REQUESTS").unwrap_or(10_000);
    let each = usize::try_from(requests)?.div_ceil(CONFIGURATIONS);
    let mut outcomes: HashMap<String, usize> = HashMap::new();
    for number in 0..CONFIGURATIONS as u64 {
        let seed = seed.wrapping_add(number);
        let found = compare(seed, each).await;
        for name in
            found.map_err(|error| error.context(format!("repeat with SLUICEGATE_EXPLAIN_SEED={seed}")))?
        {
            *outcomes.entry(name).or_default() += 1;
        }
    }
    // The generator reaches the decisions that the test is about.
    for name in [
        "forwards",
        "no_route",
        "no_endpoint",
        "invalid_backend",
        "unknown_key",
        "no_credentials",
        "forbidden",
        "address",
        "token_expired",
        "token_signature",
        "wrong_password",
        "fault_injected",
        "invalid_request",
        "301",
        "204",
    ] {
        anyhow::ensure!(outcomes.contains_key(name), "no request has the outcome {name}: {outcomes:?}");
    }
    Ok(())
}

/// Compares explanations with what happens to `each` requests under one configuration. Returns the outcomes.
async fn compare(seed: u64, each: usize) -> anyhow::Result<Vec<String>> {
    let mut random = Rng::with_seed(seed);
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::new()?;
    let gateway_address = free_address()?;
    let manifests = configuration::random(&mut random, gateway_address.port(), backend.addr());
    site.save("all.yaml", &manifests)?;
    let log = site.path().join("access.log");
    let name = log.display().to_string();
    let options = [
        "--access-log",
        &name,
        "--access-log-format",
        "json",
        "--trusted-proxies",
        "127.0.0.1/32",
        "--gateway-address",
        "127.0.0.1",
        "--shutdown-grace",
        "0s",
        "--shutdown-idle",
        "0s",
    ];
    let mut gateway = site.serve(&options).await?;
    gateway.wait_for_port(gateway_address, LIMIT).await?;
    let mut cases = Vec::with_capacity(each);
    let mut clients: HashMap<u16, Client> = HashMap::new();
    for number in 0..each {
        let is_of_gateway = random.bool();
        let address = if is_of_gateway { gateway_address } else { site.http };
        let hosts = if is_of_gateway { &configuration::HOSTS[..3] } else { &configuration::HOSTS[..] };
        let question = request::random(&mut random, (address.port(), hosts), number);
        let explained: Option<Explanation> = fetch(site.admin, &question.path()).await?;
        let explained = explained.ok_or_else(|| anyhow::anyhow!("no configuration"))?;
        let client = match clients.remove(&address.port()) {
            Some(client) => client,
            None => Client::connect(address).await?,
        };
        let (seen, client) = send(client, &question).await?;
        clients.extend(client.map(|client| (address.port(), client)));
        cases.push(Case { seed, question, explained, seen });
    }
    drop(clients);
    gateway.terminate()?;
    gateway.wait(LIMIT).await?;
    let text = std::fs::read_to_string(&log)?;
    let mut lines: HashMap<String, Value> = HashMap::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line)?;
        lines.insert(line["request_id"].as_str().unwrap_or_default().to_owned(), line);
    }
    let (mut outcomes, mut faults) = (Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let Some(line) = lines.get(&request::id(number)) else {
            faults.push((format!("request {number} is not in the access log"), case, &Value::Null));
            continue;
        };
        if let Err(fault) = case.check(line) {
            faults.push((format!("request {number}: {fault}"), case, line));
            continue;
        }
        let Explanation { reason, status, outcome, .. } = &case.explained;
        let by_status = status.map_or_else(|| "forwards".to_owned(), |status| status.to_string());
        let is_forwarded = *outcome == Outcome::Forwards;
        // A password that the explanation does not check may be wrong.
        let seen = line["reason"].as_str().map(str::to_owned);
        outcomes.push(if is_forwarded { "forwards".to_owned() } else { reason.clone().unwrap_or(by_status) });
        outcomes.extend(seen);
    }
    if let Some((fault, case, line)) = faults.first() {
        let all: Vec<&str> = faults.iter().take(20).map(|(fault, ..)| &**fault).collect();
        anyhow::bail!(
            "seed {} {fault}\n{:#?}\n{:?}\n{line}\n{:#?}\n{manifests}\n{} of {} explanations are wrong: {all:#?}",
            case.seed,
            case.question,
            case.seen,
            case.explained,
            faults.len(),
            cases.len()
        );
    }
    Ok(outcomes)
}

/// Sends a request. Returns the client if the connection is still usable.
async fn send(mut client: Client, question: &Question) -> anyhow::Result<(Seen, Option<Client>)> {
    let response = client.request(request::text(question)).await?;
    let closes = response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    let text = response.text();
    let line = text.lines().next().filter(|line| line.ends_with(" HTTP/1.1")).map(str::to_owned);
    let host = text.lines().find_map(|line| line.strip_prefix("Host: ")).map(str::to_owned);
    let host = host.filter(|_| line.is_some());
    let seen = Seen { status: response.status, line, host };
    // A rejected request closes its connection.
    let stays = !closes && response.status != 400;
    Ok((seen, stays.then_some(client)))
}

impl Case {
    /// Whether the explanation is about what happened.
    fn check(&self, line: &Value) -> Result<(), String> {
        let Self { explained, seen, .. } = self;
        let of_log = |name: &str| line[name].as_str().map(str::to_owned);
        let (reason, policy, route) = (of_log("reason"), of_log("policy"), of_log("route"));
        let explained_route = explained.route.as_ref().map(|route| route.from.clone());
        if route != explained_route {
            return Err(format!("the route is {route:?}, not {explained_route:?}"));
        }
        let is_outcome = match explained.outcome {
            Outcome::Forwards => self.is_forwarded(reason.as_deref()),
            _ => {
                (Some(seen.status), &reason, &policy)
                    == (explained.status, &explained.reason, &explained.policy)
                    && seen.line.is_none()
            }
        };
        if is_outcome {
            return Ok(());
        }
        let may_be = explained.steps.iter().any(|step| {
            matches!(step.verdict, Verdict::Unknown | Verdict::Counts)
                && step.status == Some(seen.status)
                && step.reason == reason
                && step.from == policy
        });
        if may_be {
            return Ok(());
        }
        Err(format!(
            "status {} reason {reason:?} policy {policy:?}, explained as {:?} {:?} {:?} {:?}",
            seen.status, explained.outcome, explained.status, explained.reason, explained.policy
        ))
    }

    /// Whether the request went to one of the explained destinations.
    fn is_forwarded(&self, reason: Option<&str>) -> bool {
        let Self { explained, seen, question, .. } = self;
        explained.destinations.iter().any(|destination| match (&destination.refusal, &destination.request) {
            (Some(refusal), _) => seen.status == refusal.status && reason == Some(&*refusal.reason),
            (None, Some(sent)) => {
                let query = sent.query.as_ref().map(|query| format!("?{query}")).unwrap_or_default();
                let line = format!("{} {}{query} HTTP/1.1", question.method, sent.path);
                let is_body = question.method != "HEAD";
                let is_line =
                    !is_body || seen.line.as_ref() == Some(&line) && seen.host.as_ref() == Some(&sent.host);
                seen.status == 200 && reason.is_none() && is_line
            }
            (None, None) => false,
        })
    }
}

#[tokio::test]
async fn explain_reads_a_directory_without_a_gateway() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    let explain = |arguments: &[&str]| {
        let mut command = sluicegate();
        command.args(["explain", "--manifests"]).arg(site.path()).args(arguments);
        command.output()
    };
    let found = explain(&["http://localhost/a", "-H", "X-A: b", "--from", "192.0.2.7"])?;
    let text = String::from_utf8(found.stdout)?;
    anyhow::ensure!(found.status.success(), "{text}");
    for part in
        ["of Ingress default/web", "X-Forwarded-For: 192.0.2.7", "X-A: b", "its health is not known here"]
    {
        anyhow::ensure!(text.contains(part), "{part}: {text}");
    }
    anyhow::ensure!(
        text.lines().last().is_some_and(|last| last.starts_with("outcome   forwarded.")),
        "{text}"
    );
    anyhow::ensure!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let found = explain(&["http://localhost/a", "-o", "json", "-X", "POST"])?;
    let json: Value = serde_json::from_slice(&found.stdout)?;
    anyhow::ensure!(json["destinations"][0]["request"]["path"] == "/a", "{json}");
    let wrong = explain(&["http://localhost/a", "--from", "there"])?;
    anyhow::ensure!(wrong.status.code() == Some(2));
    Ok(())
}

#[tokio::test]
async fn explain_finds_a_refused_request_by_its_id_without_its_credentials() -> TestResult {
    let backend = Backend::start(Behaviour::echo()).await?;
    let site = Site::of([&backend])?;
    site.save(
        "policy.yaml",
        "apiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: keys}\nspec:\n  \
         targetRefs: [{group: networking.k8s.io, kind: Ingress, name: web}]\n  \
         authentication: {apiKey: {from: [{query: key}]}}\n",
    )?;
    let log = site.path().join("access.log");
    let name = log.display().to_string();
    let options = ["--access-log", &name, "--access-log-format", "json", "--trusted-proxies", "127.0.0.1/32"];
    let _gateway = site.serve(&[&options[..], &["--refused-requests", "4"]].concat()).await?;
    let mut client = Client::connect(site.http).await?;
    for number in 0..9 {
        let request = format!(
            "GET /a?key=secret-{number}&b=c HTTP/1.1\r\nHost: localhost\r\nX-Request-ID: r{number}\r\n\
             X-Forwarded-For: 192.0.2.7\r\nX-Secret: secret-{number}\r\n\r\n"
        );
        anyhow::ensure!(client.request(request).await?.status == 401);
    }
    let explain = |arguments: &[&str]| {
        let mut command = sluicegate();
        command.args(["explain", "--admin", &site.admin.to_string()]).args(arguments);
        command.output()
    };
    // Two workers share the room for four requests.
    let found = explain(&["--request-id", "r8"])?;
    let text = String::from_utf8(found.stdout)?;
    for part in [
        "GET http://localhost/a?key=***&b=c",
        "192.0.2.7",
        "401 (unknown_key)",
        "SecurityPolicy default/keys",
        "No Consumer",
        "outcome   refused, 401",
    ] {
        anyhow::ensure!(text.contains(part), "{part}: {text}");
    }
    let json = explain(&["--request-id", "r8", "-o", "json"])?;
    anyhow::ensure!(
        !text.contains("secret-") && !String::from_utf8(json.stdout)?.contains("secret-"),
        "{text}"
    );
    let gone = explain(&["--request-id", "r0"])?;
    anyhow::ensure!(
        gone.status.code() == Some(1) && String::from_utf8(gone.stderr)?.contains("no refused request")
    );
    Ok(())
}
