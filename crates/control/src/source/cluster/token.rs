//! The review of the tokens of data planes by the API server (TokenReview).

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::watch::in_words;

/// The audience of the tokens: tokens for other servers are not accepted.
pub const AUDIENCE: &str = "sluicegate-control-plane";

/// The prefix of the user names of ServiceAccounts.
const PREFIX: &str = "system:serviceaccount:";

/// Asks the API server whether this is the token of a ServiceAccount for our audience. Returns the ServiceAccount as
/// `NAMESPACE/NAME`.
/// # Errors
/// If the API server is unreachable or does not accept the token.
pub async fn review(client: Client, token: String) -> Result<String, String> {
    let review = TokenReview {
        metadata: ObjectMeta::default(),
        spec: TokenReviewSpec { audiences: Some(vec![AUDIENCE.to_owned()]), token },
        status: None,
    };
    let reviews: Api<TokenReview> = Api::all(client);
    let reviewed = reviews.create(&PostParams::default(), &review).await;
    let reviewed = reviewed.map_err(|error| format!("the token cannot be reviewed: {}", in_words(&error)))?;
    account(reviewed.status.unwrap_or_default())
}

/// The ServiceAccount by the result of a review.
fn account(status: TokenReviewStatus) -> Result<String, String> {
    if status.authenticated != Some(true) {
        let reason = status.error.unwrap_or_else(|| "the API server does not know it".to_owned());
        return Err(format!("the token is not valid: {reason}"));
    }
    // An API server that does not know audiences returns none.
    if !status.audiences.iter().flatten().any(|audience| audience == AUDIENCE) {
        return Err(format!("the token is not for the audience {AUDIENCE}"));
    }
    let user = status.user.and_then(|user| user.username).unwrap_or_default();
    let account = user.strip_prefix(PREFIX).and_then(|account| account.split_once(':'));
    match account {
        Some((namespace, name)) => Ok(format!("{namespace}/{name}")),
        None => Err(format!("the token belongs to {user:?} and not to a ServiceAccount")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::UserInfo;

    use super::*;

    #[test]
    fn only_a_valid_token_of_a_service_account_for_our_audience_is_accepted() {
        let status = |authenticated, audience: &str, user: &str| TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(vec![audience.to_owned()]),
            user: Some(UserInfo { username: Some(user.to_owned()), ..UserInfo::default() }),
            error: None,
        };
        let good = "system:serviceaccount:shop:edge-sluicegate";
        assert_eq!(account(status(true, AUDIENCE, good)), Ok("shop/edge-sluicegate".to_owned()));
        for bad in [
            status(false, AUDIENCE, good),
            status(true, "https://kubernetes.default.svc", good),
            status(true, AUDIENCE, "system:admin"),
            TokenReviewStatus { audiences: None, ..status(true, AUDIENCE, good) },
            TokenReviewStatus { authenticated: None, ..status(true, AUDIENCE, good) },
            TokenReviewStatus::default(),
        ] {
            assert!(account(bad.clone()).is_err(), "{bad:?}");
        }
    }
}
