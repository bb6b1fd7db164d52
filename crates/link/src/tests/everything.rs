//! Two configurations that together contain every type, every field and every variant of the model.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use sluicegate_model::access_log::{AccessLogSettings, LogEscape, LogFormat};
use sluicegate_model::contract::{
    Example, MediaContract, OperationContract, Parameter, ParameterPlace, ParameterStyle, PartContract,
    ResponseContract, StatusRange,
};
use sluicegate_model::feature::authentication::jwt::{Provider, ProviderKeys, RemoteKeys};
use sluicegate_model::feature::authentication::{Combination, Credential, Need};
use sluicegate_model::feature::compression::Levels;
use sluicegate_model::feature::cors::NginxCors;
use sluicegate_model::feature::endpoint_form::NginxForwarding;
use sluicegate_model::feature::load_balancing::{NginxSession, SameSite, SessionMode};
use sluicegate_model::feature::mirror::MirrorForm;
use sluicegate_model::feature::response_rewrite::{RewriteFrom, TextRewrite};
use sluicegate_model::feature::retries::RetryConditions;
use sluicegate_model::feature::returns::{Body, Condition, Content, Location, Return, Test};
use sluicegate_model::feature::{
    Affinity, AuthRequest, AuthRequestCache, Authentication, BackendFeatures, Basic, Cors, Digest,
    EndpointForm, ErrorPages, ExtAuth, ExternalAuth, ExternalAuthProtocol, Introspection, Jwt,
    LoadBalancingAlgorithm, Oidc, Require, ResponseHeader, ResponseHeaderMode, ResponseRewrite,
    RetryConstraint, Spans, StatusTime, TargetRewrite, TemplateHeader, TemplateHeaders, Unrecorded,
};
use sluicegate_model::policy::consumer::{KeyTerms, SubjectClaim, TokenSubject};
use sluicegate_model::policy::*;
use sluicegate_model::rule::{
    ApiChecks, ApiOperation, Backend, HeaderMatch, HttpsRedirect, PathMatch, Pattern, QueryMatch, RuleMatch,
    ValueMatch,
};
use sluicegate_model::settings::{Limits, Resilience, Timeouts};
use sluicegate_model::tls::{Hsts, Http3, PrivateKey, TicketSecret, TlsSettings, TlsVersion, UnknownNames};
use sluicegate_model::value::CipherSuites;
use sluicegate_model::value::secret::{CaCertificates, CookieKeys, FromSecret, KeyBytes};
use sluicegate_model::value::{
    AnnotatedHeader, CookieDomain, Entries, HeaderValue, MediaType, Number, Realm, Size, Span, Template,
};
use sluicegate_model::*;

use super::traffic::valid;

