//! Tests of HTTPRoutes: the listeners and hosts that serve them, their backends and their policies.

use sluicegate_model::{Config, EntryPoint, TlsHost};

use super::*;
use crate::translate::named;
use crate::translate::tests::ECHO;

/// An HTTPRoute with these metadata, parents, hostnames and rules, all in flow style.
pub(super) fn http_route(metadata: &str, parents: &str, hostnames: &str, rules: &str) -> String {
    object(
        "HTTPRoute",
        metadata,
        &format!("parentRefs: [{parents}], hostnames: [{hostnames}], rules: [{rules}]"),
    )
}

pub(super) const TO_ECHO: &str = "{backendRefs: [{name: echo, port: 80}]}";

pub(super) fn http(name: &str, port: u16, hostname: &str) -> String {
    let hostname = if hostname.is_empty() { String::new() } else { format!(", hostname: \"{hostname}\"") };
    format!("{{name: {name}, protocol: HTTP, port: {port}{hostname}}}")
}

/// Each host: the entry point, the pattern, `+` if the host continues, and for each rule its route and first match.
fn hosts(config: &Config) -> Vec<String> {
    let host = |host: &sluicegate_model::VirtualHost| {
        let rules: Vec<String> =
            host.rules.iter().map(|rule| format!("{}{}", rule.id.name, rule.matches[0])).collect();
        let continues = if host.continues { "+" } else { "" };
        format!("{} {}{continues} [{}]", host.entry_point, host.host, rules.join(" "))
    };
    config.hosts.iter().map(|of| host(of)).collect()
}

#[track_caller]
pub(super) fn served_hosts(
    options: &TranslateOptions,
    manifests: &[String],
    expected: &[&str],
    problems: &[&str],
) -> Config {
    let store = stored(&format!("{}{ECHO}", manifests.concat()));
    let translation = translate(&store, options);
    let told: Vec<String> = store
        .problems()
        .chain(translation.problems.iter().cloned())
        .map(|problem| problem.to_string())
        .collect();
    assert_lines(&hosts(&translation.config), expected);
    assert_problems(&told, problems);
    translation.config
}

#[test]
fn http_route_is_served_at_the_names_that_it_shares_with_its_listeners() {
    let listeners =
        [http("any", 80, ""), http("some", 80, "*.example.com"), http("other", 81, "b.test")].join(", ");
    let all = "{name: edge}";
    served_hosts(
        &TranslateOptions::default(),
        &[
            edge(&listeners),
            http_route("name: r", all, "a.test, x.example.com, \"*.com\"", TO_ECHO),
            http_route("name: s", "{name: edge, sectionName: some}", "", TO_ECHO),
        ],
        &[
            "0.0.0.0:80 a.test+ [r/]",
            "0.0.0.0:80 x.example.com+ [r/]",
            "0.0.0.0:80 *.com+ [r/]",
            "0.0.0.0:80 *.example.com [r/ s/]",
            "0.0.0.0:81 b.test []",
        ],
        &[],
    );
}

#[test]
fn listener_without_a_hostname_serves_no_name_of_a_more_specific_listener() {
    let listeners = [http("any", 80, ""), http("some", 80, "*.example.com")].join(", ");
    served_hosts(
        &TranslateOptions::default(),
        &[
            edge(&listeners),
            http_route("name: r", "{name: edge, sectionName: any}", "x.example.com, a.test", TO_ECHO),
        ],
        &["0.0.0.0:80 a.test+ [r/]", "0.0.0.0:80 *.example.com []"],
        &[
            "HTTPRoute default/r: spec.parentRefs[0]: x.example.com is ignored: it belongs to listener some of Gateway default/edge",
        ],
    );
}

