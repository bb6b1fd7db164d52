//! Timeouts and sizes of requests.

use std::time::Duration;

use sluicegate_model::value::{Size, Timeout, span};

use super::Meaning::Sets;
use super::Row;
use super::value::Value;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `proxy-body-size`; 0 for no limit.
    pub(crate) body_size: Option<Size>,
    /// `proxy-connect-timeout`.
    pub(crate) connect_timeout: Option<Timeout>,
    /// `proxy-read-timeout`.
    pub(crate) read_timeout: Option<Timeout>,
    /// `proxy-send-timeout`.
    pub(crate) send_timeout: Option<Timeout>,
}

/// The timeout for longer times.
const LONGEST: Timeout = Timeout::of_millis(24 * span::HOUR);

/// A timeout in seconds.
pub(super) fn timeout(value: &Value<'_>) -> Result<Option<Timeout>, String> {
    let Some(seconds) = value.seconds()? else { return Ok(None) };
    Ok(Some(Timeout::new(Duration::from_secs(seconds)).unwrap_or(LONGEST)))
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "proxy-body-size",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.proxy.body_size = Some(Size::of(value.size()?));
            Ok(())
        }),
        sets: "The largest request body, such as `8m`. `0`: no limit. Longer bodies receive 413.",
        default: "`1m`",
    },
    Row {
        name: "proxy-connect-timeout",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.proxy.connect_timeout = timeout(value)?;
            Ok(())
        }),
        sets: "The timeout of one connect to one endpoint, in seconds.",
        default: "`5`",
    },
    Row {
        name: "proxy-read-timeout",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.proxy.read_timeout = timeout(value)?;
            Ok(())
        }),
        sets: "The timeout between two reads of a response, in seconds.",
        default: "`60`",
    },
    Row {
        name: "proxy-send-timeout",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.proxy.send_timeout = timeout(value)?;
            Ok(())
        }),
        sets: "The timeout between two writes of a request, in seconds.",
        default: "`60`",
    },
];
