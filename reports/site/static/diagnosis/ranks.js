/* Sorts the interleaved lines of several ranks, so that each rank's traceback is in one piece. */
// Follows reports/answers/diagnosis/ranks.py (rank_of, sorted_by_rank, blocks) as of 2ed84f50.
"use strict";

ftm.diagnosis.ranks = (() => {
  const { rules, matchAtStart } = ftm.diagnosis;

  /** Return the rank that a line names; an empty string if it names none. */
  const rankOf = (line) => matchAtStart(rules.ranks.RANK, line)?.slice(1).find((each) => each !== undefined) ?? "";

  const range = (start, stop) => Array.from({ length: Math.max(0, stop - start) }, (_, i) => start + i);

  /** Return ranges of lines that together cover all lines, cut before a long gap in the output of ranks. */
  function blocks(ranks) {
    const found = [];
    let start = 0, last = 0;
    ranks.forEach((rank, number) => {
      if (!rank) return;
      if (number - last > rules.ranks.GAP) {
        found.push(range(start, number));
        start = number;
      }
      last = number;
    });
    const tail = Math.min(ranks.length, last + 1);
    found.push(range(start, tail));
    if (tail < ranks.length) found.push(range(tail, ranks.length));
    return found;
  }

  /** Return the numbers of the lines in an order that keeps the lines of each rank together. */
  function sortedByRank(ranks) {
    return blocks(ranks).flatMap((block) => {
      const writing = [...new Set(block.map((number) => ranks[number]).filter(Boolean))];
      if (writing.length < 2) return block;
      const place = new Map(["", ...writing].map((rank, i) => [rank, i]));
      return block.toSorted((a, b) => place.get(ranks[a]) - place.get(ranks[b]));
    });
  }

  return { rankOf, sortedByRank, range };
})();
