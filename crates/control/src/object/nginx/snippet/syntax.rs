//! The syntax of configuration files of nginx: directives with words, in lines or blocks.

use std::iter::Peekable;
use std::str::Chars;

/// The longest snippet, in bytes.
const LENGTH_MAX: usize = 64 * 1024;
/// The maximum number of directives of a snippet.
const DIRECTIVES_MAX: usize = 512;
/// The maximum number of words of a directive.
const WORDS_MAX: usize = 64;
/// The maximum depth of blocks in blocks.
const DEPTH_MAX: usize = 4;

/// A directive.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Directive {
    /// The line of its name, from 1.
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) words: Vec<String>,
    pub(super) block: Option<Vec<Self>>,
}

/// A syntax error.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) line: usize,
    pub(super) message: &'static str,
}

/// The directives of a snippet.
pub(super) fn parse(text: &str) -> Result<Vec<Directive>, SyntaxError> {
    let mut parser = Parser { rest: text.chars().peekable(), line: 1, count: 0 };
    if text.len() > LENGTH_MAX {
        return Err(parser.error("the snippet is longer than 64 KiB"));
    }
    parser.directives(0)
}

struct Parser<'t> {
    rest: Peekable<Chars<'t>>,
    line: usize,
    /// The number of directives so far.
    count: usize,
}

impl Parser<'_> {
    fn error(&self, message: &'static str) -> SyntaxError {
        SyntaxError { line: self.line, message }
    }

    fn next(&mut self) -> Option<char> {
        let next = self.rest.next();
        self.line += usize::from(next == Some('\n'));
        next
    }

    fn skip_space(&mut self) {
        while let Some(next) = self.rest.peek() {
            match next {
                '#' => while self.next().is_some_and(|char| char != '\n') {},
                char if char.is_ascii_whitespace() => drop(self.next()),
                _ => return,
            }
        }
    }

    /// The directives of a block, or of the whole snippet at depth 0.
    fn directives(&mut self, depth: usize) -> Result<Vec<Directive>, SyntaxError> {
        let mut directives = Vec::new();
        loop {
            self.skip_space();
            match self.rest.peek() {
                None if depth == 0 => return Ok(directives),
                None => return Err(self.error("a '}' is missing")),
                Some('}') if depth > 0 => {
                    self.next();
                    return Ok(directives);
                }
                Some('}' | '{' | ';') => return Err(self.error("the name of a directive is missing")),
                Some(_) => directives.push(self.directive(depth)?),
            }
        }
    }

    fn directive(&mut self, depth: usize) -> Result<Directive, SyntaxError> {
        self.count += 1;
        if self.count > DIRECTIVES_MAX {
            return Err(self.error("the snippet has more than 512 directives"));
        }
        let (line, name) = (self.line, self.word()?);
        let mut words = Vec::new();
        loop {
            self.skip_space();
            match self.rest.peek() {
                None => return Err(self.error("a ';' is missing")),
                Some(';') => {
                    self.next();
                    return Ok(Directive { line, name, words, block: None });
                }
                Some('{') if depth == DEPTH_MAX => return Err(self.error("too many blocks in blocks")),
                Some('{') => {
                    self.next();
                    let block = Some(self.directives(depth + 1)?);
                    return Ok(Directive { line, name, words, block });
                }
                Some('}') => return Err(self.error("a ';' is missing before '}'")),
                Some(_) if words.len() == WORDS_MAX => {
                    return Err(self.error("the directive has more than 64 words"));
                }
                Some(_) => words.push(self.word()?),
            }
        }
    }

    /// A word, without its quotes.
    fn word(&mut self) -> Result<String, SyntaxError> {
        let mut word = String::new();
        if let Some(quote) = self.rest.next_if(|char| matches!(char, '"' | '\'')) {
            loop {
                match self.next() {
                    None => return Err(self.error("a quoted text has no end")),
                    Some(char) if char == quote => break,
                    Some('\\') => self.escape(&mut word)?,
                    Some(char) => word.push(char),
                }
            }
            return match self.rest.peek() {
                None | Some(';' | '{' | ')') => Ok(word),
                Some(char) if char.is_ascii_whitespace() => Ok(word),
                Some(_) => Err(self.error("a space is missing behind a quoted text")),
            };
        }
        loop {
            match self.rest.peek() {
                None | Some(';' | '{') => return Ok(word),
                Some(char) if char.is_ascii_whitespace() => return Ok(word),
                Some('\\') => {
                    self.next();
                    self.escape(&mut word)?;
                }
                Some('$') => {
                    self.next();
                    word.push('$');
                    // The brace of a variable begins no block.
                    word.extend(self.rest.next_if_eq(&'{'));
                }
                Some(_) => word.extend(self.next()),
            }
        }
    }

    /// The character behind a backslash. The backslash stays before characters without another meaning, for regular
    /// expressions.
    fn escape(&mut self, word: &mut String) -> Result<(), SyntaxError> {
        match self.next() {
            None => return Err(self.error("a '\\' ends the snippet")),
            Some(char @ ('"' | '\'' | '\\')) => word.push(char),
            Some('t') => word.push('\t'),
            Some('r') => word.push('\r'),
            Some('n') => word.push('\n'),
            Some(char) => word.extend(['\\', char]),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        fn show(directives: &[Directive]) -> String {
            let one = |directive: &Directive| {
                let block =
                    directive.block.as_ref().map_or(String::new(), |block| format!("{{{}}}", show(block)));
                format!("{}:{}{:?}{block}", directive.line, directive.name, directive.words)
            };
            directives.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        match parse(text) {
            Ok(directives) => show(&directives),
            Err(SyntaxError { line, message }) => format!("line {line}: {message}"),
        }
    }

    #[test]
    fn snippet_is_split_into_directives_words_and_blocks_as_nginx_does() {
        for (text, expected) in [
            ("", ""),
            ("a;", "1:a[]"),
            ("# c\n a 'b c' \"d\\\"e\" ${f}g;b;", r#"2:a["b c", "d\"e", "${f}g"] 2:b[]"#),
            (
                "if ($http_x ~* \"a{2}\\.b\") {\n return 403;\n}",
                r#"1:if["($http_x", "~*", "a{2}\\.b", ")"]{2:return["403"]}"#,
            ),
            ("rewrite ^/a/(\\d+)$ /b/$1 break;", r#"1:rewrite["^/a/(\\d+)$", "/b/$1", "break"]"#),
            ("a", "line 1: a ';' is missing"),
            ("a {", "line 1: a '}' is missing"),
            ("a;\n}", "line 2: the name of a directive is missing"),
            ("a \"b", "line 1: a quoted text has no end"),
            ("a 'b'c;", "line 1: a space is missing behind a quoted text"),
            ("a\\", "line 1: a '\\' ends the snippet"),
            ("a{a{a{a{a{}}}}}", "line 1: too many blocks in blocks"),
        ] {
            assert_eq!(shown(text), expected, "{text}");
        }
        assert_eq!(shown(&"a;".repeat(513)), "line 1: the snippet has more than 512 directives");
        assert_eq!(shown(&"a".repeat(64 * 1024 + 1)), "line 1: the snippet is longer than 64 KiB");
    }

    proptest! {
        #[test]
        fn parser_of_snippets_never_panics(text in r#"([a$ ;{}'"\\#\n()~=0é]|if|return|\$\{){0,40}"#) {
            let _ = parse(&text);
        }
    }
}
