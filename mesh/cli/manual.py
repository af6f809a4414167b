"""Manual pages of the commands, in roff's man macros: one of ``mesh``, one of each command.

Texts are those of ``--help``, and the details of a command and of its cluster's address in
docs/cli.md, so nothing is written twice.

Source: groff_man(7); man-pages(7) for the sections and their order.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import mesh
from mesh.files import shipped

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Chapters of docs/cli.md that belong to the page of ``mesh`` itself.
_OF_MESH: Final = ("Address of the cluster",)
#: The type of a parameter's value, unless it lists choices.
_TYPE: Final = re.compile(r" <[^|]*>$")
_EXIT: Final = "0 success, 1 an error (on standard error), 2 wrong usage."


def manual() -> dict[str, str]:
    """The pages by their paths below a directory of manuals, as ``man1/mesh-deploy.1``."""
    from typer.main import get_command

    from mesh.cli.commands import app

    root: Any = get_command(app)
    context = root.make_context("mesh", [], resilient_parsing=True)
    chapters = _chapters(shipped.path_of("docs/cli.md").read_text("utf-8"))
    pages = {"man1/mesh.1": "".join(_of_root(root, context, chapters))}
    for name, command in root.commands.items():
        lines = _of_command(name, command, context, chapters)
        pages[f"man1/mesh-{name}.1"] = "".join(lines)
    return pages


def _of_root(root: Any, context: object, chapters: dict[str, str]) -> Iterator[str]:
    first, _, rest = root.help.partition("\n\n")
    yield from _head("mesh", "a mesh of streaming apps on NATS")
    yield f".SH SYNOPSIS\n.B mesh\n.I COMMAND\n.RI [ OPTIONS ]\n.SH DESCRIPTION\n{_text(first)}\n"
    yield f".PP\n{_text(rest)}\n"
    yield ".SH COMMANDS\n"
    for name, command in root.commands.items():
        yield f".TP\n.BR mesh\\-{_plain(name)} (1)\n{_text(_summary(command))}\n"
    yield from _parameters(root, context)
    for title in _OF_MESH:
        yield f".SH {_plain(title.upper())}\n{_roff(chapters[title])}"
    yield f".SH EXIT STATUS\n{_text(_EXIT)}\n"
    yield ".SH FILES\n.TP\n.I .mesh/dev\nData, logs and addresses of the cluster of mesh dev.\n"
    yield ".TP\n.I ~/.config/mesh/context.json\nAddress and password of the last one.\n"
    yield ".SH SEE ALSO\n.B mesh help\nlists the pages of the documentation.\n"


def _of_command(
    name: str, command: Any, context: object, chapters: dict[str, str]
) -> Iterator[str]:
    yield from _head(f"mesh-{name}", _summary(command).rstrip("."))
    sub_context = command.make_context(name, [], context, resilient_parsing=True)
    members = getattr(command, "commands", {})
    yield ".SH SYNOPSIS\n"
    if not members:
        yield _synopsis(f"mesh {name}", command, sub_context)
    for member, one in members.items():
        under = one.make_context(member, [], sub_context, resilient_parsing=True)
        yield _synopsis(f"mesh {name} {member}", one, under)
    yield f".SH DESCRIPTION\n{_roff(command.help or '')}"
    yield from _parameters(command, sub_context)
    for member, one in members.items():
        under = one.make_context(member, [], sub_context, resilient_parsing=True)
        yield f".SH {_plain(f'mesh {name} {member}'.upper())}\n{_roff(one.help or '')}"
        yield from _parameters(one, under, ".SS")
    if name.capitalize() in chapters:
        yield f".SH DETAILS\n{_roff(chapters[name.capitalize()])}"
    yield f".SH EXIT STATUS\n{_text(_EXIT)}\n.SH SEE ALSO\n.BR mesh (1)\n"


def _head(name: str, about: str) -> Iterator[str]:
    yield f'.TH {_plain(name.upper())} 1 "" "mesh {mesh.__version__}" "mesh"\n'
    yield f".SH NAME\n{_plain(name)} \\- {_plain(about.replace('`', ''))}\n"


def _summary(command: Any) -> str:
    return " ".join((command.help or "").partition("\n\n")[0].split())


def _synopsis(name: str, command: Any, context: object) -> str:
    words = [f"\\fB{_plain(name)}\\fP"]
    for one in command.get_params(context):
        if one.param_type_name == "argument":
            shown = f"\\fI{_plain((one.metavar or one.name.upper()).strip('[]'))}\\fP"
            words.append(shown if one.required else f"[{shown}]")
    return " ".join([*words, "[\\fIOPTIONS\\fP]"]) + "\n.br\n"


def _parameters(command: Any, context: object, heading: str = ".SH") -> Iterator[str]:
    pairs = [(one, one.get_help_record(context)) for one in command.get_params(context)]
    for kind, title in (("argument", "ARGUMENTS"), ("option", "OPTIONS")):
        records = [record for one, record in pairs if record and one.param_type_name == kind]
        if records:
            yield f"{heading} {title}\n"
        for names, about in records:
            bold = re.sub(r"(--?[\w-]+)", r"`\1`", _TYPE.sub("", names))
            yield f".TP\n{_text(bold)}\n{_text(about)}\n"


def _chapters(page: str) -> dict[str, str]:
    """The texts of a page's chapters and their parts, by title."""
    parts = re.split(r"^##+ (.+)\n", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _roff(markdown: str) -> str:
    """Markdown as roff: paragraphs, lists, tables as lists, and blocks of code."""
    from rich.markdown import Markdown

    return "".join(_blocks(Markdown(markdown).parsed))


def _blocks(tokens: list[Any]) -> Iterator[str]:
    cells: list[str] = []
    before = ".PP\n"
    is_heading = False
    for token in tokens:
        match token.type:
            case "fence" | "code_block":
                lines = (_guarded(_plain(line)) for line in token.content.splitlines())
                yield ".PP\n.RS 4\n.nf\n" + "".join(f"{line}\n" for line in lines) + ".fi\n.RE\n"
            case "list_item_open":
                before = ".IP \\(bu 2\n"
            case "tr_open":
                cells = []
            case "td_open":
                cells.append("")
            case "inline" if cells and cells[-1] == "":
                cells[-1] = _text(token.content)
            case "tr_close" if cells:
                first, *others = cells
                yield f".TP\n{first}\n{'; '.join(filter(None, others))}\n"
                cells = []
            case "thead_open":
                # Rows become a list, which has no headings.
                is_heading = True
            case "thead_close":
                is_heading = False
            case "inline" if not is_heading:
                yield f"{before}{_text(token.content)}\n"
                before = ".PP\n"


def _text(text: str) -> str:
    """A text with code in bold and links as their words, as one line."""
    words = re.sub(r"\[([^]]*)\]\([^)\s]*\)", r"\1", " ".join(text.split()))
    parts = re.split(r"`([^`]*)`", re.sub(r"\*\*(.+?)\*\*", r"`\1`", words))
    shown = (f"\\fB{_plain(one)}\\fP" if i % 2 else _plain(one) for i, one in enumerate(parts))
    return _guarded("".join(shown))


def _plain(text: str) -> str:
    return text.replace("\\", "\\e").replace("-", "\\-")


def _guarded(line: str) -> str:
    """A line that begins with no request of roff."""
    return f"\\&{line}" if line.startswith((".", "'")) else line
