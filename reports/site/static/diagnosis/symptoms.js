/* The known facts of a pasted failure: its text, cleaned and sorted by rank, and the versions that it names. */
// Follows reports/answers/diagnosis/symptoms.py (Symptom) as of 7d6e0c63.
"use strict";

ftm.diagnosis.Symptom = (() => {
  const { rules, ranks: { rankOf, sortedByRank }, tracebacks: { LogFailures }, logs } = ftm.diagnosis;
  const everywhere = (expression) => new RegExp(expression.source, `${expression.flags}g`);

  return class {
    constructor(text) {
      const { COLOURS, PREFIXES, WITHOUT_QUOTES } = rules.symptoms;
      const plain = text.replaceAll("\r\n", "\n").replaceAll("\r", "\n").replace(everywhere(COLOURS), "");
      const ofRank = plain.split("\n").map(rankOf), stripped = plain.replace(everywhere(PREFIXES), "").split("\n");
      const order = sortedByRank(ofRank);
      this.lines = order.map((number) => stripped[number]);
      this.clean = this.lines.join("\n");
      this.bare = this.clean.replace(new RegExp(`[${WITHOUT_QUOTES}]`, "g"), "");
      this.bareLines = this.bare.split("\n");
      this.starts = [0];
      for (const line of this.bareLines) this.starts.push(this.starts.at(-1) + line.length + 1);
      this.failures = new LogFailures(this.bareLines, order.map((number) => ofRank[number]));
      this.versions = logs.versions(this.clean);
      this.death = this.failures.death;
      this.isAlone = this.bareLines.filter((line) => line.trim()).length <= rules.blame.ALONE;
    }

    /** Return the number of the line at an index of `bare`. */
    numberAt(index) {
      let low = 0, high = this.bareLines.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.starts[middle] <= index) low = middle; else high = middle - 1;
      }
      return low;
    }

    /** Return the failure that a line belongs to, or the lines around it. */
    near(number) {
      return this.failures.context(number).map((each) => this.bareLines[each]).join("\n");
    }
  };
})();
