"""Hints for a key, column or label that is not there."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from cenote_worker.in_jail.bounded import bases, bounded_repr, bounded_str, module_name, type_name
from cenote_worker.in_jail.cells import CellCompiler
from cenote_worker.in_jail.frames import Step
from cenote_worker.in_jail.nearest import nearest
from cenote_worker.in_jail.pristine import BUILTINS
from cenote_worker.in_jail.resolution import FailedExpression

__builtins__ = BUILTINS

_FEW = 12
"""So many keys are all listed; of more, only those that resemble what was asked for."""

_MOST_KEYS = 5_000
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_LABELLED = ("loc", "at", "xs", "reindex")
_HOLDERS = ("self", "obj", "df", "frame", "data", "left")
_args_of = BaseException.__dict__["args"].__get__
_modules = sys.modules


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """What could have been asked for. kind: `columns`, `keys` or `labels`."""

    kind: str
    keys: list[object]
    count: int


def key_hint(error: BaseException, steps: list[Step], compiler: CellCompiler) -> str:
    """Keys like the one that is missing, or all of them when there are few; empty when nothing is known."""
    asked = _asked(error)
    keys = next(_candidates(steps, compiler), None) if asked else None
    if keys is None:
        return ""
    if not keys.count:
        return f"there are no {keys.kind}"
    if keys.count <= _FEW:
        return f"{keys.kind}: {_listed(keys.keys)}"
    if alike := _alike(asked, keys):
        return f"nearest {keys.kind}: {_listed(alike)}"
    return f"{keys.count:,} {keys.kind}, such as {_listed(keys.keys[:3])}"


def _asked(error: BaseException) -> list[object]:
    """The missing keys: the argument itself, or those quoted in pandas' `"['a', 'b'] not in index"`."""
    arguments = _args_of(error)
    if not arguments:
        return []
    first = arguments[0]
    if type(first) is str and "[" in first and (" in " in first or " axis" in first):
        return [match[1] or match[2] for match in _QUOTED.finditer(first[:1000])]
    return [first]


def _candidates(steps: list[Step], compiler: CellCompiler) -> Iterator[_Keys]:
    """What holds keys, the likeliest first: what was indexed, then the frame that a library worked on."""
    users = [step for step in steps if step.owner != "library"]
    failed = FailedExpression(compiler, users[-1]) if users else None
    by_label = failed is not None and failed.tree is not None and _asks_for_labels(failed.tree)
    values: list[object] = []
    if failed is not None and (indexed := failed.indexed()) is not None:
        values.append(indexed)
    values += _library_holders(steps)
    if failed is not None:
        values += islice(failed.values(), 20)
    for value in values:
        if (keys := _keys_of(value, by_label=by_label)) is not None:
            yield keys


def _asks_for_labels(tree: ast.AST) -> bool:
    return any(isinstance(node, ast.Attribute) and node.attr in _LABELLED for node in ast.walk(tree))


def _library_holders(steps: list[Step]) -> Iterator[object]:
    for step in reversed(steps):
        if step.owner == "library":
            scope = step.frame.f_locals
            yield from (scope[name] for name in _HOLDERS if _is_pandas(scope.get(name)))


def _is_pandas(value: object) -> bool:
    pandas = _modules.get("pandas")
    return pandas is not None and type(value) in (pandas.DataFrame, pandas.Series)


def _keys_of(value: object, *, by_label: bool) -> _Keys | None:
    if dict in bases(type(value)):
        return _first("keys", dict.__iter__(value), dict.__len__(value))  # type: ignore[arg-type]
    if not _is_pandas(value):
        return None
    is_frame = type_name(type(value)) == "DataFrame"
    axis = value.columns if is_frame and not by_label else value.index  # type: ignore[attr-defined]
    return _first("columns" if is_frame and not by_label else "labels", axis, len(axis))


def _first(kind: str, keys: Iterable[object], count: int) -> _Keys:
    return _Keys(kind=kind, keys=list(islice(keys, _MOST_KEYS)), count=count)


def _alike(asked: list[object], keys: _Keys) -> list[object]:
    """Keys that read like the ones asked for, whatever their types: the number 1 for the text "1" too."""
    texts = {_text(key): key for key in keys.keys}
    found: list[object] = []
    for key in asked[:5]:
        if (text := _text(key)) in texts:
            found.append(texts[text])
        found += [texts[word] for word in nearest(text, texts)]
    return found[:6]


def _text(key: object) -> str:
    plain = type(key) in (str, int, float) or module_name(type(key)).partition(".")[0] in ("pandas", "numpy")
    return bounded_str(key, 80) if plain else ""


def _listed(keys: list[object]) -> str:
    return ", ".join(bounded_repr(key, 60) for key in keys)
