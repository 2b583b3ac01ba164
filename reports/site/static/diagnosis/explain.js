/* Explains a pasted log: its diagnoses, with the fixes that published runs prove, and what is known against them. */
// Follows reports/answers/diagnosis/explain.py (explain, explain_diagnosis, with_dangers, consequences, red_elsewhere) as of 07eba554.
// Follows reports/answers/diagnosis/dangers.py (of_change) as of c16c5e7d.
"use strict";

ftm.diagnosis.explain = (() => {
  const { Symptom, logs, diagnose: { diagnose, narrower }, outside, proven, consequences: { Consequences } } = ftm.diagnosis;

  /** Return a fix with what the judgement of the changed job knows against it. */
  function withDangers(fix, row, versions, judges, sets) {
    const pins = sets[fix.set];
    const found = fix.jobs ? [pins, { ...pins, ...versions }].flatMap((each) => judges[fix.device].newDangers(fix.jobs, each, row.problems)) : [];
    return { ...fix, dangers: [...new Set([...found, ...fix.against])] };
  }

  /** Explain a text: its diagnoses, best first, with their evidence; or why it has none. */
  return async (text) => {
    await ftm.diagnosis.ready();
    const { text: read, isCut } = logs.distinct(text), failure = new Symptom(read), found = diagnose(failure);
    if (!found.length) return { versions: failure.versions, isCut, diagnoses: [], outside: outside.end(failure) ?? outside.foreignCode(failure) };
    const data = await ftm.load("consequences");
    const judges = Object.fromEntries(Object.keys(data.devices).map((device) => [device, new Consequences(data, device)]));
    const diagnoses = await Promise.all(found.map(async (each) => {
      const evidence = await ftm.load(`explain/${each.row.id}`);
      const fixes = proven.ordered(proven.fixes(evidence, failure), failure.versions, data);
      return {
        ...each, ...evidence, narrower: narrower(each, failure),
        fixes: fixes.map((fix) => withDangers(fix, each.row, failure.versions, judges, data.sets)),
      };
    }));
    return { versions: failure.versions, isCut, diagnoses, outside: null };
  };
})();
