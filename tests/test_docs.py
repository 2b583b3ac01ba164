"""Documents name commands, options, files and terms that exist; no text uses a retired word."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from cases.space import options
from cases.space.verdict import Phase, Verdict
from matrix.versions import sets
from reports import cli
from reports.answers import knowledge
from reports.render.markdown import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "GLOSSARY.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(?:console|sh|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOLDERS = ("cases", "docs", "matrix", "reports", "tests", ".github", ".ci")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*|[A-Z]+\.md|noxfile\.py|pyproject\.toml")


def commands(document: Path) -> Iterator[str]:
    """Lines of shell blocks, and inline code that begins with one of our commands; without comments and prompts."""
    text = document.read_text(encoding="utf-8")
    blocks = "\n".join(BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    inline = [code for code in INLINE.findall(text) if code.startswith(("ftmatrix ", "nox "))]
    for line in (*blocks, *inline):
        yield from (part.strip().removeprefix("$ ") for part in line.partition(" #")[0].split("&&") if part.strip())


def command_lines(program: str) -> list[tuple[str, list[str]]]:
    """The document and the arguments of every line that runs a program."""
    found = [(document.name, line) for document in DOCUMENTS for line in commands(document)]
    return [(name, shlex.split(line)[1:]) for name, line in found if shlex.split(line)[:1] == [program]]


def label(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


@cache
def command_line() -> Any:
    return typer.main.get_command(cli.application())


@pytest.mark.parametrize(("document", "words"), command_lines("ftmatrix"), ids=label)
def test_a_command_in_a_document_exists_with_its_options(document: str, words: list[str]) -> None:
    command = command_line()
    while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{document}: ftmatrix has no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
        if not (words and isinstance(command, typer.core.TyperGroup) and words[0] in command.commands):
            break
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known | {"--help"}


@pytest.mark.parametrize(("document", "words"), command_lines("nox"), ids=label)
def test_a_session_in_a_document_exists(document: str, words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words
    if not {"-s", "--session", "--sessions", "-e"} & set(own):
        return
    start = next(number for number, word in enumerate(own) if word.startswith("-") and word.lstrip("-")[0] in "se")
    named = [word for word in own[start + 1 :] if not word.startswith("-")]
    assert set(named) <= sessions(), document
    if named[:1] == ["matrix"] and "--" in words:
        test_a_command_in_a_document_exists_with_its_options(document, ["run", *words[words.index("--") + 1 :]])


def sessions() -> set[str]:
    tree = ast.parse((ROOT / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    named = {str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant)}
    return {function.name for function in functions} | named | {f"matrix({each.key})" for each in sets.load()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link and ":" not in link]
    named = [code for code in INLINE.findall(text) if PATH.fullmatch(code)]
    assert [path for path in links if not (document.parent / path).exists()] == []
    assert [path for path in named if not (ROOT / path).exists()] == []


EXCERPT = re.compile(r"(?<=<!-- excerpt: begin -->\n)(.*?)(?=<!-- excerpt: end -->)", re.DOTALL)
EXCERPT_SETS = ("2024-06", "2024-12", "2025-06", "2025-12", "2026-03", "2026-11")
EXCERPT_CASES = (
    "train-lora-nf4-single-bf16",
    "train-dora-int8-single-bf16",
    "train-lora-nf4-ddp-bf16",
    "train-lora-ddp-fp32-gradient_checkpointing_reentrant",
    "train-full-fsdp1-fp32",
    "train-lora-fsdp1-bf16",
    "train-lora-fsdp1-bf16-autocast_adapter_dtype_false",
    "train-lora-fsdp1-use_orig_params_false-fp32",
    "train-dora-fsdp1-auto_wrap_policy_peft-bf16",
    "train-dora-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-lora-nf4-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp1-auto_wrap_policy_peft-use_orig_params_false-bf16",
    "train-full-fsdp2-fp32",
    "train-lora-nf4-fsdp2-bf16",
    "train-lora-nf4-bnb_4bit_quant_storage_bf16-fsdp2-bf16",
    "train-lora-int8-fsdp2-bf16",
)


def test_the_readme_shows_what_was_published() -> None:
    matrix = knowledge.load(device="cuda")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    shown = f"\n{excerpt(matrix, cases=EXCERPT_CASES, sets=EXCERPT_SETS)}\n"
    actual = ROOT / "README.actual.md"
    actual.write_text(EXCERPT.sub(lambda _: shown, text), encoding="utf-8")
    assert actual.read_text(encoding="utf-8") == text, f"to accept the new text: mv {actual} {readme}"
    actual.unlink()


def glossary() -> list[str]:
    """The terms of the first table of the glossary."""
    first = (ROOT / "GLOSSARY.md").read_text(encoding="utf-8").partition("## Options")[0]
    return re.findall(r"^\| (?!term |---)(.+?) \|", first, re.MULTILINE)


def test_the_glossary_is_in_alphabetical_order() -> None:
    assert glossary() == sorted(glossary(), key=str.lower)


def test_the_glossary_has_every_verdict() -> None:
    assert {verdict.value for verdict in Verdict} <= set(glossary())


@pytest.mark.parametrize("name", [*(phase.value for phase in Phase), *map("`{}`".format, options.names())])
def test_the_glossary_names_every_phase_and_option(name: str) -> None:
    assert name in (ROOT / "GLOSSARY.md").read_text(encoding="utf-8")


TEXTS = ("*.py", "*.md", "*.toml", "*.j2", "*.yml", "*.yaml")
# Words that were once used for terms of the glossary. A pattern has the files that read or test a former name.
RETIRED: dict[str, tuple[str, ...]] = {
    r"(?<![a-z])lent(?![a-z])": (),
    r"(?<![a-z])quests?(?![a-z])": (),
    r"(?-i:\bWitness\b)": (),
    r"(?<![a-z])disasters?(?![a-z]|\.json)": ("reports/commands/selfcheck.py", "tests/reports/test_cli.py"),
    r"(?<![a-z])doom(?:ed)(?![a-z])": (),
    r"(?<![a-z])planted(?![a-z])": ("matrix/experiments/selfcheck.py", "tests/matrix/experiments/test_selfcheck.py"),
    r"(?<![a-z])faulty(?![a-z])": (),
    r"is played|played driver": (),
    r"only said": (),
    r"stretch(es)? of versions": (),
    r"stands? alike": (),
    r"how a set stands|set stands to": (),
    r"written[- ]out": (),
    r"(?-i:class (Asked|Quest|Lent|Witness)\b)": (),
    r"(?<![a-z])untouched(?![a-z])": (),
    r"(?<![a-z])patience(?![a-z])": (  # of early stopping and of a schedule, as transformers and torch name it
        "cases/behaviour/optimising/greedy_rates.py",
        "cases/behaviour/optimising/schedule_fields.py",
        "cases/behaviour/optimising/torch_plateaus.py",
        "cases/behaviour/trainers/control_flags.py",
        "cases/behaviour/trainers/optimiser_settings.py",
        "cases/checks/call_names/trainers.py",
    ),
    r"user asked|asked by a user": (),
}


def texts() -> Iterator[Path]:
    """The files that people read, without the history and the published results."""
    roots = [ROOT / folder for folder in FOLDERS if (ROOT / folder).is_dir()]
    inside = (path for root in roots for pattern in TEXTS for path in root.rglob(pattern))
    written = ROOT / "CHANGELOG.md", Path(__file__), ROOT / "reports" / "published"
    for path in (*inside, *(path for pattern in TEXTS for path in ROOT.glob(pattern))):
        if not any(path.is_relative_to(each) for each in written):
            yield path


@pytest.mark.parametrize("pattern", RETIRED)
def test_no_text_uses_a_retired_word(pattern: str) -> None:
    word = re.compile(pattern, re.IGNORECASE)
    allowed = {ROOT / name for name in RETIRED[pattern]}
    found = [path for path in texts() if path not in allowed and word.search(path.read_text(encoding="utf-8"))]
    assert [str(path.relative_to(ROOT)) for path in found] == []
