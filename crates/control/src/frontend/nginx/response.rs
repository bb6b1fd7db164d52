//! Rewrites and headers of responses.

use sluicegate_model::feature::{ResponseHeader, ResponseHeaderMode, ResponseRewrite, TemplateHeader};
use sluicegate_model::value::{AnnotatedHeader, EditedHeader, Entries, Template};

use super::{Context, Parts};
use crate::object::ObjectRef;
use crate::object::nginx::global;
use crate::object::nginx::response::CUSTOM_HEADERS;

pub(super) fn apply(context: &mut Context<'_, '_>, parts: &mut Parts) {
    let settings = context.settings.clone();
    let settings = &settings.response;
    let rewrite = ResponseRewrite {
        cookie_domains: settings.cookie_domain.iter().cloned().collect(),
        cookie_paths: settings.cookie_path.iter().cloned().collect(),
        locations: settings.redirect().into_iter().collect(),
    };
    if rewrite != ResponseRewrite::default() {
        parts.features.response_rewrite = Some(Box::new(rewrite));
    }
    parts.features.response_headers.remove = hidden(&context.settings.global);
    if let Some(map) = &settings.custom_headers {
        add_headers(context, parts, map, &settings.allowed_headers);
    }
}

/// The headers of endpoints that nginx keeps from clients: its own commands, the name of the server (`server-tokens`), and
/// `hide-headers`.
fn hidden(global: &global::Settings) -> Entries<EditedHeader, 32> {
    const HIDDEN: [&str; 7] = [
        "Server",
        "X-Accel-Buffering",
        "X-Accel-Charset",
        "X-Accel-Expires",
        "X-Accel-Limit-Rate",
        "X-Accel-Redirect",
        "X-Pad",
    ];
    let passes_server = global.has_server_tokens && global.passes_server;
    let names = HIDDEN.iter().filter(|name| !(passes_server && **name == "Server"));
    let names = names.filter_map(|name| EditedHeader::new(name).ok());
    // The settings have no longer list.
    Entries::new(names.chain(global.hidden.iter().cloned()).collect()).unwrap_or_default()
}

/// Adds the headers of a ConfigMap. Only the owner of the gateway allows names.
fn add_headers(context: &mut Context<'_, '_>, parts: &mut Parts, map: &ObjectRef, allowed: &[Box<str>]) {
    let Some((found, _)) = context.store.configmap(map) else {
        let message = format!("{map} does not exist; responses have no such headers");
        return context.fault_of(map, CUSTOM_HEADERS, message);
    };
    for (name, value) in found.data.values() {
        let is_allowed = allowed.iter().any(|of| of.eq_ignore_ascii_case(name));
        let header = match (is_allowed, std::str::from_utf8(value)) {
            (false, _) => Err("is not one of global-allowed-response-headers".to_owned()),
            (true, Err(_)) => Err("is not text".to_owned()),
            (true, Ok(value)) => header(name, value),
        };
        let added = header.and_then(|header| {
            let headers = &mut parts.features.template_headers.get_or_insert_default().response;
            headers.push(header).then_some(()).ok_or_else(|| "is one of too many headers".to_owned())
        });
        if let Err(fault) = added {
            let message = format!("{map}: data[{name}] {fault}; responses lack this header");
            context.fault_of(map, CUSTOM_HEADERS, message);
        }
    }
}

/// A header of all responses, in place of headers of the same name.
fn header(name: &str, value: &str) -> Result<ResponseHeader, String> {
    let name = AnnotatedHeader::new(name)?;
    let value = Template::literal(value).map_err(|fault| fault.to_string())?;
    Ok(ResponseHeader { header: TemplateHeader { name, value }, mode: ResponseHeaderMode::Set })
}
