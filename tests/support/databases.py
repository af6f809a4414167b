"""Real databases for tests: PostgreSQL, MariaDB and Redis of this machine, and files of SQLite.

Each server has a directory of its own and a free port, and ends with the tests.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pymysql
import pytest
import sqlalchemy as sa

from mesh.jetstream import server
from mesh.model.stored import Backend
from mesh.plan.redis_stores import redis_of
from mesh.plan.stores import database_of
from mesh.processes.bounded_process import die_with_parent
from mesh.store.engine import engine_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mesh.model.stored import Database

USER, PASSWORD, NAME = "mesh", "secret-of-the-store", "TestDB"
#: Programs of PostgreSQL: the machine's newest, or those that `make test-matrix` names.
POSTGRESQL = Path(
    os.environ.get("MESH_TEST_POSTGRESQL")
    or max(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda path: int(path.parent.name),
        default="/usr/lib/postgresql",
    )
)
_STARTS = 400
#: Of databases in Redis.
_numbers = itertools.count(1)


@cache
def has_xml() -> bool:
    """Whether PostgreSQL was built with XML, by the options of its build, which it knows."""
    program = POSTGRESQL / "postgres"
    return not program.exists() or b"--with-libxml" in program.read_bytes()


@dataclass(slots=True)
class DatabaseServer:
    """A server that can be killed and started again."""

    backend: Backend
    port: int
    command: list[str]
    #: Raises while it does not answer.
    ask: Callable[[], None]
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdout=log, stderr=log, preexec_fn=die_with_parent()
            )
        reason: Exception | None = None
        for _ in range(_STARTS):
            try:
                self.ask()
            except (psycopg.OperationalError, pymysql.OperationalError, OSError) as error:
                reason = error
                try:
                    # Ends early if the server has ended.
                    self.process.wait(0.1)
                    break
                except subprocess.TimeoutExpired:
                    continue
            else:
                return
        raise AssertionError(f"{self.command[0]} does not start: {reason}: {self.log.read_text()}")

    def kill(self) -> None:
        """End it as a power failure would, as far as a process can."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def url(self, name: str) -> str:
        """The URL of a database, for JDBC if there is one."""
        if self.backend is Backend.REDIS:
            return f"redis://127.0.0.1:{self.port}/{name}"
        return f"jdbc:{self.backend}://127.0.0.1:{self.port}/{name}"


@contextmanager
def postgresql() -> Iterator[DatabaseServer]:
    """A server of PostgreSQL, which refuses to run as root."""
    if not (POSTGRESQL / "postgres").exists():
        pytest.skip("PostgreSQL is not installed")
    as_user = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]
    as_user = as_user if os.geteuid() == 0 else []
    with _directory() as directory:
        if as_user:
            shutil.chown(directory, "nobody", "nogroup")
        data, port = directory / "data", server.free_port()
        (directory / "password").write_text(PASSWORD)
        (directory / "password").chmod(0o644)
        subprocess.run(
            [
                *as_user, str(POSTGRESQL / "initdb"), "-D", str(data), "-U", USER, "-A",
                "scram-sha-256", f"--pwfile={directory}/password", "-E", "UTF8", "--no-sync",
            ],
            check=True, capture_output=True,
        )  # fmt: skip
        command = [
            *as_user, str(POSTGRESQL / "postgres"), "-D", str(data), "-p", str(port), "-k",
            str(directory), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off",
            "-c", "wal_level=logical",
        ]  # fmt: skip

        def ask() -> None:
            psycopg.connect(
                host="127.0.0.1", port=port, user=USER, password=PASSWORD, dbname="postgres"
            ).close()

        running = DatabaseServer(Backend.POSTGRESQL, port, command, ask, directory / "log")
        try:
            running.start()
            yield running
        finally:
            _stop(running)


