"""The reference of a training case: one process, plain float32 layers, everything that is tested written out.

The twin shares the architecture's code with the case and nothing else: no PEFT, no bitsandbytes, no sharding, no
autocast. LoRA (https://arxiv.org/abs/2106.09685), DoRA (https://arxiv.org/abs/2402.09353), NF4
(https://arxiv.org/abs/2305.14314) and LLM.int8's weights (https://arxiv.org/abs/2208.07339) follow the papers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases import tiny

if TYPE_CHECKING:
    from pathlib import Path

    from cases.options import Options, Quant

LEARNING_RATE = {"sgd": 0.5, "adamw": 0.01}  # a visible step: several per cent of a weight
# Adam divides by the gradient's own size: with torch's default of 1e-8, entries that are nothing but rounding move as
# far as any other, and two correct runs drift apart. This eps, a tenth of a typical entry, lets them stay small.
ADAM_EPS = 1e-3
BLOCK = 64  # weights that share one absmax in NF4

# The 16 levels of NormalFloat 4: quantiles of a normal distribution, scaled to [-1, 1] (QLoRA, appendix E).
NF4 = (
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@dataclass
class Trajectory:
    """What a run did: per step the loss and the gradients, then the weights; tensors are float32, by canonical name."""

    losses: list[float] = field(default_factory=list)
    gradients: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    logits: Any = None


def key(options: Options) -> str:
    """Cases with the same key have the same twin: nothing else changes what should come out."""
    return f"twin-{options.flow}-{options.method}-{options.quant}-{options.optimiser}"


def save(trajectory: Trajectory, path: Path) -> None:
    import torch

    unfinished = path.with_suffix(".unfinished")
    torch.save(vars(trajectory), unfinished)
    unfinished.rename(path)


def read(path: Path) -> Trajectory:
    import torch

    return Trajectory(**torch.load(path, weights_only=True))


def run(options: Options) -> Trajectory:
    """Train, or only load and infer, the plain model on the whole global batch."""
    import torch
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM._from_config(tiny.config(), attn_implementation="eager")  # noqa: SLF001 - the public way to choose eager without a checkpoint
    tiny.fill(model)
    make_plain(model, options)
    twin = Trajectory()
    if options.flow == "load":
        with torch.no_grad():
            twin.logits = model.eval()(tiny.batch(0)).logits
        return twin
    train(model, options, twin)
    return twin


def train(model: Any, options: Options, twin: Trajectory) -> None:
    import torch

    trained = {name: p for name, p in tiny.named(model) if p.requires_grad}
    make = {"sgd": stochastic_gradient_descent, "adamw": adamw}[options.optimiser]
    update = make(LEARNING_RATE[options.optimiser])
    twin.before = {name: p.detach().clone() for name, p in trained.items()}
    model.train()
    for step in range(tiny.STEPS):
        ids = tiny.batch(step)
        loss = cross_entropy(model(ids).logits, ids)
        loss.backward()
        twin.losses.append(loss.item())
        twin.gradients.append({name: p.grad.clone() for name, p in trained.items()})
        with torch.no_grad():
            update(trained)
    twin.after = {name: p.detach().clone() for name, p in trained.items()}


def cross_entropy(logits: Any, ids: Any) -> Any:
    """Mean over all predicted tokens of -log p(next token); logits (batch, length, vocabulary), ids (batch, length)."""
    chosen = logits[:, :-1].log_softmax(-1).gather(-1, ids[:, 1:, None])
    return -chosen.mean()


def stochastic_gradient_descent(rate: float) -> Any:

    def update(trained: dict[str, Any]) -> None:
        for parameter in trained.values():
            parameter.sub_(rate * parameter.grad)
            parameter.grad = None

    return update


def adamw(rate: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = ADAM_EPS, decay: float = 0.01) -> Any:
    """AdamW written out (https://arxiv.org/abs/1711.05101), with torch's defaults but for eps."""
    import torch

    moments: dict[str, tuple[Any, Any]] = {}
    steps = 0

    def update(trained: dict[str, Any]) -> None:
        nonlocal steps
        steps += 1
        for name, parameter in trained.items():
            first, second = moments.setdefault(name, (torch.zeros_like(parameter), torch.zeros_like(parameter)))
            first.mul_(betas[0]).add_(parameter.grad, alpha=1 - betas[0])
            second.mul_(betas[1]).add_(parameter.grad**2, alpha=1 - betas[1])
            parameter.mul_(1 - rate * decay)
            scale = (second / (1 - betas[1] ** steps)).sqrt() + eps
            parameter.sub_(rate * (first / (1 - betas[0] ** steps)) / scale)
            parameter.grad = None

    return update


def make_plain(model: Any, options: Options) -> None:
    """Replace quantised weights by their dequantised values, and the targets by layers with a written-out adapter."""
    from torch import nn

    for name, layer in list(model.named_modules()):
        if isinstance(layer, nn.Linear) and name != "lm_head":
            layer.weight.data = dequantised(layer.weight.data, options.quant)
    if options.method == "full":
        return
    model.requires_grad_(requires_grad=False)
    for name, layer in list(model.named_modules()):
        if name.rpartition(".")[2] in tiny.TARGETS:
            parent, _, child = name.rpartition(".")
            setattr(model.get_submodule(parent), child, adapter(name, layer, dora=options.method == "dora"))


def adapter(name: str, base: Any, *, dora: bool) -> Any:
    """A frozen linear layer with a trainable low-rank update: B A scaled, and for DoRA a trainable magnitude."""
    import torch
    from torch import nn

    class Low(nn.Module):  # type: ignore[misc]  # torch is typed as Any
        def __init__(self, part: str, shape: tuple[int, int]) -> None:
            super().__init__()
            self.weight = nn.Parameter(tiny.values(f"{name}.{part}.weight", shape))

    class Adapted(nn.Module):  # type: ignore[misc]  # as above
        def __init__(self) -> None:
            super().__init__()
            self.weight = base.weight
            self.lora_A = Low("lora_A", (tiny.RANK, base.in_features))
            self.lora_B = Low("lora_B", (base.out_features, tiny.RANK))
            if dora:
                self.lora_magnitude_vector = nn.Parameter(base.weight.detach().norm(dim=1))

        def forward(self, x: Any) -> Any:
            if not dora:
                return x @ self.weight.T + tiny.SCALING * (x @ self.lora_A.weight.T) @ self.lora_B.weight.T
            direction = self.weight + tiny.SCALING * self.lora_B.weight @ self.lora_A.weight
            # Section 4.3 of the paper: the norm is a constant to the gradient.
            scale = self.lora_magnitude_vector / direction.norm(dim=1).detach()
            return x @ (scale[:, None] * direction).T

    with torch.no_grad():
        return Adapted()


def dequantised(weight: Any, quant: Quant) -> Any:
    """What a weight matrix (out, in), float32, becomes when it is quantised and dequantised again."""
    return {"none": lambda w: w, "nf4": nf4, "int8": int8}[quant](weight)


def nf4(weight: Any) -> Any:
    """Blockwise 4-bit: every 64 consecutive values share their absmax; each takes the nearest level."""
    import torch

    levels = torch.tensor(NF4)
    blocks = weight.reshape(-1, BLOCK)
    absmax = blocks.abs().amax(dim=1, keepdim=True)
    nearest = (blocks / absmax)[:, :, None].sub(levels).abs().argmin(dim=2)
    return (levels[nearest] * absmax).reshape(weight.shape)


def int8(weight: Any) -> Any:
    """Row-wise 8-bit: every output row is scaled so that its absmax is 127, then rounded."""
    absmax = weight.abs().amax(dim=1, keepdim=True)
    return (weight * (127 / absmax)).round() * absmax / 127
