"""A whole cluster on this machine: nats-server, one manager, workers, as children of this process.

Children are started from the main thread, which lives as long as the process: the kernel ends
them when it ends, however it does (``die_with_parent``).  Elsewhere than on Linux each child looks
itself whether its parent is still there (``watch_parent``).

Users of the NATS server of ``mesh dev``, and the ports and passwords that it keeps.

The processes of the mesh have nkeys, new at each start.  The commands of this machine's user, a
publisher and a reader have passwords, as a URL with a password serves any client; these are kept.

Ports and passwords of ``mesh dev``, kept from the first start of a directory on.

They are in a file that its owner alone may read.  Without it the next start makes others.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import fcntl
import logging
import os
import platform
import secrets
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import orjson

from mesh import mesh_name
from mesh.clock import SystemClock
from mesh.errors import MeshError
from mesh.files.private_files import write_private
from mesh.jetstream import server
from mesh.jetstream.accounts import NatsUser, accounts, new_key
from mesh.model.addresses import split_list
from mesh.model.nats_roles import ClientGrant, NatsRole, StreamGrant, inbox
from mesh.processes.bounded_process import die_with_parent
from mesh.settings import FunctionSettings, NatsSettings, ReceiverSettings, Settings, to_yaml

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import BinaryIO

    from mesh.client import ClientContext

log = logging.getLogger(__name__)

_PARENT_VARIABLE = "MESH_PARENT_PID"
#: A child that ends sooner than this after its start is not started again.
_RESTART_AFTER_S = 5.0
#: Apps of this machine's user bind the addresses that they name, and reach its other programs.
_LISTEN = "*:1024-65535"
_EGRESS = "*:1-65535,localhost:1-65535,127.0.0.1:1-65535,[::1]:1-65535"
_STOP_S = 10.0


@dataclass(frozen=True, slots=True)
class LocalPlan:
    """Processes to start, with their directory and ports."""

    directory: Path
    workers: int
    settings: Settings
    #: 0 for a free port; None for that of the directory's last start.
    nats_port: int | None = 0
    api_port: int | None = 0
    log_level: str = "INFO"
    #: Whether apps wait for the usual native loops only, where none is compiled yet.
    usual_loops: bool = False


@dataclass
class Child:
    """A process of the cluster."""

    name: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes]
    started_s: float
    restarts: int = 0


@dataclass
class LocalCluster:
    """A running cluster; ``stop`` ends it in order."""

    plan: LocalPlan
    nats: server.NatsServer
    context: ClientContext
    children: list[Child]
    lock: BinaryIO
    keys: LocalKeys
    #: Remarks about the start, a sentence each.
    notes: tuple[str, ...] = ()
    #: Called for each child that ended unexpectedly.
    on_loss: Callable[[str], None] = field(default=log.warning)

    def watch_once(self) -> None:
        """Report children that ended; start workers again.

        Raises:
            MeshError: MESH-U140 when NATS or the manager ended, or a worker did right after its
                start.
        """
        if self.nats.process.poll() is not None:
            raise self._lost("nats-server", self.nats.process.returncode, self.nats.log)
        for index, child in enumerate(self.children):
            code = child.process.poll()
            if code is None:
                continue
            lived_s = time.monotonic() - child.started_s
            if child.name == "manager" or lived_s < _RESTART_AFTER_S:
                raise self._lost(child.name, code, child.log)
            self.on_loss(f"{child.name} ended with {_code(code)}; it is started again")
            self.children[index] = _start_child(
                child.name, child.command, child.environment, child.log, child.restarts + 1
            )

    async def watch(self) -> None:
        """Watch the children until cancelled."""
        while True:
            self.watch_once()
            await asyncio.sleep(0.2)

    def stop(self) -> None:
        """End workers, manager and NATS in this order; kill those that take too long."""
        for is_manager in (False, True):
            chosen = [c for c in self.children if (c.name == "manager") == is_manager]
            _stop([c.process for c in chosen])
        self.nats.stop()
        self.lock.close()

    def _lost(self, name: str, code: int, path: Path) -> MeshError:
        return MeshError(
            "MESH-U140",
            f"{name} ended with {_code(code)}",
            detail=f"Its last lines: {_tail(path)}",
            hint=f"{path} says more.",
        )


def start(plan: LocalPlan) -> LocalCluster:
    """Start all processes; returns when they exist, which is before they are ready.

    Raises:
        MeshError: MESH-U141 when another cluster uses the directory, MESH-N1* when nats-server
            can't be started.
    """
    from mesh.api import users
    from mesh.client import context as contexts
    from mesh.http.certificate import has_days_left, self_signed

    directory = plan.directory.absolute()
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = lock_directory(directory)
    mine = read(directory)
    nats_port, nats_note = choose_port("NATS", plan.nats_port, mine.nats_port, NATS_PORT)
    api_port, api_note = choose_port("the REST API", plan.api_port, mine.api_port, API_PORT)
    keys = make(directory / "nats", mine)
    nats = server.start(
        directory / "nats", port=nats_port, arguments=["-c", str(keys.configuration)]
    )
    started: list[Child] = []
    try:
        settings = settings_of(plan, nats.url, directory, api_port or server.free_port())
        config = directory / "mesh.yaml"
        write_private(config, to_yaml(settings))
        # A cold Spark session needs 7 to 14 s, so the workers start first.
        worker = keys.login(NatsRole.WORKER)
        if plan.usual_loops:
            # Reads all sources of loops.
            from mesh.operators import loop_cache

            worker = {**worker, loop_cache.USUAL_VARIABLE: "1"}
        for number in range(1, plan.workers + 1):
            name = f"worker-{number}"
            command = ["worker", "--id", name]
            started.append(_mesh(name, command, config, directory, worker))
        password = mine.password("dev", 12)
        users.add(Path(settings.manager.users_file), "dev", password)
        now_ms = SystemClock().wall_ms()
        if not has_days_left(directory / "api.crt", directory / "api.key", now_ms):
            self_signed(directory, now_ms)
        # The port of one start, in whose place another program listens, stays that of the others.
        mine.nats_port = mine.nats_port if nats_note else nats.port
        mine.api_port = mine.api_port if api_note else settings.manager.port
        mine.write(directory)
        command = ["manager", "--id", "manager-1"]
        started.append(_mesh("manager", command, config, directory, keys.login(NatsRole.MANAGER)))
    except BaseException:
        _stop([child.process for child in started])
        nats.stop()
        raise
    access = contexts.ClientContext(
        server=f"https://localhost:{settings.manager.port}",
        user="dev",
        password=password,
        ca=settings.manager.tls_cert,
        nats=nats.url,
        nats_user=NatsRole.OPERATOR,
        nats_password=keys.passwords[NatsRole.OPERATOR],
        nats_inbox_prefix=inbox(NatsRole.OPERATOR),
        mesh="" if settings.mesh.name == mesh_name.DEFAULT else settings.mesh.name,
        data=str(directory),
        publisher=keys.url(PUBLISHER, nats.url),
        reader=keys.url(READER, nats.url),
    )
    notes = tuple(filter(None, (nats_note, api_note)))
    return LocalCluster(plan, nats, access, started, lock, keys, notes)


def choose_port(name: str, requested: int | None, last: int, default: int) -> tuple[int, str]:
    """The port of a start, 0 for a free one; and a remark if it is not that of the last start."""
    if requested is not None:
        return requested, ""
    if is_free(last or default):
        return last or default, ""
    if not last:
        return 0, ""
    return 0, f"port {last} of {name} is in use; this start has another one"


def watch_parent() -> None:
    """In a child: end this process with its parent, where the kernel does not do it."""
    expected = os.environ.get(_PARENT_VARIABLE)
    if expected is None or platform.system() == "Linux":
        return

    def look() -> None:
        while os.getppid() == int(expected):
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=look, name="watch-parent", daemon=True).start()


def settings_of(plan: LocalPlan, nats_url: str, directory: Path, api_port: int) -> Settings:
    """Settings of the processes: those of the plan, and the rights of this machine's user."""
    base = plan.settings
    is_default = base.receiver.listen == ReceiverSettings().listen
    stated_s = base.channels.sync_interval_s
    return replace(
        base,
        # The login of each process is in its environment.
        nats=NatsSettings(
            nats_url,
            connect_timeout_s=base.nats.connect_timeout_s,
            ping_interval_s=base.nats.ping_interval_s,
        ),
        channels=replace(
            base.channels, sync_interval_s=server.SYNC_INTERVAL_S if stated_s < 0 else stated_s
        ),
        manager=replace(
            base.manager,
            host="127.0.0.1",
            port=api_port,
            tls_cert=str(directory / "api.crt"),
            tls_key=str(directory / "api.key"),
            users_file=str(directory / "users"),
            # The only user of this API is the one who may read these files.
            history_dir=base.manager.history_dir or os.getcwd(),
            history_databases=base.manager.history_databases or "*:1-65535",
        ),
        receiver=replace(
            base.receiver,
            file_roots=base.receiver.file_roots or os.getcwd(),
            files_closed=",".join([*split_list(base.receiver.files_closed), str(directory)]),
            listen=_LISTEN if is_default else base.receiver.listen,
            egress=base.receiver.egress or _EGRESS,
        ),
        secrets=replace(
            base.secrets, key_file=base.secrets.key_file or str(_secrets_key(directory))
        ),
        # The apps are those of this machine's user, and run as that user.
        functions=FunctionSettings(python=True),
        log=replace(base.log, level=plan.log_level),
    )


