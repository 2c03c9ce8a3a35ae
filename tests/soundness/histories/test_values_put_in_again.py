"""Patches that begin before a client has put in a value: it is put in again unchanged, or the error says why not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy
import pytest
from tests.soundness.histories.test_second_start import forget
from tests.support.descriptors import MEMORY, all_closed, opened
from tests.waiting import until

from cenote.harness import ApplyResult, Patch
from cenote.harness.patching.errors import NoWayError, StepNotRepeatedError
from cenote.runtime import Function, PythonRuntime, Type, Variable
from cenote_security.policy import SandboxPolicy
from cenote_worker.history.bounds import MAX_PUT_IN
from cenote_worker.runtime import injection_log
from cenote_worker.runtime.runtime import HostedRuntime

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]

Deed = str | Callable[[PythonRuntime], object]


@pytest.fixture
def runtime() -> Iterator[PythonRuntime]:
    with PythonRuntime(sandbox=SandboxPolicy(preload=()), variables=[Variable("raw", [1, 2])]) as runtime:
        yield runtime


def done(runtime: PythonRuntime, *deeds: Deed) -> None:
    for deed in deeds:
        if isinstance(deed, str):
            result = runtime.execute(deed)
            assert result.success, result.error
        else:
            deed(runtime)


def patched(runtime: PythonRuntime, code: str) -> ApplyResult:
    """With another first step."""
    state = runtime.state
    return state.apply(state.plan(Patch.replace_step(state.steps[0].number, code)))


def put(value: object, name: str = "raw") -> Deed:
    """Puts in the value, replacing the one of that name."""
    return lambda runtime: runtime.update_variable(name, value)


def new(value: object, name: str) -> Deed:
    return lambda runtime: runtime.inject(Variable(name, value))


def test_each_value_is_put_in_where_it_was(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Several values under one name, each replacing the one before; not the object that cells changed in between."""
    cells = ("n = raw.pop()", "log = [list(raw)]", put([3]), "raw.append(n); log.append(raw)", put([4, 5]))
    done(runtime, *cells, "raw.append(n); log.append(raw)")
    forget(runtime, hosted)
    plan = runtime.state.plan(Patch.replace_step(1, "n = raw.pop() + 5"))
    assert "step 3: rerun, which puts in `raw` again as it was, since" in plan.explain()
    assert "applied" == patched(runtime, "n = raw.pop() + 5").status
    assert "(7, [[1], [3, 7], [4, 5, 7]])" == runtime.execute("n, log").value
    assert "applied" == patched(runtime, "n = raw[0]").status
    assert "(1, [[1, 2], [3, 1], [4, 5, 1]])" == runtime.execute("n, log").value
    steps = [record.kind for record in (step.record for step in runtime.state.line(runtime.state.head))]
    assert ["cell", "cell", "injection", "cell", "injection", "cell"] == steps[:6]


def test_while_its_state_is_kept_as_well(runtime: PythonRuntime) -> None:
    """From the stored state before the change, with only the affected steps run again."""
    done(runtime, "n = 1", put([3]), "m = raw[0]", "k = raw[0] + n")
    result = patched(runtime, "n = 2")
    assert ("applied", (1, 4)) == (result.status, result.steps_rerun)
    assert "(2, 3, 5)" == runtime.execute("n, m, k").value


