/* Diagnoses a failure by matching it with the signatures: the most confirmed comes first. */
// Follows reports/answers/diagnosis/diagnose.py (Diagnosis, diagnose, narrower, without_explained_lines, match_signature, evidence, matches, belongs) as of b6a13251.
// Follows reports/answers/diagnosis/diagnose.py (conditions) as of 3429d37e.
"use strict";

ftm.diagnosis.diagnose = (() => {
  const { rules, mayBeBlamed, outside } = ftm.diagnosis;

  /** Tell if the context and the traceback of a line satisfy a signature. */
  function belongs(row, failure, number) {
    if (row.nearRegex && !row.nearRegex.test(failure.near(number))) return false;
    return !row.throughRegex || !failure.failures.hasTraceback(number) || row.throughRegex.test(failure.near(number));
  }

  /** Return the numbers and matches of the first lines that may be the cause. */
  function matches(row, failure) {
    const found = [];
    for (const match of row.regex ? failure.bare.matchAll(row.regex) : []) {
      const number = failure.numberAt(match.index);
      if (failure.failures.mayBeCause(number) && belongs(row, failure, number) && mayBeBlamed(row, failure, number)) {
        found.push([number, match[0]]);
        if (found.length === rules.diagnose.MATCHES) break;
      }
    }
    return found;
  }

  /** Return the line that shows a signature, the length of the match in code points, and all matching lines. */
  function evidence(row, failure) {
    const byLine = new Map(matches(row, failure));
    if (!byLine.size) return null;
    const lines = [...byLine.keys()].map((number) => failure.lines[number].trim());
    const line = lines.find((each) => !each.startsWith("raise ")) ?? lines[0];
    return { line, matched: Math.max(...[...byLine.values()].map((text) => [...text].length)), lines: new Set(lines) };
  }

  /** Return each condition in words, and if it holds; null means unknown. */
  function conditions(row, failure) {
    const version = (name) => (ftm.versions.parsed(failure.versions[name] ?? "") ? failure.versions[name] : null);
    return [
      ...(row.near ? [[`${row.nearWords} is near it`, true]] : []), // `belongs` has checked it
      ...(row.phases ? [[`in ${row.phases.join(" or ")}`, null]] : []),
      ...row.when.map((word) => [word, null]),
      ...(row.device ? [[`on ${row.device}`, null]] : []),
      ...Object.entries(row.versions).map(([name, specifier]) =>
        [`${name}${specifier}`, version(name) && ftm.versions.contains(specifier, version(name))]),
    ];
  }

  /** Return the diagnosis by one signature; null if it does not fit. */
  function matchSignature(row, failure) {
    const shown = evidence(row, failure), holds = shown ? conditions(row, failure) : [];
    if (!shown || holds.some(([, each]) => each === false)) return null;
    const confirmed = holds.filter(([, each]) => each).map(([words]) => words);
    const open = holds.filter(([, each]) => each === null).map(([words]) => words);
    const assumed = row.when.filter((word) => open.includes(word));
    return { row, ...shown, confirmed, open, assumed, rank: [-assumed.length, confirmed.length, shown.matched, -open.length] };
  }

  /** Compare two ranks, so that the greater comes first. */
  function better({ rank: one }, { rank: other }) {
    const place = one.findIndex((part, i) => part !== other[i]);
    return place < 0 ? 0 : other[place] - one[place];
  }

  const matching = (rows, failure) => rows.map((row) => matchSignature(row, failure)).filter(Boolean);

  /** Return the diagnoses that fit, best first. One line has one explanation, unless two rows fit it equally well. */
  function diagnose(failure) {
    if (outside.end(failure)) return [];
    const explained = new Map(), kept = [];
    for (const each of matching(rules.signatures, failure).sort(better)) {
      if ([...each.lines].some((line) => better(explained.get(line) ?? each, each) === 0)) kept.push(each);
      for (const line of each.lines) if (!explained.has(line)) explained.set(line, each);
    }
    return kept;
  }

  /** Return more specific diagnoses of the line of `broad`, which assume options that the log does not state. */
  function narrower(broad, failure) {
    return matching(rules.signatures.filter((row) => row !== broad.row), failure)
      .filter((each) => each.assumed.length && each.lines.has(broad.line)).sort(better);
  }

  return { diagnose, narrower };
})();
