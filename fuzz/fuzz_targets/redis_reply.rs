//! Replies of the server through which limits are shared: no panic, and no dependence on the pieces that they come in.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| sluicegate_proxy::fuzz::check_reply(input));
