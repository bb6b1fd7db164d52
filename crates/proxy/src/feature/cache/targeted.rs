//! Dictionaries of structured fields (RFC 9651, 4.2.2), the format of targeted cache control (RFC 9213, 2.1).
//!
//! The parser skips values that no directive has: dates, byte sequences, inner lists. Parameters are ignored.

use std::time::Duration;

use super::directives::LONGEST;

/// The limit of digits of an integer (RFC 9651, 3.3.1).
const DIGITS_MAX: usize = 15;

/// The members of a dictionary, in order. A malformed dictionary ends with an error.
pub(super) struct Dictionary<'b> {
    rest: &'b [u8],
    has_begun: bool,
}

/// The value of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'b> {
    Integer(i64),
    Boolean(bool),
    /// A string without escapes.
    String(&'b [u8]),
    Other,
}

/// The field is not a valid dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Item<'_> {
    /// A time in seconds. A negative time counts as 0. `None` if the item is no integer.
    pub(super) fn seconds(self) -> Option<Duration> {
        let Self::Integer(seconds) = self else { return None };
        Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0).min(LONGEST)))
    }
}

impl<'b> Dictionary<'b> {
    pub(super) fn new(field: &'b [u8]) -> Self {
        Self { rest: field.trim_ascii(), has_begun: false }
    }

    fn member(&mut self) -> Result<(&'b [u8], Item<'b>), Malformed> {
        if self.has_begun {
            self.skip(b" \t");
            self.expect(b',')?;
            self.skip(b" \t");
        }
        self.has_begun = true;
        let name = self.key()?;
        let value = match self.take(b'=') {
            false => Item::Boolean(true),
            true if self.take(b'(') => self.inner_list()?,
            true => self.item()?,
        };
        self.parameters()?;
        Ok((name, value))
    }

    /// The rest of an inner list, after its opening bracket.
    fn inner_list(&mut self) -> Result<Item<'b>, Malformed> {
        self.skip(b" ");
        while !self.take(b')') {
            self.item()?;
            self.parameters()?;
            match self.rest.first() {
                Some(b' ') => self.skip(b" "),
                Some(b')') => {}
                _ => return Err(Malformed),
            }
        }
        Ok(Item::Other)
    }

    fn parameters(&mut self) -> Result<(), Malformed> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.item()?;
            }
        }
        Ok(())
    }

    fn key(&mut self) -> Result<&'b [u8], Malformed> {
        let is_of_key =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(byte);
        let key = self.run(is_of_key);
        match key.first() {
            Some(byte) if byte.is_ascii_lowercase() || *byte == b'*' => Ok(key),
            _ => Err(Malformed),
        }
    }

    fn item(&mut self) -> Result<Item<'b>, Malformed> {
        match *self.rest.first().ok_or(Malformed)? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.expect(b'?')?;
                let is_true = self.take(b'1');
                if !is_true {
                    self.expect(b'0')?;
                }
                Ok(Item::Boolean(is_true))
            }
            b':' => {
                self.expect(b':')?;
                self.run(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(byte));
                self.expect(b':')?;
                Ok(Item::Other)
            }
            b'@' => {
                self.expect(b'@')?;
                match self.number()? {
                    Item::Integer(_) => Ok(Item::Other),
                    _ => Err(Malformed),
                }
            }
            b'*' | b'a'..=b'z' | b'A'..=b'Z' => {
                self.run(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/".contains(byte));
                Ok(Item::Other)
            }
            _ => Err(Malformed),
        }
    }

    fn number(&mut self) -> Result<Item<'b>, Malformed> {
        let is_negative = self.take(b'-');
        let digits = self.run(u8::is_ascii_digit);
        if digits.is_empty() || digits.len() > DIGITS_MAX {
            return Err(Malformed);
        }
        if self.take(b'.') {
            let fraction = self.run(u8::is_ascii_digit);
            let is_decimal = digits.len() <= DIGITS_MAX - 3 && (1..=3).contains(&fraction.len());
            return if is_decimal { Ok(Item::Other) } else { Err(Malformed) };
        }
        let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit - b'0'));
        Ok(Item::Integer(if is_negative { -value } else { value }))
    }

    fn string(&mut self) -> Result<Item<'b>, Malformed> {
        self.expect(b'"')?;
        let begin = self.rest;
        let mut has_escapes = false;
        loop {
            let (first, rest) = self.rest.split_first().ok_or(Malformed)?;
            self.rest = rest;
            match first {
                b'"' => break,
                b'\\' => {
                    has_escapes = true;
                    if !self.take(b'"') {
                        self.expect(b'\\')?;
                    }
                }
                b' '..=b'~' => {}
                _ => return Err(Malformed),
            }
        }
        let text = &begin[..begin.len() - self.rest.len() - 1];
        Ok(if has_escapes { Item::Other } else { Item::String(text) })
    }

    /// The bytes at the beginning that satisfy `holds`.
    fn run(&mut self, holds: impl Fn(&u8) -> bool) -> &'b [u8] {
        let end = self.rest.iter().position(|byte| !holds(byte)).unwrap_or(self.rest.len());
        let (run, rest) = self.rest.split_at(end);
        self.rest = rest;
        run
    }

    fn skip(&mut self, bytes: &[u8]) {
        self.run(|byte| bytes.contains(byte));
    }

    /// Whether the next byte is `byte`. If so, the byte is consumed.
    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.rest.first() == Some(&byte);
        if is_next {
            self.rest = &self.rest[1..];
        }
        is_next
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.take(byte) { Ok(()) } else { Err(Malformed) }
    }
}

