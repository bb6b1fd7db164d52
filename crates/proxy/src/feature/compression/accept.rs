//! The codings that a client accepts (RFC 9110, 12.5.3).

use sluicegate_model::{Codings, ContentCoding};

/// The client's weight of each coding, in thousandths. If a coding is named twice, the lowest weight counts.
#[derive(Default)]
struct Weights {
    codings: [Option<u16>; ContentCoding::ALL.len()],
    /// The weight of all other codings.
    any: Option<u16>,
    identity: Option<u16>,
}

/// The offered coding with the highest weight; of equal weights, the coding that is offered first. `None`: the body stays
/// uncompressed, because the client accepts no offered coding or prefers `identity`.
///
/// `lines` are the values of `Accept-Encoding`. Without any, RFC 9110 allows every coding, but a client that does not ask
/// for a coding may be unable to decode it.
pub(crate) fn choose<'l>(lines: impl Iterator<Item = &'l [u8]>, offered: &Codings) -> Option<ContentCoding> {
    let mut weights = Weights::default();
    for line in lines {
        line.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).for_each(|member| weights.read(member));
    }
    let mut best: Option<(ContentCoding, u16)> = None;
    for coding in offered.iter() {
        let weight = weights.codings[coding.index()].or(weights.any).unwrap_or(0);
        if weight > best.map_or(0, |(_, weight)| weight) {
            best = Some((coding, weight));
        }
    }
    let (coding, weight) = best?;
    (weight >= weights.identity.unwrap_or(0)).then_some(coding)
}

impl Weights {
    fn read(&mut self, member: &[u8]) {
        let mut parts = member.splitn(2, |byte| *byte == b';');
        let name = parts.next().unwrap_or_default().trim_ascii_end();
        let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let place = if is("gzip") || is("x-gzip") {
            // RFC 9110, 8.4.1.3: both names mean the same coding.
            &mut self.codings[ContentCoding::Gzip.index()]
        } else if is("br") {
            &mut self.codings[ContentCoding::Brotli.index()]
        } else if is("zstd") {
            &mut self.codings[ContentCoding::Zstd.index()]
        } else if is("identity") {
            &mut self.identity
        } else if is("*") {
            &mut self.any
        } else {
            return;
        };
        // A coding with an invalid weight is not accepted.
        let weight = parts.next().map_or(Some(1000), weight).unwrap_or(0);
        *place = Some(place.map_or(weight, |before| before.min(weight)));
    }
}

