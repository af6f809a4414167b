"""Many small cases in one test: what pytest does for a test takes longer than such a case.

``@together("a, b", CASES)`` stands where ``@pytest.mark.parametrize("a, b", CASES)`` stood.  All
cases run, and the test fails with one error for each case that failed, its id in a note.
``pytest --case TEXT`` runs the cases whose id contains the text.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: So many errors are shown in full; of the others the ids.
_SHOWN_MAX: Final = 10

#: What ``pytest.param`` makes.
_Parameter: Final[Any] = type(pytest.param())
_selected: str = ""


def select(text: str) -> None:
    """Run only cases whose id contains ``text``; ids of stacked decorators are joined by ``-``."""
    global _selected
    _selected = text


def together(
    names: str | Sequence[str],
    cases: Iterable[Any],
    ids: Callable[[Any], object] | Iterable[str] | None = None,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for all ``cases``, given as ``pytest.mark.parametrize`` has them.

    ``ids`` are texts, or a function of a value; those of ``pytest.param`` take precedence.  All
    cases get the same fixtures of the test.
    """
    arguments = [one.strip() for one in names.split(",")] if isinstance(names, str) else names
    cases = list(cases)
    listed = [_values(case, len(arguments)) for case in cases]
    assert listed, "no case: the test would pass"
    own = [case.id if isinstance(case, _Parameter) else None for case in cases]
    if ids is None or callable(ids):
        texts = ["-".join(str((ids or str)(value)) for value in values) for values in listed]
    else:
        texts = list(ids)
    texts = [mine or text for mine, text in zip(own, texts, strict=True)]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        # Stacked decorators are one list of cases.
        inner = getattr(test, "cases", [("", {})])
        product = [
            (
                f"{text}-{rest}" if more else text,
                {**dict(zip(arguments, case, strict=True)), **more},
            )
            for rest, more in inner
            for text, case in zip(texts, listed, strict=True)
        ]
        alone = getattr(test, "__wrapped__", test)

        @functools.wraps(alone)
        def run(**fixtures: Any) -> None:
            _run([(name, functools.partial(alone, **given, **fixtures)) for name, given in product])

        signature = inspect.signature(alone)
        given = {name for _, case in product for name in case}
        kept = [one for name, one in signature.parameters.items() if name not in given]
        run.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        run.cases = product  # type: ignore[attr-defined]
        return run

    return decorate


def _values(case: Any, count: int) -> tuple[Any, ...]:
    if isinstance(case, _Parameter):
        assert not case.marks, "marks are of whole tests"
        return tuple(case.values)
    return tuple(case) if count > 1 else (case,)


def each(check: Callable[[Any], None], cases: Iterable[Any], id_of: Callable[[Any], str]) -> None:
    """Check all ``cases`` of a share, for tests whose parameters are shares."""
    _run([(id_of(case), functools.partial(check, case)) for case in cases])


def _run(cases: list[tuple[str, Callable[[], None]]]) -> None:
    chosen = [(name, check) for name, check in cases if _selected in name]
    if not chosen:
        pytest.skip(f"no case has {_selected!r} in its id")
    errors: list[Exception] = []
    failed: list[str] = []
    for name, check in chosen:
        try:
            check()
        except Exception as error:  # each is reported
            failed.append(name)
            if len(errors) < _SHOWN_MAX:
                error.add_note(f"case: {name}")
                errors.append(error)
    if errors:
        others = "".join(f"\n  {name}" for name in failed[_SHOWN_MAX:])
        title = f"{len(failed)} of {len(chosen)} cases failed"
        raise ExceptionGroup(title + (f", and these, too:{others}" if others else ""), errors)
