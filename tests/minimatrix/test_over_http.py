"""Tests indexes and git repositories behind real HTTP servers on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from datetime import date
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from matrix.nightly.candidates import CandidateSearch
from matrix.versions import locks, sets, uv

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCALED = "train-lora-single-fp32"
NIGHTLY_TORCH = "0.0.9.dev20260101"
GIT = str(shutil.which("git"))


class QuietFiles(SimpleHTTPRequestHandler):
    """Serves the files of a folder, as a plain web server does."""

    def log_message(self, *_: object) -> None:
        pass


class GitBackend(BaseHTTPRequestHandler):
    """Serves the repositories of a folder by git's own CGI program, ``git http-backend``."""

    folder = Path()

    def serve(self) -> None:
        place = urlsplit(self.path)
        variables = {
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": place.path,
            "QUERY_STRING": place.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        done = subprocess.run(
            [GIT, "http-backend"], check=True, input=body, capture_output=True, env={**os.environ, **variables}
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in fields.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = serve  # noqa: N815 - names of the standard library

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts a server with a handler; returns its URL."""
    servers: list[ThreadingHTTPServer] = []

    def started(handler: Any) -> str:
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_port}"

    yield started
    for each in servers:
        each.shutdown()
        each.server_close()


def measured(mini: Any, word: str) -> dict[tuple[str, str], str]:
    options = ("--profile", "quick", "--sets", "good", "--where", f"case={SCALED}", "--cold-sample", "0")
    done = mini.command("run", *options, "--out", str(mini.out), "--with", word)
    assert done.returncode == 0, done.stderr
    return {(line["set"], line["case"]): line["verdict"] for line in mini.lines()}


@pytest.mark.parametrize("is_smart", [True, False])
def test_a_branch_of_a_repository_behind_http_is_measured(
    mini: Any, checkout: Callable[..., Any], serve: Callable[..., str], tmp_path: Path, *, is_smart: bool
) -> None:
    """A smart server runs git; a dumb one serves files, and cannot send less than the whole history."""
    peft = checkout("peft")
    peft.git("checkout", "--quiet", "-b", "twice")
    peft.change("SCALE = 2.0\n")
    commit = peft.commit()
    served = tmp_path / "served"
    subprocess.run([GIT, "clone", "--quiet", "--bare", str(peft.folder), str(served / "peft.git")], check=True)
    subprocess.run([GIT, "-C", str(served / "peft.git"), "update-server-info"], check=True)
    if is_smart:
        url = serve(type("Backend", (GitBackend,), {"folder": served}))
    else:
        url = serve(partial(QuietFiles, directory=str(served)))
    found = measured(mini, f"peft=git+{url}/peft.git@twice")
    assert found == {(f"good+peft@{commit[:7]}", SCALED): "wrong"}


def test_the_commits_of_a_repository_behind_http_are_bisected(
    mini: Any, checkout: Callable[..., Any], serve: Callable[..., str], tmp_path: Path
) -> None:
    trl = checkout("trl", version="0.0.2")
    trl.git("tag", "v0.0.2")
    trl.write("backend.py", (trl.folder / "backend.py").read_text().replace("0.0.2", "0.0.3"))
    guilty = trl.commit()
    trl.change("# later\n")
    trl.commit()
    trl.git("tag", "v0.0.3")
    served = tmp_path / "served"
    subprocess.run([GIT, "clone", "--quiet", "--bare", str(trl.folder), str(served / "trl.git")], check=True)
    url = serve(type("Backend", (GitBackend,), {"folder": served}))
    mini.add_set("later", {"trl": "0.0.4"})
    driver = Path(__file__).with_name("drive_bisect.py")
    words = [str(mini.versions), str(mini.out), SCALED, "good", "later", f"{url}/trl.git"]
    done = subprocess.run(
        [sys.executable, str(driver), *words], check=False, capture_output=True, text=True, env=mini.variables
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["no_commit"] == ""
    assert answer["culprits"][0]["commits"]["first_bad"] == guilty


def test_a_nightly_build_of_a_further_index_is_a_candidate(
    mini: Any,
    serve: Callable[..., str],
    build_index: Callable[[Path], str],
    build_wheel: Callable[[Path, str, str, str], Path],
    tmp_path: Path,
) -> None:
    """The index of the builds states no upload dates, as that of torch's nightly builds."""
    stable, builds = tmp_path / "stable", tmp_path / "builds"
    stable.mkdir()
    build_index(stable)
    (builds / "torch").mkdir(parents=True)
    made = build_wheel(builds / "torch", "torch", NIGHTLY_TORCH, '__version__ = "{version}"\n')
    (builds / "torch" / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    urls = [serve(partial(QuietFiles, directory=str(each))) for each in (stable, builds)]
    kept = {name: value for name, value in mini.variables.items() if name != "UV_DEFAULT_INDEX"}
    variables = {**kept, "PIP_INDEX_URL": urls[0], "PIP_EXTRA_INDEX_URL": urls[1]}
    tool = uv.on_this_machine(mini.folder / "cache", environ=variables)
    (good,) = sets.select(sets.load(mini.versions), "good")
    text = "".join(f"{name}=={version}\n" for name, version in good.pins.items())
    base = locks.Lock(version_set=good, text=text)
    assert tool.dated

    def torch_of(*pre: str) -> dict[str, str]:
        search = CandidateSearch(base=base, night=date(2026, 1, 2), uv=tool, pre=frozenset(pre), lowest=False)
        return {each.version_set.key: each.version_set.pins["torch"] for each in search.candidates()}

    found = torch_of(*sets.PACKAGES)
    assert found["nightly+torch"] == NIGHTLY_TORCH
    assert NIGHTLY_TORCH not in torch_of().values()
    environment = tmp_path / "environment"
    assert tool("venv", "--quiet", environment).exit_code == 0
    done = tool.pip("install", "--python", environment, "--no-deps", f"torch=={NIGHTLY_TORCH}")
    assert done.exit_code == 0, done.log
