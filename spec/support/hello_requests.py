#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
"""hello_requests.py PAUSE: a TLS peer that answers each client's first message with HelloRequests only, which TLS
tells clients to ignore. They come every PAUSE seconds, or without a pause if it is 0. It needs no key. It prints its
port, and ends at the end of standard input."""
import socket
import sys
import threading
import time

HELLO_REQUEST = b"\x16\x03\x03\x00\x04\0\0\0\0"
PAUSE = float(sys.argv[1])


def serve(client):
    try:
        client.recv(65536)
        while True:
            client.sendall(HELLO_REQUEST if PAUSE else HELLO_REQUEST * 2000)
            time.sleep(PAUSE)
    except OSError:
        client.close()


def accept(listener):
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()


server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
threading.Thread(target=accept, args=(server,), daemon=True).start()
sys.stdin.read()
