"""bitsandbytes' embeddings in 8 and 4 bits, its stable embedding, and parameters that a layer keeps in 4 bits.

https://huggingface.co/docs/bitsandbytes/reference/nn/embeddings
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.behaviour.quantised import formats
from cases.reference.quantisation import BLOCK
from cases.reference.tolerance import UNIT_ROUNDOFF, relative
from cases.space.verdict import Phase, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.verdict import Check

GROUP = "Quantised embeddings"
SINGLE = 16 * UNIT_ROUNDOFF["fp32"]
ROWS = 70
IDS = ((5,), (3, 4), (2, 3, 2))


def drawn(number: int) -> Any:
    """The ids of a batch, each of the shapes in turn."""
    import torch

    return torch.randint(0, ROWS, IDS[number], generator=torch.Generator().manual_seed(number))


def filled(layer: Any, weight: Any, ctx: Context) -> Any:
    """Load a plain embedding's state, and move the layer, which quantises it."""
    layer.load_state_dict({"weight": weight})
    return layer.to(ctx.place.device)


def rows_off(title: str, layer: Any, table: Any, within: float, ctx: Context) -> Iterator[Check]:
    """Compare looked-up rows of several shapes with rows of a table, and their dtype."""
    for number in range(len(IDS)):
        ids = drawn(number)
        found = layer(ids.to(ctx.place.device)).cpu()
        wanted = table[ids]
        yield equal(
            f"shape and dtype, {title}", f"{tuple(found.shape)} {found.dtype}", f"{tuple(wanted.shape)} {layer.dtype}"
        )
        yield at_most(f"rows off, {title}", relative(found.double(), wanted.double()), within)


def refused(title: str, layer: Any) -> Check:
    """Check that a state that would lose its scales is not saved."""
    try:
        layer.state_dict()
    except NotImplementedError:
        return equal(f"saving, {title}", "refused", "refused")
    return equal(f"saving, {title}", "saved", "refused")


@call(GROUP, phase=Phase.FORWARD, requires=("8bit",))
def embeddings_in_8_bits(ctx: Context) -> Iterator[Check]:
    """Embedding8bit gives rows rounded to 127 steps of each row's largest number, and saves no state."""
    import torch
    from bitsandbytes.nn import Embedding8bit

    for width in (64, 50):
        for dtype, name in ((torch.float32, "fp32"), (torch.bfloat16, "bf16")):
            weight = formats.numbers(ROWS, width, seed=width).half().to(dtype).float()  # exact in both of its dtypes
            layer = filled(Embedding8bit(ROWS, width, dtype=dtype), weight.to(dtype), ctx)
            title = f"{width} wide, {name}"
            within = SINGLE if name == "fp32" else 2 * UNIT_ROUNDOFF[name]
            yield from rows_off(title, layer, formats.int8_weight(weight), within, ctx)
            yield refused(title, layer)


@call(GROUP, phase=Phase.FORWARD, requires=("4bit",))
def embeddings_in_4_bits(ctx: Context) -> Iterator[Check]:
    """EmbeddingNF4 and EmbeddingFP4 give the nearest levels, with whole blocks in a row; so do copies."""
    import torch
    from bitsandbytes.nn import EmbeddingFP4, EmbeddingNF4

    for kind, quant in ((EmbeddingNF4, "nf4"), (EmbeddingFP4, "fp4")):
        yield from in_4_bits(kind, quant, (BLOCK, 3 * BLOCK), ctx)
    short = formats.numbers(ROWS, BLOCK, seed=1, short=True)
    layer = filled(EmbeddingNF4(ROWS, BLOCK, dtype=torch.bfloat16), short.bfloat16(), ctx)
    within = 2 * UNIT_ROUNDOFF["bf16"]
    yield from rows_off("nf4, bf16", layer, formats.four_bit(short, "nf4", BLOCK), within, ctx)


@call(GROUP, phase=Phase.WRAP, requires=("4bit", "states_of_layers"))
def embeddings_that_lost_their_state(ctx: Context) -> Iterator[Check]:
    """A 4-bit embedding whose weight lost its state, as in copies by a wrapper, takes the one that the layer keeps."""
    from bitsandbytes.nn import EmbeddingFP4, EmbeddingNF4, Params4bit

    for kind, quant in ((EmbeddingNF4, "nf4"), (EmbeddingFP4, "fp4")):
        for width in (BLOCK, 3 * BLOCK):
            weight = formats.numbers(ROWS, width, seed=width)
            layer = filled(kind(ROWS, width), weight, ctx)
            state, title = layer.weight.quant_state, f"{quant}, {width} wide"
            layer.weight = Params4bit(layer.weight.data, requires_grad=False, quant_type=quant, bnb_quantized=True)
            yield equal(f"state that is lost, {title}", str(layer.weight.quant_state), "None")
            yield from rows_off(title, layer, formats.four_bit(weight, quant, BLOCK), SINGLE, ctx)
            yield equal(f"the same state again, {title}", layer.weight.quant_state is state, bound=True)


@call(GROUP, phase=Phase.WRAP, requires=("4bit", "states_of_layers"))
def embeddings_of_plain_parameters(ctx: Context) -> Iterator[Check]:
    """A 4-bit embedding whose weight a wrapper such as FSDP replaced by a plain parameter works on, as layers do."""
    import torch
    from bitsandbytes.nn import EmbeddingNF4

    weight = formats.numbers(ROWS, BLOCK, seed=BLOCK)
    layer = filled(EmbeddingNF4(ROWS, BLOCK), weight, ctx)
    layer.weight = torch.nn.Parameter(layer.weight.data, requires_grad=False)
    yield from rows_off("a plain parameter", layer, formats.four_bit(weight, "nf4", BLOCK), SINGLE, ctx)


