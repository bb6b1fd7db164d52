//! Networks and single addresses.

use std::borrow::Cow;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use minicbor::encode::Write;
use minicbor::{Decode, Decoder, Encode, Encoder, decode, encode};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::encoding::Fault;

/// A network, such as `10.0.0.0/8`, or a single address. IPv4 clients have plain IPv4 addresses, so an IPv4 address inside
/// IPv6 (RFC 4291, 2.5.5.2) becomes plain too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(IpNet);

impl Network {
    /// The network. A single address is a network with the full prefix length.
    #[must_use]
    pub fn get(self) -> IpNet {
        self.0
    }
}

impl FromStr for Network {
    type Err = String;

    /// The error is the rest of a sentence about the field.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.to_canonical().into()));
        }
        let Ok(network) = text.parse::<IpNet>() else {
            return Err(format!(
                "{text:?} is not a network or an address: write 10.0.0.0/8, 10.0.0.1 or 2001:db8::/32"
            ));
        };
        if network != network.trunc() {
            let (whole, address) = (network.trunc(), network.addr());
            return Err(format!(
                "{text:?} has bits set beyond its prefix length: write {whole} for the network, or {address} for the address"
            ));
        }
        let IpNet::V6(mapped) = network else { return Ok(Self(network)) };
        let plain = match (mapped.addr().to_ipv4_mapped(), mapped.prefix_len().checked_sub(96)) {
            (Some(address), Some(length)) => Ipv4Net::new(address, length).ok(),
            _ => None,
        };
        Ok(Self(plain.map_or(network, Into::into)))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl JsonSchema for Network {
    fn schema_name() -> Cow<'static, str> {
        "Network".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 2, "maxLength": 49 })
    }
}

impl<C> Encode<C> for Network {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        encoder.str(&self.to_string())?.ok()
    }
}

impl<'b, C> Decode<'b, C> for Network {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        decoder.str()?.parse().map_err(|_| Fault::Invalid("a network").into())
    }
}

#[cfg(test)]
mod tests {
    use super::Network;

    #[test]
    fn network_is_parsed_from_cidr_or_a_single_address() {
        for (text, expected) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("::1", "::1/128"),
            ("::ffff:10.0.0.1", "10.0.0.1/32"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), expected, "{text}");
        }
        for (text, reason) in [
            ("", "not a network"),
            ("10.0.0.0/33", "not a network"),
            ("example.com", "not a network"),
            ("10.0.0", "not a network"),
            ("10.1.2.3/8", "write 10.0.0.0/8 for the network, or 10.1.2.3 for the address"),
        ] {
            let fault = text.parse::<Network>().unwrap_err();
            assert!(fault.contains(reason), "{text}: {fault}");
        }
    }
}
