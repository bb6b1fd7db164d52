//! A strategy for arbitrary configurations.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::IpNet;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use sluicegate_model::access_log::{AccessLogSettings, LogEscape, LogFormat};
use sluicegate_model::contract::{
    Example, MediaContract, OperationContract, Parameter, ParameterPlace, ParameterStyle, PartContract,
    ResponseContract, StatusRange,
};
use sluicegate_model::feature::compression::{Levels, MediaRange};
use sluicegate_model::feature::{BackendFeatures, RetryConstraint, Validation, ValidationMode};
use sluicegate_model::rule::{
    ApiChecks, ApiOperation, Backend, HeaderMatch, HttpsRedirect, PathMatch, Pattern, QueryMatch, RuleMatch,
    ValueMatch,
};
use sluicegate_model::settings::{Limits, Resilience, Timeouts};
use sluicegate_model::tls::{Hsts, Http3, PrivateKey, TicketSecret, TlsSettings, TlsVersion, UnknownNames};
use sluicegate_model::value::CipherSuites;
use sluicegate_model::value::{Number, Span, Url};
use sluicegate_model::*;

use super::policy::{consumer, rate_limits, security, subscriptions};
use super::traffic::{affinity, edits, ejection, health_check, number, object, traffic, url_rewrite, valid};

pub(super) fn text() -> impl Strategy<Value = String> {
    "[a-z0-9-]{1,8}"
}

fn host() -> impl Strategy<Value = HostPattern> {
    prop_oneof![
        text().prop_map(|name| HostPattern::Exact(name.into())),
        text().prop_map(|name| HostPattern::Wildcard(name.into())),
        text().prop_map(|name| HostPattern::Suffix(name.into())),
        Just(HostPattern::Any),
    ]
}

pub(super) fn path() -> impl Strategy<Value = PathPattern> {
    ("/[a-z/]{0,8}", 0..3).prop_map(|(path, kind)| match kind {
        0 => PathPattern::Exact(path.into()),
        1 => PathPattern::Prefix(path.into()),
        _ => PathPattern::Starts(path.into()),
    })
}

pub(super) fn id() -> impl Strategy<Value = ObjectId> {
    let kind = prop::sample::select(vec!["Ingress", "Gateway", "TCPRoute", "HTTPRoute"]);
    (kind, text(), text()).prop_map(|(kind, namespace, name)| ObjectId {
        kind,
        namespace: namespace.into(),
        name: name.into(),
    })
}

fn transport() -> impl Strategy<Value = Transport> {
    let protocol = prop::sample::select(vec![Protocol::Http, Protocol::Http2, Protocol::Tcp, Protocol::Udp]);
    let tls = (text(), any::<bool>(), any::<bool>(), vec(option::of(text()), 2)).prop_map(|mut tls| {
        Arc::new(TransportTls {
            server_name: tls.0.into(),
            sends_name: tls.1,
            verifies: tls.2,
            secret: tls.3[0].take().map(Into::into),
            policy: tls.3[1].take().map(Into::into),
            ciphers: if tls.1 { CipherSuites::new("AESGCM").unwrap() } else { CipherSuites::default() },
            depth: tls.2.then_some(3),
        })
    });
    let transport = (protocol, option::of(tls), any::<bool>(), any::<bool>());
    transport.prop_map(|(protocol, tls, is_cluster_ip, sends_proxy)| Transport {
        protocol,
        tls,
        is_cluster_ip,
        sends_proxy,
    })
}

pub(super) fn key() -> impl Strategy<Value = UpstreamKey> {
    (text(), text(), text(), transport()).prop_map(|(namespace, service, port, transport)| UpstreamKey {
        transport,
        ..UpstreamKey::new(namespace, service, port)
    })
}

fn codings() -> impl Strategy<Value = Codings> {
    vec(prop::sample::select(ContentCoding::ALL.to_vec()), 0..3).prop_map(Codings::from_iter)
}

fn ders() -> impl Strategy<Value = Vec<Vec<u8>>> {
    vec(vec(any::<u8>(), 0..20), 0..3)
}

fn into<F, T: From<F>>(from: Vec<F>) -> Vec<T> {
    from.into_iter().map(T::from).collect()
}

