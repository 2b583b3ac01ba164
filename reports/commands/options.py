"""Command-line options that several commands share, and the device that ``auto`` means for stored results."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from matrix.errors import UserError
from matrix.run import machine

DEVICES: Final = ("cpu", "cuda")
AUTO: Final = "auto"

Sets = Annotated[
    str,
    typer.Option(
        "--sets",
        help="Version sets: default, newest, slices, all, or keys separated by commas.",
        show_default="the sets of the profile",
    ),
]
Profile = Annotated[
    str,
    typer.Option(
        "--profile",
        help="Profile of cases: quick, default, full, nightly or gpu.",
        show_default="default, or every case if --where is given",
    ),
]
Where = Annotated[
    str, typer.Option("--where", help="Only the cases with these option values, e.g. 'quant=nf4 strategy=fsdp2'.")
]
Device = Annotated[
    str,
    typer.Option(
        "--device",
        help="Device to run on: cpu (gloo), cuda (NCCL), cuda-gloo (gloo, all ranks of a cell on one GPU), "
        "or auto: cuda if this machine has an NVIDIA GPU.",
    ),
]
RunDevice = Annotated[
    str,
    typer.Option(
        "--device",
        help="Device to run on: cpu (gloo), cuda (NCCL), cuda-gloo (gloo, all ranks of a cell on one GPU), "
        "auto: cuda if this machine has an NVIDIA GPU, or both: cells with more ranks than GPUs on the CPU and the "
        "others on the GPUs, in a run directory for each.",
    ),
]
ResultsDevice = Annotated[
    str,
    typer.Option(
        "--device",
        help="Device of the results to use: cpu (gloo), cuda (NCCL), or auto: cuda if this machine has an NVIDIA GPU.",
    ),
]
TorchBackend = Annotated[
    str, typer.Option("--torch-backend", help="PyTorch build to install: auto, cpu, pypi, or a CUDA build like cu128.")
]
Repeat = Annotated[
    int | None, typer.Option("--repeat", help="Number of runs of each cell.", show_default="set by the profile")
]
Scripts = Annotated[
    list[Path] | None,
    typer.Option("--scripts", help="Your own scripts to run as cases: a Python or TOML file; repeatable."),
]
With = Annotated[
    list[str] | None,
    typer.Option(
        "--with",
        help="Lay a package over each set: a folder with a checkout, peft=git+https://HOST/OWNER/peft@BRANCH, a wheel, "
        "or peft==0.18.1; repeatable.",
    ),
]
Versions = Annotated[
    Path, typer.Option("--versions", help="TOML file of version sets.", show_default="the packaged file")
]
Offline = Annotated[
    Path | None,
    typer.Option("--offline", help="Install from this folder, made by `ftmatrix pack`, instead of package indexes."),
]
SystemTorch = Annotated[
    bool,
    typer.Option("--system-torch", help="Keep the host's PyTorch; install only the other packages, from --offline."),
]
SystemPython = Annotated[
    str, typer.Option("--system-python", help="Interpreter that has the host's PyTorch, for --system-torch.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Run directory.", show_default="runs/<time>")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Resume --out (default: the latest run); run only missing cells.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", help="Number of cells to run at the same time.", show_default="one per core or GPU"),
]
KeepFree = Annotated[float, typer.Option("--keep-free", help="Disk space to leave free, in GB.")]
Have = Annotated[
    list[str] | None,
    typer.Option("--have", help="Version to respect, e.g. torch==2.8.0; torch==2.8 is every 2.8 release; repeatable."),
]
Results = Annotated[
    Path, typer.Option("--results", help="Folder of results to answer from.", show_default="the published results")
]
Baselines = Annotated[Path, typer.Option("--baselines", help="Folder with the accepted baseline of each device.")]
History = Annotated[Path, typer.Option("--history", help="Folder of the history.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def results_device(device: str, *, implied: str = "") -> str:
    """Return the device whose results answer a question.

    For ``auto`` this is the device that the question implies, else ``cuda`` if this machine has an NVIDIA GPU.

    Raises:
        UserError: the name is neither a device nor ``auto``.
    """
    if device == AUTO and implied:
        return implied
    if device == AUTO:
        return "cpu" if machine.why_no_gpu() else "cuda"
    if device not in DEVICES:
        raise UserError(f"--device {device}: unknown device; choose from {AUTO}, {', '.join(DEVICES)}")
    return device
