use super::*;
use crate::store::Store;

const SERVICES: &str = "
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {ports: [{name: http, port: 8080}]}
";

fn gateway() -> ObjectName {
    ObjectName { namespace: "infra".into(), name: "edge".into() }
}

fn converted(text: &str) -> Converted {
    let texts = [("input.yaml".into(), format!("{SERVICES}---\n{text}"))];
    let options = TranslateOptions { ingress_class: "nginx".to_owned(), ..TranslateOptions::default() };
    convert_ingresses(&texts, &options, &gateway())
}

/// The printed objects, each as `KIND NAMESPACE/NAME`, with its specification.
fn objects(converted: &Converted) -> BTreeMap<String, Value> {
    let objects = manifest::objects(&converted.yaml, Syntax::Yaml).into_iter();
    let named = objects.map(|mut object| {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let name =
            format!("{} {}/{}", text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
        (name, object["spec"].take())
    });
    named.collect()
}

fn faults(converted: &Converted) -> Vec<String> {
    converted.problems.iter().map(|problem| format!("{}: {problem}", problem.severity)).collect()
}

fn ingress(annotations: &str, spec: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {{name: shop, namespace: shop, annotations: \
         {{{annotations}}}}}\nspec:\n  ingressClassName: nginx\n  {}\n",
        spec.trim().replace('\n', "\n  ")
    )
}

const WITH_TLS: &str = "
tls: [{hosts: [shop.example.com], secretName: shop-tls}]
rules:
- host: shop.example.com
  http: {paths: [
    {path: /, pathType: Prefix, backend: {service: {name: web, port: {name: http}}}},
    {path: /cart, pathType: Exact, backend: {service: {name: cart, port: {number: 80}}}}]}
";

#[test]
fn ingress_with_tls_becomes_a_route_at_its_listener_and_a_redirect() {
    let converted = converted(&ingress("", WITH_TLS));
    assert_eq!(faults(&converted), <[String; 0]>::default());
    let objects = objects(&converted);
    let all = json!({"namespaces": {"from": "All"}});
    assert_eq!(
        objects["Gateway infra/edge"],
        json!({
            "gatewayClassName": "sluicegate",
            "listeners": [
                {"name": "https-shop.example.com", "protocol": "HTTPS", "port": 443, "hostname": "shop.example.com",
                 "tls": {"certificateRefs": [{"name": "shop-tls", "namespace": "shop"}]}, "allowedRoutes": all},
                {"name": "http", "protocol": "HTTP", "port": 80, "allowedRoutes": all},
            ],
        })
    );
    assert_eq!(
        objects["ReferenceGrant shop/edge-certificates"],
        json!({
            "from": [{"group": GROUP, "kind": "Gateway", "namespace": "infra"}],
            "to": [{"group": "", "kind": "Secret", "name": "shop-tls"}],
        })
    );
    let matches = [
        json!([{"path": {"type": "PathPrefix", "value": "/"}}]),
        json!([{"path": {"type": "Exact", "value": "/cart"}}]),
    ];
    let parent = |section: &str| json!([{"name": "edge", "namespace": "infra", "sectionName": section}]);
    assert_eq!(
        objects["HTTPRoute shop/shop"],
        json!({
            "parentRefs": parent("https-shop.example.com"),
            "hostnames": ["shop.example.com"],
            "rules": [
                {"matches": matches[0], "backendRefs": [{"name": "web", "port": 8080}]},
                {"matches": matches[1], "backendRefs": [{"name": "cart", "port": 80}]},
            ],
        })
    );
    let filters =
        json!([{"type": "RequestRedirect", "requestRedirect": {"scheme": "https", "statusCode": 308}}]);
    assert_eq!(
        objects["HTTPRoute shop/shop-redirect"],
        json!({
            "parentRefs": parent("http"),
            "hostnames": ["shop.example.com"],
            "rules": [{"matches": matches[0], "filters": filters}, {"matches": matches[1], "filters": filters}],
        })
    );
}

