//! What is fuzzed from outside (`fuzz/`).

/// Replies of a server through which limits are shared.
pub fn check_reply(input: &[u8]) {
    crate::policy::limit::shared::reply::check(input);
}
