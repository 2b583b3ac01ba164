"""The reference of a training case: one process, float64, no code of the stack under test but torch's tensors.

It reads the published checkpoint from disk. ``models`` holds the architectures, ``adapter_layers`` the adapters,
``quantisation`` the quantised formats and gradient clipping.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cases.model import architectures, data, disk, tiny
from cases.reference import models, quantisation
from cases.reference.network import Batch, Network
from cases.space.options import PROMPTS, TRAINING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from cases.space.options import Options

    Sensitivities = dict[str, list[dict[str, float]]]  # kind ("gradient", ...), step if it has steps, tensor

LEARNING_RATE = {
    "sgd": 0.5,
    "adamw": 0.01,
    "adamw_8bit": 0.01,
    "paged_adamw_8bit": 0.01,
}  # a visible step: several per cent of a weight
# Adam divides by the gradient's own size: with torch's default of 1e-8, entries that are nothing but rounding move as
# far as any other, and two correct runs drift apart. This eps, a tenth of a typical entry, lets them stay small.
ADAM_EPS = 1e-3
MATRIX = 2  # dimensions of a weight that multiplies


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
    sensitivities: Sensitivities = field(default_factory=dict)  # of the reference (see cases.reference.sensitivity)


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
    rope = [] if options.rope_scaling == "none" else [options.rope_scaling]
    uneven = [] if options.data == "plain" else [options.data, str(batches_per_step(options))]
    return "-".join(
        ["twin", kind, model, method, options.quant, update_rule(options), *switches, *loop, *rope, *uneven]
    )


def batches_per_step(options: Options) -> int:
    """The batches of a step, of all ranks: each has a mean loss of its own, and the step's loss is their mean.

    The trainers divide by the number of learned tokens of the whole step, so that it is one batch to them
    (``num_items_in_batch``, https://huggingface.co/blog/gradient_accumulation).
    """
    return 1 if options.front_end in ("trainer", "sft") else options.world_size * options.gradient_accumulation_steps


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


def run(options: Options, folder: Path) -> Trajectory:
    """Train the reference on the whole global batch, or only run inference for ``flow=load``.

    ``folder`` has the published checkpoint.
    """
    import torch

    model = network(options, folder)
    trained = trained_tensors(model, options)
    twin = Trajectory()
    if options.flow in TRAINING:
        train(model, trained, options, twin)
    with torch.no_grad():
        twin.logits = logits(model, trained, tiny.batch(0, architectures.vocabulary(options)), options).float()
    twin.tokens, twin.token_logits = greedy(model, trained, options)
    return twin


def logits_of(folder: Path, options: Options) -> Any:
    """The logits of batch 0 by a whole, unquantised checkpoint on disk: float32, (batch, length, vocabulary)."""
    import torch

    config = disk.config(folder)
    tensors = {name: tensor.double() for name, tensor in disk.tensors(folder).items()}
    on_disk = Network(config, tensors, getattr(models.architecture(config), "TRANSPOSED", False))
    with torch.no_grad():
        return logits(on_disk, {}, tiny.batch(0, config["vocab_size"]), options).float()


def network(options: Options, folder: Path) -> Network:
    """The network of a checkpoint, with rows for new tokens and quantised weights replaced by dequantised ones."""
    import torch

    config = {**disk.config(folder), "vocab_size": architectures.vocabulary(options)}
    of_model = models.architecture(config)
    transposed = getattr(of_model, "TRANSPOSED", False)
    tensors = {}
    for name, tensor in disk.tensors(folder).items():
        rows = architectures.with_new_rows(name, tensor.float(), options)
        layer = name.removesuffix(".weight")
        is_multiplied = rows.dim() == MATRIX and not architectures.ends(layer, of_model.TABLES)
        if is_multiplied and not architectures.ends(layer, architectures.spec(options).kept):
            matrix = dequantised(layer, rows.T if transposed else rows, options)
            rows = matrix.T if transposed else matrix
        tensors[name] = rows.to(torch.float64)
    return Network(config, tensors, transposed)


def trained_tensors(model: Network, options: Options) -> dict[str, Any]:
    """The tensors that training changes, by name."""
    if options.method == "full":
        return {name: tensor.requires_grad_() for name, tensor in model.tensors.items()}
    from cases.reference import adapter_layers  # here, as it belongs to the code of cases with adapters only

    return adapter_layers.put_on(model, options)


def logits(
    model: Network, trained: dict[str, Any], ids: Any, options: Options, decoder_ids: Any = None, **more: Any
) -> Any:
    """The logits of token ids (batch, length): float64, (batch, length, vocabulary); ``more`` are fields of a batch."""
    if architectures.spec(options).encoder_decoder and decoder_ids is None:
        decoder_ids = architectures.shifted(ids)
    extra = {}
    if options.method in PROMPTS:
        from cases.reference import adapter_layers

        extra = adapter_layers.virtual(model, trained, options, len(ids))
    return models.logits(model, Batch(ids=ids, decoder_ids=decoder_ids, **more, **extra))


def greedy(model: Network, trained: dict[str, Any], options: Options) -> tuple[Any, Any]:
    """Generate greedily without a cache; never chooses the end token."""
    import torch

    prompt = tiny.prompt(architectures.vocabulary(options))
    is_decoder = architectures.spec(options).encoder_decoder
    text = torch.zeros_like(prompt[:, :1]) if is_decoder else prompt
    seen: list[Any] = []
    for _ in range(tiny.NEW_TOKENS):
        with torch.no_grad():
            every = (
                logits(model, trained, prompt, options, text) if is_decoder else logits(model, trained, text, options)
            )
        last = every[:, -1].clone()
        last[:, tiny.END] = -torch.inf
        text = torch.cat([text, last.argmax(-1, keepdim=True)], dim=1)
        seen.append(last.float())
    return text[:, -tiny.NEW_TOKENS :], torch.stack(seen, dim=1)


def train(model: Network, trained: dict[str, Any], options: Options, twin: Trajectory) -> None:
    twin.before = stored(trained)
    for step, (loss, gradients) in enumerate(steps(model, trained, options)):
        twin.losses.append(loss)
        twin.gradients.append(gradients)
        if options.loop == "generate" and step < tiny.STEPS - 1:
            twin.between.append(greedy(model, trained, options))
    twin.after = stored(trained)


def steps(model: Network, trained: dict[str, Any], options: Options) -> Iterator[tuple[float, dict[str, Any]]]:
    """Run the steps of training; yield the loss and the gradients of each after the weights have changed."""
    import torch

    regularisation, after_step = adaptive_ranks(options)
    update = {"sgd": stochastic_gradient_descent, "adamw": adamw}[update_rule(options)]()
    for step in range(tiny.STEPS):
        loss = step_loss(model, trained, data.rows(step, options), options) + regularisation(trained, options)
        loss.backward()
        if options.clip_grad_norm:
            quantisation.clip([p.grad for p in trained.values()])
        gradients = {name: p.grad for name, p in trained.items()}
        kept = stored(gradients)
        with torch.no_grad():
            update(trained, LEARNING_RATE[options.optim] * tiny.SCHEDULE[step])
            after_step(step, trained, gradients)
        yield loss.item(), kept


def step_loss(model: Network, trained: dict[str, Any], rows: data.Rows, options: Options) -> Any:
    """The mean over the batches of a step of each one's mean over its learned tokens.

    Ranks and micro-batches average like this if nobody tells them how many tokens the others have.
    """
    of_rows = {"real": rows.real, "positions": rows.positions, "documents": rows.documents}
    found = logits(model, trained, rows.ids, options, **of_rows)
    number = batches_per_step(options)
    pairs = zip(found.chunk(number), rows.parts(number), strict=True)
    return sum(cross_entropy(each, predicted(part.labels, options)) for each, part in pairs) / number


def stored(tensors: dict[str, Any]) -> dict[str, Any]:
    """Copies as a trajectory keeps them: float32."""
    return {name: tensor.detach().float().clone() for name, tensor in tensors.items()}


def adaptive_ranks(options: Options) -> tuple[Callable[..., Any], Callable[..., None]]:
    """AdaLoRA's addition to the loss and its update after a step; nothing for other methods."""
    if options.method != "adalora":
        return lambda *_: 0.0, lambda *_: None
    from cases.reference import adapter_layers

    return adapter_layers.regularisation, adapter_layers.Budget().after_step


def predicted(labels: Any, options: Options) -> Any:
    """The predicted labels: all but the first; an encoder-decoder or a virtual token predicts the first too."""
    return labels if architectures.spec(options).encoder_decoder or options.method == "prompt" else labels[:, 1:]


def cross_entropy(logits: Any, wanted: Any) -> Any:
    """Mean of -log p(wanted token) over learned ones; logits (batch, length, vocabulary), wanted (batch, predicted).

    Each position predicts the next token; with as many positions as tokens, the inputs are already shifted. Labels of
    -100 are not learned.
    """
    number = wanted.shape[1]
    predicting = logits if logits.shape[1] == number else logits[:, -number - 1 : -1]
    learned = wanted != data.IGNORED
    chosen = predicting.log_softmax(-1).gather(-1, wanted.clamp_min(0)[:, :, None])[..., 0]
    return -(chosen * learned).sum() / learned.sum()


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


def dequantised(name: str, weight: Any, options: Options) -> Any:
    """The weight matrix (out, in), float32, of a linear layer after the quantisation of the case."""
    if options.llm_int8_skip_modules and tiny.SKIPPED in name:
        return weight
    return quantisation.dequantised(weight, options.quant, double=options.bnb_4bit_use_double_quant)
