"""Options are defined once: results of a definition, and the errors for wrong values."""

from __future__ import annotations

import base64
import math
import pickle
import re
import subprocess
import sys
from collections import ChainMap
from dataclasses import MISSING, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import pytest

from cenote.cli.arguments import Parser, add_flags, given
from cenote.cli.main import main
from cenote.gateway.jobs.rules import JobRules
from cenote.gateway.process.options import PlatformOptions
from cenote.gateway.values.quota import Quota, TenantLimits
from cenote.runtime.core.backend import RetentionOptions
from cenote.team.budget import Budget
from cenote_security.errors import UsageError
from cenote_security.network import Allow
from cenote_security.options import Options, definition, definitions, option
from cenote_security.policy import Mount, SandboxPolicy
from cenote_worker.checkpoints.retention import Retention

CLASSES: list[type[Options]] = [
    Allow, Budget, JobRules, RetentionOptions, Mount, PlatformOptions, Retention, SandboxPolicy, TenantLimits,
]  # fmt: skip
FULL = SandboxPolicy(
    isolation="strict", memory="512MiB", cpus=2.5, processes=64, disk="2GiB", noexec=True, output=1000,
    cell_timeout=3, call_timeout=4.5, runtime_timeout=60, limits="watchdog",
    network=Allow(["pypi.org", "*.example.com:8443"], connections=4, rate=2, volume="1MiB"), env={"A": "b"},
    mounts=[Mount(source="/a", target="/b", writable=True)], snapshots="none", preload=["numpy"], tracking=False,
)  # fmt: skip


def refusal(make: Any) -> str:
    with pytest.raises(UsageError) as caught:
        make()
    return str(caught.value)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_each_option_has_a_text_and_a_right_default(kind: type[Options]) -> None:
    """Each option has a help text, and its default is within its bounds."""
    known = {each.name: each for each in definitions(kind)}
    assert known
    for each in fields(kind):  # type: ignore[arg-type]
        if each.name in known:
            assert known[each.name].option.help
            assert not known[each.name].option.help.endswith(".")
            if each.default is not MISSING:
                known[each.name].plain(each.default)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"memory": 1}, 'memory is a size of at least 64 MiB (bytes, or text such as "512MiB"), not 1: a jail'),
        ({"memory": "much"}, "memory is a size of at least 64 MiB"),
        ({"memory": 2**63}, "no machine has so many bytes"),
        ({"disk": -1}, "disk is a size of at least 1 MiB"),
        ({"cpus": 0}, "cpus is a positive number, not 0"),
        ({"cpus": True}, "cpus is a positive number, not True"),
        ({"cpus": math.nan}, "cpus is a positive number, not nan"),
        ({"cpus": 10**400}, "cpus is a positive number, not 1000"),
        ({"processes": 7}, "processes is a whole number from 8 to 4194304, not 7"),
        ({"processes": "x" * 999}, "..."),
        ({"cell_timeout": -1}, "cell_timeout is a positive number of seconds, or None for no limit, not -1"),
        ({"isolation": "weak"}, "unknown isolation 'weak'; use auto, strict, landlock, gvisor or none"),
        ({"limits": ["auto"]}, "unknown limits ['auto']; use auto, cgroup or watchdog"),
        ({"noexec": 1}, "noexec is True or False, not 1"),
        ({"network": None}, 'network is either "none" or Allow(["pypi.org", ...]), not None'),
        ({"env": {"A": 1}}, "env is a mapping of names to strings"),
        ({"mounts": "/data"}, "mounts is a list of Mount objects, not '/data'"),
        ({"preload": "numpy"}, 'preload is a list of module names, such as ("numpy",), not \'numpy\''),
    ],
    ids=str,
)  # fmt: skip
def test_a_wrong_value_names_the_option_the_bound_and_the_fix(wrong: dict[str, Any], text: str) -> None:
    """In one line, for a value of any length."""
    told = refusal(lambda: SandboxPolicy(**wrong))
    assert text in told
    assert "\n" not in told
    assert len(told) < 400


