//! What is logged, once each.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;

use super::{Followed, app};

/// All that is logged on this thread, at `info` and above.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn capture() -> (Self, DefaultGuard) {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::INFO)
            .with_ansi(false)
            .without_time()
            .with_target(false)
            .with_writer(move || writer.clone())
            .finish();
        (log, tracing::subscriber::set_default(subscriber))
    }

    /// The lines with this text in them.
    fn lines(&self, with: &str) -> Vec<String> {
        let bytes = self.0.lock().unwrap();
        let text = String::from_utf8_lossy(&bytes);
        text.lines().filter(|line| line.contains(with)).map(|line| line.trim().to_owned()).collect()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn of_class(class: &str, name: &str) -> String {
    app(name, &[1]).replacen("spec: {", &format!("spec: {{ingressClassName: {class}, "), 1)
}

#[tokio::test]
async fn ingresses_of_other_classes_are_named_once_in_one_line_for_each_change() {
    let (log, _guard) = Log::capture();
    let many: String = ["b", "c", "d", "e", "f"].map(|name| of_class("nginx", name)).concat();
    let mut followed = Followed::with_files(&[("a.yaml", app("a", &[1])), ("many.yaml", many)]).await;
    followed.write("one.yaml", &of_class("nginx", "g"));
    followed.catch_up().await;
    let lines = log.lines("other classes");
    assert_eq!(
        lines,
        ["INFO 5 Ingresses are of other classes and are not served here; sluicegate check says what would \
          serve them: Ingress default/b, Ingress default/c, Ingress default/d, and 2 more"]
    );
    let lines = log.lines("--ingress-class");
    let expected = "one.yaml:5: Ingress default/g: spec.ingressClassName: \"nginx\" is not served here; \
                    --ingress-class nginx serves it";
    assert!(lines.len() == 1 && lines[0].ends_with(expected), "{lines:#?}");
}
