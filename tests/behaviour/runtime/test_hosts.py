"""Functions and objects that stay in the client, called from a real jail."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from typing import Any

import pytest
from tests.support.forks.fixtures import by_value  # noqa: F401
from tests.support.overdue import LIMITS
from tests.waiting import PATIENCE

from cenote.runtime import AsyncPythonRuntime, Function, PythonRuntime, Variable

pytestmark = [pytest.mark.usefixtures("where"), pytest.mark.at("embedded", "platform")]


def host(function: Any, **more: Any) -> Function:
    return Function(function, host=True, **more)


@pytest.mark.at("embedded", "platform", "relayed")
def test_it_runs_in_the_client(make_runtime) -> None:
    """A host function runs in the client's process; values go both ways."""

    def pid_and(values: list[int], *, plus: int = 0) -> tuple[int, list[int]]:
        return os.getpid(), [value + plus for value in values]

    runtime = make_runtime(functions=[host(pid_and)])
    assert f"({os.getpid()}, [2, 3])" == runtime.execute("pid_and([1, 2], plus=1)").value


@pytest.mark.at("embedded", "platform", "relayed")
def test_async_host_functions(make_runtime) -> None:
    """An async function is awaited in the cell, and many run at once with gather."""
    together = asyncio.Event()
    running = 0

    async def fetch(n: int) -> int:
        nonlocal running
        running += 1
        if running == 10:
            together.set()
        await together.wait()
        return n * 2

    runtime = make_runtime(functions=[host(fetch)])
    result = runtime.execute("import asyncio\nawait asyncio.gather(*[fetch(n) for n in range(10)])")
    assert str([n * 2 for n in range(10)]) == result.value
    assert "8" == runtime.execute("async def main(): return await fetch(4)\nasyncio.run(main())").value


def test_threads_of_a_cell_call_at_once(make_runtime) -> None:
    """Calls from threads of one cell run concurrently in the client."""
    together = threading.Barrier(4, timeout=PATIENCE)

    def meet(n: int) -> int:
        together.wait()
        return n

    runtime = make_runtime(functions=[host(meet)])
    code = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    print(sorted(pool.map(meet, range(4))))