fn id(kind: &'static str, name: &str) -> ObjectId {
    ObjectId { kind, namespace: "shop".into(), name: name.into() }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn texts(texts: &[&str]) -> Vec<Box<str>> {
    texts.iter().map(|text| (*text).into()).collect()
}

fn pair(one: &str, other: &str) -> (Box<str>, Box<str>) {
    (one.into(), other.into())
}

/// The two configurations.
pub(crate) fn everything() -> [Config; 2] {
    [first(), second()]
}

/// Two backends, one of them with features.
fn backends() -> Vec<Backend> {
    let set = |name: &str| valid(json!({"set": [{"name": name, "value": "canary"}], "remove": ["x-old"]}));
    let features = BackendFeatures {
        request_headers: set("x-to"),
        response_headers: set("x-from"),
        url_rewrite: valid(json!({"hostname": "canary.internal"})),
        affinity: Some(valid(json!({"header": "x-session"}))),
    };
    let canary =
        Backend { weight: valid(json!(5)), features: Some(Box::new(features)), ..Backend::new(key(0)) };
    vec![Backend { weight: valid(json!(95)), ..Backend::new(key(1)) }, canary]
}

fn contract() -> ApiContract {
    let example = |name: Option<&str>| Example { name: name.map(Into::into), value: "{\"id\":7}".into() };
    let body = |media_type: &str, schema, examples| MediaContract {
        media_type: media_type.into(),
        schema,
        examples,
        fields: Vec::new(),
        parts: vec![PartContract { name: "photo".into(), media_types: vec!["image/*".to_owned()] }],
    };
    let places =
        [ParameterPlace::Path, ParameterPlace::Query, ParameterPlace::Header, ParameterPlace::Cookie];
    let styles = [
        ParameterStyle::Simple,
        ParameterStyle::Label,
        ParameterStyle::Matrix,
        ParameterStyle::Form,
        ParameterStyle::SpaceDelimited,
        ParameterStyle::PipeDelimited,
        ParameterStyle::DeepObject,
        ParameterStyle::Json,
    ];
    let parameter = |(index, style): (usize, ParameterStyle)| Parameter {
        name: format!("p{index}").into(),
        place: places[index % places.len()],
        is_required: index == 0,
        style,
        explodes: index == 1,
        schema: (index > 1).then_some(1),
        allows_empty: index == 2,
    };
    let response = |status, bodies| ResponseContract { status, bodies, headers: Vec::new() };
    let field = parameter((5, ParameterStyle::DeepObject));
    let form = MediaContract { fields: vec![field.clone()], ..body("multipart/form-data", None, vec![]) };
    let with_headers = |response| ResponseContract { headers: vec![field.clone()], ..response };
    ApiContract {
        schemas: r##"{"0":{"$ref":"#/$defs/1"},"1":true}"##.into(),
        operations: vec![OperationContract {
            id: "getPet".into(),
            parameters: styles.into_iter().enumerate().map(parameter).collect(),
            requires_body: true,
            bodies: vec![body("application/json", Some(0), vec![]), form],
            responses: vec![
                response(
                    StatusRange::Code(200),
                    vec![body("application/json", Some(1), vec![example(Some("cat"))])],
                ),
                response(StatusRange::Class(4), vec![body("text/*", None, vec![example(None)])]),
                with_headers(response(StatusRange::Default, vec![])),
            ],
        }],
        has_mocks: true,
    }
}

fn first() -> Config {
    let [client_auth, ..] = client_auths();
    let full = Rule {
        https_only: true,
        https_redirect: HttpsRedirect { status: Number::of(301), strips_slash: true },
        client_auth: Some(client_auth),
        compression: Some(ContentCoding::ALL.into_iter().collect()),
        security: Some(Arc::new(security())),
        rate_limits: Some(Arc::new(rate_limits())),
        traffic: Some(Arc::new(traffic())),
        subscriptions: Some(Arc::new(subscriptions())),
        api: Some(Box::new(ApiOperation {
            version: "1.2".into(),
            environment: "production".into(),
            operation: Some("getPet".into()),
            media_types: vec!["application/json".into(), "image/*".into()],
            checks: Some(Box::new(ApiChecks {
                contract: Arc::new(contract()),
                validation: valid(
                    json!({"request": "Enforce", "response": "Report", "status": 422, "bodyLimit": "64Ki"}),
                ),
                is_mocked: true,
                is_closed: true,
            })),
        })),
        ..Rule::new(id("Ingress", "full"), PathPattern::Exact("/full".into()), key(0))
    };
    let plain = |path| Rule::new(id("HTTPRoute", "plain"), path, key(1));
    let [other_traffic, others @ ..] = other_traffic().map(Arc::new);
    let other = Rule {
        rate_limits: Some(Arc::new(RateLimits {
            id: id("RateLimitPolicy", "other"),
            limits: vec![],
            concurrency: vec![],
            headers: false,
            shared: Some(Shared::Unusable("no such Secret".into())),
            exempt: Entries::default(),
        })),
        traffic: Some(other_traffic),
        ..plain(PathPattern::Starts("/starts".into()))
    };
    let unchecked = ApiChecks {
        contract: Arc::default(),
        validation: valid(json!({"request": "Disabled"})),
        is_mocked: false,
        is_closed: false,
    };
    let api = ApiOperation { checks: Some(Box::new(unchecked)), ..ApiOperation::default() };
    let other = Rule { matches: matches(), backends: backends(), api: Some(Box::new(api)), ..other };
    let rules = [full, other]
        .into_iter()
        .chain(others.map(|traffic| Rule { traffic: Some(traffic), ..plain(prefix("/other")) }))
        .chain(
            other_security()
                .map(|security| Rule { security: Some(Arc::new(security)), ..plain(prefix("/asking")) }),
        );
    let host = |host, routes, fallback| Arc::new(VirtualHost { fallback, ..VirtualHost::new(host, routes) });
    let at = |entry_point, continues: bool| {
        let rule = Rule {
            backends: vec![Backend { is_invalid: true, ..Backend::new(key(0)) }],
            ..plain(prefix("/"))
        };
        let host = VirtualHost::new(HostPattern::Exact("g.example".into()), vec![rule]);
        let filters = continues
            .then(|| Arc::new(Security { filters: filters(), ..Security::open(id("Gateway", "edge")) }));
        Arc::new(VirtualHost { entry_point, filters, continues, decodes_slashes: continues, ..host })
    };
    let hosts = vec![
        host(HostPattern::Exact("a.example".into()), rules.collect(), Some(plain(prefix("/")))),
        host(HostPattern::Wildcard("b.example".into()), vec![plain(prefix("/b"))], None),
        host(HostPattern::Suffix("c.example".into()), vec![], None),
        host(HostPattern::Any, vec![], None),
        at(EntryPoint::FlagsHttp, true),
        at(EntryPoint::FlagsHttps, false),
        at(EntryPoint::Gateway("0.0.0.0:8080".into()), true),
    ];
    Config {
        settings: settings(),
        hosts,
        default_rule: Some(plain(prefix("/"))),
        listeners: listeners(),
        tls: Arc::new(tls()),
        consumers: vec![Arc::new(consumer())],
        upstreams: upstreams().into_iter().collect(),
        own_scopes: Vec::new(),
    }
}

fn matches() -> Vec<RuleMatch> {
    let pattern = |text: &str, ignores_case| Pattern::new(text, ignores_case).unwrap();
    let header = |name: &str, value| HeaderMatch { name: name.into(), value };
    let query = |name: &str, value| QueryMatch { name: name.into(), value };
    vec![
        RuleMatch::path(PathPattern::Starts("/starts".into())),
        RuleMatch {
            precedence: 7,
            path: PathMatch::Regex(pattern("^/v[0-9]+/", true)),
            method: Some("POST".into()),
            headers: vec![
                header("x-exact", ValueMatch::Exact("1".into())),
                header("x-regex", ValueMatch::Regex(pattern("^[a-z]+$", false))),
                header("x-present", ValueMatch::Present),
            ],
            query: vec![query("page", ValueMatch::Exact("2".into()))],
        },
        RuleMatch::new(
            PathMatch::Template(PathTemplate::new("/pets/{id}/toys").unwrap()),
            None,
            Vec::new(),
            Vec::new(),
        ),
    ]
}

fn second() -> Config {
    let [_, optional, any] = client_auths();
    let host = |name: &str, policy| {
        let route = Rule { client_auth: Some(policy), ..Rule::new(id("Ingress", name), prefix("/"), key(0)) };
        Arc::new(VirtualHost::new(HostPattern::Exact(name.into()), vec![route]))
    };
    let tls = TlsSettings {
        min_version: TlsVersion::Tls12,
        unknown_names: UnknownNames::Default,
        ..TlsSettings::default()
    };
    Config {
        settings: Settings { tls, ..Settings::default() },
        hosts: vec![host("any", any), host("optional", optional)],
        ..Config::default()
    }
}

fn prefix(path: &str) -> PathPattern {
    PathPattern::Prefix(path.into())
}

fn settings() -> Settings {
    Settings {
        timeouts: Timeouts {
            tls_handshake: millis(1),
            proxy_protocol: millis(2),
            request_head: millis(3),
            request_body: millis(4),
            request_body_grace: millis(5),
            request_body_total: millis(6),
            client_idle: millis(7),
            client_write: millis(8),
            connect: millis(9),
            response_head: millis(10),
            upstream_idle: millis(11),
            pool_idle: millis(12),
            tunnel_idle: millis(13),
            udp_idle: millis(14),
            drain: millis(15),
            connection_age: Some(millis(16)),
        },
        limits: Limits {
            client_hello: 1,
            request_head: 2,
            response_head: 3,
            headers: 4,
            request_body: Some(5),
            request_body_rate: 6,
            stalled_uploads_per_endpoint: 7,
            requests_per_connection: Some(8),
            http2_streams: 9,
            http2_stream_window: 10,
            http2_connection_window: 11,
            connections_per_worker: 12,
            udp_flows_per_worker: 13,
            pool_per_endpoint: 14,
            replay: 15,
            compressions_per_worker: 16,
        },
        resilience: Resilience {
            attempts: 1,
            connect_hedge: millis(1),
            endpoint_wait: millis(2),
            unacknowledged: millis(3),
            slow_start: millis(4),
            panic_threshold_percent: 50,
            probe_interval: millis(5),
            probe_interval_max: millis(6),
        },
        trusted_proxies: vec!["192.0.2.0/24".parse().unwrap()],
        proxy_protocol_peers: vec!["2001:db8::/32".parse().unwrap()],
        underscores_in_headers: true,
        allow_encoded_dot_segments: true,
        allow_non_ascii_targets: true,
        tls: TlsSettings {
            min_version: TlsVersion::Tls13,
            unknown_names: UnknownNames::Refuse,
            hsts: Some(Hsts { max_age: millis(1000), include_subdomains: true, preload: true }),
            redirect_port: 8443,
            http3: Some(Http3 { port: Some(443), max_age: millis(1000), early_data: true, handshakes: 1 }),
        },
        compression: Compression {
            codings: ContentCoding::ALL.into_iter().collect(),
            types: vec!["text/*".parse().unwrap()],
            min_length: 1,
            levels: Levels { gzip: Number::of(9), brotli: Number::of(1), zstd: Number::of(2) },
        },
        tracing: Some(Tracing {
            collector: "http://collector:4318".parse().unwrap(),
            authorities: vec![vec![1].into()],
            sample_percent: 12.5,
            followed_per_second: 7,
            service_name: "edge".into(),
        }),
        access_log: AccessLogSettings {
            format: Some(LogFormat::new("$remote_addr $status", LogEscape::Json).unwrap()),
            omits_requests: true,
            omits_connections: true,
            omits_unrouted: true,
            omitted_targets: vec![
                Pattern::exact("/healthz").expect("an expression"),
                Pattern::new("^/static/", false).expect("an expression"),
            ],
        },
        nginx_controller: Some("k8s.io/ingress-nginx".into()),
        kong_compatibility: true,
    }
}

fn client_auths() -> [Arc<ClientAuth>; 3] {
    [ClientAuthMode::Required, ClientAuthMode::Optional, ClientAuthMode::OptionalNoCa].map(|mode| {
        Arc::new(ClientAuth {
            source: "Secret shop/clients".into(),
            roots: vec![vec![1, 2].into()],
            crls: vec![vec![3].into()],
            mode,
            forward: true,
            at_requests: (mode == ClientAuthMode::Optional).then(|| ClientCheck {
                depth: 1,
                subject: Some(Pattern::new("CN=a", false).expect("an expression")),
                error_page: Some(valid(json!("https://error.example/"))),
            }),
        })
    })
}

fn certificates() -> Vec<Arc<Certificate>> {
    let certificate = |key, key_kind| {
        Arc::new(Certificate {
            source: "Secret shop/tls".into(),
            chain: vec![vec![1, 2, 3].into()],
            key: PrivateKey(key),
            key_kind,
            names: vec![HostPattern::Exact("a.example".into()), HostPattern::Wildcard("a.example".into())],
            not_before: SystemTime::UNIX_EPOCH + millis(1_000_000_000_500),
            not_after: SystemTime::UNIX_EPOCH + millis(2_000_000_000_000),
        })
    };
    vec![
        certificate(PrivateKeyDer::Pkcs8(vec![1].into()), KeyKind::Ecdsa),
        certificate(PrivateKeyDer::Pkcs1(vec![2].into()), KeyKind::Rsa),
        certificate(PrivateKeyDer::Sec1(vec![3].into()), KeyKind::Ed25519),
    ]
}

fn layer4_route() -> Layer4Route {
    let backends = vec![WeightedUpstream { upstream: key(2), weight: 3 }];
    Layer4Route { id: id("TCPRoute", "tunnel"), backends }
}

fn tls() -> Tls {
    let [client_auth, ..] = client_auths();
    let host = HostPattern::Exact("a.example".into());
    let passed = TlsRoute::new(HostPattern::Suffix("p.example".into()), layer4_route());
    Tls {
        hosts: vec![
            Arc::new(TlsHost {
                client_auth: Some(client_auth),
                ciphers: CipherSuites::new("AESGCM").unwrap(),
                ..TlsHost::new(host.clone(), certificates())
            }),
            Arc::new(TlsHost {
                entry_point: EntryPoint::Gateway("0.0.0.0:8443".into()),
                ..TlsHost::new(host, Vec::new())
            }),
            Arc::new(TlsHost {
                entry_point: EntryPoint::Gateway("0.0.0.0:8443".into()),
                relay: Some(layer4_route()),
                ..TlsHost::new(HostPattern::Suffix("r.example".into()), Vec::new())
            }),
        ],
        passthrough: vec![
            passed.clone(),
            TlsRoute { entry_point: EntryPoint::Gateway("0.0.0.0:8443".into()), ..passed },
        ],
        acme: vec![acme_host("a.example", None), acme_host("b.example", certificates().into_iter().next())],
        default: certificates().drain(..1).collect(),
        ticket_secrets: vec![TicketSecret([7; TicketSecret::MIN].into())],
    }
}

fn acme_host(host: &str, challenge: Option<Arc<Certificate>>) -> Arc<AcmeHost> {
    Arc::new(AcmeHost { host: host.into(), thumbprint: "x".repeat(43).into(), challenge })
}

fn listeners() -> Vec<Listener> {
    let listener = |name: &str, address: &str, serves| Listener {
        id: ListenerId { object: id("Gateway", "edge"), name: name.into() },
        address: address.parse().unwrap(),
        serves,
        planes: Planes::Shared,
        proxy_header: if name == "tcp" { ProxyHeader::Always } else { ProxyHeader::Never },
        client_port: (name == "https").then_some(443),
    };
    let tls = TlsRoute::new(HostPattern::Any, layer4_route());
    vec![
        listener("tcp", "192.0.2.1:5432", Serves::Tcp(Some(layer4_route()))),
        listener("tls", "[2001:db8::1]:443", Serves::Tls(vec![tls])),
        listener("udp", "[fe80::1%3]:53", Serves::Udp(Some(layer4_route()))),
        listener("http", "0.0.0.0:8080", Serves::Http("0.0.0.0:8080".into())),
        listener("https", "0.0.0.0:8443", Serves::Https("0.0.0.0:8443".into())),
    ]
}

fn key(index: usize) -> UpstreamKey {
    let protocol = [Protocol::Http, Protocol::Http2, Protocol::Tcp, Protocol::Udp][index];
    let tls = TransportTls {
        server_name: "backend".into(),
        sends_name: true,
        verifies: true,
        secret: Some("shop/backend".into()),
        policy: Some("shop/policy".into()),
        ciphers: CipherSuites::new("AESGCM").unwrap(),
        depth: Some(2),
    };
    let tls = (index == 0).then(|| Arc::new(tls));
    let transport = Transport { protocol, tls, is_cluster_ip: index == 1, sends_proxy: index == 2 };
    UpstreamKey { transport, ..UpstreamKey::new("shop", format!("service-{index}"), "http") }
}

fn upstreams() -> [(UpstreamKey, Arc<Upstream>); 4] {
    let tls = |verification| {
        let identity = certificates().pop();
        Some(Arc::new(UpstreamTls {
            server_name: "backend".into(),
            sends_name: true,
            verification,
            identity,
            alternative_names: Some(vec![
                AlternativeName::Dns("backend.example".into()),
                AlternativeName::Uri("spiffe://example/backend".into()),
            ]),
            ciphers: CipherSuites::new("AESGCM").unwrap(),
            depth: Some(2),
        }))
    };
    let health = |mut check: Value| {
        let common = [
            ("interval", json!("1s")),
            ("timeout", json!("500ms")),
            ("healthyThreshold", json!(2)),
            ("unhealthyThreshold", json!(3)),
        ];
        for (field, value) in common {
            check[field] = value;
        }
        let ejection = valid(json!({"consecutiveErrors": 5, "time": "10s", "maxPercent": 50}));
        Some(Arc::new(Health { ejection: Some(ejection), check: Some(valid(check)) }))
    };
    let endpoint = |address: &str| Endpoint {
        address: address.parse().unwrap(),
        conditions: Conditions { ready: true, serving: true, terminating: false },
    };
    let http = json!({"type": "HTTP", "path": "/healthz?full", "hostname": "backend", "codes": "200-299"});
    let authorities = Verification::Authorities { roots: vec![vec![1].into()], crls: vec![vec![2].into()] };
    let full = Upstream {
        balance: Balance::LeastRequest,
        limits: UpstreamLimits { max_requests: Some(100), max_requests_per_endpoint: Some(10) },
        external_name: Some("backend.example".into()),
        tls: tls(authorities),
        proxy_protocol: Some(ProxyProtocol::V1),
        health: health(http),
        retry_constraint: Some(RetryConstraint {
            percent: Number::of(25),
            interval: Span::of_millis(30_000),
            min_retries: Number::of(5),
            min_interval: Span::of_millis(500),
        }),
        endpoints: [endpoint("192.0.2.7:8080"), endpoint("[2001:db8::7]:8080")].into(),
    };
    let unverified = Upstream {
        balance: Balance::RoundRobin,
        tls: tls(Verification::None),
        proxy_protocol: Some(ProxyProtocol::V2),
        health: health(json!({"type": "GRPC", "service": "shop"})),
        ..Upstream::default()
    };
    let plain = Upstream {
        tls: tls(Verification::WellKnown),
        health: health(json!({"type": "TCP"})),
        ..Upstream::default()
    };
    [full, unverified, plain, Upstream::default()]
        .map(Arc::new)
        .into_iter()
        .enumerate()
        .map(|(index, upstream)| (key(index), upstream))
        .collect::<Vec<_>>()
        .try_into()
        .unwrap()
}

fn consumer() -> Consumer {
    let token = |issuer: Option<&str>, claim| TokenSubject {
        issuer: issuer.map(Into::into),
        claim,
        value: "alice".into(),
    };
    Consumer {
        id: id("Consumer", "alice"),
        username: "alice".into(),
        groups: texts(&["gold"]),
        keys: vec![KeyHash([9; 32])],
        tokens: vec![
            token(Some("https://issuer"), SubjectClaim::Subject),
            token(None, SubjectClaim::ClientId),
        ],
        users: texts(&["alice"]),
        refused: true,
        terms: vec![KeyTerms { key: 0, expires: Some(1_800_000_000), revoked: true }],
    }
}

fn credentials() -> Value {
    json!([{"header": {"name": "authorization", "prefix": "Bearer "}}, {"query": "token"}, {"cookie": "token"}])
}

fn claim() -> Value {
    json!({"name": "scope", "values": ["read"]})
}

fn certificate() -> Option<FromSecret<CaCertificates>> {
    CaCertificates::new(vec![vec![1].into()]).map(FromSecret::Value)
}

fn jwt() -> Jwt {
    let remote = json!({"url": "https://issuer/keys", "refreshInterval": "1m", "timeout": "1s"});
    let remote = RemoteKeys { ca_certificate_ref: certificate(), ..valid(remote) };
    let secret = |byte: u8| FromSecret::Value(KeyBytes::new([byte]).expect("a byte"));
    let every = json!([
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384",
        "ES512", "EdDSA",
    ]);
    let keys = [
        (every, ProviderKeys::Secret(secret(1))),
        (json!(["HS256"]), ProviderKeys::Shared(secret(2))),
        (json!(["RS256"]), ProviderKeys::Remote(Arc::new(remote))),
        (json!(["RS256"]), ProviderKeys::Inline(valid(json!("keys")))),
        (json!(["HS256"]), ProviderKeys::Secret(FromSecret::Unusable("no such Secret".into()))),
    ];
    let provider = |(index, (algorithms, keys)): (usize, (Value, _))| {
        let provider = json!({
            "name": format!("issuer-{index}"), "issuer": format!("https://issuer/{index}"), "audiences": ["shop"],
            "algorithms": algorithms, "keys": {"inline": "replaced"}, "clockSkew": "5s", "allowMissingExpiry": true,
            "requiredClaims": [claim()], "claimToHeaders": [{"claim": "sub", "header": "x-subject"}],
        });
        Provider { keys, ..valid(provider) }
    };
    let jwt = json!({
        "providers": [{"name": "a", "keys": {"inline": "replaced"}}], "from": credentials(), "forward": true,
    });
    let providers = keys.into_iter().enumerate().map(provider).collect();
    Jwt { providers: Entries::new(providers).expect("few"), ..valid(jwt) }
}

fn ext_auth() -> ExtAuth {
    let fields = json!({
        "url": "http://auth/", "timeout": "1s", "responseHeaders": ["x-user"],
        "signIn": {"url": "/sign-in", "redirectParameter": "rd"},
        "cache": {
            "key": [{"type": "Cookie", "name": "session"}, {"type": "Method"}, {"type": "Host"}, {"type": "Path"},
                {"type": "Address"}],
            "admitted": "1s", "refused": "100ms",
        },
    });
    let template = |text: &str| valid(json!(text));
    let auth_request = AuthRequest {
        target: Some(template("/check?$args")),
        sign_in: Some(template("https://login.example/?rd=$escaped_request_uri")),
        request_redirect: Some(template("/there")),
        headers: Entries::new(vec![TemplateHeader {
            name: valid(json!("X-Host")),
            value: template("$host"),
        }])
        .expect("one"),
        always_sets_cookies: true,
        tells_uri: true,
        response_headers: Entries::new(vec![valid(json!("X-Forwarded-User"))]).expect("one"),
        cache: Some(AuthRequestCache {
            key: template("$remote_user"),
            times: Entries::new(vec![StatusTime { status: valid(json!(200)), time: valid(json!("5m")) }])
                .expect("one"),
        }),
    };
    ExtAuth {
        ca_certificate_ref: certificate(),
        upstream: Some(key(1)),
        auth_request: Some(auth_request),
        ..valid(fields)
    }
}

/// A filter of each protocol.
fn filters() -> Vec<ExternalAuth> {
    let names = |name: &str| Entries::new(vec![valid(json!(name))]).expect("one");
    let http =
        ExternalAuthProtocol::Http { path: Some(valid(json!("/auth"))), response_headers: names("x-user") };
    [http, ExternalAuthProtocol::Grpc]
        .map(|protocol| ExternalAuth {
            upstream: key(0),
            protocol,
            request_headers: names("cookie"),
            body: 1024,
        })
        .into()
}

/// Adds the features of annotations of ingress-nginx about responses, sessions and endpoints.
fn annotate_responses(features: &mut Features) {
    let pattern = || Pattern::new("v.*", false).unwrap();
    features.error_pages = Some(Box::new(ErrorPages {
        upstream: key(1),
        codes: Entries::new(vec![Number::of(404)]).unwrap(),
        replaces_endpoints: true,
        serves_empty: true,
        service_port: Some("80".into()),
    }));
    let rewrite = |from| vec![TextRewrite { from, to: "/$1".into() }];
    features.response_rewrite = Some(Box::new(ResponseRewrite {
        cookie_domains: rewrite(RewriteFrom::Literal("inner".into())),
        cookie_paths: rewrite(RewriteFrom::Regex(pattern())),
        locations: rewrite(RewriteFrom::Literal("http://inner/".into())),
    }));
    features.endpoint_form = EndpointForm {
        is_http10: true,
        connection: Some(HeaderValue::of("close")),
        nginx: Some(NginxForwarding { is_full: true }),
        states_length: true,
    };
    features.limits.response_head = Some(Size::of(4096));
    features.limits.replay = Some(Size::of(4096));
    features.hsts = Some(Hsts { max_age: Duration::from_secs(60), include_subdomains: true, preload: true });
    features.unrecorded = Unrecorded { access_log: true, traces: true };
    features.spans = Spans { ignores_callers: true, name: Some(Template::new("$request_method").unwrap()) };
    features.secure_upstream = Some(key(1));
    let conditions = RetryConditions {
        error: true,
        timeout: true,
        invalid_head: true,
        non_idempotent: true,
        within: Some(Span::of_millis(9000)),
    };
    features.retries.as_mut().unwrap().conditions = Some(conditions);
    let split = features.split.as_mut().unwrap();
    split.skips_empty = true;
    let mut backend = split.backends[0].clone();
    let mut never = backend.matches[0].clone();
    (never.value, never.pattern, never.refuses) = (None, Some(pattern()), true);
    backend.matches = Entries::new(vec![backend.matches[0].clone(), never]).unwrap();
    split.backends = Entries::new(vec![backend]).unwrap();
    features.load_balancing.affinity.as_mut().unwrap().nginx = Some(Box::new(NginxSession {
        mode: SessionMode::Persistent,
        changes_on_failure: true,
        domain: Some(CookieDomain::of(".a.example")),
        expires: Some(-1),
        max_age: Some(2),
        same_site: Some(SameSite::Strict),
        is_none_conditional: true,
        secure: Some(false),
    }));
    let mut mirrors: Vec<_> = features.mirrors.to_vec();
    mirrors[0].form = Some(Box::new(MirrorForm {
        target: Template::new("$request_uri").unwrap(),
        host: HeaderValue::of("mirror.example"),
        drops_body: true,
    }));
    features.mirrors = Entries::new(mirrors).unwrap();
}

/// Cross-origin requests as ingress-nginx handles them.
fn nginx_cors() -> NginxCors {
    NginxCors {
        methods: HeaderValue::of("GET"),
        headers: HeaderValue::of("X-A"),
        exposed: Some(HeaderValue::of("X-B")),
        max_age: 3,
    }
}

/// Policies with the other methods of requests to an authorization service.
fn other_security() -> [Security; 6] {
    ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"].map(|method| Security {
        authentication: Some(valid(
            json!({"extAuth": {"url": "http://auth/", "method": method}, "require": if method == "HEAD" { "Optional" } else { "Any" }}),
        )),
        authorization: None,
        cors: None,
        refuses: None,
        id: id("SecurityPolicy", method),
        ..security()
    })
}

