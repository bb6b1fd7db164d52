//! Who may call a route.

use std::sync::Arc;

use sluicegate_model::policy::security::{ClaimValues, OriginPattern};
use sluicegate_model::policy::{
    Access, Authentication, Authorization, AuthorizationRule, Basic, Cors, Credential, Method, Security,
};

use super::{header, headers};
use crate::convert::{Refusal, all, duration, known, nanos, networks, of_texts, required, texts};
use crate::proto;

impl From<&Security> for proto::Security {
    fn from(policy: &Security) -> Self {
        // Named one by one, here and below, so that a new field is not forgotten.
        let Security { id, refuses, access, cors, authentication, authorization, forward_overrides } = policy;
        Self {
            id: Some(id.into()),
            refuses: refuses.as_ref().map(ToString::to_string),
            access: Some(access.into()),
            cors: cors.as_ref().map(Into::into),
            authentication: authentication.as_ref().map(Into::into),
            authorization: authorization.as_ref().map(Into::into),
            forward_overrides: *forward_overrides,
        }
    }
}

impl TryFrom<proto::Security> for Security {
    type Error = Refusal;

    fn try_from(policy: proto::Security) -> Result<Self, Refusal> {
        Ok(Self {
            id: required(policy.id, "the object of a policy")?.into(),
            refuses: policy.refuses.map(Into::into),
            access: required(policy.access, "which addresses may call")?.try_into()?,
            cors: policy.cors.map(TryInto::try_into).transpose()?,
            authentication: policy.authentication.map(TryInto::try_into).transpose()?,
            authorization: policy.authorization.map(TryInto::try_into).transpose()?,
            forward_overrides: policy.forward_overrides,
        })
    }
}

impl From<&Access> for proto::Access {
    fn from(access: &Access) -> Self {
        let Access { allow, deny } = access;
        Self { allow: texts(allow), deny: texts(deny) }
    }
}

impl TryFrom<proto::Access> for Access {
    type Error = Refusal;

    fn try_from(access: proto::Access) -> Result<Self, Refusal> {
        let field = "a network that may call or not";
        Ok(Self { allow: networks(&access.allow, field)?, deny: networks(&access.deny, field)? })
    }
}

impl From<&Cors> for proto::Cors {
    fn from(cors: &Cors) -> Self {
        let Cors { origins, methods, headers, expose, credentials, max_age } = cors;
        Self {
            origins: origins.iter().map(Into::into).collect(),
            methods: texts(methods),
            headers: texts(headers),
            expose: texts(expose),
            credentials: *credentials,
            max_age: nanos(*max_age),
        }
    }
}

impl TryFrom<proto::Cors> for Cors {
    type Error = Refusal;

    fn try_from(cors: proto::Cors) -> Result<Self, Refusal> {
        let origins: Vec<OriginPattern> = all(cors.origins)?;
        if cors.credentials && origins.contains(&OriginPattern::Any) {
            return Err(Refusal::Invalid("credentials of every origin"));
        }
        Ok(Self {
            origins,
            methods: of_texts(cors.methods),
            headers: headers(cors.headers)?,
            expose: headers(cors.expose)?,
            credentials: cors.credentials,
            max_age: duration(cors.max_age, "how long a preflight is good")?,
        })
    }
}

impl From<&OriginPattern> for proto::OriginPattern {
    fn from(origin: &OriginPattern) -> Self {
        match origin {
            OriginPattern::Any => Self { kind: proto::OriginPatternKind::Any.into(), ..Self::default() },
            OriginPattern::Exact(origin) => Self {
                kind: proto::OriginPatternKind::Exact.into(),
                origin: origin.to_string(),
                ..Self::default()
            },
            OriginPattern::Below { scheme, suffix } => Self {
                kind: proto::OriginPatternKind::Below.into(),
                scheme: scheme.to_string(),
                suffix: suffix.to_string(),
                ..Self::default()
            },
        }
    }
}

impl TryFrom<proto::OriginPattern> for OriginPattern {
    type Error = Refusal;

