"""The part of the platform's environment that a process gets which works on a tenant's team."""

from __future__ import annotations

import pytest

from cenote.gateway.work.process_unsafe import NO_HOME, environment


@pytest.mark.slow
def test_nothing_but_what_programs_need_and_what_was_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator's keys, home and proxy are not for tenants."""
    given = {
        "OPENAI_API_KEY": "k",
        "AWS_PROFILE": "p",
        "HTTPS_PROXY": "x",
        "PYTHONHASHSEED": "0",
        "HOME": "/root",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    found = environment(["ANTHROPIC_API_KEY"])
    assert {"PYTHONHASHSEED"} == set(given) & set(found) - {"HOME"}
    assert NO_HOME == found["HOME"]
    assert ("k", "/root") == (
        (named := environment(["OPENAI_API_KEY", "HOME"]))["OPENAI_API_KEY"],
        named["HOME"],
    )
