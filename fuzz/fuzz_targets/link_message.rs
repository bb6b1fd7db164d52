//! What the planes say to each other: no panic, what was read is written and read again, and a configuration that was taken
//! over can be told to others.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sluicegate_link::fuzz::check_message;

fuzz_target!(|bytes: &[u8]| check_message(bytes));
