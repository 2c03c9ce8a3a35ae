"""What libraries have of their own is not taken for what a user does with them."""

from __future__ import annotations

import ctypes
import logging
import sys

import pytest
from tests.tracking.steps import Steps

from cenote_worker.memory_unsafe import memory_at
from cenote_worker.trace import name
from cenote_worker.tracking import hidden

pytestmark = pytest.mark.usefixtures("alone")


def test_a_weak_reference_to_its_own_holder_can_be_seen(steps: Steps) -> None:
    """As optimizers and their schedules have; what nobody holds beside it may go at any time."""
    steps.good("import weakref\nclass Node: pass\nroot, leaf = Node(), Node()\nroot.leaf = leaf")
    trace = steps.good("root.me = weakref.ref(root)\nfar = [weakref.ref(leaf)]")
    assert (False, True) == tuple(trace.writes[name(each)].startswith("?") for each in ("root", "far"))
    again = steps.good("root.leaf.x = 1")
    assert again.writes[name("root")] != trace.writes[name("root")]


def test_a_method_called_eval_is_not_the_function(steps: Steps) -> None:
    """That something holds a class of Python's leads nobody to its functions."""
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
        assert hidden.versions(())["logging"] == hidden.versions(())["logging"]
        setattr(library, "isEnabledFor", lambda level: True)  # noqa: B010
        assert hidden.versions(())["logging"] != hidden.versions(())["logging"]
    finally:
        del library.isEnabledFor


def test_memory_at_an_address_keeps_its_owner() -> None:
    owner = bytearray(b"abc")
    seen = memory_at(ctypes.addressof(ctypes.c_char.from_buffer(owner)), 3, owner)
    owner[0] = ord("x")
    assert (b"xbc", b"") == (bytes(seen), bytes(memory_at(0, 0, owner)))
