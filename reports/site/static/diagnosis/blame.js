/* Tells if a line of a log may be blamed on the fine-tuning stack, from the traceback that it belongs to. */
// Follows reports/answers/diagnosis/blame.py (may_be_blamed, satisfies_through, is_admitted, is_alone, names_library) as of 247e1c46.
"use strict";

ftm.diagnosis.mayBeBlamed = (() => {
  const { rules, frames: { culprit, origin, isOverridden } } = ftm.diagnosis;

  const areSame = (one, other) => one.length === other.length && one.every((frame, i) =>
    frame.path === other[i].path && frame.function === other[i].function && frame.source === other[i].source);

  /** Tell if a signature names the file or the library in which a traceback died. */
  const namesLibrary = (row, calls) => Boolean(row.elsewhereRegex?.test(culprit(calls)?.path ?? ""));

  const mentionsStack = (text) => rules.blame.IMPORT.test(text) || rules.blame.PARTS.test(text);

  /** Tell if a signature may explain a traceback: it died in the stack, or the signature allows for its end. */
  function isAdmitted(row, failure, number, calls, message) {
    if (rules.blame.SHADOW.test(message)) return false;
    const isAllowed = Boolean(row.elsewhereRegex?.test(failure.near(number)));
    switch (origin(calls)) {
      case "unknown":
        if (!row.elsewhereRegex || (!calls.length && failure.isAlone)) return true;
        return row.elsewhereRegex.test(failure.bare) || rules.blame.PARTS.test(failure.bare);
      case "stack": return true;
      case "other": return rules.blame.IMPORT.test(message) || (isAllowed && namesLibrary(row, calls));
      default: {
        const source = calls.findLast((each) => each.origin === "user")?.source ?? "";
        if (isOverridden(calls) || rules.blame.DETACHED.test(source)) return isAllowed && namesLibrary(row, calls);
        return isAllowed || mentionsStack(message);
      }
    }
  }

  /** Tell if the traceback of a line admits a signature. A line without a frame admits every signature. */
  return (row, failure, number) => {
    const found = failure.failures, own = found.calls(number), last = failure.death;
    if (last && !isAdmitted(row, failure, found.failures.at(-1).stop - 1, last.calls, last.message)) {
      return areSame(last.calls, own) && Boolean(row.throughRegex?.test(failure.near(number)));
    }
    return isAdmitted(row, failure, number, own, failure.bareLines[number]);
  };
})();
