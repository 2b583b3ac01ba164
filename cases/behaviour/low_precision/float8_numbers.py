"""Float8 tensors of torch: casts, files, and parameters of FSDP2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cases.api import call
from cases.apply import compat
from cases.behaviour.low_precision.fp8_models import SINGLE, different
from cases.reference import float8
from cases.reference.tolerance import relative
from cases.space.verdict import Phase, at_least, at_most, equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cases.apply.context import Context
    from cases.space.place import Place
    from cases.space.verdict import Check

GROUP = "Float8 numbers"
SPAN = 24  # binary orders of magnitude that the numbers to round cover
TORCH = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
OUT, IN, RANK = 64, 32, 4
STEPS, RATE = 3, 0.125


def numbers(kind: str) -> Any:
    """Float32 numbers of both signs over the range of a format, with each of its values and each middle of two."""
    import torch

    generator = torch.Generator().manual_seed(8)
    scale = torch.ldexp(torch.tensor(1.0), torch.randint(-SPAN, 8, (4096,), generator=generator))
    drawn = torch.randn(4096, generator=generator) * scale
    exact = torch.arange(256, dtype=torch.uint8).view(getattr(torch, TORCH[kind])).float()
    exact = exact[exact.isfinite()].sort().values
    return torch.cat((drawn.clamp(-float8.LARGEST[kind], float8.LARGEST[kind]), exact, (exact[1:] + exact[:-1]) / 2))


@call(GROUP, phase=Phase.LOAD)
def float8_casts(ctx: Context) -> Iterator[Check]:
    """Casts to float8_e4m3fn and float8_e5m2 give the nearest number, and the even one of two; casts back are exact."""
    import torch

    for kind, name in TORCH.items():
        given = numbers(kind)
        wanted = float8.rounded(given, kind)
        found = given.to(ctx.place.device).to(getattr(torch, name))
        yield equal(f"numbers that differ, {name}", different(found.double().cpu(), wanted), 0)
        yield equal(
            f"numbers that differ after another cast, {name}",
            different(found.float().to(found.dtype).double().cpu(), wanted),
            0,
        )
        half = given.bfloat16()
        found = half.to(ctx.place.device).to(getattr(torch, name))
        yield equal(
            f"numbers that differ, bfloat16 to {name}", different(found.double().cpu(), float8.rounded(half, kind)), 0
        )


@call(GROUP, phase=Phase.RELOAD)
def float8_files(ctx: Context) -> Iterator[Check]:
    """Safetensors, torch.save and torch.distributed.checkpoint keep each byte and the dtype of float8 tensors."""
    import torch
    from safetensors.torch import load_file, save_file
    from torch.distributed import checkpoint

    every = torch.arange(256, dtype=torch.uint8).reshape(16, 16)
    given = {name: every.clone().view(getattr(torch, name)).to(ctx.place.device) for name in TORCH.values()}
    save_file(given, ctx.kept / "all.safetensors")
    torch.save(given, ctx.kept / "all.pt")
    checkpoint.save(given, checkpoint_id=ctx.kept / "all")
    empty = {name: torch.zeros_like(every).view(each.dtype).to(each.device) for name, each in given.items()}
    checkpoint.load(empty, checkpoint_id=ctx.kept / "all")
    files = {
        "safetensors": load_file(ctx.kept / "all.safetensors"),
        "torch.save": torch.load(ctx.kept / "all.pt", weights_only=True, map_location="cpu"),
        "checkpoint": empty,
    }
    for how, read in files.items():
        for name, each in given.items():
            yield equal(f"dtype, {name}, {how}", read[name].dtype == each.dtype, bound=True)
            yield equal(f"bytes that differ, {name}, {how}", different(read[name].cpu().view(torch.uint8), every), 0)


def adapted_layers() -> Any:
    """Two layers that dequantise a frozen float8 weight and add trained low-rank products."""
    import torch

    class Float8WithProduct(torch.nn.Module):  # type: ignore[misc]  # of a package without types
        def __init__(self, seed: int) -> None:
            super().__init__()
            generator = torch.Generator().manual_seed(seed)
            drawn = torch.randn(OUT, IN, generator=generator)
            self.weight = torch.nn.Parameter(drawn.to(torch.float8_e4m3fn), requires_grad=False)
            self.a = torch.nn.Parameter(torch.randn(RANK, IN, generator=generator) / 8)
            self.b = torch.nn.Parameter(torch.randn(OUT, RANK, generator=generator) / 8)

        def forward(self, inputs: Any) -> Any:
            weight = self.weight.float() / 8 + self.b @ self.a
            return inputs @ weight.T @ torch.ones(OUT, IN, device=inputs.device) / 8

    return torch.nn.Sequential(Float8WithProduct(1), Float8WithProduct(2))


def probe(place: Place) -> Any:
    import torch

    return torch.randn(8, IN, generator=torch.Generator().manual_seed(3)).to(place.device)


def trained(model: Any, place: Place) -> Any:
    """Some steps on inputs that all ranks have; what the layers give then."""
    import torch

    inputs = probe(place)
    steps = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=RATE)
    for _ in range(STEPS):
        steps.zero_grad()
        model(inputs).square().mean().backward()
        steps.step()
    with torch.no_grad():
        return model(inputs).cpu()


@call(GROUP, phase=Phase.BACKWARD, ranks=2, requires=("fsdp2_exists", "float8_gather"))
def fsdp2_of_float8_weights(ctx: Context) -> Iterator[Check]:
    """FSDP2 shards frozen float8 weights beside trained float32 ones, keeps their bytes, and trains as one process."""
    import torch

    fully_shard, mesh = compat.fully_shard(), compat.mesh(ctx.place)
    plain, model = adapted_layers().to(ctx.place.device), adapted_layers().to(ctx.place.device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    local = model[0].weight.to_local()
    yield equal("dtype and rows of a shard", f"{local.dtype} {len(local)}", f"torch.float8_e4m3fn {OUT // 2}")
    with torch.no_grad():
        untrained = plain(probe(ctx.place)).cpu()
    found, wanted = trained(model, ctx.place), trained(plain, ctx.place)
    yield at_least("what the steps change", relative(untrained, wanted), 1e-2)
    yield at_most("outputs off", relative(found, wanted), SINGLE)
    for (name, sharded), whole in zip(model.named_parameters(), plain.parameters(), strict=True):
        if not sharded.requires_grad:
            kept = sharded.full_tensor().view(torch.uint8)
            yield equal(f"bytes that differ, {name}", different(kept.cpu(), whole.view(torch.uint8).cpu()), 0)
        else:
            yield at_most(f"weights off, {name}", relative(sharded.full_tensor().cpu(), whole.cpu()), SINGLE)
