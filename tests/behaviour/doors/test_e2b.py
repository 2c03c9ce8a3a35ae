"""E2B's interface, as its SDKs use it: sandboxes, cells in contexts, commands, files; and who can reach them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.doors.http_served import client, served
from tests.waiting import until

from cenote import SandboxPolicy
from cenote.doors.callers import OneCaller
from cenote.doors.e2b import envd, files, interpreter, sandboxes
from cenote.doors.e2b.envd import STREAM
from cenote.doors.open_runtimes import LocalSource, OpenRuntimes
from cenote.runtime import AsyncPythonRuntime
from cenote_security.errors import UnavailableError

TOKEN = "a token of this test"


@pytest.fixture(scope="module")
def base() -> Iterator[str]:
    policy = SandboxPolicy(preload=("pandas",))
    with served(OneCaller(TOKEN, OpenRuntimes(LocalSource(policy))), policy) as base:
        yield base


@pytest.fixture(scope="module")
def control(base: str) -> Iterator[httpx.Client]:
    with keyed(base) as control:
        yield control


def framed(message: object) -> bytes:
    data = json.dumps(message).encode()
    return b"\0" + len(data).to_bytes(4, "big") + data


class Sandbox:
    """One sandbox by its ports."""

    def __init__(self, control: httpx.Client, facts: dict[str, Any]) -> None:
        self.id = facts["sandboxID"]
        headers = {"E2b-Sandbox-Id": self.id, "X-Access-Token": facts["envdAccessToken"]}
        self.http = httpx.Client(base_url=control.base_url, headers=headers, timeout=30, trust_env=False)

    def run(self, code: str, **more: object) -> list[dict[str, Any]]:
        answer = self.http.post("/execute", json={"code": code, **more})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]

    def text(self, code: str, **more: object) -> str:
        (result,) = [event for event in self.run(code, **more) if event["type"] == "result"]
        return str(result["text"])

    def call(self, method: str, message: object, status: int = 200) -> Any:
        answer = self.http.post(f"/{method}", json=message)
        assert answer.status_code == status, answer.text
        return answer.json()

    def events(self, method: str, message: object, **more: str) -> Iterator[dict[str, Any]]:
        data = json.dumps(message).encode()
        body = b"\0" + len(data).to_bytes(4, "big") + data
        headers = {"Content-Type": STREAM, **more}
        with self.http.stream("POST", f"/{method}", content=body, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            rest = b""
            for part in answer.iter_bytes():
                rest += part
                while len(rest) >= 5 and len(rest) >= 5 + (size := int.from_bytes(rest[1:5], "big")):
                    event = json.loads(rest[5 : 5 + size])
                    yield event.get("event", event)
                    rest = rest[5 + size :]

    def start(self, command: str, **more: object) -> Iterator[dict[str, Any]]:
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", command]}
        return self.events("process.Process/Start", {"process": process, **more})


@pytest.fixture(scope="module")
def sandbox(control: httpx.Client) -> Sandbox:
    wanted = {"templateID": "base", "timeout": 300, "metadata": {"kind": "test"}, "envVars": {"FOO": "bar"}}
    made = control.post("/v2/sandboxes", json=wanted)
    assert made.status_code == 201, made.text
    return Sandbox(control, made.json())


def make(control: httpx.Client, **wanted: object) -> Sandbox:
    made = control.post("/v2/sandboxes", json={"templateID": "base", **wanted})
    assert made.status_code == 201, made.text
    return Sandbox(control, made.json())


def keyed(base: str) -> httpx.Client:
    return httpx.Client(base_url=base, headers={"X-API-Key": TOKEN}, timeout=30, trust_env=False)


def open_runtimes(control: httpx.Client) -> set[str]:
    """As the HTTP interface lists them."""
    answer = control.get("/v1/runtimes", headers={"Authorization": f"Bearer {TOKEN}"})
    return {each["name"] for each in answer.json()}


# -- cells --


def test_a_cell_line_by_line(sandbox: Sandbox) -> None:
    events = sandbox.run("x = 20\nprint('out')\nx + 1")
    assert [event["type"] for event in events] == ["stdout", "result", "number_of_executions"]
    assert events[0]["text"] == "out\n"
    assert (events[1]["text"], events[1]["is_main_result"]) == ("21", True)


def test_texts_environment_and_folder(sandbox: Sandbox) -> None:
    assert sandbox.text("import os; os.getenv('FOO')") == "bar"
    assert sandbox.text("os.getenv('ONCE')", env_vars={"ONCE": "now"}) == "now"
    assert sandbox.text("os.getenv('ONCE', 'gone')") == "gone"
    assert sandbox.text("open('/home/user/in_home', 'w').close(); 'in_home' in os.listdir()") == "True"
    (printed, *_) = sandbox.run("pwd", language="bash")
    assert printed["text"] == "/home/user\n"


def test_indented_code_runs_as_a_notebook_has_it(sandbox: Sandbox) -> None:
    assert sandbox.text("\n    y = 5\n    if y:\n        y += 1\n    y\n    ") == "6"


def test_errors_are_in_the_terms_of_python(sandbox: Sandbox) -> None:
    (error, _) = sandbox.run("undefined_name")
    assert (error["name"], error["value"]) == ("NameError", "name 'undefined_name' is not defined")


def test_long_texts_are_whole(sandbox: Sandbox) -> None:
    """Values, error messages, displayed data: other frameworks' agents send their data in them."""
    length = 500_000
    assert len(sandbox.text(f"'v' * {length}")) == length
    (error, _) = sandbox.run(f"class Answer(BaseException): pass\nraise Answer('m' * {length})")
    assert (error["name"], error["value"]) == ("Answer", "m" * length)
    code = f"from IPython.display import display\ndisplay({{'text/html': 'h' * {length}}}, raw=True)"
    assert len(sandbox.run(code)[0]["html"]) == length
    printed = [event["text"] for event in sandbox.run(f"print('p' * {length})") if event["type"] == "stdout"]
    assert "".join(printed) == "p" * length + "\n"


