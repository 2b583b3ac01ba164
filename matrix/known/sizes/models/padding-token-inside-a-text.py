"""The scores of a classifier for chats whose turns end in the padding token, beside those of the last token.

8 chats of four turns of 64 tokens, padded on the right to 320 tokens, and two classes.
"""

import torch
from released import SMOLLM_135M, off, report, tokens
from transformers import LlamaConfig, LlamaForSequenceClassification

CHATS, TURNS, LENGTH, PADDED, PADDING = 8, 4, 64, 320, 0
torch.manual_seed(0)
config = LlamaConfig(**SMOLLM_135M, num_labels=2, pad_token_id=PADDING, bos_token_id=1, eos_token_id=PADDING)
model = LlamaForSequenceClassification(config).eval()
chats = tokens(CHATS * TURNS * LENGTH).clamp(min=2).view(CHATS, TURNS, LENGTH)
chats[:, :-1, -1] = PADDING  # each turn but the last ends in the token, which still has a text behind it
chats = chats.view(CHATS, TURNS * LENGTH)
rows = torch.nn.functional.pad(chats, (0, PADDED - TURNS * LENGTH), value=PADDING)
found, expected = [], []
with torch.no_grad():
    for row in rows.split(1):
        found.append(model(input_ids=row, attention_mask=(torch.arange(PADDED) < TURNS * LENGTH).long()[None]).logits)
        expected.append(model.score(model.model(row[:, : TURNS * LENGTH])[0][:, -1]))
found, expected = torch.cat(found), torch.cat(expected)
changed = float((found.argmax(-1) != expected.argmax(-1)).double().mean())
report(f"{CHATS} chats of {TURNS} turns of {LENGTH} tokens", scores_off=off(found, expected), changed_classes=changed)
