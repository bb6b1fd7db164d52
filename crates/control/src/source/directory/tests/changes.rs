//! Tests that the source publishes each change, and publishes nothing without a change.

use std::fs;
use std::os::unix::fs::symlink;

use super::{Followed, NOTICES_ALONE, WALKS_ALONE, app, dns, ingress, slice};

#[tokio::test]
async fn first_published_change_is_the_complete_configuration() {
    let files: Vec<(String, String)> =
        (0..200).map(|nth| (format!("{nth:03}.yaml"), app(&format!("app{nth}"), &[1]))).collect();
    let mut followed = Followed::new(NOTICES_ALONE, |root| {
        fs::create_dir_all(root.join("sub/folder")).unwrap();
        for (name, text) in &files {
            fs::write(root.join("sub/folder").join(name), text).unwrap();
        }
    });
    followed.wait(|published| published.config.is_some()).await;
    let first = followed.history()[0].clone();
    assert_eq!(first.split(' ').filter(|route| route.ends_with("[1]")).count(), 200);
    followed.problems(&[]).await;
}

#[tokio::test]
async fn created_changed_renamed_and_removed_manifests_take_effect() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1]))]).await;
    followed.write("b.yml", &app("b", &[2]));
    followed.served("/a[1] /b[2]").await;
    followed.write("b.yml", &app("b", &[2, 3]));
    followed.served("/a[1] /b[2,3]").await;
    followed.write("a.yaml", &format!("{}{}", ingress("a", "/new"), slice("a", &[1])));
    followed.served("/b[2,3] /new[1]").await;
    fs::remove_file(followed.path("a.yaml")).unwrap();
    followed.served("/b[2,3]").await;
    fs::rename(followed.path("b.yml"), followed.dir.path().join("b.yml")).unwrap();
    followed.served("").await;
    fs::rename(followed.dir.path().join("b.yml"), followed.path("b.yml")).unwrap();
    followed.served("/b[2,3]").await;
    fs::hard_link(followed.path("b.yml"), followed.dir.path().join("kept")).unwrap();
    fs::remove_file(followed.path("b.yml")).unwrap();
    followed.served("").await;
    fs::hard_link(followed.dir.path().join("kept"), followed.path("b.yml")).unwrap();
    followed.served("/b[2,3]").await;
}

#[tokio::test]
async fn endpoint_changes_are_published_without_a_new_configuration() {
    let files =
        [("a.yaml", ingress("a", "/a")), ("a-slice.yaml", slice("a", &[1])), ("b.yaml", app("b", &[9]))];
    let mut followed = Followed::with_files(&files).await;
    let before = followed.history().len();
    followed.write("a-slice.yaml", &slice("a", &[1, 2]));
    followed.served("/a[1,2] /b[9]").await;
    // These files change no route: the same slice, the slice with its endpoints in another order and a comment, and a
    // slice that no route uses.
    followed.write("a-slice.yaml", &slice("a", &[1, 2]));
    followed.write("a-slice.yaml", &format!("# again\n{}", slice("a", &[2, 1])));
    followed.write("c-slice.yaml", &slice("c", &[7]));
    followed.write("a-slice.yaml", &slice("a", &[]));
    followed.served("/a[] /b[9]").await;
    assert_eq!(followed.published.borrow().configs, 1);
    assert_eq!(followed.history()[before..], ["/a[1,2] /b[9]", "/a[] /b[9]"]);
    // New settings of a Service publish a new configuration, not only new endpoints.
    let limited = ingress("a", "/a").replace("{name: a}\nspec: {ports", "{name: a, annotations: {sluicegate.dev/load-balance: ResponseTime, sluicegate.dev/max-requests: \"5\"}}\nspec: {ports");
    followed.write("a.yaml", &limited);
    followed.wait(|published| published.configs == 2).await;
}

#[tokio::test]
async fn layer_4_endpoint_changes_are_published_without_a_new_configuration() {
    let slice = |octets: &[usize]| {
        slice("a", octets)
            .replace("[{port: 80}]", "[{name: t, port: 53}, {name: u, port: 53, protocol: UDP}]")
    };
    let passing = ingress("b", "/").replace(
        "metadata: {name: b}\nspec: {rules: [{",
        "metadata: {name: b, annotations: {sluicegate.dev/ssl-passthrough: \"true\"}}\nspec: {rules: [{host: b.test, ",
    );
    let files = [
        ("dns.yaml", dns()),
        ("a-slice.yaml", slice(&[1])),
        ("b.yaml", passing),
        ("b-slice.yaml", super::slice("b", &[7])),
    ];
    let mut followed = Followed::with_files(&files).await;
    followed.served("/[7] TCP:53[1] UDP:53[1] b.test[7]").await;
    followed.write("a-slice.yaml", &slice(&[1, 2]));
    followed.served("/[7] TCP:53[1,2] UDP:53[1,2] b.test[7]").await;
    followed.write("b-slice.yaml", &super::slice("b", &[8]));
    followed.served("/[8] TCP:53[1,2] UDP:53[1,2] b.test[8]").await;
    // Each protocol uses its own port of the slice.
    followed.write("a-slice.yaml", &slice(&[3]).replace(", {name: u, port: 53, protocol: UDP}", ""));
    followed.served("/[8] TCP:53[3] UDP:53[] b.test[8]").await;
    followed
        .problems(&["Service default/a: has no EndpointSlice with a UDP port named \"u\", the name of port 53; its slices have [\"t\"]; datagrams are dropped"])
        .await;
    assert_eq!(followed.published.borrow().configs, 1);
    // A changed listener publishes a new configuration, not only new endpoints.
    followed.write("dns.yaml", &dns().replace("protocol: TCP, port: 53", "protocol: TCP, port: 54"));
    followed.served("/[8] TCP:54[3] UDP:53[] b.test[8]").await;
    assert_eq!(followed.published.borrow().configs, 2);
}

