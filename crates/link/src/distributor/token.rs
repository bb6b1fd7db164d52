//! Data planes without a client certificate: their tokens name the Gateway whose configuration they receive.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use tokio::sync::Semaphore;

/// The maximum number of reviews at once. Further data planes wait.
const REVIEWS_MAX: usize = 16;

/// The longest token, in bytes.
const TOKEN_MAX: usize = 8 << 10;

/// The result of a review: `NAMESPACE/NAME` of the ServiceAccount of the data plane, or the reason why the token is invalid.
pub type Reviewed = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// Reviews the tokens of data planes.
#[derive(Clone)]
pub struct Reviewer {
    review: Arc<dyn Fn(String) -> Reviewed + Send + Sync>,
    places: Arc<Semaphore>,
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviewer")
    }
}

impl Reviewer {
    /// A reviewer that calls this function, at most 16 times at once.
    pub fn new(review: impl Fn(String) -> Reviewed + Send + Sync + 'static) -> Self {
        Self { review: Arc::new(review), places: Arc::new(Semaphore::new(REVIEWS_MAX)) }
    }

    /// Reviews the token of a call (RFC 6750, 2.1).
    pub(super) async fn review(&self, headers: &HeaderMap) -> Result<String, String> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else {
            return Err("neither a client certificate nor a token".to_owned());
        };
        let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
        let token = token.filter(|token| !token.is_empty() && token.len() <= TOKEN_MAX);
        let token = token.ok_or("the header authorization contains no valid bearer token")?;
        // The semaphore is never closed.
        let _place = self.places.acquire().await;
        (self.review)(token.to_owned()).await
    }
}
