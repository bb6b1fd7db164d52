//! The reasons of policies: denials.

use super::Reason;

pub(super) const DENIALS: [Reason; 53] = [
    Reason {
        name: "policy_unusable",
        cause: "The policy of the route is invalid, so the gateway closes the route.",
        cure: "Read the message of the policy in the log, in its status or in `sluicegate check`, and correct the policy.",
    },
    Reason {
        name: "consumer_unusable",
        cause: "A part of the Consumer cannot be read, and might restrict access.",
        cure: "Correct the Consumer or the Secret that it names: its status says which field is wrong.",
    },
    Reason {
        name: "address",
        cause: "The policy does not allow the client IP.",
        cure: "Add the client IP to `ipAccess.allow`. If the IP is that of a load balancer, set `--trusted-proxies` or the PROXY protocol.",
    },
    Reason {
        name: "ambiguous_path",
        cause: "An endpoint may read the path as a path of another route with another policy.",
        cure: "Send the path without encoded slashes, dot segments, doubled slashes and parameters of segments.",
    },
    Reason {
        name: "origin",
        cause: "The policy does not allow the origin of a preflight request.",
        cure: "Add the origin to `cors.allowOrigins`, with its scheme and its port.",
    },
    Reason {
        name: "no_credentials",
        cause: "The request has no credential that the policy accepts.",
        cure: "Send a credential: an API key, a token or a password, at the place that the policy names.",
    },
    Reason {
        name: "no_certificate",
        cause: "The operation needs a client certificate, and the client has no valid certificate.",
        cure: "Call over TLS with a client certificate. The host or the listener must name its CA certificate.",
    },
    Reason {
        name: "ambiguous_credentials",
        cause: "The request has two credentials of one kind, or credentials of two Consumers.",
        cure: "Send each credential once, and only credentials of one Consumer.",
    },
    Reason {
        name: "unknown_key",
        cause: "No Consumer that the policy accepts has the API key.",
        cure: "Check the key, and that its Consumer is in a namespace that the policy accepts.",
    },
    Reason {
        name: "expired_key",
        cause: "The API key has expired.",
        cure: "Issue a new key: `sluicegate key rotate`.",
    },
    Reason {
        name: "revoked_key",
        cause: "The API key is revoked.",
        cure: "Issue a new key: `sluicegate key issue`.",
    },
    Reason {
        name: "wrong_password",
        cause: "The name or the password is wrong, or the header is malformed.",
        cure: "Check the name and the password, and the Secret that the policy names.",
    },
    Reason {
        name: "stale_nonce",
        cause: "The nonce of Digest authentication is too old.",
        cure: "Repeat the request with the new nonce of the response. Clients do this themselves.",
    },
    Reason {
        name: "passwords_busy",
        cause: "Too many passwords are being checked at once.",
        cure: "Send fewer requests with new passwords, use hashes that cost less, or API keys.",
    },
    Reason {
        name: "keys_unknown",
        cause: "The gateway has not fetched the keys of the token's issuer yet.",
        cure: "Check that the gateway reaches the URL of the keys: the log and the metrics of key sets report failures.",
    },
    Reason {
        name: "check_unauthorized",
        cause: "The authorization service does not accept the credentials.",
        cure: "Send the credentials that the authorization service expects.",
    },
    Reason {
        name: "check_forbidden",
        cause: "The authorization service denies the request.",
        cure: "Read the log of the authorization service.",
    },
    Reason {
        name: "sign_in",
        cause: "The authorization service requires a login, and the gateway redirects to its sign-in page.",
        cure: "Log in, and send the cookie of the session.",
    },
    Reason {
        name: "check_timeout",
        cause: "The authorization service did not respond in time.",
        cure: "Check the load of the authorization service, or raise `extAuth.timeout`.",
    },
    Reason {
        name: "check_unreachable",
        cause: "The authorization service is unreachable.",
        cure: "Check the URL and the endpoints of the authorization service.",
    },
    Reason {
        name: "check_bad_answer",
        cause: "The authorization service sent an invalid response.",
        cure: "Read the log of the authorization service, and check its protocol and the size of its response.",
    },
    Reason {
        name: "checks_busy",
        cause: "Too many requests wait for the authorization service.",
        cure: "Make the authorization service faster, or cache its responses.",
    },
    Reason {
        name: "check_denied",
        cause: "The authorization service denies the request with a response of its own.",
        cure: "Read the body of the response and the log of the authorization service.",
    },
    Reason {
        name: "forbidden",
        cause: "No authorization rule allows the caller, or a rule denies the caller.",
        cure: "Compare the rules of the policy with the Consumer, its groups, the claims, the method, the path and the client IP.",
    },
    Reason {
        name: "insufficient_scope",
        cause: "The token lacks a scope that the policy requires.",
        cure: "Request a token with the scopes of `requiredScopes`.",
    },
    Reason {
        name: "rate_limit",
        cause: "A rate limit is reached.",
        cure: "Wait for the time in `Retry-After`, or raise the limit.",
    },
    Reason {
        name: "concurrency_limit",
        cause: "Too many requests of the caller are in flight.",
        cure: "Send fewer requests at once, or raise the limit.",
    },
    Reason {
        name: "no_subscription",
        cause: "The caller has no Subscription to the API.",
        cure: "Create a Subscription of the Consumer to a Plan of the API.",
    },
    Reason {
        name: "subscription_pending",
        cause: "The Subscription of the caller waits for approval.",
        cure: "Approve the Subscription.",
    },
    Reason {
        name: "subscription_inactive",
        cause: "The Subscription of the caller is suspended, rejected or invalid.",
        cure: "Read the status of the Subscription, and activate it.",
    },
    Reason {
        name: "quota",
        cause: "A quota of the Subscription is used up.",
        cure: "Wait for the next window (`Retry-After`), or choose a Plan with a greater quota.",
    },
    Reason {
        name: "login",
        cause: "A browser has no session, and the gateway redirects the browser to the login.",
        cure: "Log in at the OpenID provider.",
    },
    Reason {
        name: "no_session",
        cause: "The request has no session, and is no navigation of a browser.",
        cure: "Log in with a browser first, and send the cookie of the session.",
    },
    Reason {
        name: "login_state",
        cause: "The answer of the OpenID provider belongs to no login of the browser, or the login took too long.",
        cure: "Open the page again to log in, and allow cookies for the host.",
    },
    Reason {
        name: "login_denied",
        cause: "The OpenID provider denied the login.",
        cure: "Check the permissions of the user at the provider.",
    },
    Reason {
        name: "login_code",
        cause: "The OpenID provider does not accept the code of the login, which is valid once.",
        cure: "Open the page again to log in, and check the client secret of the policy.",
    },
    Reason {
        name: "login_token",
        cause: "The tokens of the OpenID provider are not valid.",
        cure: "Compare the issuer, the client ID and the keys of the policy with the provider.",
    },
    Reason {
        name: "session_too_long",
        cause: "The tokens of the OpenID provider are too long for cookies.",
        cure: "Request fewer claims or scopes at the provider.",
    },
    Reason {
        name: "provider_unavailable",
        cause: "The OpenID provider is unreachable, or sends no valid response.",
        cure: "Check that the gateway reaches the issuer of the policy.",
    },
    Reason {
        name: "token_inactive",
        cause: "The authorization server says that the token is not active.",
        cure: "Request a new token.",
    },
    Reason {
        name: "introspection_unavailable",
        cause: "The authorization server gives no valid response about the token.",
        cure: "Check that the gateway reaches the URL of the introspection, and its credentials.",
    },
    Reason {
        name: "token_too_long",
        cause: "The token is too long.",
        cure: "Request a token with fewer claims.",
    },
    Reason {
        name: "token_malformed",
        cause: "The text is no JSON Web Token.",
        cure: "Send the token as the issuer wrote it, after `Bearer `.",
    },
    Reason {
        name: "token_critical",
        cause: "The token has a critical header that the gateway does not support.",
        cure: "Configure the issuer to write no `crit` header.",
    },
    Reason {
        name: "token_algorithm",
        cause: "The algorithm of the token is not accepted.",
        cure: "Add the algorithm to `algorithms` of the provider, or configure the issuer.",
    },
    Reason {
        name: "token_unknown_key",
        cause: "The keys of the issuer have no key with the ID of the token.",
        cure: "Check that the policy names the keys of the issuer that signed the token.",
    },
    Reason {
        name: "token_signature",
        cause: "The signature of the token is wrong.",
        cure: "Check that the policy names the keys of the issuer that signed the token.",
    },
    Reason {
        name: "token_issuer",
        cause: "The policy accepts no token of this issuer.",
        cure: "Compare the claim `iss` with `issuer` of the providers.",
    },
    Reason {
        name: "token_audience",
        cause: "The token is for another audience.",
        cure: "Compare the claim `aud` with `audiences` of the provider.",
    },
    Reason { name: "token_expired", cause: "The token has expired.", cure: "Request a new token." },
    Reason {
        name: "token_not_yet_valid",
        cause: "The token is not valid yet.",
        cure: "Compare the clocks of the issuer and of the gateway, or raise `clockSkew`.",
    },
    Reason {
        name: "token_without_expiry",
        cause: "The token has no expiry.",
        cure: "Configure the issuer to write `exp`, or set `allowMissingExpiry`.",
    },
    Reason {
        name: "token_claim",
        cause: "The token lacks a claim that the policy requires.",
        cure: "Compare the claims with `requiredClaims` of the provider.",
    },
];
