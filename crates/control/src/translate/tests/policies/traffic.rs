//! Tests of the translation of TrafficPolicies.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use sluicegate_model::feature::{Cache, HealthCheckType};
use sluicegate_model::policy::Traffic;
use sluicegate_model::value::Timeout;
use sluicegate_model::{Config, UpstreamKey, UpstreamLimits};

use super::attachment::policy_statuses;
use super::{A, PORT, SERVICE, assert_problems, object, shop, translated};

fn policy(spec: &str) -> String {
    object("TrafficPolicy", "t", &format!("targetRefs: [{A}], {spec}"))
}

#[track_caller]
fn traffic_of(config: &Config) -> Arc<Traffic> {
    let route = config.rules().next().expect("there is a route");
    route.traffic.clone().expect("a policy governs the route")
}

/// The translation of a policy with this spec, which must have no problem.
#[track_caller]
fn valid(spec: &str) -> Arc<Traffic> {
    let (translation, problems) = translated(&[&[shop(), policy(spec)].concat()]);
    assert_problems(&problems, &[]);
    traffic_of(&translation.config)
}

/// The Service `other` with the port 8080, named `web`.
const OTHER: &str = "---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {ports: [{name: web, port: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: other-1, labels: {kubernetes.io/service-name: other}}
addressType: IPv4
ports: [{name: web, port: 9999}]
endpoints: [{addresses: [10.9.9.9]}]
";

#[test]
fn omitted_traffic_policy_fields_have_defaults_and_written_fields_are_read() {
    for (spec, expected) in [
        (
            "timeouts: {request: 30s, backendRequest: 6s, connect: 1s, response: 2s, idle: 3s, requestBody: 4s, tunnel: 5h}",
            json!({"timeouts": {
                "request": "30s", "backendRequest": "6s", "connect": "1s", "response": "2s", "idle": "3s",
                "requestBody": "4s", "tunnel": "5h",
            }}),
        ),
        (
            "retries: {budget: {}}",
            json!({"retries": {"attempts": 2, "budget": {"percent": 20, "minPerSecond": 10}}}),
        ),
        (
            "retries: {attempts: 5, codes: [502, 503]}",
            json!({"retries": {"attempts": 5, "codes": [502, 503]}}),
        ),
        ("limits: {requestBody: 10Mi}", json!({"limits": {"requestBody": "10Mi"}})),
        (
            "requestHeaders: {set: [{name: X-A, value: \"1\"}], add: [{name: X-B, value: b}], remove: [X-C]}, \
             responseHeaders: {remove: [Server]}",
            json!({
                "requestHeaders": {
                    "set": [{"name": "X-A", "value": "1"}], "add": [{"name": "X-B", "value": "b"}], "remove": ["X-C"],
                },
                "responseHeaders": {"remove": ["Server"]},
            }),
        ),
        (
            "urlRewrite: {hostname: inner.test, path: {type: ReplacePrefixMatch, value: /a%7Eb}}",
            json!({"urlRewrite": {
                "hostname": "inner.test", "path": {"type": "ReplacePrefixMatch", "value": "/a~b"},
            }}),
        ),
        (
            "redirect: {scheme: https, port: 8443, path: {type: ReplaceFullPath, value: /new}, statusCode: 301}",
            json!({"redirect": {
                "scheme": "https", "port": 8443, "path": {"type": "ReplaceFullPath", "value": "/new"},
                "statusCode": 301,
            }}),
        ),
        ("redirect: {hostname: a.test}", json!({"redirect": {"hostname": "a.test", "statusCode": 302}})),
        (
            "directResponse: {statusCode: 503, body: later}",
            json!({"directResponse": {"statusCode": 503, "body": "later"}}),
        ),
        (
            "fault: {delay: {time: 1s}, abort: {percent: 5, statusCode: 500}}",
            json!({"fault": {
                "delay": {"percent": 100, "time": "1s"}, "abort": {"percent": 5, "statusCode": 500},
            }}),
        ),
        (
            "loadBalancing: {algorithm: ConsistentHash, hash: [{type: Address}, {type: Query, name: q}], \
             affinity: {cookie: route, maxAge: 1h}}",
            json!({"loadBalancing": {
                "algorithm": "ConsistentHash", "hash": [{"type": "Address"}, {"type": "Query", "name": "q"}],
                "affinity": {"cookie": "route", "maxAge": "1h"},
            }}),
        ),
        ("loadBalancing: {algorithm: RoundRobin}", json!({"loadBalancing": {"algorithm": "RoundRobin"}})),
        (
            "bandwidth: {perSecond: 100Ki, after: 1Mi}",
            json!({"bandwidth": {"perSecond": "100Ki", "after": "1Mi"}}),
        ),
        ("cache: {}", json!({"cache": {"maxSize": "64Mi"}})),
        (
            "cache: {maxSize: 8Mi, maxResponseSize: 2Mi, defaultTime: 90s, staleIfError: 1h, key: {headers: [X-Tenant]}}",
            json!({"cache": {
                "maxSize": "8Mi", "maxResponseSize": "2Mi", "defaultTime": "1m30s", "staleIfError": "1h",
                "key": {"headers": ["x-tenant"]},
            }}),
        ),
    ] {
        assert_eq!(serde_json::to_value(&valid(spec).features).unwrap(), expected, "{spec}");
    }
}

