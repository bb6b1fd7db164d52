//! Tests that the last valid objects stay in service after any damage to the directory.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use super::{Followed, NOTICES_ALONE, Published, app, ingress, slice};

#[tokio::test]
async fn invalid_manifest_is_reported_and_the_last_valid_version_is_served() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1]))]).await;
    followed.write("a.yaml", &format!("{}\n  kind: [", app("a", &[2])));
    followed.problems(&["cannot be read"]).await;
    followed.write("a.yaml", &app("a", &[2]).replace("pathType: Exact", "pathType: exact"));
    // The slice in the same file is valid, and takes effect.
    followed.served("/a[2]").await;
    followed
        .problems(&[
            "a.yaml:5: Ingress default/a: spec.rules[0].http.paths[0].pathType: \"exact\" is unknown",
        ])
        .await;
    followed.write("a.yaml", "");
    followed.problems(&["a.yaml: is empty", "pathType: \"exact\" is unknown"]).await;
    followed.write("a.yaml", &app("a", &[3]));
    followed.served("/a[3]").await;
    followed.problems(&[]).await;
    assert!(followed.history().iter().all(|served| served.starts_with("/a[")));
}

#[tokio::test]
async fn security_policy_that_is_unreadable_at_startup_closes_all_routes_until_its_removal() {
    let broken = "kind: SecurityPolicy\nspec: [";
    let mut followed =
        Followed::with_files(&[("a.yaml", app("a", &[1])), ("guard.yaml", broken.to_owned())]).await;
    followed.problems(&["guard.yaml:2: cannot be read", "guard.yaml: may contain a SecurityPolicy"]).await;
    let is_closed = |published: &Published| {
        let mut routes = published.config.as_ref().unwrap().rules();
        routes.all(|route| route.security.as_ref().is_some_and(|security| security.refuses.is_some()))
    };
    assert!(is_closed(&followed.published.borrow()));
    fs::remove_file(followed.path("guard.yaml")).unwrap();
    followed.wait(|published| !is_closed(published)).await;
    followed.write("guard.yaml", broken);
    followed.problems(&["guard.yaml:2: cannot be read"]).await;
    followed.catch_up().await;
    assert!(!is_closed(&followed.published.borrow()), "what works is not taken down");
}

#[tokio::test]
async fn security_policy_that_is_not_utf8_at_startup_closes_all_routes() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
        fs::write(root.join("guard.yaml"), b"# f\xfcr alle\nkind: SecurityPolicy\n").unwrap();
    });
    followed.wait(|published| published.config.is_some()).await;
    followed
        .problems(&[
            "guard.yaml: cannot be read: it is not UTF-8",
            "guard.yaml: may contain a SecurityPolicy",
        ])
        .await;
    let is_open = |published: &Published| {
        let mut routes = published.config.as_ref().unwrap().rules();
        routes.all(|route| route.security.is_none())
    };
    assert!(!is_open(&followed.published.borrow()));
    followed.write("guard.yaml", "# f\u{fc}r niemand\n");
    followed.wait(is_open).await;
    followed.problems(&[]).await;
}

#[tokio::test]
async fn objects_of_a_removed_directory_are_served_until_a_new_directory_appears() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("b.yaml", app("b", &[1]))]).await;
    let (root, away) = (followed.root.clone(), followed.dir.path().join("away"));
    fs::rename(&root, &away).unwrap();
    followed
        .problems(&[
            "manifests: cannot be listed: No such file or directory (os error 2); its previous content stays",
        ])
        .await;
    // The source ignores changes in the directory that was moved away.
    fs::write(away.join("a.yaml"), app("a", &[9])).unwrap();
    fs::remove_file(away.join("b.yaml")).unwrap();
    fs::create_dir(&root).unwrap();
    followed.problems(&[]).await;
    fs::write(root.join("a.yaml"), app("a", &[2])).unwrap();
    followed.served("/a[2] /b[1]").await;
    followed.served("/a[2]").await;
    assert_eq!(followed.history(), ["/a[1] /b[1]", "/a[2] /b[1]", "/a[2]"]);
    fs::write(root.join("a.yaml"), app("a", &[3])).unwrap();
    followed.served("/a[3]").await;
}

#[tokio::test]
async fn objects_of_a_deleted_directory_stay_in_service() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("b.yaml", app("b", &[1]))]).await;
    // The files and the directory are removed before the source reads any event. The events arrive in the order of the
    // removals.
    fs::remove_dir_all(&followed.root).unwrap();
    followed.problems(&["cannot be listed"]).await;
    fs::create_dir(&followed.root).unwrap();
    followed.write("b.yaml", &app("b", &[2]));
    followed.served("/b[2]").await;
    assert_eq!(followed.history(), ["/a[1] /b[1]", "/a[1] /b[2]", "/b[2]"]);
}