    fn try_from(origin: proto::OriginPattern) -> Result<Self, Refusal> {
        let proto::OriginPattern { kind, origin, scheme, suffix } = origin;
        match known(kind, "the kind of an origin")? {
            proto::OriginPatternKind::None => Err(Refusal::Missing("the kind of an origin")),
            proto::OriginPatternKind::Any => Ok(Self::Any),
            proto::OriginPatternKind::Exact if origin.contains("://") => Ok(Self::Exact(origin.into())),
            // Without the dot it would be an invitation to hosts of others.
            proto::OriginPatternKind::Below if scheme.ends_with("://") && suffix.starts_with('.') => {
                Ok(Self::Below { scheme: scheme.into(), suffix: suffix.into() })
            }
            _ => Err(Refusal::Invalid("an origin")),
        }
    }
}

impl From<&Authentication> for proto::Authentication {
    fn from(authentication: &Authentication) -> Self {
        let Authentication { requires_all, methods, consumers } = authentication;
        Self {
            requires_all: *requires_all,
            methods: methods.iter().map(Into::into).collect(),
            all_namespaces: consumers.is_none(),
            namespaces: consumers.as_deref().map(texts).unwrap_or_default(),
        }
    }
}

impl TryFrom<proto::Authentication> for Authentication {
    type Error = Refusal;

    fn try_from(authentication: proto::Authentication) -> Result<Self, Refusal> {
        let proto::Authentication { requires_all, methods, all_namespaces, namespaces } = authentication;
        if methods.is_empty() {
            return Err(Refusal::Missing("a method of authentication"));
        }
        let consumers = match all_namespaces {
            true if namespaces.is_empty() => None,
            true => return Err(Refusal::Invalid("the namespaces of consumers")),
            false => Some(of_texts(namespaces)),
        };
        Ok(Self { requires_all, methods: all(methods)?, consumers })
    }
}

impl From<&Method> for proto::Method {
    fn from(method: &Method) -> Self {
        Self {
            by: Some(match method {
                Method::Jwt(jwt) => proto::MethodBy::Jwt(jwt.into()),
                Method::ApiKey { from, forward } => proto::MethodBy::ApiKey(proto::ApiKey {
                    from: from.iter().map(Into::into).collect(),
                    forward: *forward,
                }),
                Method::Basic(basic) => proto::MethodBy::Basic(basic.into()),
                Method::External(external) => proto::MethodBy::External((&**external).into()),
                Method::Unusable { method, reason } => proto::MethodBy::Unusable(proto::UnusableMethod {
                    method: method.to_string(),
                    reason: reason.to_string(),
                }),
            }),
        }
    }
}

impl TryFrom<proto::Method> for Method {
    type Error = Refusal;

    fn try_from(method: proto::Method) -> Result<Self, Refusal> {
        Ok(match required(method.by, "a method of authentication")? {
            proto::MethodBy::Jwt(jwt) => Self::Jwt(jwt.try_into()?),
            proto::MethodBy::ApiKey(key) => Self::ApiKey { from: all(key.from)?, forward: key.forward },
            proto::MethodBy::Basic(basic) => Self::Basic(basic.into()),
            proto::MethodBy::External(external) => Self::External(Arc::new(external.try_into()?)),
            proto::MethodBy::Unusable(unusable) => {
                Self::Unusable { method: unusable.method.into(), reason: unusable.reason.into() }
            }
        })
    }
}

impl From<&Credential> for proto::Credential {
    fn from(credential: &Credential) -> Self {
        let (kind, name, prefix) = match credential {
            Credential::Header { name, prefix } => (proto::CredentialKind::Header, name, &**prefix),
            Credential::Query(name) => (proto::CredentialKind::Query, name, ""),
            Credential::Cookie(name) => (proto::CredentialKind::Cookie, name, ""),
        };
        Self { kind: kind.into(), name: name.to_string(), prefix: prefix.to_owned() }
    }
}

impl TryFrom<proto::Credential> for Credential {
    type Error = Refusal;

