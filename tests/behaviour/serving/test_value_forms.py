"""Values as JSON and Arrow IPC, with plain stubs: what a client in another language can do."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa
import pytest
from tests.support.serving.fixtures import World
from tests.support.serving.plain import CHUNK, Line, plain

from cenote_proto.v1 import jail_pb2, runtime_pb2
from cenote_worker.execution.results import VariableInfo
from cenote_worker.runtime.jail_requests import FormCheck, WrittenForm
from cenote_worker.serving.limits import ServerTimeouts
from cenote_worker.supervisor.frame_parser import ValueReply
from cenote_worker.supervisor.requests import Outcome
from cenote_worker.transport.content import Content

JSON, ARROW = jail_pb2.JSON_VALUE, jail_pb2.ARROW_VALUE
NOT_PLAIN = jail_pb2.Refusal.NOT_PLAIN


@pytest.fixture(scope="module")
def line() -> Iterator[Line]:
    """A connection to one runtime for all tests here."""
    world = World(ServerTimeouts())
    yield world.line(world.runtime())
    world.close()


def put(
    line: Line, name: str, data: bytes, form: jail_pb2.ValueForm.ValueType, **more: object
) -> runtime_pb2.ServerFrame:
    """Injects; small values in the frame, others in chunks."""
    if len(data) <= CHUNK // 32:
        injection = runtime_pb2.Injection(name=name, values=plain(data), form=form, **more)
        return line.answer(line.send(injection=injection))
    values = jail_pb2.Payload(size=len(data), attached=True)
    call = line.send(injection=runtime_pb2.Injection(name=name, values=values, form=form, **more))
    line.chunks(call, data)
    return line.answer(call)


def get(
    line: Line, name: str, form: jail_pb2.ValueForm.ValueType, most: int = 0
) -> bytes | runtime_pb2.ServerFrame:
    """The text or the stream; or the answer, if it is something else."""
    call = line.send(fetch=jail_pb2.Fetch(name=name, form=form, most=most))
    answer = line.answer(call)
    if not answer.reply.HasField("value"):
        return answer
    content = answer.reply.value.content
    assert content.count == 0
    return line.content(call) if content.attached else content.inline


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def tables(data: object) -> pa.Table:
    assert isinstance(data, bytes)
    return pa.ipc.open_stream(data).read_all()


@pytest.mark.parametrize(
    "value",
    [None, True, -(2**70), 1.5, "é\u2028\x00", [], {}, {"a": [1, {"b": None}]}, "x" * 3_000_000],
    ids=lambda value: repr(value)[:20],
)
def test_json_comes_back_as_it_was(line: Line, value: object) -> None:
    """Large texts too, which travel in chunks."""
    assert put(line, "data", json.dumps(value).encode(), JSON, replace=True).reply.HasField("done")
    text = get(line, "data", JSON)
    assert isinstance(text, bytes)
    assert value == json.loads(text)


def test_a_cell_works_with_what_came(line: Line) -> None:
    """JSON as plain data, a table as pyarrow's."""
    table = pa.table({"city": ["a", "b"], "sales": [1.5, 2.5]})
    put(line, "config", b'{"limit": 2, "tags": ["x"]}', JSON, replace=True)
    put(line, "frame", stream(table), ARROW, replace=True)
    result = line.run("config['limit'] * sum(frame['sales'].to_pylist())")
    assert "8.0" == result.value
    assert tables(get(line, "frame", ARROW)).equals(table)


def test_a_large_table_in_both_directions(line: Line) -> None:
    """Also written to and read from a file; a cell's result comes back as a stream."""
    table = pa.table({"n": list(range(400_000))})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert put(line, "big", sink.getvalue().to_pybytes(), ARROW, replace=True).reply.HasField("done")
    assert line.run("big = big.filter(__import__('pyarrow.compute').compute.less(big['n'], 300_000))").success
    assert 300_000 == tables(get(line, "big", ARROW)).num_rows


@pytest.mark.parametrize(
    ("code", "columns"),
    [
        ("import pandas as pd; x = pd.DataFrame({'a': [1, 2]})", {"a": [1, 2]}),
        ("import pandas as pd; x = pd.Series([1.5], name='s')", {"s": [1.5]}),
        ("import numpy as np; x = np.arange(3)", {"value": [0, 1, 2]}),
        ("import numpy as np; x = np.array([[1, 2], [3, 4]])", {"value": [[1, 2], [3, 4]]}),
        ("import pyarrow as pa; x = pa.array([1, None])", {"value": [1, None]}),
        ("import pyarrow as pa; x = pa.record_batch({'a': ['é']})", {"a": ["é"]}),
        ("import polars as pl; x = pl.DataFrame({'a': [1]})", {"a": [1]}),
    ],
)
def test_frames_and_arrays_leave_as_arrow(line: Line, code: str, columns: dict[str, object]) -> None:
    """Whichever library created them."""
    result = line.run(code)
    assert result.success, result.error.message
    assert columns == tables(get(line, "x", ARROW)).to_pydict()


