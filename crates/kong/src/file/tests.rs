use super::{CredentialKind, File, HashSource, Protocol, Scope};
use crate::note::Severity;

fn read(text: &str) -> File {
    File::read(text, &|_| None).unwrap()
}

/// The notes, each with its line and severity.
fn notes(text: &str) -> Vec<(u32, Severity, String)> {
    read(text).notes.into_iter().map(|note| (note.line, note.severity, note.to_string())).collect()
}

const NESTED: &str = "\
_format_version: \"3.0\"
_info: {defaults: {service: {retries: 1}, route: {strip_path: false}}}
_plugin_configs:
  limit: {minute: 5, policy: local}
services:
  - name: shop
    url: https://shop.internal/api
    routes:
      - name: buy
        paths: [/buy, ~/b/\\d+]
        hosts: [Shop.Example.com]
        plugins: [{name: rate-limiting, _config: limit, config: {minute: 7}}]
    plugins: [{name: key-auth}]
consumers:
  - username: ann
    keyauth_credentials: [{key: secret-of-ann}]
    acls: [{group: buyers}]
    groups: [{name: gold}]
    plugins: [{name: request-termination, enabled: false}]
consumer_groups: [{name: gold}]
upstreams:
  - name: pool
    hash_on: header
    hash_on_header: X-User
    targets: [{target: 10.0.0.1:80, weight: 10}, {target: 10.0.0.2}, {target: '[2001:db8::1]:81'}]
    healthchecks: {active: {healthy: {interval: 5, successes: 2}, unhealthy: {http_failures: 3}}}
certificates:
  - {cert: A, key: B, snis: [{name: shop.example.com}]}
plugins: [{name: prometheus}]
";

const FLAT: &str = "\
_format_version: \"3.0\"
services: [{name: shop, protocol: https, host: shop.internal, port: 443, path: /api, retries: 1}]
routes:
  - {name: buy, service: shop, paths: [/buy, ~/b/\\d+], hosts: [shop.example.com], strip_path: false}
plugins:
  - {name: rate-limiting, route: {name: buy}, config: {minute: 7, policy: local}}
  - {name: key-auth, service: shop}
  - {name: request-termination, consumer: ann, enabled: no}
  - {name: prometheus}
consumers: [{username: ann}]
consumer_groups: [{name: gold, consumers: [{username: ann}]}]
keyauth_credentials: [{consumer: ann, key: secret-of-ann}]
acls: [{consumer: {username: ann}, group: buyers}]
upstreams: [{name: pool, algorithm: consistent-hashing, hash_on: header, hash_on_header: X-User, healthchecks: {active: {healthy: {interval: 5, successes: 2}, unhealthy: {http_failures: 3}}}}]
targets: [{target: '10.0.0.1:80', weight: 10, upstream: pool}, {target: 10.0.0.2, upstream: pool}, {target: '[2001:db8::1]:81', upstream: {name: pool}}]
certificates: [{id: c, cert: A, key: B}]
snis: [{name: shop.example.com, certificate: {id: c}}]
";

#[test]
fn nested_and_flat_files_have_the_same_entities() {
    for text in [NESTED, FLAT] {
        let file = read(text);
        assert_eq!(file.notes, []);
        let service = &file.services[0];
        assert_eq!((service.protocol, &*service.host, service.port), (Protocol::Https, "shop.internal", 443));
        assert_eq!(
            (service.path.as_deref(), service.retries, service.read_timeout),
            (Some("/api"), 1, 60_000)
        );
        let route = &file.routes[0];
        assert_eq!((route.service, route.strip_path), (Some(0), false));
        assert_eq!(route.hosts.as_deref(), Some(&["shop.example.com".to_owned()][..]));
        assert_eq!(route.protocols, ["http", "https"]);
        let scope = |name: &str| file.plugins.iter().find(|plugin| plugin.name == name).unwrap().scope;
        assert_eq!(scope("rate-limiting"), Scope { route: Some(0), ..Scope::default() });
        assert_eq!(scope("key-auth"), Scope { service: Some(0), ..Scope::default() });
        assert_eq!(scope("request-termination"), Scope { consumer: Some(0), ..Scope::default() });
        assert!(scope("prometheus").is_global());
        let limit = file.plugins.iter().find(|plugin| plugin.name == "rate-limiting").unwrap();
        assert_eq!(limit.config.get("minute").unwrap().number(), Some(7.0));
        assert_eq!(limit.config.get("policy").unwrap().text(), Some("local"));
        let consumer = &file.consumers[0];
        assert_eq!(consumer.credentials[0].kind, CredentialKind::Key);
        assert_eq!(consumer.credentials[0].text("key"), Some("secret-of-ann"));
        assert_eq!(
            (&*consumer.acls, &*consumer.groups),
            (&["buyers".to_owned()][..], &["gold".to_owned()][..])
        );
        let upstream = &file.upstreams[0];
        assert_eq!(upstream.algorithm, "consistent-hashing");
        assert_eq!(upstream.hash.on, Some(HashSource::Header("X-User".to_owned())));
        let targets: Vec<(&str, u16, u16)> =
            upstream.targets.iter().map(|target| (&*target.host, target.port, target.weight)).collect();
        assert_eq!(targets, [("10.0.0.1", 80, 10), ("10.0.0.2", 8000, 100), ("2001:db8::1", 81, 100)]);
        let active = upstream.active.as_ref().unwrap();
        assert_eq!((active.healthy_interval, active.successes, active.failures), (5.0, 2, 3));
        assert_eq!(file.certificates[0].snis, ["shop.example.com"]);
    }
}

