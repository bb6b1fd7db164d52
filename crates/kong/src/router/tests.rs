//! Tables of Kong's unit tests (`spec/01-unit/08-router_spec.lua`), as facts.

use std::net::IpAddr;

use super::{Part, Request, choose, order};
use crate::File;
use crate::path::join;

/// The routes of a file, from the entries of `routes`.
fn file(routes: &str) -> File {
    let file = File::read(&format!("_format_version: \"3.0\"\nroutes:\n{routes}\n"), &|_| None).unwrap();
    assert_eq!(file.notes, [], "{routes}");
    file
}

/// The name of the route for a request.
#[track_caller]
fn check(file: &File, request: &Request<'_>, expected: &str) {
    let parts = order(&file.routes);
    let found = choose(&parts, request).map_or("none", |(part, _)| part.route.name.as_deref().unwrap());
    assert_eq!(found, expected, "{request:?}");
}

/// A request in words: method, host and path.
fn request(text: &'static str) -> Request<'static> {
    let mut words = text.split(' ');
    let (method, host, path) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    Request { method, ..Request::new(host, path) }
}

#[test]
fn priority_has_the_64_bits_of_kong() {
    let file = file(
        "- {name: a, paths: [/x]}
- {name: b, hosts: [a.test]}
- {name: c, hosts: ['*.a.test'], methods: [GET], paths: ['~/x', /abc, /de, /fg, '~/y']}
- {name: d, paths: ['~/x'], regex_priority: 7}
- {name: e, headers: {a: [1], b: [2]}, snis: [a.test], sources: [{ip: 10.0.0.0/8}], destinations: [{port: 80}], \
  hosts: [a.test], methods: [GET], paths: [/]}
- {name: f, paths: [/x], regex_priority: 7}",
    );
    let priorities: Vec<(String, u64)> = file
        .routes
        .iter()
        .enumerate()
        .flat_map(|(place, route)| Part::of(place, route))
        .map(|part| (part.route.name.clone().unwrap(), part.priority))
        .collect();
    let expected = [
        ("a", 1 << 61 | 2),
        ("b", 1 << 61 | 1 << 60),
        ("c", 3 << 61 | 1 << 51),
        ("c", 3 << 61 | 4),
        ("c", 3 << 61 | 3),
        ("d", 1 << 61 | 1 << 51 | 7 << 19),
        ("e", 7 << 61 | 1 << 60 | 2 << 52 | 1),
        ("f", 1 << 61 | 2),
    ];
    let expected: Vec<(String, u64)> = expected.iter().map(|(name, of)| ((*name).to_owned(), *of)).collect();
    assert_eq!(priorities, expected);
}

#[test]
fn greater_id_decides_among_equal_priorities() {
    let file = file(
        "- {name: a, id: 00000000-0000-4000-8000-000000000001, paths: [/x]}
- {name: b, id: 00000000-0000-4000-8000-000000000003, paths: [/x]}
- {name: c, id: 00000000-0000-4000-8000-000000000002, paths: [/x]}",
    );
    check(&file, &Request::new("a.test", "/x"), "b");
}

const USE_CASE: &str = "
- {name: r1, hosts: [domain-1.org, domain-2.org]}
- {name: r2, methods: [TRACE]}
- {name: r3, paths: [/my-route]}
- {name: r4, paths: [/route-4], hosts: [domain-1.org, domain-2.org]}
- {name: r5, hosts: [domain-1.org, domain-2.org], methods: [POST, PUT, PATCH]}
- {name: r6, methods: [POST, PUT, PATCH], paths: [/route-6]}
- {name: r7, hosts: [domain-with-uri-1.org, domain-with-uri-2.org], methods: [POST, PUT, PATCH], paths: [/my-route-uri]}
- {name: r8, paths: [/serviceless]}
- {name: r9, headers: {location: [my-location-1, my-location-2]}}
- {name: r10, headers: {location: [my-location-1], version: [v1, v2]}}
- {name: r11, headers: {location: [my-location-1, my-location-2]}, paths: [/headers-uri]}
- {name: r12, hosts: [domain-with-headers-1.org, domain-with-headers-2.org], headers: {location: [my-location-1, my-location-2]}, methods: [POST, PUT, PATCH], paths: [/headers-host-uri-method]}
- {name: r14, hosts: ['domain-3.org:321']}
- {name: r15, headers: {user_agent: ['~*windows|linux|os\\s+x\\s*[\\d\\._]+|solaris|bsd']}}";

#[test]
fn each_condition_selects_the_route_of_kong() {
    let file = file(USE_CASE);
    for (text, expected) in [
        ("GET domain-1.org /", "r1"),
        ("GET domain-1.org:80 /", "r1"),
        ("GET DOMAIN-1.ORG /", "r1"),
        ("GET domain-3.org:321 /", "r14"),
        ("GET domain-3.org:123 /", "none"),
        ("GET domain.org /my-route", "r3"),
        ("GET domain.org /my-route-uri", "r3"),
        ("GET domain.org /my-route/some/path", "r3"),
        ("TRACE domain.org /", "r2"),
        ("GET domain-1.org /route-4", "r4"),
        ("POST domain-1.org /", "r5"),
        ("PUT domain.org /route-6", "r6"),
        ("POST domain-with-uri-1.org /my-route-uri", "r7"),
        ("GET domain.org /serviceless", "r8"),
        ("GET domain.org /nothing", "none"),
    ] {
        check(&file, &request(text), expected);
    }
    for (text, headers, expected) in [
        ("GET domain.org /", &[("location", "my-location-1")][..], "r9"),
        ("GET domain.org /", &[("Location", "MY-LOCATION-2")], "r9"),
        ("GET domain.org /", &[("location", "my-location-1"), ("version", "v1")], "r10"),
        ("GET domain.org /", &[("location", "my-location-3"), ("location", "my-location-1")], "r9"),
        ("GET domain.org /", &[("location", "my-location-1"), ("version", "v3")], "r9"),
        ("GET domain.org /headers-uri", &[("location", "my-location-2")], "r11"),
        ("POST domain-with-headers-1.org /headers-host-uri-method", &[("location", "my-location-1")], "r12"),
        ("GET domain.org /", &[("User-Agent", "Mozilla (Windows NT)")], "r15"),
        ("GET domain.org /", &[("user_agent", "OS X 10.9")], "r15"),
        ("GET domain.org /", &[("user-agent", "amiga")], "none"),
    ] {
        check(&file, &Request { headers, ..request(text) }, expected);
    }
}

#[test]
fn longest_prefix_then_regular_expression_then_priority_decides() {
    for (routes, text, expected) in [
        (
            "- {name: a, paths: [/my-route/hello]}\n- {name: b, paths: [/my-route]}",
            "GET d.org /my-route/hello/world",
            "a",
        ),
        (
            "- {name: a, paths: [/my-route/hello]}\n- {name: b, paths: [/my-route]}",
            "GET d.org /my-route/world",
            "b",
        ),
        // A longer path of another host does not count.
        (
            "- {name: a, hosts: [example.com], paths: [/my-route]}\n- {name: b, hosts: [example.com], paths: \
             [/my-route/hello]}\n- {name: c, hosts: [example.net], paths: [/my-route/hello/world]}",
            "GET example.com /my-route/hello/world",
            "b",
        ),
        (
            "- {name: a, paths: [/something/my-route]}\n- {name: b, hosts: [example.com], paths: [/my-route]}",
            "GET example.com /something/my-route",
            "a",
        ),
        ("- {name: a, paths: ['~/users/\\d+/profile']}", "GET d.org /users/123/profile", "a"),
        ("- {name: a, paths: ['~/prefix/[0-9]+']}", "GET d.org /extra/prefix/123", "none"),
        (
            "- {name: a, paths: [/route/persons]}\n- {name: b, paths: ['~/route/persons/\\d+/profile']}",
            "GET d.org /route/persons/123/profile",
            "b",
        ),
        (
            "- {name: a, paths: [/route/fixture]}\n- {name: b, paths: ['~/route/(fixture)']}",
            "GET d.org /route/fixture",
            "b",
        ),
        (
            "- {name: a, hosts: [route.com], paths: [/pat]}\n- {name: b, hosts: [route.com], paths: [/path], methods: \
             [POST]}\n- {name: c, hosts: [route.com], paths: ['~/(path)']}",
            "GET route.com /path",
            "c",
        ),
        // More conditions decide before the path, and a method before a longer path.
        ("- {name: a, paths: [/a/b/c]}\n- {name: b, methods: [GET], paths: [/a]}", "GET d.org /a/b/c", "b"),
        ("- {name: a, hosts: [d.org]}\n- {name: b, methods: [GET], paths: [/a]}", "GET d.org /a", "b"),
        (
            "- {name: a, hosts: [d.org]}\n- {name: b, paths: [/a/very/long/path]}",
            "GET d.org /a/very/long/path",
            "a",
        ),
        // regex_priority has no effect on plain paths.
        (
            "- {name: a, paths: ['~/a/.*'], regex_priority: 1}\n- {name: b, paths: ['~/a/b'], regex_priority: 2}",
            "GET d.org /a/b",
            "b",
        ),
        ("- {name: a, paths: [/a], regex_priority: 9}\n- {name: b, paths: [/a/b]}", "GET d.org /a/b", "b"),
        // Named groups.
        ("- {name: a, paths: ['~/u/(?<user>[^/]+)$']}", "GET d.org /u/x", "a"),
        ("- {name: a, paths: ['~/u/(?<user>[^/]+)$']}", "GET d.org /u/x/y", "none"),
    ] {
        check(&file(routes), &request(text), expected);
    }
}

#[test]
fn wildcard_hosts_match_any_number_of_labels_at_one_end() {
    let both = "- {name: a, hosts: ['*.route.com']}\n- {name: b, hosts: ['route.*']}\n- {name: c, hosts: \
                [plain.route.com]}\n- {name: d, hosts: [route.com]}";
    let ports = "- {name: a, hosts: ['route.*']}\n- {name: b, hosts: ['*.route.net:123']}";
    let paths = "- {name: a, hosts: ['*.route.com'], paths: [/path1]}\n- {name: b, hosts: [plain.route.com], paths: [/path2]}";
    for (routes, text, expected) in [
        (both, "GET foo.route.com /", "a"),
        (both, "GET foo.bar.route.com:123 /", "a"),
        (both, "GET route.org:123 /", "b"),
        (both, "GET plain.route.com /", "c"),
        (both, "GET route.com /", "d"),
        (both, "GET froute.com /", "none"),
        (ports, "GET foo.route.net:123 /", "b"),
        (ports, "GET foo.route.net:456 /", "none"),
        (paths, "GET plain.route.com /path1", "a"),
        (paths, "GET plain.route.com /path2", "b"),
        (
            "- {name: a, hosts: ['*.domain.com', example.com], paths: [/path], methods: [GET, TRACE]}",
            "TRACE example.com /path",
            "a",
        ),
        (
            "- {name: a, hosts: ['*.domain.com', example.com], paths: [/path], methods: [GET, TRACE]}",
            "POST foo.domain.com /path",
            "none",
        ),
        (
            "- {name: a, hosts: ['*.e.com'], paths: ['~/users/\\d+/profile']}\n- {name: b, hosts: ['*.e.com'], paths: [/users]}",
            "GET t.e.com /users/123/profile",
            "a",
        ),
    ] {
        check(&file(routes), &request(text), expected);
    }
}

#[test]
fn names_of_the_client_hello_count_only_over_tls() {
    let file = file("- {name: a, snis: [www.example.org.], paths: [/]}\n- {name: b, paths: [/]}");
    let plain = Request::new("x.test", "/");
    check(&file, &plain, "a");
    check(&file, &Request { is_tls: true, sni: Some("www.example.org"), ..plain }, "a");
    check(&file, &Request { is_tls: true, sni: Some("other.org"), ..plain }, "b");
    check(&file, &Request { is_tls: true, ..plain }, "b");
}

#[test]
fn addresses_and_ports_of_connections_are_conditions() {
    let file = file(
        "- {name: a, sources: [{ip: 10.1.0.0/16}, {ip: 127.0.0.1, port: 9000}], paths: [/]}
- {name: b, destinations: [{port: 8443}], paths: [/]}
- {name: c, paths: [/]}",
    );
    let of = |source: &str, port: u16, destination: u16| Request {
        source: Some((source.parse::<IpAddr>().unwrap(), port)),
        destination: Some(("192.0.2.1".parse::<IpAddr>().unwrap(), destination)),
        ..Request::new("x.test", "/")
    };
    check(&file, &of("10.1.2.3", 1, 80), "a");
    check(&file, &of("10.2.2.3", 1, 80), "c");
    check(&file, &of("127.0.0.1", 9000, 80), "a");
    check(&file, &of("127.0.0.1", 9001, 8443), "b");
}

#[test]
fn path_for_the_service_follows_the_matched_path() {
    let file = file("- {name: a, paths: ['~/users/\\d+', /users]}");
    let parts = order(&file.routes);
    for (path, expected) in [("/users/12/x", "/srv/x"), ("/users/12", "/srv"), ("/users/x", "/srv/x")] {
        let (_, matched) = choose(&parts, &Request::new("x.test", path)).unwrap();
        assert_eq!(join("/srv", path, Some(matched)), expected, "{path}");
    }
}
