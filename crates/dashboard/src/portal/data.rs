//! The JSON documents of the portal. Each function takes the visitor, and returns only what the visitor may see.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::{Value, json};
use sluicegate_model::Visibility;
use sluicegate_model::feature::QuotaUnit;

use super::Portal;
use crate::access::{Name, User};
use crate::catalogue::{Api, Consumer, Plan, Subscription};
use crate::changes::Change;
use crate::data::{Absent, bytes, keys, parameter, text_of, wanted, with_document};

/// The windows of the usage, each with the step of its points in seconds.
const WINDOWS: [(&str, u32); 4] = [("1h", 60), ("24h", 3600), ("7d", 21_600), ("30d", 86_400)];

/// The most APIs of the usage.
const USAGE_APIS: usize = 50;

/// The documents of the portal.
pub(super) struct Data(pub(super) Portal);

/// The reason why a visitor may not make a change.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The portal makes no such change.
    Kind,
    /// An object does not exist, or the visitor may not see it.
    Missing(String),
    /// The state of an object does not allow the change.
    State(String),
}

impl Data {
    /// The document at a path below `/api/`. The call may block.
    pub(super) fn document(&self, user: &User, path: &str, query: &str) -> Result<Vec<u8>, Absent> {
        match path {
            "apis" => {
                let wanted = wanted(query)?;
                let apis: Vec<Api> = self.apis(user).filter(|api| wanted.finds(&text_of(api))).collect();
                bytes(&wanted.part(&apis, shown))
            }
            "api" => {
                let name = named(query);
                let api = self.api(user, &name).ok_or_else(|| no_api(&name))?;
                with_document(&*self.0.catalogue, &api, &shown(&api), query)
            }
            "plans" => {
                let namespace = parameter(query, "namespace");
                let plans = self.plans(user).filter(|plan| plan.namespace == namespace);
                bytes(&json!({"items": plans.map(|plan| plan_json(&plan)).collect::<Vec<_>>()}))
            }
            "subscriptions" => {
                let wanted = wanted(query)?;
                let mut own = self.0.catalogue.subscriptions();
                own.retain(|of| owns(user, &of.consumer_namespace, &of.consumer));
                own.retain(|of| {
                    wanted.finds(&format!("{} {} {}", of.name, of.plan, of.consumer).to_lowercase())
                });
                let (apis, plans) = (self.0.catalogue.apis(), self.0.catalogue.plans());
                bytes(&wanted.part(&own, |of| self.subscription(user, of, (&apis, &plans))))
            }
            "keys" => {
                let wanted = wanted(query)?;
                let mut consumers = self.consumers(user);
                for consumer in &mut consumers {
                    consumer.origin = None;
                    // The operator manages keys in Secrets.
                    consumer.keys.retain(|key| key.secret.is_none());
                }
                bytes(&keys::shown(&consumers, &wanted))
            }
            _ => Err(Absent::Path),
        }
    }

    /// The APIs that a visitor sees.
    fn apis(&self, user: &User) -> impl Iterator<Item = Api> {
        self.0.catalogue.apis().into_iter().filter(|api| api.visible_to.allows(&user.groups))
    }

    fn api(&self, user: &User, name: &Name) -> Option<Api> {
        self.apis(user).find(|api| api.namespace == name.namespace && api.name == name.name)
    }

    /// The hosts of an API that a visitor sees, to which its page may connect.
    pub(super) fn hosts_of(&self, user: &User, name: &Name) -> Vec<String> {
        let api = self.api(user, name).into_iter();
        api.flat_map(|api| api.environments).flat_map(|environment| environment.hosts).collect()
    }

    /// The groups that see an Api or a Plan.
    pub(super) fn named_groups(&self) -> HashSet<String> {
        let (apis, plans) = (self.0.catalogue.apis(), self.0.catalogue.plans());
        let visible_to = apis.iter().map(|api| &api.visible_to).chain(plans.iter().map(|of| &of.visible_to));
        let groups = visible_to.filter_map(|visible_to| match visible_to {
            Visibility::Groups(groups) => Some(groups),
            _ => None,
        });
        groups.flatten().map(ToString::to_string).collect()
    }

    /// The plans that a visitor sees.
    fn plans(&self, user: &User) -> impl Iterator<Item = Plan> {
        self.0.catalogue.plans().into_iter().filter(|plan| plan.visible_to.allows(&user.groups))
    }