"""
    assert "[0, 1, 2, 3]\n" == runtime.execute(code).stdout


@pytest.mark.at("embedded", "platform", "relayed")
def test_errors_are_data(make_runtime) -> None:
    """A builtin exception arrives unchanged, any other as a HostError; no traceback of the client."""

    class Custom(Exception):
        pass

    def fail(kind: str) -> None:
        if kind == "custom":
            raise Custom("details")
        raise KeyError("missing")

    runtime = make_runtime(functions=[host(fail)])
    code = "try:\n    fail('key')\nexcept KeyError as e:\n    print(repr(e))"
    assert "KeyError('missing')\n" == runtime.execute(code).stdout
    result = runtime.execute("fail('custom')")
    assert "Custom: details" in str(result.error)
    assert "test_hosts" not in str(result.error)


@pytest.mark.at("embedded", "platform", "relayed")
def test_an_error_is_caught_by_its_builtin_base(make_runtime) -> None:
    """Its class is not in the jail, but code there may name what that inherits from."""

    class Away(ConnectionError):
        pass

    errors = {
        "json": lambda: json.loads("{"),
        "unicode": lambda: b"\xff".decode(),
        "own": lambda: (_ for _ in ()).throw(Away("no route")),
    }

    def ask(kind: str) -> None:
        errors[kind]()

    runtime = make_runtime(functions=[host(ask)])
    for kind, base, text in (
        ("json", "ValueError", "JSONDecodeError: Expecting property name"),
        ("unicode", "ValueError", "UnicodeDecodeError: 'utf-8' codec can't decode"),
        ("own", "OSError", "Away: no route"),
    ):
        code = f"try:\n    ask({kind!r})\nexcept {base} as error:\n    met = error"
        assert runtime.execute(code).success
        assert runtime.execute("str(met)").value.strip("'\"").startswith(text)
        assert "HostError" == runtime.execute(f"ask({kind!r})").error.type


@pytest.mark.at("embedded")
def test_memory_that_the_client_lacks_is_not_the_jails(make_runtime) -> None:
    def ask() -> None:
        raise MemoryError("no room in the client")

    error = make_runtime(functions=[host(ask)]).execute("ask()").error
    assert ("HostError", "MemoryError: no room in the client", "exception") == (
        error.type,
        error.message,
        error.reason,
    )


@pytest.mark.at("embedded")
@pytest.mark.usefixtures("by_value")
def test_such_an_error_goes_by_value() -> None:
    with PythonRuntime(functions=[host(lambda: json.loads("{"), name="ask")]) as runtime:
        runtime.execute("try:\n    ask()\nexcept ValueError as error:\n    met = error")
        with runtime.fork() as branch:
            found = branch.execute("isinstance(met, ValueError), 'JSONDecodeError' in str(met)")
            assert "(True, True)" == found.value


@pytest.mark.at("embedded", "platform", "relayed")
def test_errors_of_any_text(make_runtime) -> None:
    """Half an emoji, or an undecodable file name: it is escaped, and the cell gets the error at once."""

    def find(kind: str) -> None:
        if kind == "own":
            raise type("Own", (Exception,), {})("\udcff")
        raise ValueError("no such note: " + os.fsdecode(b"n\xff.txt"))

    find.__doc__ = "Looks for \ud83d"  # Python 3.13 compiles no such text as a docstring
    runtime = make_runtime(functions=[host(find, description="Looks for \ud83d")])
    result = runtime.execute("find('value')")
    assert ("ValueError", "no such note: n\\udcff.txt") == (result.error.type, result.error.message)
    assert "Own: \\udcff" == runtime.execute("find('own')").error.message
    assert "'Looks for \\\\ud83d'" == runtime.execute("find.__doc__").value


@pytest.mark.at("embedded", "platform", "relayed")
def test_exception_groups(make_runtime) -> None:
    """A TaskGroup's exception in the client arrives with its parts, and `except*` matches them."""

    async def fetch() -> None:
        async def page(error: Exception) -> None:
            raise error

        async with asyncio.TaskGroup() as group:
            group.create_task(page(ConnectionError("the server is down")))
            group.create_task(page(LookupError("no such page")))

    runtime = make_runtime(functions=[host(fetch)])
    error = runtime.execute("await fetch()").error
    assert "ExceptionGroup" == error.type
    assert (
        "unhandled errors in a TaskGroup (2 sub-exceptions): ConnectionError: the server is down; "
        "LookupError: no such page"
    ) == error.message
    assert "1 of 2:\n    ConnectionError: the server is down" in str(error)
    code = """
try:
    await fetch()
except* ConnectionError as e:
    print(e.exceptions)
except* LookupError:
    pass
"""
    assert "(ConnectionError('the server is down'),)\n" == runtime.execute(code).stdout


@pytest.mark.at("embedded")
def test_causes_and_notes(make_runtime) -> None:
    """Of a group, of its parts, and of any other exception. Implicit context stays in the client."""

    def fail(grouped: bool) -> None:
        try:
            try:
                raise KeyError("secret context")
            except KeyError:
                raise ValueError("inner") from OSError("the disk")
        except ValueError as inner:
            inner.add_note("a note")
            if not grouped:
                raise
            raise ExceptionGroup("outer", [inner]) from RuntimeError("the cause")

    runtime = make_runtime(functions=[host(fail)])
    error = runtime.execute("fail(True)").error
    assert "RuntimeError: the cause\nwhich was the cause of:" in str(error)
    assert "secret" not in str(error)
    code = """
def told(e): return repr(e.__cause__), getattr(e, "__notes__", None), e.__context__ is e.__cause__
try:
    fail(False)
except ValueError as e:
    print(told(e))
try:
    fail(True)
except ExceptionGroup as e:
    print(told(e), told(e.exceptions[0])[:2])
"""
    assert (
        "(\"OSError('the disk')\", ['a note'], False)\n"
        "(\"RuntimeError('the cause')\", None, False) (\"OSError('the disk')\", ['a note'])\n"
    ) == runtime.execute(code).stdout


@pytest.mark.at("embedded")
def test_causes_without_end(make_runtime) -> None:
    """A ring, and a long chain of large ones: the received part is bounded."""

    def fail(ring: bool) -> None:
        error = ValueError("last")
        for number in range(1_000):
            further = ValueError("x" * 9_000 + str(number))
            further.__cause__, error = error, further
        if ring:
            error.__cause__ = error
        raise error

    runtime = make_runtime(functions=[host(fail)])
    count = "n = 0\ntry: fail({})\nexcept ValueError as e:\n    while e: e = e.__cause__; n += 1\nn"
    assert 10 > int(runtime.execute(count.format(False)).value) > 1
    assert 10 > int(runtime.execute(count.format(True)).value) > 1