#[test]
fn ingress_without_redirect_serves_http_and_https() {
    let objects = objects(&converted(&ingress("sluicegate.dev/ssl-redirect: 'false'", WITH_TLS)));
    let sections: Vec<_> = objects["HTTPRoute shop/shop"]["parentRefs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|parent| &parent["sectionName"])
        .collect();
    assert_eq!(sections, ["http", "https-shop.example.com"]);
    assert!(!objects.contains_key("HTTPRoute shop/shop-redirect"));
}

#[test]
fn default_backend_without_rules_becomes_a_route_for_all_hosts() {
    let objects =
        objects(&converted(&ingress("", "defaultBackend: {service: {name: web, port: {number: 80}}}")));
    assert_eq!(
        objects["HTTPRoute shop/shop"],
        json!({
            "parentRefs": [{"name": "edge", "namespace": "infra", "sectionName": "http"}],
            "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "backendRefs": [{"name": "web", "port": 80}]}],
        })
    );
}

#[test]
fn hosts_with_the_same_rules_share_a_route() {
    let host = |host: &str, service: &str| {
        format!(
            "- host: {host}\n  http: {{paths: [{{path: /, pathType: Prefix, backend: {{service: {{name: {service}, port: {{number: 80}}}}}}}}]}}\n"
        )
    };
    let rules = ["rules:\n".to_owned(), host("a.test", "web"), host("b.test", "web"), host("c.test", "cart")]
        .concat();
    let objects = objects(&converted(&ingress("", &rules)));
    assert_eq!(objects["HTTPRoute shop/shop"]["hostnames"], json!(["a.test", "b.test"]));
    assert_eq!(objects["HTTPRoute shop/shop-2"]["hostnames"], json!(["c.test"]));
}

#[test]
fn policies_of_an_ingress_also_target_its_routes() {
    let policy = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: keys, namespace: shop, uid: x}\n\
                  spec: {targetRefs: [{group: networking.k8s.io, kind: Ingress, name: shop}], authentication: {apiKey: {}}}\n\
                  status: {}\n";
    let converted = converted(&[ingress("", WITH_TLS), policy.to_owned()].concat());
    let route = |name: &str| json!({"group": GROUP, "kind": "HTTPRoute", "name": name});
    assert_eq!(
        objects(&converted)["SecurityPolicy shop/keys"],
        json!({
            "targetRefs": [
                {"group": "networking.k8s.io", "kind": "Ingress", "name": "shop"}, route("shop"), route("shop-redirect"),
            ],
            "authentication": {"apiKey": {}},
        })
    );
    assert!(!converted.yaml.contains("uid") && !converted.yaml.contains("status:"));
}

#[test]
fn client_certificates_need_a_gateway_of_their_own() {
    let converted = converted(&ingress("sluicegate.dev/auth-tls-secret: shop/clients", WITH_TLS));
    let objects = objects(&converted);
    assert_eq!(
        objects["Gateway infra/edge-2"]["tls"]["frontend"]["default"]["validation"],
        json!({
            "caCertificateRefs": [{"group": "", "kind": "Secret", "name": "clients", "namespace": "shop"}],
            "mode": "AllowValidOnly",
        })
    );
    let parents = &objects["HTTPRoute shop/shop"]["parentRefs"];
    assert_eq!(
        parents,
        &json!([{"name": "edge-2", "namespace": "infra", "sectionName": "https-shop.example.com"}])
    );
    let grant = &objects["ReferenceGrant shop/edge-certificates"]["to"];
    assert_eq!(grant.as_array().unwrap().len(), 2, "{grant}");
    assert!(faults(&converted)[0].contains("needs a Gateway of its own"), "{:?}", faults(&converted));
}

/// A route must never admit callers that the Ingress rejects.
#[test]
fn nothing_is_printed_for_access_restrictions_that_gateway_api_cannot_express() {
    let without_tls = "defaultBackend: {service: {name: web, port: {number: 80}}}";
    for (annotation, spec) in [
        ("nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8", WITH_TLS),
        ("sluicegate.dev/auth-tls-secret: a/b/c", WITH_TLS),
        ("sluicegate.dev/auth-tls-secret: shop/clients", without_tls),
    ] {
        let converted = converted(&ingress(annotation, spec));
        assert_eq!(converted.yaml, "", "{annotation}");
        assert!(
            faults(&converted).iter().any(|fault| fault.starts_with("error")),
            "{:?}",
            faults(&converted)
        );
    }
}

