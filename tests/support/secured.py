"""NATS servers as ``mesh nats-config`` writes them: TLS, client certificates, and roles."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import io
import json
import re
import secrets
import ssl
from typing import TYPE_CHECKING, Any, Final

import httpx
from nats.js import JetStreamContext

from mesh.cli.nats_config import nats_config
from mesh.model import names
from mesh.model.nats_roles import NatsRole, inbox
from mesh.settings import ChannelSettings, NatsSettings
from tests.support.certificates import Authority, Pair
from tests.support.nats_cluster import Cluster
from tests.support.planted import (
    Planted,
    RecordedAnswers,
    address,
    look_at_answers,
    look_at_command_lines,
    look_at_files,
)
from tools.cluster import MeshCluster, MeshClusterView, watching

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mesh.jetstream.server import NatsServer
    from tests.support.nats_cluster import Node

#: Clients in accounts of their own.
PUBLISHER, READER, ASKER = "publisher", "reader", "asker"
#: A worker's credential that may publish to subjects besides those of the mesh.
FEEDER: Final = "feeder"
#: Time limit of an acknowledgement, seconds.
_PUBLISH_S: Final = 60.0
_HERE: Final = "127.0.0.1"
#: A worker without Spark.
_HOST: Final = "r1"
_ROLES: Final = frozenset({*NatsRole, FEEDER})
#: A sink that sends a secret to nobody: its worker knows the value, and reports a failure.
_SPY: Final = """@App:name('Spy')
define stream Read (a int);
@sink(type='http', publisher.url='http://127.0.0.1:9/', headers="'Key:${secret:planted}'",
      @map(type='json'))