#[test]
fn default_limit_of_a_cached_body_is_a_quarter_of_the_cache() {
    let longest = |spec: &str| valid(spec).features.cache.as_ref().map(Cache::longest_body);
    assert_eq!(longest("cache: {}"), Some(1 << 20));
    assert_eq!(longest("cache: {maxSize: 1Mi}"), Some(256 << 10));
    assert_eq!(longest("cache: {maxResponseSize: 2Mi}"), Some(2 << 20));
}

#[test]
fn services_that_a_split_a_mirror_or_error_pages_name_become_upstreams() {
    let split = "split: {weight: 90, backends: [{serviceRef: {name: other, port: 8080}, weight: 10, \
                 match: [{header: X-Canary, value: always}], exclude: [{cookie: stable}]}]}, \
                 mirror: {serviceRef: {name: other, port: 8080}, percent: 5}, \
                 errorPages: {serviceRef: {name: other, port: 8080}, codes: [404, 503], replacesEndpoints: false}";
    let (translation, problems) = translated(&[&[&shop(), OTHER, &policy(split)].concat()]);
    assert_problems(&problems, &[]);
    let key = UpstreamKey::new("default", "other", "web");
    let traffic = traffic_of(&translation.config);
    let expected = json!({
        "split": {"weight": 90, "backends": [{
            "serviceRef": "default/other:web", "weight": 10, "match": [{"header": "x-canary", "value": "always"}],
            "exclude": [{"cookie": "stable"}],
        }]},
        "mirror": {"serviceRef": "default/other:web", "percent": 5},
        "errorPages": {"serviceRef": "default/other:web", "codes": [404, 503], "replacesEndpoints": false},
    });
    assert_eq!(serde_json::to_value(&traffic.features).unwrap(), expected);
    assert_eq!(translation.config.upstreams[&key].endpoints.len(), 1);
    // A missing Service is reported at the field that names the Service.
    let (translation, problems) = translated(&[&[shop(), policy(split)].concat()]);
    assert_problems(
        &problems,
        &[
            "spec.split.backends[0].serviceRef.name: Service default/other does not exist; requests receive 503",
            "spec.mirror.serviceRef.name: Service default/other does not exist; mirrored requests are dropped",
            "spec.errorPages.serviceRef.name: Service default/other does not exist; clients receive the original responses",
        ],
    );
    assert!(translation.config.upstreams.contains_key(&UpstreamKey::new("default", "other", "8080")));
    // A policy that applies to no route adds no upstreams.
    let nobody = object(
        "TrafficPolicy",
        "t",
        &format!("targetRefs: [{{group: \"\", kind: Service, name: none}}], {split}"),
    );
    let (translation, _) = translated(&[&[&shop(), OTHER, &nobody].concat()]);
    assert!(!translation.config.upstreams.contains_key(&key));
}