def test_tables_come_with_their_data(sandbox: Sandbox) -> None:
    (result, _) = sandbox.run("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert result["data"] == {"a": [1, 2]}
    assert "<table" in result["html"]


def test_what_is_shown_has_the_forms_that_it_was_given(sandbox: Sandbox) -> None:
    (shown, _) = sandbox.run("from IPython.display import display\ndisplay({'text/latex': 'L'}, raw=True)")
    assert (shown["latex"], "text" in shown, shown["is_main_result"]) == ("L", False, False)
    (hostile, _) = sandbox.run("display({'e2b/chart': 'no JSON', 'text/plain': 't'}, raw=True)")
    assert "chart" not in hostile


def test_contexts_are_namespaces_of_one_sandbox(sandbox: Sandbox) -> None:
    made = sandbox.http.post("/contexts", json={"cwd": "/tmp"}).json()
    assert sandbox.text("import os; os.getcwd()", context_id=made["id"]) == "/tmp"
    sandbox.run("mine = 1", context_id=made["id"])
    assert sandbox.run("mine")[0]["name"] == "NameError"
    assert sandbox.http.get("/contexts").json()[-1] == made
    assert sandbox.http.post(f"/contexts/{made['id']}/restart").status_code == 204
    assert sandbox.run("mine", context_id=made["id"])[0]["name"] == "NameError"
    assert sandbox.http.delete(f"/contexts/{made['id']}").status_code == 204
    assert sandbox.http.post("/execute", json={"code": "1", "context_id": made["id"]}).status_code == 404
    assert "Python and bash" in sandbox.http.post("/execute", json={"code": "1", "language": "r"}).text


# -- commands --


def test_a_command_and_its_end(sandbox: Sandbox) -> None:
    started, *rest, ended, last = list(sandbox.start("echo out; echo err >&2; exit 3"))
    assert started["start"]["pid"] > 0
    printed = {kind: base64.b64decode(text) for event in rest for kind, text in event["data"].items()}
    assert printed == {"stdout": b"out\n", "stderr": b"err\n"}
    assert (ended["end"]["exitCode"], ended["end"]["exited"], last) == (3, True, {})


def test_a_command_may_begin_a_session(sandbox: Sandbox) -> None:
    _, *rest, ended, _ = list(sandbox.start("setsid sh -c 'echo out; exit 5'"))
    assert [base64.b64decode(event["data"]["stdout"]) for event in rest] == [b"out\n"]
    assert ended["end"]["exitCode"] == 5


def test_a_command_may_end_in_order_when_it_is_asked_to(sandbox: Sandbox) -> None:
    code = "trap 'echo bye; exit 3' TERM; echo on; while :; do sleep 0.01; done"
    events = sandbox.start(code)
    pid = next(events)["start"]["pid"]
    assert base64.b64decode(next(events)["data"]["stdout"]) == b"on\n"
    selected = {"process": {"pid": pid}}
    sandbox.call("process.Process/SendSignal", {**selected, "signal": "SIGNAL_SIGTERM"})
    *rest, ended, _ = list(events)
    said = [base64.b64decode(event["data"].get("stdout", "")) for event in rest if "data" in event]
    assert b"".join(said) == b"bye\n"
    assert ended["end"]["exitCode"] == 3


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"process": []}, "process"),
        ({"process": {"cmd": "true", "args": "-l"}}, "process.args"),
        ({"process": {"cmd": 1}}, "process.cmd"),
        ({"process": {"cmd": "true", "envs": ["A"]}}, "process.envs"),
        ({"process": {"cmd": "true"}, "pty": {"size": {"rows": -1}}}, "pty.size.rows"),
        ([1], "no JSON object"),
    ],
)
def test_a_command_of_odd_messages_is_refused(sandbox: Sandbox, message: object, said: str) -> None:
    answer = sandbox.http.post("/process.Process/Start", content=framed(message))
    assert answer.status_code == 400
    assert answer.json()["code"] == "invalid_argument"
    assert said in answer.json()["message"]


