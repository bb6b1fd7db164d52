//! Who calls.

use bytes::Bytes;
use sluicegate_model::policy::consumer::{SubjectClaim, TokenSubject};
use sluicegate_model::policy::{Consumer, KeyHash};

use crate::convert::{Refusal, all, known, of_texts, required, texts};
use crate::proto;

impl From<&Consumer> for proto::Consumer {
    fn from(consumer: &Consumer) -> Self {
        let Consumer { id, username, groups, keys, tokens, users, refused } = consumer;
        Self {
            id: Some(id.into()),
            username: username.to_string(),
            groups: texts(groups),
            keys: keys.iter().map(|key| Bytes::copy_from_slice(&key.0)).collect(),
            tokens: tokens.iter().map(Into::into).collect(),
            users: texts(users),
            refused: *refused,
        }
    }
}

impl TryFrom<proto::Consumer> for Consumer {
    type Error = Refusal;

    fn try_from(consumer: proto::Consumer) -> Result<Self, Refusal> {
        let key = |key: Bytes| match <[u8; 32]>::try_from(&*key) {
            Ok(hash) => Ok(KeyHash(hash)),
            Err(_) => Err(Refusal::Invalid("the length of a key's hash")),
        };
        Ok(Self {
            id: required(consumer.id, "the object of a consumer")?.into(),
            username: consumer.username.into(),
            groups: of_texts(consumer.groups),
            keys: consumer.keys.into_iter().map(key).collect::<Result<_, _>>()?,
            tokens: all(consumer.tokens)?,
            users: of_texts(consumer.users),
            refused: consumer.refused,
        })
    }
}

impl From<&TokenSubject> for proto::TokenSubject {
    fn from(subject: &TokenSubject) -> Self {
        let TokenSubject { issuer, claim, value } = subject;
        let claim = match claim {
            SubjectClaim::Subject => proto::TokenSubjectClaim::Subject,
            SubjectClaim::ClientId => proto::TokenSubjectClaim::ClientId,
        };
        Self {
            issuer: issuer.as_ref().map(ToString::to_string),
            claim: claim.into(),
            value: value.to_string(),
        }
    }
}

impl TryFrom<proto::TokenSubject> for TokenSubject {
    type Error = Refusal;

    fn try_from(subject: proto::TokenSubject) -> Result<Self, Refusal> {
        let field = "the claim that says whose a token is";
        let claim = match known(subject.claim, field)? {
            proto::TokenSubjectClaim::None => return Err(Refusal::Missing(field)),
            proto::TokenSubjectClaim::Subject => SubjectClaim::Subject,
            proto::TokenSubjectClaim::ClientId => SubjectClaim::ClientId,
        };
        Ok(Self { issuer: subject.issuer.map(Into::into), claim, value: subject.value.into() })
    }
}
