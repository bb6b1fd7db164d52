//! HTTP services that are asked about requests.

use rustls_pki_types::CertificateDer;
use sluicegate_model::policy::{External, ExternalCache, KeyPart, SignIn};

use super::headers;
use crate::convert::tls::{ders, of_ders};
use crate::convert::{Refusal, all, duration, known, nanos, required, texts};
use crate::proto;

impl From<&External> for proto::External {
    fn from(external: &External) -> Self {
        let External { url, authorities, method, timeout, request_headers, response_headers, sign_in, cache } =
            external;
        Self {
            url: url.to_string(),
            authorities: of_ders(authorities),
            method: method.to_string(),
            timeout: nanos(*timeout),
            all_request_headers: request_headers.is_none(),
            request_headers: request_headers.as_deref().map(texts).unwrap_or_default(),
            response_headers: texts(response_headers),
            sign_in: sign_in.as_ref().map(Into::into),
            cache: cache.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<proto::External> for External {
    type Error = Refusal;

    fn try_from(external: proto::External) -> Result<Self, Refusal> {
        if !matches!(&*external.method, "GET" | "HEAD" | "POST") {
            return Err(Refusal::Invalid("the method by which a service is asked"));
        }
        let request_headers = headers(external.request_headers)?;
        Ok(Self {
            url: external.url.into(),
            authorities: ders(external.authorities, CertificateDer::from),
            method: external.method.into(),
            timeout: duration(external.timeout, "how long a service may take")?,
            request_headers: match external.all_request_headers {
                true if request_headers.is_empty() => None,
                true => return Err(Refusal::Invalid("the headers that a service is told")),
                false => Some(request_headers),
            },
            response_headers: headers(external.response_headers)?,
            sign_in: external.sign_in.map(TryInto::try_into).transpose()?,
            cache: external.cache.map(TryInto::try_into).transpose()?,
        })
    }
}

impl From<&SignIn> for proto::SignIn {
    fn from(SignIn { url, parameter }: &SignIn) -> Self {
        Self { url: url.to_string(), parameter: parameter.to_string() }
    }
}

impl TryFrom<proto::SignIn> for SignIn {
    type Error = Refusal;

    fn try_from(proto::SignIn { url, parameter }: proto::SignIn) -> Result<Self, Refusal> {
        // It goes into a header line as it is.
        match !url.is_empty() && url.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Self { url: url.into(), parameter: parameter.into() }),
            false => Err(Refusal::Invalid("where clients sign in")),
        }
    }
}

impl From<&ExternalCache> for proto::ExternalCache {
    fn from(ExternalCache { key, admitted, refused }: &ExternalCache) -> Self {
        Self {
            key: key.iter().map(Into::into).collect(),
            admitted: nanos(*admitted),
            refused: nanos(*refused),
        }
    }
}

impl TryFrom<proto::ExternalCache> for ExternalCache {
    type Error = Refusal;

    fn try_from(cache: proto::ExternalCache) -> Result<Self, Refusal> {
        if cache.key.is_empty() {
            // One answer would be everybody's.
            return Err(Refusal::Missing("what answers are remembered by"));
        }
        Ok(Self {
            key: all(cache.key)?,
            admitted: duration(cache.admitted, "how long an answer is good")?,
            refused: duration(cache.refused, "how long an answer is good")?,
        })
    }
}

impl From<&KeyPart> for proto::KeyPart {
    fn from(part: &KeyPart) -> Self {
        let (kind, value) = match part {
            KeyPart::Value(credential) => (proto::KeyPartKind::Value, Some(credential.into())),
            KeyPart::Method => (proto::KeyPartKind::Method, None),
            KeyPart::Host => (proto::KeyPartKind::Host, None),
            KeyPart::Path => (proto::KeyPartKind::Path, None),
            KeyPart::Address => (proto::KeyPartKind::Address, None),
        };
        Self { kind: kind.into(), value }
    }
}

impl TryFrom<proto::KeyPart> for KeyPart {
    type Error = Refusal;

    fn try_from(part: proto::KeyPart) -> Result<Self, Refusal> {
        let field = "what an answer is remembered by";
        match known(part.kind, field)? {
            proto::KeyPartKind::None => Err(Refusal::Missing(field)),
            proto::KeyPartKind::Value => Ok(Self::Value(required(part.value, field)?.try_into()?)),
            proto::KeyPartKind::Method => Ok(Self::Method),
            proto::KeyPartKind::Host => Ok(Self::Host),
            proto::KeyPartKind::Path => Ok(Self::Path),
            proto::KeyPartKind::Address => Ok(Self::Address),
        }
    }
}
