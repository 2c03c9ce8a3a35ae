"""Histories in other formats: notebooks, JSON, Mermaid, DOT."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import jsonschema
import pytest
from tests.support.harness.lines import Line

from cenote.harness.export import to_dot, to_mermaid
from cenote_security.errors import UnavailableError, UnknownEntryError, UsageError
from cenote_worker.execution.results import ErrorInfo

TEXT = {"type": "string"}
DATA = {"type": "object"}
OUTPUT = {
    "oneOf": [
        {
            "properties": {
                "output_type": {"const": "stream"},
                "name": {"enum": ["stdout", "stderr"]},
                "text": TEXT,
            },
            "required": ["output_type", "name", "text"],
            "additionalProperties": False,
        },
        {
            "properties": {"output_type": {"const": "display_data"}, "data": DATA, "metadata": DATA},
            "required": ["output_type", "data", "metadata"],
            "additionalProperties": False,
        },
        {
            "properties": {
                "output_type": {"const": "execute_result"},
                "execution_count": {"type": "integer"},
                "data": DATA,
                "metadata": DATA,
            },
            "required": ["output_type", "execution_count", "data", "metadata"],
            "additionalProperties": False,
        },
        {
            "properties": {
                "output_type": {"const": "error"},
                "ename": TEXT,
                "evalue": TEXT,
                "traceback": {"type": "array", "items": TEXT},
            },
            "required": ["output_type", "ename", "evalue", "traceback"],
            "additionalProperties": False,
        },
    ]
}
ID = {"type": "string", "pattern": "^[a-zA-Z0-9-_]+$", "minLength": 1, "maxLength": 64}
NOTEBOOK = {
    "type": "object",
    "properties": {
        "nbformat": {"const": 4},
        "nbformat_minor": {"const": 5},
        "metadata": {"type": "object", "required": ["kernelspec", "language_info"]},
        "cells": {
            "type": "array",
            "items": {
                "oneOf": [
                    {
                        "properties": {
                            "id": ID,
                            "cell_type": {"const": "code"},
                            "metadata": DATA,
                            "source": TEXT,
                            "execution_count": {"type": ["integer", "null"]},
                            "outputs": {"type": "array", "items": OUTPUT},
                        },
                        "required": ["id", "cell_type", "metadata", "source", "execution_count", "outputs"],
                        "additionalProperties": False,
                    },
                    {
                        "properties": {
                            "id": ID,
                            "cell_type": {"const": "markdown"},
                            "metadata": DATA,
                            "source": TEXT,
                        },
                        "required": ["id", "cell_type", "metadata", "source"],
                        "additionalProperties": False,
                    },
                ]
            },
        },
    },
    "required": ["nbformat", "nbformat_minor", "metadata", "cells"],
    "additionalProperties": False,
}
"""The rules of Jupyter's schema 4.5 for the cells that are written here."""

PNG = {"image/png": b"\x89PNG", "text/plain": "<Figure>"}


@pytest.fixture
def line() -> Line:
    line = Line("raw")
    line.run("x = 1", writes=["x"], author="ana", stdout="out\n", stderr="err\n")
    line.run("plot(); x", reads=["x"], outputs=(PNG, {"text/plain": "1", "text/html": "<b>1</b>"}), value="1")
    line.run(
        "1 / 0", status="failed", error=ErrorInfo(type="ZeroDivisionError", message="no", traceback="a\nb")
    )
    line.run(kind="injection", names=("y",), writes=["y"])
    line.blind('print("<&>")')
    line.rollback(4)
    line.run("y", reads=["y"], value="2")
    return line


def test_a_notebook_of_the_live_line(line: Line, tmp_path: Path) -> None:
    """Valid by the schema; the cells in order, without rolled back ones."""
    notebook = json.loads(line.state.export(tmp_path / "run.ipynb").read_text())
    jsonschema.validate(notebook, NOTEBOOK)
    assert [
        "The runtime began with `raw`.",
        "x = 1",
        "plot(); x",
        "1 / 0",
        "Step 4: `y` put in by the owner of the runtime.",
        "y",
    ] == [cell["source"] for cell in notebook["cells"]]


