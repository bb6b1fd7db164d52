//! The one capability that a gateway has a use for: ports below 1024 as a user who is not root.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes `CAP_NET_BIND_SERVICE` effective where it is permitted, as the file of the image permits it (capabilities(7),
/// "Transformation of capabilities during execve()"). A file that made it effective itself could not be started
/// where a container drops the capability. To be called before there are threads: each has capabilities of its own.
pub(crate) fn raise_bind() {
    // What cannot be done here is told by the bind that fails.
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_BIND_SERVICE) {
        sets.effective |= CapabilitySet::NET_BIND_SERVICE;
        if let Err(error) = set_capabilities(None, sets) {
            tracing::debug!(%error, "CAP_NET_BIND_SERVICE cannot be made effective");
        }
    }
}
