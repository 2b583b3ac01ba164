"""What generation with candidates and beam search return beside tokens if asked for it, and stops in short texts.

https://huggingface.co/docs/transformers/internal/generation_utils
"""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation import stopping
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
LENGTH = 6  # of the prompt
ASKED = {f"output_{name}": True for name in ("scores", "logits", "attentions", "hidden_states")}
SUPPRESSED = 11  # a token that a processor forbids, so that scores and logits differ
SURE = 6.0  # standard errors
DRAWS = 2000


def joined(parts: Any, layer: int, dim: int, width: int) -> Any:
    """One layer of the parts of all steps behind one another; rows of attentions are filled up to ``width``."""
    import torch

    found = [step[layer] for step in parts]
    if dim == -2:  # noqa: PLR2004 - the dimension of queries of attentions
        found = [torch.nn.functional.pad(each, (0, width - each.shape[-1])) for each in found]
    return torch.cat(found, dim=dim)


@dataclass(frozen=True)
class Compared:
    """A model, what generates greedily with it, the whole text, and the pass over it but for its last token."""

    loaded: Any
    prompt: Any
    usual: dict[str, Any]
    text: Any
    whole: Any

    def generated(self, **more: Any) -> Any:
        return self.loaded.generate(self.prompt, **self.usual, **more)


def compared(ctx: Context, model: str) -> Compared:
    import torch

    loaded = building.loaded(ctx, Variant(model).written(ctx, "parts"), attn_implementation="eager")
    prompt = tiny.batch(0)[:1, :LENGTH].to(loaded.device)
    usual: dict[str, Any] = {"max_new_tokens": NEW, "min_new_tokens": NEW, "pad_token_id": tiny.PADDING}
    usual |= {
        "do_sample": False,
        "suppress_tokens": [SUPPRESSED],
        "return_dict_in_generate": True,
        "eos_token_id": stopping.NONE,
    }
    usual |= {"attention_mask": torch.ones_like(prompt), "use_cache": True}
    text = loaded.generate(prompt, **usual).sequences
    with torch.no_grad():
        whole = loaded(text[:, :-1], output_attentions=True, output_hidden_states=True)
    return Compared(loaded, prompt, usual, text, whole)


def states_off(found: Any, one: Compared, title: str) -> Iterator[Check]:
    """Compare states and attentions of every token and layer with those of the pass over the whole text."""
    for name, dim in (("hidden_states", 1), ("attentions", -2)):
        steps, pass_ = getattr(found, name), getattr(one.whole, name)
        each = [joined(steps, layer, dim, one.text.shape[1] - 1) for layer in range(len(pass_))]
        errors = [tolerance.relative(own, wanted) for own, wanted in zip(each, pass_, strict=True)]
        yield at_most(f"{name} off, {title}", tolerance.worst(errors), building.bound("logits"))


@call(GROUP, phase=Phase.INFER)
def candidates_return_parts(ctx: Context) -> Iterator[Check]:
    """Generation with candidates returns scores, logits, states and attentions of every token, as one without does.

    Those of a token are the ones of a pass over the whole text; nothing of rejected candidates is left. What is not
    asked for is None. States are compared where the first pass accepts no candidate.
    """
    import torch

    one = compared(ctx, "llama")  # of GPT-2, transformers 4.47 generates too many tokens, as candidates_gpt2 shows
    other = building.loaded(ctx, Variant("llama", tied=True).written(ctx, "others"), attn_implementation="eager")
    same = copy.deepcopy(one.loaded)
    ways: dict[str, dict[str, Any]] = {
        "none": {},
        "the text": {"prompt_lookup_num_tokens": 3},
        "another model": {"assistant_model": other},
        "the same model": {"assistant_model": same},
    }
    for way, arguments in ways.items():
        title = f"candidates of {way}"
        found = one.generated(**arguments, **ASKED)
        yield equal(f"tokens, {title}", str(found.sequences.tolist()), str(one.text.tolist()))
        logits, scores = torch.stack(found.logits, dim=1), torch.stack(found.scores, dim=1)
        yield equal(f"steps of logits, {title}", logits.shape[1], NEW)
        wanted = one.whole.logits[:, LENGTH - 1 :]
        yield at_most(f"logits off, {title}", tolerance.relative(logits, wanted), building.bound("logits"))
        forbidden = scores == -float("inf")
        tokens = set(forbidden.nonzero()[:, 2].tolist()) - {stopping.NONE}  # which min_new_tokens forbids
        yield equal(f"tokens that scores forbid, {title}", str(tokens), str({SUPPRESSED}))
        rest = tolerance.relative(scores[~forbidden], wanted[~forbidden])
        yield at_most(f"scores off, {title}", rest, building.bound("logits"))
        for name in ("hidden_states", "attentions"):
            steps = getattr(found, name)
            yield equal(f"steps of {name}, {title}", len(steps), NEW)
            layers = {len(each) for each in steps}
            yield equal(f"layers of {name}, {title}", str(layers), str({len(getattr(one.whole, name))}))
        if way != "the same model":
            yield from states_off(found, one, title)
        bare = one.generated(**arguments)
        left = [name for name in ("scores", "logits", "attentions", "hidden_states") if bare.get(name) is not None]
        yield equal(f"parts that nobody asked for, {title}", str(left), "[]")


@call(GROUP, phase=Phase.INFER)
def candidates_of_the_first_pass(ctx: Context) -> Iterator[Check]:
    """States and attentions of candidates that the first pass accepts are their own, not those of the prompt's tokens.

    As in candidates_return_parts, with the model itself as its assistant, whose candidates are all accepted.
    """
    for model in ("llama", "gpt2"):
        one = compared(ctx, model)
        same = copy.deepcopy(one.loaded)
        yield from states_off(one.generated(assistant_model=same, **ASKED), one, model)