@pytest.mark.parametrize(
    ("code", "form", "said"),
    [
        ("x = {'a': float('nan')}", JSON, r"x['a'] is nan, which JSON does not have; use None"),
        ("x = [{1}]", JSON, "x[0] is a set"),
        ("x = [1, 2]", ARROW, "x is a list, and Arrow holds frames and arrays; fetch it as JSON"),
        ("import numpy as np; x = np.array([1j])", ARROW, "x cannot be written as Arrow"),
        ("import pandas as pd; x = pd.DataFrame({'a': [1, 's']})", ARROW, "x cannot be written as Arrow"),
    ],
)
def test_what_has_no_such_form_is_named(
    line: Line, code: str, form: jail_pb2.ValueForm.ValueType, said: str
) -> None:
    """With what to do instead; no value is converted to something else."""
    assert line.run(code).success
    answer = get(line, "x", form)
    assert isinstance(answer, runtime_pb2.ServerFrame)
    assert NOT_PLAIN == answer.reply.refusal.kind
    assert said in answer.reply.refusal.message


@pytest.mark.parametrize(
    ("data", "form", "said"),
    [
        (b"{", JSON, "what was sent as JSON is none"),
        (b"[NaN]", JSON, "it has NaN, which JSON does not have"),
        (b'"\xff"', JSON, "what was sent as JSON is no UTF-8"),
        (b"[" * 200_000, JSON, "nested too deeply"),
        (b"", JSON, "what was sent as JSON is none"),
        (b"\x80\x05K\x01.", JSON, "what was sent as JSON is no"),
        (b"no table", ARROW, "what was sent as Arrow is no Arrow IPC stream"),
        (b"", ARROW, "what was sent as Arrow is no Arrow IPC stream"),
        (stream(pa.table({"a": [1, 2, 3]}))[:-40], ARROW, "what was sent as Arrow is no Arrow IPC stream"),
    ],
)
def test_what_is_not_of_its_form_is_refused(
    line: Line, data: bytes, form: jail_pb2.ValueForm.ValueType, said: str
) -> None:
    """In the jail, where it is decoded; nothing is bound then."""
    refusal = put(line, "wrong", data, form).reply.refusal
    assert NOT_PLAIN == refusal.kind
    assert said in refusal.message
    assert not line.run("wrong").success


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"name": ""}, "name of a variable"),
        ({"name": "a b"}, "name of a variable"),
        ({"name": "class"}, "name of a variable"),
        ({"form": 7}, "no form 7"),
        ({"reference": "ref_1"}, "send other things apart"),
        ({"values": jail_pb2.Payload(inline=b"1" * 80, size=80, count=1)}, "`count` is 0"),
    ],
)
def test_what_makes_no_injection(line: Line, change: dict[str, object], said: str) -> None:
    """It is an error of the client, reported before anything is done."""
    fields = {"name": "x", "values": plain(b"1"), "form": JSON, **change}
    failure = line.answer(line.send(injection=runtime_pb2.Injection(**fields))).failure
    assert said in failure.message


def test_a_form_and_a_pickle_at_once(line: Line) -> None:
    """They contradict each other, so the call is refused."""
    failure = line.answer(line.send(fetch=jail_pb2.Fetch(name="x", form=JSON, opaque=True))).failure
    assert "not both" in failure.message


def test_a_name_is_taken_once(line: Line) -> None:
    """As with any injection: `replace` allows to replace a former value."""
    assert put(line, "once", b"1", JSON).reply.HasField("done")
    assert jail_pb2.Refusal.NAME_EXISTS == put(line, "once", b"2", JSON).reply.refusal.kind
    assert put(line, "once", b"2", JSON, replace=True).reply.HasField("done")
    assert b"2" == get(line, "once", JSON)


def test_a_client_takes_no_more_than_it_said(line: Line) -> None:
    """At the limit it is sent, one past it is refused."""
    assert line.run("x = 'a' * 98").success
    assert b'"' + b"a" * 98 + b'"' == get(line, "x", JSON, most=100)
    refused = get(line, "x", JSON, most=99)
    assert isinstance(refused, runtime_pb2.ServerFrame)
    assert "x takes 100 bytes in this form, of up to 99" in refused.reply.refusal.message


class Hearer:
    """Stores an outcome."""

    def output(self, _stream: object, _text: str) -> bool:
        return True

    def done(self, outcome: Outcome) -> None:
        self.outcome = outcome


@pytest.mark.parametrize(
    ("content", "said"),
    [(Content.of_bytes(b"12345"), "of up to 4"), (Content.pack([b"1", b"2"]), "parts where one text")],
)
def test_a_jail_that_answers_otherwise(content: Content, said: str) -> None:
    """Its data is bounded and checked outside too, whatever program runs in it."""
    info = VariableInfo(name="x", type="str", shape=None, size=1, description="")
    hearer = Hearer()
    FormCheck(hearer, WrittenForm(JSON, 4)).done(ValueReply(content, info))
    assert said in str(hearer.outcome)


def test_a_later_jail_has_it_again(line: Line) -> None:
    """What was put in is part of a runtime's initial state."""
    assert put(line, "again", b'{"a": 1}', JSON, replace=True).reply.HasField("done")
    assert put(line, "rows", stream(pa.table({"n": [1]})), ARROW, replace=True).reply.HasField("done")
    assert line.answer(line.send("r", reset=runtime_pb2.Reset())).reply.HasField("done")
    assert "[1, 1]" == line.run("[again['a'], rows.num_rows]").value
