"""Every class of an architecture on embeddings, norms in half precision, and matrices of heads with their own width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.models.building import Variant
from cases.model import tiny
from cases.space.verdict import Check, Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context

GROUP = "Models"
SAME = 1e-5
PREFIXES = {
    "llama": "Llama",
    "qwen": "Qwen2",
    "mistral": "Mistral",
    "mixtral": "Mixtral",
    "gemma": "Gemma2",
    "gpt2": "GPT2",
}
HEADS = ("Model", "ForCausalLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
NORMS = ("Llama", "Qwen2", "Qwen3", "Mistral", "Mixtral", "Phi3")
CENTRED = ("Gemma", "Gemma2")  # weights around zero


def ids() -> Any:
    import torch

    return torch.randint(5, tiny.VOCABULARY, (2, 6), generator=torch.Generator().manual_seed(3))


def class_of(prefix: str, head: str) -> Any:
    """The class, or None if this version or architecture has none."""
    import transformers

    alone = {"GPT2ForCausalLM": "GPT2LMHeadModel"}
    return getattr(transformers, alone.get(f"{prefix}{head}", f"{prefix}{head}"), None)


def targets(head: str, tokens: Any) -> dict[str, Any]:
    """The labels of a head that has a loss."""
    import torch

    if head == "ForQuestionAnswering":
        return {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 9])}
    found = {
        "ForCausalLM": tokens,
        "ForSequenceClassification": torch.tensor([1, 0]),
        "ForTokenClassification": tokens % 2,
    }
    return {"labels": found[head]} if head in found else {}


def refused(model: Any, **given: Any) -> bool:
    try:
        model(**given)
    except ValueError:
        return True
    return False


def named_tensors(output: Any) -> dict[str, Any]:
    """The tensors of an output, and those of its tuples, by name."""
    import torch

    found = {}
    for name, value in output.items():
        each = value if isinstance(value, tuple) else (value,)
        found.update({f"{name} {place}": one for place, one in enumerate(each) if isinstance(one, torch.Tensor)})
    return found


@call(GROUP, phase=Phase.FORWARD)
def classes_on_embeddings(ctx: Context) -> Iterator[Check]:
    """Each class gives the same of embeddings as of their tokens: loss, scores, states and attentions of every layer.

    It refuses both together, and neither. A tuple has the fields of the object, in their order.
    """
    import torch

    tokens = ids()
    for model, prefix in PREFIXES.items():
        folder = Variant(model, {}).written(ctx, f"{model} classes")
        for head in HEADS:
            kind = class_of(prefix, head)
            if kind is None:
                continue
            more = {} if head != "ForSequenceClassification" else {"pad_token_id": tiny.PADDING}
            torch.manual_seed(0)
            made = kind.from_pretrained(folder, attn_implementation="eager", use_cache=False, **more).eval()
            embeddings = made.get_input_embeddings()(tokens).detach()
            wanted = {"output_hidden_states": True, "output_attentions": True, **targets(head, tokens)}
            title = f"{prefix}{head}"
            with torch.no_grad():
                by_ids = made(input_ids=tokens, **wanted)
                by_rows = made(inputs_embeds=embeddings, **wanted)
                as_tuple = made(inputs_embeds=embeddings, return_dict=False, **wanted)
            one, other = named_tensors(by_ids), named_tensors(by_rows)
            yield equal(f"fields, {title}", str(sorted(other)), str(sorted(one)))
            errors = [float((one[name] - other[name]).abs().max()) for name in one if name in other]
            yield at_most(f"fields off, {title}", max(errors), SAME)
            layers = made.config.num_hidden_layers
            counts = (len(by_ids.hidden_states), len(by_ids.attentions))
            yield equal(f"states and attentions, {title}", str(counts), str((layers + 1, layers)))
            rows = torch.stack([each.sum(-1) for each in by_ids.attentions])
            yield at_most(f"attention of a token off 1, {title}", float((rows - 1).abs().max()), SAME)
            if model not in ("gpt2", "gemma"):  # which add positions, and scale
                yield at_most(
                    f"first state off, {title}", float((by_ids.hidden_states[0] - embeddings).abs().max()), SAME
                )
            if head in HEADS[:3]:  # other heads of transformers 4.47 lose a field of a tuple without a cache
                yield equal(f"fields of the tuple, {title}", len(as_tuple), len(by_rows.to_tuple()))
            yield equal(f"a loss, {title}", "loss" in by_ids, bool(targets(head, tokens)))
            yield equal(f"refused both, {title}", refused(made, input_ids=tokens, inputs_embeds=embeddings), bound=True)
            yield equal(f"refused neither, {title}", refused(made), bound=True)


def norm_of(prefix: str, width: int) -> Any:
    import importlib

    try:
        module = importlib.import_module(f"transformers.models.{prefix.lower()}.modeling_{prefix.lower()}")
    except ImportError:
        return None
    return getattr(module, f"{prefix}RMSNorm")(width, eps=1e-6)


@call(GROUP, phase=Phase.FORWARD)
def norms_in_half_precision(_ctx: Context) -> Iterator[Check]:
    """RMS norms in half precision compute in float32 and round at the end, also numbers whose squares overflow float16.

    Llama's rounds before it multiplies by its weight, Gemma's afterwards, by one more than its weight.
    """
    import torch

    width = 64
    numbers = torch.randn(32, width, generator=torch.Generator().manual_seed(0))
    weight = 1 + torch.randn(width, generator=torch.Generator().manual_seed(1)) / 4
    for prefix in (*NORMS, *CENTRED):
        for dtype in (torch.bfloat16, torch.float16):
            norm = norm_of(prefix, width)
            if norm is None:
                continue
            norm = norm.to(dtype)
            with torch.no_grad():
                norm.weight.copy_(weight - int(prefix in CENTRED))
            for scale in (1.0, 300.0):
                given = (numbers * scale).to(dtype)
                exact = given.double() * (given.double().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
                own = norm.weight.detach()
                wanted = (exact * (1 + own.double())).to(dtype) if prefix in CENTRED else own * exact.to(dtype)
                with torch.no_grad():
                    found = norm(given)
                title = f"{prefix}, {dtype}, times {scale:g}"
                yield equal(f"dtype, {title}", str(found.dtype), str(dtype))
                yield at_least(f"share of exact numbers, {title}", float((found == wanted).float().mean()), 0.99)


@call(GROUP, phase=Phase.LOAD)
def widths_of_heads(_ctx: Context) -> Iterator[Check]:
    """Projections have the width of all heads, of their own width too, not that of the states; biases as configured."""
    import torch
    import transformers

    sizes = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 48}
    for prefix in ("Llama", "Mistral", "Qwen3", "Gemma2"):
        kind = getattr(transformers, f"{prefix}Config", None)
        if kind is None:
            continue
        for own in (8, 12):
            for biased in (False, True):
                more = {"num_hidden_layers": 2, "vocab_size": 40, "head_dim": own, "attention_bias": biased}
                config = kind(**sizes, **more)
                made = getattr(transformers, f"{prefix}ForCausalLM")(config).eval()
                layer = made.model.layers[1].self_attn
                title = f"{prefix}, {own}, biases {biased}"
                wanted = {"q": (4 * own, 32), "k": (2 * own, 32), "v": (2 * own, 32), "o": (32, 4 * own)}
                for name, shape in wanted.items():
                    matrix = getattr(layer, f"{name}_proj")
                    yield equal(f"shape of {name}, {title}", str(tuple(matrix.weight.shape)), str(shape))
                    if prefix != "Mistral":  # which has no biases, whatever a configuration says
                        yield equal(f"bias of {name}, {title}", matrix.bias is not None, bound=biased)
                with torch.no_grad():
                    found = made(input_ids=torch.arange(10).view(2, 5)).logits
                yield equal(f"shape of logits, {title}", str(tuple(found.shape)), "(2, 5, 40)")
