//! The reasons of requests that the gateway rejects.

use super::Reason;

pub(super) const REJECTIONS: [Reason; 41] = [
    Reason {
        name: "tls_record",
        cause: "The client uses TLS at a port for plain HTTP.",
        cure: "Use `http://`, or the port for HTTPS.",
    },
    Reason {
        name: "empty_lines",
        cause: "Too many empty lines come before the request.",
        cure: "Correct the client.",
    },
    Reason {
        name: "invalid_method",
        cause: "The method has a character that no method can have.",
        cure: "Correct the method.",
    },
    Reason {
        name: "method_in_other_case",
        cause: "The method is a known method in lower case.",
        cure: "Write the method in capital letters.",
    },
    Reason { name: "method_too_long", cause: "The method is too long.", cure: "Correct the method." },
    Reason {
        name: "invalid_request_line",
        cause: "The request line is malformed.",
        cure: "Correct the client.",
    },
    Reason {
        name: "invalid_target",
        cause: "The target of the request has a character that it cannot have, or a rewrite has no path.",
        cure: "Encode the character, or correct the rewrite.",
    },
    Reason {
        name: "non_ascii_target",
        cause: "The target has a byte that is not ASCII.",
        cure: "Encode the byte, or set `--allow-non-ascii-targets`.",
    },
    Reason {
        name: "fragment_in_target",
        cause: "The target has a `#`.",
        cure: "Send the URL without its fragment.",
    },
    Reason {
        name: "target_form_of_other_method",
        cause: "The form of the target belongs to another method.",
        cure: "Correct the client.",
    },
    Reason {
        name: "userinfo_in_target",
        cause: "The target has a user name or a password.",
        cure: "Send credentials in the header `Authorization`.",
    },
    Reason {
        name: "unsupported_version",
        cause: "The version of HTTP is not supported.",
        cure: "Use HTTP/1.1 or HTTP/2.",
    },
    Reason { name: "bare_lf", cause: "A line ends with LF instead of CRLF.", cure: "Correct the client." },
    Reason { name: "bare_cr", cause: "A line has a CR without LF.", cure: "Correct the client." },
    Reason {
        name: "obsolete_fold",
        cause: "A header continues in a second line.",
        cure: "Write the header in one line.",
    },
    Reason {
        name: "space_before_colon",
        cause: "There is a space between the name of a header and its colon.",
        cure: "Remove the space.",
    },
    Reason {
        name: "invalid_header_name",
        cause: "The name of a header has a character that it cannot have.",
        cure: "Correct the name.",
    },
    Reason {
        name: "invalid_header_value",
        cause: "The value of a header has a control character.",
        cure: "Remove the character.",
    },
    Reason {
        name: "space_around_value",
        cause: "The value of an HTTP/2 header begins or ends with a space.",
        cure: "Remove the space.",
    },
    Reason { name: "invalid_scheme", cause: "The scheme is not valid.", cure: "Use `http` or `https`." },
    Reason { name: "missing_host", cause: "The request names no host.", cure: "Send the header `Host`." },
    Reason { name: "duplicate_host", cause: "The request has two headers `Host`.", cure: "Send one." },
    Reason {
        name: "invalid_host",
        cause: "The host is not valid.",
        cure: "Correct the header `Host`, or the host of a rewrite.",
    },
    Reason {
        name: "host_mismatch",
        cause: "The host in the target differs from the header `Host`.",
        cure: "Send the same host in both.",
    },
    Reason {
        name: "length_of_tunnel",
        cause: "A request for a tunnel has a length.",
        cure: "Correct the client.",
    },
    Reason {
        name: "unknown_tunnel",
        cause: "The protocol of the tunnel is not supported.",
        cure: "Use WebSocket.",
    },
    Reason {
        name: "invalid_length",
        cause: "`Content-Length` is not a number.",
        cure: "Correct the client.",
    },
    Reason {
        name: "duplicate_length",
        cause: "The request has different values of `Content-Length`.",
        cure: "Send one.",
    },
    Reason {
        name: "length_and_transfer_encoding",
        cause: "The request has both `Content-Length` and `Transfer-Encoding`.",
        cure: "Send one of them.",
    },
    Reason {
        name: "invalid_transfer_encoding",
        cause: "`Transfer-Encoding` is malformed.",
        cure: "Correct the client.",
    },
    Reason {
        name: "unsupported_transfer_encoding",
        cause: "The transfer coding is not supported.",
        cure: "Use `chunked`.",
    },
    Reason {
        name: "transfer_encoding_in_http10",
        cause: "An HTTP/1.0 request has `Transfer-Encoding`.",
        cure: "Use HTTP/1.1.",
    },
    Reason {
        name: "too_many_connection_options",
        cause: "`Connection` has too many options.",
        cure: "Send fewer options.",
    },
    Reason {
        name: "unsupported_expectation",
        cause: "The expectation in `Expect` is not supported.",
        cure: "Send `Expect: 100-continue` or no `Expect`.",
    },
    Reason {
        name: "request_line_too_long",
        cause: "The request line is longer than the limit.",
        cure: "Shorten the URL, or raise the limit of request heads.",
    },
    Reason {
        name: "head_too_large",
        cause: "The head, or a text that a policy makes of it, is longer than the limit.",
        cure: "Send shorter headers or cookies, or raise the limit of request heads.",
    },
    Reason {
        name: "too_many_headers",
        cause: "The request has more headers than the limit.",
        cure: "Send fewer headers, or raise the limit.",
    },
    Reason {
        name: "invalid_escape",
        cause: "The path has a `%` without two hexadecimal digits.",
        cure: "Write `%25` for a percent sign.",
    },
    Reason { name: "nul_in_path", cause: "The path has a NUL byte.", cure: "Remove the byte." },
    Reason {
        name: "path_above_root",
        cause: "The path, or a rewritten path, leads above the root.",
        cure: "Remove the `..` segments.",
    },
    Reason {
        name: "encoded_dot_segment",
        cause: "The path has an encoded dot segment.",
        cure: "Remove the segment, or set `--allow-encoded-dot-segments`.",
    },
];