#[test]
fn tls_passthrough_becomes_a_tls_route() {
    let objects = objects(&converted(&ingress("sluicegate.dev/ssl-passthrough: 'true'", WITH_TLS)));
    assert_eq!(
        objects["TLSRoute shop/shop"],
        json!({
            "parentRefs": [{"name": "edge", "namespace": "infra", "sectionName": "tls-shop.example.com"}],
            "hostnames": ["shop.example.com"],
            "rules": [{"backendRefs": [{"name": "web", "port": 8080}]}],
        })
    );
    assert_eq!(objects["Gateway infra/edge"]["listeners"][0]["tls"], json!({"mode": "Passthrough"}));
}

#[test]
fn annotations_without_an_equivalent_are_reported() {
    let rules = "
rules:
- host: '*.example.com'
  http: {paths: [{path: /foo, pathType: ImplementationSpecific, backend: {service: {name: web, port: {name: grpc}}}}]}
";
    let annotations = "sluicegate.dev/compression: gzip, sluicegate.dev/backend-protocol: HTTPS, nginx.ingress.kubernetes.io/app-root: /a";
    let faults = faults(&converted(&ingress(annotations, rules))).join("\n");
    for expected in [
        "matches one label",
        "/foo does not match /foobar",
        "Add Service shop/web",
        "--compression",
        "to these Services: shop/web",
        "app-root",
    ] {
        assert!(faults.contains(expected), "{expected}: {faults}");
    }
}

#[test]
fn listeners_beyond_the_limit_of_a_gateway_are_in_listener_sets() {
    let hosts = (0..150).map(|n| {
        format!(
            "{}---\n",
            ingress("", &WITH_TLS.replace("shop.example.com", &format!("h{n}.example.com")))
                .replace("name: shop,", &format!("name: shop-{n},"))
        )
    });
    let converted = converted(&hosts.collect::<String>());
    let objects = objects(&converted);
    assert_eq!(objects["Gateway infra/edge"]["listeners"].as_array().unwrap().len(), 64);
    assert_eq!(
        objects["ListenerSet infra/edge-listeners-2"]["listeners"].as_array().unwrap().len(),
        151 - 128
    );
    let parent = &objects["HTTPRoute shop/shop-99"]["parentRefs"][0];
    assert_eq!((&parent["kind"], &parent["name"]), (&json!("ListenerSet"), &json!("edge-listeners-2")));
}

/// The printed objects are valid for Sluicegate itself.
#[test]
fn printed_objects_have_no_problem() {
    let converted = converted(&ingress("sluicegate.dev/auth-tls-secret: shop/clients", WITH_TLS));
    let mut store = Store::default();
    store.set_file(Path::new("printed.yaml"), &converted.yaml);
    assert_eq!(
        store.problems().map(|problem| problem.to_string()).collect::<Vec<_>>(),
        <[String; 0]>::default()
    );
}

/// An Ingress of the namespace `shop` with TLS for one host.
fn named(name: &str, annotations: &str, spec: &str) -> String {
    format!("---\n{}", ingress(annotations, spec).replace("name: shop,", &format!("name: {name},")))
}

fn rule(host: &str, path: &str) -> String {
    format!(
        "rules: [{{host: '{host}', http: {{paths: [{{path: {path}, pathType: Prefix, backend: {{service: {{name: web, \
         port: {{number: 80}}}}}}}}]}}}}]"
    )
}

fn parents<'o>(objects: &'o BTreeMap<String, Value>, route: &str) -> Vec<(&'o Value, &'o Value)> {
    let parents = objects[route]["parentRefs"].as_array().unwrap().iter();
    parents.map(|parent| (&parent["name"], &parent["sectionName"])).collect()
}

#[test]
fn ingresses_of_one_host_share_its_certificate_and_its_requirement_on_clients() {
    let with_tls = format!("tls: [{{hosts: [h.test], secretName: h}}]\n{}", rule("h.test", "/admin"));
    let text = [
        named("admin", "sluicegate.dev/auth-tls-secret: shop/clients", &with_tls),
        named("public", "sluicegate.dev/ssl-redirect: 'false'", &rule("h.test", "/")),
    ];
    let objects = objects(&converted(&text.concat()));
    for route in ["admin", "public"] {
        let of_route = parents(&objects, &format!("HTTPRoute shop/{route}"));
        assert_eq!(of_route, [(&json!("edge-2"), &json!("https-h.test"))], "{route}");
        assert!(objects.contains_key(&format!("HTTPRoute shop/{route}-redirect")), "{route}");
    }
}

