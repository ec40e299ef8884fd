"""Whether a broker serves, as told by its port alone."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

from raftctl.localcluster.ports import free_ports, is_free, serves

TIMEOUT_S = 0.1


def test_a_port_where_nobody_listens_serves_nothing() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    assert not serves(port, TIMEOUT_S)


def test_a_broker_that_keeps_its_clients_waiting_does_not_serve_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not serves(server.getsockname()[1], TIMEOUT_S)


def test_a_broker_that_answers_serves() -> None:
    def answer_one() -> bytes:
        connection, _ = server.accept()
        with connection:
            asked = connection.recv(100)
            connection.sendall(asked[8:12])
        return asked

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answer_one)
        assert serves(server.getsockname()[1], 10)
        assert asked.result() == bytes.fromhex("0000000a 0012 0000 00000000 ffff")
