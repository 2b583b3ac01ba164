"""prepare_model_for_kbit_training: what it casts, freezes and switches on.

https://huggingface.co/docs/peft/package_reference/peft_model#peft.prepare_model_for_kbit_training
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import quantised_files
from cases.model import architectures
from cases.space.options import Options
from cases.space.verdict import Phase, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.options import DType
    from cases.space.verdict import Check

GROUP = "Quantised checkpoints"
DTYPES: tuple[DType, ...] = ("fp32", "bf16", "fp16")


def prepared(ctx: Context, kind: DType, **bits: Any) -> Iterator[Check]:
    """Prepare a model of each kind; all but quantised weights become float32, and none changes its value."""
    import torch
    from peft import prepare_model_for_kbit_training
    from transformers import BitsAndBytesConfig

    folder = architectures.checkpoint(Options().but(flow="load", method="full"), ctx.cache)
    for checkpoints in (True, False):
        given = {"quantization_config": BitsAndBytesConfig(**bits)} if bits else {}
        model = quantised_files.loaded(ctx, folder, kind, **given)
        before = {name: each.detach().clone() for name, each in model.named_parameters()}
        is_packed = {name: each.dtype in (torch.uint8, torch.int8) for name, each in before.items()}
        found = prepare_model_for_kbit_training(model, use_gradient_checkpointing=checkpoints)
        title = f"{kind}, {', '.join(bits) or 'not quantised'}, {checkpoints}"
        after = dict(found.named_parameters())
        yield equal(f"quantised weights, {title}", sum(is_packed.values()) > 0, bound=bool(bits))
        wrong = [n for n, each in after.items() if each.dtype != (before[n].dtype if is_packed[n] else torch.float32)]
        yield equal(f"parameters in another dtype, {title}", " ".join(wrong) or "none", "none")
        changed = [name for name, each in after.items() if not each.to(before[name].dtype).equal(before[name])]
        yield equal(f"parameters with other values, {title}", " ".join(changed) or "none", "none")
        trained = [name for name, each in after.items() if each.requires_grad]
        yield equal(f"parameters that train, {title}", " ".join(trained) or "none", "none")
        wanted = checkpoints and bool(bits)
        yield equal(f"gradient checkpointing, {title}", found.is_gradient_checkpointing, bound=wanted)
        ids = torch.arange(3, 11, device=ctx.place.device)[None]
        embedded = found.get_input_embeddings()(ids)
        yield equal(f"gradients of embedded tokens, {title}", embedded.requires_grad, bound=wanted)
        yield equal(f"dtype of embedded tokens, {title}", str(embedded.dtype), "torch.float32")


@call(GROUP, phase=Phase.ADAPT, requires=("4bit", "4bit_loading"))
def prepared_four_bit_base(ctx: Context) -> Iterator[Check]:
    """prepare_model_for_kbit_training casts all of a 4-bit model but the packed weights to float32, and freezes it."""
    for kind, quant in product(DTYPES, ("nf4", "fp4")):
        yield from prepared(ctx, kind, load_in_4bit=True, bnb_4bit_quant_type=quant)


@call(GROUP, phase=Phase.ADAPT, requires=("8bit",))
def prepared_eight_bit_base(ctx: Context) -> Iterator[Check]:
    """prepare_model_for_kbit_training casts all of an 8-bit model but the int8 weights to float32, and freezes it."""
    for kind in DTYPES:
        yield from prepared(ctx, kind, load_in_8bit=True)


@call(GROUP, phase=Phase.ADAPT)
def prepared_plain_base(ctx: Context) -> Iterator[Check]:
    """prepare_model_for_kbit_training casts a model that is not quantised to float32, and freezes it."""
    for kind in DTYPES:
        yield from prepared(ctx, kind)
