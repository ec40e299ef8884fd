"""Programs of clients in other languages, installed or built on first use."""

from __future__ import annotations

import shlex
import shutil
from functools import cache
from typing import TYPE_CHECKING

from tests.peers.tools import HERE, INSTALL_TIMEOUT_S, installed, need, run

if TYPE_CHECKING:
    from pathlib import Path

KAFKAJS = HERE / "kafkajs"
_JAVA = HERE / "java"
_POM = _JAVA / "pom.xml"
_GO_NAMES = ("go.mod", "go.sum", "main.go", "group.go", "member.go", "secured.go")
_GO_SOURCES = [HERE / "franzgo" / name for name in _GO_NAMES]
QUICK_JAVA = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m")
UTF_8 = ("-Dfile.encoding=UTF-8", "-Dstdout.encoding=UTF-8")
TOOLS = "org.apache.kafka.tools"


def kafkajs_modules() -> Path:
    """What NODE_PATH must be for programs that use kafkajs."""
    need("node", "npm")
    package = KAFKAJS / "package.json"
    return installed("kafkajs", package.read_text(), _install_kafkajs) / "node_modules"


def _install_kafkajs(folder: Path) -> None:
    shutil.copy(KAFKAJS / "package.json", folder)
    run(["npm", "install", "--no-audit", "--no-fund"], folder=folder, timeout_s=INSTALL_TIMEOUT_S)


@cache
def franz_go_program() -> Path:
    """The program of `franzgo/`."""
    need("go")
    recipe = "".join(source.read_text() for source in _GO_SOURCES)
    return installed("franz-go", recipe, _build_franz_go) / "peer"


def _build_franz_go(folder: Path) -> None:
    for source in _GO_SOURCES:
        shutil.copy(source, folder)
    run(["go", "build", "-o", "peer", "."], folder=folder, timeout_s=INSTALL_TIMEOUT_S)


def compiled(program: str, jars: str) -> Path:
    """The folder with the classes of a program of `java/`, compiled with a class path."""
    need("javac")
    source = _JAVA / f"{program}.java"

    def compile_it(folder: Path) -> None:
        run(["javac", "-cp", jars, "-d", folder, source])

    return installed(f"java-{program.lower()}", source.read_text() + jars, compile_it)


class JavaTools:
    """The tools of one release of Apache Kafka."""

    def __init__(self, version: str) -> None:
        need("java", "mvn")
        self.version = version
        self.jars = installed(f"java-{version}", _POM.read_text() + version, self._install)
        """The folder of its jars."""

    def _install(self, folder: Path) -> None:
        goals = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        options = ["-q", "-B", "-f", str(_POM), f"-Dkafka.version={self.version}"]
        run(["mvn", *options, *goals], timeout_s=INSTALL_TIMEOUT_S)

    def __call__(self, tool: str, *arguments: str, stdin: str = "") -> str:
        """Runs a tool and returns what it printed."""
        return run([*self._java(str(self.jars)), f"{TOOLS}.{tool}", *arguments], stdin=stdin)

    def home(self, folder: Path) -> Path:
        """The folder, with the start scripts that a distribution has for the verifiable tools."""
        for tool in ("Producer", "Consumer"):
            path = folder / "bin" / f"kafka-verifiable-{tool.lower()}.sh"
            path.parent.mkdir(exist_ok=True)
            command = shlex.join([*self._java(str(self.jars)), f"{TOOLS}.Verifiable{tool}"])
            path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            path.chmod(0o755)
        return folder

    def copier(self) -> list[str]:
        """The command of `java/Copy.java`, compiled for this release."""
        classes = compiled("Copy", f"{self.jars}/*")
        return [*self._java(f"{classes}:{self.jars}"), "Copy"]

    def _java(self, jars: str) -> list[str]:
        return ["java", *QUICK_JAVA, *UTF_8, "-cp", f"{jars}/*"]