fn client_auth() -> impl Strategy<Value = Arc<ClientAuth>> {
    let mode = prop::sample::select(vec![
        ClientAuthMode::Required,
        ClientAuthMode::Optional,
        ClientAuthMode::OptionalNoCa,
    ]);
    let check = (any::<u8>(), option::of("CN=[a-z]{1,8}"), option::of("https://[a-z]{1,8}/")).prop_map(
        |(depth, subject, page)| {
            let subject = subject.map(|text| Pattern::new(text, false).expect("an expression"));
            ClientCheck { depth, subject, error_page: page.map(|page| Url::of(&page)) }
        },
    );
    (text(), ders(), ders(), mode, any::<bool>(), option::of(check)).prop_map(
        |(source, roots, crls, mode, forward, at_requests)| {
            Arc::new(ClientAuth {
                source: source.into(),
                roots: into(roots),
                crls: into(crls),
                mode,
                forward,
                at_requests,
            })
        },
    )
}

fn certificate() -> impl Strategy<Value = Arc<Certificate>> {
    let key = (vec(any::<u8>(), 0..40), 0..3).prop_map(|(key, format)| match format {
        0 => PrivateKeyDer::Pkcs8(key.into()),
        1 => PrivateKeyDer::Pkcs1(key.into()),
        _ => PrivateKeyDer::Sec1(key.into()),
    });
    let kind = prop::sample::select(vec![KeyKind::Ecdsa, KeyKind::Ed25519, KeyKind::Rsa]);
    let chain = vec(vec(any::<u8>(), 0..20), 1..3);
    let time = (0..4_000_000_000_u64, 0..1_000_000_000_u64).prop_map(|(seconds, nanos)| {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(nanos)
    });
    (text(), chain, key, kind, vec(host(), 0..3), time.clone(), time).prop_map(
        |(source, chain, key, key_kind, names, not_before, not_after)| {
            Arc::new(Certificate {
                source: source.into(),
                chain: into(chain),
                key: PrivateKey(key),
                key_kind,
                names,
                not_before,
                not_after,
            })
        },
    )
}

fn route() -> impl Strategy<Value = Rule> {
    let policies = (
        option::of(security().boxed()),
        option::of(rate_limits()),
        option::of(traffic()),
        option::of(subscriptions()),
    );
    let matches = vec(rule_match(), 1..3);
    (
        id(),
        matches,
        vec(backend(), 0..3),
        (any::<bool>(), https_redirect(), option::of(api().prop_map(Box::new)).boxed()),
        option::of(client_auth()),
        option::of(codings()),
        policies,
    )
        .prop_map(
            |(
                id,
                matches,
                backends,
                (https_only, https_redirect, api),
                client_auth,
                compression,
                (security, rate_limits, traffic, subscriptions),
            )| {
                Rule {
                    id,
                    matches,
                    backends,
                    https_only,
                    https_redirect,
                    api,
                    client_auth,
                    compression,
                    security,
                    rate_limits,
                    traffic,
                    subscriptions,
                }
            },
        )
}

fn api() -> impl Strategy<Value = ApiOperation> {
    let operation = option::of("[a-zA-Z /{}]{1,9}");
    let media_types = vec("[a-z]{1,5}/[a-z*]{1,5}", 0..3);
    let checks = option::of(checks().prop_map(Box::new)).boxed();
    ("[0-9.]{0,5}", "[a-z]{1,5}", operation, media_types, checks).prop_map(
        |(version, environment, operation, media_types, checks)| ApiOperation {
            version: version.into(),
            environment: environment.into(),
            operation: operation.map(Into::into),
            media_types: media_types.into_iter().map(Into::into).collect(),
            checks,
        },
    )
}

fn checks() -> impl Strategy<Value = ApiChecks> {
    let mode = || {
        let modes = [ValidationMode::Disabled, ValidationMode::Report, ValidationMode::Enforce];
        option::of(prop::sample::select(modes.to_vec()))
    };
    let status = option::of(number(400..=499).prop_map(valid));
    let limit = option::of(number(1..=1 << 24).prop_map(|bytes| valid(bytes.to_string().into())));
    let validation = (mode(), mode(), status, limit).prop_map(|(request, response, status, body_limit)| {
        Validation { request, response, status, body_limit }
    });
    (contract().boxed(), validation, any::<bool>(), any::<bool>()).prop_map(
        |(contract, validation, is_mocked, is_closed)| ApiChecks {
            contract: Arc::new(contract),
            validation,
            is_mocked,
            is_closed,
        },
    )
}

