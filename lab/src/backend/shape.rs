//! The response that the URL asks for.

use std::time::Duration;

use hyper::StatusCode;

/// The largest body of a response.
const LARGEST: u64 = 1 << 30;
/// The longest delay, in milliseconds.
const LONGEST: u64 = 600_000;

/// The response that the URL asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes of body; without it, the metadata of the server and of the request.
    pub(super) size: Option<u64>,
    pub(super) delay: Duration,
    pub(super) status: StatusCode,
}

impl Shape {
    /// The shape of a query such as `s=20k&t=500&r=404`, without unknown keys; or the error in the query.
    pub(super) fn of(query: &str) -> Result<Self, String> {
        let mut shape = Self { size: None, delay: Duration::ZERO, status: StatusCode::OK };
        if query.is_empty() {
            return Ok(shape);
        }
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            let wrong = |wanted| move || format!("{key}={value} is not understood: {wanted}\n");
            match key {
                "s" => {
                    let wanted = "s is a number of bytes up to 1024m; s=500, s=20k and s=1m are understood";
                    shape.size = Some(size(value).ok_or_else(wrong(wanted))?);
                }
                "t" => {
                    let millis = number(value).filter(|millis| *millis <= LONGEST);
                    let millis = millis.ok_or_else(wrong("t is a number of milliseconds up to 600000"))?;
                    shape.delay = Duration::from_millis(millis);
                }
                "r" => {
                    let status = number(value).and_then(|status| u16::try_from(status).ok());
                    let status = status.filter(|status| (200..=599).contains(status));
                    let status = status.and_then(|status| StatusCode::from_u16(status).ok());
                    shape.status = status.ok_or_else(wrong("r is a status from 200 to 599"))?;
                }
                _ => {}
            }
        }
        Ok(shape)
    }
}

fn size(value: &str) -> Option<u64> {
    let (digits, unit) = match value.as_bytes().last()? {
        b'k' | b'K' => (&value[..value.len() - 1], 1024),
        b'm' | b'M' => (&value[..value.len() - 1], 1024 * 1024),
        _ => (value, 1),
    };
    number(digits)?.checked_mul(unit).filter(|size| *size <= LARGEST)
}

/// Digits alone: `parse` accepts a sign too.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_of_the_url_selects_size_delay_and_status() {
        let plain = Shape { size: None, delay: Duration::ZERO, status: StatusCode::OK };
        for query in ["", "id=7", "s", "&&", "x=1&y"] {
            assert_eq!(Shape::of(query), Ok(plain), "{query}");
        }
        let all = Shape::of("s=2k&t=15&r=503&other=1").unwrap();
        assert_eq!((all.size, all.delay), (Some(2048), Duration::from_millis(15)));
        assert_eq!(all.status, StatusCode::SERVICE_UNAVAILABLE);
        for (query, size) in [("s=0", 0), ("s=500", 500), ("s=3M", 3 << 20), ("s=1024m", 1 << 30)] {
            assert_eq!(Shape::of(query).unwrap().size, Some(size), "{query}");
        }
    }

    #[test]
    fn error_for_an_invalid_query_names_the_valid_values() {
        for wrong in [
            "s=",
            "s=x",
            "s=-1",
            "s=+1",
            "s=k",
            "s=1.5k",
            "s=999999999999",
            "s=1025m",
            "s=18446744073709551615m",
        ] {
            assert!(Shape::of(wrong).unwrap_err().contains("up to 1024m"), "{wrong}");
        }
        for wrong in ["t=", "t=-1", "t=5ms", "t=600001"] {
            assert!(Shape::of(wrong).unwrap_err().contains("up to 600000"), "{wrong}");
        }
        for wrong in ["r=", "r=99", "r=101", "r=600", "r=abc", "r=65736"] {
            assert!(Shape::of(wrong).unwrap_err().contains("200 to 599"), "{wrong}");
        }
    }
}
