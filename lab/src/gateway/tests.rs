//! Tests of the functions that the lab needs from each gateway, with the real programs.

mod api;
mod authority;
mod pods;
mod rig;

use std::collections::BTreeSet;

use anyhow::{Context as _, ensure};
use rcgen::KeyPair;

use super::{HOST, Part, sluicegate};
use rig::{Running, all, each, each_with, eventually, keep};

/// A host without a route.
const STRANGER: &str = "stranger.example.net";

#[test]
fn request_for_an_unknown_host_receives_404() {
    each(|gateway| {
        ensure!(gateway.get(HOST)?.status == 200);
        ensure!(gateway.get_secured(HOST, HOST)?.status == 200);
        let (plain, secured) = (gateway.get(STRANGER)?.status, gateway.get_secured(STRANGER, HOST)?.status);
        ensure!((plain, secured) == (404, 404), "a stranger is answered {plain}, over HTTPS {secured}");
        Ok(())
    });
}

#[test]
fn gateway_offers_tls_1_2_and_1_3_with_http_1_and_http_2() {
    each(|gateway| {
        for version in rustls::ALL_VERSIONS {
            let stream = gateway.secured(HOST, &[version], &[b"h2", b"http/1.1"])?;
            ensure!(stream.conn.protocol_version() == Some(version.version));
            ensure!(stream.conn.alpn_protocol() == Some(b"h2"), "HTTP/2 is not offered");
            let stream = gateway.secured(HOST, &[version], &[b"http/1.1"])?;
            ensure!(stream.conn.alpn_protocol() == Some(b"http/1.1"), "HTTP/1.1 is not offered");
        }
        Ok(())
    });
}

#[test]
fn endpoints_receive_the_same_forwarding_headers_from_every_gateway() {
    each(|gateway| {
        for (proto, addr) in [("http", gateway.site.http), ("https", gateway.site.https)] {
            // The Host header of a client at a non-default port.
            let host = format!("{HOST}:{}", addr.port());
            let answer =
                if proto == "http" { gateway.get(&host)? } else { gateway.get_secured(&host, HOST)? };
            let (client, port) = (answer.client.ip().to_string(), addr.port().to_string());
            for (name, value) in [
                ("Host", &*host),
                ("X-Forwarded-For", &*client),
                ("X-Forwarded-Host", &*host),
                ("X-Forwarded-Port", &*port),
                ("X-Forwarded-Proto", proto),
                ("X-Real-IP", &*client),
            ] {
                ensure!(answer.seen(name) == Some(value), "{name} is {:?}, not {value}", answer.seen(name));
            }
            // Traefik sends no X-Request-ID. The lab declares this difference in `learns`.
            let is_told = answer.seen("X-Request-ID").is_some_and(|id| !id.is_empty());
            ensure!(is_told || gateway.kind.learns.contains("no X-Request-ID"), "there is no X-Request-ID");
        }
        Ok(())
    });
}

#[test]
fn endpoint_replacement_loses_no_request() {
    each(|gateway| {
        let next = gateway.pods[1];
        gateway.apply(Part::Endpoints, |config, _| config.endpoints = vec![next])?;
        let (mut asked, mut in_turn) = (0, 0);
        eventually("only the new endpoint answers", || {
            let answer = gateway.get(HOST)?;
            ensure!(answer.status == 200, "request {asked} is answered {}", answer.status);
            asked += 1;
            in_turn = if answer.pod == Some(next) { in_turn + 1 } else { 0 };
            Ok(asked >= 200 && in_turn >= 20)
        })
    });
}

#[test]
fn gateway_spreads_requests_over_all_endpoints() {
    let promise = |gateway: &mut Running| {
        for count in [5, 50, 3] {
            gateway.apply(Part::Endpoints, |config, pods| config.endpoints = pods[..count].to_vec())?;
            let mut answered = BTreeSet::new();
            eventually("each of them answers, and no other", || {
                let pod = gateway.get(HOST)?.pod.context("no pod answers")?;
                answered.insert(pod);
                if !gateway.config.endpoints.contains(&pod) {
                    answered.clear();
                }
                Ok(answered.len() == count)
            })
            .with_context(|| format!("{count} endpoints"))?;
        }
        Ok(())
    };
    each_with(50, promise);
}

#[test]
fn gateway_returns_502_or_503_without_endpoints_and_recovers() {
    each(|gateway| {
        gateway.apply(Part::Endpoints, |config, _| config.endpoints.clear())?;
        eventually("it answers 502 or 503", || {
            all(|| Ok((502..=503).contains(&gateway.get(HOST)?.status)), &true)
        })?;
        gateway.apply(Part::Endpoints, |config, pods| config.endpoints = pods[1..3].to_vec())?;
        eventually("it answers 200 again", || all(|| Ok(gateway.get(HOST)?.status), &200))
    });
}

#[test]
fn gateway_serves_a_replaced_certificate_to_new_connections() {
    each(|gateway| {
        let new = authority::issue(&KeyPair::generate()?)?;
        let (old, expected) = (authority::first(&gateway.config.certificate)?, authority::first(&new)?);
        ensure!(gateway.shown()? == old, "it does not show its first certificate");
        gateway.apply(Part::Certificate, |config, _| config.certificate = new)?;
        eventually("the new certificate is shown", || all(|| gateway.shown(), &expected))
    });
}

#[test]
fn gateway_routes_and_replaces_a_thousand_hosts() {
    each(|gateway| {
        for generation in ["a", "b"] {
            let hosts: Vec<String> =
                (0..1000).map(|number| format!("{generation}{number}.example.net")).collect();
            gateway.apply(Part::Hosts, |config, _| config.hosts = hosts)?;
            let last = format!("{generation}999.example.net");
            eventually("the new hosts are served", || all(|| Ok(gateway.get(&last)?.status), &200))?;
            // After a reload, an old process can still accept at this address.
            eventually("the new hosts are served over HTTPS", || {
                all(|| Ok(gateway.get_secured(&last, &last)?.status), &200)
            })?;
        }
        eventually("the old hosts are not found", || {
            all(|| Ok(gateway.get("a999.example.net")?.status), &404)
        })?;
        ensure!(gateway.get(HOST)?.status == 200);
        Ok(())
    });
}

#[test]
fn endpoint_that_closes_connections_causes_failed_requests_only_without_retries() {
    // One of the two pods closes each connection. The gateway receives no notification.
    fn half_broken(gateway: &mut Running) -> anyhow::Result<()> {
        let broken = pods::start_broken(gateway.pods[0])?;
        gateway.apply(Part::Endpoints, |config, pods| config.endpoints = vec![pods[1], broken])
    }
    keep(&sluicegate::KIND, 2, |gateway| {
        half_broken(gateway)?;
        eventually("the new endpoint answers", || Ok(gateway.get(HOST)?.pod == Some(gateway.pods[1])))?;
        ensure!((0..100).all(|_| gateway.get(HOST).is_ok_and(|answer| answer.status == 200)));
        Ok(())
    })
    .unwrap();
    keep(&sluicegate::BARE, 2, |gateway| {
        half_broken(gateway)?;
        eventually("a request fails", || Ok(gateway.get(HOST)?.status >= 500))
    })
    .unwrap();
}
