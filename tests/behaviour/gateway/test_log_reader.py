"""The logs of a platform as events: both forms of the log, entries of the audit log, files that change meanwhile."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from cenote.gateway.audit.entries import NO_HASH, AuditEntry, AuditEvent, Facts
from cenote.gateway.process.log_reader import (
    MAX_LINE,
    EventFilter,
    LogEvent,
    LogTail,
    described,
    from_audit,
    parse_log,
)
from cenote.gateway.process.logs import JsonFormatter, PrintableFormatter, without_secrets
from cenote_security.auth.capability import Capability, CapabilityRight, MasterKey
from cenote_security.auth.tokens import BearerToken
from cenote_security.ids import RuntimeId, TenantId, TokenId
from cenote_worker.process.log_context import log_context

RUNTIME = "rt_" + "a" * 32


def written(formatter: logging.Formatter, log: Callable[[logging.Logger], None]) -> str:
    """What a logger writes in this form."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    logger = logging.Logger("cenote.gateway")
    logger.addHandler(handler)
    log(logger)
    return out.getvalue()


PLAIN = PrintableFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")


@pytest.mark.parametrize("formatter", [PLAIN, JsonFormatter()])
def test_what_is_logged_is_read_in_both_forms(formatter: logging.Formatter) -> None:
    """With its traceback, and the runtime that its text names."""

    def log(logger: logging.Logger) -> None:
        logger.info("ready")
        try:
            raise ValueError("two\nlines")
        except ValueError:
            logger.exception("%s is lost", RUNTIME)
        logger.warning("after")

    first, second, third = parse_log(written(formatter, log).splitlines(keepends=True))
    assert ("info", "cenote.gateway", "ready", "") == (first.level, first.source, first.event, first.error)
    assert ("error", RUNTIME) == (second.level, second.runtime)
    assert second.error.endswith("ValueError: two\nlines")
    assert ("warning", "after") == (third.level, third.event)
    assert first.time <= second.time <= third.time
    assert abs(first.time - third.time) < 60


def test_an_event_has_the_tenant_of_the_call_it_belongs_to() -> None:
    def log(logger: logging.Logger) -> None:
        with log_context(tenant="tn_1"), log_context(step="3"):
            logger.info("in it", extra={"runtime": RUNTIME})
        logger.info("after it")

    inside, after = parse_log(written(JsonFormatter(), log).splitlines())
    assert ("tn_1", RUNTIME, 3) == (inside.tenant, inside.runtime, inside.step)
    assert ("", "", 0) == (after.tenant, after.runtime, after.step)


@pytest.mark.parametrize(
    "line",
    ['{"time": "yesterday"}', "{", '{"a": 1}', '{"time": 5, "level": [], "logger": 1, "event": {}}', "[]"],
)
def test_a_line_that_is_no_event_belongs_to_the_one_before(line: str) -> None:
    (event,) = parse_log([*written(PLAIN, lambda logger: logger.info("ready")).splitlines(), line])
    assert ("ready", line) == (event.event, event.error)


def secrets() -> list[str]:
    token = BearerToken.of(TokenId("0" * 32), b"s" * 32).text
    key = MasterKey(secret=b"k" * 32).for_runtime(RuntimeId(RUNTIME))
    capability = Capability(
        tenant=TenantId("tn_1"),
        runtime=RuntimeId(RUNTIME),
        holder=TokenId("t"),
        rights=frozenset((CapabilityRight.RUN,)),
        issued=1,
        expires=2,
    )
    return [token, key.sign(capability), "sk-abcdefghij0123456789"]


@pytest.mark.parametrize("formatter", [PLAIN, JsonFormatter()])
def test_no_secret_is_logged(formatter: logging.Formatter) -> None:
    """Neither as an argument nor in an error, however the text around it goes on."""

    def log(logger: logging.Logger) -> None:
        for secret in secrets():
            logger.info("refused %s, again", secret)
            try:
                raise ValueError(f"bad value {secret!r}")
            except ValueError:
                logger.exception("failed")
        logger.info("postgresql://me:pw@host/db and s3://key:pw@bucket Authorization: Bearer abc.def-1")

    text = written(formatter, log)
    assert not any(secret in text for secret in [*secrets()[1:], "pw@", "abc.def"])
    assert "cenote_" not in text
    assert "postgresql://***@host/db" in text


def test_ordinary_texts_stay_as_they_are() -> None:
    text = "see http://localhost:8480/?q=1 of rt_1, mail a@b.c, a task-force of 3, sha256 " + "a" * 64
    assert text == without_secrets(text)


def entry(kind: str, facts: Facts, runtime: str = RUNTIME) -> LogEvent:
    event = AuditEvent(kind=kind, tenant="tn_1", runtime=runtime, facts=facts)
    return from_audit(AuditEntry(number=1, at=1_500_000, event=event, previous=NO_HASH))


def test_entries_of_the_audit_log_are_events() -> None:
    """A cell that fails is ordinary; what ends a process, is refused or is missing is not."""
    failed = entry(
        "cell", {"step": 4, "success": False, "state": "kept", "error": "ValueError", "code_sha256": "x"}
    )
    assert ("info", 4, "ValueError", 1.5) == (failed.level, failed.step, failed.error, failed.time)
    assert "warning" == entry("cell", {"state": "rolled_back", "reason": "memory"}).level
    assert "error" == entry("cell", {"state": "lost"}).level
    assert "warning" == entry("access", {"allowed": False}).level
    assert "error" == entry("gap", {"lost": 3}, "").level
    line = described(failed, {"tn_1": "acme"}, {RUNTIME: "etl"})
    assert line == (
        "1970-01-01T00:00:01.500+00:00 INFO audit cell tenant=acme runtime=etl step=4 success=false error=ValueError"
    )


def test_events_are_chosen_by_what_they_are_about() -> None:
    one = LogEvent(time=10, level="warning", source="audit", event="e", tenant="tn_1", runtime=RUNTIME)
    names = {RUNTIME: "etl"}
    assert EventFilter().takes(one, names)
    assert EventFilter(runtime="etl").takes(one, names)
    assert EventFilter(runtime=RUNTIME, tenant="tn_1", level="warning", since=10).takes(one, names)
    assert not EventFilter(runtime="other").takes(one, names)
    assert not EventFilter(tenant="tn_2").takes(one, names)
    assert not EventFilter(level="error").takes(one, names)
    assert not EventFilter(since=10.1).takes(one, names)


def test_a_file_is_followed_through_cuts_and_replacements(tmp_path: Path) -> None:
    path = tmp_path / "log"
    tail = LogTail(path)
    assert [] == list(tail.lines())
    path.write_text("one\ntw")
    assert ["one\n"] == list(tail.lines())
    with path.open("a") as file:
        file.write("o\n")
    assert ["two\n"] == list(tail.lines())
    path.write_text("3\n")
    assert ["3\n"] == list(tail.lines())
    (tmp_path / "new").write_text("four\n")
    (tmp_path / "new").rename(path)
    assert ["four\n"] == list(tail.lines())


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * (MAX_LINE + 5) + b"\n\xff\n")
    assert [MAX_LINE, 6, 2] == [len(line) for line in LogTail(path).lines()]


def test_the_json_of_a_level_that_is_unknown_is_information() -> None:
    line = json.dumps({"time": "2026-01-01T00:00:00+00:00", "level": "NOTICE", "logger": "ray", "event": "x"})
    assert ["info"] == [event.level for event in parse_log([line])]