@call(GROUP, phase=Phase.INFER)
def candidates_drawn(_ctx: Context) -> Iterator[Check]:
    """Sampling with the candidates of an assistant draws from the distribution of the model, not of the assistant.

    Candidates are accepted with probability min(1, p/q), else drawn from the positive part of p - q; behind a text of
    accepted ones a further token is drawn from p: https://arxiv.org/abs/2211.17192, algorithm 1. By two candidates of
    a vocabulary of four.
    """
    import torch
    from transformers.generation import utils

    torch.manual_seed(0)
    assistant = torch.tensor([[0.1, 0.6, 0.2, 0.1], [0.4, 0.1, 0.1, 0.4]])
    model = torch.tensor([[0.5, 0.2, 0.1, 0.2], [0.1, 0.4, 0.3, 0.2], [0.25, 0.05, 0.3, 0.4]])
    counts, unlike = torch.zeros(3, 4), 0
    known = inspect.signature(utils._speculative_sampling).parameters  # noqa: SLF001 - the step of generate that draws
    done = {"is_done_candidate": False} if "is_done_candidate" in known else {}
    for _ in range(DRAWS):
        candidates = torch.multinomial(assistant, 1).T
        found, matches = utils._speculative_sampling(  # noqa: SLF001 - the step of generate that draws
            torch.cat([torch.tensor([[3]]), candidates], dim=1),
            assistant.log()[None],
            2,
            model.log()[None],
            **done,
        )
        for place, token in enumerate(found[0].tolist()):
            counts[place, token] += 1
        unlike += len(found[0]) != int(matches) + 1
    yield equal("draws without one token beyond the accepted ones", unlike, 0)
    for place, row in enumerate(counts):
        number = float(row.sum())
        errors = (model[place] * (1 - model[place]) / number).sqrt()
        off = float(((row / number - model[place]).abs() / errors).max())
        yield at_most(f"shares of tokens off, in standard errors, place {place}", off, SURE)
    accepted = float(counts[1].sum() / counts[0].sum())
    wanted = float(torch.minimum(assistant[0], model[0]).sum())
    error = (wanted * (1 - wanted) / DRAWS) ** 0.5
    yield at_most("share of accepted first candidates off, in standard errors", abs(accepted - wanted) / error, SURE)


@call(GROUP, phase=Phase.INFER)
def beams_return_what_is_asked(ctx: Context) -> Iterator[Check]:
    """Beam search returns scores of steps and of sequences with output_scores alone, logits with output_logits alone.

    sequences_scores is documented as "returned when output_scores=True is passed". Sequences are the same.
    """
    model = stopping.loaded(ctx, pad_token_id=tiny.PADDING)
    ids = stopping.prompts(model)[:2]
    beams, kept = 3, 2
    usual = {"num_beams": beams, "num_return_sequences": kept, "max_new_tokens": NEW, "eos_token_id": stopping.NONE}
    usual |= {"do_sample": False, "return_dict_in_generate": True}
    plain = model.generate(ids, **usual).sequences
    for names in ((), ("scores",), ("logits",), ("scores", "logits")):
        found = model.generate(ids, **usual, **{f"output_{name}": True for name in names})
        title = " and ".join(names) or "nothing"
        yield equal(f"sequences, {title}", str(found.sequences.tolist()), str(plain.tolist()))
        yield equal(f"scores of sequences, {title}", found.sequences_scores is not None, "scores" in names)
        for name in ("scores", "logits"):
            part = found.get(name)
            yield equal(f"steps of {name}, {title}", 0 if part is None else len(part), NEW if name in names else 0)
            shapes = {tuple(each.shape) for each in part or ()}
            wanted = {(len(ids) * beams, tiny.VOCABULARY)} if name in names else set()
            yield equal(f"shapes of {name}, {title}", str(shapes), str(wanted))
        if "scores" in names:
            own = found.sequences_scores.view(len(ids), kept)
            yield at_least("score of the first less that of the second", float((own[:, 0] - own[:, 1]).min()), 0.0)
            sums = model.compute_transition_scores(found.sequences, found.scores, found.beam_indices).sum(1) / NEW
            off = float((sums - found.sequences_scores).abs().max())
            yield at_most("scores of sequences off the mean of their steps", off, 1e-5)


@call(GROUP, phase=Phase.INFER)
def stop_at_strings_of_short_texts(ctx: Context) -> Iterator[Check]:
    """stop_strings ends a text that is shorter than the string's letters, also after a prompt of a single token."""
    import torch

    model = stopping.loaded(ctx, pad_token_id=tiny.PADDING)
    for size in (1, 2, 3):
        ids = stopping.prompts(model)[:, 2 : 2 + size]
        usual = {"attention_mask": torch.ones_like(ids), "max_new_tokens": NEW, "do_sample": False}
        usual |= {"eos_token_id": stopping.NONE}
        free = model.generate(ids, **usual)[:, size:].tolist()
        for begin, length in ((0, 1), (0, 2), (1, 2), (1, 3)):
            string = "".join(stopping.word(token) for token in free[0][begin : begin + length])

            def ends(_row: int, tokens: list[int], string: str = string) -> bool:
                return string in "".join(map(stopping.word, tokens))

            found = model.generate(ids, **usual, stop_strings=[string], tokenizer=stopping.tokenizer())
            wanted = stopping.stopped(free, ends, tiny.PADDING)
            yield at_least(f"rows that stop, {size}, {begin}, {length}", sum(map(list.__ne__, wanted, free)), 1)
            yield from stopping.same(f"{size} tokens, {begin}, {length}", found[:, size:].tolist(), wanted)
