//! The cipher suites of TLS 1.2 (ingress-nginx: `ssl-ciphers`, `proxy-ssl-ciphers`).

use minicbor::{Decode, Encode};
use serde::Serialize;

/// The cipher suites of TLS 1.2 that the gateway has: the names of OpenSSL, the numbers of IANA, and the words of a list that
/// name the suite.
const SUITES: [(&str, u16, &[&str]); 6] = [
    ("ECDHE-ECDSA-AES256-GCM-SHA384", 0xc02c, &["AES", "AES256", "AESGCM", "ECDSA", "aECDSA", "SHA384"]),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", 0xc02b, &["AES", "AES128", "AESGCM", "ECDSA", "aECDSA", "SHA256"]),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", 0xcca9, &["CHACHA20", "ECDSA", "aECDSA"]),
    ("ECDHE-RSA-AES256-GCM-SHA384", 0xc030, &["AES", "AES256", "AESGCM", "RSA", "aRSA", "SHA384"]),
    ("ECDHE-RSA-AES128-GCM-SHA256", 0xc02f, &["AES", "AES128", "AESGCM", "RSA", "aRSA", "SHA256"]),
    ("ECDHE-RSA-CHACHA20-POLY1305", 0xcca8, &["CHACHA20", "RSA", "aRSA"]),
];

/// The words of a list that name all suites.
const ALL: [&str; 9] = ["ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "kECDHE", "kEECDH", "FIPS", "TLSv1.2"];

/// The cipher suites of TLS 1.2 to offer. Those of TLS 1.3 are always offered, as in nginx. Default: all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Encode, Decode)]
#[cbor(map)]
pub struct CipherSuites {
    /// A bit for each excluded suite.
    #[n(0)]
    excluded: u8,
}

impl CipherSuites {
    /// A list in the format of OpenSSL: names with colons. Names of suites that the gateway does not have are left out.
    ///
    /// # Errors
    /// The list has no suite of the gateway.
    pub fn new(list: &str) -> Result<Self, String> {
        let mut included = 0;
        let mut banned = 0;
        for word in list.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
            match word.trim_start_matches(['!', '-', '+']) {
                bare if word.starts_with('!') => banned |= named(bare),
                bare if word.starts_with('-') => included &= !named(bare),
                bare => included |= named(bare),
            }
        }
        match included & !banned {
            0 => {
                let known: Vec<_> = SUITES.iter().map(|(name, ..)| *name).collect();
                Err(format!("{list:?} has no cipher suite of the gateway: write one of {}", known.join(", ")))
            }
            chosen => Ok(Self { excluded: !chosen & ((1 << SUITES.len()) - 1) }),
        }
    }

    /// Whether the list has a suite of TLS 1.2, by its number of IANA.
    #[must_use]
    pub fn has(self, number: u16) -> bool {
        let place = SUITES.iter().position(|(_, known, _)| *known == number);
        place.is_none_or(|place| self.excluded & 1 << place == 0)
    }

    /// Whether all suites are offered.
    #[must_use]
    pub fn are_all(&self) -> bool {
        self.excluded == 0
    }
}

/// The bits of the suites that a word of a list names. `+` joins words that must all name a suite.
fn named(word: &str) -> u8 {
    let has = |(name, _, groups): &(&str, u16, &[&str]), part: &str| {
        *name == part || groups.contains(&part) || ALL.contains(&part)
    };
    let bits = SUITES.iter().enumerate().filter(|(_, suite)| word.split('+').all(|part| has(suite, part)));
    bits.fold(0, |bits, (place, _)| bits | 1 << place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_openssl_names_cipher_suites() {
        let names = |list: &str| {
            let suites = CipherSuites::new(list).unwrap();
            let numbers =
                SUITES.iter().filter(|(_, number, _)| suites.has(*number)).map(|(_, number, _)| *number);
            numbers.collect::<Vec<_>>()
        };
        assert_eq!(names("ECDHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES128-SHA"), [0xc02f]);
        assert_eq!(names("EECDH+AESGCM:!aNULL:!ECDSA"), [0xc030, 0xc02f]);
        assert_eq!(names("ALL:!AES").len(), 2);
        assert_eq!(names("HIGH:-CHACHA20"), [0xc02c, 0xc02b, 0xc030, 0xc02f]);
        assert!(CipherSuites::new("DEFAULT").unwrap().are_all());
        for list in ["", "AES128-SHA", "ALL:!ALL", "ECDHE-RSA-AES128-GCM-SHA256:!ECDHE"] {
            assert!(CipherSuites::new(list).is_err(), "{list}");
        }
        assert!(CipherSuites::new("ECDHE-RSA-AES128-GCM-SHA256").unwrap().has(0x1301), "TLS 1.3");
    }
}