@contextmanager
def mariadb() -> Iterator[DatabaseServer]:
    """A server of MariaDB."""
    if shutil.which("mariadbd") is None:
        pytest.skip("MariaDB is not installed")
    with _directory() as directory:
        data, port = directory / "data", server.free_port()
        own = ["--user=root"] if os.geteuid() == 0 else []
        subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db", *own],
            check=True, capture_output=True,
        )  # fmt: skip
        first = directory / "first.sql"
        first.write_text(
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            f"GRANT ALL ON *.* TO '{USER}'@'%';\n"
        )
        command = [
            "mariadbd", "--no-defaults", f"--datadir={data}", f"--port={port}", *own,
            "--bind-address=127.0.0.1", f"--socket={directory}/socket", "--skip-name-resolve",
            f"--init-file={first}", "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M", "--log-bin=log", "--binlog-format=ROW",
            "--server-id=1", "--sync-binlog=0",
        ]  # fmt: skip

        def ask() -> None:
            pymysql.connect(host="127.0.0.1", port=port, user=USER, password=PASSWORD).close()

        running = DatabaseServer(Backend.MYSQL, port, command, ask, directory / "log")
        try:
            running.start()
            yield running
        finally:
            _stop(running)


@contextmanager
def redis() -> Iterator[DatabaseServer]:
    """A server of Redis, which logs each change."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed")
    client = pytest.importorskip("redis")
    with _directory() as directory:
        port = server.free_port()
        command = [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory),
            "--requirepass", PASSWORD, "--databases", "1000", "--save", "", "--appendonly", "yes",
            "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip

        def ask() -> None:
            asking = client.Redis(port=port, password=PASSWORD)
            try:
                asking.ping()
            except client.RedisError as error:
                raise OSError(str(error)) from None
            finally:
                asking.close()

        running = DatabaseServer(Backend.REDIS, port, command, ask, directory / "log")
        try:
            running.start()
            yield running
        finally:
            _stop(running)


@dataclass(frozen=True, slots=True)
class TestDatabase:
    """A new database, empty at first."""

    __test__ = False

    url: str
    database: Database

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """The rows of a query."""
        with engine_of(self.database).connect() as connection:
            return [tuple(row) for row in connection.execute(sa.text(text)).all()]

    def store(self, **options: str) -> str:
        """The annotation ``@store`` with this database."""
        is_redis = self.database.backend is Backend.REDIS
        given = {"type": "rdbms", "jdbc.url": self.url}
        given = {"type": "redis", "url": self.url, "password": PASSWORD} if is_redis else given
        given |= options
        if self.database.username:
            given |= {"username": USER, "password": PASSWORD}
        elements = ", ".join(f"{name}='{value}'" for name, value in given.items())
        return f"@store({elements})"


def new_database(
    running: DatabaseServer | None, directory: Path, name: str, settings: str = ""
) -> TestDatabase:
    """A database of a server, made with ``settings``, or a file of SQLite."""
    if running is None:
        url = f"jdbc:sqlite:{directory}/{name}.db"
        return TestDatabase(url, database_of(url, None, None))
    if running.backend is Backend.REDIS:
        url = running.url(str(next(_numbers)))
        return TestDatabase(url, redis_of(url, "", PASSWORD))
    admin = database_of(
        running.url("postgres" if running.backend is Backend.POSTGRESQL else "mysql"),
        USER, PASSWORD,
    )  # fmt: skip
    engine = engine_of(admin).execution_options(isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE IF EXISTS {name}"))
        connection.execute(sa.text(f"CREATE DATABASE {name} {settings}"))
    url = running.url(name.lower() if running.backend is Backend.POSTGRESQL else name)
    return TestDatabase(url, database_of(url, USER, PASSWORD))


@contextmanager
def _directory() -> Iterator[Path]:
    # Other users may not enter the directories of pytest.
    directory = Path(tempfile.mkdtemp(prefix="mesh-database-", dir="/tmp"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _stop(running: DatabaseServer) -> None:
    if running.process is not None and running.process.poll() is None:
        running.kill()
