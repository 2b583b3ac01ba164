"""The environment variables of a rank: an allow-list of the caller's, no secrets, and fixed ones of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cases.runtime import rank_env

ROOT = Path(rank_env.__file__).parents[2]


def test_our_variables_override_the_callers() -> None:
    assert rank_env.variables({"OMP_NUM_THREADS": "8", "HF_HUB_OFFLINE": "0"}).items() >= rank_env.VARIABLES.items()


def test_a_caller_may_configure_nccl() -> None:
    found = rank_env.variables({"NCCL_MAX_NCHANNELS": "32", "PATH": "/bin"})
    assert (found["NCCL_MAX_NCHANNELS"], found["NCCL_IB_DISABLE"], found["PATH"]) == ("32", "1", "/bin")


def test_the_settings_of_nccl_are_a_fact_but_not_those_of_its_log() -> None:
    environ = {"NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG_FILE": "x", "PATH": "/bin"}
    assert rank_env.nccl_settings(environ) == "NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0"


@pytest.mark.parametrize(
    "name",
    [
        *(
            "CUDA_VISIBLE_DEVICES",
            "CUDA_HOME",
            "NCCL_DEBUG",
            "TORCH_LOGS",
            "PYTORCH_CUDA_ALLOC_CONF",
            "TORCHINDUCTOR_X",
        ),
        *(
            "HF_HOME",
            "TOKENIZERS_PARALLELISM",
            "LC_ALL",
            "LANG",
            "https_proxy",
            "NO_PROXY",
            "PYTHONPATH",
            "UV_CACHE_DIR",
        ),
        *("HOME", "PATH", "TMPDIR", "LD_LIBRARY_PATH", "FTMATRIX_DEVICE", "TRITON_CACHE_DIR", "RANK", "MASTER_ADDR"),
    ],
)
def test_a_variable_that_the_stack_needs_reaches_ranks(name: str) -> None:
    assert rank_env.is_allowed(name, "value")


@pytest.mark.parametrize(
    "name",
    [
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "WANDB_API_KEY", "SENTINEL", "KUBECONFIG", "SSH_AUTH_SOCK"),
        *("HF_TOKEN", "HUGGINGFACE_HUB_TOKEN", "UV_INDEX_PRIVATE_PASSWORD", "UV_PUBLISH_TOKEN", "FTMATRIX_API_KEY"),
    ],
)
def test_other_variables_and_secrets_do_not_reach_ranks(name: str) -> None:
    assert not rank_env.is_allowed(name, "value")


def test_an_address_with_credentials_does_not_reach_ranks() -> None:
    assert not rank_env.is_allowed("https_proxy", "http://me:secret@proxy:8080")
    assert rank_env.is_allowed("https_proxy", "http://proxy:8080")


SUITE = """
import os
from pathlib import Path
from types import SimpleNamespace
from cases.space.verdict import equal


class EnvironmentSuite:
    cases = {"a": SimpleNamespace(id="a", ranks=1, options=SimpleNamespace(flow="train"))}
    profiles = {}

    def preload(self, *, to_fork=False): ...

    def why_unforkable(self):
        return ""

    def requirements(self, name, device):
        return []

    def why_settled(self, name, session):
        return ""

    def note(self, report, session): ...

    def silence_timeout(self, name, device):
        return SimpleNamespace(silence_s=60.0, why="")

    def companions(self, job):
        return {}

    def stages(self, job):
        return [(0, 1)]

    def run(self, job, rank, stage, companion, reporter):
        Path(os.environ["FTMATRIX_SEEN"]).write_bytes(Path("/proc/self/environ").read_bytes())
        reporter.checks([equal("environment", "SENTINEL" in os.environ, False)])


SUITE = EnvironmentSuite()
"""


def test_a_secret_in_the_environment_does_not_reach_a_rank(tmp_path: Path) -> None:
    """A whole session: pytest, the fork server, the supervisor and the rank."""
    (tmp_path / "environment_suite.py").write_text(SUITE)
    known = {"FTMATRIX_SEEN": str(tmp_path / "seen"), "SENTINEL": "s3cr3t", "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    command = [sys.executable, "-m", "pytest", "-c", os.devnull, "-q", str(ROOT / "cases" / "test_cells.py")]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--suite", "environment_suite"],
        cwd=tmp_path,
        env={**os.environ, **known},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in done.stdout, done.stdout
    assert b"s3cr3t" not in (tmp_path / "seen").read_bytes()
