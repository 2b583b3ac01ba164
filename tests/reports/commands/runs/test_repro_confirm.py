"""A reproducer runs in a new environment and must show the failure of its cell."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.processes import Finished
from matrix.run.outcome import CheckRecord
from matrix.versions.uv import Uv
from reports.answers.scripts.symptom import ShownSymptom, SymptomKind, symptom
from reports.commands.runs.repro_confirm import compared, confirmed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix.run.outcome import Outcome
    from reports.answers.scripts.repro_script import Reproducer

    Build = Callable[..., Outcome]

RAISED = ShownSymptom(kind=SymptomKind.ERROR, phase=Phase.WRAP)


def failed(build_outcome: Build, message: str, kind: str = "ValueError") -> Outcome:
    return build_outcome(verdict="fail", error={"type": kind, "message": message}, phase="wrap")


def off(build_outcome: Build) -> Outcome:
    check = CheckRecord(name="gradient", value=1.25, op="<=", bound=0.09375, ok=False)
    return build_outcome(verdict="wrong", checks=(check,), options={"flow": "train"})


def spawned(error: str) -> str:
    return f"""Traceback (most recent call last):
  File "x.py", line 9, in <module>
torch.multiprocessing.spawn.ProcessRaisedException:

-- Process 1 terminated with the following error:
Traceback (most recent call last):
  File "x.py", line 5, in main
{error}
"""


@pytest.mark.parametrize(
    ("message", "log"),
    [
        ("no", "ValueError: no"),
        ("no\nand why", "ValueError: no\nand why"),
        ("on rank 0 at 0x7f0011223344", "ValueError: on rank 1 at 0x7fffffffffff"),
        ("see <environment>/lib/python3.11/site-packages/x", "ValueError: see /a/b/lib/python3.11/site-packages/x"),
        ("got {torch.bfloat16, torch.float32}", "ValueError: got {torch.float32, torch.bfloat16}"),
        ("", "ValueError"),
    ],
)
def test_the_same_error_is_the_same_wherever_it_was_raised(message: str, log: str, build_outcome: Build) -> None:
    assert compared(spawned(log), failed(build_outcome, message), RAISED).same


@pytest.mark.parametrize("log", ["TypeError: no", "ValueError: nothing", "ValueError: no\nmore", "no error"])
def test_another_type_or_message_is_another_error(log: str, build_outcome: Build) -> None:
    found = compared(spawned(log), failed(build_outcome, "no\nand why"), RAISED)
    assert not found.same


def test_an_error_in_a_module_is_known_by_its_bare_type(build_outcome: Build) -> None:
    outcome = failed(build_outcome, "boom", kind="BackendCompilerFailed")
    assert compared("torch._dynamo.exc.BackendCompilerFailed: boom", outcome, RAISED).same


def test_a_measurement_is_the_same_check_beyond_the_same_bound(build_outcome: Build) -> None:
    outcome = off(build_outcome)
    log = spawned("AssertionError: gradient 1.4, bound <= 0.0938; its norm is 2.5, expected 1")
    assert compared(log, outcome, symptom(outcome)).same


@pytest.mark.parametrize(
    "message",
    ["gradient 1.4, bound <= 0.5; ...", "loss 1.4, bound <= 0.0938; ...", "gradient scale 2, bound <= 0.0938"],
)
def test_another_check_or_bound_is_not_the_same(message: str, build_outcome: Build) -> None:
    outcome = off(build_outcome)
    assert not compared(spawned(f"AssertionError: {message}"), outcome, symptom(outcome)).same


def test_the_script_error_is_that_of_the_rank_and_not_of_the_launcher(build_outcome: Build) -> None:
    found = compared(spawned("TypeError: other"), failed(build_outcome, "no"), RAISED)
    assert (found.script_error, found.cell_error) == ("TypeError: other", "ValueError: no")


class Fake:
    """A fake uv process: it creates an environment for the script, as uv does, and returns a fixed log."""

    def __init__(self, cache: Path, *, log: str, exit_code: int | None = 1) -> None:
        self.cache, self.log, self.exit_code = cache, log, exit_code
        self.scripts: list[str] = []
        self.environ: Mapping[str, str] = {}

    def __call__(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, **_: Any) -> Finished:
        script = Path(argv[-1])
        self.scripts.append(script.read_text())
        self.environ = env or {}
        (self.cache / "environments-v2" / f"{script.stem.replace('_', '-')}-abc").mkdir(parents=True)
        return Finished(exit_code=self.exit_code, log=self.log.replace("SCRIPT", str(script)))

    def uv(self) -> Uv:
        return Uv(
            binary=Path("uv"),
            workdir=self.cache / "work",
            variables={"UV_CACHE_DIR": str(self.cache), "PYTHONPATH": "/somewhere"},
            call=self,
        )


MEASURED = "2025-12__save_reload-vera-single-fp32"


def test_the_script_runs_alone_and_its_environment_is_removed(
    make: Callable[[str], Reproducer], build_outcome: Build, tmp_path: Path
) -> None:
    made = make(MEASURED)
    fake = Fake(tmp_path, log='  File "SCRIPT"\nValueError: no')
    found = confirmed(made, failed(build_outcome, "no"), uv=fake.uv())
    assert found.same
    assert fake.scripts == [made.text]
    assert fake.environ["PYTHONPATH"] == ""
    assert list((tmp_path / "environments-v2").iterdir()) == []
    assert found.log == f'  File "{made.name}"\nValueError: no'


def test_a_script_without_an_error_is_not_the_same(
    make: Callable[[str], Reproducer], build_outcome: Build, tmp_path: Path
) -> None:
    fake = Fake(tmp_path, log="no error", exit_code=0)
    found = confirmed(make(MEASURED), failed(build_outcome, "no"), uv=fake.uv())
    assert (found.same, found.script_error) == (False, "no error")


@pytest.mark.parametrize(
    ("log", "sentence"),
    [
        ("error: No space left on device", "the disk is full"),
        ("error: Failed to fetch: torch", "the package index cannot be reached"),
        ("error: No interpreter found for Python 3.11", "could not be run: No interpreter found for Python 3.11"),
    ],
)
def test_a_failure_of_the_machine_is_an_error_and_no_result(
    log: str, sentence: str, make: Callable[[str], Reproducer], build_outcome: Build, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=sentence):
        confirmed(make(MEASURED), failed(build_outcome, "no"), uv=Fake(tmp_path, log=log, exit_code=2).uv())
