//! Tests of errors in Gateways and routes, and of the parts that stay in service.

use super::*;

#[test]
fn gateway_api_objects_of_older_versions_and_with_every_valid_field_are_accepted() {
    let class = "apiVersion: gateway.networking.k8s.io/v1beta1\nkind: GatewayClass\nmetadata: {name: gold}\n\
                 spec: {controllerName: sluicegate.dev/gateway-controller, description: d, parametersRef: {group: \"\", \
                 kind: ConfigMap, name: p, namespace: s}}\nstatus: {conditions: [{type: Accepted}]}\n\
                 ---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: p, namespace: s}\n";
    let gateway = "---\napiVersion: gateway.networking.k8s.io/v1beta1\nkind: Gateway\nmetadata: {name: edge}\n\
        spec: {gatewayClassName: gold, infrastructure: {labels: {a: b}, annotations: {a: b}}, allowedListeners: {namespaces: {from: Same}}, defaultScope: All, tls: {frontend: {default: \
        {}}}, listeners: [{name: x, protocol: TLS, port: 8443, tls: {mode: Passthrough, options: {a: b}, \
        certificateRefs: []}, allowedRoutes: {kinds: [{group: gateway.networking.k8s.io, kind: TLSRoute}]}}]}\n\
        status: {listeners: []}\n";
    let backend = "useDefaultGateways: None, rules: [{name: r, backendRefs: [{group: \"\", kind: Service, name: db, \
                   namespace: default, port: 5432, weight: 1}]}]";
    for version in ["v1", "v1alpha3", "v1alpha2"] {
        let route = format!(
            "---\napiVersion: gateway.networking.k8s.io/{version}\nkind: TLSRoute\nmetadata: {{name: db}}\n\
             spec: {{parentRefs: [{{name: edge}}], {backend}}}\nstatus: {{parents: []}}\n"
        );
        println!("{version}");
        check(&[class.to_owned(), gateway.to_owned(), route], &[&format!("TLS 0.0.0.0:8443 * -> {DB}")], &[]);
    }
    for kind in ["TCPRoute", "UDPRoute"] {
        let route = format!(
            "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: {kind}\nmetadata: {{name: db}}\n\
             spec: {{parentRefs: [{{name: other, sectionName: a, port: 1}}], {backend}}}\n"
        );
        check(&[route], &[], &["spec.parentRefs[0]: Gateway default/other does not exist"]);
    }
    let old = "{apiVersion: gateway.networking.k8s.io/v1alpha1, kind: Gateway, metadata: {name: a}}";
    let message = "Gateway default/a: apiVersion: \"gateway.networking.k8s.io/v1alpha1\" is not a supported version of Gateway: write \
                   gateway.networking.k8s.io/v1";
    assert_problems(&serve(old).problems, &[message]);
    let of_another_group = "{apiVersion: networking.istio.io/v1, kind: Gateway, metadata: {name: a}}";
    assert_problems(&serve(of_another_group).problems, &[]);
}

#[test]
fn problem_in_a_gateway_names_the_field() {
    for (listener, problem) in [
        ("{protocol: TCP, port: 1}", "spec.listeners[0].name: is missing"),
        ("{name: A, protocol: TCP, port: 1}", "spec.listeners[0].name: \"A\" has upper-case letters"),
        ("{name: a, protocol: TCP}", "spec.listeners[0].port: is missing"),
        ("{name: a, protocol: TCP, port: 0}", "spec.listeners[0].port: 0 is not between 1 and 65535"),
        ("{name: a, protocol: TCP, port: \"1\"}", "spec.listeners[0].port: must be a number: write 1"),
        ("{name: a, port: 1}", "spec.listeners[0].protocol: is missing: write HTTP, HTTPS, TCP, TLS or UDP"),
        (
            "{name: a, protocol: tcp, port: 1}",
            "protocol: \"tcp\" is not supported: write HTTP, HTTPS, TCP, TLS or UDP, in upper case",
        ),
        ("{name: a, protocol: SCTP, port: 1}", "protocol: \"SCTP\" is not supported"),
        (
            "{name: a, protocol: TLS, port: 1}",
            "spec.listeners[0].tls.mode: is missing: write Terminate or Passthrough",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {}}",
            "spec.listeners[0].tls.mode: is missing: write Terminate or Passthrough",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: passthrough}}",
            "tls.mode: \"passthrough\" is unknown",
        ),
        (
            "{name: a, protocol: TCP, port: 1, tls: {mode: Passthrough}}",
            "spec.listeners[0].tls: is not allowed on a listener for TCP: write protocol: TLS",
        ),
        (
            "{name: a, protocol: HTTPS, port: 1, tls: {mode: Passthrough}}",
            "spec.listeners[0].tls.mode: Passthrough needs protocol: TLS",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: Passthrough}, hostname: A.test}",
            "spec.listeners[0].hostname: \"A.test\" has upper-case letters",
        ),
        (
            "{name: a, protocol: TLS, port: 1, tls: {mode: Passthrough}, hostname: 10.0.0.1}",
            "is an IP address",
        ),
    ] {
        check(&[edge(listener)], &[], &[problem]);
    }
    check(
        &[edge("{name: a, protocol: TCP, port: 1, hostname: a.test, prot: 2, allowedRoute: {}}")],
        &["TCP 0.0.0.0:1 without a route"],
        &[
            "spec.listeners[0].allowedRoute: is unknown and ignored: did you mean allowedRoutes?",
            "spec.listeners[0].prot: is unknown and ignored: did you mean port?",
            "spec.listeners[0].hostname: is ignored: TCP has no host names",
        ],
    );
    check(
        &[edge(&format!("{}, {}", tcp("a", 1), tcp("a", 2)))],
        &["TCP 0.0.0.0:1 without a route"],
        &["spec.listeners[1].name: \"a\" is the name of two listeners"],
    );
    check(
        &[object("Gateway", "name: a", "gatewayClassName: sluicegate")],
        &[],
        &["spec.listeners: is missing"],
    );
    let no_class = object("Gateway", "name: a", &format!("listeners: [{}]", tcp("a", 1)));
    check(&[no_class], &[], &["spec.gatewayClassName: is missing"]);
    check(&[object("GatewayClass", "name: a", "")], &[], &["spec.controllerName: is missing"]);
    check(
        &[gateway("name: a, annotations: {sluicegate.dev/proxy-protocol: v1}", &tcp("a", 1))],
        &["TCP 0.0.0.0:1 without a route"],
        &[
            "metadata.annotations[sluicegate.dev/proxy-protocol]: has no effect on an object of kind Gateway: write it on \
           the Service",
        ],
    );
}

