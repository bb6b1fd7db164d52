//! Tests of SecurityPolicies: their translation, and the errors that close their routes.

use sluicegate_model::feature::authentication::ext_auth::KeyPart;
use sluicegate_model::feature::authentication::jwt::ProviderKeys;
use sluicegate_model::feature::{Action, Authentication, Authorization, Cors, Credential, ExtAuth, Require};
use sluicegate_model::policy::Security;

use sluicegate_model::value::{CookieName, HeaderName, Network, ParameterName};
use sluicegate_model::{PathPattern, UpstreamKey};

use super::{A, assert_problems, policy, security_of, shop, translated};
use crate::translate::tests::policies::object;

/// The public key of RFC 8037, appendix A.2.
const KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

/// The translation of a policy with this spec, which must have no problem.
#[track_caller]
fn good(spec: &str) -> Security {
    let (translation, problems) = translated(&[&[shop(), policy(spec)].concat()]);
    assert_problems(&problems, &[]);
    let security = security_of(&translation.config);
    assert_eq!(security.refuses, None);
    Security::clone(&security)
}

/// Checks that a policy with this spec closes its route, and the reported problem.
#[track_caller]
fn closed(spec: &str, problem: &str) {
    let (translation, problems) = translated(&[&[shop(), policy(spec)].concat()]);
    let refuses = security_of(&translation.config).refuses.clone();
    let refuses = refuses.unwrap_or_else(|| panic!("it is open: {spec}"));
    assert!(problems.iter().any(|told| told.contains(problem)), "{problems:#?}\nexpected {problem}");
    assert!(problems.iter().any(|told| told.contains("respond with 503")), "{problems:#?}");
    assert!(problem.ends_with('*') || refuses.contains(problem), "{refuses}\nexpected {problem}");
}

fn cors(spec: &str) -> Cors {
    good(&format!("cors: {{{spec}}}")).cors.expect("there is one")
}

fn authentication(spec: &str) -> Authentication {
    good(&format!("authentication: {{{spec}}}")).authentication.expect("there is one")
}

fn authorization(spec: &str) -> Authorization {
    good(&format!("authorization: {{{spec}}}")).authorization.expect("there is one")
}

#[test]
fn empty_security_policy_allows_all_requests() {
    let security = good("");
    assert!(security.ip_access.is_open() && security.cors.is_none());
    assert!(security.authentication.is_none() && security.authorization.is_none());
}

/// Checks that a policy with this spec is in force, and the reported warning.
#[track_caller]
fn warned(spec: &str, warning: &str) {
    let (translation, problems) = translated(&[&[shop(), policy(spec)].concat()]);
    assert_eq!(security_of(&translation.config).refuses, None, "{spec}");
    assert_problems(&problems, &[warning]);
}

#[test]
fn suspicious_but_valid_policy_fields_cause_warnings() {
    let keys = "authentication: {apiKey: {}}";
    for (spec, warning) in [
        (
            "authorization: {rules: [{action: Deny, methods: [DELTE]}]}".to_owned(),
            "rules[0].methods[0]: \"DELTE\" is not a known method: did you mean DELETE?",
        ),
        (
            "authorization: {rules: [{action: Allow}, {action: Deny, methods: [PUT]}]}".to_owned(),
            "rules[1]: is never reached: rules[0] has no conditions",
        ),
        (
            format!("{keys}, authorization: {{rules: [{{action: Deny, groups: [gold]}}]}}"),
            "rules[0].groups[0]: no Consumer that is known here has the group \"gold\"",
        ),
        (
            "cors: {allowOrigins: [\"*\"], allowMethods: [put]}".to_owned(),
            "spec.cors.allowMethods[0]: \"put\" is not a method that browsers use: write PUT",
        ),
    ] {
        warned(&spec, warning);
    }
    for spec in ["rules: [{action: Deny, methods: [PROPFIND, X-OWN, GET]}]", "rules: [{action: Allow}]"] {
        authorization(spec);
    }
    let gold = object("Consumer", "alice", "groups: [gold], apiKeys: [{secretRef: {name: alice}}]");
    let secret = super::secret("alice", "key: 0123456789abcdef");
    let rules = format!("{keys}, authorization: {{rules: [{{action: Deny, groups: [gold]}}]}}");
    let (_, problems) = translated(&[&[shop(), policy(&rules), gold, secret].concat()]);
    assert_problems(&problems, &[]);
}

