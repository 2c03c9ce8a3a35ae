"""Options as JSON: pydantic checks it and makes its schema, from the definitions that constructors use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote.gateway.jobs.rules import JobRules
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.store.state_folder import StateFolder
from cenote.gateway.values.quota import TenantLimits
from cenote.runtime.core.backend import RetentionOptions
from cenote.team.budget import Budget
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.options import Definition, Options, definitions
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.retention import Retention

VALUES: list[Options] = [
    SandboxPolicy(),
    SandboxPolicy(
        isolation="strict",
        memory="512MiB",
        noexec=True,
        cell_timeout=3,
        network=Allow(["pypi.org"], rate=2),
        env={"A": "b"},
        mounts=[Mount(source="/a", target="/b", writable=True)],
        preload=["numpy"],
    ),
    Allow(["example.com:80"], volume=0),
    Budget(tokens=5, cost=0.5),
    JobRules(attempts=3, timeout=60),
    RetentionOptions(durable=True, hibernate_after=2.0, partial=True),
    Retention(hibernate_after=1.5),
    TenantLimits(cpus=2.5, memory="1GiB"),
    PlatformOptions(
        state=StateFolder(path=Path("/s")),
        tls=True,
        certificate=Path("/c"),
        key=Path("/k"),
        shared_memory=1 << 30,
    ),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_json_and_back(value: Options) -> None:
    """Equal, with equal hashes, and valid by its own schema."""
    text = value.to_json()
    assert value == type(value).from_json(text)
    assert hash(value) == hash(type(value).from_json(text))
    jsonschema.Draft202012Validator(type(value).json_schema()).validate(json.loads(text))


@pytest.mark.parametrize("kind", list(dict.fromkeys(map(type, VALUES))), ids=lambda kind: kind.__name__)
def test_a_schema_says_what_a_definition_does(kind: type[Options]) -> None:
    """Each option with its text, its unit and its default; no other property is accepted."""
    schema = kind.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["additionalProperties"] is False
    for known in definitions(kind):
        said = schema["properties"][known.name]
        assert known.option.help == said["description"]
        assert known.option.unit == said.get("unit", "")
        assert known.name in schema.get("required", []) or "default" in said


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"memory": 1}, "memory is a size of at least 64 MiB"),
    ({"cpus": "2"}, "cpus is a positive number, not '2'"),
    ({"cpus": True}, "cpus is a positive number, not True"),
    ({"processes": 3}, "processes is a whole number from 8 to 4194304, not 3"),
    ({"isolation": "weak"}, "unknown isolation 'weak'; use auto, strict, landlock, gvisor or none"),
    ({"network": "all"}, 'network is either "none" or Allow'),
    (
        {"network": {"destinations": ["pypi.org"], "rate": 0}},
        "network.rate is a positive number of at most 1000,",
    ),
    ({"network": {"destinations": ["localhost"]}}, "network: 'localhost' is not a destination"),
    (
        {"network": {"destinations": ["a.b"], "prot": 1}},
        "network: there is no option 'prot'; use destinations, conn",
    ),
    ({"mounts": [{"source": "d"}]}, "mounts[0]: a mount needs absolute paths"),
    ({"mounts": [{}]}, "mounts[0].source is missing"),
    ({"mounts": ["/d"]}, "mounts is a list of Mount objects, not '/d'"),
    ({"env": {"": "x"}}, "env is a mapping of names to strings"),
    ({"cpu": 1}, "there is no option 'cpu'; did you mean cpus?"),
    ({"noexec": True, "isolation": "none"}, "noexec=True takes a wall"),
]


@pytest.mark.parametrize(("data", "text"), WRONG, ids=str)
def test_a_wrong_value_is_told_as_by_the_constructor(data: dict[str, Any], text: str) -> None:
    """The same type of error in one line, without pydantic's own words."""
    with pytest.raises(UsageError) as caught:
        SandboxPolicy.from_json(json.dumps(data))
    told = str(caught.value)
    assert told.startswith(text)
    assert "\n" not in told
    assert "things are wrong" not in told


def test_several_wrong_values_are_told_together() -> None:
    with pytest.raises(
        UsageError, match=r"3 things are wrong: \(1\) cpus is .* \(2\) processes is .* \(3\) there"
    ):
        SandboxPolicy.from_json('{"cpus": 0, "processes": 1, "colour": "red"}')


@pytest.mark.parametrize("text", ["", "{", "nonsense", '{"cpus": 1', b"\xff"])
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(UsageError, match="no JSON"):
        SandboxPolicy.from_json(text)


@pytest.mark.parametrize("text", ["[]", "5", "null", '"a"', "[[[[[[]]]]]]"])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(UsageError, match="options are an object"):
        SandboxPolicy.from_json(text)


_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5000),
    st.sampled_from(
        [2**30, 2**63, 10**400, 0.5, -1.0, 1e300, "", "auto", "none", "2GiB", "/a", "a.b:80", "é", "\0"]
    ),
    st.floats(),
)
_DATA = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["source", "target", "destinations", "rate", "path", "A", ""]), inner, max_size=3
        )
    ),
    max_leaves=4,
)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", list(dict.fromkeys(map(type, VALUES))), ids=lambda kind: kind.__name__)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_whatever_json_says_it_is_an_option_or_refused(kind: type[Options], data: st.DataObject) -> None:
    """One error type for all of it; a value read from JSON equals the one written to it."""
    names = st.sampled_from([*(known.name for known in definitions(kind)), "state", "other"])
    text = json.dumps(data.draw(st.dictionaries(names, _DATA, max_size=3) | _DATA))
    try:
        value = kind.from_json(text)
    except UsageError as error:
        told = str(error)
    else:
        assert value == kind.from_json(value.to_json())
        told = ""
    assert "\n" not in told
    assert "pydantic" not in told


@pytest.mark.sweep
@pytest.mark.parametrize("known", definitions(SandboxPolicy), ids=lambda known: known.name)
@settings(max_examples=60, deadline=None)
@given(value=_SCALARS)
def test_json_and_the_constructor_agree(known: Definition, value: object) -> None:
    """For each plain value, except an integer that is written with a decimal point."""
    if isinstance(value, float) and value.is_integer():
        return
    try:
        made = SandboxPolicy(**{known.name: value})
    except UsageError:
        with pytest.raises(UsageError):
            SandboxPolicy.from_json(json.dumps({known.name: value}))
    else:
        assert made == SandboxPolicy.from_json(json.dumps({known.name: value}))