fn oidc() -> Oidc {
    let endpoints = json!({
        "authorization": "https://login.example/auth", "token": "https://login.example/token",
        "jwks": "https://login.example/keys", "endSession": "https://login.example/logout",
    });
    let oidc = json!({
        "issuer": "https://login.example", "endpoints": endpoints, "clientId": "shop",
        "clientAuthentication": "Post", "cookieSecretRef": {"name": "replaced"}, "scopes": ["openid", "email"],
        "redirectPath": "/back", "logoutPath": "/out", "postLogoutPath": "/bye", "cookieDomain": "shop.example",
        "sessionLifetime": "1h", "claimToHeaders": [{"claim": "sub", "header": "x-user"}],
        "forwardAccessToken": true, "idTokenHeader": "x-id-token", "clockSkew": "1s", "timeout": "1s",
        "loginParameters": [{"name": "prompt", "value": "login"}],
    });
    Oidc {
        ca_certificate_ref: certificate(),
        client_secret_ref: KeyBytes::new([1, 2]).map(FromSecret::Value),
        cookie_secret_ref: FromSecret::Value(
            CookieKeys::new(KeyBytes::new([3]).into_iter().collect()).expect("one"),
        ),
        ..valid(oidc)
    }
}

fn introspection() -> Introspection {
    let introspection = json!({
        "url": "https://login.example/introspect", "clientId": "shop", "clientSecretRef": {"name": "replaced"},
        "clientAuthentication": "Basic", "from": credentials(), "forward": false,
        "issuer": "https://login.example", "audiences": ["shop"], "requiredClaims": [claim()],
        "claimToHeaders": [{"claim": "sub", "header": "x-user"}], "timeout": "1s",
        "cache": {"active": "1s", "inactive": "2s"},
    });
    Introspection {
        ca_certificate_ref: certificate(),
        client_secret_ref: FromSecret::Value(KeyBytes::new([1, 2]).expect("bytes")),
        ..valid(introspection)
    }
}