#[test]
fn routes_and_ingresses_share_the_ports_that_options_set() {
    let options =
        TranslateOptions { http_ports: vec![80], https_ports: vec![443], ..TranslateOptions::default() };
    let config = served_hosts(
        &options,
        &[
            edge(&http("http", 80, "")),
            http_route("name: r", "{name: edge}", "a.test, b.test", TO_ECHO),
            ingress("name: i", &rules(&["a.test Prefix /i echo:http", "c.test Prefix /i echo:http"])),
        ],
        &["all a.test [i/i]", "all c.test [i/i]", "http a.test+ [i/i r/]", "http b.test+ [r/]"],
        &[],
    );
    assert_eq!(config.listeners, []);
}

#[test]
fn hosts_are_in_the_order_of_their_entry_points_and_patterns() {
    let listeners =
        [http("a", 9, ""), http("b", 80, "b.test"), http("c", 80, ""), http("d", 8080, "")].join(", ");
    let config = served_hosts(
        &TranslateOptions::default(),
        &[
            edge(&listeners),
            http_route("name: r", "{name: edge}", "b.test, a.test", TO_ECHO),
            ingress("name: i", &rules(&["z.test Prefix / echo:http"])),
        ],
        &[
            "all z.test [i/]",
            "0.0.0.0:80 a.test+ [r/]",
            "0.0.0.0:80 b.test [r/]",
            "0.0.0.0:8080 a.test+ [r/]",
            "0.0.0.0:8080 b.test+ [r/]",
            "0.0.0.0:9 a.test+ [r/]",
            "0.0.0.0:9 b.test+ [r/]",
        ],
        &[],
    );
    assert!(config.hosts.is_sorted_by_key(|host| (&host.entry_point, &host.host)));
}

#[test]
fn listener_at_a_port_of_another_protocol_is_rejected() {
    let options =
        TranslateOptions { http_ports: vec![80], https_ports: vec![443], ..TranslateOptions::default() };
    let https = "{name: s, protocol: HTTPS, port: 80, tls: {certificateRefs: [{name: none}]}}";
    let listeners = format!("{}, {https}, {}", http("h", 443, ""), tcp("t", 443));
    served_hosts(
        &options,
        &[edge(&listeners)],
        &[],
        &[
            "listeners[1].tls.certificateRefs[0]: Secret default/none does not exist as a Secret of type kubernetes.io/tls; the listener rejects every client",
            "spec.listeners[0].port: 443 is a port of HTTPS (--listen-https, --published-https-ports)",
            "spec.listeners[1].port: 80 is a port of HTTP (--listen, --published-http-ports)",
            "spec.listeners[2].port: 443 is a port of HTTPS (--listen-https, --published-https-ports)",
        ],
    );
}

#[test]
fn older_listener_keeps_a_hostname_and_a_port() {
    let gateway = |name: &str, year: u16, listeners: &str| {
        gateway(&format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\""), listeners)
    };
    served_hosts(
        &TranslateOptions::default(),
        &[
            gateway(
                "young",
                2025,
                &[http("a", 80, "a.test"), http("b", 80, "b.test"), tcp("c", 80)].join(", "),
            ),
            gateway("old", 2024, &http("a", 80, "a.test")),
            http_route("name: r", "{name: young}, {name: old}", "", TO_ECHO),
        ],
        &["0.0.0.0:80 a.test [r/]", "0.0.0.0:80 b.test [r/]"],
        &[
            "Gateway default/young: spec.listeners[0].hostname: a.test at port 80 is already taken by listener a of Gateway default/old; no route of this listener is served",
            "Gateway default/young: spec.listeners[2].port: port 80 is already taken by listener a of Gateway default/old; no route",
        ],
    );
}

