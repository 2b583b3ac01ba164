"""The reference of a training case: one process, plain float32 layers, no code of the stack under test.

The twin shares only the architecture's code with the case: no PEFT, no bitsandbytes, no sharding, no autocast.
``adapter_layers`` holds the adapters, ``quantisation`` the quantised formats and gradient clipping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.model import architectures, tiny
from cases.reference import quantisation
from cases.space.options import TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cases.space.options import Options

LEARNING_RATE = {
    "sgd": 0.5,
    "adamw": 0.01,
    "adamw_8bit": 0.01,
    "paged_adamw_8bit": 0.01,
}  # a visible step: several per cent of a weight
# Adam divides by the gradient's own size: with torch's default of 1e-8, entries that are nothing but rounding move as
# far as any other, and two correct runs drift apart. This eps, a tenth of a typical entry, lets them stay small.
ADAM_EPS = 1e-3
STACKED = 3  # dimensions of a parameter that holds the matrices of all experts


@dataclass
class Trajectory:
    """The trajectory of a run: loss and gradients of each step, the final weights, and logits.

    Tensors are float32, by canonical name.
    """

    losses: list[float] = field(default_factory=list)
    loss_in: str = "fp32"  # the dtype in which the model computes its loss; some use the dtype of the logits
    gradients: list[dict[str, Any]] = field(default_factory=list)
    before: dict[str, Any] = field(default_factory=dict)
    after: dict[str, Any] = field(default_factory=dict)
    logits: Any = None  # of batch 0, after training
    tokens: Any = None  # generated, greedily, after the first half of batch 0
    token_logits: Any = None  # of the tokens: (batch, new tokens, vocabulary)
    between: list[Any] = field(default_factory=list)  # (tokens, token_logits) generated after each step but the last


def key(options: Options) -> str:
    """The key of a case's twin: the options that change the expected numbers."""
    kind = "train" if options.flow in TRAINING else "load"
    model = f"{options.model}-{options.embeddings}"
    method = f"{options.method}-{options.modules_to_save}{'-embeddings' if options.target_embeddings else ''}"
    switches = [
        word
        for word in ("bnb_4bit_use_double_quant", "llm_int8_skip_modules", "clip_grad_norm")
        if options.stated.get(word)
    ]
    loop = ["between"] if options.loop == "generate" else []
    return "-".join(["twin", kind, model, method, options.quant, update_rule(options), *switches, *loop])


def update_rule(options: Options) -> str:
    """The reference optimiser; 8-bit and paged ones differ only in how they keep their state."""
    return "sgd" if options.optim == "sgd" else "adamw"


def save(trajectory: Trajectory, path: Path) -> None:
    import torch

    unfinished = path.with_suffix(".unfinished")
    torch.save(vars(trajectory), unfinished)
    unfinished.rename(path)


def read(path: Path) -> Trajectory:
    import torch

    return Trajectory(**torch.load(path, weights_only=True))


def run(options: Options) -> Trajectory:
    """Train the plain model on the whole global batch, or only run inference for ``flow=load``."""
    import torch

    model = make_plain(architectures.plain(options), options)
    twin = Trajectory()
    if options.flow in TRAINING:
        train(model, options, twin)
    with torch.no_grad():
        twin.logits = model.eval()(
            **architectures.inputs(tiny.batch(0, architectures.vocabulary(options)), options)
        ).logits
    twin.tokens, twin.token_logits = greedy(model, options)
    return twin


def greedy(model: Any, options: Options) -> tuple[Any, Any]:
    """Generate greedily without a cache; never chooses the end token."""
    import torch

    prompt = tiny.prompt(architectures.vocabulary(options))
    given = {"input_ids": prompt} if architectures.spec(options).encoder_decoder else {}
    goes_on, begun = ("decoder_input_ids", torch.zeros_like(prompt[:, :1])) if given else ("input_ids", prompt)
    chosen: list[Any] = []
    seen: list[Any] = []
    for _ in range(tiny.NEW_TOKENS):
        with torch.no_grad():
            logits = model(**given, **{goes_on: torch.cat([begun, *chosen], dim=1)}).logits[:, -1]
        logits[:, tiny.END] = -torch.inf
        chosen.append(logits.argmax(-1, keepdim=True))
        seen.append(logits)
    return torch.cat(chosen, dim=1), torch.stack(seen, dim=1)


