"""What a rank's environment says of itself, and what a caller may say instead."""

from __future__ import annotations

from cases.runtime import rank_env


def test_ranks_are_alone_whatever_the_caller_says() -> None:
    assert rank_env.variables({"OMP_NUM_THREADS": "8", "HF_HUB_OFFLINE": "0"}).items() >= rank_env.VARIABLES.items()


def test_a_caller_may_set_nccl_otherwise() -> None:
    found = rank_env.variables({"NCCL_MAX_NCHANNELS": "32", "PATH": "/bin"})
    assert (found["NCCL_MAX_NCHANNELS"], found["NCCL_IB_DISABLE"], found["PATH"]) == ("32", "1", "/bin")


def test_what_nccl_is_told_is_a_fact_but_not_where_it_logs() -> None:
    told = {"NCCL_NVLS_ENABLE": "0", "NCCL_IB_DISABLE": "1", "NCCL_DEBUG_FILE": "x", "PATH": "/bin"}
    assert rank_env.nccl_settings(told) == "NCCL_IB_DISABLE=1 NCCL_NVLS_ENABLE=0"
