//! Replies of the Redis server for shared limits: no panic, and the same result for all pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| sluicegate_proxy::fuzz::check_reply(input));