#[test]
fn matches_have_the_precedence_of_gateway_api() {
    let paths = [
        "{path: {value: /a}}",
        "{path: {value: /abc}}",
        "{path: {value: /abc}, queryParams: [{name: q, value: v}]}",
        "{path: {value: /abc}, headers: [{name: h, value: v}]}",
        "{path: {value: /abc}, headers: [{name: h, value: v}, {name: i, value: v}]}",
        "{path: {value: /abc}, method: GET}",
        "{path: {type: RegularExpression, value: /a+}}",
        "{path: {type: Exact, value: /}}",
    ];
    let rules: Vec<String> = paths.iter().map(|of| format!("{{matches: [{of}], {}", &TO_ECHO[1..])).collect();
    let config = served_hosts(
        &TranslateOptions::default(),
        &[edge(&http("http", 80, "")), http_route("name: r", "{name: edge}", "", &rules.join(", "))],
        &[
            "0.0.0.0:80 * [r/a r/abc r/abc with 1 condition r/abc with 1 condition r/abc with 2 conditions rGET /abc r^(?:/a+)$ r/]",
        ],
        &[],
    );
    let precedence: Vec<u32> = config.hosts[0].rules.iter().map(|rule| rule.matches[0].precedence).collect();
    assert!(precedence.windows(2).all(|pair| pair[0] > pair[1]), "{precedence:?}");
}

#[test]
fn rules_of_the_route_with_the_more_specific_hostname_come_first() {
    let rule = |path: &str| format!("{{matches: [{{path: {{value: {path}}}}}], {}", &TO_ECHO[1..]);
    let aged = |name: &str, year: u16| format!("name: {name}, creationTimestamp: \"{year}-01-01T00:00:00Z\"");
    for (listener, wide, narrow, host) in [
        ("a.example.com", "\"*.example.com\"", "a.example.com", "a.example.com"),
        ("\"*.example.com\"", "\"*.com\"", "\"*.example.com\"", "*.example.com"),
        ("a.example.com", "", "\"*.com\"", "a.example.com"),
    ] {
        let config = served_hosts(
            &TranslateOptions::default(),
            &[
                edge(&format!("{{name: http, protocol: HTTP, port: 80, hostname: {listener}}}")),
                http_route(&aged("old", 2023), "{name: edge}", wide, &rule("/a/long")),
                http_route(&aged("young", 2024), "{name: edge}", narrow, &rule("/a")),
            ],
            &[&format!("0.0.0.0:80 {host} [old/a/long young/a]")],
            &[],
        );
        let rules = config.hosts[0].rules.iter().map(|rule| rule.matches[0].precedence);
        let precedence: Vec<u32> = rules.collect();
        assert!(precedence[0] > precedence[1], "{listener} {wide} {narrow}: {precedence:?}");
    }
}

