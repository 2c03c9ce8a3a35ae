"""Reading values through references: in a separate jail, bounded."""

from __future__ import annotations

import asyncio

import pytest

from cenote.models import ScriptedModel
from cenote.runtime import AsyncPythonRuntime, ObjectReference
from cenote.team import Team
from cenote.team.runtimes import embedded
from cenote.team.variables import AT_ONCE, MAX_TEXT, ReferenceReader
from cenote_security.errors import JailLostError, RejectedError, UsageError
from cenote_security.network import Allow
from cenote_security.policy import Mount, SandboxPolicy

SMALL = SandboxPolicy(memory="256MiB", preload=())


async def shared(code: str) -> ObjectReference:
    """The value that `code` assigns to `x`, from a jail that is gone then."""
    async with AsyncPythonRuntime(sandbox=SMALL) as runtime:
        assert (await runtime.execute(code)).success
        return await runtime.share("x")


async def test_a_value_is_looked_at_without_taking_it_in() -> None:
    """Preview with metadata first, a range, a search: each a text."""
    reader = ReferenceReader(embedded, SMALL)
    reference = await shared("x = [{'id': n, 'name': f'bird {n}'} for n in range(5000)]")
    preview = await reader.preview(reference)
    assert preview.startswith(f"list (5000,), {reference.size} bytes; of dict with keys 'id', 'name'\n")
    assert "bird 4999" in preview
    assert preview == await reader.preview(reference)
    assert "items 10:12 of 5000\nid|name\n10|bird 10\n11|bird 11" == await reader.read(reference, 10, 12)
    assert "4321: {'id': 4321, 'name': 'bird 4321'}" == await reader.search(reference, "bird 4321")


async def test_a_piece_is_bounded_whatever_the_jail_says() -> None:
    """A range of a long text is truncated at the limit; a text at the limit is whole."""
    reader = ReferenceReader(embedded, SMALL)
    reference = await shared("x = 'a' * 100_000")
    head = "characters 0:{} of 100000\n"
    fits = MAX_TEXT - len(head.format(MAX_TEXT))
    assert MAX_TEXT == len(await reader.read(reference, 0, fits))
    cut = await reader.read(reference, 0, fits + 1)
    assert cut.endswith(f"a\n[cut at {MAX_TEXT} characters]")


async def test_a_search_for_anything_is_a_literal() -> None:
    """Quotes, backslashes and line ends of the text are not code."""
    reader = ReferenceReader(embedded, SMALL)
    wanted = "'; import os; os._exit(1) #\\\n\""
    reference = await shared(f"x = ['a', {wanted!r}]")
    assert (await reader.search(reference, wanted)).startswith("1: ")


@pytest.mark.parametrize("most", [0, 101, True, 1.5])
async def test_what_makes_no_sense_is_refused(most: int) -> None:
    """Before a jail is started."""
    reference = await shared("x = 1")
    with pytest.raises(UsageError):
        await ReferenceReader(embedded, SMALL).search(reference, "x", most)
    with pytest.raises(UsageError):
        await ReferenceReader(embedded, SMALL).read(reference, "0")


async def test_a_hostile_value_harms_its_own_reading_only() -> None:
    """A pickle that ends the process: the call raises an error that says so, and the next value is read."""
    reader = ReferenceReader(embedded, SMALL)
    code = "import os\nclass Bomb:\n    def __reduce__(self): return (os._exit, (1,))\nx = Bomb()"
    with pytest.raises(JailLostError):
        await reader.preview(await shared(code))
    assert "items 0:1 of 1\n[1]" == await reader.read(await shared("x = [1]"))


@pytest.mark.parametrize("method", ["__reduce__", "__getitem__"])
async def test_a_value_that_keeps_its_reader_waiting_is_given_up(method: str) -> None:
    """Whether loading it does not end, or showing it."""
    code = (
        "import time\nclass Slow(list):\n    def __getitem__(self, key): time.sleep(60)\nx = Slow([1, 2])\n"
        if method == "__getitem__"
        else "import time\nclass Slow:\n    def __reduce__(self): return (time.sleep, (60,))\nx = Slow()"
    )
    reference = await shared(code)
    with pytest.raises(RejectedError, match=r"cannot be read in 0\.5 seconds"):
        await ReferenceReader(embedded, SMALL, seconds=0.5).read(reference)


async def test_a_value_that_cannot_be_shown_says_why() -> None:
    """An error of the value's own code is returned as text."""
    code = "class Odd(list):\n    def __getitem__(self, key): raise ValueError('no\\nway')\nx = Odd([1, 2])"
    with pytest.raises(RejectedError, match=r"this value cannot be read: ValueError: no\\nway"):
        await ReferenceReader(embedded, SMALL).read(await shared(code))


async def test_jails_for_reading_have_no_way_out() -> None:
    """Whatever the policies of the team's own jails."""
    seen: list[SandboxPolicy] = []

    def runtimes(name: str, sandbox: SandboxPolicy) -> AsyncPythonRuntime:
        seen.append(sandbox)
        return embedded(name, SMALL)

    open_sandbox = SandboxPolicy(network=Allow(["pypi.org"]), mounts=[Mount(source="/etc")])
    await ReferenceReader(runtimes, open_sandbox).read(await shared("x = [1]"))
    assert [("none", ())] == [(sandbox.network, sandbox.mounts) for sandbox in seen]


async def test_code_looks_at_team_variables() -> None:
    """By name; only the extracts that it requests come into its namespace."""
    code = (
        "print(await team.preview('log'))\nprint(await team.read('log', 2, 4))\n"
        "print(await team.search('log', 'line 77', 1))"
    )
    model = ScriptedModel([f"```python\n{code}\n```", "Seen."])
    async with Team("look", sandbox=SMALL) as team:
        team.variables.put("log", await shared("x = [f'line {n}' for n in range(1000)]"))
        await team.add("only", model=model).run("Look at the log.")
        names = [info.name for info in await team["only"].runtime.describe()]
    told = model.prompts[1][-1].content
    assert "list (1000,)" in told
    assert "items 2:4 of 1000\n[line 2, line 3]" in told
    assert "77: line 77\n... more were not looked for" in told
    assert "log" not in names


@pytest.mark.slow
async def test_readings_run_at_once_up_to_a_number() -> None:
    """Each has its own jail; hostile code that requests thousands gets them one after the other."""
    open_now: set[int] = set()
    most: list[int] = []

    class Counted(AsyncPythonRuntime):
        async def close(self) -> None:
            open_now.discard(id(self))
            await super().close()

    def runtimes(name: str, sandbox: SandboxPolicy) -> AsyncPythonRuntime:
        made = Counted(name=name, sandbox=sandbox)
        open_now.add(id(made))
        most.append(len(open_now))
        return made

    reader, reference = ReferenceReader(runtimes, SMALL), await shared("x = list(range(20))")
    texts = await asyncio.gather(*(reader.read(reference, n, n + 1) for n in range(10)))
    assert [f"items {n}:{n + 1} of 20\n[{n}]" for n in range(10)] == texts
    assert (10, AT_ONCE, set()) == (len(most), max(most), open_now)
