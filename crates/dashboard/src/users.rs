//! The users of a token file.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sluicegate_model::value::syntax;

use crate::openid::Section;

mod locate;

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

/// A file with one user.
const EXAMPLE: &str = "users: [{name: ada, role: operator, token: TOKEN}]";

/// The fault of a name of an object.
const NO_NAME: &str = "is not the name of an object: write NAMESPACE/NAME";

/// The longest field or role in a message, in bytes. A token may be in the wrong place.
const SHOWN_MAX: usize = 24;

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
            _ => Err(NO_NAME.to_owned()),
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
    #[error("cannot read {}: {error}; create the file or make it readable", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The content has a fault.
    #[error("{}{}: {fault}", path.display(), position.map_or_else(String::new, |(line, column)| format!(":{line}:{column}")))]
    Content {
        /// The file.
        path: PathBuf,
        /// The line and the column, if they are known.
        position: Option<(u64, u64)>,
        /// The fault.
        fault: Fault,
    },
}

impl TokenError {
    /// The fault in the text of the file at a path.
    pub(crate) fn in_text(path: &Path, text: &[u8], fault: Fault) -> Self {
        let position = std::str::from_utf8(text).ok().and_then(|text| locate::position(text, &fault.field));
        Self::Content { path: path.to_owned(), position, fault }
    }
}

/// A fault of a field, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field, as in `users[0].role`. Empty for the whole file.
    pub(crate) field: String,
    /// The fault and the remedy, after the name of the field.
    pub(crate) said: String,
}

impl Fault {
    pub(crate) fn new(field: impl Into<String>, said: impl Into<String>) -> Self {
        Self { field: field.into(), said: said.into() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.field.is_empty() {
            true => f.write_str(&self.said),
            false => write!(f, "{} {}", self.field, self.said),
        }
    }
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
        let fault = Fault::new("", format!("the file has more than {FILE_MAX} bytes: use fewer users"));
        return Err(TokenError::Content { path: path.to_owned(), position: None, fault });
    }
    Ok(text)
}

/// Reads the text of the file at a path.
///
/// A file with one line is the token of one user with all rights. Other files are a list in YAML.
pub(crate) fn read(path: &Path, text: &[u8]) -> Result<UserFile, TokenError> {
    let at = |fault| TokenError::in_text(path, text, fault);
    let line = text.trim_ascii();
    if line.is_empty() {
        let said = format!("the file is empty: write a token of at least {TOKEN_MIN} bytes, or {EXAMPLE}");
        return Err(at(Fault::new("", said)));
    }
    let is_yaml = [&b"users:"[..], b"openIdConnect:"].iter().any(|field| line.starts_with(field));
    if !line.contains(&b'\n') && !is_yaml {
        check_token(line).map_err(|said| at(Fault::new("", format!("the token {said}"))))?;
        let user = User { name: "token".to_owned(), role: Role::Operator, ..User::default() };
        return Ok(UserFile { users: vec![(user, line.to_owned())], openid: None });
    }
    let file = parse(text).map_err(|(position, fault)| TokenError::Content {
        path: path.to_owned(),
        position,
        fault,
    })?;
    users(file).map_err(at)
}

/// Parses YAML. A fault has its line and its column, if they are known.
fn parse(text: &[u8]) -> Result<WrittenFile, (Option<(u64, u64)>, Fault)> {
    let Ok(text) = std::str::from_utf8(text) else {
        return Err((None, Fault::new("", "the file is not UTF-8: save the file as UTF-8")));
    };
    let mut field = String::new();
    let read = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize(deserializer).map_err(|error| {
            field = error.path().to_string();
            error.into_inner()
        })
    });
    read.map_err(|error| {
        let location = error.location().filter(|location| location.line() > 0);
        let position = location.map(|location| (location.line(), location.column()));
        // The path of a fault at a key ends with `?`.
        let field = field.trim_end_matches(['?', '.']).to_owned();
        (position, in_words(field, error.without_snippet()))
    })
}

