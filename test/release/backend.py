"""The server behind the gateway, at port 3000 of the machine of the tests."""

import http.server


class Hello(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body in one packet, without Nagle's delay.
    wbufsize = -1

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"hello\n")
        self.wfile.flush()

    def log_message(self, *_: object) -> None:
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", 3000), Hello).serve_forever()
