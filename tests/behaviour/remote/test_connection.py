"""`cenote.connect`: a platform as used by a script."""

from __future__ import annotations

import threading

import pytest
from tests.support.remote.small_platform import TOKEN, SmallPlatform
from tests.waiting import PATIENCE

import cenote
from cenote.connection import Platform
from cenote_security.errors import (
    CenoteError,
    NameExistsError,
    RuntimeClosedError,
    UnavailableError,
    UnknownRuntimeError,
    UsageError,
    WeakerRuntimeError,
)
from cenote_security.policy import SandboxPolicy

SMALL = SandboxPolicy(preload=(), processes=77)


@pytest.fixture
def connected(own_platform: SmallPlatform) -> Platform:
    return cenote.connect(own_platform.address, token=TOKEN)


def test_a_named_runtime_outlives_its_clients(connected: Platform) -> None:
    """A later client that connects by the name finds the namespace."""
    with connected.runtime("analysis", sandbox=SMALL) as runtime:
        runtime.execute("x = 1")
    assert "1" == connected.runtime("analysis").execute("x").value


def test_a_name_that_is_taken(connected: Platform) -> None:
    """Without `attach` no client joins by mistake."""
    connected.runtime("mine", sandbox=SMALL)
    with pytest.raises(NameExistsError, match="mine"):
        connected.runtime("mine", attach=False)


async def test_the_async_twin(connected: Platform) -> None:
    """The same runtime, awaited."""
    connected.runtime("shared", sandbox=SMALL).execute("x = [1]")
    async with await connected.async_runtime("shared") as runtime:
        assert [1] == await runtime.retrieve("x")


def test_what_there_is(connected: Platform) -> None:
    """Runtimes are described, with their policies, and deleted by name; a deleted one does not exist."""
    assert [] == connected.runtimes()
    runtime = connected.runtime("one", sandbox=SMALL)
    runtime.execute("1")
    (info,) = connected.runtimes()
    assert ("one", "ready", 1, 1, SMALL) == (info.name, info.state, info.clients, info.steps, info.policy)
    assert info == connected.find(info.id) == connected.find("one")
    connected.delete("one")
    assert [] == connected.runtimes()
    for gone in (
        lambda: connected.find("one"),
        lambda: connected.delete("one"),
        lambda: runtime.execute("1"),
    ):
        with pytest.raises(UnknownRuntimeError):
            gone()


def test_what_the_platform_says_of_itself(connected: Platform) -> None:
    """Its version, and the identity of the token."""
    about = connected.describe()
    assert ("tests", "tests", ()) == (about.software, about.tenant, about.nodes)


def test_a_joined_runtime_keeps_its_policy(connected: Platform) -> None:
    """A client's policy is used for runtimes that it creates; one that it joins has to be at least as strict."""
    connected.runtime("small", sandbox=SMALL)
    joined = connected.runtime("small", sandbox=SandboxPolicy(processes=99))
    assert "1" == joined.execute("1").value
    assert SMALL == connected.find("small").policy == joined.core.policy


@pytest.mark.parametrize("asked", [SandboxPolicy(processes=9), SandboxPolicy(memory="64MiB")])
def test_a_runtime_that_allows_more_is_not_joined(connected: Platform, asked: SandboxPolicy) -> None:
    """A jail that is weaker than the requested one is never used silently."""
    connected.runtime("wide", sandbox=SMALL)
    with pytest.raises(WeakerRuntimeError, match="'wide' exists, and is weaker than `sandbox` in"):
        connected.runtime("wide", sandbox=asked)
    assert "1" == connected.runtime("wide").execute("1").value


def test_many_clients_of_one_runtime(own_platform: SmallPlatform, connected: Platform) -> None:
    """Thirty-two concurrently: each cell runs once, and each client gets its own answer and output."""
    connected.runtime("busy", sandbox=SMALL).execute("total = 0")
    heard: dict[int, tuple[str, str | None]] = {}

    def work(number: int) -> None:
        text: list[str] = []
        with connected.runtime("busy") as runtime:
            code = f"total += 1\nprint('{number}')\n{number}"
            result = runtime.execute(code, on_output=lambda _, piece: text.append(piece))
            heard[number] = "".join(text), result.value

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert {number: (f"{number}\n", f"{number}") for number in range(32)} == heard
    assert "32" == connected.runtime("busy").execute("total").value


def test_a_client_that_leaves_takes_its_cell_back(connected: Platform) -> None:
    """The namespace stays, for other clients at once; a caller that waited for the cell learns why there is no
    answer."""
    leaving, staying = connected.runtime("kept", sandbox=SMALL), connected.runtime("kept")
    started = threading.Event()
    errors: list[Exception] = []

    def run() -> None:
        try:
            code = "x = 1\nprint('go')\nimport time\ntime.sleep(600)"
            leaving.execute(code, on_output=lambda *_: started.set())
        except CenoteError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    assert started.wait(PATIENCE)
    leaving.close()
    thread.join(PATIENCE)
    assert [RuntimeClosedError] == [type(error) for error in errors]
    assert "1" == staying.execute("x").value
    assert 1 == connected.find("kept").clients


@pytest.mark.parametrize("address", ["embedded", "", "not an address"])
def test_what_is_no_platform(address: str) -> None:
    """It is refused before anything is sent."""
    with pytest.raises(UsageError):
        cenote.connect(address)


def test_names(connected: Platform) -> None:
    """A runtime without a name is created by another call."""
    with pytest.raises(UsageError, match="has a name"):
        connected.runtime("")


def test_the_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an address: the one in the environment, else this machine."""
    monkeypatch.delenv("CENOTE_ADDRESS", raising=False)
    assert "localhost:8470" == cenote.connect(token="t").address
    monkeypatch.setenv("CENOTE_ADDRESS", "127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        cenote.connect(token="t").describe()
