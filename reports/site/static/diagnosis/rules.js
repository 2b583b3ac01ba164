/* The rules of the diagnosis, which Python exports: signatures, expressions, lists and limits. */
"use strict";

ftm.diagnosis = { rules: {} };

ftm.diagnosis.ready = (() => {
  const { rules } = ftm.diagnosis;
  const compiled = ([source, flags], more = "") => new RegExp(source, flags + more);
  let loading = null;

  function compile(data) {
    const expressions = (module) =>
      Object.fromEntries(Object.entries(data.expressions[module]).map(([name, each]) => [name, compiled(each)]));
    for (const module of Object.keys(data.expressions)) rules[module] = { ...expressions(module), ...data.values[module] };
    rules.logs.STATEMENT = data.statements.map((each) => compiled(each));
    rules.observed_options.SIGNS = data.signs.map(([name, values, sign]) => [name, values, compiled(sign)]);
    rules.signatures = data.signatures.map((row) => ({
      when: [], versions: {}, problems: [], links: [], ...row,
      regex: row.pattern && new RegExp(row.pattern, "gm"),
      ...Object.fromEntries(["near", "through", "elsewhere"].map((name) => [`${name}Regex`, row[name] && new RegExp(row[name], "m")])),
    }));
    rules.outside.causes = data.outside.map((row) => ({ ...row, regex: compiled(row.pattern, "g") }));
  }

  /** Load and compile the rules once. */
  return () => (loading ??= ftm.load("errors").then(compile));
})();

/** Return the first match of an expression if it starts the text, as `re.match` of Python does. */
ftm.diagnosis.matchAtStart = (expression, text) => {
  const match = expression.exec(text);
  return match !== null && match.index === 0 ? match : null;
};