def test_what_is_null_has_its_default(sandbox: Sandbox) -> None:
    message = {"process": {"cmd": "true", "args": None, "envs": None, "cwd": None}, "pty": None, "tag": None}
    *_, ended, _ = sandbox.events("process.Process/Start", message)
    assert ended["end"]["exitCode"] == 0


@pytest.mark.parametrize("data", [b"", b"\0\0", framed({}) * 2, b"\1" + framed({})[1:], framed({}) * 100_000])
def test_other_frames_than_one_are_refused(sandbox: Sandbox, data: bytes) -> None:
    answer = sandbox.http.post("/process.Process/Start", content=data)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument")


@pytest.mark.parametrize(
    "path", ["/execute", "/contexts", "/process.Process/Start", "/filesystem.Filesystem/Stat"]
)
def test_large_bodies_are_refused(sandbox: Sandbox, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (envd, interpreter):
        monkeypatch.setattr(module, "MOST_JSON", 1000)
    answer = sandbox.http.post(path, content=b'{"code": "' + b"#" * 1000 + b'"}')
    assert answer.status_code == 400
    assert "has more than 1,000 bytes" in answer.json()["message"]


def test_large_uploads_are_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A form, too, before it has arrived whole."""
    monkeypatch.setattr(files, "MOST_FILE", 1000)
    for body in ({"content": b"x" * 1001}, {"files": {"file": ("f", b"x" * 1001)}}):
        answer = sandbox.http.post("/files", params={"path": "large"}, **body)
        assert answer.status_code == 400
        assert "has more than 1,000 bytes" in answer.json()["message"]
    assert sandbox.http.get("/files", params={"path": "large"}).status_code == 404


def test_a_command_that_cannot_begin_says_why() -> None:
    """With an error that the SDKs raise, with the reason in it."""
    policy = SandboxPolicy(preload=(), processes=8)
    with served(OneCaller(TOKEN, OpenRuntimes(LocalSource(policy))), policy) as base, keyed(base) as control:
        sandbox, running = make(control), list[Iterator[dict[str, Any]]]()
        for _ in range(9):
            running.append(sandbox.start("exec sleep 3600"))
            event = next(running[-1])
            if "start" not in event:
                break
        for each in running:
            each.close()
        assert event["error"]["code"] == "unavailable"
        assert "SandboxPolicy(processes=...)" in event["error"]["message"]


def test_one_that_reads_slowly_makes_its_command_wait(sandbox: Sandbox) -> None:
    """One that disconnects does not."""
    events = sandbox.start("yes | head -c 20000000; echo > all-written", tag="slow")
    next(events)
    list(sandbox.start("sleep 0.5"))
    assert sandbox.http.get("/files", params={"path": "all-written"}).status_code == 404
    events.close()
    until(lambda: sandbox.http.get("/files", params={"path": "all-written"}).status_code == 200)


def test_folders_are_no_files(sandbox: Sandbox) -> None:
    sandbox.http.post("/files", params={"path": "taken"}, content=b"x")
    assert (
        "is not a directory"
        in sandbox.call("filesystem.Filesystem/MakeDir", {"path": "taken"}, 400)["message"]
    )
    sandbox.call("filesystem.Filesystem/MakeDir", {"path": "folder"})
    sandbox.call("filesystem.Filesystem/MakeDir", {"path": "folder"}, 409)
    for path in ("folder", "/tmp"):
        answer = sandbox.http.get("/files", params={"path": path})
        assert answer.status_code == 400
        assert "is a directory" in answer.json()["message"]
    assert (
        "depth"
        in sandbox.call("filesystem.Filesystem/ListDir", {"path": "folder", "depth": "x"}, 400)["message"]
    )


def test_a_command_is_fed_joined_listed_and_killed(sandbox: Sandbox) -> None:
    first = sandbox.start("cat", stdin=True, tag="feline")
    pid = next(first)["start"]["pid"]
    selector = {"process": {"pid": pid}}
    assert [(one["pid"], one["tag"]) for one in sandbox.call("process.Process/List", {})["processes"]] == [
        (pid, "feline")
    ]
    second = sandbox.events("process.Process/Connect", {"process": {"tag": "feline"}})
    assert next(second)["start"]["pid"] == pid
    data = base64.b64encode(b"to both").decode()
    sandbox.call("process.Process/SendInput", {**selector, "input": {"stdin": data}})
    assert next(first)["data"]["stdout"] == next(second)["data"]["stdout"] == data
    sandbox.call("process.Process/SendSignal", {**selector, "signal": "SIGNAL_SIGKILL"})
    assert next(first)["end"]["exited"] is False
    until(lambda: not sandbox.call("process.Process/List", {})["processes"])
    assert sandbox.call("process.Process/SendSignal", {**selector, "signal": 9}, 404)["code"] == "not_found"


def test_a_command_that_takes_longer_than_its_call_may(sandbox: Sandbox) -> None:
    message = {"process": {"cmd": "sleep", "args": ["60"]}}
    events = list(sandbox.events("process.Process/Start", message, **{"Connect-Timeout-Ms": "200"}))
    assert (events[-2]["end"]["exited"], events[-2]["end"]["error"]) == (False, "timeout")


def test_a_terminal(sandbox: Sandbox) -> None:
    events = sandbox.start("stty size", pty={"size": {"rows": 30, "cols": 100}})
    shown = b"".join(base64.b64decode(event["data"]["pty"]) for event in events if "data" in event)
    assert b"30 100" in shown


def test_a_command_that_is_none(sandbox: Sandbox) -> None:
    bad = sandbox.http.post(
        "/process.Process/Start", content=b"\0\0\0\0\x09{}", headers={"Content-Type": STREAM}
    )
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_argument")


# -- files --


def test_files_by_both_ways_of_upload(sandbox: Sandbox) -> None:
    form = sandbox.http.post("/files", params={"path": "f/a.txt"}, files={"file": ("a.txt", b"data")})
    assert form.json() == [{"name": "a.txt", "type": "file", "path": "/home/user/f/a.txt"}]
    octets = {"Content-Type": "application/octet-stream"}
    assert sandbox.http.post(
        "/files", params={"path": "/home/user/f/b"}, content=b"more", headers=octets
    ).is_success
    assert sandbox.http.get("/files", params={"path": "f/a.txt"}).content == b"data"
    found = sandbox.call("filesystem.Filesystem/ListDir", {"path": "f", "depth": 1})["entries"]
    assert [(one["path"], one["type"]) for one in found] == [
        ("/home/user/f/a.txt", "FILE_TYPE_FILE"), ("/home/user/f/b", "FILE_TYPE_FILE")
    ]  # fmt: skip
    assert sandbox.http.get("/files", params={"path": "nope"}).status_code == 404
    assert sandbox.call("filesystem.Filesystem/Stat", {"path": "nope"}, 404)["code"] == "not_found"


@pytest.mark.slow
def test_a_path_means_what_it_means_in_the_jail(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of this machine")
    for path in (str(secret), f"../..{secret}", "/proc/1/environ", "/root/.ssh/id_rsa"):
        assert sandbox.http.get("/files", params={"path": path}).status_code in (400, 403, 404)
    assert sandbox.http.get("/files", params={"path": "/etc/passwd"}).text == sandbox.text(
        "open('/etc/passwd').read()"
    ).replace("\\n", "\n")


def test_folders_are_made_moved_listed_and_removed(sandbox: Sandbox) -> None:
    service = "filesystem.Filesystem"
    assert sandbox.call(f"{service}/MakeDir", {"path": "m/n"})["entry"]["type"] == "FILE_TYPE_DIRECTORY"
    assert sandbox.call(f"{service}/MakeDir", {"path": "m/n"}, 409)["code"] == "already_exists"
    moved = sandbox.call(f"{service}/Move", {"source": "m/n", "destination": "/home/user/m/o"})["entry"]
    assert (moved["path"], moved["permissions"][0]) == ("/home/user/m/o", "d")
    sandbox.http.post("/files", params={"path": "m/o/p"}, files={"file": b"1"})
    found = sandbox.call(f"{service}/ListDir", {"path": "m", "depth": 2})["entries"]
    assert [one["path"] for one in found] == ["/home/user/m/o", "/home/user/m/o/p"]
    sandbox.call(f"{service}/Remove", {"path": "m"})
    assert sandbox.call(f"{service}/Stat", {"path": "m"}, 404)["code"] == "not_found"


def test_a_folder_is_watched_by_asking_and_by_listening(sandbox: Sandbox) -> None:
    service = "filesystem.Filesystem"
    sandbox.call(f"{service}/MakeDir", {"path": "w"})
    watcher = sandbox.call(f"{service}/CreateWatcher", {"path": "w"})
    listening = sandbox.events(f"{service}/WatchDir", {"path": "w"})
    assert next(listening) == {"start": {}}
    sandbox.http.post("/files", params={"path": "w/new"}, files={"file": b"1"})
    assert next(listening) == {"filesystem": {"name": "new", "type": "EVENT_TYPE_CREATE"}}
    events = until(lambda: sandbox.call(f"{service}/GetWatcherEvents", watcher)["events"])
    assert events[0] == {"name": "new", "type": "EVENT_TYPE_CREATE"}
    sandbox.call(f"{service}/RemoveWatcher", watcher)
    sandbox.call(f"{service}/GetWatcherEvents", watcher, 404)


# -- lives --


def test_sandboxes_are_listed_by_what_they_are(control: httpx.Client, sandbox: Sandbox) -> None:
    found = control.get("/v2/sandboxes", params={"metadata": "kind=test", "state": "running"}).json()
    assert [one["sandboxID"] for one in found] == [sandbox.id]
    assert control.get("/v2/sandboxes", params={"metadata": "kind=other"}).json() == []
    assert control.get(f"/sandboxes/{sandbox.id}").json()["state"] == "running"
    assert control.get(f"/sandboxes/{sandbox.id}/metrics").json()[0]["memUsed"] > 0
    assert control.put(f"/sandboxes/{sandbox.id}/network", json={}).status_code == 501


def test_forks_and_snapshots_begin_with_the_state(control: httpx.Client, sandbox: Sandbox) -> None:
    sandbox.run("carried = [1]")
    (fork,) = control.post(f"/sandboxes/{sandbox.id}/fork", json={"count": 1}).json()
    assert Sandbox(control, fork["sandbox"]).text("carried") == "[1]"
    kept = control.post(f"/sandboxes/{sandbox.id}/snapshots", json={}).json()["snapshotID"]
    sandbox.run("carried.append(2)")
    again = make(control, templateID=kept)
    assert again.text("carried") == "[1]"
    assert control.delete(f"/templates/{kept}").status_code == 204
    for one in (fork["sandbox"]["sandboxID"], again.id):
        assert control.delete(f"/sandboxes/{one}").status_code == 204


def test_one_that_was_killed_is_gone_and_its_calls_are_cut(control: httpx.Client) -> None:
    sandbox = make(control)
    code = {"code": "print('on', flush=True)\nimport time\ntime.sleep(60)"}
    with sandbox.http.stream("POST", "/execute", json=code) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert control.delete(f"/sandboxes/{sandbox.id}").status_code == 204
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)
    assert sandbox.http.get("/health").status_code == 502
    assert control.get(f"/sandboxes/{sandbox.id}").status_code == 404


def test_a_command_of_one_that_was_killed_is_cut(control: httpx.Client) -> None:
    """As with E2B: its SDK then checks whether the sandbox exists, and finds that it does not."""
    sandbox = make(control)
    events = sandbox.start("echo on; sleep 3600")
    next(events), next(events)
    assert control.delete(f"/sandboxes/{sandbox.id}").status_code == 204
    with pytest.raises(httpx.RemoteProtocolError):
        list(events)


def test_one_whose_time_is_over_is_ended(control: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "SWEEP_EVERY", 0.05)
    sandbox = make(control)
    assert sandbox.http.get("/health").status_code == 204
    assert control.post(f"/sandboxes/{sandbox.id}/timeout", json={"timeout": 0}).status_code == 204
    until(lambda: sandbox.http.get("/health").status_code == 502)
    assert control.post(f"/sandboxes/{sandbox.id}/timeout", json={"timeout": 10**9}).status_code == 404


def test_one_that_cannot_be_paused_is_ended(control: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a store there is no pause; its jail must not stay for that."""
    monkeypatch.setattr(sandboxes, "SWEEP_EVERY", 0.05)
    sandbox = make(control, autoPause=True)
    assert control.post(f"/sandboxes/{sandbox.id}/timeout", json={"timeout": 0}).status_code == 204
    until(lambda: sandbox.http.get("/health").status_code == 502)
    until(lambda: sandbox.id not in open_runtimes(control))


class Unsteady(LocalSource):
    """Ends runtimes at the second attempt."""

    attempts = 0

    async def end(self, runtime: AsyncPythonRuntime) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise UnavailableError("not now")
        await super().end(runtime)


def test_one_that_cannot_be_ended_now_is_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandboxes, "SWEEP_EVERY", 0.05)
    monkeypatch.setattr(sandboxes, "RETRY_AFTER", 0)
    policy = SandboxPolicy(preload=())
    source = Unsteady(policy)
    with served(OneCaller(TOKEN, OpenRuntimes(source)), policy) as base, keyed(base) as control:
        sandbox = make(control)
        assert control.post(f"/sandboxes/{sandbox.id}/timeout", json={"timeout": 0}).status_code == 204
        until(lambda: source.attempts == 2)
        until(lambda: sandbox.id not in open_runtimes(control))
        assert control.get("/v2/sandboxes").json() == []


