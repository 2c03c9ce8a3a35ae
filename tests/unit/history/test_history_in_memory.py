"""A history in memory: its head, what is dropped from it, descriptions of variables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.history.records import traced

from cenote_security.errors import MalformedValueError, RejectedError
from cenote_worker.execution.results import VariableInfo
from cenote_worker.history.bounds import (
    MAX_ALL_PUT_IN,
    MAX_BEGINNINGS,
    MAX_FILE,
    MAX_FILES,
    MAX_OUTPUTS,
    MAX_PUT_IN,
    MAX_TEXT,
    MAX_TOLD,
    MAX_TRACES,
    SMALL,
)
from cenote_worker.history.events import (
    ArtifactDeclared,
    Event,
    InitialNames,
    RanTest,
    SuiteOutcome,
    ValuesInjected,
    VariablesDescribed,
)
from cenote_worker.history.history import MAX_DESCRIBED, MAX_DESCRIPTIONS, MAX_NOTED, MAX_SAID, History
from cenote_worker.history.messages import from_event, from_history, to_event
from cenote_worker.history.step import HostCallRecord, StepRecord


def run(history: History, number: int, **more: object) -> StepRecord:
    return history.ended(StepRecord(number=number, **more))  # type: ignore[arg-type]


def info(name: str, size: int = 1) -> VariableInfo:
    return VariableInfo(name=name, type="int", size=size)


def test_a_step_begins_where_the_head_was() -> None:
    """Also after a rollback; the steps after its target remain in the tree."""
    history = History()
    run(history, 1), run(history, 2)
    history.moved(1, "rollback")
    assert 1 == run(history, 3).parent
    assert [1, 2, 3] == [record.number for record in history.tree]
    assert [1, 3] == [record.number for record in history.tree.line(3)]


def test_a_head_moves_to_known_steps_only() -> None:
    """And nothing is added when it does not move."""
    history = History()
    with pytest.raises(KeyError):
        history.moved(5, "rollback")
    assert 0 == history.size


@pytest.mark.parametrize("over", [0, 1])
def test_a_text_at_its_limit_is_whole(over: int) -> None:
    """With one character more, its middle is left out."""
    text = "a" * (MAX_TEXT + over)
    kept = run(History(), 1, stdout=text, stderr="x" * MAX_TEXT).stdout
    assert (over == 0) == (kept == text)
    assert (over == 1) == ("characters left out" in kept)


def test_displayed_objects_are_kept_from_the_first_on() -> None:
    """As many as fit."""
    plot = {"image/png": b"x" * (MAX_OUTPUTS // 2)}
    assert 2 == len(run(History(), 1, outputs=(plot, plot, plot)).outputs)


def test_the_oldest_results_are_shed_first() -> None:
    """Its host calls and its trace stay; the last step is complete however large it is."""
    history = History(room=100)
    for number in (1, 2, 3):
        run(history, number, stdout="x" * 40, trace=traced(writes=["x"]))
    run(history, 4, stdout="y" * 300)
    shed = [(record.shed, len(record.stdout)) for record in history.tree]
    assert [(True, 0), (True, 0), (True, 0), (False, 300)] == shed
    assert traced(writes=["x"]) == history.tree.get(1).trace


def test_what_host_calls_carried_is_shed_too() -> None:
    """The fact of the calls and their digests remain."""
    call = HostCallRecord(target="ask", digest="d", arguments=b"a" * 60, reply=b"b" * 60, parts=1)
    history = History(room=100)
    run(history, 1, host_calls=(call,))
    run(history, 2, host_calls=(call,))
    first, second = (record.host_calls[0] for record in history.tree)
    assert (HostCallRecord(target="ask", digest="d", parts=1), call) == (first, second)


def test_a_copy_sheds_what_its_original_has_shed() -> None:
    """A reader of the events gets the same steps."""
    history = History(room=100)
    for number in (1, 2, 3):
        run(history, number, stdout="x" * 40)
    copy = History(room=100)
    copy.read(to_event(from_event(history.event(at))) for at in range(history.size))
    assert list(history.tree) == list(copy.tree)


def test_descriptions_tell_what_is_new() -> None:
    """Relative to the state described before; on another line everything is repeated."""
    history = History()
    run(history, 1)
    history.described([info("a"), info("b")])
    run(history, 2)
    history.described([info("a"), info("c")])
    assert [VariablesDescribed(step=2, variables=(info("c"),), gone=("b",))] == list(history.said(2))
    history.moved(0, "reset")
    run(history, 3)
    history.described([info("a")])
    assert [VariablesDescribed(step=3, variables=(info("a"),))] == list(history.said(3))


def test_whoever_describes_all_the_time_adds_little() -> None:
    """Nothing, when nothing is new; and no more than a fixed number for one state."""
    history = History()
    run(history, 1)
    for _ in range(5):
        history.described([info("a")])
    assert 1 == len(history.said(1))
    for size in range(2 * MAX_DESCRIPTIONS):
        history.described([info("a", size)])
    assert MAX_DESCRIPTIONS == len(history.said(1))


def test_what_is_said_of_variables_is_bounded() -> None:
    """A jail may describe as many as it likes, at any length."""
    history = History()
    run(history, 1)
    long = VariableInfo(name="long", type="int", description="d" * (MAX_SAID + 1))
    odd = VariableInfo(name="n" * (MAX_SAID + 1), type="int")
    history.described([long, odd, *(info(f"x{number}") for number in range(MAX_DESCRIBED))])
    (said,) = history.said(1)
    assert ("long", MAX_SAID) == (said.variables[0].name, len(said.variables[0].description))
    assert MAX_DESCRIBED == len(said.variables)


@pytest.mark.slow
def test_all_that_is_said_of_variables_is_bounded() -> None:
    """A jail may describe others after each step."""
    history, said = History(), "d" * MAX_SAID
    infos = [VariableInfo(name=f"x{number}", type="int", description=said) for number in range(MAX_DESCRIBED)]
    times = MAX_NOTED // (MAX_DESCRIBED * MAX_SAID) + 2
    for number in range(1, times + 1):
        run(history, number)
        history.described([replace(each, size=number) for each in infos])
    assert history.said(times // 2)
    assert not history.said(times)


def test_all_traces_together_are_bounded() -> None:
    """Above the limit a large trace is dropped: its step may have touched anything. Small ones remain."""
    history = History()
    large = traced(writes=["x" * 4_000_000])
    fitting = MAX_TRACES // large.size
    for number in range(1, fitting + 1):
        assert large == run(history, number, trace=large).trace
    assert "more than can be told" in str(run(history, fitting + 1, trace=large).unknown)
    small = traced(writes=["x"])
    assert small == run(history, fitting + 2, trace=small).trace


def full() -> History:
    """A history with code that is large in total, and shared here."""
    history, code = History(), "#" * 2**20
    for number in range(1, MAX_TOLD // len(code) + 1):
        run(history, number, code=code)
    return history


def test_all_code_together_is_bounded() -> None:
    """Code is refused before it runs; cells no larger than the allowance of any step are accepted."""
    history = full()
    history.check_room("#" * SMALL)
    with pytest.raises(RejectedError, match="new runtime"):
        history.check_room("#" * (SMALL + 1))


def test_what_is_declared_and_tested_has_no_room_of_its_own() -> None:
    """Clients and jails can send both as often as they like."""
    history, long = full(), "n" * (SMALL + 1)
    size = history.size
    with pytest.raises(RejectedError):
        history.declared([ArtifactDeclared(name=long)])
    with pytest.raises(RejectedError):
        history.tested(SuiteOutcome(suite="s", tests=(RanTest(name="t", outcome="failed", message=long),)))
    assert size == history.size


def test_events_that_contradict_each_other_are_refused() -> None:
    """A step that follows an unknown one."""
    with pytest.raises(MalformedValueError, match="follows step 7"):
        History().read([StepRecord(number=8, parent=7)])


def test_an_excerpt_is_bounded() -> None:
    """By its size, except for a single event; a reader that continues from its end gets all."""
    history = History()
    for number in range(1, 9):
        run(history, number, code="x" * 2**20)
    copy, more = History(), True
    while more:
        excerpt = from_history(history, copy.size)
        assert excerpt.ByteSize() < 6 * 2**20
        copy.read(map(to_event, excerpt.events))
        more = excerpt.more
    assert list(history.tree) == list(copy.tree)
    assert excerpt.next == copy.size == history.size


def test_what_is_written_into_files_is_kept_within_bounds() -> None:
    """Each content once, none that is too large, and no more than there is room for; smaller ones still fit."""
    history = History()
    assert "" == history.keep_file(bytes(MAX_FILE + 1)) == history.keep_file(None)
    contents = [bytes([number]) * MAX_FILE for number in range(MAX_FILES // MAX_FILE)]
    digests = [history.keep_file(each) for each in (*contents[1:], *contents[1:])]
    assert (len(contents) - 1, True) == (history.size, all(digests))
    assert ("", True) == (history.keep_file(b"y" + contents[0]), bool(history.keep_file(b"small")))
    assert "" == history.keep_file(contents[0])


def test_clients_plan_without_what_is_in_the_files() -> None:
    """They receive the digests without the contents."""
    history, copy = History(), History()
    digest = history.keep_file(bytes(MAX_FILE))
    excerpt = from_history(history, 0)
    assert excerpt.ByteSize() < 200
    copy.read(map(to_event, excerpt.events))
    assert {digest: None} == copy.files


def test_what_is_put_in_is_kept_within_bounds() -> None:
    """Each content once, and no more than there is room for; clients receive them without the contents."""
    history, copy = History(), History()
    contents = [bytes([number]) * MAX_PUT_IN for number in range(MAX_ALL_PUT_IN // MAX_PUT_IN)]
    for number, each in enumerate((*contents, *contents)):
        history.keep_value(str(number % len(contents)), each)
    history.keep_value("one more", b"x")
    assert (len(contents), True) == (history.size, history.values["0"] is contents[0])
    copy.read(map(to_event, from_history(history, 0).events))
    assert dict.fromkeys(history.values) == copy.values


def test_steps_are_without_what_is_gone() -> None:
    """Injections whose content the history does not hold itself; copies are informed."""
    history, copy = History(), History()
    history.keep_value("kept", b"x")
    for number, content in enumerate(("kept", "held", "held", ""), 1):
        history.ended(StepRecord(number=number, kind="injection", names=("a",), content=content))
    history.begins_with(["b"], values=[ValuesInjected(names=("b",), content="at first")])
    assert {"held", "at first"} == history.values_elsewhere
    for content in ("kept", "held", "held", "unheard of"):
        history.value_gone(content)
    copy.read(map(to_event, from_history(history, 0).events))
    for each in (history, copy):
        assert [True, False, False, False] == [record.repeatable for record in each.tree]
        assert {"at first"} == each.values_elsewhere


class Heard:
    """Records the numbers of the steps that its history reports."""

    def __init__(self) -> None:
        self.numbers: list[list[int]] = []

    def went_on(self, history: History, records: Sequence[StepRecord]) -> None:
        assert all(record.number in history.tree for record in records)
        self.numbers.append([record.number for record in records])


def test_a_companion_hears_of_each_step_once() -> None:
    """Existing steps, new ones, and several that are read at once; declarations are reported too."""
    history = History()
    run(history, 1)
    run(history, 2)
    history.accompany(Heard)
    history.accompany(Heard)
    run(history, 3)
    history.declared([ArtifactDeclared(name="last", kind="dataset")])
    history.read([StepRecord(number=4), StepRecord(number=5)])
    assert [[1, 2], [3], [], [4, 5]] == history.beside(Heard).numbers


def test_whoever_adds_a_step_waits_for_no_companion() -> None:
    """Companions are informed by `prepare`, or by the next query."""
    history = History()
    history.accompany(Heard)
    heard = history.beside(Heard).numbers
    run(history, 1)
    assert [] == heard
    history.prepare()
    history.prepare()
    run(history, 2)
    run(history, 3)
    assert [[1]] == heard
    history.beside(Heard)
    assert [[1], [2, 3]] == heard


class NotKept:
    """An EventSink that stores nothing."""

    def add(self, position: int, event: Event) -> None: ...

    def shed(self, position: int, record: StepRecord) -> None: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


def test_what_there_was_before_the_first_step_is_told_within_bounds() -> None:
    """Each change there repeats all of it: in memory the last one remains, and a written history has a limit."""
    history = History(NotKept())
    names = [f"{number:0{MAX_BEGINNINGS // 16}}" for number in range(4)]
    for count in range(1, 5):
        history.begins_with(names[:count])
    assert [InitialNames(), InitialNames(names=tuple(names))] == [history.event(0), history.event(3)]
    copy = History()
    copy.read(history.event(position) for position in range(history.size))
    assert history.begun == copy.begun
    room = MAX_BEGINNINGS * 6 // 16 - MAX_BEGINNINGS * 4 // 16  # in addition to what exists already
    history.check_beginning(["x" * (room // 2)])
    with pytest.raises(RejectedError, match="run a cell"):
        history.check_beginning(["x" * (room // 2 + 1)])
    copy.check_beginning(["x" * MAX_BEGINNINGS])  # nothing of it is written down
