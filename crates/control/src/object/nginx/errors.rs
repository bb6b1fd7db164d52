//! Error pages, and the default backend.

use std::sync::Arc;

use sluicegate_model::feature::error_pages::PageCode;
use sluicegate_model::value::{Entries, syntax};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `custom-http-errors`.
    pub(crate) codes: Entries<PageCode, 64>,
    /// `default-backend`: the name of a Service of the namespace of the Ingress.
    pub(crate) default_backend: Option<Arc<str>>,
    /// `disable-proxy-intercept-errors`.
    pub(crate) keeps_responses: bool,
}

/// `custom-http-errors`.
pub(crate) const CODES: &str = "custom-http-errors";
/// `default-backend`.
pub(crate) const DEFAULT_BACKEND: &str = "default-backend";

pub(super) const ROWS: &[Row] = &[
    Row {
        name: CODES,
        restricts: false,
        meaning: Sets(|settings, value| {
            let code = |text: &str| {
                let code = text.parse().ok().and_then(|code| PageCode::new(code).ok());
                code.ok_or_else(|| format!("{text:?} is not a status from 300 to 599"))
            };
            let codes = value.list().map(code).collect::<Result<Vec<_>, _>>()?;
            let codes = Entries::new(codes).ok_or_else(|| "has more than 64 statuses".to_owned())?;
            settings.errors.codes = codes;
            Ok(())
        }),
        sets: "The default backend responds in place of responses with these statuses, such as `404,503`.",
        default: "",
    },
    Row {
        name: DEFAULT_BACKEND,
        restricts: false,
        meaning: Sets(|settings, value| {
            if let Some(fault) = syntax::dns_name_fault(value.text) {
                return Err(format!("{:?} {fault}", value.text));
            }
            settings.errors.default_backend = Some(value.text.into());
            Ok(())
        }),
        sets: "The Service of error pages, and of requests for Services without endpoints.",
        default: "",
    },
    Row {
        name: "disable-proxy-intercept-errors",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.errors.keeps_responses = value.switch()?;
            Ok(())
        }),
        sets: "Leaves responses of endpoints unchanged: only responses of the gateway have error pages.",
        default: "`false`",
    },
];
