//! The parameters of Gateways: of their own, and of their classes.

use super::class::{self, Classes};
use crate::object::ObjectRef;
use crate::object::gateway::{CLASS_PARAMETERS, Gateway, GatewayClass, PARAMETERS};
use crate::object::parameters::Parameters;
use crate::status::Fault;
use crate::store::Store;
use crate::translate::{DataPlanes, TranslateOptions};

/// The ConfigMaps with the parameters of our classes and of the Gateways that are served.
pub(crate) fn references<'s>(
    store: &'s Store,
    options: &'s TranslateOptions,
) -> impl Iterator<Item = &'s ObjectRef> {
    let classes = Classes::new(store, options);
    let of_classes = store.all::<GatewayClass>().filter(|(_, class, _)| class::is_ours(class));
    let of_classes = of_classes.filter_map(|(_, class, _)| class.parameters.as_ref());
    let gateways = store.all::<Gateway>().filter(move |(_, gateway, _)| classes.refusal(gateway).is_none());
    let of_gateways = gateways.filter_map(|(_, gateway, _)| gateway.parameters.as_ref());
    of_classes.chain(of_gateways).filter_map(|reference| reference.as_ref().ok())
}

/// The parameters of a class, or the reason why they are not valid.
pub(crate) fn of_class(
    store: &Store,
    options: &TranslateOptions,
    class: &GatewayClass,
) -> Result<Parameters, Fault> {
    read(store, options, class.parameters.as_ref(), CLASS_PARAMETERS)
}

/// The parameters of a Gateway, or the reason why they are not valid. They have precedence over the parameters of the class.
pub(crate) fn of_gateway(
    store: &Store,
    options: &TranslateOptions,
    gateway: &Gateway,
) -> Result<Parameters, Fault> {
    let own = read(store, options, gateway.parameters.as_ref(), PARAMETERS)?;
    let mut classes = store.all::<GatewayClass>();
    let Some((name, class, _)) = classes.find(|(name, ..)| *name.name == *gateway.class_name) else {
        return Ok(own);
    };
    let of_class = of_class(store, options, class);
    let of_class =
        of_class.map_err(|fault| Fault { message: format!("{name}: {}", fault.message), ..fault })?;
    Ok(own.or(of_class))
}

fn read(
    store: &Store,
    options: &TranslateOptions,
    reference: Option<&Result<ObjectRef, String>>,
    field: &str,
) -> Result<Parameters, Fault> {
    let invalid = |message: String| Fault::new("InvalidParameters", message);
    let object = match reference {
        None => return Ok(Parameters::default()),
        Some(Err(fault)) => return Err(invalid(fault.clone())),
        Some(Ok(object)) => object,
    };
    let Some(data) = store.data(object) else {
        return Err(invalid(format!("{field}: {object} does not exist")));
    };
    let parameters =
        Parameters::read(data).map_err(|fault| invalid(format!("{field}: {object}: {fault}")))?;
    if parameters != Parameters::default() && options.gateway_services.is_none() {
        return Err(invalid(format!(
            "{field}: {object}: has no effect, because Gateways have no Services (--gateway-services)"
        )));
    }
    if parameters.data_planes == Some(DataPlanes::Own) && options.own_data_planes.is_none() {
        return Err(invalid(format!(
            "{field}: {object}: data[dataPlanes]: Own needs a control plane with a template of data planes (--data-plane-template)"
        )));
    }
    Ok(parameters)
}
