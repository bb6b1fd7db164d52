//! Tokens, and the keys by which they are verified.

use std::sync::Arc;

use bytes::Bytes;
use rustls_pki_types::CertificateDer;
use sluicegate_model::policy::{Jwt, JwtKeys, JwtProvider, RemoteKeys};

use super::header;
use crate::convert::tls::{ders, of_ders};
use crate::convert::{Refusal, all, duration, known, nanos, of_texts, required, texts};
use crate::proto;

impl From<&Jwt> for proto::Jwt {
    fn from(jwt: &Jwt) -> Self {
        let Jwt { providers, from, forward } = jwt;
        Self {
            providers: providers.iter().map(|provider| (&**provider).into()).collect(),
            from: from.iter().map(Into::into).collect(),
            forward: *forward,
        }
    }
}

impl TryFrom<proto::Jwt> for Jwt {
    type Error = Refusal;

    fn try_from(jwt: proto::Jwt) -> Result<Self, Refusal> {
        let provider = |provider: proto::JwtProvider| provider.try_into().map(Arc::new);
        Ok(Self {
            providers: jwt.providers.into_iter().map(provider).collect::<Result<_, _>>()?,
            from: all(jwt.from)?,
            forward: jwt.forward,
        })
    }
}

impl From<&JwtProvider> for proto::JwtProvider {
    fn from(provider: &JwtProvider) -> Self {
        let JwtProvider {
            name,
            issuer,
            audiences,
            algorithms,
            keys,
            clock_skew,
            allows_eternal,
            required,
            headers,
        } = provider;
        let header = |(claim, header): &(Box<str>, Box<str>)| proto::ClaimHeader {
            claim: claim.to_string(),
            header: header.to_string(),
        };
        Self {
            name: name.to_string(),
            issuer: issuer.as_ref().map(ToString::to_string),
            audiences: texts(audiences),
            algorithms: texts(algorithms),
            keys: Some(keys.into()),
            clock_skew: nanos(*clock_skew),
            allows_eternal: *allows_eternal,
            required: required.iter().map(Into::into).collect(),
            headers: headers.iter().map(header).collect(),
        }
    }
}

impl TryFrom<proto::JwtProvider> for JwtProvider {
    type Error = Refusal;

    fn try_from(provider: proto::JwtProvider) -> Result<Self, Refusal> {
        let claim_header = |pair: proto::ClaimHeader| Ok((pair.claim.into_boxed_str(), header(pair.header)?));
        Ok(Self {
            name: provider.name.into(),
            issuer: provider.issuer.map(Into::into),
            audiences: of_texts(provider.audiences),
            algorithms: of_texts(provider.algorithms),
            keys: required(provider.keys, "the keys of a provider of tokens")?.try_into()?,
            clock_skew: duration(provider.clock_skew, "how far clocks may be apart")?,
            allows_eternal: provider.allows_eternal,
            required: all(provider.required)?,
            headers: provider.headers.into_iter().map(claim_header).collect::<Result<_, Refusal>>()?,
        })
    }
}

impl From<&JwtKeys> for proto::JwtKeys {
    fn from(keys: &JwtKeys) -> Self {
        let remote = match keys {
            JwtKeys::Remote(keys) => Some((&**keys).into()),
            JwtKeys::Given(_) | JwtKeys::Shared(_) | JwtKeys::Unusable(_) => None,
        };
        let (kind, keys, reason) = match keys {
            JwtKeys::Given(keys) => (proto::JwtKeysKind::Given, &**keys, ""),
            JwtKeys::Shared(secret) => (proto::JwtKeysKind::Shared, &**secret, ""),
            JwtKeys::Unusable(reason) => (proto::JwtKeysKind::Unusable, &[][..], &**reason),
            JwtKeys::Remote(_) => (proto::JwtKeysKind::Remote, &[][..], ""),
        };
        Self { kind: kind.into(), keys: Bytes::copy_from_slice(keys), reason: reason.to_owned(), remote }
    }
}

impl TryFrom<proto::JwtKeys> for JwtKeys {
    type Error = Refusal;

    fn try_from(keys: proto::JwtKeys) -> Result<Self, Refusal> {
        let field = "the kind of the keys of a provider of tokens";
        match known(keys.kind, field)? {
            proto::JwtKeysKind::None => Err(Refusal::Missing(field)),
            proto::JwtKeysKind::Unusable => Ok(Self::Unusable(keys.reason.into())),
            proto::JwtKeysKind::Remote => {
                let remote = required(keys.remote, "where keys are published")?;
                Ok(Self::Remote(Arc::new(remote.try_into()?)))
            }
            // Anybody knows an empty secret.
            _ if keys.keys.is_empty() => Err(Refusal::Missing("the key of a provider of tokens")),
            proto::JwtKeysKind::Given => Ok(Self::Given((&*keys.keys).into())),
            proto::JwtKeysKind::Shared => Ok(Self::Shared((&*keys.keys).into())),
        }
    }
}

impl From<&RemoteKeys> for proto::RemoteKeys {
    fn from(keys: &RemoteKeys) -> Self {
        let RemoteKeys { url, authorities, refresh, timeout } = keys;
        Self {
            url: url.to_string(),
            authorities: of_ders(authorities),
            refresh: nanos(*refresh),
            timeout: nanos(*timeout),
        }
    }
}

impl TryFrom<proto::RemoteKeys> for RemoteKeys {
    type Error = Refusal;

    fn try_from(keys: proto::RemoteKeys) -> Result<Self, Refusal> {
        Ok(Self {
            url: keys.url.into(),
            authorities: ders(keys.authorities, CertificateDer::from),
            refresh: duration(keys.refresh, "how long keys are good")?,
            timeout: duration(keys.timeout, "how long fetching keys may take")?,
        })
    }
}