#[tokio::test]
async fn invalid_layer_4_listener_leaves_the_last_valid_version_in_service() {
    let files = [("dns.yaml", dns()), ("slice.yaml", slice("a", &[]))];
    let mut followed = Followed::with_files(&files).await;
    followed.served("TCP:53[] UDP:53[]").await;
    followed.write("dns.yaml", &dns().replace("protocol: TCP, port: 53", "protocol: TCP, port: 0"));
    followed.write("mark.yaml", &ingress("mark", "/mark"));
    followed.served("/mark[] TCP:53[] UDP:53[]").await;
    assert!(followed.problems.borrow().iter().any(|problem| {
        problem
            .to_string()
            .contains("spec.listeners[0].port: 0 is not between 1 and 65535 (the last valid version")
    }));
}

#[tokio::test]
async fn upstream_of_a_named_service_port_keeps_its_key_if_the_number_changes() {
    let app = |number: u16, named: &str| {
        ingress("a", "/a")
            .replace("port: {number: 80}", &format!("port: {{{named}}}"))
            .replace("[{port: 80}]", &format!("[{{name: http, port: {number}}}]"))
    };
    let slice = |octets: &[usize]| slice("a", octets).replace("[{port: 80}]", "[{name: http, port: 80}]");
    let files = [("a.yaml", app(80, "number: 80")), ("slice.yaml", slice(&[1]))];
    let mut followed = Followed::with_files(&files).await;
    let keys =
        |followed: &Followed| followed.published.borrow().endpoints.keys().cloned().collect::<Vec<_>>();
    let before = keys(&followed);
    followed.write("slice.yaml", &slice(&[1, 2]));
    followed.served("/a[1,2]").await;
    followed.write("a.yaml", &app(80, "name: http").replace("/a", "/b"));
    followed.served("/b[1,2]").await;
    followed.write("a.yaml", &app(8080, "name: http").replace("/a", "/c"));
    followed.served("/c[1,2]").await;
    assert_eq!(keys(&followed), before);
}

#[tokio::test]
async fn created_renamed_linked_and_removed_folders_take_effect() {
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1]))]).await;
    fs::create_dir_all(followed.path("sub/deep")).unwrap();
    fs::write(followed.path("sub/deep/b.yaml"), app("b", &[2])).unwrap();
    followed.served("/a[1] /b[2]").await;
    fs::write(followed.path("sub/deep/b.yaml"), app("b", &[3])).unwrap();
    followed.served("/a[1] /b[3]").await;
    fs::rename(followed.path("sub"), followed.path("renamed")).unwrap();
    fs::write(followed.path("renamed/deep/b.yaml"), app("b", &[4])).unwrap();
    followed.served("/a[1] /b[4]").await;
    assert!(followed.history().iter().all(|served| served.contains("/a[1]")));
    fs::rename(followed.path("renamed"), followed.dir.path().join("away")).unwrap();
    followed.served("/a[1]").await;
    symlink(followed.dir.path().join("away"), followed.path("link")).unwrap();
    followed.served("/a[1] /b[4]").await;
    fs::write(followed.dir.path().join("away/deep/b.yaml"), app("b", &[5])).unwrap();
    followed.served("/a[1] /b[5]").await;
    fs::remove_file(followed.path("link")).unwrap();
    followed.served("/a[1]").await;
    fs::create_dir(followed.path(".git")).unwrap();
    fs::write(followed.path(".git/c.yaml"), app("c", &[1])).unwrap();
    fs::write(followed.path(".c.yaml"), app("c", &[1])).unwrap();
    fs::write(followed.path("c.yaml~"), app("c", &[1])).unwrap();
    followed.catch_up().await;
    assert!(!followed.history().iter().any(|served| served.contains("/c")));
}

