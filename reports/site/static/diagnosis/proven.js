/* Selects and sorts the proven fixes of a diagnosis: settings first, then the versions nearest to the user's. */
// Follows reports/answers/fixes/proven.py (by_problem, ordered, closeness, minor) as of ddcfe3a9.
// Follows reports/answers/diagnosis/explain.py (PublishedEvidence.fixes) as of e82d2aec.
"use strict";

ftm.diagnosis.proven = (() => {
  const { observed } = ftm.diagnosis;

  /** Return the fixes of a signature for a log: of each proof, the red cell nearest to the green one that it admits. */
  function fixes(evidence, failure) {
    const assumed = evidence.isUnquantised ? ["none"] : null;
    const [quant, ...others] = observed.observe(failure), values = [quant ?? assumed, ...others];
    return evidence.proofs.map((proof) => proof.find(([cell]) => observed.admits(values, cell))?.[1]).filter(Boolean);
  }

  /** Return the number of packages with the same minor release. */
  const closeness = (pins, versions) => Object.entries(versions)
    .filter(([name, version]) => pins[name] && ftm.versions.haveSameMinor(pins[name], version)).length;

  function compared(one, other) {
    const place = one.findIndex((part, i) => part !== other[i]);
    return place < 0 ? 0 : one[place] < other[place] ? -1 : 1;
  }

  /** Return each fix once, with all its green cells. */
  function ordered(found, versions, { sets, kinds }) {
    const age = new Map(Object.keys(sets).map((key, number) => [key, number])); // oldest first
    const likeness = new Map(found.map((fix) => [fix, [-closeness(sets[fix.set] ?? {}, versions), -(age.get(fix.set) ?? 0)]]));
    const alike = new Map();
    for (const fix of found) {
      const description = fix.kind === "versions" ? fix.because || fix.change : fix.change || fix.because;
      const key = JSON.stringify([fix.kind, description, fix.device]);
      alike.set(key, [...(alike.get(key) ?? []), fix]);
    }
    const merged = [...alike.values()].map((each) => {
      const best = each.toSorted((a, b) => compared(likeness.get(a), likeness.get(b)));
      const because = best.find((fix) => fix.because)?.because ?? "";
      const [close, young] = likeness.get(best[0]);
      const rank = [Number(best[0].device === "cpu"), kinds.indexOf(best[0].kind), close, best[0].change.split(",").length, young];
      const green = [...new Set(best.flatMap((fix) => fix.green))], against = best.flatMap((fix) => fix.against);
      return [rank, { ...best[0], because, green, against }];
    });
    return merged.sort(([a], [b]) => compared(a, b)).map(([, fix]) => fix);
  }

  return { fixes, ordered };
})();