#[test]
fn invalid_parts_of_an_http_route_are_reported_with_their_field() {
    for (rule, problem) in [
        (
            "matches: [{path: {value: a}}]",
            "matches[0].path.value: \"a\" does not begin with '/'; the match is ignored",
        ),
        (
            "matches: [{path: {type: Glob}}]",
            "matches[0].path.type: \"Glob\" is unknown: write Exact, PathPrefix",
        ),
        ("matches: [{path: {type: RegularExpression, value: \"(\"}}]", "matches[0].path.value:"),
        ("matches: [{path: {type: RegularExpression, value: \"a)(b\"}}]", "matches[0].path.value:"),
        ("matches: [{method: \"G T\"}]", "matches[0].method: \"G T\""),
        ("matches: [{headers: [{name: \"a b\", value: v}]}]", "matches[0].headers[0].name: \"a b\""),
        ("filters: [{type: Other}]", "filters[0].type: \"Other\" is not supported; requests receive 500"),
        ("filters: [{type: URLRewrite}]", "filters[0].urlRewrite: is missing; requests receive 500"),
        (
            "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 304}}]",
            "filters[0].requestRedirect.statusCode: 304 is not one of 301, 302, 303, 307 and 308",
        ),
        (
            "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: Content-Length, value: a}]}}]",
            "filters[0].requestHeaderModifier.set[0].name: \"Content-Length\"",
        ),
        ("timeouts: {request: 1d}", "timeouts.request: \"1d\" is not a duration from 1ms to 24h"),
        ("retry: {attempts: 101}", "retry.attempts: 101 is not between 0 and 100; the field is ignored"),
        (
            "sessionPersistence: {sessionName: \"a b\"}",
            "sessionPersistence.sessionName: \"a b\" has invalid characters: write letters, digits and hyphens; no session \
             persistence applies",
        ),
        (
            "sessionPersistence: {type: Address}",
            "sessionPersistence.type: \"Address\" is unknown: write Cookie or Header",
        ),
        (
            "sessionPersistence: {absoluteTimeout: 0s}",
            "sessionPersistence.absoluteTimeout: \"0s\" is not between 1ms and 8760h",
        ),
        ("sessionPersistence: {idleTimeout: 1d}", "sessionPersistence.idleTimeout: \"1d\" is not a duration"),
        (
            "sessionPersistence: {cookieConfig: {lifetimeType: Permanent}}",
            "sessionPersistence.absoluteTimeout: is missing: a cookie with lifetimeType Permanent needs it",
        ),
        (
            "sessionPersistence: {cookie: {lifetimeType: Long}}",
            "sessionPersistence.cookie.lifetimeType: \"Long\" is unknown: write Session or Permanent",
        ),
        (
            "sessionPersistence: {cookie: {path: \"/a;b\"}}",
            "sessionPersistence.cookie.path: \"/a;b\" has a ';', which ends the path of a cookie",
        ),
        (
            "sessionPersistence: {header: {name: x-session}}",
            "sessionPersistence.header: is only for type Header: remove it, or write type: Header",
        ),
        (
            "sessionPersistence: {type: Header, cookieConfig: {lifetimeType: Session}}",
            "sessionPersistence.cookieConfig: is only for type Cookie",
        ),
        (
            "sessionPersistence: {type: Header, header: {name: Content-Length}}",
            "sessionPersistence.header.name: \"Content-Length\"",
        ),
        (
            "sessionPersistence: {type: Header, header: {name: Cookie}}",
            "sessionPersistence.header: \"Cookie\" is needed for the request itself; no session persistence applies",
        ),
    ] {
        let rule = format!("{{{rule}, {}", &TO_ECHO[1..]);
        let manifests = [edge(&http("http", 80, "")), http_route("name: r", "{name: edge}", "", &rule)];
        let store = stored(&format!("{}{ECHO}", manifests.concat()));
        let told: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
        assert_problems(&told, &[&format!("HTTPRoute default/r: spec.rules[0].{problem}")]);
    }
}

#[test]
fn https_listener_needs_a_grant_for_a_certificate_of_another_namespace() {
    let listener =
        "{name: s, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: cert, namespace: other}]}}";
    let grant = |kind: &str| {
        format!(
            "---\napiVersion: gateway.networking.k8s.io/v1\nkind: ReferenceGrant\nmetadata: {{name: g, namespace: other}}\nspec: \
             {{from: [{{group: gateway.networking.k8s.io, kind: Gateway, namespace: default}}], to: [{{group: \"\", kind: {kind}}}]}}\n"
        )
    };
    let refused = "no ReferenceGrant of namespace other allows a Gateway of namespace default to name Secret other/cert";
    for (grant, problem) in [
        (String::new(), refused),
        (grant("Service"), refused),
        (grant("Secret"), "Secret other/cert does not exist"),
    ] {
        let config = served_hosts(&TranslateOptions::default(), &[edge(listener), grant], &[], &[problem]);
        assert_eq!(config.tls.hosts, Vec::<std::sync::Arc<TlsHost>>::new());
    }
}

#[test]
fn secrets_of_listeners_and_of_services_of_http_routes_are_read() {
    let listener = "{name: s, protocol: HTTPS, port: 443, tls: {certificateRefs: [{name: cert}]}}";
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: tls, annotations: {sluicegate.dev/backend-protocol: HTTPS, \
                   sluicegate.dev/proxy-ssl-secret: default/ca}}\nspec: {ports: [{name: https, port: 443}]}\n";
    let to = "{backendRefs: [{name: tls, port: 443}]}";
    let manifests = [edge(listener), http_route("name: r", "{name: edge}", "", to), service.to_owned()];
    let named = named::Named::find(&stored(&manifests.concat()), &TranslateOptions::default());
    let names = |secrets: &mut dyn Iterator<Item = &crate::object::ObjectRef>| {
        secrets.map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut named.certificates.iter()), ["Secret default/cert"]);
    assert_eq!(names(&mut named.others.iter()), ["Secret default/ca"]);
}

