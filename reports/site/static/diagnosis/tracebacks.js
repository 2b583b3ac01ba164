/* Finds the lines of a log that report a failure: tracebacks and exceptions, but no warnings and retried errors. */
// Follows reports/answers/diagnosis/tracebacks.py (LogFailures, is_log_record, names_exception, unrecovered, is_recovered, first_deaths, is_lost_peer) as of 050a4dc0.
// Follows reports/answers/diagnosis/tracebacks.py (find_failures, ends_failure, build_failure) as of af9c8a77.
"use strict";

ftm.diagnosis.tracebacks = (() => {
  const { rules, matchAtStart, ranks: { range }, frames: { framesIn } } = ftm.diagnosis;

  const isLogRecord = (line) => rules.tracebacks.LOG_RECORD.test(line);
  const isFrame = (line) => matchAtStart(rules.tracebacks.FRAME, line) !== null;

  /** Tell if a line names an exception, and is neither a log record nor a remark that the exception is fixed. */
  function namesException(line) {
    const named = rules.tracebacks.EXCEPTION.exec(line);
    return named !== null && !isLogRecord(line) && !rules.tracebacks.RESOLVED.test(line.slice(0, named.index));
  }

  const isLastLine = (line) => matchAtStart(rules.tracebacks.LAST_LINE_OF_TRACEBACK, line) !== null;
  const numbers = ({ start, stop }) => range(start, stop);

  /** Tell if a line no longer belongs to the failure above it. */
  function endsFailure(line, left, before) {
    if (isFrame(line)) return !before.some((each) => rules.tracebacks.CHAIN.test(each));
    return left === 0 || isLogRecord(line) || rules.tracebacks.WATCHDOG_RECORD.test(line);
  }

  function builtFailure(lines, start, stop) {
    const { LAUNCHER_FRAME, LAUNCHER_EXCEPTION } = rules.tracebacks;
    const own = lines.slice(start, stop), exceptions = own.filter(namesException);
    const hasLauncher = exceptions.length > 0 || own.some((line) => LAUNCHER_FRAME.test(line));
    return { start, stop, isOfLauncher: hasLauncher && exceptions.every((line) => LAUNCHER_EXCEPTION.test(line)) };
  }

  /** Return each failure once, in order. A chain of exceptions is one failure. */
  function findFailures(lines, ranks) {
    const found = [];
    let start = null, left = null; // `left`: how many lines the message may still have; null before its first
    lines.forEach((line, number) => {
      const isOther = start !== null && ranks[number] && ranks[number] !== ranks[start];
      const before = number < 2 ? [] : lines.slice(number - 2, number);
      if (start !== null && (isOther || (left !== null && endsFailure(line, left, before)))) {
        found.push(builtFailure(lines, start, number));
        start = left = null;
      }
      if (isFrame(line)) {
        start ??= number;
        left = null;
      } else if (namesException(line) || (start !== null && left === null && isLastLine(line))) {
        start ??= number;
        left = rules.tracebacks.MESSAGE_LINES;
      } else if (left !== null && start !== null && !/^[ \t]/.test(line)) left -= 1;
    });
    if (start !== null) found.push(builtFailure(lines, start, lines.length));
    return found;
  }

  /** Tell if the run retried or trained on between two failures. */
  function isRecovered(failure, later, lines) {
    const { RETRY, COLLECTIVE, TRAINING_STEP } = rules.tracebacks;
    if (failure.start > 0 && RETRY.test(lines[failure.start - 1])) return true;
    if (numbers(later).some((number) => COLLECTIVE.test(lines[number]))) return false;
    return lines.slice(failure.start, later.start).some((line) => matchAtStart(TRAINING_STEP, line));
  }

  /** Tell if a rank failed only in a collective, as it does after another rank died. */
  function isLostPeer(failure, lines) {
    const exceptions = lines.slice(failure.start, failure.stop).filter(namesException);
    return exceptions.length > 0 && rules.tracebacks.LOST_PEER.test(exceptions.at(-1));
  }

  /** Return the failures of the rank that died first. */
  function firstDeaths(failures, lines, ranks) {
    const lasting = failures.filter((each) => !isLostPeer(each, lines)), own = lasting.length ? lasting : failures;
    if (!ranks.length || !own.length) return own;
    return own.filter((each) => [ranks[own[0].start], ""].includes(ranks[each.start]));
  }

  /** The lines of a log and the failures in them. Log records inside a failure do not belong to it. */
  class LogFailures {
    constructor(lines, ranks) {
      this.lines = lines;
      const every = findFailures(lines, ranks);
      this.anyFailure = every.length > 0;
      const ofRanks = every.filter((each) => !each.isOfLauncher);
      const lasting = ofRanks.filter((each, i) => i === ofRanks.length - 1 || !isRecovered(each, ofRanks[i + 1], lines));
      this.failures = firstDeaths(lasting, lines, ranks);
      const kept = new Set(lasting); // a log may have thousands of failures
      this.recovered = new Set(ofRanks.filter((each) => !kept.has(each)).flatMap(numbers));
      this.failureAt = new Map(this.failures.flatMap((each) =>
        numbers(each).filter((number) => !isLogRecord(lines[number])).map((number) => [number, each])));
    }

    /** The traceback that ended the job; null if the log has none. */
    get death() {
      if (!this.failures.length) return null;
      const block = this.traceback(this.failures.at(-1).stop - 1), texts = block.map((number) => this.lines[number]);
      const message = texts.find(namesException) ?? texts.findLast((text) => text.trim()) ?? "";
      return { calls: this.calls(block.at(-1)), message: message.trim() };
    }

    /** Return the lines of one traceback of a chain, with its message. */
    traceback(number) {
      const failure = this.failureAt.get(number);
      if (!failure) return [number];
      const links = numbers(failure).filter((each) => rules.tracebacks.CHAIN.test(this.lines[each]));
      const start = links.findLast((each) => each < number), stop = links.find((each) => each > number);
      return range(start === undefined ? failure.start : start + 1, stop ?? failure.stop);
    }

    /** Return the frames of the traceback of a line, outermost first. */
    calls(number) {
      return framesIn(this.traceback(number).filter((each) => this.failureAt.has(each)).map((each) => this.lines[each]));
    }

    /** Tell if a line may show the cause: a line of a failure, or any unresolved line if no failure was found. */
    mayBeCause(number) {
      if (this.failureAt.size) return this.failureAt.has(number);
      if (this.anyFailure && isLogRecord(this.lines[number])) return false;
      return !this.lines.slice(Math.max(0, number - 1), number + 2).some((line) => rules.tracebacks.RESOLVED.test(line));
    }

    hasTraceback(number) {
      const failure = this.failureAt.get(number);
      return failure !== undefined && numbers(failure).some((each) => isFrame(this.lines[each]));
    }

    /** Return the line numbers of the same failure, and a few lines around if it has no traceback. */
    context(number) {
      const failure = this.failureAt.get(number), { CONTEXT_LINES } = rules.tracebacks;
      const own = failure ? numbers(failure).filter((each) => this.failureAt.has(each)) : [number];
      if (this.hasTraceback(number)) return own;
      const around = range(Math.max(0, number - CONTEXT_LINES), Math.min(this.lines.length, number + CONTEXT_LINES + 1));
      return [...new Set([...own, ...around.filter((each) => !this.failureAt.has(each))])].sort((a, b) => a - b);
    }
  }

  return { LogFailures, isLogRecord };
})();
