//! The `Date` header's value.

/// An IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
pub(crate) type HttpDate = [u8; 29];

const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";

/// The date of a number of seconds since 1970.
pub(crate) fn http_date(seconds: u64) -> HttpDate {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let mut date = *b"Thu, 01 Jan 1970 00:00:00 GMT";
    let number = |at: usize, value: u64, date: &mut HttpDate| {
        date[at] = b'0' + (value / 10 % 10) as u8;
        date[at + 1] = b'0' + (value % 10) as u8;
    };
    date[..3].copy_from_slice(DAYS[(days % 7) as usize]);
    number(5, day, &mut date);
    date[8..11].copy_from_slice(&MONTHS[(month - 1) as usize * 3..][..3]);
    number(12, year / 100, &mut date);
    number(14, year, &mut date);
    number(17, second / 3600, &mut date);
    number(20, second / 60 % 60, &mut date);
    number(23, second % 60, &mut date);
    date
}

/// The number of seconds since 1970 of a date in the form that is written today. The two older ones (RFC 9110, 5.6.7) are read as no
/// date by caches, which take what has none for stale.
pub(crate) fn parse_http_date(text: &[u8]) -> Option<u64> {
    let text: &HttpDate = text.try_into().ok()?;
    let number = |at: usize, digits: usize| {
        text[at..at + digits].iter().try_fold(0, |number, byte| match byte {
            b'0'..=b'9' => Some(number * 10 + u64::from(byte - b'0')),
            _ => None,
        })
    };
    let month = MONTHS.chunks(3).position(|month| *month == text[8..11])? as u64 + 1;
    let (day, year) = (number(5, 2)?, number(12, 4)?);
    let seconds = number(17, 2)? * 3600 + number(20, 2)? * 60 + number(23, 2)?;
    if year < 1970 || day == 0 {
        return None;
    }
    // Counted from March, as below.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1;
    let date = (days - 719_468) * 86_400 + seconds;
    // What does not come out as it went in is no date, such as the 30th of February, or has the wrong day of the week.
    (http_date(date) == *text).then_some(date)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar: years are counted from
/// March, so that the leap day comes last, in eras of 400 years.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::{http_date, parse_http_date};

    #[test]
    fn dates_of_the_standard_and_of_leap_years() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&http_date(seconds)), Ok(date));
            assert_eq!(parse_http_date(date.as_bytes()), Some(seconds));
        }
        for date in [
            "0",
            "",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sun, 30 Feb 2020 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 99:99:99 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
        ] {
            assert_eq!(parse_http_date(date.as_bytes()), None, "{date}");
        }
    }
}
