//! Tests that the objects of a file are served without a gap while the file is replaced in any way.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;

use super::{Followed, NOTICES_ALONE, app, ingress, slice};

/// Whether both apps were served at all times, each with an endpoint.
fn apps_were_always_served(followed: &Followed) -> bool {
    let is_served =
        |served: &str, route: &str| served.contains(route) && !served.contains(&format!("{route}]"));
    followed.history().iter().all(|served| is_served(served, "/a[") && is_served(served, "/b["))
}

async fn two_apps() -> Followed {
    Followed::with_files(&[("a.yaml", app("a", &[1])), ("b.yaml", app("b", &[1]))]).await
}

#[tokio::test]
async fn truncated_manifest_is_read_only_after_its_writer_closes_the_file() {
    let mut followed = two_apps().await;
    let text = app("a", &[2, 3]);
    let (first, rest) = text.split_at(text.find("EndpointSlice").unwrap() + 100);
    let mut file = OpenOptions::new().write(true).truncate(true).open(followed.path("a.yaml")).unwrap();
    followed.catch_up().await;
    file.write_all(first.as_bytes()).unwrap();
    followed.catch_up().await;
    // The objects stay in service even if another event makes the source walk the directory.
    fs::create_dir(followed.path("folder")).unwrap();
    fs::write(followed.path("folder/c.yaml"), app("c", &[1])).unwrap();
    followed.wait(|published| published.served().contains("/c[1]")).await;
    assert!(followed.history().iter().all(|served| served.contains("/a[1]")));
    file.write_all(rest.as_bytes()).unwrap();
    drop(file);
    followed.wait(|published| published.served().contains("/a[2,3]")).await;
    assert!(apps_were_always_served(&followed), "{:#?}", followed.history());
}

