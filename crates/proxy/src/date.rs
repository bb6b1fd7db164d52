//! Dates in headers.

/// An IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
pub(crate) type HttpDate = [u8; 29];

/// The mean length of a year, in seconds.
const YEAR: u64 = 31_556_952;

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

/// A date as in `1994-11-06T08:49:37+00:00` (ISO 8601), of a number of seconds since 1970.
pub(crate) fn iso8601(seconds: u64) -> [u8; 25] {
    let (year, month, day) = civil(seconds / 86_400);
    let second = seconds % 86_400;
    let mut date = *b"1970-01-01T00:00:00+00:00";
    for (at, value) in [
        (0, year / 100),
        (2, year),
        (5, month),
        (8, day),
        (11, second / 3600),
        (14, second / 60 % 60),
        (17, second % 60),
    ] {
        date[at] = b'0' + (value / 10 % 10) as u8;
        date[at + 1] = b'0' + (value % 10) as u8;
    }
    date
}

/// A date as in `06/Nov/1994:08:49:37 +0000`, the form of `$time_local` of nginx, of a number of seconds since 1970.
pub(crate) fn local_time(seconds: u64) -> [u8; 26] {
    let date = http_date(seconds);
    let mut local = *b"01/Jan/1970:00:00:00 +0000";
    for (at, part) in [(0, &date[5..7]), (3, &date[8..11]), (7, &date[12..16]), (12, &date[17..25])] {
        local[at..at + part.len()].copy_from_slice(part);
    }
    local
}

/// The number of seconds since 1970 of a date in one of the three forms of RFC 9110, 5.6.7. `now` (in the same unit)
/// decides the century of a year of two digits. Letters match in any case (RFC 9111, 4.2). The day of the week must be
/// valid, but is not compared with the date.
pub(crate) fn parse_http_date(text: &[u8], now: u64) -> Option<u64> {
    // IMF-fixdate, then the format of C's asctime(), then RFC 850.
    match text.len() {
        29 => fixdate(text),
        24 => asctime(text),
        30..=33 => rfc850(text, now),
        _ => None,
    }
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
fn fixdate(text: &[u8]) -> Option<u64> {
    let is_framed = is_weekday(text.get(..3)?, true)
        && text[3..5] == *b", "
        && text[7] == b' '
        && text[11] == b' '
        && text[16] == b' '
        && text[25..].eq_ignore_ascii_case(b" GMT");
    let (day, month, year) = (number(&text[5..7])?, month(&text[8..11])?, number(&text[12..16])?);
    seconds_of(year, month, day, &text[17..25]).filter(|_| is_framed)
}

/// `Sun Nov  6 08:49:37 1994`.
fn asctime(text: &[u8]) -> Option<u64> {
    let is_framed = is_weekday(text.get(..3)?, true) && [3, 7, 10, 19].into_iter().all(|at| text[at] == b' ');
    let day = text[8..10].strip_prefix(b" ").unwrap_or(&text[8..10]);
    let (day, month, year) = (number(day)?, month(&text[4..7])?, number(&text[20..24])?);
    seconds_of(year, month, day, &text[11..19]).filter(|_| is_framed)
}

/// `Sunday, 06-Nov-94 08:49:37 GMT`.
fn rfc850(text: &[u8], now: u64) -> Option<u64> {
    let comma = text.iter().position(|byte| *byte == b',')?;
    let (weekday, text) = text.split_at(comma);
    let text: &[u8; 24] = text.try_into().ok()?;
    let is_framed = is_weekday(weekday, false)
        && text[1] == b' '
        && text[4] == b'-'
        && text[8] == b'-'
        && text[11] == b' '
        && text[20..].eq_ignore_ascii_case(b" GMT");
    let (day, month, year) = (number(&text[2..4])?, month(&text[5..8])?, number(&text[9..11])?);
    // The last matching year that is at most 50 years ahead.
    let latest = now + 50 * YEAR;
    let century = civil(now / 86_400).0 / 100 * 100;
    let at = |years: u64| seconds_of(years + year, month, day, &text[12..20]);
    [century + 100, century, century - 100]
        .into_iter()
        .find_map(|years| at(years).filter(|seconds| *seconds <= latest))
        .filter(|_| is_framed)
}

fn is_weekday(name: &[u8], is_short: bool) -> bool {
    const DAYS: [&[u8]; 7] =
        [b"Monday", b"Tuesday", b"Wednesday", b"Thursday", b"Friday", b"Saturday", b"Sunday"];
    DAYS.into_iter().any(|day| name.eq_ignore_ascii_case(if is_short { &day[..3] } else { day }))
}

/// The number of a month, from 1.
fn month(name: &[u8]) -> Option<u64> {
    let at = MONTHS.chunks(3).position(|month| month.eq_ignore_ascii_case(name))?;
    Some(at as u64 + 1)
}

/// A decimal number.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number, byte| match byte {
        b'0'..=b'9' => Some(number * 10 + u64::from(byte - b'0')),
        _ => None,
    })
}