fn contract() -> impl Strategy<Value = ApiContract> {
    let example = (option::of(text()), text())
        .prop_map(|(name, value)| Example { name: name.map(Into::into), value: value.into() });
    let places =
        vec![ParameterPlace::Path, ParameterPlace::Query, ParameterPlace::Header, ParameterPlace::Cookie];
    let styles = vec![
        ParameterStyle::Simple,
        ParameterStyle::Label,
        ParameterStyle::Matrix,
        ParameterStyle::Form,
        ParameterStyle::SpaceDelimited,
        ParameterStyle::PipeDelimited,
        ParameterStyle::DeepObject,
        ParameterStyle::Json,
    ];
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let (places, styles) = (prop::sample::select(places), prop::sample::select(styles));
    let parameter = (text(), places, styles, flags, option::of(any::<u32>())).prop_map(
        |(name, place, style, (is_required, explodes, allows_empty), schema)| Parameter {
            name: name.into(),
            place,
            is_required,
            style,
            explodes,
            schema,
            allows_empty,
        },
    );
    let parameter = parameter.boxed();
    let body = (
        "[a-z]{1,5}/[a-z*]{1,5}",
        option::of(any::<u32>()),
        vec(example, 0..2),
        vec(parameter.clone(), 0..2),
        vec((text(), vec(text(), 0..2)), 0..2),
    )
        .prop_map(|(media_type, schema, examples, fields, parts)| MediaContract {
            media_type: media_type.into(),
            schema,
            examples,
            fields,
            parts: parts
                .into_iter()
                .map(|(name, media_types)| PartContract { name: name.into(), media_types })
                .collect(),
        })
        .boxed();
    let status = prop_oneof![
        (100_u16..600).prop_map(StatusRange::Code),
        (1_u8..6).prop_map(StatusRange::Class),
        Just(StatusRange::Default),
    ];
    let response = (status, vec(body.clone(), 0..2), vec(parameter.clone(), 0..2))
        .prop_map(|(status, bodies, headers)| ResponseContract { status, bodies, headers });
    let operation = (text(), vec(parameter, 0..3), any::<bool>(), vec(body, 0..2), vec(response, 0..3))
        .prop_map(|(id, parameters, requires_body, bodies, responses)| OperationContract {
            id: id.into(),
            parameters,
            requires_body,
            bodies,
            responses,
        });
    (text(), vec(operation, 0..3), any::<bool>()).prop_map(|(schemas, operations, has_mocks)| ApiContract {
        schemas: schemas.into(),
        operations,
        has_mocks,
    })
}

fn https_redirect() -> impl Strategy<Value = HttpsRedirect> {
    (number(301..=308).prop_map(valid), any::<bool>())
        .prop_map(|(status, strips_slash)| HttpsRedirect { status, strips_slash })
}

fn backend() -> impl Strategy<Value = Backend> {
    let features = object([
        ("requestHeaders", edits()),
        ("responseHeaders", edits()),
        ("urlRewrite", url_rewrite()),
        ("affinity", affinity()),
    ])
    .prop_map(|fields| {
        let edits = |name: &str| fields.get(name).map(|edits| valid(edits.clone())).unwrap_or_default();
        let features = BackendFeatures {
            request_headers: edits("requestHeaders"),
            response_headers: edits("responseHeaders"),
            url_rewrite: fields.get("urlRewrite").map(|of| valid(of.clone())).unwrap_or_default(),
            affinity: fields.get("affinity").map(|of| valid(of.clone())),
        };
        Box::new(features)
    });
    (key(), number(0..=1_000_000).prop_map(valid), option::of(features), any::<bool>()).prop_map(
        |(upstream, weight, features, is_invalid)| Backend { upstream, weight, features, is_invalid },
    )
}

