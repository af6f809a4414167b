"""Fixtures for all tests, and the groups in which processes share the tests among them."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
from collections import Counter
from typing import TYPE_CHECKING

import certifi
import pytest
from hypothesis import settings

from mesh.files import scratch
from mesh.jetstream import server
from tests.support import together
from tests.support.certificates import Authority
from tests.support.environment import alone as alone
from tests.support.environment import environment as environment
from tests.support.groups import GroupScheduling, rank_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from xdist.remote import Producer

    from tests.support.agents import Cluster
    from tests.support.idp import IdentityProvider
    from tests.support.shared_query import Hand, OwnQuery
    from tests.support.sockets import OpenSockets

# One commit has one outcome: examples are drawn alike in every run, and a slow machine fails none.
# `--hypothesis-profile=search` looks for new ones.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("few", settings.get_profile("same"), max_examples=12)
settings.register_profile("search", deadline=None, print_blob=True)
settings.load_profile("same")


def pytest_configure(config: pytest.Config) -> None:
    """The default tier draws an eighth of the examples of each property."""
    # Tests import gRPC before the product does, whose children would now and then be aborted by its
    # handlers of forks: see mesh/receiver/grpc_server.py.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    together.select(config.option.case)
    if "not thorough" in config.option.markexpr and not config.option.hypothesis_profile:
        settings.load_profile("few")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collection without the garbage collector, which then ignores what lives to the end.

    Later it looks rarely: tests make many objects, few of them in cycles.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 10, 10)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the slowest groups come first, and mark as thorough what no sample contains."""
    items.sort(key=lambda item: rank_of(item.nodeid))
    numbers: Counter[str] = Counter()
    for item in items:
        sampled = item.get_closest_marker("sampled")
        if sampled is not None:
            function = item.nodeid.partition("[")[0]
            if numbers[function] % sampled.args[0]:
                item.add_marker(pytest.mark.thorough)
            numbers[function] += 1


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine has an event loop of its own; its fixtures are outside of it."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    """Share the tests among processes by groups."""
    return GroupScheduling(config, log)


@pytest.fixture(scope="session", autouse=True)
def temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Temporary files of all processes of the tests are below pytest's own directory."""
    path = tmp_path_factory.mktemp("tmp")
    scratch.redirect(path)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={path} -XX:-UsePerfData"


@pytest.fixture(scope="session", autouse=True)
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """HTTP clients here trust one authority: to load the world's takes each of them 20 ms."""
    trusted = Authority(tmp_path_factory.mktemp("authority")).cert
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(certifi, "where", lambda: str(trusted))
        yield


@pytest.fixture(scope="session")
def sockets() -> OpenSockets:
    """Which sockets the loops of this process have opened."""
    from tests.support.sockets import OpenSockets

    watched = OpenSockets()
    watched.watch()
    return watched


@pytest.fixture(autouse=True)
def closed_sockets(sockets: OpenSockets) -> Iterator[None]:
    """No test leaves a socket open: first of its fixtures, so that it looks when all have ended."""
    yield
    left = sockets.left()
    assert not left, "sockets were left open:\n" + "\n".join(left)


@pytest.fixture
def nats_arguments() -> list[str]:
    """Arguments of the server of a test."""
    return []


@pytest.fixture
def nats_server(
    request: pytest.FixtureRequest, tmp_path: Path, nats_arguments: list[str]
) -> Iterator[server.NatsServer]:
    """A server with JetStream on a free port, with its own store, gone after the test."""
    restarts = request.node.get_closest_marker("restarts")
    # A port of the kernel's may be another process's by the time of the second start.
    port = server.free_port() if restarts else 0
    running = server.start(tmp_path / "nats", port=port, arguments=nats_arguments)
    yield running
    running.stop()


@pytest.fixture(scope="session")
def idp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IdentityProvider]:
    """One identity provider for all tests; each has refresh tokens of its own."""
    from tests.support.idp import identity_provider

    with identity_provider(tmp_path_factory.mktemp("idp") / "idp") as made:
        yield made


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[str], server.NatsServer]]:
    """Start a server with a configuration; all end with the test."""
    running: list[server.NatsServer] = []

    def start(configuration: str) -> server.NatsServer:
        directory = tmp_path / f"nats{len(running)}"
        directory.mkdir()
        path = directory / "nats.conf"
        path.write_text(configuration)
        running.append(server.start(directory, arguments=["-c", str(path)]))
        return running[-1]

    yield start
    for one in running:
        one.stop()


@pytest.fixture
def cluster(nats_server: server.NatsServer, tmp_path: Path) -> Iterator[Cluster]:
    """Managers and agents on that server, none yet; they end with the test."""
    from tests.support.agents import Cluster

    found = Cluster(nats_server, tmp_path)
    yield found
    found.end()


@pytest.fixture
def hand(tmp_path: Path, nats_server: server.NatsServer) -> Iterator[Hand]:
    """A shared query without Spark."""
    from tests.support.shared_query import Hand

    made = Hand(tmp_path, nats_server)
    yield made
    made.end()


@pytest.fixture
def own_queries(monkeypatch: pytest.MonkeyPatch) -> list[OwnQuery]:
    """The instances that were given queries of their own."""
    from mesh.spark.shared_query import instance
    from tests.support.shared_query import OwnQuery

    OwnQuery.made = []
    monkeypatch.setattr(instance, "DedicatedInstance", OwnQuery)
    return OwnQuery.made


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--rewrite``: write the results into case files; commit only a diff that you understand.

    ``--secured``: servers of end-to-end tests have TLS, client certificates and roles.
    ``--case``: of the tests of many cases (tests/support/together.py) these cases.
    """
    parser.addoption("--case", default="", help="run only cases whose id contains this text")
    parser.addoption("--rewrite", action="store_true", help="rewrite expectations of case files")
    parser.addoption(
        "--secured",
        action="store_true",
        help="end-to-end tests use three servers with TLS, client certificates and roles",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite case files with the results."""
    return bool(request.config.getoption("--rewrite"))
