"""The environment of every rank, however it is started: nothing of it changes what a case computes."""

from __future__ import annotations

# One thread per rank (ranks share the cores), loopback only, nothing is downloaded.
VARIABLES = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # the other way to count GPUs initialises the driver
    "TOKENIZERS_PARALLELISM": "false",
    "NCCL_IB_DISABLE": "1",  # ranks of one host: NCCL need not open what reaches others
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TRANSFORMERS_VERBOSITY": "error",
}