#[tokio::test]
async fn files_replaced_by_editors_and_git_stay_in_service() {
    let mut followed = two_apps().await;
    let path = followed.path("a.yaml");
    let backup = followed.path("a.yaml~");
    type Writer<'a> = &'a dyn Fn(&str);
    let writers: [(&str, Writer<'_>); 4] = [
        ("write a new file and rename it", &|text| {
            let new = path.with_file_name(".a.yaml.new");
            fs::write(&new, text).unwrap();
            fs::rename(new, &path).unwrap();
        }),
        ("rename the old file and write a new one", &|text| {
            fs::rename(&path, &backup).unwrap();
            fs::write(&path, text).unwrap();
            fs::remove_file(&backup).unwrap();
        }),
        ("unlink the old file and write a new one", &|text| {
            fs::remove_file(&path).unwrap();
            fs::write(&path, text).unwrap();
        }),
        ("write in place", &|text| fs::write(&path, text).unwrap()),
    ];
    for (nth, (what, write)) in writers.iter().enumerate() {
        write(&app("a", &[10 + nth]));
        let expected = format!("/a[{}]", 10 + nth);
        followed.wait(|published| published.served().contains(&expected)).await;
        println!("{what}");
    }
    assert!(apps_were_always_served(&followed));
}

#[tokio::test]
async fn objects_of_a_constantly_replaced_file_stay_in_service() {
    let mut followed = two_apps().await;
    let path = followed.path("a.yaml");
    let writer = thread::spawn(move || {
        for nth in 0..300 {
            fs::remove_file(&path).unwrap();
            fs::write(&path, app("a", &[nth % 250])).unwrap();
        }
        fs::write(&path, app("a", &[255])).unwrap();
    });
    followed.wait(|published| published.served().contains("/a[255]")).await;
    writer.join().unwrap();
    assert!(apps_were_always_served(&followed));
}

#[tokio::test]
async fn partly_written_manifest_is_never_served() {
    let mut followed = two_apps().await;
    let path = followed.path("a.yaml");
    let writer = thread::spawn(move || {
        for nth in (0..400).rev() {
            let text = app("a", &[nth % 250, 251, 252]);
            let mut file = OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
            for part in text.as_bytes().chunks(64) {
                file.write_all(part).unwrap();
            }
        }
    });
    followed.served("/a[0,251,252] /b[1]").await;
    writer.join().unwrap();
    let history = followed.history();
    let is_whole = |served: &String| served.contains(",251,252] /b[1]");
    assert!(history.iter().skip(1).all(is_whole), "{history:#?}");
}

#[tokio::test]
async fn last_of_a_thousand_rapid_changes_is_served() {
    let files = [("a.yaml", ingress("a", "/a")), ("slice.yaml", slice("a", &[0]))];
    let mut followed = Followed::with_files(&files).await;
    let path = followed.path("slice.yaml");
    let writer = thread::spawn(move || {
        for nth in 0..1000 {
            fs::write(&path, slice("a", &[nth % 250, 251])).unwrap();
        }
        fs::write(&path, slice("a", &[252, 253])).unwrap();
    });
    followed.served("/a[252,253]").await;
    writer.join().unwrap();
    assert_eq!(followed.published.borrow().configs, 1);
    // No published state lacked the route, and no state mixed two changes.
    let is_whole =
        |served: &String| served.ends_with(",251]") || served == "/a[0]" || served == "/a[252,253]";
    assert!(followed.history().iter().all(is_whole), "{:#?}", followed.history());
}

#[tokio::test]
async fn objects_of_a_renamed_file_stay_in_service() {
    let mut followed = two_apps().await;
    let before = followed.history().len();
    fs::rename(followed.path("a.yaml"), followed.path("z.yaml")).unwrap();
    fs::rename(followed.path("b.yaml"), followed.path("0.yaml")).unwrap();
    followed.catch_up().await;
    assert_eq!(followed.history().len(), before + 1, "{:#?}", followed.history());
    followed.problems(&["Service default/mark: has no EndpointSlice"]).await;
    // The source follows the files under their new names.
    followed.write("z.yaml", &app("a", &[7]));
    followed.wait(|published| published.served().contains("/a[7]")).await;
}

/// Fills a mounted ConfigMap as the kubelet does: creates a new folder, and points the link `..data` to the folder.
fn mount(root: &Path, version: &str, files: &[(&str, String)]) {
    fs::create_dir(root.join(version)).unwrap();
    for (name, text) in files {
        fs::write(root.join(version).join(name), text).unwrap();
    }
    let old = fs::read_link(root.join("..data"));
    symlink(version, root.join("..data_tmp")).unwrap();
    fs::rename(root.join("..data_tmp"), root.join("..data")).unwrap();
    for (name, _) in files {
        if fs::symlink_metadata(root.join(name)).is_err() {
            symlink(Path::new("..data").join(name), root.join(name)).unwrap();
        }
    }
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() && !path.exists() {
            fs::remove_file(path).unwrap();
        }
    }
    if let Ok(old) = old {
        fs::remove_dir_all(root.join(old)).unwrap();
    }
}

#[tokio::test]
async fn update_of_a_mounted_config_map_takes_effect_atomically() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir(root).unwrap();
        mount(root, "..1", &[("a.yaml", app("a", &[1])), ("b.yaml", app("b", &[1]))]);
    });
    followed.served("/a[1] /b[1]").await;
    mount(&followed.root, "..2", &[("a.yaml", app("a", &[2])), ("b.yaml", app("b", &[2]))]);
    followed.served("/a[2] /b[2]").await;
    // An app that moves from one key to another stays in service.
    mount(&followed.root, "..3", &[("a.yaml", app("b", &[2])), ("b.yaml", app("a", &[2]))]);
    mount(
        &followed.root,
        "..4",
        &[("c.yaml", format!("{}{}{}", app("a", &[2]), app("b", &[2]), app("c", &[1])))],
    );
    followed.served("/a[2] /b[2] /c[1]").await;
    assert!(apps_were_always_served(&followed), "{:#?}", followed.history());
    mount(&followed.root, "..5", &[("c.yaml", app("c", &[3]))]);
    followed.served("/c[3]").await;
}
