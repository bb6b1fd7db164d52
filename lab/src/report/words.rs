//! Numbers and names in the form for readers.

/// Text for HTML, for SVG, and for their attributes.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            '\'' => out += "&#39;",
            // XML cannot represent other control characters.
            '\n' | '\t' => out.push(character),
            _ if character.is_control() => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
    out
}

/// Text that remains text in Markdown, and in a Markdown table.
pub(super) fn escape_markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' => out.extend(['\\', character]),
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '&' => out += "&amp;",
            '\n' | '\r' => out.push(' '),
            _ => out.push(character),
        }
    }
    out
}

/// A name for files and for ids: letters, digits and dashes.
pub(super) fn slug(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() {
            out.push(character.to_ascii_lowercase());
        } else if !out.is_empty() && !out.ends_with('-') {
            out.push('-');
        }
    }
    out.trim_end_matches('-').to_owned()
}

/// `33,365`
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A count with its noun, which is given in the singular: `1 request`, `2 requests`.
pub(crate) fn counted(number: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(number), if number == 1 { "" } else { "s" })
}

/// A number to three significant digits, and whole numbers from 100 on with commas: `0.042`, `1.25`, `12,300`.
pub(super) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    let magnitude = value.abs();
    if magnitude >= 99.95 {
        let whole = count(magnitude.round() as u64);
        return if value < 0.0 { format!("−{whole}") } else { whole };
    }
    let decimals = if magnitude >= 9.995 {
        1
    } else if magnitude >= 0.9995 || magnitude == 0.0 {
        2
    } else {
        3
    };
    format!("{value:.decimals$}").replace('-', "−")
}

/// A time in milliseconds to three significant digits: `0.42 ms`, `254 ms`, `5.12 s`.
pub(super) fn time(millis: f64) -> String {
    if millis.abs() >= 999.5 {
        format!("{} s", number(millis / 1e3))
    } else {
        format!("{} ms", number(millis))
    }
}

/// A time of minutes: `7m 12s`.
pub(super) fn long(seconds: f64) -> String {
    let whole = std::time::Duration::from_secs(seconds.clamp(0.0, 1e9).round() as u64);
    humantime::format_duration(whole).to_string()
}

/// A round time for an axis: `1 ms`, `10 s`.
pub(super) fn round_time(millis: f64) -> String {
    let (value, unit) = if millis >= 1000.0 { (millis / 1e3, "s") } else { (millis, "ms") };
    format!("{} {unit}", round(value))
}

/// A round number without zeros at its end: `0.5`, `20`, `30,000`.
pub(super) fn round(value: f64) -> String {
    if value.abs() >= 1000.0 {
        return number(value);
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.replace('-', "−") }
}

/// A share of a whole: `2.13 %`; a small share never becomes zero: `< 0.001 %`.
pub(super) fn share(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "–".to_owned();
    }
    let percent = part as f64 / whole as f64 * 100.0;
    if part > 0 && percent < 0.001 { "< 0.001 %".to_owned() } else { format!("{} %", number(percent)) }
}

/// `1.25×`
pub(super) fn ratio(value: f64, of: f64) -> String {
    if of > 0.0 { format!("{}×", number(value / of)) } else { "–".to_owned() }
}

/// The same text, without line breaks between numbers and their units.
pub(super) fn glue(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(space) = rest.find(' ') {
        let (before, after) = (&rest[..space], &rest[space + 1..]);
        let unit = after.split(|character: char| !character.is_alphabetic() && character != '%').next();
        let is_unit = unit.is_some_and(|unit| ["ms", "s", "µs", "%", "MiB"].contains(&unit));
        let is_glued = before.ends_with(|character: char| character.is_ascii_digit()) && is_unit
            || before.ends_with('<');
        out += before;
        out.push(if is_glued { '\u{a0}' } else { ' ' });
        rest = after;
    }
    out + rest
}

/// `A`, `A and B`, `A, B and C`; with semicolons if a name contains a comma.
pub(super) fn list(names: &[String]) -> String {
    let between = if names.iter().any(|name| name.contains(", ")) { "; " } else { ", " };
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [all @ .., last] => format!("{} and {last}", all.join(between)),
    }
}

/// A moment in UTC: `2026-11-21 23:40 UTC`.
pub(super) fn date(unix_ms: u128) -> String {
    let since = std::time::Duration::from_millis(u64::try_from(unix_ms).unwrap_or(0));
    let text = std::time::UNIX_EPOCH
        .checked_add(since)
        .map(|time| humantime::format_rfc3339_seconds(time).to_string())
        .unwrap_or_default();
    match (text.get(..10), text.get(11..16)) {
        (Some(day), Some(minute)) => format!("{day} {minute} UTC"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped_for_html_markdown_and_file_names() {
        assert_eq!(escape("<a href='x'>&\"\u{1}"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{fffd}");
        assert_eq!(escape_markdown("a|b <i> *c*\n_d_"), "a\\|b &lt;i&gt; \\*c\\* \\_d\\_");
        assert_eq!(slug("nginx, <Lua> & co."), "nginx-lua-co");
    }

    #[test]
    fn numbers_have_three_significant_digits_and_commas() {
        let all: Vec<String> =
            [0.0, 0.0421, 0.5, 1.0, 9.996, 12.34, 99.96, 254.4, 33365.0].map(number).into();
        assert_eq!(all, ["0.00", "0.042", "0.500", "1.00", "10.0", "12.3", "100", "254", "33,365"]);
        assert_eq!(number(f64::NAN), "–");
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.42, 254.0, 999.6, 32_000.0].map(time), ["0.420 ms", "254 ms", "1.00 s", "32.0 s"]);
        assert_eq!([0.1, 1.0, 1000.0, 60_000.0].map(round_time), ["0.1 ms", "1 ms", "1 s", "60 s"]);
        assert_eq!([0.0, 0.25, 20.0, 30_000.0].map(round), ["0", "0.25", "20", "30,000"]);
    }

    #[test]
    fn small_share_is_not_rounded_to_zero() {
        assert_eq!(share(1, 10_000_000), "< 0.001 %");
        assert_eq!(share(0, 10), "0.00 %");
        assert_eq!(share(0, 0), "–");
    }

    #[test]
    fn number_and_unit_are_joined_by_a_no_break_space() {
        assert_eq!(
            glue("took 5 ms (< 1 %) in 3 sets, 4 s"),
            "took 5\u{a0}ms (<\u{a0}1\u{a0}%) in 3 sets, 4\u{a0}s"
        );
    }

    #[test]
    fn list_of_names_is_joined_with_commas_and_and() {
        let list = |names: &[&str]| list(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(list(&["a"]), "a");
        assert_eq!(list(&["a", "b", "c"]), "a, b and c");
        assert_eq!(list(&["a, x", "b", "c"]), "a, x; b and c");
    }

    #[test]
    fn times_are_printed_in_utc() {
        assert_eq!(date(1_700_000_000_000), "2023-11-14 22:13 UTC");
    }
}