def test_a_notebook_has_the_outputs(line: Line, tmp_path: Path) -> None:
    """Streams, displayed objects, the last value in its rich form if it has one, errors."""
    cells = json.loads(line.state.export(tmp_path / "run.ipynb").read_text())["cells"]
    first, second, failed, last = (cells[at]["outputs"] for at in (1, 2, 3, 5))
    assert [("stdout", "out\n"), ("stderr", "err\n")] == [(each["name"], each["text"]) for each in first]
    assert ["display_data", "execute_result"] == [each["output_type"] for each in second]
    assert b"\x89PNG" == base64.b64decode(second[0]["data"]["image/png"])
    assert {"text/plain": "1", "text/html": "<b>1</b>"} == second[1]["data"]
    assert ("ZeroDivisionError", ["a", "b"]) == (failed[0]["ename"], failed[0]["traceback"])
    assert {"text/plain": "2"} == last[0]["data"]


def test_everything_as_json(line: Line, tmp_path: Path) -> None:
    """All lines, with their steps and the graph."""
    data = json.loads(line.state.export(tmp_path / "run.json").read_text())
    assert (6, [1, 2, 3, 4, 5, 6]) == (data["head"], [step["number"] for step in data["steps"]])
    assert line.state.graph() == data["graph"]


def test_a_graph_is_plain_data(line: Line) -> None:
    """Data flow between steps, their parents, and possible flow."""
    graph = line.state.graph()
    edges = {(edge["source"], edge["target"], edge["kind"], *edge["symbols"]) for edge in graph["edges"]}
    assert {(1, 2, "data", "x"), (4, 6, "data", "y"), (4, 5, "unknown"), (4, 6, "parent")} <= edges
    assert {5} == {node["id"] for node in graph["nodes"] if not node["live"]}
    json.dumps(graph)


def test_a_part_of_a_graph(line: Line) -> None:
    """The same nodes as in the whole, and the edges that lead to them; and which steps took from one."""
    whole = line.state.graph()
    for numbers in ([], [0], [2], [6, 2], [1, 2, 3, 4, 5, 6]):
        part = line.state.graph(numbers)
        assert numbers == [node["id"] for node in part["nodes"]]
        assert all(node in whole["nodes"] for node in part["nodes"])
        assert part["head"] == whole["head"]
        edges = [edge for number in numbers for edge in whole["edges"] if edge["target"] == number]
        assert edges == part["edges"]
    for number in range(7):
        into = {
            edge["target"]
            for edge in whole["edges"]
            if (edge["source"], edge["kind"] != "parent") == (number, True)
        }
        assert into == set(line.state.takers(number))
    for question in (lambda: line.state.graph([99]), lambda: line.state.takers(99)):
        with pytest.raises(UnknownEntryError):
            question()


def test_text_in_drawings_is_escaped(line: Line) -> None:
    """Code is arbitrary text: it must not end a label, nor be a tag where the drawing is shown."""
    mermaid, dot = to_mermaid(line.state.graph()), to_dot(line.state.graph())
    assert 's5["5: print(#34;#60;#38;#62;#34;)"]' in mermaid
    assert r'label="5: print(\"<&>\")"' in dot
    assert 's1 -->|"x"| s2' in mermaid
    assert 's1 -> s2 [label="x"];' in dot


@pytest.mark.parametrize("name", ["run.pdf", "run"])
def test_other_formats(line: Line, name: str, tmp_path: Path) -> None:
    """They are refused, and nothing is written."""
    with pytest.raises(UsageError, match=r"\.ipynb"):
        line.state.export(tmp_path / name)
    assert [] == list(tmp_path.iterdir())


def test_places_where_nothing_can_be_written(line: Line, tmp_path: Path) -> None:
    """Reported with the usual error for unavailable resources."""
    line.run("x = 1")
    for place in (tmp_path / "nowhere" / "run.ipynb", tmp_path / "folder.json"):
        (tmp_path / "folder.json").mkdir(exist_ok=True)
        with pytest.raises(UnavailableError, match=r"cannot be written.*another place"):
            line.state.export(place)


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ('{"a": [1.5]}', {"a": [1.5]}),
        ("[" * 100 + "]" * 100, json.loads("[" * 100 + "]" * 100)),
        ("[" * 101 + "]" * 101, "[" * 101 + "]" * 101),
        ("[" * 100_000, "[" * 100_000),
        ("[NaN]", "[NaN]"),
        ("[1e999]", "[1e999]"),
    ],
)
def test_json_that_other_programs_cannot_read_stays_text(
    content: str, written: object, tmp_path: Path
) -> None:
    """The content comes from a jail: no output prevents an export."""
    line = Line()
    line.run("x", outputs=({"application/json": content},))
    [cell] = json.loads(line.state.export(tmp_path / "run.ipynb").read_text())["cells"]
    assert [written] == [output["data"]["application/json"] for output in cell["outputs"]]