#[test]
fn split_mirror_and_error_pages_do_not_bypass_the_security_policy_of_a_service() {
    let split = "split: {weight: 0, backends: [{serviceRef: {name: other, port: 8080}, weight: 10}]}, \
                 mirror: {serviceRef: {name: other, port: 8080}}, \
                 errorPages: {serviceRef: {name: other, port: 8080}, codes: [404]}";
    let guard = |targets: &str, spec: &str| {
        object("SecurityPolicy", "guard", &format!("targetRefs: [{targets}], {spec}"))
    };
    let other = "{group: \"\", kind: Service, name: other}";
    let of = |guard: String| {
        let (translation, problems) = translated(&[&[&shop(), OTHER, &policy(split), &*guard].concat()]);
        let traffic = traffic_of(&translation.config);
        (
            traffic.features.split.is_some(),
            !traffic.features.mirrors.is_empty(),
            traffic.features.error_pages.as_ref().is_some_and(|pages| pages.replaces_endpoints),
            problems,
            policy_statuses(&translation),
        )
    };
    let keys = "authentication: {basic: {secretRef: {name: none}}}";
    let (is_split, is_mirrored, is_paged, problems, policy_statuses) = of(guard(other, keys));
    assert!(!is_split && !is_mirrored && !is_paged);
    let told = "receives no requests of routes without SecurityPolicy default/guard";
    for field in ["spec.split.backends[0]", "spec.mirror", "spec.errorPages"] {
        let told = format!("TrafficPolicy default/t: {field}: {told}");
        assert!(problems.iter().any(|problem| problem.contains(&told)), "{problems:?}");
    }
    assert!(
        policy_statuses.iter().any(|standing| standing.starts_with("t Ingress a: Invalid")),
        "{policy_statuses:?}"
    );
    let (is_split, is_mirrored, is_paged, ..) = of(guard(&format!("{A}, {other}"), keys));
    assert!(is_split && is_mirrored && is_paged, "one policy guards both");
    let (is_split, is_mirrored, is_paged, ..) = of(guard(other, "cors: {allowOrigins: [\"*\"]}"));
    assert!(
        is_split && is_mirrored && is_paged,
        "the SecurityPolicy has no authentication, so all three stay"
    );
}

#[test]
fn cache_settings_without_effect_are_reported() {
    let guard =
        object("SecurityPolicy", "guard", &format!("targetRefs: [{A}], authentication: {{apiKey: {{}}}}"));
    let (_, problems) = translated(&[&[shop(), policy("cache: {}"), guard].concat()]);
    let told = "TrafficPolicy default/t: spec.cache: caches nothing on Ingress default/a /";
    assert!(problems.iter().any(|problem| problem.contains(told)), "{problems:?}");
}

