"""Random walks over the operations of a runtime, each with a model of the expected history."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

from tests.soundness.harness.test_tracked_soundness import PRELUDE, statement
from tests.support.harness import values
from tests.support.harness.programs import Choose

from cenote.harness import ApplyOptions, ApplyResult, Patch, PatchConflictError, StalePlanError
from cenote.runtime import Function, PythonRuntime, Variable
from cenote_security.errors import NotKeptError, UnknownNameError
from cenote_security.policy import SandboxPolicy

AS_A_NOTEBOOK = ApplyOptions(stop_on_failure=False)

HOSTS = ("pure", "external")

LOOK = f"""
_tools = {{}}
exec({inspect.getsource(values)!r}, _tools)
_names = {{name: value for name, value in globals().items() if name[0] != '_' and name not in {HOSTS}}}
print(_tools['canonical'](_names, lambda _: 0))
_files = sorted(os.path.join(folder, name) for folder, inner, found in os.walk('.') for name in (*inner, *found))
print([(path, os.path.islink(path), os.path.isfile(path) and open(path).read()) for path in _files])
print([[os.path.samefile(one, other) for other in _files] for one in _files], random.getstate())
"""
"""A cell that prints the whole state."""

FILES = (
    *("open('p', 'a').write(str({}))", "open('q', 'w').write(str(a))", "a = len(open('p').read())"),
    *("with open('q', 'r+') as file: a = file.truncate({})", "open('s', 'x').write('{}')"),
    *("os.replace('p', 'q')", "os.replace('d/p', 'p')", "os.remove('q')", "os.remove('s')"),
    *("os.link('p', 's')", "os.symlink('p', 's')", "os.chmod('p', 0o60{})"),
    *("os.makedirs('d')", "open('d/p', 'w').write(str({}))", "open('d/p', 'a').write(str(a))"),
    *("os.rename('d', 'e')", "os.rmdir('d')", "h = open('p', 'a')", "h.write('{}'); h.flush()", "h.close()"),
    *("print(sorted(os.listdir('.')))", "print(sorted(os.walk('.')))", "print(os.path.exists('d/p'))"),
)
"""Operations on files; often the file is missing. Then the operation fails, or does nothing."""

Told = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Deed:
    """One step of the expected history: a cell, an upload, a value that a client puts in or removes.

    key: stays when a patch gives it other code.
    """

    key: int
    kind: str = "cell"
    code: str = ""
    author: str = ""
    path: str = ""
    value: object = None

    def do(self, runtime: PythonRuntime) -> None:
        if self.kind == "upload":
            runtime.files.write(self.path, str(self.value), overwrite=True)
        elif self.kind == "injection":
            runtime.update_variable("raw", self.value)
        elif self.kind == "deletion":
            runtime.delete("alias")
        else:
            (runtime.attach(self.author) if self.author else runtime).execute(self.code)


Line = tuple[Deed, ...]


def given(policy: SandboxPolicy) -> dict[str, Any]:
    """Values that share an object, and functions that stay with the client."""
    shared = [1]
    variables = [Variable("raw", shared), Variable("alias", shared)]
    functions = [
        Function(lambda n: 2 * n, name="pure", host=True, effect="pure"),
        Function(lambda n: 10 * n, name="external", host=True),
    ]
    return {"sandbox": policy, "variables": variables, "functions": functions}


def begun(policy: SandboxPolicy) -> PythonRuntime:
    return PythonRuntime(**given(policy))


def outputs(runtime: PythonRuntime) -> list[Told]:
    return [
        (step.code, step.status, step.stdout, step.error.message if step.error else "")
        for step in runtime.state.steps
    ]


def in_full(line: Line) -> tuple[list[Told], str]:
    """The outputs and the state of a fresh runtime with the same steps."""
    with begun(SandboxPolicy(preload=(), snapshots="none", tracking=False)) as fresh:
        for deed in line:
            with suppress(UnknownNameError):  # removed by another step of a patched history
                deed.do(fresh)
        return outputs(fresh), fresh.execute(LOOK).stdout


class Walk:
    """One walk. An AssertionError lists the operations after which the runtime differs from the model."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._runtime = self._begun()
        self._keys = count(1)
        self._line: Line = ()
        self._lines: dict[int, Line] = {}
        """The line up to each last step."""
        self._patches: list[tuple[str, Line, Line]] = []
        """Their ids, and the lines before and after them."""
        self._deeds: list[str] = []

    def _begun(self) -> PythonRuntime:
        return begun(SandboxPolicy(preload=()))

    def _ways(self) -> list[Callable[[], None]]:
        return [
            *(self._cell, self._cell, self._cell, self._upload, self._put_in, self._put_in, self._take_away),
            *(self._patch, self._patch),
            *(self._patch, self._two_plans, self._take_back, self._take_back, self._go_back),
        ]

    def go(self, steps: int) -> None:
        ways = self._ways()
        with self._runtime:
            for code in (f"{PRELUDE}\nrandom.seed(1)", "print(raw is alias)"):
                self._add(Deed(key=next(self._keys), code=code))
            for _ in range(steps):
                ways[self._choose(len(ways))]()
                self._keep_account()
            self._check()

    # -- operations --

    def _code(self) -> str:
        own = (
            "raw.append({})",
            "alias = [*alias, {}]",
            "b = raw",
            "print(raw is alias)",
            "a = pure({})",
            "a = external({})",
        )
        some = [statement(self._choose), own[self._choose(len(own))].format(self._choose(3))]
        if not self._choose(2):
            file = FILES[self._choose(len(FILES))].format(self._choose(3))
            some[1] = file if self._choose(3) else f"try: {file}\nexcept (OSError, ValueError): pass"
        return "\n".join(some[: 1 + self._choose(2)] if self._choose(2) else some[1:])

    def _add(self, deed: Deed) -> None:
        self._deeds.append(str(deed))
        deed.do(self._runtime)
        self._line += (deed,)

    def _cell(self) -> None:
        self._add(Deed(key=next(self._keys), code=self._code(), author=("", "", "ann")[self._choose(3)]))

    def _upload(self) -> None:
        self._add(
            Deed(key=next(self._keys), kind="upload", path="pq"[self._choose(2)], value=self._choose(3))
        )

    def _put_in(self) -> None:
        with suppress(Exception):  # a cell may have deleted it
            self._add(Deed(key=next(self._keys), kind="injection", value=[self._choose(3)]))

    def _take_away(self) -> None:
        with suppress(UnknownNameError):
            self._add(Deed(key=next(self._keys), kind="deletion"))

    def _changed(self) -> tuple[Patch, Line]:
        """A patch, and the line that results. The first step stays as it is: it seeds the random numbers."""
        line = self._line
        at = 1 + self._choose(len(line) - 1) if len(line) > 1 else 0
        deed, number = line[at], self._records()[at]
        kind = self._choose(4) if deed.kind == "cell" else self._choose(2)
        if kind == 0 or at == 0:
            new = Deed(key=next(self._keys), code=self._code())
            return Patch.insert_step(number, new.code), (*line[: at + 1], new, *line[at + 1 :])
        if kind == 1:
            return Patch.remove_step(number), (*line[:at], *line[at + 1 :])
        code = f"{deed.code}\n{self._code()}" if kind == 2 else self._code()
        return Patch.replace_step(number, code), (*line[:at], replace(deed, code=code), *line[at + 1 :])

    def _patch(self) -> None:
        patch, line = self._changed()
        self._deeds.append(str(patch.changes))
        self._applied(self._planned_and_applied(patch), patch.id, line)
        self._check()

    def _planned_and_applied(self, patch: Patch) -> ApplyResult:
        return self._runtime.state.apply(self._runtime.state.plan(patch), AS_A_NOTEBOOK)

    def _two_plans(self) -> None:
        """The second one is out of date once the first is applied."""
        (one, line), (other, _) = self._changed(), self._changed()
        self._deeds.append(f"{one.changes}, then {other.changes}")
        state = self._runtime.state
        plans = state.plan(one), state.plan(other)
        self._applied(state.apply(plans[0], AS_A_NOTEBOOK), one.id, line)
        if state.head != plans[1].head:
            with suppress(StalePlanError):
                state.apply(plans[1])
                raise AssertionError(f"a stale plan was applied: {self._deeds}")
        self._check()

    def _take_back(self) -> None:
        if not self._patches:
            return
        patch, before, behind = self._patches[self._choose(len(self._patches))]
        self._deeds.append(f"takes back the patch of {[deed.key for deed in before]}")
        wanted, sure = taken_back(self._line, before, behind)
        try:
            result = self._runtime.state.revert(patch, AS_A_NOTEBOOK)
        except PatchConflictError:
            assert wanted == self._line or not sure, self._deeds
        else:
            told = self._runtime.state.steps if result.status == "applied" and not sure else ()
            self._applied(result, "", self._as_told(wanted, [step.code for step in told]))
        self._check()

    def _as_told(self, line: Line, codes: list[str]) -> Line:
        """The line with this code of its cells, if given: two patches may have changed one step, in other lines."""
        cells = iter(codes)
        return tuple(
            replace(deed, code=next(cells)) if codes and deed.kind == "cell" else deed for deed in line
        )

    def _go_back(self) -> None:
        kept = [kept.step for kept in self._runtime.snapshots() if kept.step in self._lines]
        if not kept:
            return
        step = kept[self._choose(len(kept))]
        self._deeds.append(f"goes back to step {step}")
        with suppress(NotKeptError):
            self._runtime.rollback(step)
            self._line = self._lines[step]
            self._check()

    # -- the model --

    def _records(self) -> list[int]:
        state = self._runtime.state
        return [step.number for step in state.line(state.head)]

    def _applied(self, result: ApplyResult, patch: str, line: Line) -> None:
        assert result.status in ("applied", "blocked"), self._deeds
        if result.status == "applied":
            self._patches += [(patch, self._line, line)] if patch else []
            self._line = line

    def _keep_account(self) -> None:
        numbers = self._records()
        assert len(numbers) == len(self._line), self._deeds
        self._lines.update((number, self._line[: at + 1]) for at, number in enumerate(numbers))

    def _check(self) -> None:
        """Outputs, names with the objects that they share, files and random state equal those of a full run."""
        self._keep_account()
        shown, state = in_full(self._line)
        assert shown == outputs(self._runtime), self._deeds
        head = self._runtime.snapshot("checked").step
        assert state == self._runtime.execute(LOOK).stdout, self._deeds
        self._runtime.rollback(head)


def taken_back(line: Line, before: Line, behind: Line) -> tuple[Line, bool]:
    """The line without a patch's changes to another line; whether no later patch changed the same steps."""
    was, made = ({deed.key: deed for deed in each} for each in (before, behind))
    left, sure = list[Deed](), True
    for deed in line:
        old, new = was.get(deed.key), made.get(deed.key)
        if new is None or (old is not None and old.code == new.code):
            left.append(deed)
            continue
        sure = sure and deed.code in (new.code, old.code if old is not None else new.code)
        if old is not None:
            left.append(replace(deed, code=old.code))
    for at, deed in enumerate(before):
        if deed.key not in made and all(deed.key != each.key for each in line):
            ahead = {each.key for each in before[:at]}
            left.insert(
                max((place + 1 for place, each in enumerate(left) if each.key in ahead), default=0), deed
            )
    return tuple(left), sure
