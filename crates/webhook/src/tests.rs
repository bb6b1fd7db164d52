//! The webhook over HTTPS.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;

use serde_json::json;
use sluicegate_testkit::client::{self, Client, Response};
use sluicegate_testkit::tls::{Authority, ClientOptions};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;

const NAME: &str = "webhook.test";

/// A webhook whose judge rejects objects named `wrong`, and reviews no `Deployment`.
struct Running {
    address: SocketAddr,
    folder: TempDir,
    reviews: Arc<Reviews>,
    witnessed: Arc<Mutex<Vec<Witnessed>>>,
}

/// Writes a new certificate and its key into a folder, and returns the certificate.
fn write_certificate(folder: &Path) -> anyhow::Result<Vec<u8>> {
    let issued = Authority::of_process().issue(&[NAME]);
    std::fs::write(folder.join("tls.key"), &issued.key_pem)?;
    std::fs::write(folder.join("tls.crt"), &issued.chain_pem)?;
    Ok(issued.certificate.chain[0].to_vec())
}

impl Running {
    async fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        write_certificate(folder.path())?;
        let certificate = Certificate::read(folder.path().join("tls.crt"), folder.path().join("tls.key"))?;
        let judge = |object: Value| -> Judged {
            let verdict = match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
                (Some("Deployment"), _) => {
                    Err(JudgeError::NotReviewed("Deployment is not reviewed".to_owned()))
                }
                (_, Some("wrong")) => Ok(Verdict {
                    errors: vec!["spec: is wrong".to_owned(), "spec.rules: is wrong too".to_owned()],
                    warnings: vec!["spec.tls: is odd".to_owned()],
                }),
                _ => Ok(Verdict::default()),
            };
            Box::pin(async { verdict })
        };
        let reviews = Arc::<Reviews>::default();
        let witnessed = Arc::<Mutex<Vec<Witnessed>>>::default();
        let to = witnessed.clone();
        let webhook = Webhook {
            certificate: Arc::new(certificate),
            judge: Arc::new(judge),
            witness: Some(Arc::new(move |write| to.lock().expect("a lock").push(write))),
            reviews: reviews.clone(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        tokio::spawn(webhook.serve(listener));
        Ok(Self { address, folder, reviews, witnessed })
    }

    async fn connect(&self) -> anyhow::Result<Client> {
        Ok(Client::connect_tls(self.address, &ClientOptions::default(), NAME).await?)
    }

    async fn post(&self, body: impl AsRef<[u8]>) -> anyhow::Result<Response> {
        Ok(self.connect().await?.request(post(body.as_ref())).await?)
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        self.reviews.counts().map(|(outcome, count)| (outcome.name(), count)).collect()
    }
}

fn post(body: &[u8]) -> Vec<u8> {
    post_to("/", body)
}

fn post_to(path: &str, body: &[u8]) -> Vec<u8> {
    let mut head = String::new();
    let _ = write!(head, "POST {path} HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn review(operation: &str, object: Value) -> String {
    let request =
        json!({"uid": "7f2c", "operation": operation, "object": object, "oldObject": {"kind": "Ingress"}});
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).to_string()
}

fn ingress(name: &str) -> Value {
    json!({"kind": "Ingress", "metadata": {"name": name}})
}

#[tokio::test]
async fn object_is_allowed_or_denied_with_the_errors_of_the_judge() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let allowed = webhook.post(review("CREATE", ingress("right"))).await?;
    assert_eq!((allowed.status, allowed.header("content-type")), (200, Some("application/json")));
    assert_eq!(allowed.header("connection"), Some("close"));
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": "7f2c", "allowed": true},
    });
    assert_eq!(serde_json::from_str::<Value>(&allowed.text())?, expected);
    let denied = webhook.post(review("UPDATE", ingress("wrong"))).await?;
    let expected = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {
            "uid": "7f2c", "allowed": false, "warnings": ["spec.tls: is odd"],
            "status": {
                "status": "Failure", "code": 400, "reason": "BadRequest",
                "message": "spec: is wrong\nspec.rules: is wrong too",
            },
        },
    });
    assert_eq!(serde_json::from_str::<Value>(&denied.text())?, expected);
    assert_eq!(webhook.counts(), [("allowed", 1), ("denied", 1), ("failed", 0)]);
    Ok(())
}

#[tokio::test]
async fn deletion_of_a_wrong_object_is_allowed() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let mut ending = ingress("wrong");
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    for body in [review("DELETE", Value::Null), review("DELETE", ingress("wrong")), review("UPDATE", ending)]
    {
        let answer: Value = serde_json::from_str(&webhook.post(&body).await?.text())?;
        assert_eq!(answer["response"]["allowed"], true, "{body}");
    }
    Ok(())
}

#[tokio::test]
async fn audit_path_allows_each_write_and_tells_the_user() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let body = |operation: &str, dry_run: bool, object: Value| {
        let request = json!({
            "uid": "7f2c", "operation": operation, "object": object, "oldObject": ingress("old"), "dryRun": dry_run,
            "kind": {"group": "sluicegate.dev", "version": "v1alpha1", "kind": "Plan"}, "namespace": "shop", "name": "gold",
            "userInfo": {"username": "alice", "groups": ["admins"]},
        });
        let review =
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
        post_to(AUDIT, review.to_string().as_bytes())
    };
    for (operation, dry_run) in [("CREATE", false), ("UPDATE", true), ("DELETE", false), ("CONNECT", false)] {
        let object = if operation == "DELETE" { Value::Null } else { ingress("wrong") };
        let answer = webhook.connect().await?.request(body(operation, dry_run, object)).await?;
        let answer: Value = serde_json::from_str(&answer.text())?;
        assert_eq!(answer["response"]["allowed"], true, "{operation}");
    }
    let witnessed = webhook.witnessed.lock().expect("a lock").clone();
    let created = Witnessed {
        group: "sluicegate.dev".into(),
        kind: "Plan".into(),
        namespace: "shop".into(),
        name: "gold".into(),
        object: Some(ingress("wrong")),
        old: Some(ingress("old")),
        user: "alice".into(),
        groups: vec!["admins".into()],
    };
    assert_eq!(witnessed, [created.clone(), Witnessed { object: None, ..created }]);
    webhook.post(review("CREATE", ingress("right"))).await?;
    assert_eq!(webhook.witnessed.lock().expect("a lock").len(), 2, "a review is no witness");
    assert_eq!(webhook.counts(), [("allowed", 1), ("denied", 0), ("failed", 0)]);
    Ok(())
}

