"""PEFT's CorDA imports attrs, which PEFT does not depend on.

Shows with peft 0.15 to 0.21. No thread found on 2026-11-26.
Exit code: 0 imports without attrs, 1 wants attrs, 77 no CorDA, anything else: something else happened.
"""

import os
import sys
import traceback

sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(2))  # 1 would report the error


class WithoutAttrs:
    """Hide attrs, which other packages may have installed."""

    def find_spec(self, name, *_):
        if name in ("attr", "attrs"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


import peft

if not hasattr(peft, "LoraConfig") or "corda_config" not in peft.LoraConfig.__dataclass_fields__:
    print("this peft has no CorDA")
    sys.exit(77)
for name in [name for name in sys.modules if name.partition(".")[0] in ("attr", "attrs")]:
    del sys.modules[name]
sys.meta_path.insert(0, WithoutAttrs())
try:
    from peft.tuners.lora.corda import preprocess_corda

    found = preprocess_corda.__name__
except ModuleNotFoundError as error:
    found = str(error)
print(f"import of peft.tuners.lora.corda without attrs: found {found!r}, expected 'preprocess_corda'")
sys.exit({"preprocess_corda": 0, "No module named 'attr'": 1}.get(found, 3))
