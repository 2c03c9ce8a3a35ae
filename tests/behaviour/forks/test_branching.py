"""Forks in real jails: the start of a branch, its independence, and values that cannot be copied."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cenote.runtime import AsyncPythonRuntime, Function, IncompleteForkError, PythonRuntime, Variable
from cenote.security import FunctionRule, SecurityChecker
from cenote_security.errors import NotKeptError, UsageError

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "relayed")]

Make = Callable[..., PythonRuntime]
Fork = Callable[..., list[PythonRuntime]]


def value(runtime: PythonRuntime, expression: str) -> str | None:
    result = runtime.execute(expression)
    assert result.success, result.error
    return result.value


def test_branches_begin_with_the_state_and_go_their_own_ways(make: Make, fork: Fork) -> None:
    """Shared objects stay shared, files are copied; changes of one are invisible to the others and the source."""
    source = make(variables=[Variable("scores", [1, 2])])
    source.execute("a = scores\ndef total(): return sum(a)\nopen('note.txt', 'w').write('hello')")
    source.execute("scores.append(3)")
    one, two = fork(source, 2)
    assert "(True, 6, 'hello')" == value(one, "(a is scores, total(), open('note.txt').read())")
    one.execute("scores.append(10)\nopen('note.txt', 'w').write('mine')")
    assert ["16", "6", "6"] == [value(runtime, "total()") for runtime in (one, two, source)]
    assert "'hello'" == value(two, "open('note.txt').read()")
    assert [1, 2, 3] == source.retrieve("scores")


def test_a_branch_goes_on_with_history_and_snapshots(make: Make, fork: Fork) -> None:
    """Its steps follow the source's, in a history of its own; a rollback can reach its first state."""
    source = make()
    source.execute("x = 1")
    source.execute("x += 1")
    (branch,) = fork(source)
    result = branch.execute("x += 1")
    assert (3, 2) == (result.step, branch.core.backend.read_history().tree.get(3).parent)
    assert 2 == source.core.backend.read_history().tree.last
    assert 2 == branch.rollback(2).step
    assert "2" == value(branch, "x")


def test_a_fork_of_an_earlier_state(make: Make, fork: Fork) -> None:
    """The branch begins there; the source is unchanged, generators included."""
    source = make()
    source.execute("x = 1")
    source.snapshot("first")
    source.execute("x = 2\ng = (i for i in range(9)); next(g)")
    branches = [*fork(source, step=1), *fork(source, step="first")]
    assert ["1", "1"] == [value(branch, "x") for branch in branches]
    with source.state.fork(1) as branch:
        assert "1" == value(branch, "x")
    assert "(2, 1)" == value(source, "(x, next(g))")
    with pytest.raises(NotKeptError):
        source.fork(step=77)
    assert "2" == value(source, "x")


def test_random_numbers(make: Make, fork: Fork) -> None:
    """Each branch draws its own, unless it is asked to draw the source's; generators in variables are values."""
    source = make()
    source.execute(
        "import random, numpy\nrandom.seed(1); numpy.random.seed(1)\nrng = numpy.random.default_rng(7)"
    )
    draw = "(random.random(), numpy.random.random())"
    different = {value(branch, draw) for branch in fork(source, 2)}
    same = fork(source, deterministic=True)[0]
    own = fork(source)[0]
    expected = value(source, draw)
    assert 3 == len({*different, expected})
    assert expected == value(same, draw)
    assert value(source, "rng.random()") == value(own, "rng.random()")


def test_the_clients_functions_are_offered_in_branches(make: Make, fork: Fork) -> None:
    """The same function of the same client; also after a reset, with the initial values."""
    calls: list[int] = []
    source = make(functions=[Function(calls.append, name="note", host=True)], variables=[Variable("n", [1])])
    source.execute("n.append(2)")
    (branch,) = fork(source)
    source.close()
    branch.execute("note(len(n))")
    branch.reset()
    branch.execute("note(len(n))")
    assert [2, 1] == calls


@pytest.mark.usefixtures("by_value")
def test_what_cannot_come_along_is_named_before_anything_starts(make: Make, fork: Fork) -> None:
    """With `partial` the branch lacks it."""
    source = make()
    source.execute("import time\ng = (i for i in range(3) if time.time())\nx = 5")
    with pytest.raises(IncompleteForkError) as refused:
        source.fork()
    (missing,) = refused.value.missing
    assert missing.startswith("g: ")
    (branch,) = fork(source, partial=True)
    assert "(5, False)" == value(branch, "(x, 'g' in globals())")
    assert "0" == value(source, "next(g)")


def test_rules_know_in_a_branch_what_names_mean(make: Make, fork: Fork) -> None:
    """A name bound to a forbidden function stays forbidden."""
    source = make(security_checker=SecurityChecker([FunctionRule({"eval"})]))
    source.execute("e = print")
    source.core.check("f = e")
    (branch,) = fork(source)
    assert not branch.execute("eval('1')").success
    assert branch.execute("e(1)").success


def test_a_branch_that_is_lost_takes_nobody_along(make: Make, fork: Fork) -> None:
    """Each has its own jail: the source and the other branch continue."""
    source = make()
    source.execute("x = 1")
    one, two = fork(source, 2)
    one.close()
    assert ["1", "1"] == [value(two, "x"), value(source, "x")]


def test_a_fork_of_a_fork(make: Make, fork: Fork) -> None:
    """Branches can branch."""
    source = make()
    source.execute("x = 1")
    (branch,) = fork(source)
    branch.execute("x += 1")
    assert "2" == value(fork(branch)[0], "x")


def test_counts_and_runtimes_that_cannot_fork(make: Make) -> None:
    """One branch for a count of one, a list otherwise; an attached author cannot fork."""
    source = make()
    with pytest.raises(UsageError, match="at least one"):
        source.fork(count=0)
    with pytest.raises(UsageError, match="owner"):
        source.attach("ann").fork()


async def test_the_async_face() -> None:
    """Forks and merges, awaited."""
    async with AsyncPythonRuntime() as source:
        await source.execute("x = 1")
        branches = await source.fork(count=2)
        assert isinstance(branches, list)
        await branches[0].execute("x = 5")
        assert ("x",) == (await source.merge(branches[0])).taken
        assert 5 == await source.retrieve("x")
        async with await source.state.fork(source.state.head) as branch:
            assert 5 == await branch.retrieve("x")
        for branch in branches:
            await branch.close()
