//! The users of a token file.

use std::collections::HashSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluicegate_model::value::syntax;

use crate::openid::Section;

/// The shortest token, in bytes.
pub(crate) const TOKEN_MIN: usize = 16;

/// The longest token, in bytes.
const TOKEN_MAX: usize = 4096;

/// The longest file, in bytes.
const FILE_MAX: u64 = 1 << 20;

/// The most users of a file.
const USERS_MAX: usize = 1000;

/// The longest name of a user, in bytes.
pub(crate) const NAME_MAX: usize = 128;

/// What a user of the dashboard may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Read the pages.
    #[default]
    Viewer,
    /// Also change keys and subscriptions.
    Operator,
}

impl Role {
    /// The name, as in the token file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

/// The identity of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name; empty without a login.
    pub name: String,
    /// What the user may do in the dashboard.
    pub role: Role,
    /// The groups, by which the portal shows objects.
    pub groups: Vec<String>,
    /// The Consumers of the user in the portal.
    pub consumers: Vec<Name>,
    /// Whether the OpenID provider knows the user. Otherwise the file has the user.
    pub is_of_provider: bool,
}

/// An object by its namespace and its name, both as Kubernetes allows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Name {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let is_name = |part: &str| syntax::dns_name_fault(part).is_none();
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => {
                let shown: String = text.chars().take(2 * NAME_MAX).collect();
                Err(format!("{shown:?} is no NAMESPACE/NAME"))
            }
        }
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The reason why a token file is unusable. No message contains a part of a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read.
    #[error("cannot read the token file {}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A token is too short or too long.
    #[error(
        "{of} in {} has {length} bytes; write from {TOKEN_MIN} to {TOKEN_MAX} bytes, such as the output of: openssl rand -hex 32",
        path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// The token, in words.
        of: String,
        /// The number of bytes.
        length: usize,
    },
    /// The list of users cannot be read.
    #[error(
        "cannot read the users in {}{}: write users: [{{name: ada, role: operator, token: ...}}]; a user has the fields name, role \
         (viewer or operator), groups, consumers (NAMESPACE/NAME) and token; the section openIdConnect has the fields of \
         docs/dashboard.md",
        path.display(), place(*line)
    )]
    Users {
        /// The file.
        path: PathBuf,
        /// The line of the fault; 0 if it is unknown.
        line: u64,
    },
    /// The list of users has a fault.
    #[error("{}: {fault}", path.display())]
    User {
        /// The file.
        path: PathBuf,
        /// The fault and the remedy.
        fault: String,
    },
}

fn place(line: u64) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
struct WrittenFile {
    #[serde(default)]
    users: Vec<WrittenUser>,
    open_id_connect: Option<Section>,
}

/// The contents of a file.
pub(crate) struct UserFile {
    /// The users, each with the token.
    pub(crate) users: Vec<(User, Vec<u8>)>,
    /// The login by OpenID Connect.
    pub(crate) openid: Option<Section>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenUser {
    name: String,
    #[serde(default)]
    role: Role,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    consumers: Vec<Name>,
    token: String,
}

/// The text of a file.
pub(crate) fn text_of(path: &Path) -> Result<Vec<u8>, TokenError> {
    let unreadable = |error| TokenError::Read { path: path.to_owned(), error };
    let mut text = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(FILE_MAX + 1).read_to_end(&mut text))
        .map_err(unreadable)?;
    if text.len() as u64 > FILE_MAX {
        let fault = format!("the file has more than {FILE_MAX} bytes: use fewer users");
        return Err(TokenError::User { path: path.to_owned(), fault });
    }
    Ok(text)
}

/// Reads the text of the file at a path.
///
/// A file with one line is the token of one user with all rights. Other files are a list in YAML.
pub(crate) fn read(path: &Path, text: &[u8]) -> Result<UserFile, TokenError> {
    let text = text.trim_ascii();
    let is_yaml = [&b"users:"[..], b"openIdConnect:"].iter().any(|field| text.starts_with(field));
    if !text.contains(&b'\n') && !is_yaml {
        check_token(path, text, || "the token".to_owned())?;
        let user = User { name: "token".to_owned(), role: Role::Operator, ..User::default() };
        return Ok(UserFile { users: vec![(user, text.to_owned())], openid: None });
    }
    users(path, text)
}

