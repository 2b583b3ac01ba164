"""Finds how a user's script failed: the exception or the signal of the rank that died first, not its launcher's."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import resource
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from cases.runtime import failures
from cases.runtime.wire import ErrorReport

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cases.flows.script_process import FinishedScript, ScriptDeath

RANK, END = "script_rank", "script_end"  # facts: the rank that died first, and, after a signal, a clause about it
# A launcher's exception says only that a process failed.
LAUNCHERS = frozenset(
    {"ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException", "SignalException"}
)
LOG_TAIL = 20_000  # characters
SHELL = 128  # a shell's exit code for a program that a signal ended is 128 and the signal's number (POSIX)
HARD = frozenset(
    {signal.SIGSEGV, signal.SIGKILL, signal.SIGBUS, signal.SIGILL, signal.SIGFPE}
)  # no consequence of another rank's error
CRASHES = HARD | {signal.SIGABRT}

# The table of torchrun, which accelerate uses too; the messages of subprocess, torch.multiprocessing and DeepSpeed.
ROOT_CAUSE = re.compile(
    r"Root Cause \(first observed failure\):.{0,400}?\brank +: (?P<rank>\d+).{0,400}?\bexitcode +: (?P<code>-?\d+)",
    re.DOTALL,
)
SIGNALS = (
    re.compile(r"died with <Signals\.(?P<name>SIG\w+): \d+>"),
    re.compile(r"process (?P<rank>\d+) terminated with signal (?P<name>SIG\w+)"),
    re.compile(r"exits with return code = -(?P<number>\d+)"),
)
# The last line of a traceback. torch and accelerate put the rank before each line.
EXCEPTION = re.compile(
    r"^(?:\[?(?:rank|default)\d+\]?: ?)?(?P<type>(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt))\b"
    r"(?:: (?P<message>.*))?$"
)


class ScriptError(RuntimeError):
    """The command failed; ``log`` explains it better than a traceback of the harness."""

    def __init__(self, message: str, log: str) -> None:
        super().__init__(message)
        self.log = log


class AdapterCheckError(Exception):
    """The harness's own code failed while it checked an adapter."""


@dataclass(frozen=True)
class ScriptSignal:
    """A signal that ended the command, or one of its ranks."""

    signal: signal.Signals
    rank: int | None = None
    by_shell: bool = False

    def __str__(self) -> str:
        who = "the command" if self.rank is None else f"rank {self.rank} of the script"
        return f"{who} was ended by {self.signal.name}"


def raise_failure(finished: FinishedScript, facts: Callable[[dict[str, Any]], None], *, ours: str = "") -> None:
    """Do nothing after success. Otherwise raise what the script raised, or end this process by the script's signal.

    The supervisor judges this process. If it ends as the script did, the verdict is a crash, and the supervisor looks
    up whether the kernel ended processes for lack of memory.

    Args:
        finished: the command.
        facts: reports the rank that died first.
        ours: the module of the harness that the command ran, if it was one.

    Raises:
        ScriptError: the type's name is that of the script's exception, if there is one.
        AdapterCheckError: the harness is to blame.
    """
    if finished.code == 0:
        return
    if finished.code is None:
        raise ScriptError(finished.output, "")
    ended_by = signal_of(finished)
    own = [death for death in finished.deaths if death.type not in LAUNCHERS]
    causes = [death for death in own if not is_consequence(death)]
    if ended_by is not None and is_first(ended_by, causes):
        facts({END: str(ended_by), **({} if ended_by.rank is None else {RANK: ended_by.rank})})
        end_by(ended_by.signal, finished.output)
    if own:
        death = (causes or own)[0]
        facts({} if death.rank is None else {RANK: death.rank})
        raise exception(death, ours)
    raise last_exception(finished.output, finished.code)


def is_consequence(death: ScriptDeath) -> bool:
    return failures.is_consequence(ErrorReport(death.type, death.message))


def is_first(ended_by: ScriptSignal, causes: Sequence[ScriptDeath]) -> bool:
    """Return whether a signal, rather than one of these exceptions, is the cause.

    An exception of the same process came before the signal that ended it. Watchdogs abort ranks, and launchers
    terminate them, after the error of another one.
    """
    if not causes:
        return True
    return ended_by.signal in HARD and all(death.rank != ended_by.rank for death in causes)


def signal_of(finished: FinishedScript) -> ScriptSignal | None:
    """The signal that ended the command or the rank that a launcher blames; None if none did."""
    code = finished.code or 0
    if code < 0:
        return ScriptSignal(signal.Signals(-code))
    table = ROOT_CAUSE.search(finished.output)
    if table is not None:
        number = -int(table["code"])
        return ScriptSignal(signal.Signals(number), int(table["rank"])) if number > 0 else None
    for pattern in SIGNALS:
        match = pattern.search(finished.output)
        if match is not None:
            return named_signal(match)
    if code - SHELL in {each.value for each in CRASHES}:
        return ScriptSignal(signal.Signals(code - SHELL))
    return None


def named_signal(match: re.Match[str]) -> ScriptSignal:
    found = match.groupdict()
    which = signal.Signals(int(found["number"])) if found.get("number") else signal.Signals[found["name"]]
    return ScriptSignal(which, int(found["rank"]) if found.get("rank") else None)


def end_by(number: signal.Signals, output: str) -> NoReturn:
    """End this process by a signal, with the end of the output in its log and without a core file."""
    with contextlib.suppress(OSError):
        print(output[-LOG_TAIL:], flush=True)
    faulthandler.disable()  # our stack explains nothing
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if number not in {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    sys.stderr.flush()
    os.kill(os.getpid(), number)
    raise ScriptError(f"the command was ended by {number.name}", output[-LOG_TAIL:])  # a signal that ends nothing


def exception(death: ScriptDeath, ours: str) -> Exception:
    """The exception of a rank, under its own type name, which the report shows."""
    if ours and death.file.endswith(ours.replace(".", os.sep) + ".py") and death.type != "RuntimeError":
        return AdapterCheckError(f"{death.type}: {death.message}")
    return typed(death.type, death.message, death.traceback)


def typed(name: str, message: str, log: str) -> ScriptError:
    """A ``ScriptError`` whose type has another name."""
    kind: type[ScriptError] = type(name, (ScriptError,), {})
    return kind(message, log)


def last_exception(output: str, code: int) -> ScriptError:
    """The last exception that the output names, other than a launcher's; else the exit code and the last line.

    This serves programs without the hook: other languages, and processes of ``multiprocessing``.
    """
    tail = output[-LOG_TAIL:]
    found = [match for line in tail.splitlines() if (match := EXCEPTION.match(line.strip()))]
    own = [match for match in found if match["type"].rpartition(".")[2] not in LAUNCHERS]
    causes = [match for match in own if not re.search(failures.CONSEQUENCES, match["message"] or "")]
    if own:
        match = (causes or own)[-1]
        return typed(match["type"].rpartition(".")[2], match["message"] or "", tail)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return ScriptError(f"exit code {code}: {lines[-1] if lines else 'it printed nothing'}", tail)
