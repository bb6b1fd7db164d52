//! The admin HTTP interface of Sluicegate: health, metrics and live state.
