"""AdamW's moments after three steps of SmolLM-135M of 6 layers under FSDP1, gathered with offloading and without.

Two ranks on a CPU, with a unit for each layer. ``next_step_off`` is the error of the step that the moments make.
"""

import functools
import warnings

import torch
from released import off, on_ranks, report, smollm, tokens
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers.models.llama.modeling_llama import LlamaDecoderLayer

LENGTH, STEPS, LAYERS = 128, 3, 6


def work(rank, _folder, results):
    warnings.simplefilter("ignore")
    policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={LlamaDecoderLayer})
    model = FullyShardedDataParallel(
        smollm(num_hidden_layers=LAYERS),
        auto_wrap_policy=policy,
        use_orig_params=True,
        device_id=torch.device("cpu"),
    )
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(STEPS):
        row = tokens(LENGTH).roll(2 * step + rank)
        model(input_ids=row, labels=row, use_cache=False).loss.backward()
        optimiser.step()
        optimiser.zero_grad()

    def gathered(*, offload):
        options = StateDictOptions(full_state_dict=True, cpu_offload=offload)
        state = get_optimizer_state_dict(model, optimiser, options=options).get("state", {})
        return [
            torch.cat([state[name][each].flatten() for name in sorted(state)]) if state else torch.empty(0)
            for each in ("exp_avg", "exp_avg_sq")
        ]

    expected, found = gathered(offload=False), gathered(offload=True)  # offloaded, only rank 0 has it
    if rank == 0:
        steps = [first / (second.sqrt() + 1e-8) for first, second in (found, expected)]
        results.put([off(found[0], expected[0]), off(found[1], expected[1]), off(*steps)])


first, second, step = on_ranks(work)
report(
    f"{LAYERS} layers, {STEPS} steps of {LENGTH} tokens",
    first_moments_off=first,
    second_moments_off=second,
    next_step_off=step,
)