def test_large_exception_groups(make_runtime) -> None:
    """Bounded in depth, number and text, for any exception; a group of groups stays a group."""

    def fail() -> None:
        group: BaseException = ExceptionGroup("e" * 20_000, [KeyError("\ud83d" * 5_000)] * 1_000)
        for _ in range(50):
            group = BaseExceptionGroup(
                "outer", [group, BaseExceptionGroup("base", [KeyboardInterrupt("stop")])]
            )
        raise group

    runtime = make_runtime(functions=[host(fail)])
    assert "ExceptionGroup" == runtime.execute("fail()").error.type
    code = """
def leaves(error):
    if not isinstance(error, BaseExceptionGroup):
        return [type(error).__name__]
    return [leaf for member in error.exceptions for leaf in leaves(member)]
try:
    fail()
except BaseException as error:
    print(leaves(error))
"""
    assert "'HostError'" in runtime.execute(code).stdout


def test_results_that_cannot_travel(make_runtime) -> None:
    """The error names the call and the remedy."""
    runtime = make_runtime(functions=[host(lambda: threading.Lock(), name="lock")])
    result = runtime.execute("lock()")
    assert "result of lock()" in str(result.error)
    assert str(result.error).endswith("; call what gives plain data, an array or a frame")  # a model reads it


def test_arguments_are_loaded_safely(make_runtime) -> None:
    """An object of a class that the client did not name does not reach a host function."""
    called: list[object] = []
    runtime = make_runtime(functions=[host(called.append, name="take")])
    result = runtime.execute("class Mine: pass\ntake(Mine())")
    assert not result.success
    assert "Mine" in str(result.error)
    assert [] == called


def test_host_objects(make_runtime) -> None:
    """A live object stays in the client; its public methods are called there."""

    class Account:
        """An account."""

        def __init__(self) -> None:
            self.balance = 10
            self._secret = "s"

        @property
        def loud(self) -> str:
            raise AssertionError("a property must not be run by listing it")

        def withdraw(self, amount: int) -> int:
            """Takes money out."""
            self.balance -= amount
            return self.balance

        def _hidden(self) -> str:
            return self._secret

    account = Account()
    runtime = make_runtime(variables=[Variable("account", account, host=True)])
    assert "7" == runtime.execute("account.withdraw(3)").value
    assert 7 == account.balance
    assert "AttributeError" == runtime.execute("account._hidden()").error.type
    refused = runtime.execute("account.balance").error
    assert "AttributeError" == refused.type
    assert "only its methods are here: withdraw" in refused.message
    assert "True" == runtime.execute("import copy; copy.deepcopy(account).withdraw is not None").value
    assert "Takes money out." in runtime.execute("help(account.withdraw)").stdout


def test_host_objects_with_hundreds_of_methods(make_runtime) -> None:
    """Their descriptions may be larger than a packet."""
    methods = {f"method_{n}": lambda self, n=n: n for n in range(1_000)}
    for method in methods.values():
        method.__doc__ = "word " * 1_000
    driver = type("Driver", (), methods)()
    runtime = make_runtime(variables=[Variable("driver", driver, host=True)])
    assert "999" == runtime.execute("driver.method_999()").value


class Slow:
    """An async host function that waits until it is cancelled."""

    def __init__(self) -> None:
        self.started, self.cancelled = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


@pytest.mark.at("embedded", "platform", "relayed")
def test_host_calls_end_with_their_cell(make_runtime) -> None:
    """Interrupting the cell cancels the async host function that it waits for."""
    slow = Slow()
    runtime = make_runtime(functions=[host(slow.wait, name="slow")])
    for limit in LIMITS:  # with more time if the call has not begun by then
        result = runtime.execute("await slow()", timeout=limit)
        if slow.started.is_set():
            break
    assert slow.cancelled.wait(PATIENCE)
    assert ("time", "kept") == (result.error.reason, result.state)
    assert "2" == runtime.execute("1 + 1").value


def test_host_calls_end_with_their_jail(make_runtime) -> None:
    """The death of the process cancels its pending calls, and its successor can call again."""
    slow = Slow()
    begun = host(lambda: slow.started.wait(PATIENCE), name="begun")
    runtime = make_runtime(functions=[host(slow.wait, name="slow"), begun])
    code = (
        "import threading, os\nthreading.Thread(target=lambda: begun() and os._exit(1)).start()\nawait slow()"
    )
    assert "rolled_back" == runtime.execute(code).state
    assert slow.started.is_set()
    assert slow.cancelled.wait(PATIENCE)


