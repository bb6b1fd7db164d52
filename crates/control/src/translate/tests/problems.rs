//! Tests of the place that a problem names: file, line, object and field.

use std::path::Path;

use super::{assert_problems, serve};
use crate::store::Store;

#[test]
fn problem_names_file_line_object_and_field() {
    let yaml = "\
# comment
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata:
  name: hello
  annotations:
    sluicegate.dev/load-balance: ResponseTime
    nginx.ingress.kubernetes.io/rewrite-target: /
spec:
  rules:
    - http:
        paths:
          - path: /
            pathtype: Prefix
            backend:
              service:
                name: echo
                port:
                  number: 80
          - path: /x
            pathType: Prefix
            backend:
              service:
                name: echo
                port:
                  number: 81
---
apiVersion: v1
kind: Service
metadata:
  name: echo
spec:
  ports:
    - port: 80
";
    assert_problems(
        &serve(yaml).problems,
        &[
            "m.yaml:14: Ingress default/hello: spec.rules[0].http.paths[0].pathtype: is unknown and ignored: did you mean pathType?",
            "m.yaml:7: Ingress default/hello: metadata.annotations[sluicegate.dev/load-balance]: has no effect on an object of kind Ingress: write it on the Service",
            "m.yaml:13: Ingress default/hello: spec.rules[0].http.paths[0].pathType: is missing",
            "m.yaml:8: Ingress default/hello: metadata.annotations[nginx.ingress.kubernetes.io/rewrite-target]: is ignored",
            "m.yaml:25: Ingress default/hello: spec.rules[0].http.paths[1].backend.service.port: Service default/echo has no port \"81\", it has 80",
        ],
    );
}

#[test]
fn value_of_the_wrong_type_rejects_only_its_object() {
    let yaml = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: bad}
spec:
  defaultBackend:
    service:
      name: echo
      port:
        number: eighty
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: good}
spec: {defaultBackend: {service: {name: echo, port: {number: 80}}}}
";
    let served = serve(yaml);
    assert_eq!(served.routes, ["default -> default/echo:80 []"]);
    assert_problems(
        &served.problems,
        &[
            "m.yaml:10: Ingress default/bad: spec.defaultBackend.service.port.number: must be a number, but is \"eighty\"",
            "does not exist; requests receive 503",
        ],
    );
}

#[test]
fn problem_for_a_value_of_the_wrong_type_has_a_plain_message() {
    let service =
        |spec: &str| format!("{{apiVersion: v1, kind: Service, metadata: {{name: a}}, spec: {spec}}}");
    for (spec, problem) in [
        ("{ports: [{port: \"80\"}]}", "spec.ports[0].port: must be a number: write 80"),
        ("{ports: [{port: 8.5}]}", "port: must be a whole number of at most 32 bits, but is a number"),
        (
            "{ports: [{port: 99999999999}]}",
            "port: must be a whole number of at most 32 bits, but is a number",
        ),
        ("{ports: [{port: [80]}]}", "spec.ports[0].port: must be a number, but is a list"),
        ("{ports: [{port: null}]}", "port: 0 is not between 1 and 65535"),
        ("{ports: 80}", "spec.ports: must be a list, but is a number"),
        ("{ports: [80]}", "spec.ports[0]: must be a mapping, but is a number"),
        (
            "{ports: [{port: 80, targetPort: true}]}",
            "targetPort: must be a number or text, but is true or false",
        ),
        ("{ports: [{port: 80, name: 8}]}", "spec.ports[0].name: must be text: write it in quotes"),
        ("{ports: [{port: 80, name: []}]}", "spec.ports[0].name: must be text, but is a list"),
        ("{publishNotReadyAddresses: \"true\"}", "must be true or false: write it without quotes"),
        ("{publishNotReadyAddresses: 1}", "must be true or false, but is a number"),
        ("[]", "spec: must be a mapping, but is a list"),
    ] {
        assert_problems(&serve(&service(spec)).problems, &[problem]);
    }
    let created = "{apiVersion: v1, kind: Service, metadata: {name: a, creationTimestamp: today}}";
    assert_problems(&serve(created).problems, &["metadata.creationTimestamp: has an invalid value"]);
    assert_problems(
        &serve(&created.replace("today", "7")).problems,
        &["metadata.creationTimestamp: must be a time such as \"2024-01-31T12:00:00Z\", but is a number"],
    );
    let secret = "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {tls.crt: \"a!\", n: 5}}";
    assert_problems(
        &serve(&secret.replace(", n: 5", "")).problems,
        &["m.yaml:1: Secret default/a: data[tls.crt]: is not valid base64"],
    );
    assert_problems(&serve(&secret.replace("tls.crt: \"a!\", ", "")).problems, &["data.n: must be text"]);
}

#[test]
fn syntax_error_rejects_only_its_document() {
    let yaml = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: good}
spec: {defaultBackend: {service: {name: echo, port: {number: 80}}}}
---
kind: Ingress
metadata:
  name: [
---
apiVersion: v1
kind: Service
metadata: {name: echo}
";
    let served = serve(yaml);
    assert_eq!(served.routes, ["default -> default/echo:80 []"]);
    assert!(served.problems[0].starts_with("m.yaml:"), "{:?}", served.problems);
    assert!(served.problems[0].contains("cannot be read"), "{:?}", served.problems);
}