#[test]
fn invalid_traffic_field_has_no_effect_and_other_fields_apply() {
    for (part, told) in [
        ("retries: {attempts: 101}", "spec.retries.attempts: 101 is not between 0 and 100"),
        ("retries: {codes: [399]}", "spec.retries.codes[0]: 399 is not between 400 and 599"),
        ("retries: {codes: []}", "spec.retries.codes: is empty"),
        (
            "errorPages: {serviceRef: {name: other, port: 80}, codes: [200]}",
            "spec.errorPages.codes[0]: 200 is not between 300 and 599",
        ),
        ("errorPages: {serviceRef: {name: other, port: 80}}", "spec.errorPages.codes: is missing"),
        ("retries: {budget: {percent: 101}}", "spec.retries.budget.percent: 101 is not between 0 and 100"),
        ("limits: {requestBody: 1m}", "spec.limits.requestBody: \"1m\" is not a size"),
        ("limits: {requestBody: 99999999999Gi}", "spec.limits.requestBody"),
        (
            "requestHeaders: {set: [{name: Host, value: a}]}",
            "spec.requestHeaders.set[0].name: \"Host\" can only be changed by urlRewrite.hostname",
        ),
        (
            "requestHeaders: {remove: [Connection]}",
            "spec.requestHeaders.remove[0]: \"Connection\" is a hop-by-hop header",
        ),
        (
            "requestHeaders: {add: [{name: X-Consumer-Name, value: a}]}",
            "spec.requestHeaders.add[0].name: \"X-Consumer-Name\" is set by the gateway itself",
        ),
        (
            "responseHeaders: {add: [{name: a b, value: a}]}",
            "spec.responseHeaders.add[0].name: \"a b\" has invalid characters",
        ),
        (
            "responseHeaders: {add: [{name: a, value: \"a\\r\\nb: c\"}]}",
            "spec.responseHeaders.add[0].value: has characters",
        ),
        (
            "urlRewrite: {path: {type: ReplaceFullPath, value: a}}",
            "spec.urlRewrite.path.value: \"a\" does not begin with '/'",
        ),
        (
            "urlRewrite: {path: {type: ReplaceFullPath, value: /a/../b}}",
            "spec.urlRewrite.path.value: \"/a/../b\" has a '.' or '..' segment",
        ),
        ("urlRewrite: {hostname: \"a b\"}", "spec.urlRewrite.hostname: \"a b\" is not a DNS name"),
        ("redirect: {}", "spec.redirect: leads back to itself"),
        ("redirect: {scheme: https, statusCode: 305}", "spec.redirect.statusCode: 305 is not one of"),
        (
            "redirect: {scheme: https}, directResponse: {statusCode: 200}",
            "spec.redirect: cannot be combined with directResponse\nspec.directResponse: cannot be combined with redirect",
        ),
        (
            "directResponse: {statusCode: 100}",
            "spec.directResponse.statusCode: 100 is not between 200 and 599",
        ),
        ("directResponse: {statusCode: 204, body: a}", "spec.directResponse.statusCode: 204 allows no body"),
        (
            "directResponse: {statusCode: 200, contentType: \"a\\nb\"}",
            "spec.directResponse.contentType: has characters",
        ),
        ("fault: {abort: {statusCode: 200}}", "spec.fault.abort.statusCode: 200 is not between 400 and 599"),
        ("fault: {delay: {time: 2h}}", "spec.fault.delay.time: \"2h\" is not between 1ms and 1h"),
        ("split: {backends: []}", "spec.split.backends: is empty"),
        (
            "split: {backends: [{serviceRef: {name: echo, port: 0}, weight: 1}]}",
            "spec.split.backends[0].serviceRef.port: 0 is not between 1 and 65535",
        ),
        (
            "split: {weight: 0, backends: [{serviceRef: {name: echo, port: 80}, match: [{header: a}]}]}",
            "spec.split.weight: leaves requests without a match without a Service",
        ),
        (
            "split: {backends: [{serviceRef: {name: echo, port: 80}, match: [{header: a, cookie: b}]}]}",
            "spec.split.backends[0].match[0].header: must be exactly one of header and cookie",
        ),
        ("loadBalancing: {algorithm: ConsistentHash}", "spec.loadBalancing.hash: is missing"),
        (
            "loadBalancing: {algorithm: RoundRobin, hash: [{type: Path}]}",
            "spec.loadBalancing.hash: is only for algorithm ConsistentHash",
        ),
        (
            "loadBalancing: {algorithm: ConsistentHash, hash: [{type: Header}]}",
            "spec.loadBalancing.hash[0].name: is missing",
        ),
        (
            "loadBalancing: {affinity: {cookie: \"a;b\"}}",
            "spec.loadBalancing.affinity.cookie: \"a;b\" has invalid characters",
        ),
        (
            "urlRewrite: {path: {type: ReplaceFullPath, value: \"/a?x=y\"}}",
            "spec.urlRewrite.path.value: has a '?', which ends a path",
        ),
        (
            "mirror: {serviceRef: {name: UP, port: 80}}",
            "spec.mirror.serviceRef.name: \"UP\" has upper-case letters",
        ),
        (
            "mirror: {serviceRef: {name: echo, port: 80}, percent: 0}",
            "spec.mirror.percent: 0 is not between 1 and 100",
        ),
        ("cache: {maxSize: 1Ki}", "spec.cache.maxSize: \"1Ki\" is not between 64Ki and 64Gi"),
        (
            "cache: {maxSize: 1Mi, maxResponseSize: 1Mi}",
            "spec.cache.maxResponseSize: \"1Mi\" is not between 1 and a quarter of maxSize",
        ),
        ("cache: {defaultTime: 0s}", "spec.cache.defaultTime: \"0s\" is not between 1s and 8760h"),
        ("cache: {staleIfError: 1d}", "spec.cache.staleIfError: \"1d\" is not a duration"),
        (
            "cache: {key: {headers: [\"X Tenant\"]}}",
            "spec.cache.key.headers[0]: \"X Tenant\" has invalid characters",
        ),
        ("cache: {key: {headers: []}}", "spec.cache.key.headers: is empty"),
    ] {
        let (translation, problems) =
            translated(&[&[shop(), policy(&format!("timeouts: {{request: 7s}}, {part}"))].concat()]);
        assert_problems(&problems, &told.lines().collect::<Vec<_>>());
        let features = &traffic_of(&translation.config).features;
        assert_eq!(serde_json::to_value(features).unwrap(), json!({"timeouts": {"request": "7s"}}), "{part}");
    }
}

