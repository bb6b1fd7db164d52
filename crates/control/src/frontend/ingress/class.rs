//! The choice of the Ingresses that the gateway serves, by their class.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::object::annotation;
use crate::object::class::IngressClass;
use crate::object::ingress::{CLASS_ANNOTATION, Ingress};
use crate::store::Store;
use crate::translate::{CONTROLLER, NGINX_CONTROLLER, TranslateOptions};

/// The meaning of the annotations and paths of an Ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Annotations with the prefix `sluicegate.dev/`.
    Own,
    /// Annotations, paths and defaults of ingress-nginx.
    IngressNginx,
}

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

    /// Whether the gateway serves an Ingress.
    pub(crate) fn serves(&self, ingress: &Ingress) -> bool {
        self.dialect(ingress).is_some()
    }

    /// The dialect of an Ingress; `None` if the gateway does not serve the Ingress. See [`TranslateOptions`].
    pub(crate) fn dialect(&self, ingress: &Ingress) -> Option<Dialect> {
        let nginx = self.options.ingress_nginx.as_ref();
        let Some((_, name)) = named(ingress) else {
            let of_default = self.default.and_then(|name| self.of_controller(self.controllers.get(name)?));
            let is_alone = self.default.is_none() && self.controllers.is_empty();
            let is_served = self.options.watch_ingress_without_class || is_alone;
            return of_default.or(is_served.then_some(Dialect::Own));
        };
        match self.controllers.get(name) {
            Some(controller) => self.of_controller(controller),
            None if nginx.is_some_and(|nginx| name == nginx.ingress_class) => Some(Dialect::IngressNginx),
            None => (name == self.options.ingress_class).then_some(Dialect::Own),
        }
    }

    fn of_controller(&self, controller: &str) -> Option<Dialect> {
        if controller == CONTROLLER {
            return Some(Dialect::Own);
        }
        let nginx = self.options.ingress_nginx.as_ref()?;
        (controller == nginx.controller || controller == NGINX_CONTROLLER).then_some(Dialect::IngressNginx)
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
            None if name == "nginx" => {
                "; start with --ingress-nginx-compatibility to serve it as ingress-nginx does, \
                                        or with --ingress-class nginx"
                    .to_owned()
            }
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
