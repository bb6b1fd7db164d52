//! The status of GatewayClasses, Gateways, ListenerSets and routes, as JSON beside the entries of other controllers.

use serde_json::{Map, Value, json};

use super::conditions::{condition, list};
use crate::address::{ADDRESSES_ASSIGNED, Assigned, Routability};
use crate::object::ObjectRef;
use crate::object::gateway_api::GROUP;
use crate::status::{
    Condition, Content, Fault, GatewayStatus, ListenerSetStatus, ListenerStatus, ObjectStatus,
    PARENT_NOT_PROGRAMMED, ParentStatus,
};
use crate::translate::GATEWAY_CONTROLLER;

/// The types of conditions that the gateway writes. Conditions of other types belong to other controllers.
const OURS: [&str; 7] = [
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "Conflicted",
    "PartiallyInvalid",
    ADDRESSES_ASSIGNED,
    INSECURE_FRONTEND,
];

/// The type of the condition of a Gateway that admits clients without a valid certificate. The condition is present only
/// while it is true.
const INSECURE_FRONTEND: &str = "InsecureFrontendValidationMode";

/// The reason why a Gateway has no address.
const UNASSIGNED: &str = "the address of the gateway is not known yet (--publish-service, --publish-status-address or --publish-node-addresses)";

/// The longest list of ancestors (Gateway API, `PolicyStatus`).
const ANCESTORS_MAX: usize = 16;

/// The longest list of parents (Gateway API, `RouteStatus` and `BackendStatus`).
const PARENTS_MAX: usize = 32;

/// The features of Gateway API that the gateway supports, in order (`GatewayClassStatus.supportedFeatures`).
const FEATURES: [&str; 54] = [
    "BackendTLSPolicy",
    "BackendTLSPolicySANValidation",
    "ClusterTrustBundle",
    "GRPCRoute",
    "GRPCRouteNamedRouteRule",
    "GRPCRouteRequestHeaderModifier",
    "Gateway",
    "GatewayAddressEmpty",
    "GatewayAddressRoutability",
    "GatewayAddressRoutabilityCluster",
    "GatewayBackendClientCertificate",
    "GatewayFrontendClientCertificateValidation",
    "GatewayFrontendClientCertificateValidationInsecureFallback",
    "GatewayHTTPListenerIsolation",
    "GatewayHTTPSListenerDetectMisdirectedRequests",
    "GatewayInfrastructure",
    "GatewayListenerFilters",
    "GatewayPort8080",
    "GatewayRouteHostnameIntersectionPrecedence",
    "GatewayStaticAddresses",
    "HTTPRoute",
    "HTTPRoute303RedirectStatusCode",
    "HTTPRoute307RedirectStatusCode",
    "HTTPRoute308RedirectStatusCode",
    "HTTPRouteBackendProtocolH2C",
    "HTTPRouteBackendProtocolWebSocket",
    "HTTPRouteBackendRequestHeaderModification",
    "HTTPRouteBackendTimeout",
    "HTTPRouteBackendURLRewrite",
    "HTTPRouteCORS",
    "HTTPRouteDestinationPortMatching",
    "HTTPRouteHostRewrite",
    "HTTPRouteMethodMatching",
    "HTTPRouteNamedRouteRule",
    "HTTPRouteParentRefPort",
    "HTTPRoutePathRedirect",
    "HTTPRoutePathRewrite",
    "HTTPRoutePortRedirect",
    "HTTPRouteQueryParamMatching",
    "HTTPRouteRequestMirror",
    "HTTPRouteRequestMultipleMirrors",
    "HTTPRouteRequestPercentageMirror",
    "HTTPRouteRequestTimeout",
    "HTTPRouteResponseHeaderModification",
    "HTTPRouteRetryCodes",
    "HTTPRouteRetryConnectionError",
    "HTTPRouteSchemeRedirect",
    "ListenerSet",
    "ReferenceGrant",
    "TCPRoute",
    "TLSRoute",
    "TLSRouteModeMixed",
    "TLSRouteModeTerminate",
    "UDPRoute",
];

