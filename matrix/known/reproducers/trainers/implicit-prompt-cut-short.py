"""extract_prompt of trl leaves the last common part out of the prompt if one answer continues the other.

Shows with trl 0.12 to 1.16. Reported in huggingface/trl#6079.
Exit code: 0 the whole common start, 1 a part of it, 77 no extract_prompt, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error

try:
    from trl.data_utils import extract_prompt
except ImportError:
    print("this trl has no extract_prompt")
    sys.exit(77)

TURNS = [{"role": "user", "content": "Sky?"}, {"role": "assistant", "content": "Blue."}]
MORE = [{"role": "user", "content": "Sure?"}, {"role": "assistant", "content": "Yes."}]


def parts(chosen, rejected):
    found = extract_prompt({"chosen": chosen, "rejected": rejected})
    return len(found["prompt"]), len(found["chosen"]), len(found["rejected"])


usual = parts([*TURNS, MORE[0]], [*TURNS, MORE[1]])
found, apart = parts(TURNS, TURNS + MORE), parts("Yes, it is. ", "No, it is not.")
print(f"turns of prompt and answers: found {found}, expected (2, 0, 2); of texts without a common start: found {apart}")
if usual != (2, 1, 1):
    sys.exit(3)
right = found == (2, 0, 2) and apart == (0, 12, 14)
sys.exit(0 if right else 1 if found == (1, 1, 3) and apart != (0, 12, 14) else 3)
