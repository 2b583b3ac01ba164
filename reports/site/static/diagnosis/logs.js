/* The distinct lines of a log, and the versions that it names. */
// Follows reports/answers/diagnosis/logs.py (new_lines, versions, installed_versions, canonical_name, exact_version) as of 788b2c67.
"use strict";

ftm.diagnosis.logs = (() => {
  const { rules } = ftm.diagnosis;

  function shortened(line) {
    const { LONGEST_LINE, ELLIPSIS } = rules.logs;
    return line.length <= LONGEST_LINE ? line : line.slice(0, LONGEST_LINE / 2) + ELLIPSIS + line.slice(-LONGEST_LINE / 2);
  }

  /** Return each line once, ignoring digits. */
  function distinct(text) {
    const seen = new Set(), lines = [];
    for (const line of text.replaceAll("\r", "\n").replace(/\n$/, "").split("\n")) {
      const key = line.replace(/[0-9]/g, "");
      if (seen.has(key)) continue;
      seen.add(key);
      lines.push(shortened(line));
    }
    return lines.join("\n");
  }

  /** Yield the matches in lines that are not about required, requested or uninstalled packages. */
  function* installed(expression, text) {
    const skipped = new Map();
    for (const match of matches(expression, text)) {
      const at = match.index + match[0].indexOf(match.groups.name), start = text.lastIndexOf("\n", at - 1) + 1;
      if (!skipped.has(start)) {
        const end = text.indexOf("\n", start);
        skipped.set(start, rules.logs.NOT_INSTALLED_LINE.test(text.slice(start, end < 0 ? undefined : end)));
      }
      if (!skipped.get(start)) yield match;
    }
  }

  const matches = (expression, text) => text.matchAll(new RegExp(expression.source, `${expression.flags}g`));

  /** Return the installed versions that a text names, by package. */
  function versions(text) {
    const { MENTION, STATEMENT, INCOMPATIBILITY } = rules.logs;
    const every = [
      ...installed(MENTION, text), ...STATEMENT.flatMap((each) => [...installed(each, text)]), ...matches(INCOMPATIBILITY, text),
    ];
    const known = new Map();
    for (const { groups: { name, version } } of every) {
      const lower = name.toLowerCase();
      known.set(lower === "pytorch" ? "torch" : lower, ftm.versions.normal(version.replace(/[.!+_]+$/, "")));
    }
    return Object.fromEntries([...known].filter(([, version]) => version).sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  return { distinct, versions };
})();
