//! The content of a directory of manifests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// A manifest larger than this is not read.
const FILE_SIZE_MAX: u64 = 64 * 1024 * 1024;

/// The endings of the names of manifests.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// The greatest depth of nested folders, and of followed symlinks to folders.
const DEPTH_MAX: usize = 32;

/// The identity of a file or directory: device and inode.
pub(super) type FileId = (u64, u64);

/// Changes whenever the content of a file changes, except for two writes within one tick of the file system's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) id: FileId,
    len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self {
            id: file_id(metadata),
            len: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

fn file_id(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// The content of a directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The manifests, symlinks followed.
    pub(super) files: BTreeMap<PathBuf, Stamp>,
    /// The directory itself and the folders in it, each with the result of `watch`.
    pub(super) folders: Vec<(PathBuf, Option<i32>)>,
    /// Folders and files that cannot be examined.
    pub(super) faults: Vec<(PathBuf, io::Error)>,
    /// The identity of the directory.
    pub(super) root: FileId,
}

/// Lists the manifests in `root` and in the folders below it. Calls `watch` with each folder before it lists the
/// folder, so that no change in the meantime is missed. Fails if `root` cannot be listed. Lists a `root` that is a file
/// alone.
pub(super) fn walk(root: &Path, watch: &dyn Fn(&Path) -> Option<i32>) -> io::Result<Listing> {
    let metadata = fs::metadata(root)?;
    let mut listing = Listing { root: file_id(&metadata), ..Listing::default() };
    if metadata.is_dir() {
        walk_folder(root, &mut vec![listing.root], watch, &mut listing)?;
    } else {
        listing.files.insert(root.to_owned(), Stamp::of(&metadata));
    }
    Ok(listing)
}

/// `above` are the folders on the path to this folder, to detect symlinks that lead back.
fn walk_folder(
    folder: &Path,
    above: &mut Vec<FileId>,
    watch: &dyn Fn(&Path) -> Option<i32>,
    listing: &mut Listing,
) -> io::Result<()> {
    listing.folders.push((folder.to_owned(), watch(folder)));
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let path = entry.path();
        if is_hidden(&name) {
            continue;
        }
        let is_folder_or_link = entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_symlink());
        if !is_manifest(&name) && !is_folder_or_link {
            continue;
        }
        let metadata = match fs::metadata(&path) {
            Ok(metadata) => metadata,
            // The file disappeared, or it is a symlink to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                listing.faults.push((path, error));
                continue;
            }
        };
        if metadata.is_file() {
            if is_manifest(&name) {
                listing.files.insert(path, Stamp::of(&metadata));
            }
        } else if !metadata.is_dir() {
            if is_manifest(&name) {
                listing.faults.push((path, not_regular()));
            }
        } else if above.contains(&file_id(&metadata)) {
            // A symlink that leads back.
        } else if above.len() >= DEPTH_MAX {
            let fault = format!("folders are nested deeper than {DEPTH_MAX} levels");
            listing.faults.push((path, io::Error::new(io::ErrorKind::InvalidInput, fault)));
        } else {
            above.push(file_id(&metadata));
            if let Err(error) = walk_folder(&path, above, watch, listing)
                && error.kind() != io::ErrorKind::NotFound
            {
                listing.faults.push((path, error));
            }
            above.pop();
        }
    }
    Ok(())
}

/// The identity of the current `root`.
pub(super) fn identify(root: &Path) -> io::Result<FileId> {
    fs::metadata(root).map(|metadata| file_id(&metadata))
}

/// Whether the gateway reads a file of this name: `*.yaml`, `*.yml`, `*.json`, in capitals too, and neither hidden nor
/// a temporary file of an editor.
pub(super) fn is_manifest(name: &OsStr) -> bool {
    let is_read = |extension: &OsStr| EXTENSIONS.iter().any(|read| extension.eq_ignore_ascii_case(read));
    !is_hidden(name) && Path::new(name).extension().is_some_and(is_read)
}

/// Whether a file or folder of this name is ignored, such as `..data` of a mounted ConfigMap, and `.git`.
pub(super) fn is_hidden(name: &OsStr) -> bool {
    name.as_bytes().starts_with(b".")
}

fn not_regular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

/// The content of a file, and its stamp before the reading.
pub(super) fn read(path: &Path) -> io::Result<(Vec<u8>, Stamp)> {
    // Opening a pipe would block.
    if !fs::metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let mut file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.len() > FILE_SIZE_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 64 MiB"));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0) + 1);
    (&mut file).take(FILE_SIZE_MAX).read_to_end(&mut bytes)?;
    Ok((bytes, Stamp::of(&metadata)))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::fs::symlink;
    use std::{fs, path::Path};

    use super::{is_manifest, walk};

    #[test]
    fn scan_ignores_hidden_files_and_temporary_files_of_editors() {
        for (name, expected) in [
            ("a.yaml", true),
            ("a.yml", true),
            ("a.json", true),
            ("A.YAML", true),
            ("A.YML", true),
            ("A.JSON", true),
            (".a.yaml", false),
            (".a.yaml.swp", false),
            ("a.yaml~", false),
            ("#a.yaml#", false),
            ("a.yaml.bak", false),
            ("yaml", false),
            ("4913", false),
        ] {
            assert_eq!(is_manifest(OsStr::new(name)), expected, "{name}");
        }
    }

    #[test]
    fn scan_follows_symlinks_and_skips_cycles_and_hidden_folders() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        let elsewhere = dir.path().join("elsewhere");
        for folder in [&root.join("sub"), &root.join(".git"), &root.join("..2024"), &elsewhere] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("a.yaml"), "").unwrap();
        }
        fs::write(root.join("notes.txt"), "").unwrap();
        symlink("..2024/a.yaml", root.join("link.yaml")).unwrap();
        symlink("nothing", root.join("dangling.yaml")).unwrap();
        symlink("..", root.join("sub/circle")).unwrap();
        symlink(&elsewhere, root.join("other")).unwrap();
        let listing = walk(&root, &|_| None).unwrap();
        let files: Vec<&Path> = listing.files.keys().map(|path| path.strip_prefix(&root).unwrap()).collect();
        assert_eq!(files, ["link.yaml", "other/a.yaml", "sub/a.yaml"].map(Path::new));
        assert!(walk(&dir.path().join("nothing"), &|_| None).is_err());
    }
}
