//! The only capability that a gateway uses: ports below 1024 for a user other than root.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

/// Makes `CAP_NET_BIND_SERVICE` effective if the capability is permitted, as the file of the image permits it
/// (capabilities(7), "Transformation of capabilities during execve()"). A file with the effective capability could not start
/// in a container that drops the capability. Call this function before starting threads: each thread has its own
/// capabilities.
pub(crate) fn raise_bind() {
    // The bind reports the lack of the capability.
    let Ok(mut sets) = capabilities(None) else { return };
    if sets.permitted.contains(CapabilitySet::NET_BIND_SERVICE) {
        sets.effective |= CapabilitySet::NET_BIND_SERVICE;
        if let Err(error) = set_capabilities(None, sets) {
            tracing::debug!(%error, "CAP_NET_BIND_SERVICE cannot be made effective");
        }
    }
}
