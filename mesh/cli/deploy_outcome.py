"""Texts of the outcome of ``mesh deploy``: whether the app runs, changes of an edit, warnings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mesh.cli.backfill import describe
from mesh.cli.output import counted
from mesh.model import names

if TYPE_CHECKING:
    from mesh.model.values import JsonObject


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
