"""A library's own state is not taken for a user's change."""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
from collections import Counter

import numpy
import pytest
from tests.support.tracking.steps import Steps

from cenote_worker.execution.trace import name
from cenote_worker.jail.tracking.process_state import ambient_state, monkeypatches
from cenote_worker.process.memory_unsafe import memory_at

pytestmark = pytest.mark.usefixtures("alone")


def test_a_weak_reference_to_its_own_holder_can_be_seen(steps: Steps) -> None:
    """As optimizers and their schedules have; an object without another reference may disappear at any time."""
    steps.good("import weakref\nclass Node: pass\nroot, leaf = Node(), Node()\nroot.leaf = leaf")
    trace = steps.good("root.me = weakref.ref(root)\nfar = [weakref.ref(leaf)]")
    assert (False, True) == tuple(trace.writes[name(each)].startswith("?") for each in ("root", "far"))
    again = steps.good("root.leaf.x = 1")
    assert again.writes[name("root")] != trace.writes[name("root")]


def test_a_method_called_eval_is_not_the_function(steps: Steps) -> None:
    """A reference to one of Python's classes does not lead to its module's functions."""
    steps.good("from collections import defaultdict\nclass Model:\n    def eval(self): return 1")
    steps.good("model = Model()\nmodel.state = defaultdict(dict)")
    assert () == steps.good("model.eval()").opaque


def test_handlers_of_libraries_that_show_lines_concern_who_logs(steps: Steps) -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(logging.Formatter("%(lineno)d %(message)s"))
    library = logging.getLogger("cenote.test.library")
    library.addHandler(handler)
    try:
        steps.good("import logging\nours = logging.getLogger('cenote.test')")
        assert () == steps.good("level = ours.level").unrepeatable
        assert ("it logs where code stands",) == steps.good("ours.debug('x')").unrepeatable
    finally:
        library.removeHandler(handler)


def test_a_library_that_replaces_a_method_of_its_logger_makes_no_new_version_each_time() -> None:
    library = logging.getLogger("cenote.test.other")
    setattr(library, "isEnabledFor", logging.Logger.isEnabledFor)  # noqa: B010  (types forbid it)
    try:
        assert ambient_state.versions(())["logging"] == ambient_state.versions(())["logging"]
        setattr(library, "isEnabledFor", lambda level: True)  # noqa: B010
        assert ambient_state.versions(())["logging"] != ambient_state.versions(())["logging"]
    finally:
        del library.isEnabledFor


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("level", logging.INFO),
        ("propagate", False),
        ("disabled", True),
        ("handlers", [logging.NullHandler()]),
        ("filters", [logging.Filter()]),
        ("mine", 1),
    ],
)
def test_whatever_is_set_on_a_logger_is_another_version(key: str, value: object) -> None:
    """On a logger in its initial state, which is not inspected twice."""
    logger = logging.getLogger("cenote.test.plain")
    table, before = vars(logger), ambient_state.versions(())["logging"]
    former = dict(table)
    try:
        table[key] = value
        assert before != ambient_state.versions(())["logging"]
    finally:
        table.clear()
        table.update(former)
    assert before == ambient_state.versions(())["logging"]


def test_whom_libraries_call_is_asked_once_before_a_step_and_once_behind_it(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing runs between the two looks before it. Callbacks that it sets count for any later step too."""
    asked = Counter[str]()
    look = monkeypatches.called_back
    monkeypatch.setattr(
        monkeypatches, "called_back", lambda library: (asked.update([library]), look(library))[1]
    )
    steps.good("import signal\nx = 1")
    asked.clear()
    steps.good("y = x")
    assert {"signal": 2, "asyncio": 2} == {each: asked[each] for each in ("signal", "asyncio")}
    former = signal.getsignal(signal.SIGUSR1)
    try:
        steps.good("signal.signal(signal.SIGUSR1, lambda *_: x)")
        assert name("x") in steps.good("z = 1").reads
    finally:
        signal.signal(signal.SIGUSR1, former)


def test_memory_at_an_address_keeps_its_owner() -> None:
    owner = bytearray(b"abc")
    seen = memory_at(ctypes.addressof(ctypes.c_char.from_buffer(owner)), 3, owner)
    owner[0] = ord("x")
    assert (b"xbc", b"") == (bytes(seen), bytes(memory_at(0, 0, owner)))


def test_only_what_is_missing_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step, whose answer is given to the next one; unless a generator has come since."""
    known = ambient_state.versions(())
    monkeypatch.setenv("CENOTE_TESTED", "1")
    now = ambient_state.versions({"decimal"})
    assert known["environ"] != now["environ"]
    assert known | {"decimal": now["decimal"]} == ambient_state.versions({"decimal"}, known)
    numpy.random.seed(0)
    lacking = {each: version for each, version in known.items() if each != "numpy.random"}
    assert now["environ"] == ambient_state.versions((), lacking)["environ"]