impl<'b> Iterator for Dictionary<'b> {
    type Item = Result<(&'b [u8], Item<'b>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let member = self.member();
        if member.is_err() {
            self.rest = &[];
        }
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(field: &[u8]) -> Result<Vec<(&[u8], Item<'_>)>, Malformed> {
        Dictionary::new(field).collect()
    }

    #[test]
    fn parser_reads_dictionary_members_of_each_type() {
        let field = b" a, b=-7;p=\"x;y\";q ,\tc=?0,d=\"t, x\",e=tok:/n,f=:YQ==:,g=(1 \"(\" x;y=1 ),h=@17,i=1.25,*k=999999999999999,l=()";
        let members = all(field).unwrap();
        let names: Vec<_> = members.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, [&b"a"[..], b"b", b"c", b"d", b"e", b"f", b"g", b"h", b"i", b"*k", b"l"]);
        let values: Vec<_> =
            members.iter().map(|(_, value)| *value).filter(|value| *value != Item::Other).collect();
        let expected = [
            Item::Boolean(true),
            Item::Integer(-7),
            Item::Boolean(false),
            Item::String(b"t, x"),
            Item::Integer(999_999_999_999_999),
        ];
        assert_eq!(values, expected);
        assert_eq!(all(b""), Ok(Vec::new()));
    }

    /// A value of a member: the text and the expected result.
    fn value() -> impl Strategy<Value = (String, Option<i64>, Option<bool>, Option<String>)> {
        let integer = -999_999_999_999_999_i64..=999_999_999_999_999;
        prop_oneof![
            integer.prop_map(|number| (format!("={number}"), Some(number), None, None)),
            any::<bool>().prop_map(|is| (format!("=?{}", u8::from(is)), None, Some(is), None)),
            Just((String::new(), None, Some(true), None)),
            "[ !#-\\[\\]-~]{0,9}".prop_map(|text| (format!("=\"{text}\""), None, None, Some(text))),
            "=([a-z][a-z0-9:/]{0,5}|:[A-Za-z0-9+/]{0,8}:|@-?[0-9]{1,9}|-?[0-9]{1,9}\\.[0-9]{1,3})"
                .prop_map(|text| (text, None, None, None)),
            "=\\( {0,2}([a-z]{1,3}(;[a-z]=1)? {1,2}){0,3}\\)".prop_map(|text| (text, None, None, None)),
        ]
    }

    proptest! {
        #[test]
        fn parser_returns_at_most_one_error_which_is_always_its_last_result(
            field in prop_oneof![
                prop::collection::vec(any::<u8>(), 0..60),
                "[ab,;=()\"\\\\?10.@:*A \t-]{0,60}".prop_map(String::into_bytes),
            ],
        ) {
            let members: Vec<_> = Dictionary::new(&field).collect();
            prop_assert!(members.len() <= field.len() / 2 + 1);
            // An error ends the iteration.
            let last = members.len().saturating_sub(1);
            prop_assert!(members.iter().take(last).all(Result::is_ok));
            for (name, value) in members.into_iter().flatten() {
                prop_assert!(!name.is_empty());
                prop_assert!(value.seconds().is_none_or(|time| time.as_secs() <= LONGEST));
            }
        }

        #[test]
        fn serialized_dictionary_parses_to_the_same_members(
            written in prop::collection::vec(("[a-z*][a-z0-9_.*-]{0,6}", value(), "(;[a-z]{1,3}(=[0-9]{1,3})?){0,2}"), 1..6),
            between in "[ \t]{0,2},[ \t]{0,2}",
        ) {
            let members: Vec<String> = written
                .iter()
                .map(|(name, (value, ..), parameters)| format!("{name}{value}{parameters}"))
                .collect();
            let field = members.join(&between);
            let read = all(field.as_bytes());
            prop_assert!(read.is_ok(), "{}", field);
            let read = read.unwrap_or_default();
            prop_assert_eq!(read.len(), written.len());
            for ((name, item), (expected, (_, integer, boolean, string), _)) in read.into_iter().zip(&written) {
                prop_assert_eq!(name, expected.as_bytes());
                let expected = match (integer, boolean, string) {
                    (Some(integer), ..) => Item::Integer(*integer),
                    (_, Some(boolean), _) => Item::Boolean(*boolean),
                    (.., Some(string)) => Item::String(string.as_bytes()),
                    _ => Item::Other,
                };
                prop_assert_eq!(item, expected);
            }
        }
    }

    #[test]
    fn malformed_dictionaries_are_rejected() {
        for field in [
            "a,",
            ",a",
            "a b",
            "a=",
            "A=1",
            "1=a",
            "a=1234567890123456",
            "a=--1",
            "a=1.",
            "a=1.2345",
            "a=1234567890123.5",
            "a=\"x",
            "a=\"\\x\"",
            "a=\"\u{e9}\"",
            "a=?2",
            "a=:x",
            "a=@1.5",
            "a=(1",
            "a=(1\"x\")",
            "a;",
            "a;=1",
            "a;B",
            "a=&",
            "a =1",
            "a= 1",
            "a=1 ;b",
            "a\0",
        ] {
            assert!(all(field.as_bytes()).is_err(), "{field}");
        }
        for byte in 0..=u8::MAX {
            // No input causes a panic or an endless loop.
            let _ = all(&[byte; 40]);
            let _ = all(&[b'a', b'=', byte, byte, b';', byte]);
        }
    }
}