fn combinations() -> Vec<Combination> {
    let place = Credential::Query(valid(json!("key")));
    let needs = vec![
        Need::ApiKey(Some(place)),
        Need::Password,
        Need::Token,
        Need::TokenOrSession,
        Need::ClientCertificate,
        Need::Service,
    ];
    vec![Combination { needs, scopes: vec![valid(json!("read write"))] }]
}

fn security() -> Security {
    let cors = json!({
        "allowOrigins": ["*", "https://a.example", "https://*.example.com"], "allowMethods": ["PUT"],
        "allowHeaders": ["x-request"], "exposeHeaders": ["x-response"], "maxAge": "5s",
    });
    let users = vec![pair("alice", "{SHA}x")];
    let authentication = Authentication {
        require: Require::All,
        consumers: Some(valid(json!({"namespaces": ["shop"]}))),
        jwt: Some(jwt()),
        api_key: Some(valid(json!({"from": credentials(), "forward": true}))),
        basic: Some(Basic {
            secret_ref: FromSecret::Value(users),
            realm: Realm::of("shop"),
            forward: true,
            without_charset: true,
        }),
        ext_auth: Some(Arc::new(ext_auth())),
        digest: Some(Digest {
            users: FromSecret::Value(vec![pair("alice", "0123")]),
            realm: Realm::of("shop"),
            forward: true,
        }),
        oidc: Some(Arc::new(oidc())),
        introspection: Some(Arc::new(introspection())),
        required_scopes: valid(json!(["read", "admin write"])),
        combinations: combinations(),
    };
    let rule = json!({
        "action": "Allow", "consumers": ["shop/alice"], "groups": ["gold"], "claims": [claim()], "methods": ["GET"],
        "paths": [{"type": "Prefix", "value": "/admin"}, {"type": "Exact", "value": "/x"}],
        "addresses": ["192.0.2.1/32"],
    });
    let authorization = json!({"defaultAction": "Deny", "rules": [rule]});
    Security {
        id: id("SecurityPolicy", "full"),
        refuses: Some("it cannot be honoured".into()),
        ip_access: valid(json!({"allow": ["10.0.0.0/8"], "deny": ["10.1.0.0/16"]})),
        cors: Some(Cors { nginx: Some(Box::new(nginx_cors())), ..valid(cors) }),
        authentication: Some(authentication),
        authorization: Some(valid(authorization)),
        forward_overrides: true,
        inherits: vec![id("SecurityPolicy", "gateway")],
        filters: filters(),
        satisfies_any: true,
    }
}

