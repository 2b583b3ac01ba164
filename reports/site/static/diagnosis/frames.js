/* Tells whose code a traceback died in: the stack's, the user's own, or another library's. */
// Follows reports/answers/diagnosis/frames.py (Frame, frames, culprit, origin, is_overridden) as of a3985802.
"use strict";

ftm.diagnosis.frames = (() => {
  const { rules, matchAtStart } = ftm.diagnosis;

  class Frame {
    constructor(path, name, source) {
      Object.assign(this, { path, function: name, source });
    }

    get package() {
      const { INSTALLED, CHECKOUT, REMOTE_MODEL } = rules.frames;
      const found = INSTALLED.exec(this.path) ?? CHECKOUT.exec(this.path);
      return found === null || REMOTE_MODEL.test(this.path) ? "" : found.groups.package;
    }

    get isNeutral() {
      const { SHARDING, NEUTRAL, STANDARD_LIBRARY } = rules.frames;
      if (SHARDING.test(this.path)) return false;
      return NEUTRAL.includes(this.package) || (!this.package && STANDARD_LIBRARY.test(this.path));
    }

    get origin() {
      if (rules.frames.SHARDING.test(this.path) || rules.frames.STACK.includes(this.package)) return "stack";
      return this.package ? "other" : "user";
    }
  }

  /** Return the frames in some lines of a traceback, outermost first. */
  function framesIn(lines) {
    const found = [];
    let path = "", name = "", source = [];
    const end = () => { if (path) found.push(new Frame(path, name, source.join("\n"))); };
    for (const line of lines) {
      const groups = matchAtStart(rules.frames.FRAME, line)?.groups;
      if (!groups) {
        source.push(line.trim());
        continue;
      }
      end();
      path = groups.path || groups.cell || groups.colab;
      name = groups.function || groups.name || "";
      source = [];
    }
    end();
    return found;
  }

  /** Return the innermost frame that is not neutral; null if there is none. */
  const culprit = (calls) => calls.findLast((each) => !each.isNeutral) ?? null;

  const origin = (calls) => culprit(calls)?.origin ?? "unknown";

  /** Tell if a traceback died in a method of the user's that a framework calls. */
  function isOverridden(calls) {
    const found = culprit(calls);
    return found?.origin === "user" && rules.frames.OVERRIDDEN.includes(found.function.split(".").at(-1));
  }

  return { framesIn, culprit, origin, isOverridden };
})();
