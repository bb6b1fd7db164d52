//! Settings. What is absent has the default of this side.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use sluicegate_model::compression::{Levels, MediaRange};
use sluicegate_model::settings::{Limits, Resilience, Timeouts};
use sluicegate_model::tls::{Hsts, TlsSettings, TlsVersion, UnknownNames};
use sluicegate_model::{Compression, Settings, Tracing};

use super::{Refusal, duration, known, nanos, networks, texts};
use crate::proto;

impl From<&Settings> for proto::Settings {
    fn from(settings: &Settings) -> Self {
        // Named one by one, here and below, so that a new field is not forgotten.
        let Settings {
            timeouts,
            limits,
            resilience,
            trusted_peers,
            proxy_protocol_peers,
            underscores_in_headers,
            allow_encoded_dot_segments,
            allow_non_ascii_targets,
            tls,
            compression,
            tracing,
        } = settings;
        Self {
            timeouts: Some(timeouts.into()),
            limits: Some(limits.into()),
            resilience: Some(resilience.into()),
            trusted_peers: texts(trusted_peers),
            proxy_protocol_peers: texts(proxy_protocol_peers),
            underscores_in_headers: *underscores_in_headers,
            allow_encoded_dot_segments: *allow_encoded_dot_segments,
            allow_non_ascii_targets: *allow_non_ascii_targets,
            tls: Some(tls.into()),
            compression: Some(compression.into()),
            tracing: tracing.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::Settings> for Settings {
    type Error = Refusal;

    fn try_from(settings: proto::Settings) -> Result<Self, Refusal> {
        let peers = "a network of peers";
        Ok(Self {
            timeouts: settings.timeouts.unwrap_or_default().try_into()?,
            limits: settings.limits.unwrap_or_default().try_into()?,
            resilience: settings.resilience.unwrap_or_default().try_into()?,
            trusted_peers: networks(&settings.trusted_peers, peers)?,
            proxy_protocol_peers: networks(&settings.proxy_protocol_peers, peers)?,
            underscores_in_headers: settings.underscores_in_headers,
            allow_encoded_dot_segments: settings.allow_encoded_dot_segments,
            allow_non_ascii_targets: settings.allow_non_ascii_targets,
            tls: settings.tls.unwrap_or_default().try_into()?,
            compression: settings.compression.unwrap_or_default().try_into()?,
            tracing: settings.tracing.map(TryInto::try_into).transpose()?,
        })
    }
}

fn time(nanos: Option<u64>, default: Duration) -> Result<Duration, Refusal> {
    nanos.map_or(Ok(default), |nanos| duration(nanos, "a time limit"))
}

impl From<&Timeouts> for proto::Timeouts {
    fn from(timeouts: &Timeouts) -> Self {
        let Timeouts {
            tls_handshake,
            proxy_protocol,
            request_head,
            request_body,
            client_idle,
            client_write,
            connect,
            response_head,
            upstream_idle,
            pool_idle,
            tunnel_idle,
            udp_idle,
            drain,
            request_body_grace,
            request_body_total,
        } = timeouts;
        Self {
            tls_handshake: Some(nanos(*tls_handshake)),
            proxy_protocol: Some(nanos(*proxy_protocol)),
            request_head: Some(nanos(*request_head)),
            request_body: Some(nanos(*request_body)),
            client_idle: Some(nanos(*client_idle)),
            client_write: Some(nanos(*client_write)),
            connect: Some(nanos(*connect)),
            response_head: Some(nanos(*response_head)),
            upstream_idle: Some(nanos(*upstream_idle)),
            pool_idle: Some(nanos(*pool_idle)),
            tunnel_idle: Some(nanos(*tunnel_idle)),
            udp_idle: Some(nanos(*udp_idle)),
            drain: Some(nanos(*drain)),
            request_body_grace: Some(nanos(*request_body_grace)),
            request_body_total: Some(nanos(*request_body_total)),
        }
    }
}

impl TryFrom<proto::Timeouts> for Timeouts {
    type Error = Refusal;

    fn try_from(timeouts: proto::Timeouts) -> Result<Self, Refusal> {
        let default = Self::default();
        Ok(Self {
            tls_handshake: time(timeouts.tls_handshake, default.tls_handshake)?,
            proxy_protocol: time(timeouts.proxy_protocol, default.proxy_protocol)?,
            request_head: time(timeouts.request_head, default.request_head)?,
            request_body: time(timeouts.request_body, default.request_body)?,
            client_idle: time(timeouts.client_idle, default.client_idle)?,
            client_write: time(timeouts.client_write, default.client_write)?,
            connect: time(timeouts.connect, default.connect)?,
            response_head: time(timeouts.response_head, default.response_head)?,
            upstream_idle: time(timeouts.upstream_idle, default.upstream_idle)?,
            pool_idle: time(timeouts.pool_idle, default.pool_idle)?,
            tunnel_idle: time(timeouts.tunnel_idle, default.tunnel_idle)?,
            udp_idle: time(timeouts.udp_idle, default.udp_idle)?,
            drain: time(timeouts.drain, default.drain)?,
            request_body_grace: time(timeouts.request_body_grace, default.request_body_grace)?,
            request_body_total: time(timeouts.request_body_total, default.request_body_total)?,
        })
    }
}

fn size(size: Option<u64>, default: usize) -> Result<usize, Refusal> {
    let size = size.map(usize::try_from).transpose().map_err(|_| Refusal::Invalid("a size limit"))?;
    Ok(size.unwrap_or(default))
}

fn within<T: PartialOrd + Copy>(
    value: T,
    range: &RangeInclusive<T>,
    field: &'static str,
) -> Result<T, Refusal> {
    if range.contains(&value) { Ok(value) } else { Err(Refusal::Invalid(field)) }
}

impl From<&Limits> for proto::Limits {
    fn from(limits: &Limits) -> Self {
        let Limits {
            client_hello,
            request_head,
            response_head,
            headers,
            request_body,
            requests_per_connection,
            http2_streams,
            http2_stream_window,
            http2_connection_window,
            connections_per_worker,
            udp_flows_per_worker,
            pool_per_endpoint,
            replay,
            compressions_per_worker,
            request_body_rate,
            stalled_uploads_per_endpoint,
        } = limits;
        let size = |size: usize| Some(size as u64);
        Self {
            client_hello: size(*client_hello),
            request_head: size(*request_head),
            response_head: size(*response_head),
            headers: size(*headers),
            request_body: *request_body,
            requests_per_connection: *requests_per_connection,
            http2_streams: Some(*http2_streams),
            http2_stream_window: Some(*http2_stream_window),
            http2_connection_window: Some(*http2_connection_window),
            connections_per_worker: size(*connections_per_worker),
            udp_flows_per_worker: size(*udp_flows_per_worker),
            pool_per_endpoint: size(*pool_per_endpoint),
            replay: size(*replay),
            compressions_per_worker: size(*compressions_per_worker),
            request_body_rate: Some(*request_body_rate),
            stalled_uploads_per_endpoint: size(*stalled_uploads_per_endpoint),
        }
    }
}

impl TryFrom<proto::Limits> for Limits {
    type Error = Refusal;

    fn try_from(limits: proto::Limits) -> Result<Self, Refusal> {
        // RFC 9113, 6.9.1.
        const WINDOW: RangeInclusive<u32> = 0..=(1 << 31) - 1;
        let default = Self::default();
        let window = |window: Option<u32>, default| within(window.unwrap_or(default), &WINDOW, "a window");
        Ok(Self {
            client_hello: size(limits.client_hello, default.client_hello)?,
            request_head: size(limits.request_head, default.request_head)?,
            response_head: size(limits.response_head, default.response_head)?,
            headers: within(
                size(limits.headers, default.headers)?,
                &(1..=256),
                "the number of header lines",
            )?,
            request_body: limits.request_body,
            requests_per_connection: limits.requests_per_connection,
            http2_streams: limits.http2_streams.unwrap_or(default.http2_streams),
            http2_stream_window: window(limits.http2_stream_window, default.http2_stream_window)?,
            http2_connection_window: window(limits.http2_connection_window, default.http2_connection_window)?,
            connections_per_worker: size(limits.connections_per_worker, default.connections_per_worker)?,
            udp_flows_per_worker: size(limits.udp_flows_per_worker, default.udp_flows_per_worker)?,
            pool_per_endpoint: size(limits.pool_per_endpoint, default.pool_per_endpoint)?,
            replay: size(limits.replay, default.replay)?,
            compressions_per_worker: size(limits.compressions_per_worker, default.compressions_per_worker)?,
            request_body_rate: limits.request_body_rate.unwrap_or(default.request_body_rate),
            stalled_uploads_per_endpoint: size(
                limits.stalled_uploads_per_endpoint,
                default.stalled_uploads_per_endpoint,
            )?,
        })
    }
}

impl From<&Resilience> for proto::Resilience {
    fn from(resilience: &Resilience) -> Self {
        let Resilience {
            attempts,
            connect_hedge,
            endpoint_wait,
            unacknowledged,
            slow_start,
            panic_threshold_percent,
            probe_interval,
            probe_interval_max,
        } = resilience;
        Self {
            attempts: Some(*attempts),
            connect_hedge: Some(nanos(*connect_hedge)),
            endpoint_wait: Some(nanos(*endpoint_wait)),
            unacknowledged: Some(nanos(*unacknowledged)),
            slow_start: Some(nanos(*slow_start)),
            panic_threshold_percent: Some((*panic_threshold_percent).into()),
            probe_interval: Some(nanos(*probe_interval)),
            probe_interval_max: Some(nanos(*probe_interval_max)),
        }
    }
}

impl TryFrom<proto::Resilience> for Resilience {
    type Error = Refusal;

    fn try_from(resilience: proto::Resilience) -> Result<Self, Refusal> {
        let default = Self::default();
        Ok(Self {
            attempts: resilience.attempts.unwrap_or(default.attempts),
            connect_hedge: time(resilience.connect_hedge, default.connect_hedge)?,
            endpoint_wait: time(resilience.endpoint_wait, default.endpoint_wait)?,
            unacknowledged: time(resilience.unacknowledged, default.unacknowledged)?,
            slow_start: time(resilience.slow_start, default.slow_start)?,
            panic_threshold_percent: level(
                resilience.panic_threshold_percent,
                default.panic_threshold_percent,
                &(0..=100),
            )?,
            probe_interval: time(resilience.probe_interval, default.probe_interval)?,
            probe_interval_max: time(resilience.probe_interval_max, default.probe_interval_max)?,
        })
    }
}

impl From<&TlsSettings> for proto::TlsSettings {
    fn from(settings: &TlsSettings) -> Self {
        let TlsSettings { min_version, unknown_names, hsts, redirect_port } = settings;
        let min_version = match min_version {
            TlsVersion::Tls12 => proto::TlsSettingsVersion::Tls12,
            TlsVersion::Tls13 => proto::TlsSettingsVersion::Tls13,
        };
        let unknown_names = match unknown_names {
            UnknownNames::Default => proto::TlsSettingsUnknownNames::Default,
            UnknownNames::Refuse => proto::TlsSettingsUnknownNames::Refuse,
        };
        Self {
            min_version: Some(min_version.into()),
            unknown_names: Some(unknown_names.into()),
            hsts: hsts.map(|hsts| proto::Hsts {
                max_age: nanos(hsts.max_age),
                include_subdomains: hsts.include_subdomains,
                preload: hsts.preload,
            }),
            redirect_port: Some((*redirect_port).into()),
        }
    }
}

impl TryFrom<proto::TlsSettings> for TlsSettings {
    type Error = Refusal;

    fn try_from(settings: proto::TlsSettings) -> Result<Self, Refusal> {
        let default = Self::default();
        let hsts = |hsts: proto::Hsts| {
            let max_age = duration(hsts.max_age, "the age of Strict-Transport-Security")?;
            Ok::<_, Refusal>(Hsts {
                max_age,
                include_subdomains: hsts.include_subdomains,
                preload: hsts.preload,
            })
        };
        let port = settings.redirect_port.map(u16::try_from).transpose();
        Ok(Self {
            min_version: match settings.min_version {
                None => default.min_version,
                Some(version) => match known(version, "the oldest version of TLS")? {
                    proto::TlsSettingsVersion::None => default.min_version,
                    proto::TlsSettingsVersion::Tls12 => TlsVersion::Tls12,
                    proto::TlsSettingsVersion::Tls13 => TlsVersion::Tls13,
                },
            },
            unknown_names: match settings.unknown_names {
                None => default.unknown_names,
                Some(names) => match known(names, "what clients of unknown names get")? {
                    proto::TlsSettingsUnknownNames::None => default.unknown_names,
                    proto::TlsSettingsUnknownNames::Default => UnknownNames::Default,
                    proto::TlsSettingsUnknownNames::Refuse => UnknownNames::Refuse,
                },
            },
            hsts: settings.hsts.map(hsts).transpose()?,
            redirect_port: port
                .map_err(|_| Refusal::Invalid("the port of redirects"))?
                .unwrap_or(default.redirect_port),
        })
    }
}

impl From<&Compression> for proto::Compression {
    fn from(compression: &Compression) -> Self {
        let Compression { codings, types, min_length, levels: Levels { gzip, brotli, zstd } } = compression;
        Self {
            codings: Some(codings.into()),
            types: Some(proto::MediaRanges { ranges: types.iter().map(ToString::to_string).collect() }),
            min_length: Some(*min_length),
            gzip: Some((*gzip).into()),
            brotli: Some((*brotli).into()),
            zstd: Some((*zstd).into()),
        }
    }
}

impl TryFrom<proto::Compression> for Compression {
    type Error = Refusal;

    fn try_from(compression: proto::Compression) -> Result<Self, Refusal> {
        let default = Self::default();
        let types = |types: proto::MediaRanges| {
            let parsed = types.ranges.iter().map(|range| range.parse());
            parsed.collect::<Result<Vec<MediaRange>, _>>().map_err(|_| Refusal::Invalid("a media type"))
        };
        Ok(Self {
            codings: compression.codings.map_or(Ok(default.codings), TryInto::try_into)?,
            types: compression.types.map_or(Ok(default.types), types)?,
            min_length: compression.min_length.unwrap_or(default.min_length),
            levels: Levels {
                gzip: level(compression.gzip, default.levels.gzip, &Levels::GZIP)?,
                brotli: level(compression.brotli, default.levels.brotli, &Levels::BROTLI)?,
                zstd: level(compression.zstd, default.levels.zstd, &Levels::ZSTD)?,
            },
        })
    }
}

impl From<&Tracing> for proto::Tracing {
    fn from(tracing: &Tracing) -> Self {
        let Tracing { collector, authorities, sample_percent, followed_per_second, service_name } = tracing;
        Self {
            collector: collector.to_string(),
            authorities: authorities.iter().map(|authority| Bytes::copy_from_slice(authority)).collect(),
            sample_percent: Some(*sample_percent),
            followed_per_second: Some(*followed_per_second),
            service_name: service_name.to_string(),
        }
    }
}

impl TryFrom<proto::Tracing> for Tracing {
    type Error = Refusal;

    fn try_from(tracing: proto::Tracing) -> Result<Self, Refusal> {
        let percent = tracing.sample_percent.unwrap_or(Self::SAMPLE_PERCENT);
        let authorities = tracing.authorities.into_iter();
        Ok(Self {
            collector: tracing.collector.parse().map_err(|_| Refusal::Invalid("the collector of spans"))?,
            authorities: authorities.map(|authority| CertificateDer::from(authority.to_vec())).collect(),
            sample_percent: within(percent, &(0.0..=100.0), "the share of requests that are traced")?,
            followed_per_second: tracing.followed_per_second.unwrap_or(Self::FOLLOWED_PER_SECOND),
            service_name: tracing.service_name.into(),
        })
    }
}

fn level(level: Option<u32>, default: u8, range: &RangeInclusive<u8>) -> Result<u8, Refusal> {
    let level = level.map(u8::try_from).transpose().map_err(|_| Refusal::Invalid("a level"))?;
    within(level.unwrap_or(default), range, "a level")
}
