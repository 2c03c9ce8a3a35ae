"""`await` works at the top level, on one event loop for the lifetime of the namespace."""

import gc

import pytest

pytestmark = pytest.mark.filterwarnings("ignore:coroutine 'double' was never awaited")


@pytest.fixture(autouse=True)
def asyncio_imported(good):
    good("import asyncio\nasync def double(x):\n    await asyncio.sleep(0)\n    return 2 * x")


def test_await_gives_a_value(good):
    assert "10" == good("await double(5)").value


@pytest.mark.parametrize(
    "code",
    [
        "async with asyncio.Lock(): x = 10",
        "async def numbers():\n    yield 10\nasync for x in numbers(): pass",
        "x = [await double(i) for i in range(6)][-1]",
        "x = sum(await asyncio.gather(double(2), double(3)))",
    ],
)
def test_asynchronous_statements(good, code):
    assert "10" == good(f"{code}\nx").value


def test_a_task_can_be_made_without_await(good):
    """As in a notebook, where a loop is always running."""
    good("task = asyncio.create_task(double(4))")
    assert "8" == good("await task").value


def test_a_loop_of_the_users_own_works(good):
    code = "loop = asyncio.new_event_loop()\ntask = loop.create_task(double(4))\nx = loop.run_until_complete(task)"
    assert "8" == good(f"{code}\nloop.close()\nx").value


def test_tasks_go_on_in_later_cells(good):
    """A task that a cell leaves runs while a later cell awaits."""
    good(
        "async def later():\n    await asyncio.sleep(0)\n    done.append(1)\ndone = []\n"
        "task = asyncio.create_task(later())\nawait asyncio.sleep(0)"
    )
    good("await asyncio.sleep(0.01)")
    assert "[1]" == good("done").value


def test_run_in_a_cell_without_await(good):
    assert "4" == good("asyncio.run(double(2))").value


def test_run_in_a_cell_with_await(good):
    """There it runs in a separate thread, since the cell's loop is running."""
    assert "14" == good("await double(2) + asyncio.run(double(5))").value


def test_an_error_of_a_nested_run_is_the_cells(failing):
    error = failing("async def bad(): raise ValueError('inside')\nawait double(1)\nasyncio.run(bad())")
    assert "ValueError: inside" in error.traceback
    assert "async def bad(): raise ValueError" in error.traceback
    assert "cenote_worker/jail" not in error.traceback


def test_run_until_complete_between_cells_uses_the_same_loop(good):
    good("await double(1)")
    assert "6" == good("asyncio.get_event_loop().run_until_complete(double(3))").value


def test_a_closed_loop_is_replaced(good):
    good("await double(1)\nloop = asyncio.get_running_loop()")
    good("loop.close()")
    assert "8" == good("await double(4)").value


def test_a_running_loop_is_explained(failing):
    error = failing("asyncio.get_event_loop().run_until_complete(double(await double(1)))")
    assert "write `await f()`" in error.message
    gc.collect()  # the coroutine that never ran warns here and not in another test


def test_context_set_in_a_cell_lasts(good):
    """Tasks run in the namespace's context: decimal precision and context variables are kept."""
    good(
        "import decimal, contextvars\nv = contextvars.ContextVar('v')\n"
        "await double(1)\nv.set(3)\ndecimal.getcontext().prec = 5"
    )
    assert "(3, 5)" == good("(v.get(), decimal.getcontext().prec)").value
    assert "(3, 5)" == good("await double(1)\n(v.get(), decimal.getcontext().prec)").value


def test_exit_in_a_coroutine_ends_the_cell(good):
    good("await double(1)\nexit()")
    assert "2" == good("await double(1)").value


def test_the_coroutine_of_a_cell_is_not_left_open(failing, sink, good):
    """A failed cell's exception is retrieved: nothing is logged about it later."""
    gc.collect()  # leftovers of other tests warn before
    failing("await double(1)\n1/0")
    good("import gc; gc.collect()")
    assert "" == sink.err


def test_awaiting_what_was_forgotten_is_explained(failing):
    assert "write `await`" in failing("double(1) + 1").message
    assert "write `await`" in failing("double(1).real").message