/// The number of `q=0.5` (RFC 9110, 12.4.2), in thousandths.
fn weight(parameter: &[u8]) -> Option<u16> {
    let [b'q' | b'Q', b'=', whole @ (b'0' | b'1'), fraction @ ..] = parameter.trim_ascii() else {
        return None;
    };
    let digits = match fraction {
        [] => fraction,
        [b'.', digits @ ..] if digits.len() <= 3 => digits,
        _ => return None,
    };
    let mut thousandths = u16::from(whole - b'0') * 1000;
    for (digit, unit) in digits.iter().zip([100, 10, 1]) {
        thousandths += u16::from(digit.is_ascii_digit().then(|| digit - b'0')?) * unit;
    }
    (thousandths <= 1000).then_some(thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_chosen(offered: &str, lines: &[&str], expected: &str) {
        let offered = offered.parse().expect("codings");
        let chosen = choose(lines.iter().map(|line| line.as_bytes()), &offered);
        assert_eq!(chosen.map_or("identity", ContentCoding::name), expected, "{offered} for {lines:?}");
    }

    #[test]
    fn quality_values_of_the_client_select_the_coding_and_server_order_breaks_ties() {
        for (line, expected) in [
            ("gzip, deflate, br, zstd", "zstd"),
            ("gzip, deflate, br", "br"),
            ("gzip", "gzip"),
            ("gzip;q=1, br;q=0.9, zstd;q=0.8", "gzip"),
            ("gzip;q=0.5, br;q=0.501", "br"),
            ("deflate, compress", "identity"),
            ("GZip", "gzip"),
            ("x-gzip", "gzip"),
            ("X-GZIP;q=0.3", "gzip"),
            ("", "identity"),
            (" , ,\t, gzip ,", "gzip"),
            ("gzip\t; q=1", "gzip"),
            ("gzip ;Q=0.001", "gzip"),
        ] {
            assert_chosen("zstd, br, gzip", &[line], expected);
        }
        assert_chosen("gzip, br", &["br, gzip"], "gzip");
        assert_chosen("br", &["gzip, zstd"], "identity");
        assert_chosen("zstd, br, gzip", &[], "identity");
        assert_chosen("off", &["gzip"], "identity");
    }

    #[test]
    fn wildcard_in_accept_encoding_applies_to_codings_without_an_entry() {
        for (line, expected) in [
            ("*", "zstd"),
            ("*;q=0.1", "zstd"),
            ("*;q=0", "identity"),
            ("gzip, *;q=0", "gzip"),
            ("gzip;q=0, *", "zstd"),
            ("zstd;q=0, *", "br"),
            ("zstd;q=0.1, *;q=0.2", "br"),
            ("br;q=0.5, *;q=0.5", "zstd"),
            ("zstd;q=0, br;q=0, gzip;q=0, *", "identity"),
        ] {
            assert_chosen("zstd, br, gzip", &[line], expected);
        }
    }

    #[test]
    fn quality_zero_excludes_a_coding_and_a_higher_quality_selects_identity() {
        for (line, expected) in [
            ("gzip;q=0", "identity"),
            ("gzip;q=0.000", "identity"),
            ("gzip;q=0.0, br;q=0.1", "br"),
            ("identity;q=1, gzip;q=0.5", "identity"),
            ("identity, gzip;q=0.999", "identity"),
            ("identity;q=0.5, gzip;q=0.5", "gzip"),
            ("identity;q=0.5, gzip;q=1", "gzip"),
            ("identity;q=0, gzip;q=0.001", "gzip"),
            ("identity", "identity"),
            ("identity;q=0", "identity"),
        ] {
            assert_chosen("zstd, br, gzip", &[line], expected);
        }
    }

    #[test]
    fn accept_encoding_lines_form_one_list_and_duplicates_use_the_lowest_quality() {
        assert_chosen("zstd, br, gzip", &["gzip;q=0.5", "br;q=0.7, deflate"], "br");
        assert_chosen("zstd, br, gzip", &["gzip", "gzip;q=0"], "identity");
        assert_chosen("gzip, br", &["x-gzip;q=0.5", "gzip, br;q=0.7"], "br");
    }

    #[test]
    fn malformed_accept_encoding_members_are_ignored() {
        for wrong in [
            "gzip;q=",
            "gzip;q",
            "gzip;",
            "gzip;q=2",
            "gzip;q=1.001",
            "gzip;q=1.5",
            "gzip;q=-1",
            "gzip;q=0.1234",
            "gzip;q=.5",
            "gzip;q=0,5",
            "gzip;q=0.x",
            "gzip;q=1;x=y",
            "gzip;x=y",
            "gzip;q =1",
            "gzip;q= 1",
            "gzip;q=1e0",
            "gzip q=1",
            "gzip br",
            "g zip",
            "\"gzip\"",
            "gzip;q=\u{b9}",
            ";q=1",
            "gzip;q=01",
        ] {
            assert_chosen("zstd, br, gzip", &[wrong], "identity");
            assert_chosen("zstd, br, gzip", &[&format!("{wrong}, br;q=0.1")], "br");
        }
        assert_chosen("gzip", &["gzip;q=oops, *"], "identity");
        assert_chosen("gzip", &["*;q=oops"], "identity");
        // RFC 9110, 12.4.2: the digits behind the point may be missing.
        assert_chosen("gzip", &["gzip;q=1."], "gzip");
        assert_chosen("gzip", &["gzip;q=0."], "identity");
        assert_chosen("gzip", &["gzip;q=1.000"], "gzip");
    }
}