    /// The Consumers of a user.
    fn consumers(&self, user: &User) -> Vec<Consumer> {
        let mut consumers = self.0.catalogue.consumers();
        consumers.retain(|consumer| owns(user, &consumer.namespace, &consumer.name));
        consumers
    }

    /// A subscription of a user. Titles and limits are of objects that belong to the subscription, so its user may know them.
    fn subscription(&self, user: &User, of: &Subscription, (apis, plans): (&[Api], &[Plan])) -> Value {
        let plan = plans.iter().find(|plan| plan.namespace == of.namespace && plan.name == of.plan);
        let shown_apis = of.apis.iter().map(|subscribed| {
            let api = apis.iter().find(|api| api.namespace == of.namespace && api.name == subscribed.name);
            let visible = api.filter(|api| api.visible_to.allows(&user.groups));
            json!({
                "namespace": of.namespace,
                "name": subscribed.name,
                "title": visible.map(|api| &api.title),
                "operation_sets": subscribed.operation_sets,
            })
        });
        let shown_apis: Vec<Value> = shown_apis.collect();
        let name = Name { namespace: of.namespace.clone(), name: of.name.clone() };
        let used = plan.and_then(|plan| self.0.quotas.of(&name, &plan.quotas));
        let quotas = plan.into_iter().flat_map(|plan| &plan.quotas).map(|quota| {
            let (unit, most) = quota.most();
            let now = used.as_ref().map(|used| used.iter().find(|of| of.quota == quota.name.as_str()));
            json!({
                "name": quota.name,
                "unit": match unit { QuotaUnit::Requests => "requests", QuotaUnit::Bytes => "bytes" },
                "most": most,
                "used": now.map(|now| now.map_or(0, |of| of.used)),
                "end": now.flatten().map(|of| of.end),
                "calendar": quota.calendar,
                "period": quota.period,
            })
        });
        let quotas: Vec<Value> = quotas.collect();
        json!({
            "namespace": of.namespace,
            "name": of.name,
            "consumer": format!("{}/{}", of.consumer_namespace, of.consumer),
            "plan": of.plan,
            "plan_title": plan.map(|plan| &plan.title),
            "apis": shown_apis,
            "state": of.state,
            "created": of.created,
            "is_managed": of.manager.is_some(),
            "quotas": quotas,
        })
    }

    /// The query of analytics for the usage of a Consumer of the user.
    pub(super) fn usage_query(&self, user: &User, query: &str) -> Result<String, Absent> {
        let consumer = own_consumer(user, &parameter(query, "consumer"))?;
        let since = parameter(query, "since");
        let (since, step) = WINDOWS
            .into_iter()
            .find(|(name, _)| *name == since)
            .ok_or_else(|| Absent::Query("The parameter since is none of 1h, 24h, 7d and 30d.".to_owned()))?;
        let condition = format!("consumer:{consumer}");
        let mut written = form_urlencoded::Serializer::new(String::new());
        written
            .append_pair("since", since)
            .append_pair("step", &step.to_string())
            .append_pair("by", "api")
            .append_pair("limit", &USAGE_APIS.to_string())
            .append_pair("where", &condition);
        Ok(written.finish())
    }

    /// Checks whether a user may make a change.
    pub(super) fn check(&self, user: &User, change: &Change) -> Result<(), Refused> {
        match change {
            Change::Key { consumer, .. } => self.check_consumer(user, consumer),
            Change::Decide { .. } => Err(Refused::Kind),
            Change::Subscribe { consumer, api, plan } => {
                self.check_consumer(user, consumer)?;
                self.check_subscription(user, consumer, (api, plan))
            }
            Change::Cancel { subscription } => self.check_cancel(user, subscription),
        }
    }

    fn check_consumer(&self, user: &User, consumer: &Name) -> Result<(), Refused> {
        let exists = self
            .consumers(user)
            .iter()
            .any(|of| of.namespace == consumer.namespace && of.name == consumer.name);
        exists.then_some(()).ok_or_else(|| Refused::Missing(format!("There is no Consumer {consumer}.")))
    }