fn rate_limits() -> RateLimits {
    let limit = |name: &str, more: Value| {
        let mut limit = json!({
            "name": name, "requests": 10, "groups": ["gold"], "dryRun": true, "statusCode": 503,
            "key": [
                {"type": "Address", "ipv6PrefixLength": 64}, {"type": "Header", "name": "x-tenant"},
                {"type": "Claim", "name": "sub"}, {"type": "Consumer"}, {"type": "Route"},
            ],
        });
        if let (Some(limit), Value::Object(more)) = (limit.as_object_mut(), more) {
            limit.extend(more);
        }
        limit
    };
    let redis = Redis {
        address: valid(json!("redis:6379")),
        username: Some(valid(json!("gateway"))),
        password: Some([1, 2].into()),
        tls: Some(RedisTls { server_name: "redis".into(), authorities: vec![vec![1].into()] }),
        database: valid(json!(1)),
        prefix: valid(json!("shop")),
        interval: valid(json!("20ms")),
        timeout: valid(json!("50ms")),
    };
    RateLimits {
        id: id("RateLimitPolicy", "full"),
        limits: vec![
            valid(limit("bucket", json!({"per": "1s", "burst": 20}))),
            valid(limit("sliding", json!({"per": "1s", "algorithm": "SlidingWindow"}))),
        ],
        concurrency: vec![valid(limit("in-flight", json!({})))],
        headers: true,
        shared: Some(Shared::Redis(Arc::new(redis))),
        exempt: valid(json!(["192.0.2.0/24"])),
    }
}

