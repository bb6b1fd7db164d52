//! Health checks of endpoints.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Check, Faults};
use crate::encoding;
use crate::value::span::HOUR;
use crate::value::{CheckTarget, Hostname, Number, Span};

/// Health checks of endpoints. The gateway avoids endpoints that fail their checks, while other endpoints are healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.type == 'HTTP' || (!has(self.path) && !has(self.hostname) && !has(self.codes))",
        "message": "path, hostname and codes are only for type: HTTP"
    },
    {
        "rule": "self.type == 'GRPC' || !has(self.service)",
        "message": "service is only for type: GRPC"
    }
]))]
#[cbor(map)]
pub struct HealthCheck {
    /// The type of the check. HTTP: a GET. GRPC: a call of grpc.health.v1.Health/Check, for a Service that the gateway
    /// uses with HTTP/2. TCP: a connect, with a TLS handshake if the Service uses TLS.
    #[serde(rename = "type")]
    #[n(0)]
    pub kind: HealthCheckType,
    /// The path of the GET, with or without a query. Only for type HTTP. Default: /.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(1)]
    pub path: Option<CheckTarget>,
    /// The Host header of the GET. Only for type HTTP. Default: the address of the endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(2)]
    pub hostname: Option<Hostname>,
    /// The status codes of a healthy endpoint, such as 200 or 200-399. Only for type HTTP. 100 to 599. Default:
    /// 200-399.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[n(3)]
    pub codes: Option<CodeRange>,
    /// The service in the gRPC call. Only for type GRPC. Default: the server as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 256))]
    #[n(4)]
    pub service: Option<Box<str>>,
    /// The time between two checks of an endpoint by one data plane. 100ms to 1h. Default: 10s.
    #[serde(default = "ten_seconds")]
    #[n(5)]
    pub interval: Span<100, HOUR>,
    /// The timeout of one check. 1ms to 1h. Default: 1s.
    #[serde(default = "one_second")]
    #[n(6)]
    pub timeout: Span<1, HOUR>,
    /// The consecutive passed checks after which an endpoint is healthy. 1 to 100. Default: 2.
    #[serde(default = "two")]
    #[n(7)]
    pub healthy_threshold: Number<u8, 1, 100>,
    /// The consecutive failed checks after which an endpoint is unhealthy. 1 to 100. Default: 3.
    #[serde(default = "three")]
    #[n(8)]
    pub unhealthy_threshold: Number<u8, 1, 100>,
}

fn ten_seconds() -> Span<100, HOUR> {
    Span::of_millis(10_000)
}

fn one_second() -> Span<1, HOUR> {
    Span::of_millis(1000)
}

fn two() -> Number<u8, 1, 100> {
    Number::of(2)
}

fn three() -> Number<u8, 1, 100> {
    Number::of(3)
}

impl HealthCheck {
    /// A check of this type with the default values.
    #[must_use]
    pub fn new(kind: HealthCheckType) -> Self {
        Self {
            kind,
            path: None,
            hostname: None,
            codes: None,
            service: None,
            interval: ten_seconds(),
            timeout: one_second(),
            healthy_threshold: two(),
            unhealthy_threshold: three(),
        }
    }

    /// The path of the GET.
    #[must_use]
    pub fn target(&self) -> &str {
        self.path.as_deref().unwrap_or("/")
    }

    /// Whether a response with this status code shows a healthy endpoint.
    #[must_use]
    pub fn passes(&self, code: u16) -> bool {
        self.codes.as_ref().map_or(200..=399, |codes| codes.0.clone()).contains(&code)
    }
}

/// The type of a health check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Encode, Decode)]
#[serde(rename_all = "UPPERCASE")]
#[cbor(index_only)]
pub enum HealthCheckType {
    /// A GET request.
    #[n(0)]
    Http,
    /// `grpc.health.v1.Health/Check` over HTTP/2.
    #[n(1)]
    Grpc,
    /// A connect, with a TLS handshake if the upstream uses TLS.
    #[n(2)]
    Tcp,
}

impl Check for HealthCheck {
    fn check(&self, at: &mut Faults<'_>) {
        for (field, is_written, of, name) in [
            ("path", self.path.is_some(), HealthCheckType::Http, "HTTP"),
            ("hostname", self.hostname.is_some(), HealthCheckType::Http, "HTTP"),
            ("codes", self.codes.is_some(), HealthCheckType::Http, "HTTP"),
            ("service", self.service.is_some(), HealthCheckType::Grpc, "GRPC"),
        ] {
            if is_written && self.kind != of {
                at.error(field, format!("is only for type {name}: remove it"));
            }
        }
    }
}

/// A range of status codes from 100 to 599.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeRange(RangeInclusive<u16>);

impl CodeRange {
    fn parse(text: &str) -> Option<Self> {
        let (from, to) = text.split_once('-').unwrap_or((text, text));
        let (from, to): (u16, u16) = (from.parse().ok()?, to.parse().ok()?);
        ((100..=599).contains(&from) && (from..=599).contains(&to)).then_some(Self(from..=to))
    }
}

impl Serialize for CodeRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{}-{}", self.0.start(), self.0.end()))
    }
}

impl<'de> Deserialize<'de> for CodeRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            de::Error::custom(format_args!(
                "{text:?} is not a range of status codes: write a range such as 200-399, or a code such as 200"
            ))
        })
    }
}

impl JsonSchema for CodeRange {
    fn schema_name() -> Cow<'static, str> {
        "CodeRange".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[1-5][0-9]{2}(-[1-5][0-9]{2})?$" })
    }
}

impl<C> Encode<C> for CodeRange {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.array(2)?.u16(*self.0.start())?.u16(*self.0.end())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for CodeRange {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        if decoder.array()? != Some(2) {
            return Err(decode::Error::message("a range has two ends"));
        }
        let (from, to) = (decoder.u16()?, decoder.u16()?);
        Self::parse(&format!("{from}-{to}"))
            .ok_or_else(|| encoding::Fault::Invalid("a range of status codes").into())
    }
}