/// The fault in the words of this file. The messages of the parser may contain values, so they are not shown.
fn in_words(field: String, error: &serde_saphyr::Error) -> Fault {
    use serde_saphyr::Error;
    let list = |names: &[&str]| names.join(", ");
    match error {
        Error::SerdeUnknownField { field: unknown, expected, .. } => {
            let said = format!("{} is no field: write one of {}", shown(unknown), list(expected));
            // The path ends with the unknown field.
            let parent =
                field.strip_suffix(&**unknown).map_or(&*field, |parent| parent.trim_end_matches('.'));
            match parent.is_empty() {
                true => Fault::new("", said),
                false => Fault::new("", format!("{parent}: {said}")),
            }
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            Fault::new(field, format!("has the value {}: write one of {}", shown(variant), list(expected)))
        }
        Error::SerdeMissingField { field: missing, .. } => {
            Fault::new(field, format!("has no field {missing}: add it")).or_of_file(EXAMPLE)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().map_or("a field".to_owned(), shown);
            Fault::new(field, format!("has {key} twice: remove one of them")).or_of_file(EXAMPLE)
        }
        Error::SerdeInvalidType { expected, .. } | Error::SerdeInvalidValue { expected, .. } => {
            let expected = match &**expected {
                expected if expected.starts_with("struct ") => "a mapping of fields",
                "a sequence" => "a list",
                "a string" => "text",
                expected => expected,
            };
            Fault::new(field, format!("has a value of another type: write {expected}")).or_of_file(EXAMPLE)
        }
        Error::Unexpected { expected, .. } => {
            let expected = match *expected {
                "sequence start" => "a list",
                "mapping start" => "a mapping of fields",
                "string scalar" | "scalar" => "text",
                _ => "the value as in docs/operate/dashboard.md",
            };
            Fault::new(field, format!("has a value of another type: write {expected}")).or_of_file(EXAMPLE)
        }
        Error::ExternalMessage { .. } | Error::Eof { .. } => Fault::new(
            "",
            "the text is not valid YAML: correct the brackets, the quotes and the indentation here",
        ),
        // An error of `Name`.
        Error::Message { msg, .. } if msg == NO_NAME => Fault::new(field, NO_NAME),
        _ if field.is_empty() => Fault::new("", format!("the file is no list of users: write {EXAMPLE}")),
        _ => Fault::new(
            field,
            "has a value that cannot be read: write the value as in docs/operate/dashboard.md",
        ),
    }
}

impl Fault {
    /// A fault of the whole file, with an example, if there is no field.
    fn or_of_file(self, example: &str) -> Self {
        match self.field.is_empty() {
            true => Self::new("", format!("the file {}; for example {example}", self.said)),
            false => self,
        }
    }
}

/// A written name, unless it may be a part of a token.
fn shown(name: &str) -> String {
    let is_name = name.len() <= SHOWN_MAX && name.bytes().all(|byte| byte.is_ascii_alphabetic());
    if is_name { format!("{name:?}") } else { "a name that is not shown".to_owned() }
}

fn users(file: WrittenFile) -> Result<UserFile, Fault> {
    let has_login = file.open_id_connect.is_some();
    if file.users.is_empty() && !has_login || file.users.len() > USERS_MAX {
        let said = format!("has {} users: write 1 to {USERS_MAX} users, such as {EXAMPLE}", file.users.len());
        return Err(Fault::new("users", said));
    }
    let (mut names, mut tokens) = (HashMap::new(), HashMap::new());
    let mut users = Vec::with_capacity(file.users.len());
    for (index, WrittenUser { name, role, groups, consumers, token }) in file.users.into_iter().enumerate() {
        let fault = |field: &str, said: String| Fault::new(format!("users[{index}].{field}"), said);
        if name.is_empty() || name.len() > NAME_MAX || name.contains(char::is_control) {
            let shown: String = name.chars().take(NAME_MAX).collect();
            let said = format!("{shown:?} is no name: write 1 to {NAME_MAX} bytes in one line");
            return Err(fault("name", said));
        }
        let of_token = |said: String| fault("token", format!("of the user {name:?} {said}"));
        check_token(token.as_bytes()).map_err(of_token)?;
        if token.bytes().any(|byte| !byte.is_ascii_graphic()) {
            let said = "has a character other than visible ASCII: write another token, such as the output of: openssl rand -hex 32";
            return Err(of_token(said.to_owned()));
        }
        if let Some(first) = names.insert(name.clone(), index) {
            let said = format!("{name:?} is the name of two users, also of users[{first}]: rename one");
            return Err(fault("name", said));
        }
        if let Some(first) = tokens.insert(token.clone(), index) {
            let said = format!("is the token of another user, users[{first}]: write another token");
            return Err(of_token(said));
        }
        users.push((User { name, role, groups, consumers, is_of_provider: false }, token.into_bytes()));
    }
    Ok(UserFile { users, openid: file.open_id_connect })
}