#[test]
fn security_policy_of_a_service_applies_to_http_routes() {
    let policy = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: p}\nspec: {targetRefs: [{group: \
                  \"\", kind: Service, name: echo}], ipAccess: {allow: [10.0.0.0/8]}}\n";
    let other = "---\napiVersion: v1\nkind: Service\nmetadata: {name: open}\nspec: {ports: [{name: http, port: 80}]}\n";
    let both = |first: &str, second: &str| {
        format!("{{backendRefs: [{{name: {first}, port: 80}}, {{name: {second}, port: 80}}]}}")
    };
    let rules = format!("{TO_ECHO}, {}, {}", both("echo", "open"), both("open", "echo"));
    let manifests = [
        edge(&http("http", 80, "")),
        http_route("name: r", "{name: edge}", "", &rules),
        policy.to_owned(),
        other.to_owned(),
    ];
    let store = stored(&format!("{}{ECHO}", manifests.concat()));
    let translation = translate(&store, &TranslateOptions::default());
    let rules = &translation.config.hosts[0].rules;
    let guarded: Vec<bool> = rules.iter().map(|rule| rule.security.is_some()).collect();
    assert_eq!(guarded, [true, true, false]);
    let invalid: Vec<bool> = rules[2].backends.iter().map(|backend| backend.is_invalid).collect();
    assert_eq!(invalid, [false, true], "the policy does not apply to the rule");
    let told: Vec<String> = translation.problems.iter().map(ToString::to_string).collect();
    assert!(
        told.iter().any(|problem| problem.contains("rules[2].backendRefs[1]: receives no requests")),
        "{told:?}"
    );
    assert_eq!(translation.config.hosts[0].entry_point, EntryPoint::Gateway("0.0.0.0:80".into()));
}

#[test]
fn rule_mirrors_requests_to_the_service_of_each_mirror_filter() {
    let mirror = |service: &str, share: &str| {
        format!(
            "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {service}, port: 80}}{share}}}}}"
        )
    };
    let filters = [
        mirror("echo", ""),
        mirror("none", ""),
        mirror("echo", ", percent: 0"),
        mirror("echo", ", fraction: {numerator: 1, denominator: 3}"),
    ];
    let rule = format!("{{filters: [{}], {}", filters.join(", "), &TO_ECHO[1..]);
    let config = served_hosts(
        &TranslateOptions::default(),
        &[edge(&http("http", 80, "")), http_route("name: r", "{name: edge}", "", &rule)],
        &["0.0.0.0:80 * [r/]"],
        &[
            "spec.rules[0].filters[1].requestMirror.backendRef.name: Service default/none does not exist; the filter mirrors no requests",
        ],
    );
    let traffic = config.hosts[0].rules[0].traffic.as_ref().unwrap();
    let mirrors =
        traffic.features.mirrors.iter().map(|mirror| (&*mirror.upstream.service, mirror.percent.get()));
    assert_eq!(mirrors.collect::<Vec<_>>(), [("echo", 100), ("echo", 34)]);
}

#[test]
fn rule_with_more_than_16_mirrors_responds_with_500() {
    let mirror = "{type: RequestMirror, requestMirror: {backendRef: {name: echo, port: 80}}}";
    let rule = format!("{{filters: [{}], {}", [mirror; 17].join(", "), &TO_ECHO[1..]);
    let config = served_hosts(
        &TranslateOptions::default(),
        &[edge(&http("http", 80, "")), http_route("name: r", "{name: edge}", "", &rule)],
        &["0.0.0.0:80 * [r/]"],
        &["spec.rules[0].filters[16].requestMirror: is one of more than 16 mirrors; requests receive 500"],
    );
    let features = &config.hosts[0].rules[0].traffic.as_ref().unwrap().features;
    assert!(features.direct_response.is_some() && features.mirrors.is_empty());
}