fn subscriptions() -> Subscriptions {
    let quota = |more: Value| {
        let mut quota = json!({"name": "month"});
        if let (Some(quota), Value::Object(more)) = (quota.as_object_mut(), more) {
            quota.extend(more);
        }
        valid(quota)
    };
    let states = [
        SubscriptionState::Active,
        SubscriptionState::Pending,
        SubscriptionState::Suspended,
        SubscriptionState::Invalid,
    ];
    let subscription = |(index, state)| Subscription {
        id: id("Subscription", &format!("s{index}")),
        consumer: id("Consumer", &format!("c{index}")),
        plan: 0,
        state,
    };
    let calendars = ["Hour", "Day", "Week", "Month", "Year"];
    let calendars = calendars
        .iter()
        .map(|unit| quota(json!({"requests": 1_000_000, "calendar": unit, "timeZone": "Europe/Berlin"})));
    Subscriptions {
        id: id("Api", "full"),
        required: true,
        plans: vec![Plan {
            limits: RateLimits { id: id("Plan", "gold"), ..rate_limits() },
            quotas: calendars.chain([quota(json!({"bytes": "10Gi", "period": "24h"}))]).collect(),
            x_headers: true,
        }],
        subscriptions: states.into_iter().enumerate().map(subscription).collect(),
    }
}

