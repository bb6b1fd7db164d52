//! The ids that Kong gives to entities without an id: version 5 of RFC 9562, 5.5.
//!
//! Of two routes with the same priority, Kong chooses the route with the greater id.

use std::fmt;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};

/// The namespace of the ids of entities.
const ENTITIES: Id = Id(0xfd02_801f_0957_4a15_a55a_c8d9_606f_30b5);

/// The namespace of the ids of the parts of routes.
const PARTS: Id = Id(0x7f14_5bf9_0dce_4f91_98eb_debb_ce4b_9f6b);

/// An id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(u128);

impl Id {
    /// Reads an id as Kong writes it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let groups = [8, 4, 4, 4, 12];
        let parts: Vec<&str> = text.split('-').collect();
        let is_right = parts.len() == groups.len()
            && parts.iter().zip(groups).all(|(part, length)| {
                part.len() == length && part.bytes().all(|byte| byte.is_ascii_hexdigit())
            });
        is_right.then(|| u128::from_str_radix(&parts.concat(), 16).ok().map(Self)).flatten()
    }

    /// The id of an entity without an id, such as `routes`, from its name.
    #[must_use]
    pub fn of_entity(kind: &str, name: &str) -> Self {
        ENTITIES.with(kind).with(name)
    }

    /// The id of a part of a route. The number of the part begins at 1.
    #[must_use]
    pub fn of_part(self, number: usize) -> Self {
        PARTS.with(&format!("{self}#{number}"))
    }

    fn with(self, name: &str) -> Self {
        let text = [&self.0.to_be_bytes()[..], name.as_bytes()].concat();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest(&SHA1_FOR_LEGACY_USE_ONLY, &text).as_ref()[..16]);
        bytes[6] = bytes[6] & 0x0f | 0x50;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        Self(u128::from_be_bytes(bytes))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:032x}", self.0);
        write!(f, "{}-{}-{}-{}-{}", &text[..8], &text[8..12], &text[12..16], &text[16..20], &text[20..])
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Id;

    #[test]
    fn id_of_a_name_is_version_5_of_the_rfc() {
        // RFC 9562, A.4: the namespace DNS with www.example.com.
        let dns = Id::parse("6ba7b810-9dad-11d1-80b4-00c04fd430c8").unwrap();
        assert_eq!(dns.with("www.example.com").to_string(), "2ed6657d-e927-568b-95e1-2665a8aea6a2");
        assert_eq!(Id::parse("x"), None);
        assert_eq!(Id::parse("6ba7b810-9dad-11d1-80b4-00c04fd430c"), None);
    }
}