def test_one_that_is_busy_keeps_no_other_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause waits for the running cell."""
    monkeypatch.setattr(sandboxes, "SWEEP_EVERY", 0.05)
    policy = SandboxPolicy(preload=())
    source = LocalSource(policy, store=str(tmp_path))
    code = "import os, time\nprint(1, flush=True)\nwhile not os.path.exists('over'): time.sleep(0.01)"
    with served(OneCaller(TOKEN, OpenRuntimes(source)), policy) as base, keyed(base) as control:
        busy, other = make(control, autoPause=True), make(control)
        with busy.http.stream("POST", "/execute", json={"code": code}) as events:
            lines = events.iter_lines()  # which closes the stream when it is collected
            next(lines)
            for each in (busy, other):
                control.post(f"/sandboxes/{each.id}/timeout", json={"timeout": 0})
            until(lambda: other.id not in open_runtimes(control))
            assert busy.id in open_runtimes(control)
            list(busy.start("touch over"))
        until(lambda: control.get(f"/sandboxes/{busy.id}").json()["state"] == "paused")


def test_a_context_that_is_no_more_hinders_no_pause(tmp_path: Path) -> None:
    """Names of a context that is there are not stored, so the pause is refused; those of a removed one are gone."""
    policy = SandboxPolicy(preload=())
    source = LocalSource(policy, store=str(tmp_path))
    with served(OneCaller(TOKEN, OpenRuntimes(source)), policy) as base, keyed(base) as control:
        one = make(control)
        context = one.http.post("/contexts", json={}).json()["id"]
        one.run("_name, y = 1, 2\ny", context_id=context)
        assert "cannot work in" in one.http.post("/contexts", json={"cwd": "/no/such"}).json()["message"]
        assert control.post(f"/sandboxes/{one.id}/pause").status_code >= 400
        assert one.http.delete(f"/contexts/{context}").status_code == 204
        gone = one.http.delete(f"/contexts/{context}")
        assert (gone.status_code, gone.json()["message"]) == (
            404,
            f"the sandbox has no context '{context}'; it has default",
        )
        assert control.post(f"/sandboxes/{one.id}/pause").status_code == 204


class Recording(LocalSource):
    """Records whether states of each runtime are to be stored."""

    def __init__(self, policy: SandboxPolicy) -> None:
        super().__init__(policy)
        self.stored: list[bool] = []

    async def make(
        self, name: str, policy: SandboxPolicy | None, *, stored: bool = False
    ) -> AsyncPythonRuntime:
        self.stored.append(stored)
        return await super().make(name, policy, stored=stored)


def test_states_of_one_that_is_to_be_paused_are_stored() -> None:
    """On a platform only durable runtimes have stored states, at a cost for each cell."""
    policy = SandboxPolicy(preload=())
    source = Recording(policy)
    with served(OneCaller(TOKEN, OpenRuntimes(source)), policy) as base, keyed(base) as control:
        make(control, autoPause=True), make(control)
    assert [True, False] == source.stored


def test_a_pause_takes_a_store(control: httpx.Client, sandbox: Sandbox) -> None:
    refused = control.post(f"/sandboxes/{sandbox.id}/pause")
    assert refused.status_code == 400
    assert "cenote serve --store DIR" in refused.json()["message"]
    assert control.get(f"/sandboxes/{sandbox.id}").json()["state"] == "running"


# -- who may --


def test_keys_and_secrets(base: str, control: httpx.Client, sandbox: Sandbox) -> None:
    assert httpx.get(f"{base}/v2/sandboxes", trust_env=False).status_code == 401
    assert (
        httpx.get(f"{base}/v2/sandboxes", headers={"X-API-Key": "wrong"}, trust_env=False).status_code == 401
    )
    for secret in ("", "wrong", TOKEN):
        headers = {"E2b-Sandbox-Id": sandbox.id, "X-Access-Token": secret}
        answer = httpx.post(f"{base}/execute", json={"code": "1"}, headers=headers, trust_env=False)
        assert answer.status_code == 401
    unknown = {"E2b-Sandbox-Id": "nobody", "X-Access-Token": "x"}
    assert (
        httpx.post(f"{base}/execute", json={"code": "1"}, headers=unknown, trust_env=False).status_code == 502
    )


def test_the_record_names_the_door(base: str, sandbox: Sandbox) -> None:
    sandbox.run("from_e2b = 1")
    with client(base, TOKEN) as http:
        assert http.get(f"/v1/runtimes/{sandbox.id}/steps").json()[-1]["author"] == "e2b"
        assert http.get(f"/v1/runtimes/{sandbox.id}/variables/from_e2b").json() == 1
