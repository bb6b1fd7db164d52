//! The choice of the Ingresses that the gateway serves, by their class.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::object::annotation;
use crate::object::class::IngressClass;
use crate::object::ingress::{CLASS_ANNOTATION, Ingress};
use crate::store::Store;
use crate::translate::{CONTROLLER, TranslateOptions};

/// The IngressClasses of a store.
pub(crate) struct Classes<'a> {
    /// The controller of each class, by name.
    controllers: HashMap<&'a str, &'a str>,
    /// The name of the default class.
    default: Option<&'a str>,
    options: &'a TranslateOptions,
}

impl<'a> Classes<'a> {
    pub(crate) fn new(store: &'a Store, options: &'a TranslateOptions) -> Self {
        let classes = || store.all::<IngressClass>();
        let controllers = classes().map(|(object, class, _)| (&*object.name, &*class.controller)).collect();
        let default = classes()
            .filter(|(_, class, _)| class.is_default)
            .min_by_key(|(object, class, _)| (Reverse(class.created), &*object.name))
            .map(|(object, ..)| &*object.name);
        Self { controllers, default, options }
    }

    /// See [`TranslateOptions`].
    pub(crate) fn serves(&self, ingress: &Ingress) -> bool {
        match named(ingress) {
            Some((_, name)) => match self.controllers.get(name) {
                Some(controller) => *controller == CONTROLLER,
                None => name == self.options.ingress_class,
            },
            None => {
                self.options.watch_ingress_without_class
                    || match self.default {
                        Some(name) => self.controllers.get(name) == Some(&CONTROLLER),
                        None => self.controllers.is_empty(),
                    }
            }
        }
    }

    /// The reason why an Ingress is not served, and the option that would serve it: the field and the message.
    pub(crate) fn refusal(&self, ingress: &Ingress) -> (String, String) {
        let Some((field, name)) = named(ingress) else {
            let default = match self.default {
                Some(name) => format!("the default IngressClass {name} belongs to another controller"),
                None => "no IngressClass is the default".to_owned(),
            };
            let message =
                format!("is missing, and {default}; start with --watch-ingress-without-class to serve it");
            return ("spec.ingressClassName".to_owned(), message);
        };
        let way_out = match self.controllers.get(name) {
            Some(controller) => format!(
                ": IngressClass {name} belongs to the controller {controller:?}; name a class of {CONTROLLER}"
            ),
            None => format!("; start with --ingress-class {} to serve it", name.escape_debug()),
        };
        (field, format!("{name:?} is not served here{way_out}"))
    }
}

/// The class that an Ingress names, and the field with the name.
pub(crate) fn named(ingress: &Ingress) -> Option<(String, &str)> {
    let (field, name) = match (&ingress.class_name, &ingress.class_annotation) {
        (Some(name), _) => ("spec.ingressClassName".to_owned(), name),
        (None, Some(name)) => (annotation::field(CLASS_ANNOTATION), name),
        (None, None) => return None,
    };
    (!name.is_empty()).then_some((field, name))
}
