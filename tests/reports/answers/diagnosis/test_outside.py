"""A log that ended outside the stack names its end instead of a signature."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrix.errors import UserError
from reports.answers.diagnosis import outside
from reports.answers.diagnosis.diagnose import diagnose
from reports.answers.diagnosis.frames import Origin, frames, origin
from reports.answers.diagnosis.ranks import rank_of, sorted_by_rank
from reports.answers.diagnosis.symptoms import Symptom

UNRELATED = Path(__file__).with_name("unrelated")
SITE = "/env/lib/python3.11/site-packages"
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
MIXED = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and Half"


def traceback(*paths: str, error: str, function: str = "main") -> str:
    calls = [f'  File "{path}", line 3, in {function}' for path in paths]
    return "\n".join(["Traceback (most recent call last):", *calls, error])


def ids(text: str) -> list[str]:
    return [each.signature.id for each in diagnose(Symptom(text=text))]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("disk-full", "disk-full"),
        ("near-truncated-model-full-disk", "disk-full"),
        ("near-time-limit-nccl", "scheduler"),
        ("near-oom-killer", "host-memory"),
        ("near-sigterm-launcher", "terminated"),
        ("hub-401", "hub-access"),
        ("proxy", "network"),
        ("near-token-beyond-vocabulary", "indices"),
        ("columns-removed", "columns"),
        ("nan-in-data", "nan"),
        ("driver-too-old", "driver"),
        ("java-heap", "java"),
        ("node-module", "node"),
        ("go-panic", "go"),
        ("rust-panic", "rust"),
    ],
)
def test_a_plain_end_is_named(name: str, expected: str) -> None:
    ended = outside.end(Symptom(text=(UNRELATED / f"{name}.txt").read_text()))
    assert ended is not None
    assert ended.id == expected


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (("/project/train.py", f"{SITE}/peft/tuners/lora/layer.py", f"{SITE}/torch/nn/functional.py"), Origin.STACK),
        (("/project/train.py", f"{SITE}/torch/nn/functional.py"), Origin.USER),
        (("/project/train.py", f"{SITE}/torch/distributed/fsdp/_flat_param.py"), Origin.STACK),
        ((f"{SITE}/transformers/trainer.py", f"{SITE}/deepspeed/runtime/engine.py"), Origin.OTHER),
        (("/caches/modules/transformers_modules/site-packages/m.py",), Origin.USER),
        ((f"{SITE}/torch/nn/functional.py",), Origin.UNKNOWN),
    ],
)
def test_the_innermost_frame_that_is_not_neutral_decides(paths: tuple[str, ...], expected: Origin) -> None:
    assert origin(list(frames(traceback(*paths, error="E").splitlines()))) is expected


def test_an_error_in_a_method_that_the_user_overrides_is_the_users() -> None:
    own = "/project/train.py"
    assert ids(traceback(own, error=OOM)) == ["gpu-out-of-memory"]
    assert ids(traceback(own, error=OOM, function="compute_loss")) == []


def test_code_in_which_a_traceback_died_is_named() -> None:
    ended = outside.foreign_code(Symptom(text=traceback("/project/heads.py", error=MIXED)))
    assert ended is not None
    died = "no known failure of the stack: the log ends in the user's own code (project/heads.py"
    assert ended.sentence.startswith(died)


def test_the_rank_that_died_first_decides() -> None:
    stack = traceback(f"{SITE}/peft/peft_model.py", error=OOM)
    own = traceback("/project/data.py", error="KeyError: 7")

    def of(rank: int, text: str) -> str:
        return "\n".join(f"[default{rank}]:{line}" for line in text.splitlines())

    assert ids(f"{of(1, own)}\n{of(0, stack)}") == []
    assert ids(f"{of(0, stack)}\n{of(1, own)}") == ["gpu-out-of-memory"]


def test_interleaved_ranks_are_sorted() -> None:
    lines = ["[rank0]: a", "[rank1]: b", "warning", "[rank0]: c", "(Actor pid=7) d"]
    ranks = [rank_of(line) for line in lines]
    assert ranks == ["0", "1", "", "0", "7"]
    assert sorted_by_rank(ranks) == [2, 0, 3, 1, 4]
    assert sorted_by_rank(["", "0", "", "0"]) == [0, 1, 2, 3]


def test_a_malformed_table_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "outside.toml"
    table.write_text('[[cause]]\nid = "a"\npattern = "("\nsays = "b"\n')
    with pytest.raises(UserError, match="correct the file"):
        outside.load(table)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("010", "corrupt-file"),
        ("021", "disk-full"),
        ("022", "host-memory"),
        ("037", "compiler"),
        ("047", "adapter-folder"),
        ("050", "node"),
        ("056", "corrupt-file"),
        ("059", "disk-full"),
        ("060", "host-memory"),
    ],
)
def test_an_end_that_somebody_else_collected_is_named(name: str, expected: str) -> None:
    ended = outside.end(Symptom(text=(UNRELATED.with_name("unrelated_c") / f"{name}.txt").read_text()))
    assert ended is not None
    assert ended.id == expected


def test_frames_of_torch_alone_do_not_blame_the_stack_for_a_message_of_any_program() -> None:
    meta = "NotImplementedError: Cannot copy out of meta tensor; no data!"
    torch_only = traceback(f"{SITE}/torch/nn/modules/module.py", error=meta)
    assert ids(torch_only) == []
    assert ids(f"model = PeftModel.from_pretrained(base, folder, device_map='auto')\n{torch_only}") == [
        "offloaded-weights-are-meta"
    ]
    assert ids(meta) == ["offloaded-weights-are-meta"]
