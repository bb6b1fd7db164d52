//! The version of this program, and the commit of its sources.

use std::sync::LazyLock;

use sluicegate_model::Build;

/// This build. The scripts of a release set the variable SLUICEGATE_COMMIT while they compile this crate.
pub(crate) const BUILD: Build =
    Build { version: env!("CARGO_PKG_VERSION"), commit: option_env!("SLUICEGATE_COMMIT") };

/// The version for `--version`, such as `0.1.0 (3f141bea)`.
pub(crate) fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| BUILD.to_string());
    &VERSION
}