/// The seconds since 1970 of a day and of a time, as in `08:49:37`.
fn seconds_of(year: u64, month: u64, day: u64, time: &[u8]) -> Option<u64> {
    let (hour, minute, second) = (number(&time[..2])?, number(&time[3..5])?, number(&time[6..])?);
    // 60 is a leap second.
    if year < 1970 || time[2] != b':' || time[5] != b':' || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Years and months are counted from March, as in the function below.
    let (shifted, of_year) = if month > 2 { (month - 3, year) } else { (month + 9, year - 1) };
    let days = 365 * of_year + of_year / 4 - of_year / 100 + of_year / 400 + (153 * shifted + 2) / 5 + day;
    // A day 0 would be the last day of the previous month.
    let days = days.checked_sub(719_469).filter(|_| day > 0)?;
    // A day that converts to another day does not exist, such as the 30th of February.
    let is_day = civil(days) == (year, month, day);
    is_day.then_some(days * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar. Years are counted from March, so that
/// the leap day comes last, in eras of 400 years.
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
    use proptest::prelude::*;

    use super::{YEAR, http_date, iso8601, local_time, parse_http_date};

    /// 18 August 2026.
    const NOW: u64 = 1_787_011_200;

    /// The end of the year 9999.
    const LAST: u64 = 253_402_300_799;

    proptest! {
        #[test]
        fn parser_reads_each_date_in_imf_and_asctime_form(seconds in 0..=LAST, now in 0..=LAST) {
            let date = http_date(seconds);
            prop_assert_eq!(parse_http_date(&date, now), Some(seconds));
            let text = String::from_utf8_lossy(&date);
            let (weekday, day, month, year, time) = (&text[..3], &text[5..7], &text[8..11], &text[12..16], &text[17..25]);
            let day = day.strip_prefix('0').map_or_else(|| day.to_owned(), |day| format!(" {day}"));
            let asctime = format!("{weekday} {month} {day} {time} {year}");
            prop_assert_eq!(parse_http_date(asctime.as_bytes(), now), Some(seconds));
        }

        #[test]
        fn two_digit_year_is_read_as_at_most_fifty_years_in_the_future(seconds in 0..=LAST, now in 0..=LAST) {
            let date = http_date(seconds);
            let text = String::from_utf8_lossy(&date);
            let (day, month, year, time) = (&text[5..7], &text[8..11], &text[14..16], &text[17..25]);
            let short = format!("Monday, {day}-{month}-{year} {time} GMT");
            if let Some(read) = parse_http_date(short.as_bytes(), now) {
                prop_assert!(read <= now + 50 * YEAR, "{} at {}", short, now);
                let again = http_date(read);
                prop_assert_eq!((&again[5..11], &again[14..25]), (&date[5..11], &date[14..25]));
            }
        }

        #[test]
        fn date_parser_never_panics_or_leaves_the_valid_range_on_any_bytes(
            text in prop_oneof![
                prop::collection::vec(any::<u8>(), 20..36),
                "(Sun|Mon|Sunday|Wednesday),? [0-9 ]{2}[ -]?(Feb|Nov|Dec)?[ -][0-9]{2,4} [0-9]{2}:[0-9]{2}:[0-9]{2}( GMT| [0-9]{4})"
                    .prop_map(String::into_bytes),
            ],
            now in 0..=LAST,
        ) {
            prop_assert!(parse_http_date(&text, now).is_none_or(|seconds| seconds <= LAST + 1));
        }
    }

    #[test]
    fn iso_date_and_date_of_nginx_logs_have_day_and_time_in_utc() {
        assert_eq!(&iso8601(784_111_777), b"1994-11-06T08:49:37+00:00");
        assert_eq!(&iso8601(951_782_399), b"2000-02-28T23:59:59+00:00");
        assert_eq!(&local_time(784_111_777), b"06/Nov/1994:08:49:37 +0000");
    }

    #[test]
    fn dates_of_rfc_examples_and_leap_years_are_formatted_and_parsed() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&http_date(seconds)), Ok(date));
            assert_eq!(parse_http_date(date.as_bytes(), NOW), Some(seconds));
        }
    }

    #[test]
    fn date_parser_accepts_obsolete_forms_and_any_letter_case() {
        for (seconds, date) in [
            (784_111_777, "Sunday, 06-Nov-94 08:49:37 GMT"),
            (784_111_777, "Sun Nov  6 08:49:37 1994"),
            (784_975_777, "Wed Nov 16 08:49:37 1994"),
            // A year of two digits lies at most 50 years ahead.
            (2_544_400_878, "Thursday, 18-Aug-50 02:01:18 GMT"),
            (3_364_538_400, "Thursday, 13-Aug-76 10:00:00 GMT"),
            (240_487_200, "Monday, 15-Aug-77 10:00:00 GMT"),
            (946_684_800, "Saturday, 01-Jan-00 00:00:00 GMT"),
            (784_111_777, "SUN, 06 nov 1994 08:49:37 gmt"),
            // The day of the week says nothing that the date does not say.
            (784_111_777, "Mon, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777, "Wednesday, 06-Nov-94 08:49:37 GMT"),
        ] {
            assert_eq!(parse_http_date(date.as_bytes(), NOW), Some(seconds), "{date}");
        }
    }

    #[test]
    fn malformed_dates_are_rejected() {
        for date in [
            "0",
            "",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 +00",
            "Xyz, 06 Nov 1994 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08-49-37 GMT",
            "Sun, 30 Feb 2020 08:49:37 GMT",
            "Wed, 31 Dec 1969 23:59:59 GMT",
            "Sun, 06 Nov 1994 99:99:99 GMT",
            "Sun, 06 Nov 1994 08:49:37  GM",
            "Sun  06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 UTC",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sunday 06-Nov-94, 08:49:37 GMT",
            "Wednesdays, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 +994",
            "Sun Nov    08:49:37 1994",
            ",,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,",
        ] {
            assert_eq!(parse_http_date(date.as_bytes(), NOW), None, "{date}");
        }
        for length in 0..64 {
            assert_eq!(parse_http_date(&b"\xff".repeat(length), NOW), None);
        }
    }
}
