//! Files and folders that cannot be opened. File modes do not restrict root, so the tests use files that root cannot
//! read either.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use super::{Followed, NOTICES_ALONE, Published, app};

/// A SecurityPolicy that guards the route of `app("a", ..)`.
const GUARD: &str = "apiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {name: p}\n\
    spec: {targetRefs: [{group: networking.k8s.io, kind: Ingress, name: a}], ipAccess: {allow: [10.0.0.0/8]}}\n";

fn closed(published: &Published) -> usize {
    let routes =
        published.config.as_ref().map(|config| config.rules().collect::<Vec<_>>()).unwrap_or_default();
    let is_closed = |security: &&sluicegate_model::policy::Security| security.refuses.is_some();
    routes.iter().filter_map(|route| route.security.as_deref()).filter(is_closed).count()
}

fn is_guarded(published: &Published) -> bool {
    let routes =
        published.config.as_ref().map(|config| config.rules().collect::<Vec<_>>()).unwrap_or_default();
    let is_guard = |security: &sluicegate_model::policy::Security| {
        security.refuses.is_none() && !security.ip_access.allow.is_empty()
    };
    routes.iter().any(|route| route.security.as_deref().is_some_and(is_guard))
}

/// Makes a sparse file of 64 MiB and 1 byte, which exceeds the size limit.
fn make_too_large(path: &Path) {
    File::create(path).unwrap().set_len(64 * 1024 * 1024 + 1).unwrap();
}

fn make_pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().is_ok_and(|status| status.success()));
}

fn make_circle(path: &Path) {
    symlink(path.file_name().unwrap(), path).unwrap();
}

#[tokio::test]
async fn file_that_is_unreadable_at_startup_closes_all_routes_until_it_is_readable() {
    for make in [make_too_large, make_pipe, make_circle] {
        let mut followed = Followed::new(NOTICES_ALONE, |root| {
            fs::create_dir(root).unwrap();
            fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
            fs::write(
                root.join("b.yaml"),
                app("b", &[1]).replace("metadata: {name: b", "metadata: {namespace: other, name: b"),
            )
            .unwrap();
            make(&root.join("guard.yaml"));
        });
        followed.wait(|published| closed(published) == 2).await;
        followed
            .problems(&[
                "guard.yaml: cannot be read",
                "guard.yaml: may contain a SecurityPolicy; all routes respond with 503",
            ])
            .await;
        fs::write(followed.path("new"), GUARD).unwrap();
        fs::rename(followed.path("new"), followed.path("guard.yaml")).unwrap();
        followed.wait(|published| closed(published) == 0 && is_guarded(published)).await;
        followed.problems(&[]).await;
    }
}

#[tokio::test]
async fn removal_of_an_unreadable_file_reopens_the_routes() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
        make_pipe(&root.join("guard.yaml"));
    });
    followed.wait(|published| closed(published) == 1).await;
    fs::remove_file(followed.path("guard.yaml")).unwrap();
    followed.wait(|published| closed(published) == 0).await;
    followed.problems(&[]).await;
}

#[tokio::test]
async fn rescan_finds_a_file_that_becomes_readable_without_an_event() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
        make_too_large(&root.with_file_name("elsewhere"));
        symlink(root.with_file_name("elsewhere"), root.join("guard.yaml")).unwrap();
    });
    followed.wait(|published| closed(published) == 1).await;
    fs::write(followed.dir.path().join("elsewhere"), GUARD).unwrap();
    followed.wait(|published| closed(published) == 0 && is_guarded(published)).await;
    followed.problems(&[]).await;
}

#[tokio::test]
async fn folder_that_cannot_be_listed_at_startup_closes_all_routes_until_it_is_readable() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
        make_circle(&root.join("guards"));
    });
    followed.wait(|published| closed(published) == 1).await;
    followed.problems(&["guards: cannot be read", "guards: may contain a SecurityPolicy; all routes"]).await;
    let new = followed.dir.path().join("new");
    fs::create_dir(&new).unwrap();
    fs::write(new.join("broken.yaml"), GUARD.replace("allow:", "allow: [")).unwrap();
    fs::remove_file(followed.path("guards")).unwrap();
    fs::rename(&new, followed.path("guards")).unwrap();
    followed.problems(&["broken.yaml:4: cannot be read", "broken.yaml: may contain a SecurityPolicy"]).await;
    assert_eq!(closed(&followed.published.borrow()), 1, "what it holds cannot be read either");
    fs::write(followed.path("guards/broken.yaml"), GUARD).unwrap();
    followed.wait(is_guarded).await;
    followed.problems(&[]).await;
}

#[tokio::test]
async fn unreadable_file_after_startup_leaves_routes_and_policies_in_service() {
    let mut followed =
        Followed::with_files(&[("a.yaml", app("a", &[1])), ("guard.yaml", GUARD.to_owned())]).await;
    followed.wait(is_guarded).await;
    make_too_large(&followed.path("new.yaml"));
    followed
        .problems(&["new.yaml: cannot be read: it is larger than 64 MiB; nothing is served from it"])
        .await;
    make_too_large(&followed.path("large"));
    fs::rename(followed.path("large"), followed.path("guard.yaml")).unwrap();
    followed
        .problems(&[
            "guard.yaml: cannot be read: it is larger than 64 MiB; its previous content stays",
            "new.yaml",
        ])
        .await;
    followed.catch_up().await;
    assert!(is_guarded(&followed.published.borrow()) && closed(&followed.published.borrow()) == 0);
}

#[tokio::test]
async fn security_policy_with_excessive_yaml_aliases_at_startup_closes_routes() {
    let mut bomb = GUARD.to_owned();
    bomb.push_str("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
    for level in 1..7 {
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", format!("*a{},", level - 1).repeat(9)));
    }
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("guard.yaml", bomb)]).await;
    followed.wait(|published| closed(published) == 1).await;
    followed
        .problems(&[
            "guard.yaml:8: cannot be read: its aliases expand to more than 4096 nodes",
            "guard.yaml: may contain a SecurityPolicy",
        ])
        .await;
}

#[test]
fn check_command_reports_unreadable_files_and_folders_nested_too_deep() {
    let dir = tempfile::tempdir().unwrap();
    make_pipe(&dir.path().join("guard.yaml"));
    let mut deep = dir.path().to_owned();
    for _ in 0..40 {
        deep.push("x");
    }
    fs::create_dir_all(&deep).unwrap();
    fs::write(dir.path().join("a.yaml"), app("a", &[1])).unwrap();
    let loaded = crate::load_once(dir.path(), &crate::TranslateOptions::default());
    let problems: Vec<String> = loaded.problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 4, "{problems:#?}");
    assert!(
        problems
            .iter()
            .any(|problem| problem.ends_with("guard.yaml: cannot be read: it is not a regular file"))
    );
    assert!(problems.iter().any(|problem| problem.ends_with("folders are nested deeper than 32 levels")));
    assert!(loaded.problems.iter().all(|problem| problem.severity == crate::Severity::Error));
}
