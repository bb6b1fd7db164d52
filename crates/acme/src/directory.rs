//! The store of Secrets in a directory: a file with a manifest for each Secret, which only its owner can read.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use serde_json::{Map, Value, json};

use crate::secrets::Values;
use crate::{LABEL, NewSecret, SecretName, Secrets, SecretsError, Stored};

/// The file whose lock the process holds that writes.
const LOCK: &str = "lock";

/// The longest manifest that the store reads, in bytes.
const MANIFEST_MAX: u64 = 1 << 20;

/// Takes the path and the text of each manifest that the store writes.
type Written = dyn Fn(&Path, &str) + Send + Sync;

/// A store in a directory.
pub struct DirectorySecrets {
    dir: PathBuf,
    written: Box<Written>,
}

impl DirectorySecrets {
    /// A store in a directory, which is created for its owner alone. `written` takes each manifest after it was written.
    ///
    /// # Errors
    /// If the directory cannot be created.
    pub fn new(dir: PathBuf, written: impl Fn(&Path, &str) + Send + Sync + 'static) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
        Ok(Self { dir, written: Box::new(written) })
    }

    /// The manifests of the directory, with their paths.
    ///
    /// # Errors
    /// If the directory or a manifest cannot be read.
    pub fn manifests(&self) -> io::Result<Vec<(PathBuf, String)>> {
        let mut manifests = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                manifests.push((path.clone(), read(&path)?));
            }
        }
        Ok(manifests)
    }

    /// Tries to become the process that writes. The process stays that as long as the file is open.
    ///
    /// # Errors
    /// If the file cannot be opened.
    pub fn try_lock(&self) -> io::Result<Option<File>> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(self.dir.join(LOCK))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    fn path(&self, SecretName { namespace, name }: &SecretName) -> PathBuf {
        // No namespace has a dot, so that no two Secrets have the same file.
        self.dir.join(format!("{namespace}.{name}.json"))
    }

    fn fault(&self, name: &SecretName, error: &io::Error) -> SecretsError {
        SecretsError::Store(format!("{}: {error} (--acme-state-dir)", self.path(name).display()))
    }

    fn stored(&self, name: &SecretName) -> Result<Option<Stored>, SecretsError> {
        let text = match read(&self.path(name)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.fault(name, &error)),
        };
        // A file that is no manifest of this store belongs to its user.
        let manifest: Value = serde_json::from_str(&text).unwrap_or_default();
        let is_ours = manifest["metadata"]["labels"][LABEL.0] == LABEL.1;
        let data = manifest["data"].as_object().into_iter().flatten();
        let values = data
            .filter_map(|(key, value)| Some((key.clone(), BASE64_STANDARD.decode(value.as_str()?).ok()?)));
        Ok(Some(Stored { is_ours, values: values.collect() }))
    }
}

impl Secrets for DirectorySecrets {
    async fn read(&self, name: &SecretName) -> Result<Option<Stored>, SecretsError> {
        self.stored(name)
    }

    async fn write(&self, secret: NewSecret) -> Result<(), SecretsError> {
        if self.stored(&secret.name)?.is_some_and(|stored| !stored.is_ours) {
            return Err(SecretsError::Foreign(secret.name));
        }
        let (path, text) = (self.path(&secret.name), manifest(&secret));
        replace(&path, &text).map_err(|error| self.fault(&secret.name, &error))?;
        (self.written)(&path, &text);
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    if file.metadata()?.len() > MANIFEST_MAX {
        return Err(io::Error::other(format!("the file has more than {MANIFEST_MAX} bytes")));
    }
    io::read_to_string(file)
}

/// Writes a file that only its owner can read. A crash leaves the old file or the new file.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn manifest(NewSecret { name, kind, values }: &NewSecret) -> String {
    let encoded = |values: &Values| -> Map<String, Value> {
        values.iter().map(|(key, value)| (key.clone(), BASE64_STANDARD.encode(value).into())).collect()
    };
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": &*name.namespace,
            "name": &*name.name,
            "labels": {LABEL.0: LABEL.1},
        },
        "type": kind,
        "data": encoded(values),
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;
    use std::sync::{Arc, Mutex};

    use super::*;

    fn secret(value: &str) -> NewSecret {
        let name = SecretName { namespace: "shop".into(), name: "tls".into() };
        NewSecret { name, kind: "Opaque", values: [("key".to_owned(), value.into())].into() }
    }

    #[tokio::test]
    async fn files_are_for_their_owner_alone_and_are_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let written = Arc::new(Mutex::new(Vec::new()));
        let of = written.clone();
        let note = move |path: &Path, _: &str| of.lock().expect("no panic").push(path.to_owned());
        let secrets = DirectorySecrets::new(dir.path().join("state"), note).expect("a store");
        assert_eq!(secrets.read(&secret("").name).await, Ok(None));
        for value in ["one", "two"] {
            secrets.write(secret(value)).await.expect("written");
            let stored = secrets.read(&secret("").name).await.expect("a file").expect("a Secret");
            assert!(stored.is_ours && stored.values["key"] == value.as_bytes());
        }
        let path = dir.path().join("state/shop.tls.json");
        let mode = |path: &Path| fs::metadata(path).expect("a file").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("state"))), (0o600, 0o700));
        assert_eq!(*written.lock().expect("no panic"), [path.clone(), path]);
        assert_eq!(secrets.manifests().expect("files").len(), 1);
    }

    #[tokio::test]
    async fn file_of_another_origin_is_not_overwritten() {
        let dir = tempfile::tempdir().expect("a directory");
        let secrets = DirectorySecrets::new(dir.path().to_owned(), |_, _| {}).expect("a store");
        for text in ["garbage", "{}", r#"{"kind": "Secret", "metadata": {"labels": {}}}"#] {
            fs::write(dir.path().join("shop.tls.json"), text).expect("a file");
            let refused = secrets.write(secret("one")).await;
            assert_eq!(refused, Err(SecretsError::Foreign(secret("").name)), "{text}");
            assert_eq!(fs::read_to_string(dir.path().join("shop.tls.json")).expect("a file"), text);
        }
    }

    #[test]
    fn one_process_writes() {
        let dir = tempfile::tempdir().expect("a directory");
        let secrets = DirectorySecrets::new(dir.path().to_owned(), |_, _| {}).expect("a store");
        let held = secrets.try_lock().expect("a file");
        assert!(held.is_some() && secrets.try_lock().expect("a file").is_none());
        drop(held);
        assert!(secrets.try_lock().expect("a file").is_some());
    }
}