#[test]
fn secrets_are_not_in_debug_output() {
    for text in [NESTED, FLAT] {
        let debug = format!("{:?}", read(text).consumers);
        assert!(!debug.contains("secret-of-ann"), "{debug}");
    }
}

#[test]
fn paths_of_older_formats_are_migrated() {
    let paths = |version: &str| {
        let text =
            format!("_format_version: \"{version}\"\nroutes: [{{name: a, paths: ['/u/\\d+', /v1.0/]}}]\n");
        read(&text).routes[0].paths.clone()
    };
    assert_eq!(paths("1.1"), ["~/u/\\d+", "/v1.0/"]);
    assert_eq!(paths("2.1"), ["~/u/\\d+", "/v1.0/"]);
    assert!(
        notes("_format_version: \"3.0\"\nroutes: [{name: a, paths: ['/u/\\d+']}]\n")[0]
            .2
            .contains("put ~ before")
    );
}

#[test]
fn each_part_without_a_place_is_reported_with_its_line() {
    use Severity::{Error, Unconverted};
    for (text, line, severity, message) in [
        (
            "vaults: [{name: env}]",
            2,
            Unconverted,
            "vaults is not converted: write the values into the environment",
        ),
        ("unknown_list: []", 2, Unconverted, "unknown_list is unknown and not converted"),
        ("services:\n- {name: a, host: a, colour: red}", 3, Unconverted, "service \"a\": colour is unknown"),
        ("services:\n- {name: a}", 3, Error, "service \"a\": host is missing"),
        (
            "services:\n- {name: a, url: 'ftp//x'}",
            3,
            Error,
            "service \"a\": url \"ftp//x\" is not protocol://",
        ),
        (
            "services:\n- {name: a, host: a, port: x}",
            3,
            Error,
            "service \"a\": port is no number from 0 to 65535",
        ),
        (
            "routes:\n- {name: a, service: b, paths: [/]}",
            3,
            Error,
            "route \"a\": service \"b\" does not exist",
        ),
        ("routes:\n- {name: a, strip_path: true}", 3, Error, "route \"a\": has no condition"),
        (
            "routes:\n- {name: a, paths: ['~/(']}",
            3,
            Error,
            "route \"a\": path \"~/(\" is no regular expression: unclosed group",
        ),
        (
            "routes:\n- {name: a, paths: [a]}",
            3,
            Error,
            "route \"a\": path \"a\" begins neither with / nor with ~/",
        ),
        ("routes:\n- {name: a, paths: ['/a$']}", 3, Unconverted, "put ~ before a regular expression"),
        (
            "routes:\n- {name: a, expression: 'http.path == \"/\"', paths: [/]}",
            3,
            Error,
            "expression is of the flavor expressions",
        ),
        (
            "routes:\n- {name: a, paths: [/], path_handling: v1}",
            3,
            Unconverted,
            "path_handling \"v1\" is not converted",
        ),
        ("plugins:\n- {name: acl, route: x}", 3, Error, "plugin \"acl\": route \"x\" does not exist"),
        (
            "plugins:\n- {name: acl, ordering: {before: {access: [a]}}}",
            3,
            Unconverted,
            "plugin \"acl\": ordering is not converted",
        ),
        (
            "plugins:\n- {name: acl, _config: x}",
            3,
            Error,
            "plugin \"acl\": _config \"x\" is not in _plugin_configs",
        ),
        (
            "consumers:\n- {username: a, keyauth_credentials: [{key: '{vault://env/x}'}]}",
            3,
            Unconverted,
            "a value is a reference to a vault",
        ),
        ("upstreams:\n- {name: a, targets: [{target: 'x:y'}]}", 3, Error, "target \"x:y\" is not host:port"),
    ] {
        let found = notes(&format!("_format_version: \"3.0\"\n{text}\n"));
        let is_it = |note: &&(u32, Severity, String)| note.2.contains(message);
        let note = found.iter().find(is_it).unwrap_or_else(|| panic!("{text}: {found:?}"));
        assert_eq!((note.0, note.1), (line, severity), "{text}");
    }
}

#[test]
fn file_without_a_known_format_is_unreadable() {
    for (text, message) in [
        ("services: []", "line 1: _format_version is missing: write one of \"1.1\", \"2.1\", \"3.0\""),
        ("_format_version: \"4.0\"", "line 1: _format_version is unknown"),
        ("[]", "_format_version is missing"),
        ("x", "the file is no mapping"),
    ] {
        let fault = File::read(text, &|_| None).unwrap_err().to_string();
        assert!(fault.contains(message), "{text}: {fault}");
    }
    // Without quotes it is a number.
    assert!(File::read("_format_version: 3.0", &|_| None).is_ok());
}
