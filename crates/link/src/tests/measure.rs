//! Measures the time of encoding and decoding: `cargo test -p sluicegate-link measure -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluicegate_model::policy::Security;
use sluicegate_model::{
    Conditions, Config, Endpoint, HostPattern, ObjectId, PathPattern, Rule, Upstream, UpstreamKey,
    VirtualHost,
};

use crate::cut::cut;
use crate::store::{Delta, Store};

/// A configuration of hosts. Each host has two routes and an upstream with three endpoints. One of the routes has a
/// policy that ten hosts share.
fn config(hosts: usize) -> Config {
    let id = |kind, name: String| ObjectId { kind, namespace: "shop".into(), name: name.into() };
    let key = |index| UpstreamKey::new("shop", format!("service-{index}"), "http");
    let policy = |index| {
        let ip_access = super::traffic::valid(serde_json::json!({"allow": ["10.0.0.0/8"]}));
        let id = id("SecurityPolicy", format!("policy-{index}"));
        Arc::new(Security { ip_access, refuses: None, ..Security::closed(id, "".into()) })
    };
    let policies: Vec<_> = (0..hosts.div_ceil(10)).map(policy).collect();
    let host = |index: usize| {
        let id = id("Ingress", format!("ingress-{index}"));
        let route = |path: &str| Rule::new(id.clone(), PathPattern::Prefix(path.into()), key(index));
        let guarded = Rule { security: Some(policies[index / 10].clone()), ..route("/admin") };
        let host = HostPattern::Exact(format!("{index}.example").into());
        Arc::new(VirtualHost::new(host, vec![route("/"), guarded]))
    };
    let upstream = |index: usize| {
        let [.., high, low] = index.to_be_bytes();
        let endpoint =
            |last| Endpoint { address: ([10, high, low, last], 80).into(), conditions: Conditions::READY };
        (key(index), Arc::new(Upstream { endpoints: (1..=3).map(endpoint).collect(), ..Upstream::default() }))
    };
    Config {
        hosts: (0..hosts).map(host).collect(),
        upstreams: (0..hosts).map(upstream).collect(),
        ..Config::default()
    }
}

#[test]
#[ignore = "prints figures"]
fn encoding_times_of_five_thousand_hosts_are_measured() {
    let config = config(5000);
    let (mut encode, mut decode) = (Vec::new(), Vec::new());
    let mut size = 0;
    for _ in 0..15 {
        let begin = Instant::now();
        let resources = cut(&config);
        encode.push(begin.elapsed());
        size = resources.iter().map(|(name, body)| name.name.len() + body.len()).sum();
        let changed = resources.into_iter().collect();
        let mut store = Store::default();
        let begin = Instant::now();
        store.apply(Delta { changed, gone: vec![] });
        decode.push(begin.elapsed());
        assert_eq!(store.refused(), 0);
    }
    let median = |times: &mut Vec<Duration>| {
        times.sort_unstable();
        times[times.len() / 2]
    };
    println!("encode {:.1?}, decode {:.1?}, {size} bytes", median(&mut encode), median(&mut decode));
}