def _secrets_key(directory: Path) -> Path:
    """The key of the secrets, which stays with the data of NATS that it encrypts."""
    path = directory / "secrets.key"
    if not path.exists():
        write_private(path, base64.b64encode(secrets.token_bytes(32)).decode())
    return path


def _mesh(
    name: str, arguments: list[str], config: Path, directory: Path, login: dict[str, str]
) -> Child:
    # The file includes the environment's values; the children must not read them twice.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MESH_")}
    environment[_PARENT_VARIABLE] = str(os.getpid())
    environment["MESH_WORKER_STATE_DIR"] = str(directory / "state")
    environment |= login
    command = [sys.executable, "-m", "mesh.cli", *arguments, "--config", str(config)]
    return _start_child(name, command, environment, directory / f"{name}.log")


def _start_child(
    name: str, command: list[str], environment: dict[str, str], path: Path, restarts: int = 0
) -> Child:
    with path.open("ab") as file:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            # Only this process handles Ctrl-C on the terminal; it ends the others in order.
            start_new_session=True,
            preexec_fn=die_with_parent(),
        )
    return Child(name, command, environment, path, process, time.monotonic(), restarts)


def _stop(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.terminate()
    deadline_s = time.monotonic() + _STOP_S
    for process in processes:
        try:
            process.wait(max(0.1, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def lock_directory(directory: Path) -> BinaryIO:
    """Keep other clusters from a directory until the file is closed.

    Raises:
        MeshError: MESH-U141, another one runs there.
    """
    lock = (directory / "lock").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        lock.close()
        raise MeshError(
            "MESH-U141",
            f'directory "{directory}" is in use by another cluster',
            hint="--data names another one.",
        ) from error
    return lock


def in_use(directory: Path) -> bool:
    """Whether a cluster runs in ``directory``."""
    try:
        lock_directory(directory).close()
    except MeshError:
        return True
    return False


def _code(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _tail(path: Path) -> str:
    try:
        return " / ".join(path.read_text(errors="replace").splitlines()[-3:]) or "none"
    except OSError:
        return "none"


PUBLISHER, READER = "publisher", "reader"

#: Ports of a directory's first start if they are free: those of NATS and of managers elsewhere.
NATS_PORT: Final = 4222
API_PORT: Final = 9543
_FILE: Final = "kept.json"


@dataclass
class DevState:
    """Ports and passwords of a directory; 0 and empty before the first start."""

    nats_port: int = 0
    api_port: int = 0
    #: By the name of the user, of NATS and of the API.
    passwords: dict[str, str] = field(default_factory=dict, repr=False)

    def password(self, name: str, size: int = 24) -> str:
        """The password of a user, made at the first call."""
        # Roles are texts of a type of their own, which JSON has not.
        return self.passwords.setdefault(str(name), secrets.token_urlsafe(size))

    def write(self, directory: Path) -> None:
        """Keep them."""
        write_private(directory / _FILE, orjson.dumps(asdict(self)).decode() + "\n")


def read(directory: Path) -> DevState:
    """The values that a directory has kept; none if there is no such file, or another one."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        state = DevState(**orjson.loads((directory / _FILE).read_bytes()))
        if all(isinstance(one, int) for one in (state.nats_port, state.api_port)):
            return state
    return DevState()


def is_free(port: int) -> bool:
    """Whether a server can listen on a port of this machine now."""
    with socket.socket() as probe, contextlib.suppress(OSError):
        # As servers do: connections of an earlier one, which end slowly, are no obstacle.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", port))
        return True
    return False


@dataclass(frozen=True, slots=True)
class LocalKeys:
    """Keys and passwords of one start."""

    configuration: Path
    #: Paths of the seeds of processes.
    seeds: dict[NatsRole, Path]
    #: Of the others, by name.
    passwords: dict[str, str] = field(repr=False)

    def login(self, role: NatsRole) -> dict[str, str]:
        """The environment of a process of a role."""
        return {
            "MESH_NATS_NKEY_SEED_FILE": str(self.seeds[role]),
            "MESH_NATS_INBOX_PREFIX": inbox(role),
            "MESH_RECEIVER_NKEY_SEED_FILE": str(self.seeds[NatsRole.CONNECTOR]),
        }

    def url(self, name: str, url: str) -> str:
        """The URL of NATS for a user with a password."""
        return url.replace("//", f"//{name}:{quote(self.passwords[name], safe='')}@")


def make(directory: Path, state: DevState) -> LocalKeys:
    """Make keys, and the server's configuration with them and the passwords that are kept.

    They are in files that their owner alone may read: arguments of a process can be read by all
    users of the machine, and any of them could connect otherwise.
    """
    directory.mkdir(exist_ok=True, mode=0o700)
    users: list[NatsUser] = []
    seeds: dict[NatsRole, Path] = {}
    for role in (NatsRole.MANAGER, NatsRole.WORKER, NatsRole.CONNECTOR):
        seed, public = new_key()
        seeds[role] = directory / f"{role}.nk"
        write_private(seeds[role], seed)
        users.append(NatsUser(role, role, (public,)))
    every = (StreamGrant("*", "*"),)
    others: dict[str, NatsRole | ClientGrant] = {
        NatsRole.OPERATOR: NatsRole.OPERATOR,
        PUBLISHER: ClientGrant(publish=every),
        READER: ClientGrant(read=every, query=("*",)),
    }
    passwords: dict[str, str] = {}
    for name, of in others.items():
        passwords[name] = state.password(name)
        users.append(NatsUser(name, of, password=passwords[name]))
    path = directory / "nats.conf"
    write_private(path, accounts(users))
    return LocalKeys(path, seeds, passwords)
