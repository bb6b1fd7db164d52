//! Tokens and keys: no panic, and an unsigned token is rejected.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sluicegate_jwt::{KeySet, Rules, Token};

/// The fuzzer does not know this secret, so no input has a valid signature.
static KEYS: LazyLock<KeySet> =
    LazyLock::new(|| KeySet::shared(b"a secret that no input can guess", &[]).unwrap());

fuzz_target!(|text: &[u8]| {
    if let Ok(token) = Token::parse(text) {
        let _ = token.issuer();
        assert!(token.verify(&KEYS).is_err());
    }
    // The first line as a token, the other lines as keys: a token that verifies has three parts.
    if let Some(at) = text.iter().position(|byte| *byte == b'\n')
        && let (Ok(token), Ok(keys)) = (Token::parse(&text[..at]), KeySet::given(&text[at + 1..], &[]))
        && let Ok(claims) = token.verify(&keys)
    {
        let _ = claims.check(&Rules::default(), 0);
        assert_eq!(text[..at].iter().filter(|byte| **byte == b'.').count(), 2);
    }
});