fn rule_match() -> impl Strategy<Value = RuleMatch> {
    let pattern = || {
        ("[a-z/]{1,6}", any::<bool>())
            .prop_map(|(text, ignores_case)| Pattern::new(text, ignores_case).unwrap())
    };
    let value = || {
        prop_oneof![
            text().prop_map(|text| ValueMatch::Exact(text.into())),
            pattern().prop_map(ValueMatch::Regex),
            Just(ValueMatch::Present),
        ]
    };
    let headers =
        vec((text(), value()).prop_map(|(name, value)| HeaderMatch { name: name.into(), value }), 0..2);
    let query =
        vec((text(), value()).prop_map(|(name, value)| QueryMatch { name: name.into(), value }), 0..2);
    let path = prop_oneof![
        path().prop_map(PathMatch::Literal),
        pattern().prop_map(PathMatch::Regex),
        "(/[a-c]{1,3}){0,2}/\\{[a-c]{1,3}\\}(/[a-c]{1,3}){0,2}"
            .prop_map(|text| PathMatch::Template(PathTemplate::new(&text).expect("a path with a variable"))),
    ];
    (any::<u32>(), path, option::of(text().prop_map(Into::into)), headers, query).prop_map(
        |(precedence, path, method, headers, query)| RuleMatch { precedence, path, method, headers, query },
    )
}

fn virtual_host() -> impl Strategy<Value = Arc<VirtualHost>> {
    let rules = (vec(route(), 0..3), option::of(route()));
    (host(), rules, entry_point(), option::of(security().boxed()), any::<[bool; 2]>()).prop_map(
        |(host, (rules, fallback), entry_point, filters, [continues, decodes_slashes])| {
            Arc::new(VirtualHost { host, rules, fallback, entry_point, filters, continues, decodes_slashes })
        },
    )
}

fn entry_point() -> impl Strategy<Value = EntryPoint> {
    prop_oneof![
        Just(EntryPoint::Flags),
        Just(EntryPoint::FlagsHttp),
        Just(EntryPoint::FlagsHttps),
        text().prop_map(|name| EntryPoint::Gateway(name.into())),
    ]
}

fn address() -> impl Strategy<Value = SocketAddr> {
    (any::<std::net::IpAddr>(), any::<u16>(), 0..3_u32).prop_map(|(ip, port, scope)| {
        let mut address = SocketAddr::new(ip, port);
        if let SocketAddr::V6(address) = &mut address {
            address.set_scope_id(scope);
        }
        address
    })
}

fn layer4_route() -> impl Strategy<Value = Layer4Route> {
    let backend = (key(), any::<u32>()).prop_map(|(upstream, weight)| WeightedUpstream { upstream, weight });
    (id(), vec(backend, 0..3)).prop_map(|(id, backends)| Layer4Route { id, backends })
}

fn tls_route() -> impl Strategy<Value = TlsRoute> {
    (host(), layer4_route(), entry_point()).prop_map(|(host, route, entry_point)| TlsRoute {
        host,
        route,
        entry_point,
    })
}

fn listener() -> impl Strategy<Value = Listener> {
    let serves = prop_oneof![
        option::of(layer4_route()).prop_map(Serves::Tcp),
        option::of(layer4_route()).prop_map(Serves::Udp),
        vec(tls_route(), 0..3).prop_map(Serves::Tls),
        text().prop_map(|name| Serves::Http(name.into())),
        text().prop_map(|name| Serves::Https(name.into())),
    ];
    let proxy_header =
        prop_oneof![Just(ProxyHeader::ByPeer), Just(ProxyHeader::Always), Just(ProxyHeader::Never)];
    let listener = (id(), text(), address(), serves, proxy_header, any::<Option<u16>>());
    listener.prop_map(|(object, name, address, serves, proxy_header, client_port)| Listener {
        id: ListenerId { object, name: name.into() },
        address,
        serves,
        planes: Planes::Shared,
        proxy_header,
        client_port,
    })
}

fn tls_host() -> impl Strategy<Value = Arc<TlsHost>> {
    let relay = option::of(layer4_route());
    (host(), vec(certificate(), 0..3), option::of(client_auth()), entry_point(), relay).prop_map(
        |(host, certificates, client_auth, entry_point, relay)| {
            let ciphers =
                if relay.is_some() { CipherSuites::new("ECDSA").unwrap() } else { CipherSuites::default() };
            Arc::new(TlsHost { host, certificates, client_auth, entry_point, relay, ciphers })
        },
    )
}

