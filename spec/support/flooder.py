#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
"""flooder.py PORT [CERT KEY]: a relay in front of the broker at that port. It uses TLS towards its clients if there is
a certificate. It prints its own port. After the first line from standard input, clients receive nothing from the broker
any more, but heartbeats without a pause. The relay ends at the end of standard input."""
import contextlib
import socket
import ssl
import sys
import threading

HEARTBEATS = b"\x08\0\0\0\0\0\0\xce" * 131072

floods = threading.Event()


def copy(source, target):
    """Copies the client's bytes, and their end."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


def read_exactly(source, count):
    data = b""
    while len(data) < count:
        more = source.recv(count - len(data))
        if not more:
            raise OSError("the broker has hung up")
        data += more
    return data


def answer(broker, client):
    """Copies the broker's bytes frame by frame, then sends heartbeats."""
    try:
        broker.settimeout(0.05)
        while not floods.is_set():
            try:
                head = broker.recv(7, socket.MSG_PEEK)
            except TimeoutError:
                continue
            if not head:
                raise OSError("the broker has hung up")
            broker.settimeout(5)
            head = read_exactly(broker, 7)
            client.sendall(head + read_exactly(broker, int.from_bytes(head[3:7], "big") + 1))
            broker.settimeout(0.05)
        while True:
            client.sendall(HEARTBEATS)
    except OSError:
        client.close()


def serve(listener, port, context):
    while True:
        client, _ = listener.accept()
        broker = socket.create_connection(("127.0.0.1", port))
        for one in client, broker:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context:
            client = context.wrap_socket(client, server_side=True)
        for act, source, target in (copy, client, broker), (answer, broker, client):
            threading.Thread(target=act, args=(source, target), daemon=True).start()


def main(port, *certificate):
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener, int(port), context), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    if sys.stdin.readline():
        floods.set()
        print("floods", flush=True)
        sys.stdin.read()


main(*sys.argv[1:])
