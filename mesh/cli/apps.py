"""``mesh deploy``, ``scale``, ``undeploy``, ``apps`` and ``status``: apps of a running cluster."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mesh.cli.backfill import (
    BackfillOption,
    TimeOption,
    UntilOption,
    backfill_and_wait,
    describe,
    followed,
    inputs_of_deploy,
)
from mesh.cli.options import (
    AppArgument,
    CommandClient,
    FilesArgument,
    NameOption,
    OutputOption,
    VarOption,
    filled,
    parse_variables,
    takes_cluster,
)
from mesh.cli.output import (
    Output,
    because,
    counted,
    read_source,
    refusal,
    show,
    show_error,
    show_json,
    show_rows,
    show_table,
    shown_path,
)
from mesh.errors import MeshError, all_errors
from mesh.model import names
from mesh.model.names import app_of_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mesh.client import ClientContext
    from mesh.model.answers import InstanceAnswer
    from mesh.model.values import JsonObject


_PANEL = "Apps of a cluster"
#: Longest wait for a manager on this machine that is starting, seconds.
_MANAGER_S = 20.0

BeginOption = Annotated[
    str,
    typer.Option(
        "--from", metavar="PLACE",
        help="Start of a new app in existing streams: earliest, latest, a sequence, or a time like "
        "2026-11-21T20:00:00Z.",
    ),
]  # fmt: skip
ReplaceOption = Annotated[
    bool,
    typer.Option(
        "--replace", help="Remove an app of the same name first, with its channels and states."
    ),
]
ResetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reset", metavar="GROUP",
        help="Delete the state of this execution group of a running app; repeatable.",
    ),
]  # fmt: skip


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (deploy, scale, pause, resume, undeploy, status, streams, endpoints):
        app.command(rich_help_panel=_PANEL)(command)
    app.command("apps", rich_help_panel=_PANEL)(list_apps)


@takes_cluster
def deploy(
    files: FilesArgument,
    timeout: Annotated[
        float, typer.Option(help="Time to wait until it runs, seconds; 0 doesn't wait.")
    ] = 60.0,
    begin: BeginOption = "earliest",
    replace: ReplaceOption = False,
    reset: ResetOption = None,
    past: BackfillOption = None,
    column: TimeOption = None,
    until: UntilOption = None,
    var: VarOption = None,
    name: NameOption = None,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Deploy apps, and wait until all their instances run.

    A running app of the same name continues with the new text: changed groups restart at their
    positions, with the states of unchanged parts.  A change that would lose a state is refused
    until `--reset` names the group.  `mesh diff` shows the result in advance.

    Each of several files is deployed independently. The exit code is 1 if an app is refused or does
    not run in time; in the second case it stays deployed.

    Example: `mesh deploy examples/temperature.siddhi`
    """
    variables = parse_variables(var)
    if name and len(files) > 1:
        raise typer.BadParameter("is for one file", param_hint="--name")
    is_new = not (replace or reset or begin != "earliest" or len(files) > 1)
    inputs = inputs_of_deploy(past, column, until, is_new=is_new)
    done: list[JsonObject] = []
    with CommandClient(at) as client:
        client.wait_until_up(min(timeout, _MANAGER_S))
        for file in files:
            text = ""
            try:
                text = read_source(file)
                text = filled(text, variables, file, name)
                one = (
                    backfill_and_wait(client, at, text, inputs, timeout)
                    if inputs
                    else deploy_and_wait(
                        client, text, timeout, replace=replace, reset=reset or (), begin=begin,
                        at=at,
                    )
                )  # fmt: skip
            except MeshError as error:
                one = refusal(file, error)
                if output is not Output.JSON:
                    for fault in all_errors(error):
                        show_error(fault, text, shown_path(file))
            else:
                if output is not Output.JSON:
                    outcome = describe(one) if inputs else describe_deploy(one)
                    typer.echo(outcome + describe_guarantees(one))
            done.append(one)
    if output is Output.JSON:
        show_json(done[0] if len(files) == 1 else done)
    if any("error" in one or (timeout > 0 and not one["running"]) for one in done):
        raise typer.Exit(1)


def deploy_and_wait(
    client: CommandClient,
    text: str,
    timeout_s: float,
    *,
    replace: bool = False,
    reset: Sequence[str] = (),
    begin: str = "earliest",
    at: ClientContext | None = None,
) -> JsonObject:
    """Deploy ``text``; returns whether it runs, the time that took, and the status.

    A running app of its name is changed: with ``replace`` it is removed first, otherwise the groups
    of ``reset`` discard their states.  A new one reads from ``begin``.  With ``at``, the progress
    of a history that the text names is shown.
    """
    started_s = time.monotonic()
    options: Any = {"replace": replace, "reset": reset, "begin": begin}
    if at is not None and _has_history(text):
        # That may take long.
        done = followed(at, text, partial(client.patient().deploy, text, **options))
    else:
        done = client.deploy(text, **options)
    answer: JsonObject = {**done, "running": False, "status": None, "seconds": None}
    if timeout_s > 0:
        answer["status"] = client.wait_running(done["app"], timeout_s)
        answer["running"] = answer["status"]["state"] == "running"
    answer["seconds"] = round(time.monotonic() - started_s, 3)
    return answer


