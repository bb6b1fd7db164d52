//! Messages between the planes: no panic, a decoded message survives encoding and decoding, and an accepted configuration can
//! be distributed.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_link::fuzz::check_message;

fuzz_target!(|bytes: &[u8]| check_message(bytes));