#[tokio::test]
async fn rescan_finds_changes_without_inotify_events() {
    let mut followed = Followed::new(WALKS_ALONE, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.join("a.yaml"), app("a", &[1])).unwrap();
    });
    followed.served("/a[1]").await;
    followed.write("a.yaml", &app("a", &[1, 2]));
    followed.served("/a[1,2]").await;
    followed.write("b.yaml", &app("b", &[3]));
    followed.served("/a[1,2] /b[3]").await;
    fs::remove_file(followed.path("a.yaml")).unwrap();
    followed.served("/b[3]").await;
}

#[tokio::test]
async fn rescan_finds_a_change_of_a_symlink_target() {
    let mut change_detection = NOTICES_ALONE;
    change_detection.walk_interval = std::time::Duration::from_millis(50);
    let mut followed = Followed::new(change_detection, |root| {
        fs::create_dir(root).unwrap();
        fs::write(root.with_file_name("target.yaml"), app("a", &[1])).unwrap();
        symlink("../target.yaml", root.join("a.yaml")).unwrap();
    });
    followed.served("/a[1]").await;
    fs::write(followed.dir.path().join("target.yaml"), app("a", &[2])).unwrap();
    followed.served("/a[2]").await;
    fs::remove_file(followed.dir.path().join("target.yaml")).unwrap();
    followed.served("").await;
}

#[tokio::test]
async fn changes_of_a_single_manifest_file_take_effect() {
    let mut followed = Followed::new(NOTICES_ALONE, |root| fs::write(root, app("a", &[1])).unwrap());
    followed.served("/a[1]").await;
    fs::write(&followed.root, app("a", &[2])).unwrap();
    followed.served("/a[2]").await;
    fs::write(followed.dir.path().join("new"), app("a", &[3])).unwrap();
    fs::rename(followed.dir.path().join("new"), &followed.root).unwrap();
    followed.served("/a[3]").await;
}

#[tokio::test]
async fn external_name_service_keeps_old_addresses_if_resolution_fails() {
    let external = ingress("a", "/a")
        .replace("spec: {ports: [{port: 80}]}", "spec: {type: ExternalName, externalName: localhost}");
    let mut followed = Followed::with_files(&[("a.yaml", external.clone())]).await;
    let key = followed.published.borrow().endpoints.keys().next().cloned().unwrap();
    let loopback = |published: &super::Published| {
        let endpoints = &published.endpoints[&key];
        !endpoints.is_empty()
            && endpoints.iter().all(|one| one.address.ip().is_loopback() && one.address.port() == 80)
    };
    assert!(loopback(&followed.published.borrow()), "the first configuration waits for it");
    // Until the new name is resolved, the old addresses stay in service.
    followed.write("a.yaml", &external.replace("localhost", "does-not-exist.invalid"));
    followed
        .problems(&["Service default/a: spec.externalName: cannot resolve \"does-not-exist.invalid\""])
        .await;
    assert!(followed.problems.borrow()[0].message.ends_with("the last addresses stay in service"));
    assert!(loopback(&followed.published.borrow()));
    followed.write("a.yaml", &app("a", &[1]));
    followed.served("/a[1]").await;
    followed.problems(&[]).await;
}

#[tokio::test]
async fn host_of_an_x_backend_is_resolved_and_a_failure_names_its_field() {
    let site = "
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec: {gatewayClassName: sluicegate, listeners: [{name: http, protocol: HTTP, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{group: gateway.networking.x-k8s.io, kind: XBackend, name: out}]}]
---
apiVersion: gateway.networking.x-k8s.io/v1alpha1
kind: XBackend
metadata: {name: out}
spec: {type: ExternalHostname, externalHostname: {hostname: localhost}, port: {number: 8443}}
";
    let mut followed = Followed::with_files(&[("a.yaml", site.to_owned())]).await;
    let key = followed.published.borrow().endpoints.keys().next().cloned().unwrap();
    assert_eq!(key.to_string(), "default/XBackend/out:8443");
    {
        let published = followed.published.borrow();
        let endpoints = &published.endpoints[&key];
        assert!(!endpoints.is_empty(), "the first configuration waits for it");
        let is_local = |endpoint: &sluicegate_model::Endpoint| {
            endpoint.address.ip().is_loopback() && endpoint.address.port() == 8443
        };
        assert!(endpoints.iter().all(is_local), "{endpoints:?}");
    }
    followed.write("a.yaml", &site.replace("localhost", "does-not-exist.invalid"));
    followed
        .problems(&[
            "XBackend default/out: spec.externalHostname.hostname: cannot resolve \"does-not-exist.invalid.\"",
        ])
        .await;
}

#[tokio::test]
async fn error_for_an_unresolved_external_name_states_that_requests_receive_503() {
    let external = ingress("a", "/a").replace(
        "spec: {ports: [{port: 80}]}",
        "spec: {type: ExternalName, externalName: does-not-exist.invalid}",
    );
    let mut followed = Followed::with_files(&[("a.yaml", external)]).await;
    followed.problems(&["cannot resolve"]).await;
    assert!(followed.problems.borrow()[0].message.ends_with("requests receive 503"));
}