#[test]
fn access_addresses_are_parsed_as_networks() {
    let access = good("ipAccess: {allow: [10.0.0.0/8, \"::1\"], deny: [10.1.2.3]}").ip_access;
    let shown = |networks: &[Network]| networks.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&access.allow), ["10.0.0.0/8", "::1/128"]);
    assert_eq!(shown(&access.deny), ["10.1.2.3/32"]);
    assert!(good("ipAccess: {deny: []}").ip_access.is_open());
}

#[test]
fn absent_cors_fields_have_the_defaults_of_the_fetch_standard() {
    let plain = cors("allowOrigins: [\"https://App.example.com\"]");
    let methods: Vec<&str> = plain.allow_methods.iter().map(|method| &**method).collect();
    assert_eq!(methods, ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]);
    assert_eq!((plain.max_age.get().as_secs(), plain.allow_credentials), (5, false));
    assert!(plain.allow_headers.is_empty() && plain.expose_headers.is_empty());
    let full = cors(
        "allowOrigins: [\"*\"], allowMethods: [GET], allowHeaders: [Content-Type, \"*\"], exposeHeaders: [X-Total], \
         maxAge: 2h",
    );
    assert_eq!(
        (&*full.allow_headers[0], &*full.allow_headers[1], &*full.expose_headers[0]),
        ("content-type", "*", "x-total")
    );
    assert_eq!(full.max_age.get().as_secs(), 7200);
}

