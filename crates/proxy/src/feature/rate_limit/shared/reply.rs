//! Replies of Redis (RESP2), as far as the gateway uses them: one line, or a list of integers.

/// The longest line, in bytes.
const LINE_MAX: usize = 1024;

/// The longest list.
const LIST_MAX: usize = 1024;

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// `+OK` and similar replies.
    Done,
    /// An error message for people. Its first word identifies the error.
    Error(Box<str>),
    Numbers(Vec<i64>),
}

/// A reply that no command of the gateway can cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnexpectedReply {
    #[error("a line is longer than {LINE_MAX} bytes")]
    Long,
    #[error("a line does not end with CR and LF")]
    End,
    #[error("it has an unexpected type")]
    Type,
    #[error("it has an invalid number")]
    Number,
    #[error("a list has more than {LIST_MAX} entries, or a negative number")]
    Length,
}

impl Reply {
    /// The first reply in the input, and its length; `None` if the reply is incomplete.
    pub(super) fn parse(input: &[u8]) -> Result<Option<(Self, usize)>, UnexpectedReply> {
        let Some((line, mut used)) = line(input)? else { return Ok(None) };
        let reply = match line.split_first() {
            Some((b'+', _)) => Self::Done,
            Some((b'-', text)) => {
                Self::Error(String::from_utf8_lossy(text).escape_debug().to_string().into())
            }
            Some((b':', text)) => Self::Numbers(vec![number(text)?]),
            Some((b'*', text)) => {
                let length = usize::try_from(number(text)?).ok().filter(|length| *length <= LIST_MAX);
                let length = length.ok_or(UnexpectedReply::Length)?;
                let mut numbers = Vec::with_capacity(length);
                for _ in 0..length {
                    let Some((entry, end)) = self::line(&input[used..])? else { return Ok(None) };
                    let Some((b':', text)) = entry.split_first() else { return Err(UnexpectedReply::Type) };
                    numbers.push(number(text)?);
                    used += end;
                }
                Self::Numbers(numbers)
            }
            _ => return Err(UnexpectedReply::Type),
        };
        Ok(Some((reply, used)))
    }
}

/// The first line without its end, and its length including the end.
fn line(input: &[u8]) -> Result<Option<(&[u8], usize)>, UnexpectedReply> {
    let window = &input[..input.len().min(LINE_MAX)];
    match memchr::memchr(b'\n', window) {
        Some(end) => match window[..end].strip_suffix(b"\r") {
            Some(line) => Ok(Some((line, end + 1))),
            None => Err(UnexpectedReply::End),
        },
        None if input.len() >= LINE_MAX => Err(UnexpectedReply::Long),
        None => Ok(None),
    }
}

fn number(text: &[u8]) -> Result<i64, UnexpectedReply> {
    let is_plain = text.strip_prefix(b"-").unwrap_or(text).iter().all(u8::is_ascii_digit);
    let parsed = std::str::from_utf8(text).ok().filter(|_| is_plain).and_then(|text| text.parse().ok());
    parsed.ok_or(UnexpectedReply::Number)
}

/// Checks invariants for any input: the result does not depend on the pieces in which the input arrives, and parsing uses
/// no more bytes than there are.
#[cfg(any(test, fuzzing))]
pub(crate) fn check(input: &[u8]) {
    let whole = Reply::parse(input);
    for end in 0..input.len() {
        match Reply::parse(&input[..end]) {
            Ok(None) => {}
            early => assert_eq!(early, whole, "up to {end}"),
        }
    }
    if let Ok(Some((_, used))) = whole {
        assert!((3..=input.len()).contains(&used));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parser_returns_a_valid_redis_reply_once_it_is_complete() {
        for (input, reply) in [
            ("+OK\r\n", Reply::Done),
            ("-NOAUTH who are \u{7}you\r\n", Reply::Error("NOAUTH who are \\u{7}you".into())),
            (":-7\r\n", Reply::Numbers(vec![-7])),
            ("*0\r\n", Reply::Numbers(vec![])),
            ("*2\r\n:1\r\n:1700000000000000\r\n", Reply::Numbers(vec![1, 1_700_000_000_000_000])),
        ] {
            assert_eq!(Reply::parse(input.as_bytes()), Ok(Some((reply, input.len()))));
            for end in 0..input.len() {
                assert_eq!(Reply::parse(&input.as_bytes()[..end]), Ok(None), "{input:?} up to {end}");
            }
        }
    }

    #[test]
    fn parser_rejects_an_unexpected_redis_reply_before_it_is_complete() {
        let long = ["+", &"x".repeat(LINE_MAX)].concat();
        for (input, nonsense) in [
            ("HTTP/1.1 400 Bad Request\r\n", UnexpectedReply::Type),
            ("\r\n", UnexpectedReply::Type),
            ("$5\r\nhello\r\n", UnexpectedReply::Type),
            ("*1\r\n*1\r\n", UnexpectedReply::Type),
            ("*1\r\n$1\r\n", UnexpectedReply::Type),
            ("*1000000000\r\n", UnexpectedReply::Length),
            ("*-1\r\n", UnexpectedReply::Length),
            (":\r\n", UnexpectedReply::Number),
            (":+1\r\n", UnexpectedReply::Number),
            (":99999999999999999999\r\n", UnexpectedReply::Number),
            ("+OK\n", UnexpectedReply::End),
            (&long, UnexpectedReply::Long),
        ] {
            assert_eq!(Reply::parse(input.as_bytes()), Err(nonsense), "{input:?}");
        }
    }

    proptest! {
        #[test]
        fn parser_gives_the_same_result_for_any_reply_whole_and_in_pieces(
            words in proptest::collection::vec(
                prop::sample::select(vec!["*", ":", "+", "-", "$", "\r\n", "\n", "2", "x"]), 0..24
            ),
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            check(words.concat().as_bytes());
            check(&bytes);
        }
    }

    #[test]
    fn parser_gives_the_same_result_for_fuzz_seeds_whole_and_in_pieces() {
        let seeds = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/redis_reply");
        let files: Vec<_> = std::fs::read_dir(seeds).unwrap().collect();
        assert!(files.len() >= 5);
        files.into_iter().for_each(|file| check(&std::fs::read(file.unwrap().path()).unwrap()));
    }
}
