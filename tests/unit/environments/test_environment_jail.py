"""What comes out of the jail of a build, the ways to an index, and errors with their next step."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

import pytest

from cenote_security.errors import CenoteError, MalformedValueError, UsageError
from cenote_worker.environments.errors import EnvironmentBuildError, UnfitEnvironmentError
from cenote_worker.environments.packages import checked_lock
from cenote_worker.environments.store import site_of
from cenote_worker.node.environment_jail import BuildSettings, IndexWays, Unpacking, explained, meant

SITE = site_of("")[1:]
END = struct.pack("!H?Q", 0, False, 0)


def sent(*files: tuple[str, bytes], program: bool = False, end: bytes = END) -> bytes:
    """The bytes that a jail sends for these files, by name."""
    heads = (
        struct.pack("!H?Q", len(name.encode()), program, len(data)) + name.encode() + data
        for name, data in files
    )
    return b"".join(heads) + end


def unpacked(venv: Path, pieces: Iterable[bytes], most: int = 10_000) -> None:
    unpacking = Unpacking(venv, most)
    for piece in pieces:
        unpacking.take(piece)
    unpacking.end()


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A fresh one, as uv makes it."""
    venv = tmp_path / "venv"
    (venv / SITE).mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin" / "python").symlink_to("/usr/bin/true")
    (venv / "pyvenv.cfg").write_text("home = here\n")
    return venv


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_files_come_in_pieces_of_any_size(venv: Path, size: int) -> None:
    data = sent(
        (f"{SITE}/tone.py", b"LOUD = True\n"), (f"{SITE}/empty/__init__.py", b""), ("share/man/tone.1", b"1")
    )
    unpacked(venv, (data[start : start + size] for start in range(0, len(data), size)))
    assert b"LOUD = True\n" == (venv / SITE / "tone.py").read_bytes()
    assert b"" == (venv / SITE / "empty" / "__init__.py").read_bytes()
    assert b"1" == (venv / "share" / "man" / "tone.1").read_bytes()


def test_programs_can_be_run(venv: Path) -> None:
    unpacked(venv, [sent(("bin/tone", b"#!"), program=True)])
    assert (venv / "bin" / "tone").stat().st_mode & 0o100


def test_nothing_takes_the_place_of_what_is_there(venv: Path) -> None:
    """Neither the interpreter, nor its settings, nor what another package has written, nor other folders."""
    data = sent(
        ("pyvenv.cfg", b"home = elsewhere\n"),
        ("bin/python", b"hostile"),
        (f"{SITE}/tone.py", b"first"),
        (f"{SITE}/tone.py", b"second"),
        ("lib/python2.7/site-packages/tone.py", b"hostile"),
        ("elsewhere/tone.py", b"hostile"),
    )
    unpacked(venv, [data])
    assert "home = here\n" == (venv / "pyvenv.cfg").read_text()
    assert (venv / "bin" / "python").is_symlink()
    assert b"first" == (venv / SITE / "tone.py").read_bytes()
    assert not (venv / "lib" / "python2.7").exists()
    assert not (venv / "elsewhere").exists()


@pytest.mark.parametrize(
    "name",
    ["../escaped", f"{SITE}/../../../../escaped", "/escaped", "bin//escaped", "bin/./escaped", "bin/a\0b"],
)
def test_names_that_lead_elsewhere_are_refused(venv: Path, name: str) -> None:
    with pytest.raises(MalformedValueError, match="bad name"):
        unpacked(venv, [sent((name, b"x"))])
    assert not list(venv.parent.rglob("escaped"))


def test_a_file_below_a_link_is_refused(venv: Path) -> None:
    """It would be written where the link leads."""
    with pytest.raises((CenoteError, OSError)):
        unpacked(venv, [sent(("bin/python/x", b"x"))])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (sent((f"{SITE}/tone.py", b"x"), end=b""), "only a part"),
        (sent((f"{SITE}/tone.py", b"x"))[:-20], "only a part"),
        (sent() + b"x", "more than it announced"),
        (struct.pack("!H?Q", 5000, False, 0) + b"a" * 5000, "too long"),
        (struct.pack("!H?Q", 2, False, 0) + b"\xff\xff", "no text"),
    ],
)
def test_what_makes_no_sense_is_refused(venv: Path, data: bytes, reason: str) -> None:
    with pytest.raises(MalformedValueError, match=reason):
        unpacked(venv, [data])


def test_a_size_is_refused_before_its_bytes_come(venv: Path) -> None:
    head = struct.pack("!H?Q", len(SITE) + 2, False, 2**63) + f"{SITE}/a".encode()
    with pytest.raises(EnvironmentBuildError, match="quota"):
        unpacked(venv, [head])


def test_ways_to_indexes() -> None:
    """Only the operator's names; an address gets a name that the jail alone knows."""
    ways = IndexWays(("https://pypi.org/simple", "http://127.0.0.1:8080/simple"), ("files.example.com",))
    pypi, local = ways.urls
    assert "https://pypi.org:443/simple" == pypi
    name = local.split("/")[2].split(":")[0]
    assert "127.0.0.1" == meant(name)
    assert {"pypi.org:443", "files.pythonhosted.org:443", "files.example.com:443", f"{name}:8080"} == set(
        ways.network.destinations
    )
    assert not ways.network.permits("example.com", 443)


@pytest.mark.parametrize(
    "url", ["ftp://example.com/simple", "https://10.0.0.1/simple", "https://localhost/simple", "simple"]
)
def test_what_is_no_index(url: str) -> None:
    with pytest.raises(UsageError, match="index"):
        BuildSettings(indexes=(url,)).check()


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ("Because nonesuch was not found in the package registry", "no such package"),
        (
            "Because only tone==1.5 is available and you require tone<1, your requirements are unsatisfiable",
            "loosen",
        ),
        ("error sending request for url", "--environment-index"),
        ("Because tone has no wheels with a matching Python ABI tag", "a version that has a wheel"),
        ("failed to write: No space left on device (os error 28)", "--environment-disk"),
        ("something new", "build it again"),
        ("", "build it again"),
    ],
)
def test_an_error_has_the_next_step_in_one_line(said: str, step: str) -> None:
    text = explained(f"  \u00d7 {said}\n  \u2570\u2500\u25b6 more\n" if said else "", BuildSettings())
    assert step in text
    assert "\n" not in text
    assert len(explained("x" * 100_000, BuildSettings())) < 1000


def test_no_login_of_an_index_reaches_a_tenant() -> None:
    """Whole or its password alone, as it stands in the URL or decoded."""
    settings = BuildSettings(indexes=("https://reader:pa%2Fss@pypi.example.com/simple",))
    said = "cannot read https://reader:pa%2Fss@pypi.example.com/simple: pa/ss, pa%2Fss and reader:pa/ss are wrong"
    text = explained(said, settings)
    assert "pa/ss" not in text
    assert "pa%2Fss" not in text
    assert "https://****@pypi.example.com/simple" in text


def test_a_pylock_has_hashes() -> None:
    """Else its name would not say what is in it."""
    wheel = '[[packages]]\nname = "tone"\nversion = "1.5"\n[[packages.wheels]]\nurl = "https://example.com/tone.whl"\n'
    with pytest.raises(UnfitEnvironmentError, match="no hash"):
        checked_lock("pylock.toml", wheel)
    assert "pylock.toml" == checked_lock("pylock.toml", wheel + 'hashes = {sha256 = "aa"}\n').file
