//! The store of the certificates of an ACME server: Secrets of the cluster.

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use sluicegate_acme::{LABEL, NewSecret, SecretName, Secrets, SecretsError, Stored};

use super::lease::is_conflict;
use super::watch::in_words;

/// The Secrets of a cluster.
pub struct ClusterSecrets(Client);

impl ClusterSecrets {
    /// The Secrets of the cluster of this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self(client)
    }

    fn api(&self, name: &SecretName) -> Api<Secret> {
        Api::namespaced(self.0.clone(), &name.namespace)
    }
}

fn is_ours(secret: &Secret) -> bool {
    let labels = secret.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(LABEL.0)).is_some_and(|value| value == LABEL.1)
}

fn fault(name: &SecretName, error: &kube::Error) -> SecretsError {
    SecretsError::Store(format!("cannot read or write {name}: {}", in_words(error)))
}

impl Secrets for ClusterSecrets {
    async fn read(&self, name: &SecretName) -> Result<Option<Stored>, SecretsError> {
        let secret = self.api(name).get_opt(&name.name).await.map_err(|error| fault(name, &error))?;
        Ok(secret.map(|secret| Stored {
            is_ours: is_ours(&secret),
            values: secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect(),
        }))
    }

    async fn write(&self, NewSecret { name, kind, values }: NewSecret) -> Result<(), SecretsError> {
        let api = self.api(&name);
        let data = Some(values.into_iter().map(|(key, value)| (key, ByteString(value))).collect());
        let params = PostParams::default();
        loop {
            let known = api.get_opt(&name.name).await.map_err(|error| fault(&name, &error))?;
            let written = match known {
                Some(known) if !is_ours(&known) => return Err(SecretsError::Foreign(name)),
                // The version of the object makes sure that it is still the Secret with the label.
                Some(known) => {
                    let secret = Secret { data: Clone::clone(&data), ..known };
                    api.replace(&name.name, &params, &secret).await
                }
                None => {
                    let labels = Some([(LABEL.0.to_owned(), LABEL.1.to_owned())].into());
                    let metadata =
                        ObjectMeta { name: Some(name.name.to_string()), labels, ..ObjectMeta::default() };
                    let secret = Secret {
                        metadata,
                        type_: Some(kind.to_owned()),
                        data: Clone::clone(&data),
                        ..Secret::default()
                    };
                    api.create(&params, &secret).await
                }
            };
            match written {
                // Another writer was faster: its Secret may be of another origin.
                Err(error) if is_conflict(&error) => {}
                other => return other.map(drop).map_err(|error| fault(&name, &error)),
            }
        }
    }
}