/// The lists of the status that the gateway writes. `before` is the current status.
pub(super) fn render(
    before: &Map<String, Value>,
    wish: &ObjectStatus,
    addresses: Option<&[Box<str>]>,
) -> Map<String, Value> {
    let generation = wish.generation;
    match &wish.content {
        Content::GatewayClass { conditions: wanted, lacking } => {
            let conditions = conditions(list(before.get("conditions")), wanted, generation);
            let features = FEATURES.iter().filter(|name| !lacking.contains(name));
            let features: Vec<Value> = features.map(|name| json!({ "name": name })).collect();
            Map::from_iter([
                ("conditions".to_owned(), conditions),
                ("supportedFeatures".to_owned(), features.into()),
            ])
        }
        Content::Gateway(wish) => of_gateway(before, wish, generation, addresses),
        Content::ListenerSet(wish) => of_set(before, wish, generation, addresses),
        Content::Route(parents) => of_route(before, parents, generation),
        Content::Policy(ancestors) => {
            of_ancestors(before, ancestors, generation, ("ancestors", "ancestorRef", ANCESTORS_MAX))
        }
        Content::BackendParents(parents) => {
            of_ancestors(before, parents, generation, ("parents", "parentRef", PARENTS_MAX))
        }
        Content::BackendAncestors(ancestors) => {
            of_ancestors(before, ancestors, generation, ("ancestors", "ancestorRef", PARENTS_MAX))
        }
    }
}

fn of_gateway(
    before: &Map<String, Value>,
    wish: &GatewayStatus,
    generation: Option<i64>,
    addresses: Option<&[Box<str>]>,
) -> Map<String, Value> {
    let Assigned { addresses, condition: assigned } = wish.addresses.assign(addresses);
    let unassigned = || match &assigned {
        Some(condition) => condition.message.clone(),
        None => UNASSIGNED.to_owned(),
    };
    let unassigned = addresses.is_empty().then(|| Fault::new("AddressNotAssigned", unassigned()));
    let unprogrammed = wish.unprogrammed.as_ref().or(unassigned.as_ref());
    let mut wanted = vec![wish.accepted.clone(), Condition::unless("Programmed", "Programmed", unprogrammed)];
    wanted.extend(wish.resolved.clone());
    wanted.extend(assigned);
    wanted.extend(wish.is_insecure.then(|| Condition {
        message:
            "spec.tls.frontend: AllowInsecureFallback admits clients without a valid certificate".to_owned(),
        ..Condition::met(INSECURE_FRONTEND, "ConfigurationChanged")
    }));
    // A Gateway that requests a routability proves that the API server knows the field.
    let requests = &wish.addresses.requests;
    let is_pruned =
        is_pruned(before) && requests.iter().all(|request| request.routability == Ok(Routability::Any));
    let addresses = addresses.iter().map(|(address, routability)| {
        let kind = if address.parse::<std::net::IpAddr>().is_ok() { "IPAddress" } else { "Hostname" };
        match is_pruned {
            true => json!({ "type": kind, "value": address }),
            false => json!({ "type": kind, "value": address, "routability": routability.as_str() }),
        }
    });
    let addresses: Vec<Value> = addresses.collect();
    Map::from_iter([
        ("addresses".to_owned(), addresses.into()),
        ("conditions".to_owned(), conditions(list(before.get("conditions")), &wanted, generation)),
        ("listeners".to_owned(), of_listeners(before, &wish.listeners, generation)),
        ("attachedListenerSets".to_owned(), wish.attached_sets.into()),
    ])
}

fn of_set(
    before: &Map<String, Value>,
    wish: &ListenerSetStatus,
    generation: Option<i64>,
    addresses: Option<&[Box<str>]>,
) -> Map<String, Value> {
    let Assigned { addresses, .. } = wish.addresses.assign(addresses);
    let unassigned = addresses.is_empty().then(|| Fault::new(PARENT_NOT_PROGRAMMED, UNASSIGNED));
    let unprogrammed = wish.unprogrammed.as_ref().or(unassigned.as_ref());
    let wanted = [wish.accepted.clone(), Condition::unless("Programmed", "Programmed", unprogrammed)];
    Map::from_iter([
        ("conditions".to_owned(), conditions(list(before.get("conditions")), &wanted, generation)),
        ("listeners".to_owned(), of_listeners(before, &wish.listeners, generation)),
    ])
}

/// Whether the API server has removed `routability` from the addresses in the status, because the CustomResourceDefinition does not
/// have the field. The gateway writes the condition together with the field.
fn is_pruned(before: &Map<String, Value>) -> bool {
    let addresses = list(before.get("addresses"));
    let mut conditions = list(before.get("conditions")).iter();
    conditions.any(|known| known["type"] == ADDRESSES_ASSIGNED)
        && !addresses.is_empty()
        && addresses.iter().all(|address| address.get("routability").is_none())
}

