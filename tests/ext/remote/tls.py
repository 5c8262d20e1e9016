#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
# promise: honest-11
"""Reads from a TLS server on the loopback interface: tls.py PROGRAM FOLDER.

Its certificate is trusted only if the program names it. One object redirects to a server without
TLS, which must not receive a request. Skipped (77) if openssl is not installed to create the
certificate."""
import http.server
import os
import pathlib
import shutil
import ssl
import subprocess
import sys
import threading

CONTENT = b"0123456789"
asked_without_tls = []


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        if not isinstance(self.connection, ssl.SSLSocket):
            asked_without_tls.append(self.path)
        if self.path == "/down":
            self.send_response(302)
            self.send_header("Location", self.server.plain + "/x")
            self.send_header("Content-Length", "0")
        else:
            self.send_response(200)
            self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()

    def log_message(self, *_):
        pass


def served(context=None):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if not shutil.which("openssl"):
        print("skipped: there is no openssl")
        sys.exit(77)
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=penstock", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout",
                    folder / "key.pem", "-out", folder / "certificate.pem"],
                   check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    plain, secure = served(), served(context)
    secure.plain = f"http://127.0.0.1:{plain.server_address[1]}"
    done = subprocess.run(
        [program, "[tls]"], env={**os.environ, "PENSTOCK_TLS_PORT": str(secure.server_address[1]),
                                 "PENSTOCK_TLS_CA": str(folder / "certificate.pem")})
    if asked_without_tls:
        print("asked without TLS:", asked_without_tls)
    sys.exit(done.returncode != 0 or bool(asked_without_tls))


if __name__ == "__main__":
    main()
