//! Consistent hashing.

use sluicegate_model::value::{Number, Template};

use super::Meaning::Sets;
use super::Row;

/// The settings of this group.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// `upstream-hash-by`.
    pub(crate) by: Option<Template>,
    /// `upstream-hash-by-subset`.
    pub(crate) is_subset: bool,
    /// `upstream-hash-by-subset-size`.
    pub(crate) subset_size: Option<Number<u16, 1, 1000>>,
}

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "upstream-hash-by",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.hash.by = Some(value.template()?);
            Ok(())
        }),
        sets: "Requests with the same value of this text go to the same endpoint. The text may have variables of nginx.",
        default: "",
    },
    Row {
        name: "upstream-hash-by-subset",
        restricts: false,
        meaning: Sets(|settings, value| {
            settings.hash.is_subset = value.switch()?;
            Ok(())
        }),
        sets: "Such requests go to one of a few endpoints, at random.",
        default: "`false`",
    },
    Row {
        name: "upstream-hash-by-subset-size",
        restricts: false,
        meaning: Sets(|settings, value| {
            let size = Number::new(value.number()?).map_err(|fault| fault.to_string())?;
            settings.hash.subset_size = Some(size);
            Ok(())
        }),
        sets: "The number of these endpoints, from 1 to 1000.",
        default: "`3`",
    },
];