def _has_history(text: str) -> bool:
    """Whether a text names past events; a manager says what is wrong with another one."""
    from mesh.plan.history_source import history_inputs

    try:
        return bool(history_inputs(text))
    except (MeshError, KeyError):
        return False


@takes_cluster
def scale(
    app: AppArgument,
    group: Annotated[str, typer.Argument(help="Name of the group.", metavar="GROUP")],
    parallel: Annotated[int, typer.Argument(help="Number of instances.", metavar="N", min=1)],
    timeout: Annotated[
        float, typer.Option(help="Time to wait until they run, seconds; 0 doesn't wait.")
    ] = 60.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Run a group of an app in more or fewer instances, and wait until they run.

    Its state is kept: nothing is lost or doubled.  A group with state can be scaled if it is
    divided by key, up to the number of its partitions.

    Example: `mesh scale Temperature averages 4`
    """
    started_s = time.monotonic()
    with CommandClient(at) as client:
        answer = client.scale(app, group, parallel)
        if timeout > 0:
            answer = client.wait_running(app, timeout)
    took = f'app "{app}" is {answer["state"]} after {time.monotonic() - started_s:.1f} s'
    count = sum(i["group"] == group for i in answer["instances"])
    show(output, answer, f'{took}, group "{group}" has {count} instances{because(answer)}')
    if timeout > 0 and answer["state"] != "running":
        raise typer.Exit(1)


@takes_cluster
def pause(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Stop an app's instances; its channels, states and positions stay until `mesh resume`.

    Example: `mesh pause Temperature`
    """
    with CommandClient(at) as client:
        answer = client.switch(app, active=False)
    show(output, answer, f'app "{app}" is {answer["state"]}: {answer["reason"]}')


@takes_cluster
def resume(
    app: AppArgument,
    timeout: Annotated[
        float, typer.Option(help="Time to wait until it runs, seconds; 0 doesn't wait.")
    ] = 60.0,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """Continue a paused app where it stopped, and wait until it runs.

    Example: `mesh resume Temperature`
    """
    with CommandClient(at) as client:
        answer = client.switch(app, active=True)
        if timeout > 0:
            answer = client.wait_running(app, timeout)
    show(output, answer, f'app "{app}" is {answer["state"]}{because(answer)}')
    if timeout > 0 and answer["state"] != "running":
        raise typer.Exit(1)


@takes_cluster
def undeploy(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Stop an app and remove it, with the messages of its channels and its state.

    Example: `mesh undeploy Temperature`
    """
    with CommandClient(at) as client:
        done = client.undeploy(app)
    show(output, done, done["message"])


@takes_cluster
def list_apps(*, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """List the apps and their states.

    Example: `mesh apps --output json`
    """
    with CommandClient(at) as client:
        apps = client.apps()
    rows = [(app_of_token(app["app"]), app["state"], app.get("reason")) for app in apps]
    show_rows(output, apps, ("app", "state", "reason"), rows)


@takes_cluster
def status(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """Show an app's instances: workers, counters and lag.

    Example: `mesh status Temperature`
    """
    with CommandClient(at) as client:
        answer = client.status(app)
    if output is Output.JSON:
        show_json(answer)
        return
    typer.echo(f'app "{app_of_token(app)}" is {answer["state"]}{because(answer)}')
    if answer.get("cure"):
        typer.echo(f"  hint: {answer['cure']}")
    columns: tuple[str, ...] = (
        "instance", "worker", "state", "in", "out", "errors", "behind", "restarts", "batch ms p50",
    )  # fmt: skip
    stands_by = any(i.get("standby") or i.get("standby_reason") for i in answer["instances"])
    columns += ("standby",) if stands_by else ()
    rows = [
        (
            i["instance"], i.get("worker"), i.get("state"), i.get("events_in"),
            i.get("events_out"), i.get("errors"), i.get("behind"), i.get("restarts"),
            i.get("batch_ms_p50"), *([_standby(i)] if stands_by else []),
        )
        for i in answer["instances"]
    ]  # fmt: skip
    show_table(columns, rows)
    connectors = [
        (i["instance"], connector)
        for i in answer["instances"]
        for connector in i.get("connectors") or ()
    ]
    if connectors:
        show_table(
            ("instance", "source or sink", "address", "state", "position", "behind", "error"),
            [
                (name, d["name"], d.get("endpoint"), d["state"], d.get("position") or None,
                 d.get("behind"), d.get("error"))
                for name, d in connectors
            ],
        )  # fmt: skip
    for instance in answer["instances"]:
        if instance.get("error"):
            typer.echo(f"{instance['instance']}: {instance['error']}")
        if at_ms := instance.get("retry_at_ms"):
            again = datetime.fromtimestamp(at_ms / 1000, UTC)
            typer.echo(f"  it is started again at {again:%H:%M:%S} UTC")
        if instance.get("reason"):
            typer.echo(f"{instance['instance']}: {instance['reason']}")
            if instance.get("cure"):
                typer.echo(f"  hint: {instance['cure']}")


@takes_cluster
def streams(app: AppArgument, *, at: ClientContext, output: OutputOption = Output.TEXT) -> None:
    """List an app's streams on the wire: attributes, subjects and stored messages.

    Clients publish to the subject of an input, and read those of all. An app that writes a stream
    leaves markers in it, which count as messages.

    Example: `mesh streams Temperature`
    """
    with CommandClient(at) as client:
        answer = client.streams(app)
    rows = [
        (
            one["stream"], one["kind"], one["subject"], one["messages"],
            ", ".join(f"{name} {kind}" for name, kind in one["attributes"].items()),
        )
        for one in answer
    ]  # fmt: skip
    show_rows(output, answer, ("stream", "kind", "subject", "messages", "attributes"), rows)


@takes_cluster
def endpoints(
    failing: Annotated[
        bool, typer.Option("--failing", help="Only those that wait for their other side.")
    ] = False,
    *,
    at: ClientContext,
    output: OutputOption = Output.TEXT,
) -> None:
    """List the sources and sinks of all apps: workers, addresses, states and errors.

    A load balancer needs the addresses at which sources accept; after an outage of a broker or a
    database `--failing` shows which apps wait for it.

    Example: `mesh endpoints --failing`
    """
    with CommandClient(at) as client:
        answer = client.endpoints(failing=failing)
    rows = [
        (
            app_of_token(one["app"]), one["instance"], one["name"], one["endpoint"], one["worker"],
            one["state"], one["behind"], one["error"],
        )
        for one in answer
    ]  # fmt: skip
    columns = ("app", "instance", "source or sink", "address", "worker", "state", "behind", "error")
    show_rows(output, answer, columns, rows)


def _standby(instance: InstanceAnswer) -> str | None:
    if not instance.get("standby"):
        return instance.get("standby_reason")
    megabytes = instance.get("standby_bytes", 0) / 1e6
    return f"{instance['standby']} holds {megabytes:.1f} MB"


def describe_deploy(done: JsonObject) -> str:
    """The outcome of ``deploy_and_wait``, a sentence, its warnings."""
    warnings = [f"\n  warning: {one}" for one in done.get("warnings") or ()]
    return "".join([_outcome(done), *warnings])


def describe_guarantees(done: JsonObject) -> str:
    """Lines of what holds, and of each thing that does not, to follow the outcome."""
    first, *others = done.get("guarantees") or [""]
    if others:
        others.append("'mesh plan FILE --on-cluster' tells what to change")
    return "".join([f"\n  {first}" if first else "", *(f"\n    {line}" for line in others)])


def _outcome(done: JsonObject) -> str:
    name, status, seconds = names.app_of_token(done["app"]), done["status"], done["seconds"]
    again = "" if done.get("is_new", True) else " (the same text was deployed already)"
    if done.get("replaced"):
        again = " (it replaced another app)"
    if done.get("edited"):
        again = f"\n{_describe_edit(done['changes'])}"
    if done.get("past"):
        again += f"\n{describe(done['past'])}"
    if done["running"]:
        count = counted(len(status["instances"]), "instance")
        failing = [
            f"\n  {connector['name']} fails: {connector['error']}"
            for instance in status["instances"]
            for connector in instance.get("connectors") or ()
            if connector.get("error")
        ]
        ran = f'app "{name}" runs after {seconds:.1f} s: {count}{again}'
        return ran + "".join(failing)
    if status is None:
        return f'app "{name}" is deployed{again}'
    reason = status.get("reason") or "see 'mesh status'"
    if status.get("cure"):
        reason += f"\n  hint: {status['cure']}"
    return f'app "{name}" is deployed, but {status["state"]} after {seconds:.1f} s: {reason}{again}'


def _describe_edit(edit: JsonObject) -> str:
    """One line per group that restarts, starts or stops, with its reasons."""
    lines = []
    for group in edit["groups"]:
        if group["change"] != "same":
            reasons = f": {'; '.join(group['reasons'])}" if group["reasons"] else ""
            lines.append(f"  group {group['name']} is {group['change']}{reasons}")
            lines += [
                f"    {state['kind']} {state['name']} is {state['change']}"
                for state in group["states"]
            ]
    return "\n".join(lines)