#[tokio::test]
async fn missing_directory_is_reported_and_its_manifests_are_served_once_it_exists() {
    let mut followed = Followed::new(NOTICES_ALONE, |_| {});
    followed
        .problems(&[
            "(os error 2); the gateway is not ready until it can be listed. Create it, or fix --manifests",
        ])
        .await;
    assert!(followed.published.borrow().config.is_none());
    let made = followed.dir.path().join("made");
    fs::create_dir(&made).unwrap();
    fs::write(made.join("a.yaml"), app("a", &[1])).unwrap();
    fs::rename(made, &followed.root).unwrap();
    followed.served("/a[1]").await;
    followed.problems(&[]).await;
    assert_eq!(followed.history(), ["/a[1]"]);
}

#[tokio::test]
async fn manifests_in_the_new_target_of_a_directory_symlink_are_served() {
    let release = |root: &Path, name: &str, octet: usize| {
        let folder = root.with_file_name(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.yaml"), app("a", &[octet])).unwrap();
        folder
    };
    let mut followed = Followed::new(NOTICES_ALONE, |root| symlink(release(root, "one", 1), root).unwrap());
    followed.served("/a[1]").await;
    let new = followed.dir.path().join("new");
    symlink(release(&followed.root, "two", 2), &new).unwrap();
    fs::rename(&new, &followed.root).unwrap();
    followed.served("/a[2]").await;
    followed.write("a.yaml", &app("a", &[3]));
    followed.served("/a[3]").await;
    assert_eq!(followed.history(), ["/a[1]", "/a[2]", "/a[3]"]);
}

#[tokio::test]
async fn objects_of_a_file_that_becomes_unreadable_stay_in_service() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("b.yaml", app("b", &[1]))]).await;
    fs::write(followed.path("a.yaml"), b"\xff\xfe").unwrap();
    followed.problems(&["a.yaml: cannot be read: it is not UTF-8; its previous content stays"]).await;
    fs::remove_file(followed.path("a.yaml")).unwrap();
    fs::create_dir(followed.path("a.yaml")).unwrap();
    let made = Command::new("mkfifo").arg(followed.path("pipe.yaml")).status();
    assert!(made.is_ok_and(|status| status.success()));
    followed.catch_up().await;
    followed.wait(|published| !published.served().contains("/a[")).await;
    assert!(followed.history().iter().all(|served| served.contains("/b[1]")));
}

#[tokio::test]
async fn error_for_a_file_never_loaded_does_not_say_that_an_earlier_version_is_in_use() {
    let prepare = |root: &Path| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), b"\xff\xfe").unwrap();
        fs::write(root.join("b.yaml"), app("b", &[1])).unwrap();
    };
    let mut followed = Followed::new(NOTICES_ALONE, prepare);
    followed.problems(&["a.yaml: cannot be read: it is not UTF-8; nothing is served from it"]).await;
    // A check serves nothing, so its messages omit the part about serving.
    let shown = |path: &Path| {
        let loaded = crate::load_once(path, &crate::TranslateOptions::default());
        loaded.problems.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let checked = shown(&followed.root);
    assert!(checked.len() == 1 && checked[0].ends_with("it is not UTF-8"), "{checked:#?}");
    let checked = shown(&followed.path("nothing"));
    assert!(checked.len() == 1 && checked[0].ends_with("(os error 2)"), "{checked:#?}");
}

#[tokio::test]
async fn objects_of_a_folder_that_cannot_be_listed_stay_in_service() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::write(root.join("sub/a.yaml"), app("a", &[1])).unwrap();
    });
    followed.served("/a[1]").await;
    fs::set_permissions(followed.path("sub"), fs::Permissions::from_mode(0o000)).unwrap();
    let is_root = fs::read_dir(followed.path("sub")).is_ok();
    fs::create_dir(followed.path("other")).unwrap();
    fs::write(followed.path("other/b.yaml"), app("b", &[1])).unwrap();
    followed.served("/a[1] /b[1]").await;
    if !is_root {
        followed.problems(&["sub: cannot be read: Permission denied"]).await;
    }
    fs::set_permissions(followed.path("sub"), fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn inotify_queue_overflow_loses_no_change() {
    let files =
        [("a.yaml", ingress("a", "/a")), ("slice.yaml", slice("a", &[1])), ("b.yaml", app("b", &[1]))];
    let mut followed = Followed::with_files(&files).await;
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    // The source does not run during this loop, because both run on the same thread.
    for nth in 0..limit / 2 {
        followed.write(["x.txt", "y.txt"][nth % 2], "");
    }
    followed.write("slice.yaml", &slice("a", &[2]));
    fs::remove_file(followed.path("b.yaml")).unwrap();
    followed.served("/a[2]").await;
}
