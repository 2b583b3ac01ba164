/* Reads the quantisation, the method and the strategy of a job from its log, as far as the log shows them. */
// Follows reports/answers/diagnosis/observed_options.py (ObservedOptions, observe, signs_in) as of a7a3ec97.
"use strict";

ftm.diagnosis.observed = (() => {
  const { rules } = ftm.diagnosis;

  function shownValues(name, text) {
    const shown = rules.observed_options.SIGNS.filter(([option, , sign]) => option === name && sign.test(text)).map(([, values]) => values);
    if (!shown.length) return name === "quant" && rules.observed_options.LOADED_WITHOUT.test(text) ? ["none"] : null;
    return name === "method" ? shown.reduce((least, each) => (each.length < least.length ? each : least)) : shown.flat();
  }

  /** Return the values of each option that a text is compatible with; null for one that it does not show. */
  const observe = (failure) => rules.observed_options.NAMES.map((name) => shownValues(name, failure.bare));

  /** Tell if a log can come from a job with the values of a cell. A cell of a call has none, and is admitted. */
  const admits = (observed, values) => values === null || observed.every((each, i) => each === null || each.includes(values[i]));

  return { observe, admits };
})();
