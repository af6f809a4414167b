"""Profiles of the development stack: a database, metrics of the cluster, an identity provider."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import subprocess
import time
import urllib.request
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from mesh.jetstream.server import free_port
from tests.stack.test_stack import OUT_S, Stack, commands_of, docker, reason_to_skip
from tests.support.machines import base_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.docker, pytest.mark.timeout(1500)]

#: The images of the profiles, from Debian's packages, where no registry has them.
LOCAL = {
    "PROMETHEUS": """FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends prometheus
RUN install -d -o 65534 /prometheus
WORKDIR /prometheus
USER 65534
ENTRYPOINT ["prometheus", "--storage.tsdb.path=/prometheus"]
CMD ["--config.file=/etc/prometheus/prometheus.yml"]
""",
    "POSTGRES": """FROM {base}
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql-15
ENV PATH=/usr/lib/postgresql/15/bin:$PATH
RUN install -d -o postgres /var/lib/postgresql/data
USER postgres
CMD ["sh", "-c", "cd /var/lib/postgresql/data && (test -s PG_VERSION || initdb -D . \
 -U $POSTGRES_USER --pwfile=$POSTGRES_PASSWORD_FILE --auth-host=scram-sha-256 \
 --auth-local=trust && echo host all all all scram-sha-256 >> pg_hba.conf) \
 && exec postgres -D . -c listen_addresses=*"]
""",
}
OFFICIAL = {"PROMETHEUS": "prom/prometheus:v2.53.0", "POSTGRES": "postgres:15"}


def local_image(name: str) -> str:
    """An image of a profile: the official one if the engine has it, else one of Debian's."""
    if not docker("image", "inspect", OFFICIAL[name]).returncode:
        return OFFICIAL[name]
    base = base_image()
    tag = f"mesh-test-{name.lower()}"
    said = subprocess.run(
        ["docker", "build", "--network", "host", "-t", tag, "-"],
        input=LOCAL[name].format(base=base), capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    if said.returncode:
        pytest.skip(f"neither {OFFICIAL[name]} nor packages of Debian: {said.stderr[-200:]}")
    return tag


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The services of the profiles with what they depend on: the servers and one manager."""
    reason = reason_to_skip("nats", "manager", "idp")
    if reason is not None:
        pytest.skip(reason)
    stack = Stack(tmp_path_factory.mktemp("stack"), f"meshtest{os.getpid()}p")
    stack.environment |= {f"MESH_{name}_IMAGE": local_image(name) for name in LOCAL}
    stack.environment |= {
        "COMPOSE_PROFILES": "store,metrics,idp",
        "MESH_PROMETHEUS_PORT": str(free_port()),
    }
    try:
        stack.compose("up", "-d", "prometheus", "postgres", "idp")
        yield stack
    finally:
        stack.compose("down", "-v", "--timeout", "5")


def test_prometheus_has_the_nodes_and_the_rules(stack: Stack) -> None:
    def asked(query: str) -> list[Any]:
        url = f"http://127.0.0.1:{stack.environment['MESH_PROMETHEUS_PORT']}/api/v1/{query}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            data = json.load(answer)["data"]
        return list(data.get("result") or data.get("groups") or ())

    deadline_s = time.monotonic() + OUT_S
    # A scrape is every 5 s.
    while True:
        with contextlib.suppress(OSError):
            if [one["metric"]["node"] for one in asked("query?query=mesh_node_up==1")]:
                break
        assert time.monotonic() < deadline_s, "Prometheus has no nodes"
        time.sleep(0.5)
    assert [node["id"] for node in stack.values("nodes")] == ["m1"]
    (rules,) = asked("rules")
    assert len(rules["rules"]) >= 6


def test_the_database_takes_the_password_of_the_volume(stack: Stack) -> None:
    sql = "select current_user, 6 * 7"
    shell = (
        f'PGPASSWORD="$(cat $POSTGRES_PASSWORD_FILE)" '
        f'psql -h "$(hostname)" -U mesh -d postgres -Atc "{sql}"'
    )
    deadline_s = time.monotonic() + OUT_S
    # Compose does not wait for the health of a service that no other one depends on.
    while (said := docker("exec", stack.container("postgres"), "sh", "-c", shell)).returncode:
        assert time.monotonic() < deadline_s, said.stderr
        time.sleep(0.5)
    assert said.stdout == "mesh|42\n"


def answer_of(url: str, authority: Path, token: str = "") -> httpx.Response:
    trusted = ssl.create_default_context(cafile=authority)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return httpx.get(url, verify=trusted, headers=headers, timeout=30)


def test_a_user_of_the_identity_provider_is_one_of_the_cluster(stack: Stack) -> None:
    keys, ports = stack.folder / ".mesh" / "stack", stack.environment
    deadline_s = time.monotonic() + OUT_S
    while True:
        with contextlib.suppress(httpx.HTTPError):
            answer_of(f"https://localhost:{ports['MESH_IDP_PORT']}/", keys / "idp.crt")
            break
        assert time.monotonic() < deadline_s, "the provider does not answer"
        time.sleep(0.5)
    # The page starts the whole stack; the fixture has started a part of it.
    up, *commands = commands_of("Users of an identity provider")
    assert up == "make up PROFILES=idp"
    assert "m1" in stack.shell(stack.with_ports("\n".join(commands)))

    token = json.loads((stack.folder / "answer.json").read_text())["access_token"]
    api = f"https://localhost:{ports['MESH_API_PORT']}"
    assert answer_of(f"{api}/siddhi-apps", keys / "api.crt", token).status_code == 200
    head, signature = token.rsplit(".", 1)
    forged = f"{head}.{signature[::-1]}"
    assert answer_of(f"{api}/siddhi-apps", keys / "api.crt", forged).status_code == 401
    # The manager reads the provider's endpoints by the name that a browser of the host has too.
    led = answer_of(f"{api}/login/oidc", keys / "api.crt")
    page = f"https://idp.localhost:{ports['MESH_IDP_PORT']}/authorize?"
    assert (led.status_code, led.headers["location"].startswith(page)) == (303, True)