/// The listeners of a Gateway or a ListenerSet.
fn of_listeners(before: &Map<String, Value>, wish: &[ListenerStatus], generation: Option<i64>) -> Value {
    let listeners_before = list(before.get("listeners"));
    let listener = |listener: &ListenerStatus| {
        let known = listeners_before.iter().find(|known| known["name"] == *listener.name);
        let known = list(known.and_then(|known| known.get("conditions")));
        let kinds: Vec<Value> =
            listener.kinds.iter().map(|kind| json!({ "group": GROUP, "kind": kind.as_str() })).collect();
        json!({
            "name": &*listener.name,
            "supportedKinds": kinds,
            "attachedRoutes": listener.attached_routes,
            "conditions": conditions(known, &listener.conditions, generation),
        })
    };
    wish.iter().map(listener).collect()
}

fn of_route(
    before: &Map<String, Value>,
    wish: &[ParentStatus],
    generation: Option<i64>,
) -> Map<String, Value> {
    let before = list(before.get("parents"));
    let is_ours = |parent: &Value| parent["controllerName"] == GATEWAY_CONTROLLER;
    let mut parents: Vec<Value> = before.iter().filter(|parent| !is_ours(parent)).cloned().collect();
    for parent in wish {
        let mut reference = json!({
            "group": GROUP,
            "kind": parent.parent.kind.as_str(),
            "namespace": &*parent.parent.namespace,
            "name": &*parent.parent.name,
        });
        if let Some(section) = &parent.section {
            reference["sectionName"] = json!(&**section);
        }
        if let Some(port) = parent.port {
            reference["port"] = port.into();
        }
        let known = before.iter().find(|known| is_ours(known) && known["parentRef"] == reference);
        let known = list(known.and_then(|known| known.get("conditions")));
        parents.push(json!({
            "parentRef": reference,
            "controllerName": GATEWAY_CONTROLLER,
            "conditions": conditions(known, &parent.conditions, generation),
        }));
    }
    parents.truncate(PARENTS_MAX);
    Map::from_iter([("parents".to_owned(), parents.into())])
}

/// The Gateways of a policy or an XBackend, in a list of this name and with references of this name, and with at most so many
/// entries.
fn of_ancestors(
    before: &Map<String, Value>,
    wish: &[(ObjectRef, Vec<Condition>)],
    generation: Option<i64>,
    (name, reference_name, most): (&str, &str, usize),
) -> Map<String, Value> {
    let before = list(before.get(name));
    let is_ours = |ancestor: &Value| ancestor["controllerName"] == GATEWAY_CONTROLLER;
    let mut ancestors: Vec<Value> = before.iter().filter(|ancestor| !is_ours(ancestor)).cloned().collect();
    for (gateway, wanted) in wish {
        let reference = json!({
            "group": GROUP,
            "kind": gateway.kind.as_str(),
            "namespace": &*gateway.namespace,
            "name": &*gateway.name,
        });
        let known = before.iter().find(|known| is_ours(known) && known[reference_name] == reference);
        let known = list(known.and_then(|known| known.get("conditions")));
        ancestors.push(json!({
            reference_name: reference,
            "controllerName": GATEWAY_CONTROLLER,
            "conditions": conditions(known, wanted, generation),
        }));
    }
    ancestors.truncate(most);
    Map::from_iter([(name.to_owned(), ancestors.into())])
}