/// # Errors
/// The fault, after the name of the token.
fn check_token(token: &[u8]) -> Result<(), String> {
    match token.len() {
        TOKEN_MIN..=TOKEN_MAX => Ok(()),
        length => Err(format!(
            "has {length} bytes: write from {TOKEN_MIN} to {TOKEN_MAX} bytes, such as the output of: openssl rand -hex 32"
        )),
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
        assert!(of("0123456789abcde\n").is_err_and(|error| error.to_string().contains("15 bytes")));
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
        let mut wrong = Vec::new();
        for (file, said) in [
            (
                "users: [{name: ada, token: short}]",
                "token:1:28: users[0].token of the user \"ada\" has 5 bytes: write from 16 to 4096 bytes",
            ),
            (
                "\n# users\nusers:\n- {name: ada, token: TOKEN1}\n- name: bob\n  role: admin\n  token: TOKEN\n",
                "token:6:9: users[1].role has the value \"admin\": write one of viewer, operator",
            ),
            (
                "users:\n- {name: ada, role: TOKEN, token: TOKEN}",
                "token:2:21: users[0].role has the value a name",
            ),
            (
                "users: [{name: ada, roles: viewer, token: TOKEN}]",
                "token:1:21: users[0]: \"roles\" is no field: write one of name, role, groups, consumers, token",
            ),
            ("users: [{TOKEN: ada}]", "users[0]: a name that is not shown is no field"),
            (
                "users: [{name: ada, token: TOKEN}]\nuser: []",
                "token:2:1: \"user\" is no field: write one of users, openIdConnect",
            ),
            ("users: [{name: ada}]", "token:1:10: users[0] has no field token: add it"),
            ("users: [{name: ada, name: bob}]", "users[0] has \"name\" twice: remove one"),
            ("users: TOKEN", "token:1:8: users has a value of another type: write a list"),
            ("users:\n- TOKEN", "token:2:3: users[0] has a value of another type: write a mapping of fields"),
            (
                "users: [{name: ada, groups: TOKEN, token: TOKEN}]",
                "token:1:29: users[0].groups has a value of another type: write a list",
            ),
            (
                "users: [{name: ada, consumers: [shop/ada, TOKEN], token: TOKEN}]",
                "users[0].consumers[1] is not the name of an object: write NAMESPACE/NAME",
            ),
            (
                "users: [{name: ada, token: TOKEN},\n  {name: ada, token: TOKEN2}]",
                "token:2:10: users[1].name \"ada\" is the name of two users, also of users[0]: rename one",
            ),
            (
                "users:\n- {name: ada, token: TOKEN}\n- {name: bob, token: TOKEN}",
                "token:3:22: users[1].token of the user \"bob\" is the token of another user, users[0]",
            ),
            ("users: [{name: '', token: TOKEN}]", "token:1:16: users[0].name \"\" is no name"),
            ("users: [{name: ada, token: TOKEN é}]", "users[0].token of the user \"ada\" has a character"),
            ("users: []", "token:1:8: users has 0 users: write 1 to 1000 users"),
            ("users:\n  - [", "token:2:5: the text is not valid YAML: correct"),
            ("TOKEN\nTOKEN", "token:1:1: the file has a value of another type"),
            (" \n", "token: the file is empty: write a token of at least 16 bytes, or users: ["),
            ("openIdConnect: {issuer: 5, clientId: a}", "openIdConnect has no field publicUrl"),
            (
                "openIdConnect:\n  issuer: a\n  roles:\n  - {group: a, role: TOKEN}",
                "token:4:22: openIdConnect.roles[0].role has the value a name",
            ),
        ] {
            let error = of(&file.replace("TOKEN", TOKEN)).expect_err(file).to_string();
            if !error.contains(said) || error.contains(TOKEN) {
                wrong.push(format!("{file}: {error}"));
            }
        }
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn missing_file_is_an_error_with_its_path() {
        let error = text_of(Path::new("missing/users.yaml")).expect_err("no file").to_string();
        assert!(error.starts_with("cannot read missing/users.yaml: No such file"), "{error}");
    }
}