fn tls() -> impl Strategy<Value = Arc<Tls>> {
    let secret = vec(any::<u8>(), TicketSecret::MIN..50).prop_map(|secret| TicketSecret(secret.into()));
    let acme_host = (text(), text(), option::of(certificate())).prop_map(|(host, thumbprint, challenge)| {
        Arc::new(AcmeHost { host: host.into(), thumbprint: thumbprint.into(), challenge })
    });
    let tls = (
        vec(tls_host(), 0..4),
        vec(tls_route(), 0..3),
        vec(acme_host, 0..3),
        vec(certificate(), 0..3),
        vec(secret, 0..3),
    );
    tls.prop_map(|(hosts, passthrough, acme, default, ticket_secrets)| {
        Arc::new(Tls { hosts, passthrough, acme, default, ticket_secrets })
    })
}

pub(super) fn endpoints() -> impl Strategy<Value = Arc<[Endpoint]>> {
    let endpoint =
        (address(), any::<(bool, bool, bool)>()).prop_map(|(address, (ready, serving, terminating))| {
            Endpoint { address, conditions: Conditions { ready, serving, terminating } }
        });
    vec(endpoint, 0..4).prop_map(Into::into)
}

fn health() -> impl Strategy<Value = Option<Arc<Health>>> {
    (option::of(ejection()), option::of(health_check())).prop_map(|(ejection, check)| {
        let has_any = ejection.is_some() || check.is_some();
        has_any.then(|| Arc::new(Health { ejection, check }))
    })
}

fn upstream() -> impl Strategy<Value = Arc<Upstream>> {
    let balance = prop::sample::select(vec![Balance::Ewma, Balance::RoundRobin, Balance::LeastRequest]);
    let limits = (any::<Option<u32>>(), any::<Option<u32>>())
        .prop_map(|limits| UpstreamLimits { max_requests: limits.0, max_requests_per_endpoint: limits.1 });
    let authorities = option::of(option::of((ders(), ders())));
    let name = prop_oneof![
        text().prop_map(|name| AlternativeName::Dns(name.into())),
        text().prop_map(|name| AlternativeName::Uri(name.into())),
    ];
    let names = option::of(vec(name, 0..3));
    let tls = (text(), any::<bool>(), authorities, option::of(certificate()), names).prop_map(
        |(server_name, sends_name, authorities, identity, alternative_names)| {
            let verification = match authorities {
                None => Verification::None,
                Some(None) => Verification::WellKnown,
                Some(Some((roots, crls))) => {
                    Verification::Authorities { roots: into(roots), crls: into(crls) }
                }
            };
            let depth = sends_name.then_some(4);
            let ciphers =
                if sends_name { CipherSuites::new("AES").unwrap() } else { CipherSuites::default() };
            Arc::new(UpstreamTls {
                server_name: server_name.into(),
                sends_name,
                verification,
                identity,
                alternative_names,
                ciphers,
                depth,
            })
        },
    );
    let proxy_protocol = option::of(prop::sample::select(vec![ProxyProtocol::V1, ProxyProtocol::V2]));
    let settings = (balance, limits, option::of(text()), option::of(tls), proxy_protocol);
    (settings, health(), option::of(retry_constraint()), endpoints()).prop_map(
        |(settings, health, retry_constraint, endpoints)| {
            let (balance, limits, external_name, tls, proxy_protocol) = settings;
            let external_name = external_name.map(Into::into);
            Arc::new(Upstream {
                balance,
                limits,
                external_name,
                tls,
                proxy_protocol,
                health,
                retry_constraint,
                endpoints,
            })
        },
    )
}

fn retry_constraint() -> impl Strategy<Value = RetryConstraint> {
    (0..=100_i64, 1000..=3_600_000_u64, 0..=1_000_000_i64, 1..=3_600_000_u64).prop_map(
        |(percent, interval, min_retries, min_interval)| RetryConstraint {
            percent: Number::of(percent),
            interval: Span::of_millis(interval),
            min_retries: Number::of(min_retries),
            min_interval: Span::of_millis(min_interval),
        },
    )
}

pub(super) fn time() -> impl Strategy<Value = Duration> {
    (0..365 * 24 * 3600 * 1_000_000_000_u64).prop_map(Duration::from_nanos)
}