/// The conditions of other controllers, then ours.
fn conditions(before: &[Value], wanted: &[Condition], generation: Option<i64>) -> Value {
    let is_ours = |known: &&Value| OURS.iter().any(|name| known["type"] == *name);
    let others = before.iter().filter(|known| !is_ours(known)).cloned();
    let ours = wanted.iter().map(|wanted| condition(before, wanted, generation));
    others.chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::{AddressRequest, Routability, StatusAddresses};
    use crate::object::Kind;
    use crate::source::cluster::conditions::{CurrentStatus, DesiredStatus};

    fn status(content: Content) -> DesiredStatus {
        let object = ObjectRef { kind: Kind::Gateway, namespace: "default".into(), name: "a".into() };
        DesiredStatus::Object(Box::new(ObjectStatus { object, generation: Some(2), content }))
    }

    fn object() -> ObjectRef {
        ObjectRef { kind: Kind::Gateway, namespace: "default".into(), name: "a".into() }
    }

    fn current(status: Value) -> CurrentStatus {
        CurrentStatus { status: (&status).into(), ..CurrentStatus::default() }
    }

    fn gateway() -> GatewayStatus {
        let conditions = vec![Condition::met("Accepted", "Accepted")];
        let kinds = vec![Kind::HttpRoute];
        let listener = ListenerStatus { name: "http".into(), kinds, attached_routes: 3, conditions };
        GatewayStatus {
            attached_sets: 2,
            accepted: Condition::met("Accepted", "Accepted"),
            resolved: None,
            is_insecure: false,
            unprogrammed: None,
            addresses: StatusAddresses::default(),
            listeners: vec![listener],
        }
    }

    #[test]
    fn gateway_is_programmed_once_its_addresses_are_known() {
        let wish = status(Content::Gateway(gateway()));
        let condition = |addresses: Option<&[Box<str>]>| {
            let written = current(json!({})).task(&object(), &wish, addresses).expect("nothing stands there");
            (written["conditions"][1]["status"].clone(), written["conditions"][1]["reason"].clone())
        };
        assert_eq!(condition(None), (json!("False"), json!("AddressNotAssigned")));
        assert_eq!(condition(Some(&["192.0.2.1".into()])), (json!("True"), json!("Programmed")));
    }

    #[test]
    fn gateway_reports_its_client_certificate_as_long_as_it_names_one() {
        let fault = Fault::new("InvalidClientCertificateRef", "Secret default/a does not exist");
        let resolved = Some(Condition::unless("ResolvedRefs", "ResolvedRefs", Some(&fault)));
        let wish = status(Content::Gateway(GatewayStatus { resolved, ..gateway() }));
        let written = current(json!({})).task(&object(), &wish, None).expect("nothing stands there");
        assert_eq!(written["conditions"][2]["reason"], "InvalidClientCertificateRef");
        let solved = current(written).task(&object(), &status(Content::Gateway(gateway())), None);
        assert_eq!(solved.expect("it differs")["conditions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn gateway_reports_an_insecure_validation_of_clients_as_long_as_it_has_one() {
        let wish = status(Content::Gateway(GatewayStatus { is_insecure: true, ..gateway() }));
        let written = current(json!({})).task(&object(), &wish, None).expect("nothing stands there");
        assert_eq!(written["conditions"][2]["type"], "InsecureFrontendValidationMode");
        assert_eq!(written["conditions"][2]["reason"], "ConfigurationChanged");
        let solved = current(written).task(&object(), &status(Content::Gateway(gateway())), None);
        assert_eq!(solved.expect("it differs")["conditions"].as_array().map(Vec::len), Some(2));
    }

    #[test]
    fn gateway_status_keeps_foreign_conditions_and_is_written_once() {
        let theirs = json!({"type": "example.com/Ours", "status": "True"});
        let before = current(json!({
            "conditions": [theirs, {"type": "Accepted", "status": "Unknown"}],
            "listeners": [{"name": "http", "conditions": [theirs]}, {"name": "gone"}],
        }));
        let (wish, addresses) = (status(Content::Gateway(gateway())), ["gateway.example.net".into()]);
        let written = before.task(&object(), &wish, Some(&addresses)).expect("it differs");
        assert_eq!(written["conditions"][0], theirs);
        assert_eq!(written["conditions"].as_array().map(Vec::len), Some(4));
        assert_eq!(written["conditions"][1]["observedGeneration"], 2);
        let address = json!({"type": "Hostname", "value": "gateway.example.net", "routability": ""});
        assert_eq!(written["addresses"], json!([address]));
        assert_eq!(written["listeners"].as_array().map(Vec::len), Some(1));
        assert_eq!(written["listeners"][0]["conditions"][0], theirs);
        assert_eq!(written["listeners"][0]["attachedRoutes"], 3);
        assert_eq!(written["attachedListenerSets"], 2);
        assert_eq!(current(written).task(&object(), &wish, Some(&addresses)), None);
    }

    /// A Gateway that requests an address of each routability. Its Service has this cluster IP, and these other addresses.
    fn requesting(own: &[&str], cluster_ip: &str, requested: &[Routability]) -> DesiredStatus {
        let request = |(index, routability): (usize, &Routability)| AddressRequest {
            index,
            value: None,
            routability: Ok(*routability),
        };
        let addresses = StatusAddresses {
            own: Some(own.iter().map(|address| Box::from(*address)).collect()),
            cluster_ip: Some(cluster_ip.into()),
            requests: requested.iter().enumerate().map(request).collect(),
        };
        status(Content::Gateway(GatewayStatus { addresses, ..gateway() }))
    }

    /// The status and the reason of a condition; nothing without the condition.
    fn reason(written: &Value, name: &str) -> String {
        let found = list(written.get("conditions")).iter().find(|condition| condition["type"] == name);
        found.map_or_else(String::new, |found| {
            format!("{} {}", found["status"], found["reason"]).replace('"', "")
        })
    }

    #[test]
    fn gateway_reports_the_routability_of_its_addresses_and_whether_its_requests_are_satisfied() {
        let (any, cluster) = (Routability::Any, Routability::Cluster);
        let balancer = json!({"type": "IPAddress", "value": "203.0.113.1", "routability": ""});
        let cluster_ip = json!({"type": "IPAddress", "value": "10.96.0.42", "routability": "Cluster"});
        for (own, requested, addresses, assigned, programmed) in [
            (&["203.0.113.1"][..], &[][..], vec![&balancer], "True AddressesAssigned", "True Programmed"),
            (&["10.96.0.42"], &[], vec![&cluster_ip], "True AddressesAssigned", "True Programmed"),
            (&[], &[], vec![], "", "False AddressNotAssigned"),
            (
                &["203.0.113.1"],
                &[cluster, any],
                vec![&cluster_ip, &balancer],
                "True AddressesAssigned",
                "True Programmed",
            ),
            (&[], &[cluster, any], vec![&cluster_ip], "False PartiallyAssigned", "True Programmed"),
            (&[], &[any], vec![], "False NotAssigned", "False AddressNotAssigned"),
        ] {
            let wish = requesting(own, "10.96.0.42", requested);
            let written = current(json!({})).task(&object(), &wish, None).expect("nothing stands there");
            assert_eq!(written["addresses"], json!(addresses), "{requested:?}");
            assert_eq!(reason(&written, "AddressesAssigned"), assigned, "{requested:?}");
            assert_eq!(reason(&written, "Programmed"), programmed, "{requested:?}");
            assert_eq!(current(written).task(&object(), &wish, None), None, "{requested:?}");
        }
    }

    #[test]
    fn gateway_status_is_written_once_although_the_crd_lacks_routability() {
        let wish = requesting(&["203.0.113.1"], "10.96.0.42", &[]);
        let mut written = current(json!({})).task(&object(), &wish, None).expect("nothing stands there");
        let address = written["addresses"][0].as_object_mut().expect("an address");
        assert_eq!(address.remove("routability"), Some(json!("")));
        assert_eq!(current(written.clone()).task(&object(), &wish, None), None);
        // An earlier version of the gateway writes no condition.
        written["conditions"]
            .as_array_mut()
            .expect("conditions")
            .retain(|known| known["type"] != ADDRESSES_ASSIGNED);
        let again = current(written).task(&object(), &wish, None).expect("it differs");
        assert_eq!(again["addresses"][0]["routability"], "");
    }

    #[test]
    fn gateway_status_is_written_if_only_the_number_of_its_listener_sets_changes() {
        let wish = |attached_sets| status(Content::Gateway(GatewayStatus { attached_sets, ..gateway() }));
        let mut written = current(json!({})).task(&object(), &wish(1), None).expect("nothing stands there");
        let again = current(written.clone()).task(&object(), &wish(0), None).expect("it differs");
        assert_eq!(again["attachedListenerSets"], 0);
        // An older CustomResourceDefinition lacks the field.
        written.as_object_mut().expect("a status").remove("attachedListenerSets");
        assert_eq!(current(written).task(&object(), &wish(0), None), None);
    }

    #[test]
    fn listener_set_is_programmed_once_the_addresses_of_its_gateway_are_known() {
        let GatewayStatus { accepted, listeners, .. } = gateway();
        let set = ListenerSetStatus {
            gateway: object(),
            accepted,
            unprogrammed: None,
            addresses: StatusAddresses::default(),
            listeners,
        };
        let (wish, theirs) = (status(Content::ListenerSet(set)), json!({"type": "example.com/Ours"}));
        let before = current(json!({ "conditions": [theirs] }));
        let written = before.task(&object(), &wish, None).expect("it differs");
        assert_eq!(written["conditions"][0], theirs);
        assert_eq!(written["conditions"][1]["observedGeneration"], 2);
        assert_eq!(written["conditions"][2]["reason"], "ParentNotProgrammed");
        assert_eq!(written["listeners"][0]["attachedRoutes"], 3);
        assert_eq!(written.get("addresses"), None);
        let addresses = ["192.0.2.1".into()];
        let written = current(written).task(&object(), &wish, Some(&addresses)).expect("it differs");
        assert_eq!(written["conditions"][2]["reason"], "Programmed");
        assert_eq!(current(written).task(&object(), &wish, Some(&addresses)), None);
    }

    #[test]
    fn route_status_keeps_the_parents_of_other_controllers_and_drops_former_parents() {
        let theirs = json!({"controllerName": "example.com/other", "parentRef": {"name": "x"}});
        let former = json!({"controllerName": GATEWAY_CONTROLLER, "parentRef": {"name": "y"}});
        let before = current(json!({"parents": [theirs, former]}));
        let parent = ParentStatus {
            parent: object(),
            section: Some("http".into()),
            port: Some(80),
            conditions: vec![Condition::met("Accepted", "Accepted")],
        };
        let wish = status(Content::Route(vec![parent]));
        let written = before.task(&object(), &wish, None).expect("it differs");
        assert_eq!(written["parents"].as_array().map(Vec::len), Some(2));
        assert_eq!(written["parents"][0], theirs);
        assert_eq!(written["parents"][1]["parentRef"]["sectionName"], "http");
        assert_eq!(current(written).task(&object(), &wish, None), None);
        let nothing = status(Content::Route(Vec::new()));
        assert_eq!(current(json!({})).task(&object(), &nothing, None), None, "of nothing, nothing is said");
    }

    #[test]
    fn status_of_an_x_backend_has_the_fields_of_the_release_of_the_object() {
        let gateways = || vec![(object(), vec![Condition::met("Accepted", "Accepted")])];
        for (content, list, reference) in [
            (Content::BackendParents(gateways()), "parents", "parentRef"),
            (Content::BackendAncestors(gateways()), "ancestors", "ancestorRef"),
        ] {
            let theirs = json!({"controllerName": "example.com/other", reference: {"name": "x"}});
            let former = json!({"controllerName": GATEWAY_CONTROLLER, reference: {"name": "y"}});
            let before = current(json!({ list: [theirs, former] }));
            let wish = status(content);
            let written = before.task(&object(), &wish, None).expect("it differs");
            assert_eq!(written[list].as_array().map(Vec::len), Some(2), "{written}");
            assert_eq!((written.as_object().map(|all| all.len()), &written[list][0]), (Some(1), &theirs));
            assert_eq!(written[list][1][reference]["kind"], "Gateway");
            assert_eq!(written[list][1]["conditions"][0]["observedGeneration"], 2);
            assert_eq!(current(written).task(&object(), &wish, None), None);
        }
    }

    #[test]
    fn policy_status_keeps_the_ancestors_of_other_controllers_and_drops_former_ancestors() {
        let theirs = json!({"controllerName": "example.com/other", "ancestorRef": {"name": "x"}});
        let former = json!({"controllerName": GATEWAY_CONTROLLER, "ancestorRef": {"name": "y"}});
        let before = current(json!({"ancestors": [theirs, former]}));
        let ancestor = (object(), vec![Condition::met("Accepted", "Accepted")]);
        let wish = status(Content::Policy(vec![ancestor]));
        let written = before.task(&object(), &wish, None).expect("it differs");
        assert_eq!(written["ancestors"].as_array().map(Vec::len), Some(2));
        assert_eq!(written["ancestors"][0], theirs);
        assert_eq!(written["ancestors"][1]["ancestorRef"]["kind"], "Gateway");
        assert_eq!(written["ancestors"][1]["conditions"][0]["observedGeneration"], 2);
        assert_eq!(current(written).task(&object(), &wish, None), None);
    }

    #[test]
    fn features_of_a_gateway_class_are_in_order() {
        assert!(FEATURES.is_sorted());
    }
}
