//! The newest configuration that the data planes serve.

use std::future::pending;

use crate::source::output::Served;

/// Follows one published configuration at a time. Configurations in between need no answer: data planes that serve a
/// configuration also serve all older ones.
#[derive(Default)]
pub(super) struct Acknowledged {
    current: Option<(u64, Served)>,
    /// The newest configuration, while an older one is followed.
    next: Option<(u64, Served)>,
}

impl Acknowledged {
    /// Follows a newer configuration.
    pub(super) fn follow(&mut self, configuration: u64, served: Served) {
        let slot = if self.current.is_some() { &mut self.next } else { &mut self.current };
        *slot = Some((configuration, served));
    }

    /// Waits until the data planes serve the followed configuration, and returns its number. A dropped future loses
    /// nothing.
    pub(super) async fn next(&mut self) -> u64 {
        let Some((configuration, served)) = &mut self.current else { return pending().await };
        served.await;
        let configuration = *configuration;
        self.current = self.next.take();
        configuration
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::time::timeout;

    use super::*;

    fn served() -> (oneshot::Sender<()>, Served) {
        let (sender, receiver) = oneshot::channel();
        // The test never drops a sender.
        (sender, Box::pin(async { receiver.await.expect("it is sent") }))
    }

    #[tokio::test]
    async fn the_newest_configuration_is_acknowledged_after_the_followed_one() {
        let mut acknowledged = Acknowledged::default();
        let (first, one) = served();
        let (_second, two) = served();
        let (third, three) = served();
        acknowledged.follow(1, one);
        acknowledged.follow(2, two);
        acknowledged.follow(3, three);
        assert!(timeout(Duration::ZERO, acknowledged.next()).await.is_err(), "nothing is served yet");
        first.send(()).expect("it is followed");
        assert_eq!(acknowledged.next().await, 1);
        third.send(()).expect("it is followed");
        assert_eq!(acknowledged.next().await, 3);
        assert!(timeout(Duration::ZERO, acknowledged.next()).await.is_err(), "nothing is left");
    }
}
