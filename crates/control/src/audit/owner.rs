//! The owner of a file.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sluicegate_model::audit::Actor;

/// The list of the users of the machine.
const USERS: &str = "/etc/passwd";

/// The part of the list that is read, in bytes.
const USERS_MAX: u64 = 1 << 20;

/// The owner of a file: the user name, or the number of a user without an entry in the list of users.
pub(super) fn of(file: &Path) -> Actor {
    let Ok(metadata) = std::fs::metadata(file) else { return Actor::Unknown };
    let number = metadata.uid().to_string();
    Actor::Owner(name(&number).unwrap_or(number).into())
}

fn name(number: &str) -> Option<String> {
    let users = BufReader::new(std::fs::File::open(USERS).ok()?.take(USERS_MAX));
    users.lines().map_while(Result::ok).find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_a_user_name_or_else_a_number() {
        assert_eq!(name("0").as_deref(), Some("root"));
        assert_eq!(name("4294967294"), None);
        assert_eq!(of(Path::new("/")), Actor::Owner("root".into()));
        assert_eq!(of(Path::new("/does/not/exist")), Actor::Unknown);
    }
}