fn users(path: &Path, text: &[u8]) -> Result<UserFile, TokenError> {
    let wrong = |line| TokenError::Users { path: path.to_owned(), line };
    let fault = |fault: String| TokenError::User { path: path.to_owned(), fault };
    let text = std::str::from_utf8(text).map_err(|_| wrong(0))?;
    let file: WrittenFile = serde_saphyr::from_str(text)
        .map_err(|error| wrong(error.location().map_or(0, |location| location.line())))?;
    let has_login = file.open_id_connect.is_some();
    if file.users.is_empty() && !has_login || file.users.len() > USERS_MAX {
        return Err(fault(format!("has {} users: write 1 to {USERS_MAX} users", file.users.len())));
    }
    let (mut names, mut tokens) = (HashSet::new(), HashSet::new());
    let mut users = Vec::with_capacity(file.users.len());
    for WrittenUser { name, role, groups, consumers, token } in file.users {
        if name.is_empty() || name.len() > NAME_MAX || name.contains(char::is_control) {
            let shown: String = name.chars().take(NAME_MAX).collect();
            return Err(fault(format!("{shown:?} is no name: write 1 to {NAME_MAX} bytes in one line")));
        }
        check_token(path, token.as_bytes(), || format!("the token of {name:?}"))?;
        if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(fault(format!("the token of {name:?} has a character other than visible ASCII")));
        }
        if !names.insert(name.clone()) {
            return Err(fault(format!("{name:?} is the name of two users: rename one")));
        }
        if !tokens.insert(token.clone()) {
            return Err(fault(format!("{name:?} has the token of another user: write another token")));
        }
        users.push((User { name, role, groups, consumers, is_of_provider: false }, token.into_bytes()));
    }
    Ok(UserFile { users, openid: file.open_id_connect })
}

fn check_token(path: &Path, token: &[u8], of: impl FnOnce() -> String) -> Result<(), TokenError> {
    let length = token.len();
    match (TOKEN_MIN..=TOKEN_MAX).contains(&length) {
        true => Ok(()),
        false => Err(TokenError::Length { path: path.to_owned(), of: of(), length }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Vec<(User, Vec<u8>)>, TokenError> {
        read(Path::new("token"), text.as_bytes()).map(|file| file.users)
    }

    #[test]
    fn file_with_one_line_is_the_token_of_an_operator() {
        let users = of("0123456789 abcdef\n").expect("a token");
        assert_eq!((users[0].0.role, &*users[0].1), (Role::Operator, &b"0123456789 abcdef"[..]));
        assert!(matches!(of("0123456789abcde\n"), Err(TokenError::Length { length: 15, .. })));
    }

    #[test]
    fn user_is_a_viewer_unless_the_file_names_another_role() {
        let users = of("# comment\nusers:\n- {name: ada, role: operator, token: 0123456789abcdef}\n\
                        - {name: bob, groups: [gold], consumers: [shop/bob], token: fedcba9876543210}\n");
        let users = users.expect("users");
        assert_eq!((&*users[0].0.name, users[0].0.role), ("ada", Role::Operator));
        let bob = &users[1].0;
        assert_eq!(
            (bob.role, &*bob.groups, bob.consumers[0].to_string()),
            (Role::Viewer, &["gold".to_owned()][..], "shop/bob".to_owned())
        );
    }

    #[test]
    fn faulty_users_are_rejected_and_no_message_has_a_token() {
        const TOKEN: &str = "secret-0123456789";
        for (file, said) in [
            ("users: [{name: ada, token: short}]", "the token of \"ada\""),
            ("users: [{name: ada, role: admin, token: TOKEN}]", "line 1"),
            ("users: [{name: ada, roles: viewer, token: TOKEN}]", "line 1"),
            ("users: [{name: ada, consumers: [bob], token: TOKEN}]", "cannot read the users"),
            ("users: [{name: ada, token: TOKEN}, {name: ada, token: TOKEN2}]", "two users"),
            ("users: [{name: ada, token: TOKEN}, {name: bob, token: TOKEN}]", "another user"),
            ("users: [{name: '', token: TOKEN}]", "no name"),
            ("users: [{name: ada, token: TOKEN é}]", "visible ASCII"),
            ("users: []", "0 users"),
            ("TOKEN\nTOKEN", "cannot read the users"),
        ] {
            let error = of(&file.replace("TOKEN", TOKEN)).expect_err(file).to_string();
            assert!(error.contains(said) && !error.contains(TOKEN), "{file}: {error}");
        }
    }
}