    /// A user cannot undo the decision of an operator: after a cancellation, the user could subscribe again.
    fn check_cancel(&self, user: &User, subscription: &Name) -> Result<(), Refused> {
        let subscriptions = self.0.catalogue.subscriptions();
        let found = subscriptions.iter().find(|of| {
            of.namespace == subscription.namespace
                && of.name == subscription.name
                && owns(user, &of.consumer_namespace, &of.consumer)
        });
        let missing = || Refused::Missing(format!("There is no Subscription {subscription}."));
        let found = found.ok_or_else(missing)?;
        let fault = match found.state {
            "Rejected" | "Suspended" => {
                "The owner of the API has rejected or suspended the subscription, so you cannot cancel it."
            }
            _ if found.manager.is_some() => {
                "The provider of the API manages the subscription in a repository, so you cannot cancel it here. Ask the provider."
            }
            _ => return Ok(()),
        };
        Err(Refused::State(fault.to_owned()))
    }

    fn check_subscription(
        &self,
        user: &User,
        consumer: &Name,
        (api, plan): (&Name, &str),
    ) -> Result<(), Refused> {
        let missing = || Refused::Missing(format!("There is no Api {api}."));
        let found = self.api(user, api).ok_or_else(missing)?;
        let mut plans = self.plans(user);
        if !plans.any(|of| of.namespace == api.namespace && of.name == *plan) {
            return Err(Refused::Missing(format!("The API has no plan {plan:?}.")));
        }
        if !accepts_subscribers(&found) {
            return Err(Refused::State("The API accepts no new subscribers, because it ends.".to_owned()));
        }
        let is_subscribed = self.0.catalogue.subscriptions().iter().any(|of| {
            let is_own = of.consumer_namespace == consumer.namespace && of.consumer == consumer.name;
            is_own && of.namespace == api.namespace && of.apis.iter().any(|of| of.name == api.name)
        });
        match is_subscribed {
            true => Err(Refused::State(format!("{consumer} has a subscription to this API already."))),
            false => Ok(()),
        }
    }
}

/// Whether a user has a Consumer.
fn owns(user: &User, namespace: &str, name: &str) -> bool {
    user.consumers.iter().any(|own| own.namespace == namespace && own.name == name)
}

fn own_consumer(user: &User, written: &str) -> Result<Name, Absent> {
    let missing = || Absent::Object(format!("There is no Consumer {written}."));
    let name = Name::try_from(written.to_owned()).map_err(|_| missing())?;
    user.consumers.iter().find(|own| **own == name).cloned().ok_or_else(missing)
}

fn named(query: &str) -> Name {
    Name { namespace: parameter(query, "namespace"), name: parameter(query, "name") }
}

fn no_api(name: &Name) -> Absent {
    Absent::Object(format!("There is no Api {name}."))
}

/// A deprecated Api accepts no new subscribers.
fn accepts_subscribers(api: &Api) -> bool {
    matches!(api.state, "Created" | "PreReleased" | "Published")
}

/// An API without the facts that concern only the operator: the upstreams, the place of the object, the visitors.
fn shown(api: &Api) -> Value {
    let environments = api.environments.iter().map(|of| {
        json!({
            "name": of.name,
            "hosts": of.hosts,
            "base_path": of.base_path,
            "https": of.https,
            "has_own_document": of.has_own_document,
            "operations": of.operations,
        })
    });
    json!({
        "namespace": api.namespace,
        "name": api.name,
        "title": api.title,
        "version": api.version,
        "owner": api.owner,
        "state": api.state,
        "deprecation": api.deprecation,
        "sunset": api.sunset,
        "versioning": api.versioning,
        "operations": api.operations,
        "environments": environments.collect::<Vec<_>>(),
        "accepts_subscribers": accepts_subscribers(api),
    })
}

fn plan_json(plan: &Plan) -> Value {
    let limits =
        plan.limits.iter().map(|of| json!({"name": of.name, "requests": of.requests, "per": of.per}));
    let concurrency = plan.concurrency.iter().map(|of| json!({"name": of.name, "requests": of.requests}));
    json!({
        "namespace": plan.namespace,
        "name": plan.name,
        "title": plan.title,
        "description": plan.description,
        "needs_approval": plan.needs_approval,
        "limits": limits.collect::<Vec<_>>(),
        "concurrency": concurrency.collect::<Vec<_>>(),
        "quotas": plan.quotas,
    })
}

/// The visitor without a login.
pub(super) fn nobody() -> Arc<User> {
    Arc::default()
}
