//! Tests that each message is logged once.

use std::cell::RefCell;
use std::fs;
use std::io::{self, Write};
use std::sync::Once;

use sluicegate_testkit::tls::Authority;

use super::{Followed, app, dns, ingress, slice};

thread_local! {
    /// The log of this thread since the capture began.
    static LOGGED: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Captures the log of this thread, at level `info` and above.
struct Log(());

impl Log {
    /// One subscriber serves all threads. `tracing` asks a subscriber once per place in the code whether the place
    /// logs. The first thread at that place may belong to a test that captures nothing.
    fn capture() -> Self {
        static SUBSCRIBE: Once = Once::new();
        SUBSCRIBE.call_once(|| {
            tracing_subscriber::fmt()
                .with_max_level(tracing::Level::INFO)
                .with_ansi(false)
                .without_time()
                .with_target(false)
                .with_writer(|| ThisThread)
                .init();
        });
        LOGGED.set(Some(Vec::new()));
        Self(())
    }

    /// The lines that contain this text.
    fn lines(&self, with: &str) -> Vec<String> {
        LOGGED.with_borrow(|bytes| {
            let text = String::from_utf8_lossy(bytes.as_deref().unwrap_or_default());
            text.lines().filter(|line| line.contains(with)).map(|line| line.trim().to_owned()).collect()
        })
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        LOGGED.set(None);
    }
}

struct ThisThread;

impl Write for ThisThread {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.iter_mut().for_each(|logged| logged.extend_from_slice(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_class(class: &str, name: &str) -> String {
    app(name, &[1]).replacen("spec: {", &format!("spec: {{ingressClassName: {class}, "), 1)
}

#[tokio::test]
async fn each_change_logs_one_line_about_ingresses_of_other_classes() {
    let log = Log::capture();
    let many: String = ["b", "c", "d", "e", "f"].map(|name| of_class("nginx", name)).concat();
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("many.yaml", many)]).await;
    followed.write("one.yaml", &of_class("nginx", "g"));
    followed.catch_up().await;
    let lines = log.lines("other classes");
    assert_eq!(
        lines,
        [
            "INFO 5 Ingresses are of other classes and are not served here: Ingress default/b, Ingress default/c, Ingress default/d, and 2 more; run sluicegate check to see how to serve them"
        ]
    );
    let lines = log.lines("--ingress-class");
    let expected = "one.yaml:5: Ingress default/g: spec.ingressClassName: \"nginx\" is not served here; start with --ingress-nginx-compatibility to serve it as ingress-nginx does, or with --ingress-class nginx";
    assert!(lines.len() == 1 && lines[0].ends_with(expected), "{lines:#?}");
}

#[tokio::test]
async fn layer_4_route_changes_are_counted_in_the_log() {
    let log = Log::capture();
    let mut followed = Followed::with_files(&[("dns.yaml", dns()), ("slice.yaml", slice("a", &[]))]).await;
    let weighted = dns().replace("port: 53}]}]", "port: 53, weight: 2}]}]");
    assert_ne!(weighted, dns());
    followed.write("dns.yaml", &weighted);
    followed.wait(|published| published.configs == 2).await;
    followed.write("dns.yaml", &weighted.replace("protocol: TCP, port: 53", "protocol: TCP, port: 54"));
    followed.wait(|published| published.configs == 3).await;
    assert_eq!(
        log.lines("configuration changed"),
        [
            "INFO configuration changed routes=+2 -0 upstreams=+2 -0 certificates=+0 -0",
            "INFO configuration changed routes=+2 -2 upstreams=+0 -0 certificates=+0 -0",
            "INFO configuration changed routes=+1 -1 upstreams=+0 -0 certificates=+0 -0",
        ]
    );
}

#[tokio::test]
async fn log_counts_the_certificates_that_no_other_host_has() {
    let log = Log::capture();
    let with_tls = |name: &str| {
        let host =
            format!("tls: [{{hosts: [{name}.test], secretName: cert}}], rules: [{{host: {name}.test, http");
        ingress(name, "/").replace("rules: [{http", &host)
    };
    let secret = || Authority::of_process().issue(&["a.test", "b.test"]).secret("cert");
    let mut followed = Followed::with_files(&[("a.yaml", with_tls("a")), ("cert.yaml", secret())]).await;
    let changes = [("b.yaml", with_tls("b")), ("cert.yaml", secret()), ("a.yaml", "# nothing\n".to_owned())];
    for (number, (file, text)) in changes.iter().enumerate() {
        followed.write(file, text);
        followed.wait(|published| published.configs == number + 2).await;
    }
    let certificates = |line: &String| line.split_once("certificates=").map(|(_, count)| count.to_owned());
    let counts: Vec<_> = log.lines("configuration changed").iter().filter_map(certificates).collect();
    assert_eq!(counts, ["+1 -0", "+0 -0", "+1 -1", "+0 -0"]);
}

#[tokio::test]
async fn each_configuration_change_logs_one_line() {
    let log = Log::capture();
    let files =
        [("a.yaml", ingress("a", "/a")), ("slice.yaml", slice("a", &[1])), ("b.yaml", app("b", &[1]))];
    let mut followed = Followed::with_files(&files).await;
    followed.write("slice.yaml", &slice("a", &[1, 2]));
    followed.served("/a[1,2] /b[1]").await;
    followed.write("c.yaml", &app("c", &[1]));
    followed.served("/a[1,2] /b[1] /c[1]").await;
    fs::remove_file(followed.path("b.yaml")).unwrap();
    followed.served("/a[1,2] /c[1]").await;
    let configs = followed.published.borrow().configs;
    followed.write("a.yaml", &ingress("a", "/new"));
    followed.served("/c[1] /new[1,2]").await;
    let limit = "{name: c, annotations: {sluicegate.dev/max-requests: \"5\"}}\nspec: {ports";
    followed.write("c.yaml", &app("c", &[1]).replace("{name: c}\nspec: {ports", limit));
    followed.wait(|published| published.configs == configs + 2).await;
    assert_eq!(
        log.lines("configuration changed"),
        [
            "INFO configuration changed routes=+2 -0 upstreams=+2 -0 certificates=+0 -0",
            "INFO configuration changed routes=+1 -0 upstreams=+1 -0 certificates=+0 -0",
            "INFO configuration changed routes=+0 -1 upstreams=+0 -1 certificates=+0 -0",
            "INFO configuration changed routes=+1 -1 upstreams=+0 -0 certificates=+0 -0",
            "INFO configuration changed routes=+0 -0 upstreams=+1 -1 certificates=+0 -0",
        ]
    );
    assert!(log.lines("endpoints changed").is_empty(), "it is for debugging");
}

#[tokio::test]
async fn policy_and_consumer_changes_are_counted_in_the_log() {
    let log = Log::capture();
    let policy = |allow: &str| {
        format!(
            "apiVersion: sluicegate.dev/v1alpha1\nkind: SecurityPolicy\nmetadata: {{name: p}}\n\
             spec: {{targetRefs: [{{group: networking.k8s.io, kind: Ingress, name: a}}], ipAccess: {{allow: [{allow}]}}, \
             authentication: {{apiKey: {{}}}}}}\n---\napiVersion: sluicegate.dev/v1alpha1\nkind: Consumer\n\
             metadata: {{name: c}}\nspec: {{groups: [gold]}}\n"
        )
    };
    let mut followed =
        Followed::with_files(&[("a.yaml", app("a", &[1])), ("p.yaml", policy("10.0.0.0/8"))]).await;
    followed.write("p.yaml", &policy("10.0.0.0/16"));
    followed.wait(|published| published.configs == 2).await;
    assert_eq!(
        log.lines("configuration changed"),
        [
            "INFO configuration changed routes=+1 -0 upstreams=+1 -0 certificates=+0 -0 policies=+1 -0 consumers=+1 -0",
            "INFO configuration changed routes=+0 -0 upstreams=+0 -0 certificates=+0 -0 policies=+1 -1",
        ]
    );
}