fn traffic() -> Traffic {
    let edits = json!({
        "set": [{"name": "x-set", "value": "1"}], "add": [{"name": "x-add", "value": "2"}], "remove": ["x-gone"],
    });
    let features = json!({
        "timeouts": {
            "request": "1ms", "backendRequest": "7ms", "connect": "2ms", "response": "3ms", "idle": "4ms",
            "requestBody": "5ms", "tunnel": "6ms",
        },
        "retries": {"attempts": 2, "codes": [502, 503], "budget": {"percent": 20, "minPerSecond": 1}, "backoff": "8ms"},
        "limits": {"requestBody": "1Mi", "responseBody": "1024Gi"},
        "requestHeaders": edits,
        "responseHeaders": edits,
        "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "value": "/v2"}, "hostname": "backend"},
        "redirect": {
            "scheme": "https", "hostname": "b.example", "port": 8443, "statusCode": 308,
            "path": {"type": "ReplaceFullPath", "value": "/there"},
        },
        "fault": {"delay": {"percent": 1, "time": "10ms"}, "abort": {"percent": 2, "statusCode": 503}},
        "split": {"weight": 90, "backends": [{
            "serviceRef": {"name": "other", "port": 80}, "weight": 10,
            "match": [{"header": "x-canary", "value": "always"}],
            "exclude": [{"cookie": "stable", "value": "always"}],
        }]},
        "loadBalancing": {
            "algorithm": "ConsistentHash",
            "hash": [
                {"type": "Address"}, {"type": "Header", "name": "x-user"}, {"type": "Cookie", "name": "user"},
                {"type": "Query", "name": "user"},
            ],
            "affinity": {
                "cookie": "affinity", "maxAge": "1m", "path": "/a", "absoluteTimeout": "1h", "idleTimeout": "5m",
                "overWeights": true,
            },
        },
        "mirror": {"serviceRef": {"name": "other", "port": 80}, "percent": 5},
        "cache": {
            "maxSize": "1Mi", "maxResponseSize": "256Ki", "defaultTime": "1s", "staleIfError": "5s",
            "key": {"headers": ["accept-language"]},
        },
        "bandwidth": {"perSecond": "100Ki", "after": "1Mi"},
    });
    let mut traffic = Traffic {
        inherits: vec![id("TrafficPolicy", "gateway")],
        features: valid(features),
        ..Traffic::new(id("TrafficPolicy", "full"))
    };
    // Rules of Gateway API have several mirrors.
    let mirrors = traffic.features.mirrors.iter().cycle().take(2).cloned().collect();
    traffic.features.mirrors = Entries::new(mirrors).unwrap();
    for upstream in traffic.features.upstreams_mut() {
        *upstream = key(1);
    }
    annotate(&mut traffic.features);
    annotate_responses(&mut traffic.features);
    traffic
}