fn timeouts() -> impl Strategy<Value = Timeouts> {
    (vec(time(), 15), option::of(time())).prop_map(|(times, connection_age)| Timeouts {
        tls_handshake: times[0],
        proxy_protocol: times[1],
        request_head: times[2],
        request_body: times[3],
        client_idle: times[4],
        client_write: times[5],
        connect: times[6],
        response_head: times[7],
        upstream_idle: times[8],
        pool_idle: times[9],
        tunnel_idle: times[10],
        udp_idle: times[11],
        drain: times[12],
        request_body_grace: times[13],
        request_body_total: times[14],
        connection_age,
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    (vec(0..1_usize << 40, 10), 1..=256_usize, any::<(Option<u64>, Option<u64>)>(), vec(0..1_u32 << 31, 3))
        .prop_map(|(sizes, headers, bodies, windows)| Limits {
            client_hello: sizes[0],
            request_head: sizes[1],
            response_head: sizes[2],
            headers,
            request_body: bodies.0,
            requests_per_connection: bodies.1,
            http2_streams: windows[0],
            http2_stream_window: windows[1],
            http2_connection_window: windows[2],
            connections_per_worker: sizes[3],
            udp_flows_per_worker: sizes[4],
            pool_per_endpoint: sizes[5],
            replay: sizes[6],
            compressions_per_worker: sizes[7],
            request_body_rate: sizes[8] as u64,
            stalled_uploads_per_endpoint: sizes[9],
        })
}

fn resilience() -> impl Strategy<Value = Resilience> {
    (any::<u32>(), vec(time(), 6), 0..=100_u8).prop_map(|(attempts, times, panic_threshold_percent)| {
        Resilience {
            attempts,
            connect_hedge: times[0],
            endpoint_wait: times[1],
            unacknowledged: times[2],
            slow_start: times[3],
            panic_threshold_percent,
            probe_interval: times[4],
            probe_interval_max: times[5],
        }
    })
}

fn compression() -> impl Strategy<Value = Compression> {
    let types = vec(prop::sample::select(vec!["text/html", "image/*", "*/*"]), 0..3);
    (codings(), types, any::<u64>(), 1_i64..=9, 1_i64..=4, 1_i64..=9).prop_map(
        |(codings, types, min_length, gzip, brotli, zstd)| Compression {
            codings,
            types: types.iter().map(|range| range.parse::<MediaRange>().unwrap()).collect(),
            min_length,
            levels: Levels { gzip: Number::of(gzip), brotli: Number::of(brotli), zstd: Number::of(zstd) },
        },
    )
}

fn tls_settings() -> impl Strategy<Value = TlsSettings> {
    let version = prop::sample::select(vec![TlsVersion::Tls12, TlsVersion::Tls13]);
    let names = prop::sample::select(vec![UnknownNames::Default, UnknownNames::Refuse]);
    let hsts = (time(), any::<bool>(), any::<bool>())
        .prop_map(|(max_age, include_subdomains, preload)| Hsts { max_age, include_subdomains, preload });
    let http3 = (option::of(any::<u16>()), time(), any::<bool>(), any::<u32>())
        .prop_map(|(port, max_age, early_data, handshakes)| Http3 { port, max_age, early_data, handshakes });
    (version, names, option::of(hsts), any::<u16>(), option::of(http3)).prop_map(
        |(min_version, unknown_names, hsts, redirect_port, http3)| TlsSettings {
            min_version,
            unknown_names,
            hsts,
            redirect_port,
            http3,
        },
    )
}

pub(super) fn networks() -> impl Strategy<Value = Vec<IpNet>> {
    vec(prop::sample::select(vec!["10.0.0.0/8", "192.0.2.1/32", "2001:db8::/32"]), 0..3)
        .prop_map(|networks| networks.iter().map(|network| network.parse().unwrap()).collect())
}

fn tracing() -> impl Strategy<Value = Tracing> {
    let collectors = ["http://collector:4318", "https://otel.example.com:443/otlp", "http://[2001:db8::1]:1"];
    let authorities = vec(vec(any::<u8>(), 1..9).prop_map(CertificateDer::from), 0..3);
    let rest = (any::<u32>(), prop::sample::select(vec!["sluicegate", "edge"]));
    (prop::sample::select(collectors.to_vec()), authorities, 0.0..=100.0_f64, rest).prop_map(
        |(collector, authorities, sample_percent, (followed_per_second, service_name))| Tracing {
            collector: collector.parse().unwrap(),
            authorities,
            sample_percent,
            followed_per_second,
            service_name: service_name.into(),
        },
    )
}

fn access_log() -> impl Strategy<Value = AccessLogSettings> {
    let escape = prop::sample::select(vec![LogEscape::Default, LogEscape::Json]);
    let format = option::of(("[a-z ]{0,4}\\$(status|http_[a-z]{1,3}) [a-z]{0,3}", escape));
    let format =
        format.prop_map(|of| of.map(|(text, escape)| LogFormat::new(&text, escape).expect("a format")));
    let target = ("[a-z]{1,8}", any::<bool>())
        .prop_map(|(text, ignores_case)| Pattern::new(text, ignores_case).expect("an expression"));
    let omitted = (any::<bool>(), any::<bool>(), any::<bool>());
    (format, omitted, vec(target, 0..3)).prop_map(|(format, omitted, omitted_targets)| {
        let (omits_requests, omits_connections, omits_unrouted) = omitted;
        AccessLogSettings { format, omits_requests, omits_connections, omits_unrouted, omitted_targets }
    })
}

fn settings() -> impl Strategy<Value = Settings> {
    let allowed = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let rest = (
        networks(),
        networks(),
        allowed,
        tls_settings(),
        compression(),
        (option::of(tracing()), option::of(text()), access_log()),
    );
    (timeouts().boxed(), limits().boxed(), resilience().boxed(), rest.boxed()).prop_map(
        |(timeouts, limits, resilience, rest)| {
            let (
                trusted_proxies,
                proxy_protocol_peers,
                allowed,
                tls,
                compression,
                (tracing, controller, access_log),
            ) = rest;
            let (
                underscores_in_headers,
                allow_encoded_dot_segments,
                allow_non_ascii_targets,
                kong_compatibility,
            ) = allowed;
            Settings {
                timeouts,
                limits,
                resilience,
                trusted_proxies,
                proxy_protocol_peers,
                underscores_in_headers,
                allow_encoded_dot_segments,
                allow_non_ascii_targets,
                tls,
                compression,
                tracing,
                access_log,
                nginx_controller: controller.map(Into::into),
                kong_compatibility,
            }
        },
    )
}

pub(super) fn config() -> impl Strategy<Value = Config> {
    let upstreams = vec((key(), upstream().boxed()), 0..4).prop_map(Upstreams::from_iter);
    let (listeners, consumers) = (vec(listener().boxed(), 0..3), vec(consumer().boxed(), 0..4));
    // Boxed, so that the strategy fits into the stack of a test.
    let (hosts, default_rule) = (vec(virtual_host().boxed(), 0..4), option::of(route().boxed()));
    let (settings, tls) = (settings().boxed(), tls().boxed());
    (settings, hosts, default_rule, listeners.boxed(), tls, consumers.boxed(), upstreams.boxed()).prop_map(
        |(settings, hosts, default_rule, listeners, tls, consumers, upstreams)| {
            let own_scopes = Vec::new();
            normal(Config { settings, hosts, default_rule, listeners, tls, consumers, upstreams, own_scopes })
        },
    )
}

/// The configuration without duplicates. Unordered lists are sorted.
pub(super) fn normal(mut config: Config) -> Config {
    let is_udp = |listener: &Listener| matches!(listener.serves, Serves::Udp(_));
    config.hosts.sort_by_cached_key(|host| (host.entry_point.clone(), host.host.clone()));
    config.hosts.dedup_by_key(|host| (host.entry_point.clone(), host.host.clone()));
    config.listeners.sort_by_key(|listener| (listener.address, is_udp(listener)));
    config.listeners.dedup_by_key(|listener| (listener.address, is_udp(listener)));
    config.consumers.sort_by(|one, other| one.id.cmp(&other.id));
    config.consumers.dedup_by(|one, other| one.id == other.id);
    let mut tls = Tls::clone(&config.tls);
    tls.hosts.sort_by_cached_key(|host| (host.entry_point.clone(), host.host.clone()));
    tls.hosts.dedup_by_key(|host| (host.entry_point.clone(), host.host.clone()));
    let name = |route: &TlsRoute| (route.entry_point.clone(), route.host.clone());
    tls.passthrough.sort_by_key(name);
    tls.passthrough.dedup_by_key(|route| name(route));
    tls.acme.sort_by(|one, other| one.host.cmp(&other.host));
    tls.acme.dedup_by(|one, other| one.host == other.host);
    config.tls = Arc::new(tls);
    config
}
