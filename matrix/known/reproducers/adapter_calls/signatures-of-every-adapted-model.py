"""peft.helpers.update_forward_signature changes the signatures of all PeftModels: that of the next model does nothing.

It means to copy the method before it changes its signature, but deepcopy returns a function as it is. Shows with peft
0.14 and 0.21. No thread found on 2026-11-27; related: huggingface/peft#784.
Exit code: 0 right, 1 the other model has the signature of the first, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

import inspect

from peft import LoraConfig, get_peft_model
from peft.helpers import update_forward_signature
from transformers import LlamaConfig, LlamaForCausalLM, WhisperConfig, WhisperForConditionalGeneration

SIZES = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2}
SIZES |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
llama = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2)
bases = LlamaForCausalLM(llama), WhisperForConditionalGeneration(WhisperConfig(**SIZES))
first, other = (get_peft_model(base, LoraConfig(target_modules=["q_proj"])) for base in bases)


def parameters(method):
    return [*inspect.signature(method).parameters]


before = parameters(other.forward)
update_forward_signature(first)
after = parameters(other.forward)
update_forward_signature(other)
found = parameters(other.forward)[0]
expected = parameters(WhisperForConditionalGeneration.forward)[1]  # behind self
print(f"first argument of a Whisper after a Llama's signature was updated: found {found}, expected {expected}")
same = after == parameters(first.forward) != before
print(f"the Llama's update changed the Whisper's signature: {same}")
sys.exit(0 if after == before and found == expected else 1 if same and found != expected else 3)