/// Sets the features that only annotations of ingress-nginx set.
fn annotate(features: &mut Features) {
    let template = |text: &str| Template::new(text).unwrap();
    let pattern = |text: &str| Pattern::new(text, true).unwrap();
    let header = |value| TemplateHeader { name: AnnotatedHeader::of("X-Forwarded-Proto"), value };
    let rewrite = TargetRewrite { pattern: pattern("/a(.*)"), target: template("/b$1"), continues: true };
    features.url_rewrite.targets = Entries::new(vec![rewrite]).unwrap();
    features.url_rewrite.host = Some(template("$service_name.internal"));
    features.load_balancing.hash_text = Some(template("$request_uri"));
    features.load_balancing.hash_subset = Some(Number::of(3));
    let condition = |test| Condition { subject: template("$host"), test, is_negated: true };
    let conditions = vec![
        condition(Test::Equals("a".into())),
        condition(Test::Matches(pattern("a"))),
        condition(Test::IsSet),
        condition(Test::Since(7)),
    ];
    let location = Location { url: template("https://$host"), is_relative: true, has_port: true };
    let body = Body { text: template("$uri"), media_type: MediaType::of("text/html") };
    let response = |conditions, content| Return {
        conditions: Entries::new(conditions).unwrap(),
        status_code: Number::of(308),
        content: Some(content),
    };
    let returns =
        vec![response(conditions, Content::Location(location)), response(Vec::new(), Content::Body(body))];
    features.returns = Entries::new(returns).unwrap();
    let modes = [
        ResponseHeaderMode::Add,
        ResponseHeaderMode::AddAlways,
        ResponseHeaderMode::Set,
        ResponseHeaderMode::SetIfSuccess,
    ];
    let of_mode = |mode| ResponseHeader { header: header(template("$arg_a")), mode };
    features.template_headers = Some(TemplateHeaders {
        request: Entries::new(vec![header(template("$scheme"))]).unwrap(),
        response: Entries::new(modes.map(of_mode).into()).unwrap(),
    });
}

/// Traffic policies with the variants that [`traffic`] lacks.
fn other_traffic() -> [Traffic; 4] {
    let response = json!({"statusCode": 503, "contentType": "text/plain", "body": "closed for today"});
    [
        json!({
            "directResponse": response,
            "loadBalancing": {"algorithm": "ConsistentHash", "hash": [{"type": "Path"}]},
        }),
        json!({"redirect": {"scheme": "http"}, "loadBalancing": {"algorithm": "ResponseTime"}}),
        json!({
            "urlRewrite": {"regex": {"pattern": "^/a/(.*)$", "value": "/b/$1"}},
            "loadBalancing": {"algorithm": "RoundRobin"},
        }),
        json!({"loadBalancing": {"algorithm": "LeastRequest"}}),
    ]
    .map(|features| {
        let mut features: Features = valid(features);
        let same_site = match &features.load_balancing.algorithm {
            Some(LoadBalancingAlgorithm::RoundRobin) => Some(SameSite::None),
            Some(LoadBalancingAlgorithm::LeastRequest) => Some(SameSite::Lax),
            _ => None,
        };
        features.load_balancing.affinity = same_site.map(|same_site| Affinity {
            nginx: Some(Box::new(NginxSession { same_site: Some(same_site), ..NginxSession::default() })),
            ..valid(json!({"cookie": "s"}))
        });
        Traffic { features, ..Traffic::new(id("TrafficPolicy", "other")) }
    })
}
