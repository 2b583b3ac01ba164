"""What a script gives to generate: processors beside settings, arguments of an encoder, an assistant, and weights.

https://huggingface.co/docs/transformers/main_classes/text_generation and
https://huggingface.co/docs/transformers/generation_strategies#speculative-decoding
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.generation.generating import NEW
from cases.behaviour.models import building
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.reference import tolerance
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Generation"
PENALTY, OWN, GIVEN = 2.0, -1.0, 3.0  # of repeated tokens; the bias of the settings, and of the given processor
INFINITY = float("inf")
DRAFTED, LONG = 3, 32  # the first candidates, and new tokens
PASSES = 4  # later ones end with the text
IMAGE, PATCH, WIDTH = 8, 4, 16


@call(GROUP, phase=Phase.INFER, requires=("merged_processors",))
def processors_take_the_place_of_settings(ctx: Context) -> Iterator[Check]:
    """A given processor of a kind that the settings ask for replaces theirs, where theirs would be; others follow.

    The bias of a token comes before the penalty of repeated tokens, which divides or multiplies the sum.
    """
    import torch
    from transformers import LogitsProcessorList, SequenceBiasLogitsProcessor, SuppressTokensLogitsProcessor

    loaded = building.loaded(ctx, Variant("llama").written(ctx, "processed"))
    ids = tiny.prompt()[:2].to(loaded.device)
    token, last = int(ids[0, 1]), int(ids[1, 2])
    more = {"do_sample": False, "repetition_penalty": PENALTY, "sequence_bias": {(token,): OWN}, "max_new_tokens": 4}
    more |= {"pad_token_id": tiny.PADDING, "return_dict_in_generate": True, "output_scores": True}
    cases = {"settings alone": (OWN, []), "another bias": (GIVEN, [SequenceBiasLogitsProcessor({(token,): GIVEN})])}
    for title, (bias, given) in cases.items():
        processors = [*given, SuppressTokensLogitsProcessor([last], device=str(loaded.device))]
        found = loaded.generate(ids, logits_processor=LogitsProcessorList(processors), **more)
        with torch.no_grad():
            wanted = loaded(found.sequences).logits[:, ids.shape[1] - 1 : -1].double()
        wanted[..., token] += bias
        for step in range(wanted.shape[1]):
            for row, text in enumerate(found.sequences[:, : ids.shape[1] + step].tolist()):
                seen = wanted[row, step, sorted(set(text))]
                wanted[row, step, sorted(set(text))] = torch.where(seen < 0, seen * PENALTY, seen / PENALTY)
        others = [each for each in range(wanted.shape[-1]) if each != last]
        scores = torch.stack(found.scores, dim=1).double()
        off = tolerance.relative(scores[..., others], wanted[..., others])
        yield at_most(f"scores off, {title}", off, building.bound("logits"))
        yield equal(f"largest score of the token that is left out, {title}", float(scores[..., last].max()), -INFINITY)


@call(GROUP, phase=Phase.INFER, requires=("interpolated_positions",))
def generation_passes_encoder_arguments(_ctx: Context) -> Iterator[Check]:
    """A generation takes arguments that only the encoder knows, as interpolate_pos_encoding of a larger image."""
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": WIDTH, "intermediate_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = transformers.ViTConfig(image_size=IMAGE, patch_size=PATCH, initializer_range=0.5, **sizes)
    sizes = {"n_embd": WIDTH, "n_layer": 1, "n_head": 2, "vocab_size": 40, "n_positions": 32}
    text = transformers.GPT2Config(initializer_range=0.5, add_cross_attention=True, **sizes)
    encoder, decoder = transformers.ViTModel(vision), transformers.GPT2LMHeadModel(text)
    model = transformers.VisionEncoderDecoderModel(encoder=encoder, decoder=decoder).eval()
    usual: dict[str, Any] = {"max_new_tokens": NEW, "do_sample": False, "decoder_start_token_id": 1, "bos_token_id": 1}
    usual |= {"eos_token_id": None, "pad_token_id": 0}
    for size, more in ((IMAGE, {}), (2 * IMAGE, {"interpolate_pos_encoding": True})):
        pixels = 4 * tiny.values("pixels", (2, 3, size, size))
        found = model.generate(pixel_values=pixels, **usual, **more)
        ids = torch.ones(2, 1, dtype=torch.long)
        for _ in range(NEW):
            with torch.no_grad():
                logits = model(pixel_values=pixels, decoder_input_ids=ids, **more).logits[:, -1]
            ids = torch.cat([ids, logits.argmax(-1)[:, None]], dim=1)
        yield equal(f"tokens of an image of {size} points", str(found.tolist()), str(ids.tolist()))


def lengths_of_passes(model: Any) -> list[int]:
    """A list that collects how many tokens the passes of a model read from now on."""
    found: list[int] = []

    def note(_module: Any, _positional: Any, named: dict[str, Any]) -> None:
        found.append(named["input_ids"].shape[1])

    model.register_forward_pre_hook(note, with_kwargs=True)
    return found


@call(GROUP, phase=Phase.INFER)
def assistants_draft_by_success(ctx: Context) -> Iterator[Check]:
    """num_assistant_tokens_schedule="heuristic" drafts two tokens more if all were right, else one less, at least one.

    "constant" always drafts num_assistant_tokens. The text is the same without an assistant.
    """
    import torch

    loaded = building.loaded(ctx, Variant("llama").written(ctx, "drafted"))
    ids = tiny.prompt()[:1].to(loaded.device)
    wrong = copy.deepcopy(loaded)
    with torch.no_grad():
        wrong.lm_head.weight.neg_()
    more: dict[str, Any] = {"do_sample": False, "use_cache": True, "max_new_tokens": LONG}
    more |= {"eos_token_id": None, "pad_token_id": tiny.PADDING}
    wanted = loaded.generate(ids, **more).tolist()
    for kind, assistant in (("right", copy.deepcopy(loaded)), ("wrong", wrong)):
        for schedule in ("heuristic", "constant"):
            model, helper = copy.deepcopy(loaded), copy.deepcopy(assistant)
            settings = helper.generation_config
            settings.num_assistant_tokens, settings.num_assistant_tokens_schedule = DRAFTED, schedule
            settings.assistant_confidence_threshold = 0.0
            passes = lengths_of_passes(model)
            found = model.generate(ids, assistant_model=helper, **more).tolist()
            yield equal(f"tokens, {kind}, {schedule}", str(found), str(wanted))
            number, drafts = DRAFTED, [ids.shape[1] + DRAFTED]
            for _ in range(PASSES - 1):
                if schedule == "heuristic":
                    number = number + 2 if kind == "right" else max(1, number - 1)
                drafts.append(1 + number)
            yield equal(f"tokens of the first passes, {kind}, {schedule}", str(passes[:PASSES]), str(drafts))


@call(GROUP, phase=Phase.INFER)
def generation_of_offloaded_decoders(ctx: Context) -> Iterator[Check]:
    """An encoder-decoder whose weights lie on the disk generates what it does in memory, by each way to draw."""
    from accelerate import disk_offload

    folder = Variant("t5").written(ctx, "offloaded")
    ids = tiny.prompt()[:2]
    plain, offloaded = building.loaded(ctx, folder).cpu(), building.loaded(ctx, folder).cpu()
    disk_offload(offloaded, ctx.kept / "weights")
    ways: dict[str, dict[str, Any]] = {"greedy": {}, "beams": {"num_beams": 2}, "started": {"decoder_input_ids": ids}}
    more = {"do_sample": False, "max_new_tokens": 4, "eos_token_id": None, "pad_token_id": tiny.PADDING}
    for title, way in ways.items():
        found = offloaded.generate(ids, **more, **way).tolist()
        yield equal(f"tokens, {title}", str(found), str(plain.generate(ids, **more, **way).tolist()))
