//! Which Ingresses are ours.

use std::cmp::Reverse;
use std::collections::HashMap;

use super::{CONTROLLER, TranslateOptions};
use crate::object::ingress::Ingress;
use crate::store::Store;

/// The IngressClasses of a store.
pub(super) struct Classes<'a> {
    /// By name, whether they are ours.
    by_name: HashMap<&'a str, bool>,
    /// Whether the default one is ours, if there is one.
    default: Option<bool>,
    options: &'a TranslateOptions,
}

impl<'a> Classes<'a> {
    pub(super) fn new(store: &'a Store, options: &'a TranslateOptions) -> Self {
        let is_ours = |controller: &str| controller == CONTROLLER;
        let by_name =
            store.classes().map(|(object, class)| (&*object.name, is_ours(&class.controller))).collect();
        let default = store
            .classes()
            .filter(|(_, class)| class.is_default)
            .min_by_key(|(object, class)| (Reverse(class.created), &*object.name))
            .map(|(_, class)| is_ours(&class.controller));
        Self { by_name, default, options }
    }

    /// See [`TranslateOptions`].
    pub(super) fn serves(&self, ingress: &Ingress) -> bool {
        let named = ingress.class_name.as_deref().or(ingress.class_annotation.as_deref());
        match named.filter(|name| !name.is_empty()) {
            Some(name) => {
                self.by_name.get(name).copied().unwrap_or_else(|| name == self.options.ingress_class)
            }
            None => {
                self.options.watch_ingress_without_class || self.default.unwrap_or(self.by_name.is_empty())
            }
        }
    }
}
