"""A team whose loop runs on the platform: what it does, and what a client sees of it."""

from __future__ import annotations

import pytest
from tests.support.orchestrator.studio import Studio, code


@pytest.mark.slow
async def test_a_lead_and_its_sub_agent(studio: Studio) -> None:
    """The lead's code calls the sub-agent; values pass by reference; the final answer comes back."""
    lead = "answer = await cleaner.run('count them')\nreply(answer.content)"
    studio.models.script(lead=[code(lead)], cleaner=[code("n = 2 + 3\nprint(n)"), "There are 5."])
    team = studio.team("pair")
    team.add("boss", model=studio.model("lead"), lead=True)
    team.add("cleaner", model=studio.model("cleaner"))
    run = await team.run("How many?")
    assert ("done", "There are 5.", "success") == (run.state, run.answer, run.status)
    told = [(news.agent, news.type) async for news in team.follow()]
    assert [("", "started"), ("boss", "code"), ("cleaner", "code")] == told[:3]
    assert ("", "done") == told[-1]
    status = team.status()
    assert (("boss", "cleaner"), 1, 1) == (status.members, len(status.runs), status.starts)
    assert [] == [runtime.name for runtime in studio.connect().runtimes()]
    team.delete()


@pytest.mark.slow
async def test_what_code_puts_is_known_by_its_type(studio: Studio) -> None:
    """As with a team of this process: type, shape and description are those that its jail reports."""
    put = "team.put('table', {'a': [1, 2], 'b': [3, 4]})\nkind = team.list()[0]"
    said = "reply(f\"{kind['type']} {kind['shape']} {kind['description']}\")"
    studio.models.script(writer=[code(f"{put}\n{said}")])
    team = studio.team("typed")
    team.add("writer", model=studio.model("writer"))
    run = await team.run("Go on.")
    assert "dict (2,) keys 'a', 'b'" == run.answer
    team.delete()


@pytest.mark.slow
async def test_words_that_utf8_cannot_write(studio: Studio) -> None:
    """Servers escape an emoji in halves, and a model may stop between them: the paid answer is not lost."""
    lead = "answer = await cleaner.run('half of \\ud83d')\nprint(answer.content)\nraise ValueError('\\udcff')"
    studio.models.script(lead=[code(lead), "the answer is \ud83d here"], cleaner=["found \ud83d"])
    team = studio.team("halves")
    team.add("boss", model=studio.model("lead"), lead=True, description="half of \ud83d")
    team.add("cleaner", model=studio.model("cleaner"))
    run = await team.run("Take half of \ud83d")
    assert ("done", "the answer is \\ud83d here", "success") == (run.state, run.answer, run.status)
    told = [news.content async for news in team.follow()]
    assert any("\\udcff" in each for each in told)
    team.delete()