def test_several_wrong_values_are_named_together() -> None:
    """Errors of single options and between options, all of them."""
    told = refusal(lambda: SandboxPolicy(cpus=0, processes=1, noexec=True, isolation="none"))
    assert told.startswith("3 things are wrong: (1) cpus is")
    assert "(2) processes is" in told
    assert "(3) noexec=True takes a wall" in told
    told = refusal(lambda: PlatformOptions(state=None, port=-1, host="example.com"))  # type: ignore[arg-type]
    assert told.startswith(
        "2 things are wrong: (1) port is a whole number from 0 to 65535, not -1; (2) example.com"
    )
    assert "2 things are wrong" in refusal(lambda: Budget(tokens=-1, seconds=0))
    assert "3 things are wrong" in refusal(lambda: JobRules(concurrency=0, attempts=11, timeout=-1.0))
    assert "a budget's tokens is" in refusal(lambda: Budget(tokens=-1))


def test_the_bounds_themselves_are_right() -> None:
    """At the limit, and one past it."""
    for kind in CLASSES:
        for known in definitions(kind):
            for bound, past in ((known.option.at_least, -1), (known.option.at_most, 1)):
                if bound is not None:
                    assert known.is_right(int(bound)), known
                    assert not known.is_right(int(bound) + past), known
            if known.option.above is not None:
                assert not known.is_right(known.option.above), known


def test_values_are_as_they_were() -> None:
    """Positional and by keyword; equal, hashed alike, replaced, and frozen."""
    assert Allow(["pypi.org"]) == Allow(destinations=("pypi.org:443",))
    policy = SandboxPolicy(memory="2GiB")
    assert (policy, hash(policy)) == (SandboxPolicy(memory=2**31), hash(SandboxPolicy()))
    assert 2.0 == replace(policy, cpus=2.0).cpus
    assert refusal(lambda: replace(policy, cpus=-1)).startswith("cpus is")
    with pytest.raises(AttributeError):
        policy.cpus = 3.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        SandboxPolicy("strict")  # type: ignore[call-arg]


def test_what_is_given_is_copied() -> None:
    """For any kind of list or mapping: nothing in a frozen value changes later."""
    behind = {"A": "1"}
    for given_env in (behind, ChainMap(behind), MappingProxyType(behind)):
        behind["A"] = "1"
        policy = SandboxPolicy(env=given_env)
        behind["A"] = "2"
        assert {"A": "1"} == dict(policy.env)
        assert policy == pickle.loads(pickle.dumps(policy))