    fn try_from(credential: proto::Credential) -> Result<Self, Refusal> {
        let proto::Credential { kind, name, prefix } = credential;
        match known(kind, "where a credential is")? {
            proto::CredentialKind::None => Err(Refusal::Missing("where a credential is")),
            _ if name.is_empty() => Err(Refusal::Missing("the name of a credential")),
            proto::CredentialKind::Header if prefix.is_empty() || prefix.ends_with(' ') => {
                Ok(Self::Header { name: header(name)?, prefix: prefix.into() })
            }
            proto::CredentialKind::Header => Err(Refusal::Invalid("what is before a credential")),
            proto::CredentialKind::Query => Ok(Self::Query(name.into())),
            proto::CredentialKind::Cookie => Ok(Self::Cookie(name.into())),
        }
    }
}

impl From<&Basic> for proto::Basic {
    fn from(basic: &Basic) -> Self {
        let Basic { realm, users, forward } = basic;
        let user = |(name, hash): &(Box<str>, Box<str>)| proto::User {
            name: name.to_string(),
            hash: hash.to_string(),
        };
        Self { realm: realm.to_string(), users: users.iter().map(user).collect(), forward: *forward }
    }
}

impl From<proto::Basic> for Basic {
    fn from(basic: proto::Basic) -> Self {
        let user = |user: proto::User| (user.name.into(), user.hash.into());
        Self {
            realm: basic.realm.into(),
            users: basic.users.into_iter().map(user).collect(),
            forward: basic.forward,
        }
    }
}

impl From<&Authorization> for proto::Authorization {
    fn from(authorization: &Authorization) -> Self {
        let Authorization { rules, allows_others } = authorization;
        Self { rules: rules.iter().map(Into::into).collect(), allows_others: *allows_others }
    }
}

impl TryFrom<proto::Authorization> for Authorization {
    type Error = Refusal;

    fn try_from(authorization: proto::Authorization) -> Result<Self, Refusal> {
        Ok(Self { rules: all(authorization.rules)?, allows_others: authorization.allows_others })
    }
}

impl From<&AuthorizationRule> for proto::AuthorizationRule {
    fn from(rule: &AuthorizationRule) -> Self {
        let AuthorizationRule { allows, consumers, groups, claims, methods, paths, addresses } = rule;
        let consumer = |(namespace, name): &(_, _)| proto::ConsumerName {
            namespace: ToString::to_string(namespace),
            name: ToString::to_string(name),
        };
        Self {
            allows: *allows,
            consumers: consumers.iter().map(consumer).collect(),
            groups: texts(groups),
            claims: claims.iter().map(Into::into).collect(),
            methods: texts(methods),
            paths: paths.iter().map(Into::into).collect(),
            addresses: texts(addresses),
        }
    }
}

impl TryFrom<proto::AuthorizationRule> for AuthorizationRule {
    type Error = Refusal;

    fn try_from(rule: proto::AuthorizationRule) -> Result<Self, Refusal> {
        let consumer = |name: proto::ConsumerName| (name.namespace.into(), name.name.into());
        Ok(Self {
            allows: rule.allows,
            consumers: rule.consumers.into_iter().map(consumer).collect(),
            groups: of_texts(rule.groups),
            claims: all(rule.claims)?,
            methods: of_texts(rule.methods),
            paths: all(rule.paths)?,
            addresses: networks(&rule.addresses, "a network of a rule")?,
        })
    }
}

impl From<&ClaimValues> for proto::ClaimValues {
    fn from(claim: &ClaimValues) -> Self {
        let ClaimValues { claim, values } = claim;
        Self { claim: claim.to_string(), values: texts(values) }
    }
}

impl TryFrom<proto::ClaimValues> for ClaimValues {
    type Error = Refusal;

    fn try_from(claim: proto::ClaimValues) -> Result<Self, Refusal> {
        match claim.claim.is_empty() {
            true => Err(Refusal::Missing("the name of a claim")),
            false => Ok(Self { claim: claim.claim.into(), values: of_texts(claim.values) }),
        }
    }
}
