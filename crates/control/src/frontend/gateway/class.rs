//! The choice of the Gateways that the gateway serves, by their class.

use std::collections::HashMap;

use crate::object::gateway::{Gateway, GatewayClass};
use crate::store::Store;
use crate::translate::{GATEWAY_CONTROLLER, TranslateOptions};

/// Whether a class belongs to this controller.
pub(crate) fn is_ours(class: &GatewayClass) -> bool {
    *class.controller == *GATEWAY_CONTROLLER
}

/// The GatewayClasses of a store.
pub(super) struct Classes<'a> {
    /// The controller of each class, by name.
    controllers: HashMap<&'a str, &'a str>,
    options: &'a TranslateOptions,
}

impl<'a> Classes<'a> {
    pub(super) fn new(store: &'a Store, options: &'a TranslateOptions) -> Self {
        let classes = store.all::<GatewayClass>();
        let controllers = classes.map(|(object, class, _)| (&*object.name, &*class.controller)).collect();
        Self { controllers, options }
    }

    /// The reason why a Gateway is not served, and the option that would serve it; `None` if the Gateway is served. See
    /// [`TranslateOptions`].
    pub(super) fn refusal(&self, gateway: &Gateway) -> Option<String> {
        let name = &*gateway.class_name;
        let way_out = match self.controllers.get(name) {
            Some(&GATEWAY_CONTROLLER) => return None,
            Some(controller) => format!(
                ": GatewayClass {name} belongs to the controller {controller:?}; name a class of {GATEWAY_CONTROLLER}"
            ),
            None if name == self.options.gateway_class => return None,
            None => format!("; start with --gateway-class {} to serve it", name.escape_debug()),
        };
        Some(format!("{name:?} is not served here{way_out}"))
    }
}
