"""The model cards that TRL's trainers write: the paper of the method, its link, and what the model was trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cases.api import call
from cases.behaviour.preferences import grpo
from cases.behaviour.preferences.inputs.adapter_settings import adapted
from cases.behaviour.preferences.inputs.row_forms import known
from cases.space.verdict import Check, Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Rows of TRL"
PAPERS = {  # as arXiv has them
    "DPO": ("2305.18290", "Direct Preference Optimization: Your Language Model is Secretly a Reward Model"),
    "KTO": ("2402.01306", "KTO: Model Alignment as Prospect Theoretic Optimization"),
    "ORPO": ("2403.07691", "ORPO: Monolithic Preference Optimization without Reference Model"),
    "CPO": (
        "2401.08417",
        "Contrastive Preference Optimization: Pushing the Boundaries of LLM Performance in Machine Translation",
    ),
    "GRPO": (
        "2402.03300",
        "DeepSeekMath: Pushing the Limits of Mathematical Reasoning in Open Language Models",
    ),
}


@call(GROUP, phase=Phase.SAVE)
def cards_cite_papers(ctx: Context) -> Iterator[Check]:
    """create_model_card links the paper of the method under its title, and names no data set that is not given."""
    for kind in known(tuple(PAPERS)):
        made = grpo.trainer(ctx, {"temperature": 1.0})[0] if kind == "GRPO" else adapted(ctx, kind)
        number, title = PAPERS[kind]
        for data in (None, "corpus/of-words"):
            made.create_model_card(model_name="tuned", dataset_name=data, tags="tiny")
            path = ctx.kept / "output" / "README.md"
            text = path.read_text(encoding="utf-8")
            link = f"[{title}](https://huggingface.co/papers/{number})".lower()
            yield equal(f"links the paper, {kind}, {data}", link in text.lower(), bound=True)
            yield equal(f"cites the authors, {kind}, {data}", "@" in text.partition("Cite")[2], bound=True)
            yield equal(f"names a data set, {kind}, {data}", "corpus/of-words" in text, data is not None)
            yield equal(f"has the tag, {kind}, {data}", "- tiny" in text, bound=True)
            yield equal(f"names the library, {kind}, {data}", "library_name: transformers" in text, bound=True)
            path.unlink()