#[test]
fn problem_in_a_route_names_the_field() {
    let backends = "rules: [{backendRefs: [{name: db, port: 5432}]}]";
    for (kind, spec, problems) in [
        (
            "TCPRoute",
            "parentRefs: [{name: edge}]",
            &["spec.rules: is missing: write a rule with backendRefs"][..],
        ),
        ("TCPRoute", "parentRefs: [{name: edge}], rules: [{}]", &["spec.rules[0].backendRefs: is missing"]),
        ("TCPRoute", backends, &["spec.parentRefs: is missing; the route is attached to no Gateway"]),
        ("TCPRoute", &format!("parentRefs: [{{}}], {backends}"), &["spec.parentRefs[0].name: is missing"]),
        (
            "TCPRoute",
            &format!("parentRefs: [{{name: edge, port: 0}}], {backends}"),
            &["spec.parentRefs[0].port: is not between 1 and 65535"],
        ),
        (
            "TCPRoute",
            &format!("hostnames: [a.test], parentRefs: [{{name: none}}], {backends}"),
            &["spec.hostnames: is unknown and ignored", "does not exist"],
        ),
        (
            "TLSRoute",
            &format!("hostnames: [\"\", 10.0.0.1], parentRefs: [{{name: none}}], {backends}"),
            &[
                "spec.hostnames[0]: is empty",
                "spec.hostnames[1]: \"10.0.0.1\" is an IP address",
                "does not exist",
            ],
        ),
        (
            "TLSRoute",
            &format!("hostname: [a.test], parentRefs: [{{name: none}}], {backends}"),
            &["spec.hostname: is unknown and ignored: check its spelling and its place", "does not exist"],
        ),
    ] {
        println!("{kind} {spec}");
        let no_gateway = spec.contains("{name: edge}").then_some("Gateway default/edge does not exist");
        let problems: Vec<&str> = problems.iter().copied().chain(no_gateway).collect();
        check(&[object(kind, "name: a", spec)], &[], &problems);
    }
    let two_rules =
        "parentRefs: [{name: edge}], rules: [{backendRefs: [{name: db, port: 5432}]}, {backendRefs: []}]";
    check(
        &[edge(&tcp("x", 1)), object("TCPRoute", "name: a", two_rules)],
        &[&format!("TCP 0.0.0.0:1 * -> {DB}")],
        &["spec.rules[1]: is ignored: a TCPRoute has one rule, and the first one is used"],
    );
}

#[test]
fn invalid_gateway_or_route_keeps_its_last_valid_version() {
    let mut store = Store::default();
    let (edge_file, route_file) = (Path::new("edge.yaml"), Path::new("route.yaml"));
    store.set_file(Path::new("services.yaml"), SERVICES);
    store.set_file(edge_file, &edge(&tcp("x", 1)));
    let good = route("TCPRoute", "name: db", &[], "db:5432");
    store.set_file(route_file, &good);
    for (file, bad, problem) in [
        (
            edge_file,
            edge(&tcp("x", 0)),
            "port: 0 is not between 1 and 65535 (the last valid version stays in service)",
        ),
        (edge_file, "kind: [".to_owned(), "(the previous content of this file stays in service)"),
        (route_file, good.replace("port: 5432", "port: 0"), "(the last valid version stays in service)"),
        (
            route_file,
            good.replace("name: db, port", "kind: X, name: db, port"),
            "(the last valid version stays in service)",
        ),
    ] {
        let restore = if file == edge_file { edge(&tcp("x", 1)) } else { good.clone() };
        store.set_file(file, &bad);
        let served = served(&store, &TranslateOptions::default());
        assert_lines(&served.layer4, &[&format!("TCP 0.0.0.0:1 * -> {DB}")]);
        assert_problems(&served.problems, &[problem]);
        store.set_file(file, &restore);
    }
}