@pytest.mark.slow
def test_what_was_put_in_together_goes_on_sharing(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Arrays too, which lie in sealed memory: unchanged each time, and writable."""
    array = numpy.arange(20_000)

    def together(runtime: PythonRuntime) -> None:
        runtime.inject(Variable("a", array), Variable("b", {"of": array}))

    done(runtime, "n = 1", together, "a[0] = n; same = b['of'] is a; seen = int(b['of'][0]), int(a[1])")
    forget(runtime, hosted)
    for number in (7, 8):
        assert "applied" == patched(runtime, f"n = {number}").status
        assert f"(True, ({number}, 1))" == runtime.execute("same, seen").value
    assert 0 == array[0]


@dataclass
class Point:
    x: int


def test_classes_come_along_again(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Classes of values, and those given explicitly."""
    done(runtime, "n = 1", lambda runtime: runtime.inject(Type(Point), Variable("p", Point(2))))
    done(runtime, "q = Point(p.x + n); alike = type(p) is Point")
    forget(runtime, hosted)
    assert "applied" == patched(runtime, "n = 5").status
    assert "(7, True)" == runtime.execute("q.x, alike").value


def test_a_class_comes_along_where_there_is_none(runtime: PythonRuntime) -> None:
    """A cell had defined another class of that name, and no longer does; or it does only now."""
    look = "type(p) is Point, k"
    other = "class Point: pass"
    done(runtime, "z = 1", other, new(Point(2), "p"), "k = p.x")
    assert "(False, 2)" == runtime.execute(look).value
    state = runtime.state
    assert "applied" == state.apply(state.plan(Patch.remove_step(2))).status
    assert "(True, 2)" == runtime.execute(look).value
    state = runtime.state
    first = state.line(state.head)[0].number
    assert "applied" == state.apply(state.plan(Patch.insert_step(first, other))).status
    assert "(False, 2)" == runtime.execute(look).value


class Ledger:
    def __init__(self) -> None:
        self.paid: list[int] = []

    def pay(self, amount: int) -> int:
        self.paid.append(amount)
        return 10 * amount


def test_what_stays_with_the_client_is_offered_again(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Functions and objects; equal calls get their recorded answers, and nothing is paid twice."""
    ledger = Ledger()

    def offered(runtime: PythonRuntime) -> None:
        runtime.inject(
            Variable("ledger", ledger, host=True),
            Function(lambda n: n + 1, name="more", host=True, effect="pure"),
        )

    done(runtime, "n = 1", offered, "m = ledger.pay(3) + more(n)")
    forget(runtime, hosted)
    assert "applied" == patched(runtime, "n = 5").status
    assert ("36", [3]) == (runtime.execute("m").value, ledger.paid)
    assert "40" == runtime.execute("ledger.pay(4)").value


def test_a_reference_is_put_in_again(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Also when the runtime that it came from is gone."""
    with PythonRuntime(sandbox=SandboxPolicy(preload=())) as source:
        source.execute("table = list(range(30_000))")
        done(runtime, "n = 1", new(source.share("table"), "table"), "m = table.pop() + n")
    done(runtime, put([1], "table"))
    forget(runtime, hosted)
    assert "applied" == patched(runtime, "n = 2").status
    assert "(30001, [1])" == runtime.execute("m, table").value


def test_what_a_client_deletes_is_deleted_again(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """Before the first step and later; the value need not exist any more."""
    done(runtime, new(1, "early"), lambda runtime: runtime.delete("early"))
    done(runtime, "n = 1; gone = 1", lambda runtime: runtime.delete("gone"))
    done(runtime, "there = [name for name in ('early', 'gone') if name in globals()], n")
    forget(runtime, hosted)
    for code in ("n = 2; gone = 2", "n = 3"):
        assert "applied" == patched(runtime, code).status
        assert f"([], {code[4]})" == runtime.execute("there").value


def test_large_values_are_put_in_again_while_they_are_held(
    runtime: PythonRuntime, hosted: HostedRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the error names the step that prevents it, and nothing has happened; later steps can be patched."""
    monkeypatch.setattr(injection_log, "MAX_FORMER", 2 * MAX_PUT_IN)
    first, second, third = (bytes([number]) * (MAX_PUT_IN + 1) for number in (1, 2, 3))
    done(runtime, "n = 1", put(first), "a = raw[0] + n", put(second), "b = raw[0] + n")
    forget(runtime, hosted)
    assert "applied" == patched(runtime, "n = 10").status
    assert "(11, 12)" == runtime.execute("a, b").value
    done(runtime, put(third))
    forget(runtime, hosted)
    with pytest.raises((NoWayError, StepNotRepeatedError), match="`raw`, is not kept any more") as refused:
        patched(runtime, "n = 20")
    assert "atch a " in str(refused.value)
    assert "(11, 12, 3)" == runtime.execute("a, b, raw[0]").value


class Once:
    """Can be pickled, and fails to unpickle the second time in the same process."""

    def __reduce__(self) -> tuple[object, ...]:
        return _once, ()


def _once() -> str:
    with open("once", "x"):
        return "once"


def test_what_cannot_be_put_in_again_leaves_everything_as_it_was(
    runtime: PythonRuntime, hosted: HostedRuntime
) -> None:
    """And is named in the error."""
    done(runtime, "n = 1; mine = object(); before = id(mine)", new(Once(), "odd"), "m = odd, n")
    done(runtime, "import os; os.remove('once'); os.mkdir('once')", "m += n,")
    forget(runtime, hosted)
    head = runtime.state.head
    with pytest.raises(NoWayError, match=r"step 2 would have to put in `odd` again, and .*FileExistsError"):
        patched(runtime, "import os; os.mkdir('once'); n = 2; mine = before = 0")
    assert (head, "(('once', 1, 1), True)") == (
        runtime.state.head,
        runtime.execute("m, id(mine) == before").value,
    )


def test_behind_a_jail_that_was_lost(runtime: PythonRuntime) -> None:
    """The next jail begins with the last value of each name; the history starts there from then on."""
    policy = SandboxPolicy(preload=(), snapshots="none")
    with PythonRuntime(sandbox=policy, variables=[Variable("raw", [1, 2])]) as runtime:
        done(runtime, "n = 1", put([3]), new([4], "more"))
        assert "lost" == runtime.execute("import os; os._exit(1)").state
        done(runtime, "k = raw.pop() + more.pop()", put([5]), "k += raw[0]")
        state = runtime.state
        first = state.line(state.head)[0].number
        result = state.apply(state.plan(Patch.replace_step(first, "k = raw.pop() + more[0] + 100")))
        assert ("applied", "(112, [5], [4])") == (result.status, runtime.execute("k, raw, more").value)


@pytest.mark.at("embedded", "relayed")
def test_in_a_branch_and_behind_a_rollback(runtime: PythonRuntime, hosted: HostedRuntime) -> None:
    """A branch has its source's injections, the large ones without a copy."""
    large = bytes([7]) * (MAX_PUT_IN + 1)
    done(runtime, "n = 1", put(large), "a = raw[0] + n", lambda runtime: runtime.snapshot("middle"))
    done(runtime, put([5]), "b = raw[0] + n")
    with runtime.fork() as branch:
        assert isinstance(branch, PythonRuntime)
        assert "applied" == patched(branch, "n = 100").status
        assert "(107, 105)" == branch.execute("a, b").value
    runtime.rollback("middle")
    done(runtime, "c = raw[0] + n")
    forget(runtime, hosted)
    assert "applied" == patched(runtime, "n = 200").status
    assert "(207, 207)" == runtime.execute("a, c").value


def test_full_runs_have_what_was_put_in() -> None:
    """So patches of such histories are audited like any other."""
    policy = SandboxPolicy(preload=())
    with PythonRuntime(sandbox=policy, variables=[Variable("raw", [])], audit_patches=1.0) as runtime:
        done(runtime, "n = 1", put([3]), "raw.append(n)", put([4]), "raw.append(n)")
        result = patched(runtime, "n = 2")
        assert result.audit is not None
        assert ("applied", "same") == (result.status, result.audit.outcome)
        state = runtime.state
        result = state.apply(state.plan(Patch.remove_step(state.line(state.head)[2].number)))
        assert result.audit is not None
        assert ("applied", "same", "[4, 2]") == (
            result.status,
            result.audit.outcome,
            runtime.execute("raw").value,
        )


@pytest.mark.at("embedded")
def test_a_name_that_got_another_value_first_stays_in_its_place() -> None:
    """In a full run, in a jail after a crash, and where the history is run from its start."""
    order = "[each for each in globals() if each in ('first', 'second', 'third')]"
    policy = SandboxPolicy(preload=(), snapshots="none")
    with PythonRuntime(sandbox=policy, audit_patches=1.0) as runtime:
        done(runtime, new(1, "first"), new(2, "second"), new(3, "third"), put(4, "first"), put(5, "second"))
        done(runtime, f"n = 1, {order}")
        result = patched(runtime, f"n = 2, {order}")
        assert result.audit is not None
        assert ("applied", "same") == (result.status, result.audit.outcome)
        there = "(2, ['first', 'second', 'third'])"
        assert there == runtime.execute("n").value
        runtime.execute("import os; os.kill(os.getpid(), 9)")
        assert f"({there}, 4, 5, 3)" == runtime.execute(f"(2, {order}), first, second, third").value


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_nothing_stays_open() -> None:
    """Of values put in once and again; while the runtime exists, each is held once."""
    policy = SandboxPolicy(preload=(), snapshots="none")
    arrays = [numpy.full(20_000, number) for number in range(3)]
    with all_closed(MEMORY), PythonRuntime(sandbox=policy, variables=[Variable("raw", arrays[0])]) as runtime:
        done(runtime, "n = 1", put(arrays[1]), "k = int(raw[0]) + n", put(arrays[2]), "raw[0] = n")
        assert "applied" == patched(runtime, "n = 2").status
        held = len(opened(MEMORY))
        for number in range(3, 6):
            assert "applied" == patched(runtime, f"n = {number}").status
        until(lambda: len(opened(MEMORY)) <= held)
        assert f"({number + 1}, {number}, 2)" == runtime.execute("k, int(raw[0]), int(raw[1])").value