async def test_async_functions_run_on_the_awaiting_loop() -> None:
    """A connection that belongs to the caller's loop can be used."""
    loop = asyncio.get_running_loop()

    async def same_loop() -> bool:
        return asyncio.get_running_loop() is loop

    async with AsyncPythonRuntime(functions=[host(same_loop)]) as runtime:
        assert "True" == (await runtime.execute("await same_loop()")).value


def test_a_fork_in_the_jail_cannot_call(make_runtime) -> None:
    """A forked child of the cell would mix up the answers; it gets an error."""
    runtime = make_runtime(functions=[host(lambda: 1, name="one")])
    code = """
import os
one()
pid = os.fork()
if pid == 0:
    try:
        one()
    except RuntimeError as error:
        os.write(1, str(error).encode())
    os._exit(0)
os.waitpid(pid, 0)
one()
"""
    result = runtime.execute(code)
    assert "not a fork" in result.stdout
    assert "1" == result.value


@pytest.mark.at("embedded", "platform", "relayed")
@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000])
def test_many_calls_at_once(make_runtime, count: int) -> None:
    """A thousand concurrent calls are all answered."""

    async def echo(n: int) -> int:
        return n

    runtime: PythonRuntime = make_runtime(functions=[host(echo)])
    code = f"import asyncio\nsum(await asyncio.gather(*[echo(n) for n in range({count})]))"
    assert str(sum(range(count))) == runtime.execute(code).value


@pytest.mark.at("embedded")
@pytest.mark.slow
def test_arguments_that_are_too_much(make_runtime) -> None:
    """A call may carry a large array, but not very many small objects; the error names what is too large."""
    runtime = make_runtime(functions=[host(len, name="size")])
    assert "4000000" == runtime.execute("import numpy\nsize(numpy.zeros(4_000_000))").value
    result = runtime.execute("size([[n] for n in range(200_000)])")
    assert "pass much data as an array" in str(result.error)
    assert "2" == runtime.execute("1 + 1").value


@pytest.mark.at("embedded")
def test_a_host_function_cannot_wait_for_its_own_runtime(make_runtime) -> None:
    """The cell already waits for the answer: the call is refused at once, by author and by owner."""
    runtime: PythonRuntime

    def again() -> str | None:
        return runtime.execute("1").value

    def store() -> None:
        runtime.attach("ann").update_variable("x", 2)

    runtime = make_runtime(functions=[host(again), host(store)], variables=[Variable("x", 1)])
    for call in ("again()", "store()"):
        assert "cannot use the runtime that called it" in str(runtime.execute(call, timeout=PATIENCE).error)
    assert "1" == runtime.execute("x").value


@pytest.mark.at("embedded")
async def test_an_async_host_function_may_leave_work_for_later() -> None:
    """Waiting for its own runtime is refused; a task that it starts is served after the cell."""
    left: list[asyncio.Task[Any]] = []

    async def again() -> str | None:
        return (await runtime.execute("1")).value

    async def later() -> None:
        left.append(asyncio.create_task(runtime.execute("done = True")))

    async with AsyncPythonRuntime(functions=[host(again), host(later)]) as runtime:
        result = await runtime.execute("await later()\nawait again()", timeout=PATIENCE)
        assert "cannot use the runtime that called it" in str(result.error)
        await left[0]
        assert (await runtime.execute("done")).value == "True"


@pytest.mark.at("embedded")
def test_what_is_set_on_a_stand_in_is_refused(make_runtime) -> None:
    """It would stay in the jail, where a later cell would read it as the client's object's."""

    class Light:
        def __init__(self) -> None:
            self.on = False

        def switch(self, on: bool) -> None:
            self.on = on

    runtime = make_runtime(variables=[Variable("light", Light(), host=True)])
    for code in ("light.on = True", "light.switch = print", "del light.switch"):
        error = runtime.execute(code).error
        assert "AttributeError" == error.type
        assert "would not reach the client; call a method of light: switch" in error.message
    assert "AttributeError" == runtime.execute("light.on").error.type
    assert runtime.execute("import copy; copy.copy(light).switch(True)").success