#[tokio::test]
async fn request_that_is_no_review_receives_400() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let other_version =
        review("CREATE", ingress("right")).replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1");
    let other_kind = review("CREATE", json!({"kind": "Deployment"}));
    let without_request = r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#;
    let deep = "[".repeat(100_000);
    for body in ["", "{", "null", "[]", "\u{0}", "{}", without_request, &other_version, &other_kind, &deep] {
        let answer = webhook.post(body).await?;
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{body:.80}");
        assert!(answer.text().len() < 300, "{}", answer.text());
    }
    assert_eq!(webhook.counts(), [("allowed", 0), ("denied", 0), ("failed", 10)]);
    let mut client = webhook.connect().await?;
    let answer = client.request(format!("GET / HTTP/1.1\r\nHost: {NAME}\r\n\r\n")).await?;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    Ok(())
}

#[tokio::test]
async fn review_beyond_9_mb_receives_413_before_its_body_is_read() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let mut client = webhook.connect().await?;
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 9000001\r\n\r\n");
    assert_eq!(client.request(head).await?.status, 413);
    // Without a length, the limit counts the bytes.
    let mut client = webhook.connect().await?;
    client.send(format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nTransfer-Encoding: chunked\r\n\r\n")).await?;
    let chunk = [b"10000\r\n", &[b' '; 0x1_0000][..], b"\r\n"].concat();
    for _ in 0..MAX_REVIEW / 0x1_0000 + 1 {
        if client.send(&chunk).await.is_err() {
            break;
        }
    }
    assert_eq!(client.read_response().await?.status, 413);
    let mut padded = review("CREATE", ingress("right")).into_bytes();
    padded.resize(MAX_REVIEW, b' ');
    assert_eq!(webhook.post(padded).await?.status, 200, "the limit itself is allowed");
    Ok(())
}

#[tokio::test]
async fn review_with_too_many_values_receives_413() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let many = |count: usize| review("CREATE", json!({"kind": "Ingress", "many": vec![1; count]}));
    assert_eq!(webhook.post(many(MAX_VALUES - 100)).await?.status, 200);
    assert_eq!(webhook.post(many(MAX_VALUES)).await?.status, 413);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn slow_clients_are_disconnected_and_delay_no_review() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    // No handshake, no head, no body.
    let mut silent = Client::connect(webhook.address).await?;
    silent.expect_end().await?;
    let mut without_head = webhook.connect().await?;
    // The end without a message of TLS is an error of the client, other than its timeout.
    assert!(!matches!(without_head.read_to_end().await, Err(client::Error::Timeout(_))));
    let mut without_body = webhook.connect().await?.with_limit(2 * BODY_TIMEOUT);
    let head = format!("POST / HTTP/1.1\r\nHost: {NAME}\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(without_body.request(head).await?.status, 408);
    Ok(())
}

#[tokio::test]
async fn idle_connections_make_room_for_a_review() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let mut idle = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        idle.push(Client::connect(webhook.address).await?);
    }
    assert_eq!(webhook.post(review("CREATE", ingress("right"))).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn client_without_tls_receives_no_response() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let mut client = Client::connect(webhook.address).await?;
    client.send(post(b"{}")).await?;
    let received = client.read_to_end().await?;
    assert!(!received.starts_with(b"HTTP"), "{received:?}");
    Ok(())
}

#[tokio::test]
async fn changed_certificate_applies_to_new_connections_and_an_invalid_one_does_not() -> anyhow::Result<()> {
    let webhook = Running::start().await?;
    let shown = async || -> anyhow::Result<Vec<u8>> {
        let client = webhook.connect().await?;
        let certificates = client.tls().and_then(|tls| tls.peer_certificates().map(<[_]>::to_vec));
        Ok(certificates.unwrap_or_default()[0].to_vec())
    };
    let first = shown().await?;
    let second = write_certificate(webhook.folder.path())?;
    assert_ne!(first, second);
    assert_eq!(shown().await?, second);
    for (file, content) in [("tls.crt", ""), ("tls.key", "no key")] {
        let file = webhook.folder.path().join(file);
        let valid = std::fs::read(&file)?;
        std::fs::write(&file, content)?;
        assert_eq!(shown().await?, second, "{}", file.display());
        std::fs::write(&file, valid)?;
    }
    std::fs::remove_file(webhook.folder.path().join("tls.key"))?;
    assert_eq!(shown().await?, second);
    Ok(())
}

#[test]
fn start_without_a_usable_certificate_names_the_file() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    write_certificate(folder.path())?;
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    let error = Certificate::read(&certificate, folder.path().join("absent")).expect_err("there is no key");
    assert!(error.to_string().contains("absent: cannot be read"), "{error}");
    let error = Certificate::read(&key, &key).expect_err("the key is no certificate");
    assert!(error.to_string().ends_with("tls.key: contains no certificate in PEM"), "{error}");
    Ok(())
}
