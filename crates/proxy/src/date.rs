//! The `Date` header's value.

/// An IMF-fixdate, as in `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).
pub(crate) type HttpDate = [u8; 29];

/// The date of a number of seconds since 1970.
pub(crate) fn http_date(seconds: u64) -> HttpDate {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: &[u8; 36] = b"JanFebMarAprMayJunJulAugSepOctNovDec";
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
    use super::http_date;

    #[test]
    fn dates_of_the_standard_and_of_leap_years() {
        for (seconds, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (4_107_542_399, "Sun, 28 Feb 2100 23:59:59 GMT"),
        ] {
            assert_eq!(std::str::from_utf8(&http_date(seconds)), Ok(date));
        }
    }
}
