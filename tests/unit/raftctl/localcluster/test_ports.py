"""Whether a broker serves, as told by its port alone."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from raftctl.errors import ConfigError
from raftctl.localcluster.layout import HOST
from raftctl.localcluster.ports import free_ports, is_free, serves
from tests.kit.certificates import Authority

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S = 0.1


def test_a_port_where_nobody_listens_serves_nothing() -> None:
    (port,) = free_ports(1)
    assert is_free(port)
    assert not serves(HOST, port, TIMEOUT_S)


def test_processes_side_by_side_are_given_different_ports() -> None:
    """Also those on which nothing listens yet."""
    program = (
        "from raftctl.localcluster.ports import free_ports\n"
        "print(*free_ports(240), flush=True)\n"
        "input()"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        theirs = {int(port) for port in other.stdout.readline().split()}
        ours = free_ports(240)
        other.communicate("\n")
    assert len(theirs) == len(set(ours)) == 240
    assert not theirs.intersection(ours)


def test_a_process_is_given_a_port_again_only_after_all_others() -> None:
    assert not set(free_ports(120)).intersection(free_ports(120))


def test_more_ports_than_there_are_is_refused() -> None:
    with pytest.raises(ConfigError, match="no 250 free ports between 20000 and 32000"):
        free_ports(250)


def test_a_broker_that_keeps_its_clients_waiting_does_not_serve_yet() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not serves(HOST, server.getsockname()[1], TIMEOUT_S)


def test_a_broker_that_answers_serves() -> None:
    def answer_one() -> bytes:
        connection, _ = server.accept()
        with connection:
            asked = connection.recv(100)
            connection.sendall(asked[8:12])
        return asked

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answer_one)
        assert serves(HOST, server.getsockname()[1], 10)
        assert asked.result() == bytes.fromhex("0000000a 0012 0000 00000000 ffff")


@pytest.mark.req("S2")
@pytest.mark.parametrize("asks_for_certificates", [False, True])
def test_a_broker_that_speaks_tls_serves(tmp_path: Path, asks_for_certificates: bool) -> None:
    authority = Authority()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue().store(tmp_path / "node.pem"))
    if asks_for_certificates:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.store(tmp_path / "ca.pem"))

    def answer_one() -> None:
        plain, _ = server.accept()
        with plain, contextlib.suppress(ssl.SSLError):
            connection = context.wrap_socket(plain, server_side=True)
            connection.sendall(connection.recv(100))
            connection.close()

    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(answer_one)
        assert serves(HOST, server.getsockname()[1], 10, encrypted=True)
        asked.result()


def test_what_does_not_answer_in_tls_does_not_serve() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not serves(HOST, server.getsockname()[1], TIMEOUT_S, encrypted=True)