#[test]
fn routes_of_different_ingresses_have_different_names() {
    let two = "
rules:
- {host: x.test, http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}}
- {host: y.test, http: {paths: [{path: /y, pathType: Exact, backend: {service: {name: web, port: {number: 80}}}}]}}
";
    let text = [named("a", "", two), named("a-2", "", &rule("z.test", "/"))];
    let objects = objects(&converted(&text.concat()));
    let hosts =
        ["a", "a-3", "a-2"].map(|name| objects[&format!("HTTPRoute shop/{name}")]["hostnames"][0].clone());
    assert_eq!(hosts, ["x.test", "y.test", "z.test"]);
}

#[test]
fn hosts_under_a_wildcard_certificate_name_its_listener_once() {
    let hosts: Vec<String> = ["a", "b"]
        .iter()
        .map(|host| rule(&format!("{host}.test"), "/").replace("rules: [", "").replace("]}}]", "]}}"))
        .collect();
    let spec = format!("tls: [{{hosts: ['*.test'], secretName: w}}]\nrules: [{}]", hosts.join(", "));
    let objects = objects(&converted(&named("shop", "", &spec)));
    assert_eq!(objects["HTTPRoute shop/shop"]["hostnames"], json!(["a.test", "b.test"]));
    assert_eq!(parents(&objects, "HTTPRoute shop/shop"), [(&json!("edge"), &json!("https--test"))]);
}

#[test]
fn reference_grants_name_at_most_16_secrets() {
    let all = (0..20).map(|n| {
        let spec =
            format!("tls: [{{hosts: [h{n}.test], secretName: s{n}}}]\n{}", rule(&format!("h{n}.test"), "/"));
        named(&format!("shop-{n}"), "", &spec)
    });
    let objects = objects(&converted(&all.collect::<String>()));
    let lengths = ["", "-2"].map(|suffix| {
        objects[&format!("ReferenceGrant shop/edge-certificates{suffix}")]["to"].as_array().unwrap().len()
    });
    assert_eq!(lengths, [16, 4]);
}

#[test]
fn only_the_oldest_ingress_of_a_host_has_a_default_for_the_host() {
    let default = "defaultBackend: {service: {name: web, port: {number: 80}}}\n";
    let text =
        [named("a", "", &rule("h.test", "/x")), named("b", "", &[default, &rule("h.test", "/y")].concat())];
    let converted = converted(&text.concat());
    let matches = objects(&converted)["HTTPRoute shop/b"]["rules"][0]["matches"].clone();
    assert_eq!(matches, json!([{"path": {"type": "PathPrefix", "value": "/y"}}]));
    assert!(
        faults(&converted).join("\n").contains("belongs to an older Ingress"),
        "{:?}",
        faults(&converted)
    );
}

#[test]
fn rule_without_a_host_is_served_at_all_listeners() {
    let any = rule("", "/").replace("host: '', ", "");
    let text = named("shop", "", &format!("tls: [{{hosts: [a.test], secretName: a}}]\n{any}"));
    let objects = objects(&converted(&text));
    let sections: Vec<_> =
        parents(&objects, "HTTPRoute shop/shop").into_iter().map(|(_, section)| section.clone()).collect();
    assert_eq!(sections, ["http", "https-a.test"]);
    assert!(!objects.contains_key("HTTPRoute shop/shop-redirect"));
}

#[test]
fn policies_come_before_the_routes() {
    let policy = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: keys, namespace: shop}\n\
                  spec: {targetRefs: [{group: networking.k8s.io, kind: Ingress, name: shop}], authentication: {apiKey: {}}}\n";
    let yaml = converted(&[ingress("", WITH_TLS), policy.to_owned()].concat()).yaml;
    assert!(yaml.find("SecurityPolicy") < yaml.find("kind: HTTPRoute"), "{yaml}");
}
