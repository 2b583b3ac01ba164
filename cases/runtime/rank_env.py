"""The environment variables of every rank: the caller's, as far as the stack needs them, and fixed ones of ours.

Ranks run code of the stack and of users, and whatever they print is stored and published. So they get an allow-list
of the caller's variables, and none that may hold a secret.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

# One thread per rank (ranks share the cores), loopback only, no downloads.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # the other way to count GPUs initialises the driver
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
# Parts of NCCL that one small cell on one host does not need, unless the caller sets them: InfiniBand, and more
# channels than messages of a few kilobytes use.
NCCL = {"NCCL_IB_DISABLE": "1", "NCCL_MAX_NCHANNELS": "2"}

NAMES = frozenset(
    {
        *("HOME", "PATH", "PWD", "SHELL", "LOGNAME", "USER", "TZ", "TERM", "COLUMNS", "LINES"),
        *("TMPDIR", "TEMP", "TMP", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LD_PRELOAD", "LIBRARY_PATH", "CPATH"),
        *("C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "CONDA_PREFIX", "CC", "CXX", "VIRTUAL_ENV"),
        *("CUDA_HOME", "CUDA_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE"),
        *("ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"),
    }
)
PREFIXES = (
    *("FTMATRIX_", "PYTHON", "PYTEST_", "LC_", "XDG_", "UV_", "COVERAGE_"),
    *("CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "HIP_", "ROCR_", "NCCL_", "NVSHMEM_", "GLOO_", "TP_", "UCX_", "FI_"),
    *("TORCH", "PYTORCH_", "ATEN_", "C10_", "PET_", "TRITON_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_"),
    *("HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TOKENIZERS_", "DATASETS_", "ACCELERATE_", "FSDP_", "BNB_"),
    *("BITSANDBYTES_", "PEFT_", "TRL_", "SAFETENSORS_", "DISABLE_", "TQDM_"),
)
SECRET = re.compile(
    r"TOKEN(?!IZERS)|SECRET|PASSW|CREDENTIAL|AUTH|(?:API|ACCESS|PRIVATE)_?KEY|_KEY$|_PAT$", re.IGNORECASE
)
CREDENTIALS = re.compile(r"://[^/\s@]+@")  # in an address


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a rank: those of the caller that are allowed, overridden by ours."""
    allowed = {name: value for name, value in environ.items() if is_allowed(name, value)}
    return {**NCCL, **allowed, **VARIABLES}


def is_allowed(name: str, value: str) -> bool:
    """Return whether a rank may see a variable of the caller."""
    if SECRET.search(name) or CREDENTIALS.search(value):
        return False
    return name in NAMES or name.startswith(PREFIXES)


def nccl_settings(environ: Mapping[str, str]) -> str:
    """The settings of NCCL in an environment, e.g. ``NCCL_IB_DISABLE=1``, without those of its log."""
    names = sorted(name for name in environ if name.startswith("NCCL_") and not name.startswith("NCCL_DEBUG"))
    return " ".join(f"{name}={environ[name]}" for name in names)