#[test]
fn authentication_methods_have_default_fields_and_a_fixed_order() {
    let inline = format!("keys: {{inline: '{KEY}'}}");
    let all = authentication(&format!(
        "apiKey: {{}}, jwt: {{providers: [{{name: acme, {inline}, algorithms: [EdDSA], requiredClaims: [{{name: scope}}], \
         claimToHeaders: [{{claim: sub, header: X-User}}]}}], from: [{{query: token}}, {{cookie: token}}]}}"
    ));
    let (jwt, api_key) = (all.jwt.as_ref().unwrap(), all.api_key.as_ref().unwrap());
    let places: Vec<_> = api_key.places().collect();
    assert_eq!(format!("{places:?}"), r#"[Header { name: "x-api-key", prefix: "" }]"#);
    assert!(!api_key.forward);
    let places: Vec<_> = jwt.places().collect();
    assert_eq!(format!("{places:?}"), r#"[Query("token"), Cookie("token")]"#);
    assert!(jwt.forward);
    let provider = &jwt.providers[0];
    assert_eq!((provider.clock_skew.get().as_secs(), provider.allow_missing_expiry), (60, false));
    let to = &provider.claim_to_headers[0];
    assert_eq!((&*to.claim, &*to.header), ("sub", "x-user"));
    assert!(provider.required_claims[0].values.is_empty());
    assert!(matches!(&provider.keys, ProviderKeys::Inline(text) if **text == *KEY));

    let bearer = authentication(&format!("jwt: {{providers: [{{name: acme, {inline}}}]}}"));
    let places: Vec<_> = bearer.jwt.unwrap().places().collect();
    assert_eq!(format!("{places:?}"), r#"[Header { name: "authorization", prefix: "Bearer " }]"#);

    let scope =
        |spec: &str| good(&format!("authentication: {{apiKey: {{}}, {spec}}}")).authentication.unwrap();
    let namespaces = |spec: &str| scope(spec).namespaces(&"default".into());
    assert_eq!(namespaces(""), Some(vec!["default".into()]));
    assert_eq!(namespaces("consumers: {namespaces: [b, a]}"), Some(vec!["a".into(), "b".into()]));
    assert_eq!(namespaces("consumers: {namespaces: [a, \"*\"]}"), None);
    assert_eq!((scope("").require, scope("require: All").require), (Require::Any, Require::All));
}

fn external(spec: &str) -> ExtAuth {
    let spec = format!("extAuth: {{url: \"http://authz.default.svc:8080/check?a=b\"{spec}}}");
    ExtAuth::clone(&authentication(&spec).ext_auth.unwrap())
}

#[test]
fn absent_fields_of_external_authorization_have_their_defaults() {
    let plain = external("");
    assert_eq!((&*plain.url, plain.method.as_str()), ("http://authz.default.svc:8080/check?a=b", "GET"));
    assert_eq!((plain.timeout.get().as_secs(), plain.request_headers.len()), (5, 0));
    assert!(plain.response_headers.is_empty() && plain.sign_in.is_none() && plain.cache.is_none());
    let full = external(
        ", method: POST, timeout: 200ms, requestHeaders: [Authorization, X-A], responseHeaders: [X-User, Authorization], \
         signIn: {url: /oauth2/start}",
    );
    assert_eq!((full.method.as_str(), full.timeout.get().as_millis()), ("POST", 200));
    assert_eq!(format!("{:?}", &*full.request_headers), r#"["authorization", "x-a"]"#);
    assert_eq!(format!("{:?}", &*full.response_headers), r#"["x-user", "authorization"]"#);
    let sign_in = full.sign_in.unwrap();
    assert_eq!((&*sign_in.url, &*sign_in.redirect_parameter), ("/oauth2/start", "rd"));
    let cache = |spec: &str| external(&format!(", cache: {{{spec}}}")).cache.unwrap();
    let short = cache("key: [{type: Header, name: Authorization}]");
    let authorization = Credential::header(HeaderName::of("authorization"));
    assert_eq!(*short.key, [KeyPart::Value(authorization)]);
    assert_eq!((short.admitted.get().as_secs(), short.refused.get().as_secs()), (60, 10));
    let long = cache(
        "admitted: 1h, refused: 0s, key: [{type: Cookie, name: Session}, {type: Query, name: T}, {type: Method}, \
         {type: Host}, {type: Path}, {type: Address}]",
    );
    let values = [Credential::Cookie(CookieName::of("Session")), Credential::Query(ParameterName::of("T"))];
    let values = values.map(KeyPart::Value);
    let rest = [KeyPart::Method, KeyPart::Host, KeyPart::Path, KeyPart::Address];
    assert_eq!(*long.key, values.into_iter().chain(rest).collect::<Vec<_>>());
    assert_eq!((long.admitted.get().as_secs(), long.refused.get().as_secs()), (3600, 0));
}

#[test]
fn authorization_url_that_names_a_service_uses_the_endpoints_of_the_service() {
    let services = "---\n{kind: Service, apiVersion: v1, metadata: {name: authz, namespace: auth}, spec: {ports: \
        [{name: http, port: 8080, targetPort: 9000}, {name: dns, port: 53, protocol: UDP}]}}\n\
        ---\n{kind: Service, apiVersion: v1, metadata: {name: elsewhere, namespace: auth}, spec: {type: ExternalName, \
        externalName: authz.example}}\n\
        ---\n{kind: EndpointSlice, apiVersion: discovery.k8s.io/v1, metadata: {name: authz-1, namespace: auth, labels: \
        {kubernetes.io/service-name: authz}}, addressType: IPv4, ports: [{name: http, port: 9000}], \
        endpoints: [{addresses: [10.1.2.3]}]}\n";
    let key = UpstreamKey::new("auth", "authz", "http");
    for (url, leads_there) in [
        ("http://authz.auth.svc:8080/check", true),
        ("http://authz.auth.svc.cluster.local:8080", true),
        ("http://authz.auth.svc.cluster.local.:8080?a=b", true),
        // Another port, another protocol, another Service, another host.
        ("http://authz.auth.svc/check", false),
        ("http://authz.auth.svc:53/", false),
        ("https://authz.auth.svc:8080/", false),
        ("http://missing.auth.svc:8080/", false),
        ("http://elsewhere.auth.svc:8080/", false),
        ("http://authz.auth.svc.example:8080/", false),
        ("http://authz.auth:8080/", false),
        ("http://10.1.2.3:8080/", false),
    ] {
        let policy = policy(&format!("authentication: {{extAuth: {{url: \"{url}\"}}}}"));
        let (translation, problems) = translated(&[&[shop(), policy, services.to_owned()].concat()]);
        assert_problems(&problems, &[]);
        let config = &translation.config;
        let expected = leads_there.then_some(&key);
        assert_eq!(security_of(config).ext_auth_upstream(), expected, "{url}");
        let endpoints = config.upstreams.get(&key).map(|upstream| upstream.endpoints.len());
        assert_eq!(endpoints, leads_there.then_some(1), "{url}");
    }
}

#[test]
fn invalid_external_authorization_closes_the_routes_of_the_policy() {
    for (spec, problem) in [
        ("url: \"authz:8080\"", "extAuth.url: \"authz:8080\" is not a URL: write it as https://"),
        ("url: \"ftp://authz\"", "extAuth.url: \"ftp://authz\" is not a URL"),
        ("url: \"http://authz:99999\"", "extAuth.url: \"http://authz:99999\" has no port from 1 to 65535"),
        ("url: \"http://authz:0/\"", "extAuth.url: \"http://authz:0/\" has no port"),
        ("url: \"http://authz/#a\"", "extAuth.url: \"http://authz/#a\" has a fragment"),
        (
            "url: \"http://authz/\u{fc}\"",
            "extAuth.url: \"http://authz/\u{fc}\" has characters that a URL cannot have",
        ),
        ("url: \"http://a:b@authz/\"", "extAuth.url: has a user name or a password"),
        ("url: \"http://a\", timeout: 2m", "extAuth.timeout: \"2m\" is not between 100ms and 1m"),
        ("url: \"http://a\", requestHeaders: []", "extAuth.requestHeaders: is empty"),
        ("url: \"http://a\", requestHeaders: [Host]", "extAuth.requestHeaders[0]: \"Host\" is needed"),
        (
            "url: \"http://a\", requestHeaders: [Content-Type]",
            "requestHeaders[0]: \"Content-Type\" is about the body",
        ),
        (
            "url: \"http://a\", requestHeaders: [X-Original-URL]",
            "\"X-Original-URL\" is set by the gateway itself",
        ),
        (
            "url: \"http://a\", responseHeaders: [Set-Cookie]",
            "responseHeaders[0]: \"Set-Cookie\" always goes to the client",
        ),
        (
            "url: \"http://a\", responseHeaders: [X-Consumer-Username]",
            "\"X-Consumer-Username\" is set by the gateway itself",
        ),
        (
            "url: \"http://a\", responseHeaders: [Content-Length]",
            "\"Content-Length\" is needed for the request",
        ),
        ("url: \"http://a\", responseHeaders: [\"a b\"]", "\"a b\" has invalid characters"),
        ("url: \"http://a\", signIn: {url: //evil}", "extAuth.signIn.url: \"//evil\" is not a URL"),
        ("url: \"http://a\", signIn: {url: \"/a b\"}", "extAuth.signIn.url: \"/a b\" is not a path"),
        ("url: \"http://a\", signIn: {url: \"https://b/#c\"}", "extAuth.signIn.url: has a fragment"),
        (
            "url: \"http://a\", signIn: {url: /b, redirectParameter: \"a&b\"}",
            "signIn.redirectParameter: \"a&b\" is invalid",
        ),
        ("url: \"http://a\", cache: {key: []}", "extAuth.cache.key: is empty"),
        ("url: \"http://a\", cache: {key: [{type: Header}]}", "extAuth.cache.key[0]: name is missing"),
        (
            "url: \"http://a\", cache: {key: [{type: Path, name: x}]}",
            "cache.key[0]: name is only for type Header",
        ),
        ("url: \"http://a\", cache: {key: [{type: Header, name: Cookie}]}", "\"Cookie\" has all cookies"),
        (
            "url: \"http://a\", cache: {key: [{type: Header, name: Host}]}",
            "\"Host\" is needed for the request itself",
        ),
        (
            "url: \"http://a\", cache: {key: [{type: Host}], admitted: 25h}",
            "cache.admitted: \"25h\" is not between",
        ),
        (
            "url: \"http://a\", cache: {key: [{type: Host}]}, requestHeaders: [X-A]",
            "requestHeaders: has no effect with cache",
        ),
    ] {
        closed(&format!("authentication: {{extAuth: {{{spec}}}}}"), problem);
    }
    for certificate in ["", ", caCertificateRef: {name: ca}"] {
        closed(
            &format!(
                "authentication: {{extAuth: {{url: \"https://a\"{certificate}}}}}, \
                 authorization: {{rules: [{{action: Deny, groups: [a]}}]}}"
            ),
            "rules[0].groups: needs spec.authentication with jwt, introspection, apiKey, basic or oidc: without it every caller is unknown",
        );
    }
}

#[test]
fn field_forward_override_headers_enables_forwarding_of_override_headers() {
    let rules = "authorization: {rules: [{action: Deny, methods: [DELETE]}]}";
    assert!(!good(rules).forward_overrides);
    assert!(!good(&format!("{rules}, forwardOverrideHeaders: false")).forward_overrides);
    assert!(good(&format!("{rules}, forwardOverrideHeaders: true")).forward_overrides);
}

#[test]
fn default_authorization_action_is_allow_only_without_allow_rules() {
    for (spec, expected) in [
        ("rules: [{action: Allow, methods: [GET]}]", Action::Deny),
        ("rules: [{action: Deny, methods: [GET]}]", Action::Allow),
        ("defaultAction: Allow, rules: [{action: Allow, methods: [GET]}]", Action::Allow),
        ("defaultAction: Deny, rules: [{action: Deny, methods: [GET]}]", Action::Deny),
    ] {
        assert_eq!(authorization(spec).default_action(), expected, "{spec}");
    }
    let rules = authorization(
        "rules: [{action: Deny, paths: [{type: Prefix, value: /admin/}, {type: Exact, value: /%61}], addresses: [10.0.0.1]}]",
    )
    .rules;
    let paths: Vec<_> = rules[0].paths.iter().map(|path| path.pattern()).collect();
    assert_eq!(paths, [PathPattern::Prefix("/admin".into()), PathPattern::Exact("/a".into())]);
}

#[test]
fn authorization_rules_may_name_consumers_and_missing_consumers_are_reported() {
    let consumer = |namespace: &str| {
        object("Consumer", "bob", "basicUsers: [bob]")
            .replace("{name: bob}", &format!("{{name: bob, namespace: {namespace}}}"))
    };
    let spec = "authentication: {apiKey: {}, consumers: {namespaces: [default, other]}}, \
                authorization: {rules: [{action: Allow, consumers: [bob, other/bob, carol]}]}";
    let text = [shop(), policy(spec), consumer("default"), consumer("other")].concat();
    let (translation, problems) = translated(&[&text]);
    let security = security_of(&translation.config);
    let named = &security.authorization.as_ref().unwrap().rules[0].consumers;
    let named: Vec<&str> = named.iter().map(|consumer| consumer.as_str()).collect();
    assert_eq!(named, ["default/bob", "other/bob", "default/carol"]);
    assert!(
        problems[0].contains("rules[0].consumers[2]: Consumer default/carol does not exist"),
        "{problems:#?}"
    );
}

#[test]
fn invalid_security_policy_closes_the_route() {
    for (spec, problem) in [
        // An empty list does not allow all callers.
        ("ipAccess: {allow: []}", "spec.ipAccess.allow: is empty"),
        ("ipAccess: {allow: [example.com]}", "spec.ipAccess.allow[0]: \"example.com\" is not a network"),
        ("ipAccess: {allow: [10.0.0.0/8, 10.1.2.3/8]}", "spec.ipAccess.allow[1]"),
        ("ipAccess: {deny: [nobody]}", "spec.ipAccess.deny[0]"),
        // An empty value does not count as an absent field.
        ("ipAccess: {allow: }", "spec.ipAccess.allow: is empty"),
        ("ipAccess: ", "spec.ipAccess: is empty"),
        ("authentication: ", "spec.authentication: is empty"),
        ("authentication: {}", "spec.authentication: has no method"),
        ("authorization: {rules: []}", "spec.authorization.rules: is empty"),
        ("authorization: {rules: [{action: Allow, methods: []}]}", "rules[0].methods: is empty"),
        ("authorization: {rules: [{action: Allow, paths: []}]}", "rules[0].paths: is empty"),
        ("authorization: {rules: [{action: Allow, addresses: []}]}", "rules[0].addresses: is empty"),
        (
            "authentication: {apiKey: {}}, authorization: {rules: [{action: Allow, consumers: []}]}",
            "rules[0].consumers: is empty",
        ),
        (
            "authentication: {apiKey: {}}, authorization: {rules: [{action: Allow, groups: []}]}",
            "rules[0].groups: is empty",
        ),
        ("authentication: {apiKey: {}, consumers: {namespaces: []}}", "namespaces: is empty"),
        // A misspelt field may have been meant to deny callers.
        ("ipAcess: {allow: [10.0.0.0/8]}", "spec.ipAcess: is unknown: did you mean ipAccess?"),
        (
            "authorization: {rules: [{action: Allow, method: [GET]}]}",
            "spec.authorization.rules[0].method: is unknown: did you mean methods?",
        ),
        // Invalid values.
        ("cors: {}", "spec.cors.allowOrigins: is missing"),
        (
            "cors: {allowOrigins: [\"*\"], allowCredentials: true}",
            "spec.cors.allowOrigins[0]: * cannot be combined with allowCredentials",
        ),
        ("cors: {allowOrigins: [example.com]}", "spec.cors.allowOrigins[0]"),
        ("cors: {allowOrigins: [\"*\"], maxAge: 1d}", "spec.cors.maxAge: \"1d\" is not a duration"),
        ("cors: {allowOrigins: [\"*\"], maxAge: 25h}", "spec.cors.maxAge: \"25h\" is not between 0s and 24h"),
        ("cors: {allowOrigins: [\"*\"], allowHeaders: [\"a b\"]}", "spec.cors.allowHeaders[0]"),
        (
            "authentication: {require: any, apiKey: {}}",
            "spec.authentication.require: \"any\" is unknown: write Any, All or Optional",
        ),
        (
            "authentication: {apiKey: {from: [{header: {name: a}, query: b}]}}",
            "apiKey.from[0]: must have exactly one of header, query and cookie",
        ),
        (
            "authentication: {apiKey: {from: [{header: {name: a, prefix: Key}}]}}",
            "apiKey.from[0].header.prefix",
        ),
        ("authentication: {apiKey: {from: []}}", "apiKey.from: is empty"),
        ("authentication: {basic: {}}", "spec.authentication.basic.secretRef: is missing"),
        (
            "authorization: {rules: [{action: allow}]}",
            "rules[0].action: \"allow\" is unknown: write Allow or Deny",
        ),
        (
            "authorization: {rules: [{action: Deny, methods: [get]}]}",
            "rules[0].methods[0]: \"get\" is not a method that clients use: write GET",
        ),
        (
            "authorization: {rules: [{action: Deny, paths: [{type: Prefix, value: admin}]}]}",
            "rules[0].paths[0].value",
        ),
        (
            "authorization: {rules: [{action: Deny, paths: [{type: Regex, value: /a}]}]}",
            "rules[0].paths[0].type: \"Regex\" is unknown: write Exact or Prefix",
        ),
        // Rules that no request could match.
        (
            "authorization: {rules: [{action: Deny, consumers: [a]}]}",
            "rules[0].consumers: needs spec.authentication",
        ),
        (
            "authorization: {rules: [{action: Deny, groups: [a]}]}",
            "rules[0].groups: needs spec.authentication",
        ),
        (
            "authentication: {apiKey: {}}, authorization: {rules: [{action: Deny, claims: [{name: a}]}]}",
            "rules[0].claims: needs spec.authentication with jwt, introspection or oidc",
        ),
        (
            "authentication: {apiKey: {}}, authorization: {rules: [{action: Deny, consumers: [b/a]}]}",
            "the Consumers of namespace b are not known",
        ),
        // Values of the wrong type.
        ("ipAccess: 5", "spec.ipAccess: must be a mapping, but is a number"),
        ("ipAccess: {allow: 10.0.0.0/8}", "spec.ipAccess.allow: must be a list"),
        ("authentication: {apiKey: true}", "spec.authentication.apiKey: must be a mapping"),
        (
            "authentication: {apiKey: {forward: \"yes\"}}",
            "spec.authentication.apiKey.forward: must be true or false",
        ),
    ] {
        closed(spec, problem);
    }
}

#[test]
fn invalid_jwt_provider_closes_the_route() {
    for (provider, problem) in [
        ("name: a", "providers[0].keys: is missing"),
        ("name: a, keys: {}", "providers[0].keys: must have exactly one source"),
        (
            "name: a, keys: {inline: x, secretRef: {name: keys}}",
            "providers[0].keys: must have exactly one source",
        ),
        ("name: a, keys: {inline: x}", "providers[0].keys.inline: include no valid key"),
        (
            "name: a, keys: {sharedSecretRef: {name: keys}}, algorithms: [RS256]",
            "algorithms[0]: RS256 needs keys.inline, keys.secretRef or keys.remote",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, algorithms: [none]",
            "algorithms[0]: \"none\" is unknown: write HS256, HS384",
        ),
        ("name: a, keys: {remote: {url: \"ftp://a/b\"}}", "remote.url: \"ftp://a/b\" is not a URL"),
        ("name: a, keys: {remote: {url: \"https:///b\"}}", "remote.url: \"https:///b\" is not a URL"),
        ("name: a, keys: {remote: {url: \"https://a:b@c/\"}}", "remote.url: has a user name or a password"),
        (
            "name: a, keys: {remote: {url: \"https://a/\", refreshInterval: 500ms}}",
            "remote.refreshInterval: \"500ms\" is not between 1s and 24h",
        ),
        (
            "name: a, keys: {remote: {url: \"https://a/\"}}, algorithms: [HS256]",
            "algorithms[0]: HS256 needs keys.sharedSecretRef",
        ),
        ("name: a, keys: {secretRef: {name: keys}}, algorithms: []", "algorithms: is empty"),
        ("name: a, keys: {secretRef: {name: keys}}, audiences: []", "audiences: is empty"),
        ("name: a, keys: {secretRef: {name: keys}}, issuer: \"\"", "issuer: is empty"),
        (
            "name: a, keys: {secretRef: {name: keys}}, clockSkew: 11m",
            "clockSkew: \"11m\" is not between 0s and 10m",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, requiredClaims: [{name: a, values: []}]",
            "requiredClaims[0].values: is empty",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, requiredClaims: [{name: a..b}]",
            "requiredClaims[0].name",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, claimToHeaders: [{claim: a, header: Host}]",
            "claimToHeaders[0].header: \"Host\" is needed for the request",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, claimToHeaders: [{claim: a, header: X-Forwarded-For}]",
            "claimToHeaders[0].header: \"X-Forwarded-For\" is set by the gateway itself",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}, claimToHeaders: [{claim: a, header: X-A}, {claim: b, header: x-a}]",
            "claimToHeaders[1].header: \"x-a\" is written twice",
        ),
        (
            "name: a, keys: {secretRef: {name: keys}}}, {name: a, keys: {secretRef: {name: keys}}",
            "providers[1].name: \"a\" is the name of two providers",
        ),
        ("name: a, keys: {secretRef: {name: Keys}}", "keys.secretRef.name: \"Keys\" has upper-case letters"),
    ] {
        closed(&format!("authentication: {{jwt: {{providers: [{{{provider}}}]}}}}"), problem);
    }
    closed("authentication: {jwt: {providers: []}}", "providers: is empty");
}

#[test]
fn invalid_policy_leaves_the_last_valid_version_in_service() {
    let good = [shop(), policy("ipAccess: {allow: [10.0.0.0/8]}")].concat();
    for broken in ["ipAccess: {allow: [nobody]}", "ipAccess: nobody", "ipAcces: {}"] {
        let (translation, problems) = translated(&[&good, &[shop(), policy(broken)].concat()]);
        let security = security_of(&translation.config);
        assert_eq!((security.refuses.as_ref(), security.ip_access.allow.len()), (None, 1), "{broken}");
        assert!(problems[0].contains("(the last valid version stays in service)"), "{problems:#?}");
        assert!(translation.policy_statuses[0].message.contains("(the last valid version stays in service)"));
        assert!(!translation.policy_statuses[0].reason.is_accepted());
    }
}

#[test]
fn invalid_security_policy_closes_the_routes_of_the_targets_in_its_newest_version() {
    let other = A.replace("name: a", "name: other");
    let first =
        object("SecurityPolicy", "p", &format!("targetRefs: [{other}], ipAccess: {{allow: [nobody]}}"));
    for second in ["ipAccess: {allow: [nobody]}", "ipAccess: nobody"] {
        let (translation, problems) =
            translated(&[&[shop(), first.clone()].concat(), &[shop(), policy(second)].concat()]);
        assert!(security_of(&translation.config).refuses.is_some(), "{second}");
        assert!(problems.iter().all(|problem| !problem.contains("last valid version")), "{problems:#?}");
    }
}

#[test]
fn unreadable_older_policy_has_precedence_over_a_valid_newer_policy() {
    let aged = |policy: String, name: &str, day: u8| {
        let head = format!("metadata: {{creationTimestamp: \"2026-01-0{day}T00:00:00Z\", ");
        policy.replace("metadata: {", &head).replace("name: p}", &format!("name: {name}}}"))
    };
    let text =
        [shop(), aged(policy("ipAccess: nobody"), "older", 1), aged(policy("ipAccess: {}"), "newer", 2)]
            .concat();
    assert!(security_of(&translated(&[&text]).0.config).refuses.is_some());
}

#[test]
fn unreadable_security_policy_closes_the_routes_of_its_readable_targets() {
    let text = object(
        "SecurityPolicy",
        "p",
        "targetRefs: [5, {group: networking.k8s.io, kind: Ingress, name: a}], ipAccess: nobody",
    );
    let (translation, _) = translated(&[&[shop(), text].concat()]);
    assert!(security_of(&translation.config).refuses.is_some());
    let nothing = "---\napiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: p}\n";
    let (_, problems) = translated(&[&[&shop(), nothing].concat()]);
    assert!(problems[0].contains("spec: is missing"), "{problems:#?}");
}

#[test]
fn authorization_rules_that_never_match_close_the_routes_of_the_policy() {
    let denies = |of: &str| {
        format!("authentication: {{apiKey: {{}}}}, authorization: {{rules: [{{action: Deny, {of}}}]}}")
    };
    closed(
        &denies("groups: [\"gold \"]"),
        "spec.authorization.rules[0].groups[0]: \"gold \" begins or ends with a space",
    );
    closed(&denies("paths: [{type: Prefix, value: \"/a?b=c\"}]"), "has a '?', which ends a path");
    closed(&denies("paths: [{type: Exact, value: \"/a#b\"}]"), "has a '#', which ends a path");
    closed(
        &denies("methods: [\"*\"]"),
        "methods[0]: \"*\" is not a method: remove methods to match every method",
    );
    closed(&denies("consumers: [a/b/c]"), "consumers[0]: \"a/b/c\" is not a DNS name");
    let (_, problems) =
        translated(&[&[shop(), policy(&denies("paths: [{type: Prefix, value: \"/admin/*\"}]"))].concat()]);
    assert!(problems.iter().any(|told| told.contains("not as a pattern")), "{problems:#?}");
}

#[test]
fn two_jwt_providers_with_the_same_issuer_close_the_routes_of_the_policy() {
    let provider = |name: &str| {
        format!("{{name: {name}, issuer: \"https://i\", keys: {{inline: '{{\"keys\": [{KEY}]}}'}}}}")
    };
    let both = format!("authentication: {{jwt: {{providers: [{}, {}]}}}}", provider("a"), provider("b"));
    closed(&both, "spec.authentication.jwt.providers[1].issuer: is also the issuer of the provider \"a\"");
}

#[test]
fn policy_whose_targets_are_unknown_is_reported_to_have_no_effect() {
    let text = policy("ipAccess: {allow: [10.0.0.0/8]}").replace("kind: Ingress", "kind: ingress");
    let (_, problems) = translated(&[&[shop(), text].concat()]);
    assert!(problems.iter().any(|told| told.contains("are served without it")), "{problems:#?}");
    assert!(!problems.iter().any(|told| told.contains("respond with 503")), "{problems:#?}");
}

#[test]
fn unknown_kind_in_the_api_group_of_sluicegate_is_an_error() {
    let text =
        policy("ipAccess: {allow: [10.0.0.0/8]}").replace("kind: SecurityPolicy", "kind: Securitypolicy");
    let (_, problems) = translated(&[&[shop(), text].concat()]);
    let expected = "kind: \"Securitypolicy\" is unknown: write SecurityPolicy, Consumer, RateLimitPolicy";
    assert!(problems.iter().any(|told| told.contains(expected)), "{problems:#?}");
}

#[test]
fn policies_of_other_api_groups_are_ignored() {
    let text = "---\napiVersion: gateway.envoyproxy.io/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: p}\nspec: {x: 1}\n";
    let (translation, problems) = translated(&[&[&shop(), text].concat()]);
    assert_problems(&problems, &[]);
    assert!(translation.config.rules().all(|route| route.security.is_none()));
}
