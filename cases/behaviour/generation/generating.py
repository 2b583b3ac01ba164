"""Builders for calls about generation: models, prompts, and the reference network that judges tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.apply import build
from cases.model import architectures, tiny
from cases.reference import tolerance, twin
from cases.space.options import Options
from cases.space.verdict import Check, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases.apply.context import Context
    from cases.reference.network import Network

    Process = Callable[[Sequence[int], list[float]], list[float]]  # (text, scores of the next token) -> scores

LENGTHS = (5, 12, 3, 8)  # of the prompts of a batch
NEW = 8


@dataclass
class Judge:
    """The float64 network of a model, with the tensors of its adapter; it computes each row alone, without padding."""

    network: Network
    options: Options
    trained: dict[str, Any] = field(default_factory=dict)

    def logits(self, row: Sequence[int]) -> Any:
        """Logits after each token of a row: float64, (length, vocabulary)."""
        return self.of_rows([row])[0]

    def of_rows(self, rows: Sequence[Sequence[int]]) -> Any:
        """As above, for rows of one length."""
        import torch

        with torch.no_grad():
            return twin.logits(self.network, self.trained, torch.tensor([list(row) for row in rows]), self.options)

    def log_probabilities(self, rows: Sequence[Sequence[int]]) -> list[list[float]]:
        """Those of the next token of each row."""
        found: list[list[float]] = self.of_rows(rows)[:, -1].log_softmax(-1).tolist()
        return found

    def greedy(self, row: Sequence[int], number: int) -> list[int]:
        text = list(row)
        for _ in range(number):
            text.append(int(self.logits(text)[-1].argmax()))
        return text[len(row) :]


def options(model: str = "llama", method: str = "full") -> Options:
    return Options().but(flow="load", model=model, method=method) if method == "full" else Options().but(model=model)


def reference(ctx: Context, chosen: Options) -> Judge:
    found = Judge(twin.network(chosen, architectures.checkpoint(chosen, ctx.cache)), chosen)
    if chosen.method != "full":
        found.trained = twin.trained_tensors(found.network, chosen)
    return found


def loaded(ctx: Context, chosen: Options, **arguments: Any) -> Any:
    """The tiny model in float32, with further arguments of ``from_pretrained``; adapted if the options say so."""
    from transformers import AutoModelForCausalLM

    folder = architectures.checkpoint(chosen, ctx.cache)
    model = AutoModelForCausalLM.from_pretrained(folder, **arguments).to(ctx.place.device)
    return (model if chosen.method == "full" else build.adapt(model, chosen)).eval()


def prompts() -> list[list[int]]:
    """Prompts of different lengths."""
    rows = tiny.batch(0)
    return [rows[number, :length].tolist() for number, length in enumerate(LENGTHS)]


def generated(model: Any, batch: Sequence[Sequence[int]], **arguments: Any) -> Any:
    """What ``generate`` returns for prompts that are padded on the left."""
    import torch

    longest, device = max(map(len, batch)), next(model.parameters()).device
    ids = [[tiny.PADDING] * (longest - len(row)) + list(row) for row in batch]
    real = [[0] * (longest - len(row)) + [1] * len(row) for row in batch]
    usual = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": tiny.END, "pad_token_id": tiny.PADDING}
    with torch.no_grad():
        return model.generate(
            input_ids=torch.tensor(ids, device=device),
            attention_mask=torch.tensor(real, device=device),
            **{**usual, **arguments},
        )


def new_tokens(found: Any, batch: Sequence[Sequence[int]]) -> list[list[int]]:
    rows: list[list[int]] = found[:, max(map(len, batch)) :].tolist()
    return rows


def up_to_end(tokens: Sequence[int], ends: Sequence[int]) -> list[int]:
    """Tokens up to and including the first that ends a row."""
    place = next((place for place, token in enumerate(tokens) if token in ends), len(tokens))
    return list(tokens[: place + 1])


def first_real(tokens: Sequence[int]) -> int:
    """The first token that is not the padding token."""
    return next(token for token in tokens if token != tiny.PADDING)


def shape_checks(
    rows: Sequence[Sequence[int]], ends: Sequence[int], *, most: int = NEW, padding: int = tiny.PADDING
) -> list[Check]:
    """Check that each row stops at an end token or at the full length, and that padding follows."""
    kept = [up_to_end(row, ends) for row in rows]
    behind = sum(token != padding for row, own in zip(rows, kept, strict=True) for token in row[len(own) :])
    open_rows = sum(own[-1] not in ends and len(own) != most for own in kept)
    return [
        equal("tokens behind the end that are not padding", behind, 0),
        equal("rows that stop without an end", open_rows, 0),
        equal("columns of new tokens", len(rows[0]), max(map(len, kept))),
    ]


def unchanged(_text: Sequence[int], scores: list[float]) -> list[float]:
    return scores


def regret(judge: Judge, prompt: Sequence[int], tokens: Sequence[int], process: Process = unchanged) -> float:
    """By how much a token's score is at most below the best one, given the tokens before it, in standard deviations."""
    logits = judge.logits([*prompt, *tokens])[len(prompt) - 1 : -1]
    worst = 0.0
    for place, token in enumerate(tokens):
        scores = process([*prompt, *tokens[:place]], logits[place].tolist())
        worst = max(worst, (max(scores) - scores[token]) / float(logits[place].std()))
    return worst


def greedy_checks(
    judge: Judge,
    batch: Sequence[Sequence[int]],
    rows: Sequence[Sequence[int]],
    process: Process = unchanged,
    ends: Sequence[int] = (tiny.END,),
) -> list[Check]:
    """Check every token of a greedy generation: among near ties, any may be chosen."""
    kept = [up_to_end(row, ends) for row in rows]
    worst = max(regret(judge, prompt, own, process) for prompt, own in zip(batch, kept, strict=True))
    # A difference of two logits, each of which may be off by its bound.
    return [at_most("regret of the tokens", worst, 2 * tolerance.bound("logits", Options())), *shape_checks(rows, ends)]