#[test]
fn misspelled_traffic_field_is_reported_and_has_no_effect() {
    let (translation, problems) = translated(&[&[shop(), policy("timeoutss: {request: 7s}")].concat()]);
    assert_problems(&problems, &["spec.timeoutss: is unknown: did you mean timeouts?"]);
    assert!(translation.config.rules().all(|route| route.traffic.is_none()));
    let (translation, problems) = translated(&[&[shop(), policy("retries: often")].concat()]);
    assert_problems(&problems, &["spec.retries: "]);
    assert!(translation.config.rules().all(|route| route.traffic.is_none()));
}

#[test]
fn valid_parts_of_an_invalid_traffic_policy_apply() {
    let spec = "timeouts: {response: 10}, directResponse: {statusCode: 503, body: maintenance}, retries: often, limits: {}";
    let (translation, problems) = translated(&[&[shop(), policy(spec)].concat()]);
    assert_problems(
        &problems,
        &[
            "spec.retries: must be a mapping, but is \"often\"",
            "spec.timeouts.response: is a number without a unit: write 10s for seconds",
        ],
    );
    let traffic = traffic_of(&translation.config);
    let expected = json!({"directResponse": {"statusCode": 503, "body": "maintenance"}});
    assert_eq!(serde_json::to_value(&traffic.features).unwrap(), expected);
    assert!(!translation.policy_statuses[0].reason.is_accepted());
    let (_, problems) = translated(&[&[shop(), policy("timeouts: {response: 10}")].concat()]);
    assert_problems(
        &problems,
        &["spec.timeouts.response: is a number without a unit: write 10s for seconds"],
    );
}

#[test]
fn mirror_to_a_missing_service_and_grpc_health_check_without_http2_are_reported() {
    let (_, problems) =
        translated(&[&[shop(), policy("mirror: {serviceRef: {name: nobody, port: 80}}")].concat()]);
    assert_problems(&problems, &["Service default/nobody does not exist; mirrored requests are dropped"]);
    let grpc = of_service("healthCheck: {type: GRPC}");
    let (_, problems) = translated(&[&[shop(), grpc.clone()].concat()]);
    assert_problems(
        &problems,
        &["spec.healthCheck.type: GRPC needs HTTP/2, but the gateway uses HTTP/1.1 for Service default/echo"],
    );
    let h2c = shop().replace("name: http, port: 80", "name: http, appProtocol: kubernetes.io/h2c, port: 80");
    assert_ne!(h2c, shop(), "the port says what it speaks");
    let (_, problems) = translated(&[&[h2c, grpc].concat()]);
    assert_problems(&problems, &[]);
}

#[test]
fn only_the_most_specific_traffic_policy_applies_to_a_route() {
    let of = |name: &str, target: &str, time: &str| {
        object("TrafficPolicy", name, &format!("targetRefs: [{target}], timeouts: {{request: {time}}}"))
    };
    let all = [of("ingress", A, "1s"), of("service", SERVICE, "2s"), of("port", PORT, "3s")];
    for count in 1..=3 {
        let (translation, _) = translated(&[&[shop(), all[..count].concat()].concat()]);
        let expected = Some(Duration::from_secs(count as u64));
        let request = traffic_of(&translation.config).features.timeouts.request;
        assert_eq!(request.map(Timeout::get), expected);
    }
}

