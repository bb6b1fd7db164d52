//! The portal: the session, the documents and the changes of a visitor.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use hyper::body::Bytes;
use hyper::{Request, Response, StatusCode};
use serde_json::{Value, json};
use sluicegate_admin::{Hosts, Pages};
use tokio::sync::Semaphore;

use super::Portal;
use super::data::{Data, Refused, nobody};
use super::pace::Pace;
use crate::access::{Denied, Name, SiteKind, TokenFile, User};
use crate::changes::{Change, ChangeError};
use crate::response::{Body, check_change, denied, error, of_admin, too_many};
use crate::site::{Answer, Site, api_of_page, document_response, make};

const SITE: SiteKind = SiteKind::Portal;

/// The part of the portal that the dashboard does not have.
pub(crate) struct PortalSite {
    data: Arc<Data>,
    /// The pages of the admin interface, of which `/analytics` has the usage.
    admin: Pages,
    pace: Pace,
    /// The places for documents that are made at once.
    places: Semaphore,
}

/// The documents that are made at once. A document of an API may be large, and visitors need no login to ask for it.
const PLACES: usize = 4;

impl PortalSite {
    pub(super) fn new(portal: Portal) -> Self {
        let admin = Pages::new(portal.admin.clone());
        Self { admin, data: Arc::new(Data(portal)), pace: Pace::default(), places: Semaphore::new(PLACES) }
    }

    pub(super) fn portal(&self) -> &Portal {
        &self.data.0
    }

    /// The visitor: a user, or a visitor without a login.
    fn visitor(&self, request: &Request<Bytes>) -> Result<Arc<User>, Box<Response<Body>>> {
        let Some(users) = &self.portal().users else { return Ok(nobody()) };
        match users.user_of(request) {
            Ok(user) => Ok(user),
            Err(Denied::Unauthenticated) => Ok(nobody()),
            Err(reason) => Err(denied(reason, SITE).into()),
        }
    }

    /// The user. A visitor without a login has no own objects.
    fn user(&self, request: &Request<Bytes>) -> Result<Arc<User>, Box<Response<Body>>> {
        let user = self.visitor(request)?;
        match user.name.is_empty() {
            true => Err(denied(Denied::Unauthenticated, SITE).into()),
            false => Ok(user),
        }
    }
}

impl Site for PortalSite {
    const KIND: SiteKind = SITE;

    fn hosts(&self) -> &Hosts {
        &self.portal().hosts
    }

    fn users(&self) -> Option<&TokenFile> {
        self.portal().users.as_deref()
    }

    /// The user with the own Consumers, and whether the visitor can log in.
    fn session(&self, request: &Request<Bytes>) -> Result<Value, Box<Response<Body>>> {
        let user = self.visitor(request)?;
        let is_user = !user.name.is_empty();
        Ok(json!({
            "user": is_user.then_some(&user.name),
            "consumers": user.consumers.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "can_log_in": self.users().is_some(),
        }))
    }

    async fn document(&self, request: &Request<Bytes>, name: &str) -> Answer {
        let user = match name {
            "apis" | "api" | "plans" => self.visitor(request)?,
            _ => self.user(request)?,
        };
        let query = request.uri().query().unwrap_or_default().to_owned();
        if name == "usage" {
            return Ok(match self.data.usage_query(&user, &query) {
                Ok(query) => of_admin(&self.admin, "analytics", &query).await,
                Err(absent) => document_response(request, Err(absent)),
            });
        }
        let (data, name) = (self.data.clone(), name.to_owned());
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        let document = tokio::task::spawn_blocking(move || data.document(&user, &name, &query)).await;
        Ok(match document {
            Ok(document) => document_response(request, document),
            Err(_) => error(StatusCode::INTERNAL_SERVER_ERROR, "The document failed."),
        })
    }

    /// Makes a change of the user's own objects.
    async fn change(&self, request: &Request<Bytes>) -> Answer {
        check_change(request)?;
        let user = self.user(request)?;
        if let Err(wait) = self.pace.count(&user.name, Instant::now()) {
            return Ok(too_many(wait, "You made too many changes."));
        }
        let change = Change::read(request.body())
            .map_err(|message| Box::new(error(StatusCode::BAD_REQUEST, &message)))?;
        let (data, of, asked) = (self.data.clone(), user.clone(), change.clone());
        let checked = tokio::task::spawn_blocking(move || data.check(&of, &asked)).await;
        match checked {
            Ok(Ok(())) => {}
            Ok(Err(Refused::Kind)) => {
                return Ok(error(
                    StatusCode::FORBIDDEN,
                    "Only an operator of the gateway makes this change.",
                ));
            }
            Ok(Err(Refused::Missing(message))) => return Ok(error(StatusCode::NOT_FOUND, &message)),
            Ok(Err(Refused::State(message))) => return Ok(error(StatusCode::CONFLICT, &message)),
            Err(_) => return Ok(error(StatusCode::INTERNAL_SERVER_ERROR, "The change failed.")),
        }
        let made = make(&*self.portal().changes, SITE, &user, change, None).await;
        Ok(made.unwrap_or_else(|ChangeError { status, message, is_private }| match is_private {
            // The message may name files and rights of the gateway.
            true => error(
                StatusCode::SERVICE_UNAVAILABLE,
                "The change is not possible now. Tell the owner of the API: the log of the gateway has the reason.",
            ),
            false => error(status, &message),
        }))
    }

    /// The hosts to which a page may send requests: the page of an API that the visitor sees tries its operations.
    async fn hosts_of_page(&self, request: &Request<Bytes>) -> Vec<String> {
        let Some((namespace, name)) = api_of_page(request) else { return Vec::new() };
        let Ok(user) = self.visitor(request) else { return Vec::new() };
        let data = self.data.clone();
        let name = Name { namespace, name };
        tokio::task::spawn_blocking(move || data.hosts_of(&user, &name)).await.unwrap_or_default()
    }
    /// The groups that see an Api or a Plan.
    async fn named_groups(&self) -> HashSet<String> {
        let data = self.data.clone();
        tokio::task::spawn_blocking(move || data.named_groups()).await.unwrap_or_default()
    }
}
