//! Tokens and keys: no panic, and what nobody has signed is not taken.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sluicegate_jwt::{KeySet, Rules, Token};

/// Nobody else knows it, so nothing that comes is signed by it.
static KEYS: LazyLock<KeySet> =
    LazyLock::new(|| KeySet::shared(b"a secret that no input can guess", &[]).unwrap());

fuzz_target!(|text: &[u8]| {
    if let Ok(token) = Token::parse(text) {
        token.issuer();
        assert!(token.verify(&KEYS).is_err());
    }
    // The same as keys: what verifies a token by itself must be a token that is all there.
    if let Some(at) = text.iter().position(|byte| *byte == b'\n')
        && let (Ok(token), Ok(keys)) = (Token::parse(&text[..at]), KeySet::given(&text[at + 1..], &[]))
        && let Ok(claims) = token.verify(&keys)
    {
        let _ = claims.check(&Rules::default(), 0);
        assert_eq!(text[..at].iter().filter(|byte| **byte == b'.').count(), 2);
    }
});