fn of_service(spec: &str) -> String {
    object("TrafficPolicy", "t", &format!("targetRefs: [{SERVICE}], {spec}"))
}

#[test]
fn circuit_breaker_and_health_check_apply_to_the_upstream() {
    let spec = "circuitBreaker: {maxRequests: 100, ejection: {}}, \
                healthCheck: {type: HTTP, path: \"/healthz?deep=1\", hostname: a.test, codes: 200-204, interval: 1s}";
    let (translation, problems) = translated(&[&[shop(), of_service(spec)].concat()]);
    assert_problems(&problems, &[]);
    let upstream = translation.config.upstreams.values().next().unwrap();
    assert_eq!(upstream.limits, UpstreamLimits { max_requests: Some(100), max_requests_per_endpoint: None });
    let expected = json!({
        "ejection": {"consecutiveErrors": 5, "time": "30s", "maxPercent": 50},
        "check": {
            "type": "HTTP", "path": "/healthz?deep=1", "hostname": "a.test", "codes": "200-204", "interval": "1s",
            "timeout": "1s", "healthyThreshold": 2, "unhealthyThreshold": 3,
        },
    });
    assert_eq!(serde_json::to_value(upstream.health.as_deref()).unwrap(), expected);
    // The policy of the port replaces the whole policy of the Service.
    let port = object("TrafficPolicy", "p", &format!("targetRefs: [{PORT}], healthCheck: {{type: TCP}}"));
    let (translation, _) = translated(&[&[shop(), of_service(spec), port].concat()]);
    let upstream = translation.config.upstreams.values().next().unwrap();
    assert_eq!(upstream.limits.max_requests, None);
    let health = upstream.health.as_deref().unwrap();
    assert_eq!(health.check.as_ref().map(|check| check.kind), Some(HealthCheckType::Tcp));
}

#[test]
fn invalid_circuit_breaker_or_health_check_is_reported() {
    for (spec, told) in [
        (
            "circuitBreaker: {maxRequests: 0}",
            "spec.circuitBreaker.maxRequests: 0 is not between 1 and 1000000",
        ),
        (
            "circuitBreaker: {ejection: {consecutiveErrors: 0}}",
            "spec.circuitBreaker.ejection.consecutiveErrors: 0 is not between 1 and 1000",
        ),
        ("healthCheck: {type: TCP, path: /}", "spec.healthCheck.path: is only for type HTTP"),
        ("healthCheck: {type: HTTP, service: a}", "spec.healthCheck.service: is only for type GRPC"),
        ("healthCheck: {type: HTTP, path: \"/a b\"}", "spec.healthCheck.path: \"/a b\" is not a path"),
        (
            "healthCheck: {type: HTTP, codes: 300-200}",
            "spec.healthCheck.codes: \"300-200\" is not a range of status codes",
        ),
        (
            "healthCheck: {type: GRPC, interval: 1ms}",
            "spec.healthCheck.interval: \"1ms\" is not between 100ms and 1h",
        ),
        (
            "healthCheck: {type: GRPC, healthyThreshold: 0}",
            "spec.healthCheck.healthyThreshold: 0 is not between 1 and 100",
        ),
    ] {
        let (translation, problems) = translated(&[&[shop(), of_service(spec)].concat()]);
        assert_problems(&problems, &[told]);
        let upstream = translation.config.upstreams.values().next().unwrap();
        assert_eq!((upstream.limits, &upstream.health), (UpstreamLimits::default(), &None), "{spec}");
    }
    let (translation, problems) = translated(&[&[shop(), policy("healthCheck: {type: TCP}")].concat()]);
    assert_problems(&problems, &["spec.healthCheck: is only for Services"]);
    assert_eq!(translation.config.upstreams.values().next().unwrap().health, None);
}
