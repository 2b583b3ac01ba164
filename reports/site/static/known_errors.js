/* Tells which versions have a known error: by the releases that it states, or else by its measured neighbours. */
// Follows reports/answers/judgement/known_errors.py (MeasuredErrors.affects, placed, has_error) as of 5c952020.
"use strict";

ftm.knownErrors = (() => {
  const { compare, contains } = ftm.versions;

  /** Place a version among measured ones, of which some are red. */
  function placed(version, measured) {
    const pairs = Object.entries(measured), same = pairs.find(([each]) => compare(each, version) === 0);
    if (same) return same[1] ? "yes" : "no";
    const older = pairs.filter(([each]) => compare(each, version) < 0).sort(([a], [b]) => compare(b, a))[0];
    const newer = pairs.filter(([each]) => compare(each, version) > 0).sort(([a], [b]) => compare(a, b))[0];
    const around = [older, newer].filter(Boolean).map(([, isRed]) => isRed);
    if (!around.some(Boolean)) return "no";
    return around.every(Boolean) && older && newer ? "between" : "open";
  }

  /** Return the relation of a version to an error: yes, between (versions on both sides have it), open or no. */
  function affects(error, version) {
    if (error.versions) return contains(error.versions, version) ? "yes" : "no";
    return placed(version, error.measured);
  }

  return { affects };
})();
