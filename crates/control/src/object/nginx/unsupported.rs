//! Annotations without an effect, and annotations that the gateway refuses.

use super::Meaning::{Harmless, Refused};
use super::Row;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "http2-push-preload",
        restricts: false,
        meaning: Harmless,
        sets: "Nothing: browsers have removed HTTP/2 push.",
        default: "",
    },
    Row {
        name: "enable-modsecurity",
        restricts: false,
        meaning: Refused("Run a web application firewall in front of the Service."),
        sets: "Nothing: the gateway has no web application firewall.",
        default: "",
    },
];
