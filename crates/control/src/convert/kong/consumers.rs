//! The Consumers of a file and their credentials.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sluicegate_kong::File;
use sluicegate_kong::file::{Consumer, CredentialKind};
use sluicegate_kong::note::Notes;

use super::plugins::restricts;
use super::{Conversion, POLICY_VERSION};

/// The Secret with the passwords of all consumers.
pub(super) const BASIC: &str = "kong-basic-auth";

/// The shortest API key, in bytes.
const KEY_MIN: usize = 8;

/// The cost of bcrypt.
const COST: u32 = 8;

/// The longest list of credentials of one kind.
const CREDENTIALS_MAX: usize = 16;

impl Conversion<'_> {
    pub(super) fn consumers(&mut self) {
        for (place, consumer) in self.file.consumers.iter().enumerate() {
            match self.is_closed(place, consumer) {
                true => drop(self.closed.insert(place)),
                false => self.consumer(place, consumer),
            }
        }
    }

    /// Whether a plugin restricts this consumer alone, which is not converted: no caller is the consumer then.
    fn is_closed(&mut self, place: usize, consumer: &Consumer) -> bool {
        let mut is_closed = false;
        for plugin in self.file.plugins.iter().filter(|plugin| plugin.enabled) {
            let group = plugin.scope.consumer_group.map(|group| &self.file.consumer_groups[group].name);
            let is_in_group = group.is_some_and(|group| consumer.groups.contains(group));
            if plugin.scope.consumer != Some(place) && !is_in_group {
                continue;
            }
            if plugin.name == "rate-limiting" && self.limits_apply(plugin, consumer) {
                continue;
            }
            let closes = restricts(&plugin.name) || plugin.name == "request-termination";
            is_closed |= closes;
            let message = match closes {
                true => format!(
                    "a plugin for {} is not converted, so its credentials are not valid: write the plugin for routes",
                    consumer.label()
                ),
                false => {
                    format!("a plugin for {} is not converted: write the plugin for routes", consumer.label())
                }
            };
            self.plugin_note(plugin, plugin.line, message);
        }
        is_closed
    }

    fn consumer(&mut self, place: usize, consumer: &Consumer) {
        let (mut keys, mut users): (Vec<Value>, Vec<&str>) = Default::default();
        for credential in &consumer.credentials {
            let unusable = |notes: &mut Notes, message: &str| {
                notes.unconverted(credential.line, &consumer.label(), message);
            };
            match credential.kind {
                CredentialKind::Key => {
                    if credential.fields.get("ttl").is_some() {
                        unusable(
                            &mut self.notes,
                            "ttl of a key is not converted, so the key is not valid: remove ttl",
                        );
                        continue;
                    }
                    match credential.text("key") {
                        Some(key) if is_vault(key) => {
                            unusable(
                                &mut self.notes,
                                "a key is in a vault, and is not valid: write the key as ${{ env \"DECK_NAME\" }}",
                            );
                        }
                        Some(key) if key.len() >= KEY_MIN => {
                            let label = format!("{}-key", consumer.name());
                            let name = self.secret(credential.line, &label, None, &[("key", key)]);
                            keys.push(json!({"secretRef": {"name": name}}));
                        }
                        Some(_) => unusable(
                            &mut self.notes,
                            "a key has less than 8 bytes, and is not valid: use a longer key",
                        ),
                        None => {
                            unusable(
                                &mut self.notes,
                                "a key is missing, which Kong generates: write the key",
                            );
                        }
                    }
                }
                CredentialKind::Basic => users.extend(credential.text("username")),
                CredentialKind::Jwt => {}
                CredentialKind::Other(list) => {
                    let message = format!("{list} is not converted: use key-auth, basic-auth or jwt");
                    unusable(&mut self.notes, &message);
                }
            }
        }
        for (list, length) in [("keyauth_credentials", keys.len()), ("basicauth_credentials", users.len())] {
            if length > CREDENTIALS_MAX {
                let message = format!(
                    "{list} has more than {CREDENTIALS_MAX} entries, and the first ones are converted"
                );
                self.notes.unconverted(consumer.line, &consumer.label(), message);
            }
        }
        keys.truncate(CREDENTIALS_MAX);
        users.truncate(CREDENTIALS_MAX);
        if keys.is_empty() && users.is_empty() {
            // No caller can be this consumer.
            return;
        }
        let with_limits = self.group_with_limits(place);
        let groups = consumer.acls.iter().chain(&consumer.groups).chain(&with_limits);
        let mut groups: Vec<&String> = groups.collect();
        groups.sort();
        groups.dedup();
        let mut spec = json!({"username": consumer.name()});
        for (field, value) in
            [("groups", json!(groups)), ("apiKeys", json!(keys)), ("basicUsers", json!(users))]
        {
            if value.as_array().is_some_and(|list| !list.is_empty()) {
                spec[field] = value;
            }
        }
        let name = self.names.unique("Consumer", consumer.name());
        let metadata = self.metadata(&name);
        let object =
            json!({"apiVersion": POLICY_VERSION, "kind": "Consumer", "metadata": metadata, "spec": spec});
        self.objects.push((consumer.line, object));
    }
}

fn is_vault(text: &str) -> bool {
    text.starts_with("{vault://")
}

/// The users and passwords of all consumers with valid credentials, in the format of `htpasswd`.
pub(super) fn basic_secret(file: &File, closed: &BTreeSet<usize>, notes: &mut Notes) -> String {
    let mut lines = String::new();
    for (_, consumer) in file.consumers.iter().enumerate().filter(|(place, _)| !closed.contains(place)) {
        for credential in consumer.credentials.iter().filter(|of| of.kind == CredentialKind::Basic) {
            let (user, password) = (credential.text("username"), credential.text("password"));
            let (Some(user), Some(password)) = (user, password) else {
                notes.unconverted(
                    credential.line,
                    &consumer.label(),
                    "basicauth_credentials needs username and password",
                );
                continue;
            };
            let message = match () {
                () if file.has_hashes => {
                    "a hash of Kong (SHA-1 with a salt) is not converted, so the password is not valid: write the password"
                }
                () if is_vault(password) => {
                    "a password is in a vault, and is not valid: write the password as ${{ env \"DECK_NAME\" }}"
                }
                () if password.len() > 72 => {
                    "a password has more than 72 bytes, and is not valid: use a shorter password"
                }
                () => match hash(user, password) {
                    Some(hash) => {
                        lines.push_str(&format!("{user}:{hash}\n"));
                        continue;
                    }
                    None => "a password cannot be hashed: use another password",
                },
            };
            notes.unconverted(credential.line, &consumer.label(), message);
        }
    }
    // A Secret without users is an error of the policy: all routes are closed then, as they are without users.
    if lines.is_empty() { "#\n".to_owned() } else { lines }
}

/// The hash of a password. The same user and password have the same hash, so that the same file makes the same objects.
fn hash(user: &str, password: &str) -> Option<String> {
    use aws_lc_rs::digest::{SHA256, digest};
    let of_both = digest(&SHA256, format!("{user}\0{password}").as_bytes());
    let mut salt = [0; 16];
    salt.copy_from_slice(&of_both.as_ref()[..16]);
    bcrypt::hash_with_salt(password, COST, salt)
        .ok()
        .map(|parts| parts.format_for_version(bcrypt::Version::TwoB))
}
