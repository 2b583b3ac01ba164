/* Recognises a job that ended for a reason outside the fine-tuning stack. */
// Follows reports/answers/diagnosis/outside.py (end, is_fatal, foreign_code) as of a93eb91f.
"use strict";

ftm.diagnosis.outside = (() => {
  const { rules, tracebacks: { isLogRecord }, frames: { culprit } } = ftm.diagnosis;

  /** Tell if a line outside the tracebacks that died may end the job: no warning, retry or recovered error. */
  function isFatal(failure, number) {
    const line = failure.bareLines[number];
    return !(isLogRecord(line) || rules.tracebacks.RETRY.test(line) || failure.failures.recovered.has(number));
  }

  /** Return the reason outside the stack for which a log ends; null if its lines show none. */
  function end(failure) {
    for (const row of rules.outside.causes) {
      for (const match of failure.bare.matchAll(row.regex)) {
        const number = failure.numberAt(match.index);
        if (failure.failures.failureAt.has(number) || (row.anywhere && isFatal(failure, number))) {
          return { id: row.id, says: row.says, line: failure.lines[number].trim() };
        }
      }
    }
    return null;
  }

  /** Return the user's or another library's code in which a traceback died; null if it did elsewhere. */
  function foreignCode({ death }) {
    const found = death && culprit(death.calls);
    if (!found || !["user", "other"].includes(found.origin)) return null;
    const path = found.path.split(/[/\\]/).slice(-2).join("/");
    const says = found.origin === "user" ? "the user's own code" : found.package;
    return { id: found.origin, says: `${says} (${path}${found.function ? `, in ${found.function}` : ""})`, line: death.message };
  }

  return { end, foreignCode };
})();
