"""Every signature has a real log, and exactly that signature explains it."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from cases.space.verdict import Phase
from matrix.errors import UserError
from matrix.known import findings
from reports.answers.diagnosis import signatures
from reports.answers.diagnosis.diagnose import diagnose, narrower
from reports.answers.diagnosis.symptoms import Symptom

LOGS = Path(__file__).with_name("logs")
EXAMPLES = sorted(path for path in LOGS.iterdir() if path.suffix in {".txt", ".json"})
SHORTEST_CAUSE = 40
LINEAR_S = 0.25
PACKAGE = r"(torch|transformers|peft|bitsandbytes|accelerate|trl)"
VERSION = r"\d+(?:\.\d+)*"
BOUNDS = [  # a version up to which, or from which, the cause holds
    rf"\b{PACKAGE} (?:before|since|until|from|up to|after) {VERSION}",
    rf"\b(?:before|since|until|from|up to|after) {PACKAGE} {VERSION}",
    rf"\b{PACKAGE} {VERSION} (?:and|or) (?:older|newer|earlier|later)",
]


def signature_of(example: Path) -> str:
    """The name before ``.txt``, ``.2.txt`` or ``.json``."""
    stem = example.stem
    return stem.rpartition(".")[0] if stem.rpartition(".")[2].isdigit() and "." in stem else stem


def symptom_of(example: Path) -> Symptom:
    text = example.read_text(encoding="utf-8")
    if example.suffix == ".txt":
        return Symptom(text="\n".join(line for line in text.splitlines() if not line.startswith("# ")))
    facts = json.loads(text)
    return Symptom(
        missed=tuple(facts["missed"]),
        options=facts["options"],
        versions=facts["versions"],
        case=facts.get("case", ""),
        text=facts.get("text", ""),
        phase=Phase(facts["phase"]) if facts.get("phase") else None,
        device=facts.get("device", ""),
    )


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_exactly_one_signature_explains_a_log(example: Path) -> None:
    assert [each.signature.id for each in diagnose(symptom_of(example))] == [signature_of(example)]


def test_every_signature_has_a_log() -> None:
    ids = {row.id for row in signatures.load()}
    assert ids ^ {signature_of(example) for example in EXAMPLES} == set()


def test_every_log_names_its_source() -> None:
    texts = [path for path in EXAMPLES if path.suffix == ".txt"]
    assert [path.name for path in texts if not path.read_text().startswith("# from: ")] == []


def test_every_signature_explains_its_cause_in_a_sentence() -> None:
    short = [row.id for row in signatures.load() if len(row.cause) < SHORTEST_CAUSE or not row.cause.endswith(".")]
    assert short == []


def test_a_version_bound_in_a_cause_is_also_a_condition() -> None:
    """Otherwise the signature would explain logs that state another version."""
    bare = {
        (row.id, package)
        for row in signatures.load()
        for bound in BOUNDS
        for package in re.findall(bound, row.cause)
        if package not in row.versions
    }
    assert bare == set()


@pytest.mark.parametrize(
    ("line", "versions"),
    [
        ("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.1", {"torch": "2.6.0"}),
        (
            "ImportError: cannot import name 'clear_device_cache' from 'accelerate.utils.memory'",
            {"accelerate": "1.11.0"},
        ),
        ("ImportError: cannot import name 'EncoderDecoderCache' from 'transformers'", {"transformers": "5.2.0"}),
        ("ImportError: cannot import name 'HybridCache' from 'transformers'", {"peft": "0.18.0"}),
        ("TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'", {"trl": "0.15.2"}),
    ],
)
def test_a_contradicting_version_excludes_a_signature(line: str, versions: dict[str, str]) -> None:
    assert diagnose(Symptom(text=line, versions=versions)) == ()
    assert len(diagnose(Symptom(text=line))) == 1


@pytest.mark.parametrize(
    ("config", "keyword", "known"),
    [
        ("LoraConfig", "exclude_modules", True),
        ("PromptTuningConfig", "modules_to_save", True),
        ("LoraConfig", "modules_to_save", False),
        ("LoraConfig", "use_original_init", False),
        ("LoraConfig", "lora_biases", False),
    ],
)
def test_only_a_field_of_a_newer_peft_is_blamed_on_an_old_one(config: str, keyword: str, known: bool) -> None:  # noqa: FBT001
    line = f"TypeError: {config}.__init__() got an unexpected keyword argument '{keyword}'"
    assert bool(diagnose(Symptom(text=line))) == known


def test_the_signature_of_an_old_trl_does_not_explain_a_log_of_a_new_one() -> None:
    line = "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    (diagnosis,) = diagnose(Symptom(text=line, versions={"trl": "1.16.0", "transformers": "5.2.0"}))
    assert "trl before" not in diagnosis.signature.cause


def test_signatures_name_existing_problems() -> None:
    existing = {row.id for row in findings.with_known_problems()}
    assert {name for row in signatures.load() for name in row.problems} - existing == set()


def test_the_log_of_a_signature_contains_one_of_its_anchors() -> None:
    """A search for the anchors precedes the pattern, and must not hide a match."""
    logs = {signature_of(path): symptom_of(path).bare for path in EXAMPLES if path.suffix == ".txt"}
    found = {row.id: any(each in logs[row.id] for each in row.anchors) for row in signatures.load() if row.id in logs}
    assert [name for name, has_anchor in found.items() if not has_anchor] == []


@pytest.mark.parametrize(
    ("pattern", "anchors"),
    [
        (r"Must flatten tensors with uniform `requires_grad`", ("Must flatten tensors with uniform requires_grad",)),
        (r"\[rank\d+\]: no such key", ("]: no such key",)),
        (r"optional words? only", ("optional word",)),
        (r"this|that", ("this", "that")),
        (r"(?:this one|that (?:one|other)) here", ("",)),
        (r"(?:this one|that (?:one|other) here)", ("this one", "that ")),
        (r"(?:one|two) or (?:three|four)", (" or ",)),
        (r"this|\w+", ("",)),
        (r"(?i)no matter how it is written", ("",)),
        (r"either (one|the other) of them", (" of them",)),
    ],
)
def test_every_match_contains_an_anchor(pattern: str, anchors: tuple[str, ...]) -> None:
    row = signatures.Signature(id="a", pattern=pattern, cause="because", kind=signatures.CauseKind.BUG)
    assert row.anchors == anchors


@pytest.mark.parametrize("field", ["pattern", "near", "through", "elsewhere"])
def test_every_pattern_compiles_and_matches_no_empty_text(field: str) -> None:
    patterns = {row.id: signatures.unquoted(getattr(row, field)) for row in signatures.load() if getattr(row, field)}
    assert [name for name, pattern in patterns.items() if re.compile(pattern, re.MULTILINE).search("")] == []


@pytest.mark.parametrize("text", ["a" * 20_000, "A_" * 10_000, " " * 20_000, "1" * 20_000], ids=lambda text: text[:2])
@pytest.mark.parametrize("field", ["pattern", "near", "through", "elsewhere"])
def test_every_pattern_scans_a_long_word_in_linear_time(field: str, text: str) -> None:
    """A linear scan takes a few milliseconds of processor time; a quadratic one takes seconds."""
    seconds = {row.id: seconds_to_scan(getattr(row, field), text) for row in signatures.load() if getattr(row, field)}
    assert {name: each for name, each in seconds.items() if each > LINEAR_S} == {}


def seconds_to_scan(pattern: str, text: str) -> float:
    compiled = re.compile(signatures.unquoted(pattern), re.MULTILINE)
    start = time.process_time()
    for _ in compiled.finditer(text):
        pass
    return time.process_time() - start


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ('when = "quant=nf5"\npattern = "a"', "has no value 'nf5'"),
        ('versions = { peft = "new" }\npattern = "a"', "Invalid specifier"),
        ('links = ["see the forum"]\npattern = "a"', "is no thread"),
        ("", "neither pattern nor checks"),
    ],
)
def test_a_malformed_signature_is_refused(tmp_path: Path, row: str, problem: str) -> None:
    text = f'[[signature]]\nid = "a"\ncause = "because"\nkind = "bug"\n{row}\n'
    (tmp_path / "rows.toml").write_text(text)
    with pytest.raises(UserError, match=problem):
        signatures.load(tmp_path)


def test_two_signatures_with_one_id_are_refused(tmp_path: Path) -> None:
    row = '[[signature]]\nid = "a"\npattern = "a"\ncause = "because"\nkind = "bug"\n'
    (tmp_path / "rows.toml").write_text(row + row)
    with pytest.raises(UserError, match="two signatures have the id 'a'"):
        signatures.load(tmp_path)


def test_a_signature_of_one_device_does_not_explain_a_failure_on_another() -> None:
    row = signatures.Signature(id="a", pattern="no", cause="because", kind=signatures.CauseKind.BUG, device="cpu")
    diagnoses = {device: diagnose(Symptom(text="no", device=device), [row]) for device in ("", "cpu", "cuda")}
    assert [device for device, found in diagnoses.items() if found] == ["", "cpu"]


@pytest.mark.parametrize(
    "line",
    [
        "Segmentation fault (core dumped)",
        "AttributeError: 'list' object has no attribute 'keys'",
        "TypeError: 'NoneType' object is not iterable",
        "ValueError: too many values to unpack (expected 2)",
        "KeyError: None",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x4)",
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1",
        "RuntimeError: Boolean value of Tensor with more than one value is ambiguous",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!",
        "RuntimeError: shape '[3, 4]' is invalid for input of size 10",
        "_pickle.UnpicklingError: Weights only load failed. Unsupported global: GLOBAL mine.Thing",
        (
            "ImportError: huggingface-hub>=0.19.3,<1.0 is required for a normal functioning of this module, "
            "but found huggingface-hub==0.17.1"
        ),
        "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443)",
        "{'loss': 1.2, 'grad_norm': 0.4, 'epoch': 0.1}",
    ],
)
def test_an_unknown_error_is_unexplained(line: str) -> None:
    assert diagnose(Symptom(text=line)) == ()


def test_a_cause_that_assumes_options_comes_after_one_that_does_not() -> None:
    """Its confirmed versions do not help it: they occur in every log of that time."""
    text = "ValueError: Must flatten tensors with uniform requires_grad when use_orig_params=False"
    failure = Symptom(text=text, versions={"peft": "0.10.0"})
    (diagnosis,) = diagnose(failure)
    assert diagnosis.signature.id == "fsdp1-requires-grad"
    assert "fsdp1-dora-magnitude" in [each.signature.id for each in narrower(diagnosis, failure)]
