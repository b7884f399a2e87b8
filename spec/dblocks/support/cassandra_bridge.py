#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: the amqp-locks authors
#
# Executes CQL on one node of Cassandra, for Lua: cassandra_bridge.py ADDRESS PORT LISTEN
#
# Listens on LISTEN of 127.0.0.1. Each line of a connection is a question in JSON, and is answered by a line:
#   {"cql": text, "consistency": number, "serial_consistency": number, "page_size": number, "paging_state": hex}
#   {"rows": [...], "paging_state": hex}, or {"message": text, "code": number}; no code: Cassandra gave no answer in
#   20 seconds, or cannot be reached
# Errors are not retried, and timestamps are milliseconds, as with lua-cassandra.
import datetime
import json
import socketserver
import sys
import warnings

warnings.filterwarnings("ignore")

from cassandra import ConsistencyLevel, Unauthorized, InvalidRequest, Timeout, Unavailable  # noqa: E402
from cassandra import AlreadyExists, CoordinationFailure, FunctionFailure, ReadFailure, ReadTimeout  # noqa: E402
from cassandra.cluster import Cluster, ExecutionProfile, EXEC_PROFILE_DEFAULT  # noqa: E402
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, WhiteListRoundRobinPolicy  # noqa: E402
from cassandra.query import SimpleStatement, dict_factory  # noqa: E402

# The driver has classes where the protocol has codes; the first that matches.
CODES = [(Unavailable, 0x1000), (ReadTimeout, 0x1200), (Timeout, 0x1100), (ReadFailure, 0x1300),
         (FunctionFailure, 0x1400), (CoordinationFailure, 0x1500), (Unauthorized, 0x2100), (AlreadyExists, 0x2400),
         (InvalidRequest, 0x2200)]


class Bridge:
    def __init__(self, address, port):
        profile = ExecutionProfile(load_balancing_policy=WhiteListRoundRobinPolicy([address]), request_timeout=20,
                                   retry_policy=FallthroughRetryPolicy(), row_factory=dict_factory)
        self.cluster = Cluster([address], port=port, protocol_version=4, connect_timeout=30,
                               reconnection_policy=ConstantReconnectionPolicy(0.2, None),
                               execution_profiles={EXEC_PROFILE_DEFAULT: profile})
        self.session = self.cluster.connect()

    def execute(self, question):
        statement = SimpleStatement(question["cql"], consistency_level=question.get("consistency", ConsistencyLevel.ONE),
                                    serial_consistency_level=question.get("serial_consistency", ConsistencyLevel.SERIAL),
                                    fetch_size=question.get("page_size", 1000))
        state = question.get("paging_state")
        result = self.session.execute(statement, paging_state=bytes.fromhex(state) if state else None)
        page = result.paging_state
        return {"rows": [plain(row) for row in result.current_rows], "paging_state": page.hex() if page else None}


def plain(value):
    if isinstance(value, datetime.datetime):
        return round((value - datetime.datetime(1970, 1, 1)).total_seconds() * 1000)
    if hasattr(value, "items"):
        return {key: plain(each) for key, each in value.items()}
    return value


def code(error):
    number = getattr(error, "error_code", None)
    return number or next((number for kind, number in CODES if isinstance(error, kind)), None)


class Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True

    def handle(self):
        for line in self.rfile:
            try:
                answer = self.server.bridge.execute(json.loads(line))
            except Exception as error:
                answer = {"message": f"{type(error).__name__}: {error}", "code": code(error)}
            try:
                self.wfile.write(json.dumps(answer).encode() + b"\n")
            except OSError:
                return


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64


if __name__ == "__main__":
    bridge = Bridge(sys.argv[1], int(sys.argv[2]))
    with Server(("127.0.0.1", int(sys.argv[3])), Connection) as server:
        server.bridge = bridge
        server.serve_forever()
