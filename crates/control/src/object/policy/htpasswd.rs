//! Names and hashes of passwords in the format of `htpasswd`.

/// The greatest cost of bcrypt: each increment doubles the processor time of a request, which is a second here.
const BCRYPT_COST_MAX: u32 = 14;

/// The content of a file. The faults repeat no part of it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Passwords {
    pub(crate) users: Vec<(Box<str>, Box<str>)>,
    /// The lines that cannot be used, from 1, and why.
    pub(crate) faults: Vec<(usize, &'static str)>,
}

/// Parses lines of `name:hash`. Ignores empty lines and lines that begin with `#`.
pub(crate) fn parse(text: &[u8]) -> Passwords {
    let mut passwords = Passwords::default();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let line = line.trim_ascii();
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        match parse_line(line) {
            Ok((name, _)) if passwords.users.iter().any(|(other, _)| **other == *name) => {
                passwords.faults.push((index + 1, "names a user again; the first line of the user is used"));
            }
            Ok((name, hash)) => passwords.users.push((name.into(), hash.into())),
            Err(fault) => passwords.faults.push((index + 1, fault)),
        }
    }
    passwords
}

fn parse_line(line: &[u8]) -> Result<(&str, &str), &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "is not UTF-8")?;
    let (name, hash) = line.split_once(':').ok_or("has no ':' between name and hash")?;
    if name.is_empty() {
        return Err("has no name");
    }
    // nginx lets a comment follow.
    let hash = hash.split_once(':').map_or(hash, |(hash, _)| hash);
    match hash_fault(hash) {
        None => Ok((name, hash)),
        Some(fault) => Err(fault),
    }
}

fn hash_fault(hash: &str) -> Option<&'static str> {
    let is_crypt64 =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'/'));
    if let Some(digest) = hash.strip_prefix("{SHA}") {
        let is_sha1 = digest.len() == 28
            && digest.ends_with('=')
            && digest[..27].bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'));
        return (!is_sha1).then_some("has an invalid {SHA} hash");
    }
    if let Some(rest) = hash.strip_prefix("$apr1$") {
        let is_md5 = rest.split_once('$').is_some_and(|(salt, digest)| {
            salt.len() <= 8 && !salt.contains(':') && digest.len() == 22 && is_crypt64(digest)
        });
        return (!is_md5).then_some("has an invalid $apr1$ hash");
    }
    let bcrypt = ["$2a$", "$2b$", "$2y$"].iter().find_map(|prefix| hash.strip_prefix(prefix));
    let Some(rest) = bcrypt else {
        return Some("has an unsupported hash: create it with htpasswd -B (bcrypt)");
    };
    let Some((cost, digest)) = rest.split_once('$') else { return Some("has an invalid bcrypt hash") };
    match cost.parse::<u32>() {
        Ok(cost) if cost > BCRYPT_COST_MAX => {
            Some("has a bcrypt hash that takes seconds to verify: use a cost of 14 or less")
        }
        Ok(4..) if cost.len() == 2 && !cost.starts_with('+') && digest.len() == 53 && is_crypt64(digest) => {
            None
        }
        _ => Some("has an invalid bcrypt hash"),
    }
}

#[cfg(test)]
mod tests {
    use super::parse;

    const BCRYPT: &str = "$2y$05$zyx0VYwNqWtcdQ3TAZFnLeJ3VJSNXEbsdUeDZHYxFGyrCOmCXnrWG";

    #[test]
    fn htpasswd_parser_reads_valid_lines_and_reports_invalid_line_numbers() {
        let sha = "{SHA}W6ph5Mm5Pz8GgiULbPgzG37mj9g=";
        let apr1 = "$apr1$kLFPrQqq$BPvMYxIpYcJjbPz9iZSvq/";
        let text = format!(
            "# comment\r\n\nalice:{BCRYPT}\r\nbob:{sha}:Bob: of sales\ncarol:{apr1}\nalice:{sha}\ndave\n:{sha}\nerin:plain\n\
             frank:{}\ngrace:$1$x$y\nheidi:{{SHA}}short\n",
            BCRYPT.replace("$05$", "$17$")
        );
        let passwords = parse(text.as_bytes());
        let users: Vec<&str> = passwords.users.iter().map(|(name, _)| &**name).collect();
        assert_eq!(users, ["alice", "bob", "carol"]);
        let lines: Vec<usize> = passwords.faults.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [6, 7, 8, 9, 10, 11, 12]);
        assert!(passwords.faults[4].1.contains("cost of 14"));
    }

    #[test]
    fn htpasswd_parser_never_panics_on_arbitrary_bytes() {
        assert_eq!(parse(b"").users, []);
        assert_eq!(parse(b"\xff:\xfe\n").faults, [(1, "is not UTF-8")]);
        assert_eq!(parse("ü:$2y$05$ü".as_bytes()).faults.len(), 1);
        assert_eq!(parse("ü:{SHA}üüüüüüüüüüüüüü".as_bytes()).faults.len(), 1);
    }
}
