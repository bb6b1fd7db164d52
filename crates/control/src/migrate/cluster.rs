//! The Ingresses of a cluster.

use std::path::PathBuf;

use kube::api::{Api, DynamicObject, ListParams};
use kube::{Client, ResourceExt as _};

use crate::object::Kind;
use crate::source::cluster::client::{ClientError, Credentials};

/// The kinds that the report needs.
const KINDS: [Kind; 2] = [Kind::IngressClass, Kind::Ingress];

/// The objects in one response of the API server.
const PAGE: u32 = 500;

/// The reason why the Ingresses of a cluster cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no client for the cluster.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The API server does not list the objects.
    #[error("cannot list objects of kind {0}: {1}")]
    List(Kind, kube::Error),
}

/// The Ingresses and IngressClasses of a cluster, as manifests.
///
/// # Errors
///
/// There are no credentials, or the API server does not list the objects.
pub async fn read_ingresses(credentials: &Credentials) -> Result<Vec<(PathBuf, String)>, ReadError> {
    let client = credentials.client().await?;
    let mut texts = Vec::new();
    for kind in KINDS {
        list(&client, kind, &mut texts).await.map_err(|error| ReadError::List(kind, error))?;
    }
    Ok(texts)
}

async fn list(client: &Client, kind: Kind, texts: &mut Vec<(PathBuf, String)>) -> kube::Result<()> {
    let resource = kind.resource(kind.api_versions()[0]);
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut params = ListParams::default().limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        let next = page.metadata.continue_.clone().filter(|next| !next.is_empty());
        for mut object in page {
            // Lists leave out the kind of their objects.
            object.types = Some(kube::core::TypeMeta {
                api_version: resource.api_version.clone(),
                kind: resource.kind.clone(),
            });
            object.managed_fields_mut().clear();
            let name = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
            texts.push((name.into(), serde_json::to_string(&object).unwrap_or_default()));
        }
        let Some(next) = next else { return Ok(()) };
        params = params.continue_token(&next);
    }
}
