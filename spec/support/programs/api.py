# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors

"""A management API that has bad days.

    api.py [CERTIFICATE KEY]
    api.py HOST

It listens on the loopback, by TLS with a certificate, and prints its port; on HOST that is 15672, and the first part of
the path is "api", which gets what /fine gets if the user is "fine". The first part of a path says what every
request gets; "turns" gets one answer after the other, by turns of a whole table, and the last of them for ever:

    /fine/...              an API without locks
    /503/... (a number)    this status; of 3xx with a Location
    /page/..., /object/..., /none/...    status 200, with HTML, with another JSON, with nothing
    /silent/...            no answer
    /closed/...            the connection is closed
    /turns,fine,503/...    what the words say; a table without failures takes three requests, and /whoami before the first
"""
import base64
import http.server
import ssl
import sys
import threading

FINE = "Basic " + base64.b64encode(b"fine:p@ss/").decode()
WHO = b'{"name":"x","tags":["monitoring"]}'
turns = {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if 300 <= status < 400:
            self.send_header("Location", "https://elsewhere.invalid/api")
        self.end_headers()
        self.wfile.write(body)

    def turn(self, words, page):
        """The user is not looked at. A table goes on to the next turn at its last page, or at its failure."""
        at = turns.setdefault(self.path.split("/")[1], [0])
        word = words[min(at[0], len(words) - 1)]
        if page.startswith("channels") or word != "fine":
            at[0] += 1
        return word

    def do_GET(self):
        how, _, page = self.path[1:].partition("/")
        words = how.split(",")
        if how == "api":
            how = "fine" if self.headers["Authorization"] == FINE else "401"
        if words[0] == "turns":
            how = "fine" if page == "whoami" else self.turn(words[1:], page)
        if how == "fine":
            self.answer(200, WHO if page == "whoami" else b"[]")
        elif how.isdigit():
            self.answer(int(how), b'{"error":"e","reason":"because \\u001b[31m"}')
        elif how in ("page", "object", "none"):
            self.answer(200, {"page": b"<html>Hello</html>", "object": b'{"a":1}', "none": b""}[how])
        elif how == "silent":
            threading.Event().wait()
        else:
            self.close_connection = True

    def log_message(self, *_):
        pass


place = ("127.0.0.1", 0) if len(sys.argv) != 2 else (sys.argv[1], 15672)
server = http.server.ThreadingHTTPServer(place, Handler)
server.daemon_threads = True
if len(sys.argv) > 2:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[1], sys.argv[2])
    server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
