/* Judges the jobs that fixes lead to, for the versions of a log: what is red after a fix, and was not before. */
// Follows reports/answers/judgement/consequences.py (Consequences) as of 3da5c70f.
// Follows reports/answers/judgement/coverage.py (MeasuredCells.cells_with, MeasuredCells.coverage, MeasuredCells.avoids, one_per_cause, nearest) as of 9d68ab95.
// Follows reports/answers/judgement/judge.py (judge, is_sure, is_shown_by, one_per_cause) as of 62b98b07.
// Follows reports/answers/judgement/known_errors.py (MeasuredErrors.met_by, MeasuredErrors.affecting) as of 53a34395.
// Follows reports/answers/judgement/nearest_sets.py (differing_packages) as of 6e9f8025.
"use strict";

ftm.diagnosis.consequences = (() => {
  const { compare } = ftm.versions;
  const CERTAIN = ["yes", "between"];

  /** Return the first red cell of each cause: training comes before what follows from it. */
  function onePerCause(reds) {
    return [...new Map(reds.toReversed().map((red) => [red.cause, red])).values()].toReversed();
  }

  /** Return one red cell per cause: the one with the fewest settings. */
  function fewestSettings(cells) {
    const byCause = new Map();
    for (const cell of cells.toSorted((a, b) => a.settings - b.settings)) if (!byCause.has(cell.cause)) byCause.set(cell.cause, cell);
    return [...byCause.values()];
  }

  /** The judgement of one device, from the data that Python selects: `consequence_data.py` describes it. */
  class Consequences {
    constructor(data, device) {
      this.data = data;
      Object.assign(this, data.devices[device]);
    }

    /** Return the cells of some rows on the sets that have the given versions of every package that their cases use. */
    cells(numbers, versions) {
      return this.sets.flatMap((set, column) => {
        const differs = (name) => !versions[name] || compare(versions[name], set.pins[name]) !== 0;
        const differing = new Set(Object.keys(set.pins).filter(differs));
        return numbers.filter((number) => this.rows[number].verdicts[column] !== null)
          .filter((number) => !this.rows[number].uses.some((name) => differing.has(name)))
          .map((number) => this.cell(number, this.rows[number].verdicts[column], set.key));
      });
    }

    cell(row, verdict, set) {
      const { settings, case: name } = this.rows[row];
      return { row, settings, name: `${set}__${name}`, green: verdict < 0, ...(verdict < 0 ? {} : this.causes[verdict]), case: name };
    }

    /** Return the red cells that a job covers in one of its flows. */
    coverage(flow, versions) {
      const known = new Map(flow.rows.map(([row, differing, isNear]) => [row, { differing, isNear }]));
      const cells = this.cells([...known.keys()], versions);
      const covered = cells.filter((each) => known.get(each.row).differing === 0);
      if (covered.length) {
        const greens = new Set(covered.filter((each) => each.green).map((each) => each.row));
        const red = covered.filter((each) => !each.green && !flow.extended[each.row]?.some((row) => greens.has(row)));
        return fewestSettings(red).filter((each) => !each.isOfMachine);
      }
      return this.nearRed(cells, known, flow);
    }

    /** Return the red cell that all nearest cells share, if the job covers none and avoids the failure nowhere. */
    nearRed(cells, known, flow) {
      const least = Math.min(...cells.map((each) => known.get(each.row).differing));
      const closest = cells.filter((each) => known.get(each.row).differing === least);
      const isClose = least === 1 && !closest.some((each) => each.green || each.isOfMachine)
        && !cells.some((each) => each.green && known.get(each.row).isNear);
      const reds = isClose ? fewestSettings(closest) : [];
      return reds.length === 1 && !flow.avoided[reds[0].row]?.includes(reds[0].cause) ? [{ ...reds[0], isNear: true }] : [];
    }

    judged(number, versions) {
      const job = this.jobs[number];
      const reds = onePerCause(job.flows.flatMap((flow) => this.coverage(flow, versions).map((red) => ({ ...red, words: flow.words }))));
      const met = (numbers) => numbers.map((each) => this.data.findings[each]).filter((each) => this.has(each, versions));
      const isShown = (error) => reds.some((red) => error.cases.includes(red.case) || red.problems.includes(error.id));
      return { reds, errors: met(job.errors).filter((error) => !isShown(error)), ofTrainer: met(job.ofTrainer) };
    }

    has(finding, versions) {
      return Boolean(versions[finding.package]) && CERTAIN.includes(ftm.knownErrors.affects(finding, versions[finding.package]));
    }

    /** Return what is red of a changed job and was not known of the job before, each as one sentence. */
    newDangers([before, after], versions, explained) {
      const old = this.judged(before, versions), now = this.judged(after, versions);
      const causes = new Set(old.reds.map((red) => red.cause));
      const met = new Set([...explained, ...[...old.errors, ...old.ofTrainer].map((each) => each.id)]);
      const brought = new Map([...now.errors, ...now.ofTrainer].map((each) => [each.id, each.title]));
      return [
        ...now.reds.filter((red) => !causes.has(red.cause) && !red.isNear).map((red) => `${red.words} is then red: ${red.name}`),
        ...[...brought].filter(([id]) => !met.has(id)).map(([id, title]) => `${title} (${id})`),
      ];
    }
  }

  return { Consequences };
})();