#[test]
fn invalid_objects_are_reported_and_unsupported_kinds_are_ignored() {
    for (yaml, problems) in [
        ("replicas: 3\n", vec!["m.yaml:1: is not a Kubernetes object: it has no kind"]),
        ("kind: Ingress\nmetadata: {}\n", vec!["it has no apiVersion"]),
        ("- a\n", vec!["is not a Kubernetes object"]),
        ("{apiVersion: apps/v1, kind: Deployment, metadata: {name: a}}", vec![]),
        ("{apiVersion: serving.knative.dev/v1, kind: Service, metadata: {name: a}}", vec![]),
        (
            "apiVersion: extensions/v1beta1\nkind: Ingress\n",
            vec![
                "m.yaml:1: apiVersion: \"extensions/v1beta1\" is not a supported version of Ingress: write networking.k8s.io/v1",
            ],
        ),
        (
            "apiVersion: networking.k8s.io/v1beta1\nkind: Ingress\nmetadata: {name: a, namespace: b}\n",
            vec![
                "m.yaml:1: Ingress b/a: apiVersion: \"networking.k8s.io/v1beta1\" is not a supported version of Ingress",
            ],
        ),
        ("{apiVersion: discovery.k8s.io/v1beta1, kind: EndpointSlice}", vec!["write discovery.k8s.io/v1"]),
        ("\n\napiVersion: v1\nkind: Service\nmetadata: {}\n", vec!["m.yaml:5: metadata.name: is missing"]),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: \"a\\nb\"}}",
            vec!["m.yaml:1: Service default/a\\nb: metadata.name: \"a\\nb\" is not a DNS name"],
        ),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: a, namespace: A}}",
            vec!["m.yaml:1: Service A/a: metadata.namespace: \"A\""],
        ),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: no}}",
            vec!["metadata.name: is not a string: write it in quotes"],
        ),
        (
            "{apiVersion: v1, kind: Service, metadata: {name: a, labels: {v: 1.1}}}",
            vec!["Service default/a: metadata.labels.v: must be text: write it in quotes"],
        ),
        ("", vec![]),
    ] {
        assert_problems(&serve(yaml).problems, &problems);
    }
}

#[test]
fn items_of_a_kubernetes_list_are_read_as_objects() {
    let yaml = "
apiVersion: v1
kind: List
items:
  - {apiVersion: v1, kind: Service, metadata: {name: a}, spec: {ports: [{port: 80}]}}
  - apiVersion: v1
    kind: Service
    metadata: {name: b}
    spec: {ports: [{port: 0}]}
  - {apiVersion: apps/v1, kind: Deployment, metadata: {name: c}}
  - {apiVersion: v1, kind: Service, metadata: {name: Bad_Name}}
  - {apiVersion: v1, kind: Service}
---
apiVersion: v1
kind: ServiceList
items:
  - metadata: {name: c}
    spec: {ports: [{port: 99999}]}
";
    assert_problems(
        &serve(yaml).problems,
        &[
            "m.yaml:11: Service default/Bad_Name: metadata.name: \"Bad_Name\" has upper-case letters",
            "m.yaml:12: items[4].metadata.name: is missing in an object of kind Service",
            "m.yaml:9: Service default/b: spec.ports[0].port: 0 is not",
            "m.yaml:18: Service default/c: spec.ports[0].port: 99999 is not",
        ],
    );
}

#[test]
fn secret_values_appear_in_no_message_or_debug_output() {
    let broken = [
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, data: {k: hunter2!}}",
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {k: [hunter2]}}",
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: hunter2}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData: {k: \"hunter2\\q\"}\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: \"hunter2\n",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\nstringData:\n  k: *hunter2\n",
        "{apiVersion: v1, kind: Secret, metadata: {name: a}, stringData: {k: hunter2}}",
    ];
    for (nth, yaml) in broken.iter().enumerate() {
        let mut store = Store::default();
        store.set_file(Path::new("m.yaml"), yaml);
        let shown = format!(
            "{store:?} {:?}",
            store.problems().map(|problem| problem.to_string()).collect::<Vec<_>>()
        );
        assert_eq!(store.problems().count(), usize::from(nth < 6), "{yaml}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}

#[test]
fn consecutive_json_documents_are_read() {
    let mut store = Store::default();
    let service = |name: &str| {
        format!(
            "{{\"apiVersion\": \"v1\", \"kind\": \"Service\", \"metadata\": {{\"name\": \"{name}\"}},\n \
             \"spec\": {{\"ports\": [{{\"port\": 0}}]}}}}\n"
        )
    };
    store.set_file(
        Path::new("a.json"),
        &format!("{}{}\n{}{{\n\"a\" 1", service("a"), service("b"), service("c")),
    );
    let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    assert_problems(
        &problems,
        &[
            "a.json:9: cannot be read: expected ':'",
            "a.json:2: Service default/a: spec.ports[0].port",
            "a.json:4: Service default/b: spec.ports[0].port",
            "a.json:7: Service default/c: spec.ports[0].port",
        ],
    );
}

#[test]
fn problem_in_json_names_its_line() {
    let mut store = Store::default();
    let json = "{\"apiVersion\": \"v1\",\n \"kind\": \"Service\",\n \"metadata\": {\"name\": \"a\"},\n\t\"spec\": {\"ports\": [{\"port\": 0}]}}\n";
    store.set_file(Path::new("a.json"), json);
    store.set_file(Path::new("b.JSON"), "{\n\"kind\": \n}");
    let problems: Vec<String> = store.problems().map(|problem| problem.to_string()).collect();
    assert_problems(
        &problems,
        &["b.JSON:3: cannot be read: a value is missing", "a.json:4: Service default/a: spec.ports[0].port"],
    );
}
