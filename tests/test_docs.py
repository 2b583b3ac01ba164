"""What the documents tell a reader to type exists, and so do the files that they name."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

from matrix.versions import sets
from reports import cli
from reports.render.markdown import excerpt
from reports.results import document as data
from reports.results.grid import grid

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parents[1]
DOCUMENTS = [HERE / "README.md", HERE / "CONTRIBUTING.md", HERE / "GLOSSARY.md"]
BLOCK = re.compile(r"^```(?:console|sh|bash|shell)\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
FOLDERS = ("cases", "matrix", "reports", "tests", ".github", ".ci")
PATH = re.compile(rf"(?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]*|[A-Z]+\.md|noxfile\.py|pyproject\.toml")


def commands(document: Path) -> Iterator[str]:
    """Lines of shell blocks, and inline code that begins with one of our commands; without comments and prompts."""
    text = document.read_text(encoding="utf-8")
    blocks = "\n".join(BLOCK.findall(text)).replace("\\\n", " ").splitlines()
    inline = [code for code in INLINE.findall(text) if code.startswith(("ftmatrix ", "nox "))]
    for line in (*blocks, *inline):
        yield from (part.strip().removeprefix("$ ") for part in line.partition(" #")[0].split("&&") if part.strip())


def typed(program: str) -> list[tuple[str, list[str]]]:
    found = [(document.name, line) for document in DOCUMENTS for line in commands(document)]
    return [(name, shlex.split(line)[1:]) for name, line in found if shlex.split(line)[:1] == [program]]


def label(value: object) -> str:
    return " ".join(value) if isinstance(value, list) else str(value)


@pytest.mark.parametrize(("document", "words"), typed("ftmatrix"), ids=label)
def test_a_command_in_a_document_exists_with_its_options(document: str, words: list[str]) -> None:
    command: Any = typer.main.get_command(cli.app)
    while isinstance(command, typer.core.TyperGroup) and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{document}: ftmatrix has no command {words[0]}"
        command, words = command.commands[words[0]], words[1:]
        if not (words and isinstance(command, typer.core.TyperGroup) and words[0] in command.commands):
            break
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known | {"--help"}


@pytest.mark.parametrize(("document", "words"), typed("nox"), ids=label)
def test_a_session_in_a_document_exists(document: str, words: list[str]) -> None:
    own = words[: words.index("--")] if "--" in words else words
    if not {"-s", "--session", "--sessions", "-e"} & set(own):
        return
    start = next(number for number, word in enumerate(own) if word.startswith("-") and word.lstrip("-")[0] in "se")
    asked = [word for word in own[start + 1 :] if not word.startswith("-")]
    assert set(asked) <= sessions(), document
    if asked[:1] == ["matrix"] and "--" in words:
        test_a_command_in_a_document_exists_with_its_options(document, ["run", *words[words.index("--") + 1 :]])


def sessions() -> set[str]:
    tree = ast.parse((HERE / "noxfile.py").read_text(encoding="utf-8"))
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.decorator_list]
    calls = [node.value for node in tree.body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    named = {str(call.args[0].value) for call in calls if call.args and isinstance(call.args[0], ast.Constant)}
    return {function.name for function in functions} | named | {f"matrix({each.key})" for each in sets.load()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_that_a_document_names_exists(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link and ":" not in link]
    named = [code for code in INLINE.findall(text) if PATH.fullmatch(code)]
    assert [path for path in (*links, *named) if not (HERE / path).exists()] == []


EXCERPT = re.compile(r"(?<=<!-- excerpt: begin -->\n)(.*?)(?=<!-- excerpt: end -->)", re.DOTALL)
EXCERPT_SETS = ("2024-06", "2024-12", "2025-06", "2025-12", "2026-06", "2026-11")
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
    path = data.locate(HERE / "reports" / "published")
    assert path is not None
    published = data.read(path)
    matrix = grid(published.run, published.sets, published.cells)
    readme = HERE / "README.md"
    text = readme.read_text(encoding="utf-8")
    shown = f"\n{excerpt(matrix, cases=EXCERPT_CASES, sets=EXCERPT_SETS)}\n"
    actual = HERE / "README.actual.md"
    actual.write_text(EXCERPT.sub(lambda _: shown, text), encoding="utf-8")
    assert actual.read_text(encoding="utf-8") == text, f"to accept the new text: mv {actual} {readme}"
    actual.unlink()
