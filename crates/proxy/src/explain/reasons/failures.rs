//! The reasons of endpoints, clients and the gateway.

use super::Reason;

pub(super) const FAILURES: [Reason; 48] = [
    Reason {
        name: "no_route",
        cause: "No route matches the host, the path and the other conditions.",
        cure: "Compare the hosts, the paths and the conditions of your routes with the request: `sluicegate explain` shows the nearest matches.",
    },
    Reason {
        name: "no_endpoint",
        cause: "The upstream has no ready endpoint, or the rule has no backend with a weight above 0.",
        cure: "Check that the Service exists, and that its pods are ready: `kubectl get endpointslices`.",
    },
    Reason {
        name: "invalid_backend",
        cause: "The rule names no valid backend.",
        cure: "Read the status of the route: a Service, a port or a ReferenceGrant is missing.",
    },
    Reason {
        name: "overloaded",
        cause: "The upstream has reached its limit of requests in flight.",
        cure: "Add endpoints, make them faster, or raise the limit of the upstream.",
    },
    Reason {
        name: "over_retry_budget",
        cause: "An attempt failed, and the retry budget of the Service is used up.",
        cure: "Find the cause of the failures at the endpoints, or raise the budget.",
    },
    Reason {
        name: "connect_refused",
        cause: "No program listens at the address of the endpoint.",
        cure: "Check the port of the Service and of the container, and the readiness probe.",
    },
    Reason {
        name: "connect_unreachable",
        cause: "There is no network route to the endpoint.",
        cure: "Check the network, the NetworkPolicies and the addresses of the endpoints.",
    },
    Reason {
        name: "connect_timeout",
        cause: "The endpoint did not accept the connection in time.",
        cure: "Check NetworkPolicies and the load of the endpoint.",
    },
    Reason {
        name: "connect_error",
        cause: "The gateway could not open a connection, as for a lack of local ports.",
        cure: "Read the log of the gateway, and check its limits of files and ports.",
    },
    Reason {
        name: "tls_handshake",
        cause: "The TLS handshake with the endpoint failed.",
        cure: "Check that the endpoint uses TLS, and that its certificate matches the CA certificates and the name of the policy.",
    },
    Reason {
        name: "no_http2",
        cause: "The endpoint does not support HTTP/2.",
        cure: "Set the protocol of the Service port to what the endpoint supports.",
    },
    Reason {
        name: "no_websocket",
        cause: "The HTTP/2 of the endpoint does not support WebSocket.",
        cure: "Use HTTP/1.1 to the endpoint.",
    },
    Reason {
        name: "refused_stream",
        cause: "The endpoint refused the request before it processed it.",
        cure: "Check the load of the endpoint and its limit of streams.",
    },
    Reason {
        name: "stale_connection",
        cause: "The endpoint closed a kept-alive connection before a response.",
        cure: "Make the keep-alive timeout of the endpoint longer than `--pool-idle-timeout` of the gateway.",
    },
    Reason {
        name: "reset",
        cause: "The endpoint closed the connection before a response.",
        cure: "Read the log of the endpoint: it may have crashed or rejected the request.",
    },
    Reason {
        name: "unacknowledged",
        cause: "The endpoint does not acknowledge the request.",
        cure: "Check the node and the network of the endpoint.",
    },
    Reason {
        name: "response_timeout",
        cause: "The endpoint, or a service on the way, did not respond in time.",
        cure: "Make the endpoint faster, or raise the timeout of the route.",
    },
    Reason {
        name: "write_timeout",
        cause: "The endpoint stopped reading the request, or the client stopped reading the response.",
        cure: "Check the load of the endpoint, or the network of the client.",
    },
    Reason {
        name: "bad_response",
        cause: "The endpoint sent no valid HTTP response.",
        cure: "Check that the endpoint uses HTTP at this port, and the headers of its response.",
    },
    Reason {
        name: "truncated",
        cause: "The endpoint ended the response early.",
        cure: "Read the log of the endpoint.",
    },
    Reason {
        name: "body_timeout",
        cause: "The endpoint stopped sending the response, or the client stopped sending the body.",
        cure: "Check the load of the endpoint or the network of the client, or raise the timeouts.",
    },
    Reason {
        name: "drained",
        cause: "The endpoint was removed, and its drain time is over.",
        cure: "Raise the drain time if requests take longer.",
    },
    Reason {
        name: "unsolicited_upgrade",
        cause: "The endpoint changed the protocol without a request for it.",
        cure: "Correct the endpoint.",
    },
    Reason {
        name: "other_protocol",
        cause: "The endpoint changed to another protocol than the requested protocol.",
        cure: "Correct the endpoint, or the `Upgrade` header of the client.",
    },
    Reason {
        name: "unwanted_status",
        cause: "The endpoint responded with a status that the policy retries.",
        cure: "Find the cause of the status at the endpoint.",
    },
    Reason {
        name: "response_too_long",
        cause: "The response is longer than the policy allows.",
        cure: "Shorten the response, or raise the limit of the policy.",
    },
    Reason {
        name: "compression_failed",
        cause: "The gateway has no memory to compress the response.",
        cure: "Give the gateway more memory.",
    },
    Reason {
        name: "client_closed",
        cause: "The client closed the connection before the response was complete.",
        cure: "Check the timeout of the client, and the time that the endpoint needs.",
    },
    Reason {
        name: "head_timeout",
        cause: "The client did not send the whole head in time.",
        cure: "Check the network of the client, or raise the timeout of heads.",
    },
    Reason {
        name: "body_too_large",
        cause: "The body exceeds the limit of the route.",
        cure: "Send a shorter body, or raise the limit of the policy.",
    },
    Reason {
        name: "bad_body",
        cause: "The framing of the body is malformed.",
        cure: "Correct the client: its chunks or its length are wrong.",
    },
    Reason {
        name: "method_not_allowed",
        cause: "The gateway does not serve CONNECT and TRACE.",
        cure: "Use another method.",
    },
    Reason {
        name: "misdirected",
        cause: "The TLS connection was opened for another host.",
        cure: "Open a new connection with the name of the host (SNI). Clients do this themselves.",
    },
    Reason {
        name: "body_too_slow",
        cause: "The client sends the body too slowly.",
        cure: "Check the network of the client, or lower the minimum rate.",
    },
    Reason {
        name: "body_total_timeout",
        cause: "The client did not send the whole body in time.",
        cure: "Check the network of the client, or raise the limit.",
    },
    Reason {
        name: "upload_stalled",
        cause: "Too many uploads at the endpoint are stalled.",
        cure: "Check the networks of the clients.",
    },
    Reason {
        name: "client_certificate",
        cause: "The certificate of the client is missing or not valid.",
        cure: "Send a certificate that the CA certificates of the policy trust.",
    },
    Reason {
        name: "client_subject",
        cause: "The name in the certificate of the client is not allowed.",
        cure: "Send a certificate with another name, or change the expression of the policy.",
    },
    Reason {
        name: "fault_injected",
        cause: "The policy injects a failure.",
        cure: "Remove `fault` from the TrafficPolicy.",
    },
    Reason {
        name: "not_cached",
        cause: "The client accepts only a cached response, and none is cached.",
        cure: "Send the request without `Cache-Control: only-if-cached`.",
    },
    Reason {
        name: "invalid_request",
        cause: "The request does not match the description of the operation.",
        cure: "Read the problem document in the response: it names the parameters and the values.",
    },
    Reason {
        name: "invalid_response",
        cause: "The response of the endpoint does not match the description of the operation.",
        cure: "Correct the endpoint, or the OpenAPI document.",
    },
    Reason {
        name: "schema",
        cause: "A schema of the operation cannot be compiled.",
        cure: "Read the status of the Api, and correct its OpenAPI document.",
    },
    Reason {
        name: "media_type",
        cause: "The operation does not describe the media type of the body.",
        cure: "Send a media type that the response names.",
    },
    Reason {
        name: "content_coding",
        cause: "The body has a content coding, and the operation validates bodies.",
        cure: "Send the body without `Content-Encoding`.",
    },
    Reason {
        name: "charset",
        cause: "The body has another charset than UTF-8, and the operation validates bodies.",
        cure: "Send the body in UTF-8.",
    },
    Reason {
        name: "validation_busy",
        cause: "The gateway validates too many bodies at once.",
        cure: "Send the request again later, or give the gateway more workers.",
    },
    Reason {
        name: "mock",
        cause: "The mock of the operation has no such response.",
        cure: "Ask for a response that the OpenAPI document describes.",
    },
];