# Pickles of these classes from before options were defined with their bounds: `pickle.dumps(value, 5)`, in base64.
OLD = {
    "default": (
        "gAWVMQEAAAAAAACMFmNlbm90ZV9zZWN1cml0eS5wb2xpY3mUjA1TYW5kYm94UG9saWN5lJOUKYGUfZQojAlpc29sYXRpb26UjARhdXRvlIwG"
        "bWVtb3J5lIoFAAAAgACMBGNwdXOURz/wAAAAAAAAjAlwcm9jZXNzZXOUS4CMBGRpc2uUSgAAAECMBm5vZXhlY5SJjAZvdXRwdXSUSgAAoACM"
        "DGNlbGxfdGltZW91dJROjAxjYWxsX3RpbWVvdXSUTowPcnVudGltZV90aW1lb3V0lE6MBmxpbWl0c5RoBowHbmV0d29ya5SMBG5vbmWUjANl"
        "bnaUfZSMBm1vdW50c5QpjAlzbmFwc2hvdHOUaAaMB3ByZWxvYWSUjAVudW1weZSMBnBhbmRhc5SGlIwIdHJhY2tpbmeUiHViLg==",
        SandboxPolicy(),
    ),
    "full": (
        "gAWVBwIAAAAAAACMFmNlbm90ZV9zZWN1cml0eS5wb2xpY3mUjA1TYW5kYm94UG9saWN5lJOUKYGUfZQojAlpc29sYXRpb26UjAZzdHJpY3SU"
        "jAZtZW1vcnmUSgAAACCMBGNwdXOUR0AEAAAAAAAAjAlwcm9jZXNzZXOUS0CMBGRpc2uUigUAAACAAIwGbm9leGVjlIiMBm91dHB1dJRN6AOM"
        "DGNlbGxfdGltZW91dJRLA4wMY2FsbF90aW1lb3V0lEdAEgAAAAAAAIwPcnVudGltZV90aW1lb3V0lEs8jAZsaW1pdHOUjAh3YXRjaGRvZ5SM"
        "B25ldHdvcmuUjBdjZW5vdGVfc2VjdXJpdHkubmV0d29ya5SMBUFsbG93lJOUKYGUfZQojAxkZXN0aW5hdGlvbnOUjAxweXBpLm9yZzo0NDOU"
        "jBIqLmV4YW1wbGUuY29tOjg0NDOUhpSMC2Nvbm5lY3Rpb25zlEsEjARyYXRllEsCjAZ2b2x1bWWUSgAAEAB1YowDZW52lH2UjAFBlIwBYpRz"
        "jAZtb3VudHOUaACMBU1vdW50lJOUKYGUfZQojAZzb3VyY2WUjAIvYZSMBnRhcmdldJSMAi9ilIwId3JpdGFibGWUiHVihZSMCXNuYXBzaG90"
        "c5SMBG5vbmWUjAdwcmVsb2FklIwFbnVtcHmUhZSMCHRyYWNraW5nlIl1Yi4=",
        FULL,
    ),
    "kept": (
        "gAWVOgAAAAAAAACMGmNlbm90ZS5ydW50aW1lLnJlbW90ZS5rZXB0lIwES2VwdJSTlCmBlF2UKIhHQAAAAAAAAACJZWIu",
        RetentionOptions(durable=True, hibernate_after=2.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OLD)
def test_old_pickles_load(name: str) -> None:
    """Written by the earlier code, equal to the current values, and pickled again."""
    written, value = OLD[name]
    loaded = pickle.loads(base64.b64decode(written))
    assert value == loaded
    assert value == pickle.loads(pickle.dumps(loaded))


def test_an_old_pickle_of_a_platform_s_options_loads() -> None:
    written = (
        "gAWV5gAAAAAAAACMFmNlbm90ZS5nYXRld2F5Lm9wdGlvbnOUjA9QbGF0Zm9ybU9wdGlvbnOUk5QpgZRdlCiMG2Nlbm90ZS5nYXRld2F5LnN0"
        "YXRlX2ZvbGRlcpSMC1N0YXRlRm9sZGVylJOUKYGUXZSMB3BhdGhsaWKUjAlQb3NpeFBhdGiUk5SMAS+UjAFzlIaUUpRhYowJMTI3LjAuMC4x"
        "lEsATomJiGgMaA2MAWOUhpRSlGgMaA2MAWuUhpRSlIwFbnVtcHmUjAZwYW5kYXOUhpQpKYwCL3SUR0AUAAAAAAAATkcAAAAAAAAAAGViLg=="
    )
    loaded = pickle.loads(base64.b64decode(written))
    assert (5.0, "/t", True) == (loaded.hibernate_after, loaded.store, loaded.tls)
    assert loaded == PlatformOptions.from_json(loaded.to_json())


def test_a_policy_is_made_without_pydantic() -> None:
    """A default one, and a wrong one: pydantic takes a tenth of a second to import."""
    code = (
        "import sys; from cenote_security.policy import SandboxPolicy\n"
        "from cenote_security.errors import UsageError\n"
        "SandboxPolicy(memory='1GiB', env={'A': 'b'})\n"
        "try: SandboxPolicy(cpus=0)\nexcept UsageError: print('pydantic' in sys.modules)"
    )
    assert (
        "False" == subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
    )


def test_what_a_jail_begins_with_takes_no_pydantic() -> None:
    """A zygote and a jail read a policy that their client has checked."""
    code = (
        "import sys; from cenote_security.policy import SandboxPolicy\n"
        "from cenote_worker.zygote.spec import JailStartRequest\n"
        "request = JailStartRequest.of(SandboxPolicy(cpus=2.5, noexec=True, env={'A': 'b'}), 1)\n"
        "assert request == JailStartRequest.from_json(request.to_json())\n"
        "print(request.policy.cpus, request.policy.noexec)\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ["2.5", "True", "False"] == done.stdout.split()


@dataclass(frozen=True, kw_only=True)
class Oven(Options):
    """With an option of each kind that flags support."""

    heat: float = option(180.0, flag="heat", help="how hot", unit="degrees", at_least=0, at_most=300)
    trays: int = option(1, flag="trays", help="how many", at_least=1, at_most=4)
    fan: bool = option(False, flag="fan", help="whether air moves")
    mode: str = option("", flag="mode", help="which programme")
    rest: float = option(
        0.0, flag="rest-minutes", flag_scale=60, help="how long it waits", unit="seconds", at_least=0
    )
    dishes: tuple[str, ...] = option((), flag="dish", help="what goes in")
    secret: int = option(0, help="has no flag")

    def __post_init__(self) -> None:
        self.checked().raise_all()


def flagged(*arguments: str) -> Oven:
    parser = Parser(prog="oven")
    add_flags(parser, Oven)
    return Oven(**given(parser.parse_args(arguments), Oven))


def test_flags_are_made_of_definitions(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, types, bounds and defaults; an omitted flag has the default."""
    assert Oven() == flagged()
    got = flagged(
        "--heat", "200", "--trays", "2", "--fan", "--rest-minutes", "2", "--dish", "a", "--dish", "b"
    )
    assert Oven(heat=200.0, trays=2, fan=True, rest=120.0, dishes=("a", "b")) == got
    with pytest.raises(SystemExit):
        flagged("--trays", "5")
    assert "trays is a whole number from 1 to 4, not 5" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        flagged("--heat", "hot")
    assert "heat is a number of degrees from 0 to 300, not 'hot'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        (["runtime", "create"], {"--durable", "--hibernate-after", "--memory", "--isolation", "--timeout"}),
        (["job", "submit"], {"--concurrency", "--attempts", "--backoff", "--timeout", "--memory", "--isolation"}),
        (["exec"], {"--memory", "--isolation", "--timeout", "--cpus", "--noexec"}),
        (["up"], {"--port", "--host", "--tls-cert", "--tls-key", "--preload", "--shared-memory", "--store", "--relay",
                  "--model-endpoint", "--team-env", "--hibernate-after", "--audit-days", "--ray-address", "--tls"}),
    ],
    ids=["runtime create", "job submit", "exec", "up"],
)  # fmt: skip
def test_commands_have_their_flags(
    command: list[str], flags: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert flags <= set(re.findall(r"--[a-z-]+", capsys.readouterr().out))


def test_an_unknown_name_has_a_nearest_one() -> None:
    assert "there is no option 'cpu'; did you mean cpus?" == refusal(lambda: definition(SandboxPolicy, "cpu"))


def test_limits_of_tenants_in_the_ledger_s_units() -> None:
    """Thousandths of a CPU, so that no sum drifts; unlimited values are left out."""
    limits = TenantLimits(cpus=2.5, memory="1GiB", jobs=0)
    assert {Quota.CPUS: 2500, Quota.MEMORY: 2**30, Quota.JOBS: 0} == limits.amounts()
    assert {quota.value for quota in Quota} == {known.name for known in definitions(TenantLimits)}