define stream Sent (a int);
from Read select a insert into Sent;
"""


class Secured:
    """Certificates, the folder of ``mesh nats-config``, and who connects with what."""

    def __init__(
        self,
        directory: Path,
        servers: Sequence[str],
        *,
        addresses: Sequence[str] = (_HERE,),
        outside: Sequence[str] = (),
    ) -> None:
        """Make all of them.

        Args:
            directory: that they are made in.
            servers: their names.
            addresses: of servers, for their certificate.
            outside: subjects of the feeder, which are none of the mesh.
        """
        directory.mkdir(parents=True)
        self.directory = directory
        self._folder = directory / "nats"
        self._authority = Authority(directory)
        self.server = self._authority.issue("server", hosts=tuple(addresses))
        write = functools.partial(
            nats_config,
            self._folder,
            server=[f"{name}={name}" for name in servers],
            publisher=[f"{PUBLISHER}=*.*"],
            reader=[f"{READER}=*.*"],
            asker=[f"{ASKER}=*"],
            tls_cert=str(self.server.cert),
            tls_key=str(self.server.key),
            tls_ca=str(self.ca),
        )
        _quietly(write)
        state = self._folder / "roles.json"
        known = json.loads(state.read_text())
        known["users"][FEEDER] = {"role": NatsRole.WORKER, "keys": [], "sinks": list(outside)}
        state.write_text(json.dumps(known))
        _quietly(write)
        self.certificates: dict[str, Pair] = {}

    @property
    def ca(self) -> Path:
        """The certificate of the authority."""
        return self._authority.cert

    def text(
        self, name: str, listen: tuple[str, int], routes: Mapping[str, tuple[str, int]]
    ) -> str:
        """The configuration of a server as it was written, with addresses and accounts put in.

        Args:
            name: of the server.
            listen: address for clients.
            routes: addresses of all servers for each other, by name.
        """
        text = (self._folder / f"{name}.conf").read_text()
        text = text.replace("0.0.0.0:4222", "{}:{}".format(*listen))
        text = text.replace("0.0.0.0:6222", "{}:{}".format(*routes[name]))
        for other, (host, port) in routes.items():
            text = re.sub(rf"@{re.escape(other)}:6222", f"@{host}:{port}", text)
        # Where the server's data is follows from the directory of the test.
        text = re.sub(r"^jetstream .*\n", "", text, flags=re.MULTILINE)
        accounts = (self._folder / "accounts.conf").read_text()
        return text.replace("include accounts.conf", accounts)

    def pair(self, name: str) -> Pair:
        """The certificate of a process or a client."""
        if name not in self.certificates:
            self.certificates[name] = self._authority.issue(f"of-{name}")
        return self.certificates[name]

    def secrets(self) -> dict[str, str]:
        """The seeds of all users, and the password of the servers for each other."""
        seeds = (self._folder / "keys").glob("*.nk")
        known = json.loads((self._folder / "roles.json").read_text())
        return {
            "password of routes": known["route_password"],
            **{f"seed of {path.stem}": path.read_text().strip() for path in seeds},
        }

    def settings(self, user: str, url: str, process: str = "") -> NatsSettings:
        """The connection of a user; ``process`` names the certificate, the user by default."""
        pair = self.pair(process or user)
        role = NatsRole.WORKER if user == FEEDER else user
        return NatsSettings(
            url=url.replace("nats://", "tls://"),
            nkey_seed_file=str(self._folder / "keys" / f"{user}.nk"),
            inbox_prefix=inbox(NatsRole(role)) if user in _ROLES else "",
            tls_ca=str(self.ca),
            tls_cert=str(pair.cert),
            tls_key=str(pair.key),
        )

    def contexts(self, process: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """TLS of a link between a process and the servers: as a server, and as the process."""
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.ca))
        server.verify_mode = ssl.CERT_REQUIRED
        server.load_cert_chain(self.server.cert, self.server.key)
        client = ssl.create_default_context(cafile=str(self.ca))
        client.load_cert_chain(self.pair(process).cert, self.pair(process).key)
        return server, client


def _quietly(write: Callable[[], None]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        write()


class SecuredServers(Cluster):
    """Three servers with the configuration of ``mesh nats-config``."""

    def __init__(self, directory: Path, outside: Sequence[str] = ()) -> None:
        self.secured = Secured(directory / "secured", ("n1", "n2", "n3"), outside=outside)
        super().__init__(directory)

    @property
    def keepers(self) -> list[Path]:
        """Files and directories that keep secrets."""
        files = [node.directory / "nats.conf" for node in self.nodes.values()]
        return [self.secured.directory, *files]

    def _configuration(self, node: Node, route: int) -> str:
        del route
        routes = {f"n{at}": (_HERE, port) for at, port in enumerate(self._routes, start=1)}
        http = f"http: 127.0.0.1:{node.http_port}\n"
        return http + self.secured.text(node.name, (_HERE, node.port), routes)


class SecuredCluster(MeshCluster):
    """A manager and workers on three such servers, each process with its own credentials.

    A third worker, r1, has no Spark and the credentials of a receiver.  At its end no secret of it
    may be in a command line, a log, a state, a stream, or an answer to an HTTP request: of all that
    were sent meanwhile, and of all routes.
    """

    channels = ChannelSettings(replicas=3)

    def __init__(
        self,
        directory: Path,
        workers: int = 2,
        *,
        environment: Mapping[str, str] | None = None,
        outside: Sequence[str] = ("orders.>", "prices"),
    ) -> None:
        self._outside = outside
        key = directory / "key"
        key.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
        given = {"MESH_SECRETS_KEY_FILE": str(key), **(environment or {})}
        self._answers = RecordedAnswers()
        self._answers.start()
        super().__init__(directory, workers, environment=given)
        self.start_worker(_HOST, MESH_WORKER_SPARK="false")

    def _start_servers(self, arguments: Sequence[str]) -> NatsServer:
        assert not arguments, "their configuration is that of mesh nats-config"
        self.servers = SecuredServers(self.directory / "nats", self._outside)
        found = self.servers.nodes["n1"].running
        assert found is not None
        return found

    def settings(self, user: str, process: str = "") -> NatsSettings:
        """The connection of a user with its credentials."""
        user = str(NatsRole.RECEIVER) if process == _HOST else user
        return self.servers.secured.settings(user, self.servers.urls(), process)

    def stop(self) -> None:
        """End everything in order, and look for secrets in what it leaves."""
        planted = Planted(self.servers.secured.secrets())
        try:
            asyncio.run(self._look(planted))
        finally:
            self._answers.stop()
            super().stop()
            self.servers.stop()
        # Streams are files of the servers.
        look_at_files(planted, self.directory, 10, self.servers.keepers)
        self._answers.look(planted)
        assert not planted.seen, planted.seen

    async def _look(self, planted: Planted) -> None:
        """Have an app use a secret, and look at command lines and all routes while it runs."""
        planted.values["secret of an app"] = value = secrets.token_urlsafe(18)
        async with watching(self.settings(NatsRole.MANAGER)) as (client, records):
            view = MeshClusterView(self, client, records)
            api = await address(view)
            async with httpx.AsyncClient(base_url=api, timeout=60) as http:

                async def is_stored() -> bool:
                    # On a busy machine NATS may not answer in time.
                    answer = await http.put("/secrets/planted", content=value.encode())
                    assert answer.is_success or answer.status_code == 503, answer.text
                    return answer.is_success

                await view.until("a stored secret", is_stored)
                text = {"Content-Type": "text/plain"}
                deployed = await http.post("/siddhi-apps", content=_SPY, headers=text)
                assert deployed.is_success, deployed.text
                # Workers with Spark may be gone by now.
                await client.jetstream().publish(names.subject("Spy", "Sent"), b'{"a": 1}')

                async def has_failed() -> bool:
                    return "127.0.0.1:9" in (await http.get("/siddhi-apps/Spy/status")).text

                await view.until("a failed request", has_failed)
                apps = [one["app"] for one in (await http.get("/siddhi-apps?details=true")).json()]
            assert "Spy" in apps
            look_at_command_lines(planted)
            await asyncio.to_thread(look_at_answers, planted, api, None, apps)


class ClientsPublish(JetStreamContext):
    """JetStream as a manager sees it, whose events come from clients with little permission."""

    def __init__(self, manager: Any, publisher: Any, feeder: Any) -> None:
        super().__init__(manager)
        # Three copies on a busy machine take their time.
        self._publisher = publisher.jetstream(timeout=_PUBLISH_S)
        self._feeder = feeder.jetstream(timeout=_PUBLISH_S)

    async def publish(self, subject: str, *arguments: Any, **options: Any) -> Any:
        """Publish as the publisher, or as the feeder to what is no subject of the mesh."""
        is_event = subject.startswith(f"{names.ROOT}.")
        client = self._publisher if is_event else self._feeder
        return await client.publish(subject, *arguments, **options)