def train(model: Any, options: Options, twin: Trajectory) -> None:
    import torch

    trained = {name: p for name, p in tiny.named(model) if p.requires_grad}
    regularisation, after_step = adaptive_ranks(options)
    update = {"sgd": stochastic_gradient_descent, "adamw": adamw}[update_rule(options)]()
    twin.before = {name: p.detach().clone() for name, p in trained.items()}
    for step in range(tiny.STEPS):
        ids = tiny.batch(step, architectures.vocabulary(options))
        model.train()
        logits = model(**architectures.inputs(ids, options)).logits
        loss = cross_entropy(logits, predicted(ids, options)) + regularisation(trained, options)
        loss.backward()
        twin.losses.append(loss.item())
        if options.clip_grad_norm:
            quantisation.clip([p.grad for p in trained.values()])
        twin.gradients.append({name: p.grad.clone() for name, p in trained.items()})
        with torch.no_grad():
            update(trained, LEARNING_RATE[options.optim] * tiny.SCHEDULE[step])
            after_step(step, trained, twin.gradients[-1])
        if options.loop == "generate" and step < tiny.STEPS - 1:
            twin.between.append(greedy(model.eval(), options))
    twin.after = {name: p.detach().clone() for name, p in trained.items()}


def adaptive_ranks(options: Options) -> tuple[Callable[..., Any], Callable[..., None]]:
    """AdaLoRA's addition to the loss and its update after a step; nothing for other methods."""
    if options.method != "adalora":
        return lambda *_: 0.0, lambda *_: None
    from cases.reference import adapter_layers

    return adapter_layers.regularisation, adapter_layers.Budget().after_step


def predicted(ids: Any, options: Options) -> Any:
    """The predicted tokens: all but the first; an encoder-decoder or a virtual token predicts the first too."""
    return ids if architectures.spec(options).encoder_decoder or options.method == "prompt" else ids[:, 1:]


def cross_entropy(logits: Any, wanted: Any) -> Any:
    """Mean of -log p(wanted token); logits (batch, length, vocabulary), wanted (batch, predicted tokens).

    Each position predicts the next token; with as many positions as tokens, the inputs are already shifted.
    """
    number = wanted.shape[1]
    predicting = logits if logits.shape[1] == number else logits[:, -number - 1 : -1]
    return -predicting.log_softmax(-1).gather(-1, wanted[:, :, None]).mean()


def stochastic_gradient_descent() -> Any:

    def update(trained: dict[str, Any], rate: float) -> None:
        for parameter in trained.values():
            parameter.sub_(rate * parameter.grad)
            parameter.grad = None

    return update


def adamw(betas: tuple[float, float] = (0.9, 0.999), eps: float = ADAM_EPS, decay: float = 0.01) -> Any:
    """Reference implementation of AdamW (https://arxiv.org/abs/1711.05101), with torch's defaults but for eps."""
    import torch

    moments: dict[str, tuple[Any, Any]] = {}
    steps = 0

    def update(trained: dict[str, Any], rate: float) -> None:
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


def make_plain(model: Any, options: Options) -> Any:
    """Replace quantised weights by their dequantised values, and add the reference adapter."""
    import torch

    for name, layer in list(model.named_modules()):
        if is_linear(layer) and not architectures.ends(name, architectures.spec(options).kept):
            store(layer, dequantised(name, architectures.matrix(layer), options))
    for name, parameter in model.named_parameters():
        if parameter.dim() == STACKED:
            parameter.data = torch.stack([dequantised(name, each, options) for each in parameter.data])
    if options.method == "full":
        return model
    from cases.reference import adapter_layers  # here, as it belongs to the code of cases with adapters only

    return adapter_layers.put_on(model, options)


def is_linear(layer: Any) -> bool:
    return type(layer).__name__ in ("Linear", "Conv1D")


def store(layer: Any, weight: Any) -> None:
    layer.weight.data = (weight.T if type(layer).__name__ == "Conv1D" else weight).contiguous()


def dequantised(name: str, weight: Any, options: Options) -> Any:
    """The weight matrix (out, in), float32, of a linear layer after the quantisation of the case."""
    if options.llm_int8_skip_modules and tiny.SKIPPED in name:
        return weight
    return quantisation.dequantised(weight, options.quant, double=options.bnb_4bit_use_double_quant)