@call(GROUP, phase=Phase.FORWARD, requires=("4bit",))
def embeddings_of_partial_blocks(ctx: Context) -> Iterator[Check]:
    """EmbeddingNF4 and EmbeddingFP4 with rows that are no whole blocks give the nearest levels, too."""
    from bitsandbytes.nn import EmbeddingFP4, EmbeddingNF4

    for kind, quant in ((EmbeddingNF4, "nf4"), (EmbeddingFP4, "fp4")):
        yield from in_4_bits(kind, quant, (BLOCK // 2 + 16,), ctx)


def in_4_bits(kind: Any, quant: str, widths: tuple[int, ...], ctx: Context) -> Iterator[Check]:
    for width in widths:
        weight = formats.numbers(ROWS, width, seed=width)
        layer = filled(kind(ROWS, width), weight, ctx)
        table = formats.four_bit(weight, quant, BLOCK)
        yield from rows_off(f"{quant}, {width} wide", layer, table, SINGLE, ctx)
        yield from rows_off(f"copy, {quant}, {width} wide", copy.deepcopy(layer), table, SINGLE, ctx)
        yield refused(f"{quant}, {width} wide", layer)


@call(GROUP, phase=Phase.OPTIMIZER, requires=("adamw_8bit_step",))
def stable_embedding(ctx: Context) -> Iterator[Check]:
    """StableEmbedding normalises its rows, starts by Xavier's rule, and has 32-bit moments in an 8-bit optimiser."""
    import torch
    from bitsandbytes.nn import Embedding, StableEmbedding
    from bitsandbytes.optim import Adam8bit, GlobalOptimManager

    shape = (ROWS, 128)  # more than 4096 numbers, from which on moments have 8 bits
    torch.manual_seed(0)
    layers = {kind.__name__: kind(*shape, padding_idx=3).to(ctx.place.device) for kind in (StableEmbedding, Embedding)}
    layers["torch"] = torch.nn.Embedding(*shape).to(ctx.place.device)
    most = (6 / sum(shape)) ** 0.5
    for name in ("StableEmbedding", "Embedding"):
        weight = layers[name].weight.detach().cpu()
        yield at_most(f"largest number at the start, {name}", float(weight.abs().max()), most)
        yield at_most(f"mean square off, {name}", abs(float(weight.square().mean()) / (most**2 / 3) - 1), 0.1)
        yield equal(f"numbers of the padding row that are not zero, {name}", int((weight[3] != 0).sum()), 0)
    layer = layers["StableEmbedding"]
    rows = layer.weight.detach().double().cpu()[drawn(1)]
    centred = rows - rows.mean(-1, keepdim=True)
    wanted = centred / (centred.square().mean(-1, keepdim=True) + layer.norm.eps).sqrt()
    found = layer(drawn(1).to(ctx.place.device)).detach().double().cpu()
    yield at_most("normalised rows off", relative(found, wanted), SINGLE)
    weights = [each.weight for each in layers.values()]
    GlobalOptimManager.get_instance().register_parameters(weights)
    optimiser = Adam8bit(weights, lr=0.01)
    for each in layers.values():
        each(drawn(1).to(ctx.place.device)).square().sum().backward()
    optimiser.step()
    dtypes = {name: str(optimiser.state[each.weight]["state1"].dtype) for name, each in layers.items()}
    plain = {"StableEmbedding": "torch.float32", "Embedding": "torch.float32", "torch": "torch.uint8"}
    yield equal("dtypes of the first moments", str(dtypes), str(plain))


def experts(weight: Any) -> Any:
    """A layer that keeps its experts as one parameter of three dimensions."""
    import torch

    layer = torch.nn.Module()
    layer.register_parameter("up", torch.nn.Parameter(weight.clone()))
    return layer


@call(GROUP, phase=Phase.SAVE, requires=("4bit", "quantised_parameters"))
def quantised_parameters(ctx: Context) -> Iterator[Check]:
    """replace_parameter_4bit keeps any parameter in 4 bits, also its state, which another layer loads."""
    from bitsandbytes.nn.parametrize import replace_parameter_4bit, replace_parameter_4bit_prequantized

    weight = formats.numbers(3, 40, 2 * BLOCK, seed=5)
    for quant, blocksize, double in (("nf4", 64, False), ("fp4", 128, False), ("nf4", 64, True)):
        title = f"{quant}, blocks of {blocksize}{', nested' if double else ''}"
        layer = experts(weight).to(ctx.place.device)
        replace_parameter_4bit(layer, "up", compress_statistics=double, quant_type=quant, blocksize=blocksize)
        wanted = formats.four_bit(weight, quant, blocksize, double=double)
        yield equal(f"shape, {title}", str(tuple(layer.up.shape)), str(tuple(weight.shape)))
        yield at_most(f"values off, {title}", relative(layer.up.detach().cpu(), wanted), SINGLE)
        state = layer.state_dict()
        parts = ["", ".absmax", ".quant_map", f".quant_state.bitsandbytes__{quant}"]
        parts += [".nested_absmax", ".nested_quant_map"] if double else []
        yield equal(f"names of the state, {title}", str(sorted(state)), str(sorted(f"up{part}" for part in parts)))
        again = experts(state["up"].float())
        again.up = type(again.up)(state["up"], requires_grad=False)
        kept = {name.removeprefix("up."): tensor for name, tensor in state.items() if name != "up"}
        replace_parameter_4bit_prequantized(again, "up", kept, ctx.place.device)
        yield equal(f"numbers that differ after loading, {title}", int((again.up != layer.up).sum()), 0)
