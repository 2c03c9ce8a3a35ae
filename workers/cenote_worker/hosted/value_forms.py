"""How values are written outside of their runtimes: in Python's own way, as JSON, as Arrow IPC. See `ValueForm`.

Nothing here opens one. What comes in is sealed into a pickle that says which function of the jail opens it, so that
histories, journals and later jails have one kind of injection.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import MalformedValueError, UsageError
from cenote_worker.content import Content
from cenote_worker.supervisor.edge import ValueReply
from cenote_worker.supervisor.requests import Listener, Outcome

_OPENERS: Final = {jail_pb2.JSON_VALUE: b"from_json", jail_pb2.ARROW_VALUE: b"from_arrow"}


@dataclass(frozen=True, slots=True)
class Written:
    """The form of a value that leaves its runtime. most: bytes; 0 for as many as any value may have."""

    form: jail_pb2.ValueForm.ValueType = jail_pb2.PYTHON_VALUE
    most: int = 0


PYTHON: Final = Written()


def sealed(form: jail_pb2.ValueForm.ValueType, content: Content) -> Content:
    """The pickle of a value that came in a form other than Python's own; the content is copied, and closed.

    It is made of five instructions (protocol 5, a function, the buffer beside the pickle, the call, the end), so no
    pickler has to see what a client sent. Raises UsageError for a form of a later version, OSError without memory.
    """
    try:
        opener = _OPENERS.get(form)
        if opener is None:
            raise UsageError(f"there is no form {form} of values in this version")
        stream = b"\x80\x05ccenote_worker.in_jail.value_forms\n" + opener + b"\n\x97\x85R."
        whole = memoryview(content.inline or b"") if content.memory is None else content.memory.map()
        return Content.pack([stream, whole])
    finally:
        content.close()


class FormCheck:
    """Hears of a value in a form other than Python's own: a jail may answer with anything."""

    def __init__(self, listener: Listener, written: Written) -> None:
        self._listener = listener
        self._most = written.most
        self.output = listener.output

    def done(self, outcome: Outcome) -> None:
        self._listener.done(self._checked(outcome))

    def _checked(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, ValueReply):
            return outcome
        content = outcome.content
        if content.count:
            content.close()
            return MalformedValueError("the jail answered with parts where one text or stream was asked for")
        if self._most and content.size > self._most:
            content.close()
            return UsageError(f"the value takes {content.size:,} bytes in this form, of up to {self._most:,}")
        return outcome
