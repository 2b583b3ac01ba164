/* The distinct lines of a log, and the versions that it names. */
// Follows reports/answers/diagnosis/logs.py (distinct_text, blocks, new_lines, error_lines, versions, installed_versions, canonical_name, exact_version) as of df95939c.
"use strict";

ftm.diagnosis.logs = (() => {
  const { rules } = ftm.diagnosis;

  const CHUNK = 1 << 15; // bytes that a call can take as its arguments

  /** Return the bytes of a text, each as one character, so that all sizes are those of the command. */
  function bytesOf(text) {
    const bytes = new TextEncoder().encode(text), parts = [];
    for (let at = 0; at < bytes.length; at += CHUNK) parts.push(String.fromCharCode(...bytes.subarray(at, at + CHUNK)));
    return parts.join("");
  }

  function textOf(characters) {
    const bytes = new Uint8Array(characters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes);
  }

  /** Yield a text in parts that are cut between lines, without the line breaks at the cuts. */
  function* blocks(bytes) {
    const { BLOCK_SIZE } = rules.logs;
    let rest = "";
    for (let at = 0; at < bytes.length; at += BLOCK_SIZE) {
      const block = (rest + bytes.slice(at, at + BLOCK_SIZE)).replaceAll("\r", "\n");
      const cut = block.lastIndexOf("\n") + 1 || block.length;
      yield block.slice(0, cut).replace(/\n$/, "");
      rest = block.slice(cut);
    }
    if (rest) yield rest;
  }

  function shortened(line) {
    const { LONGEST_LINE, ELLIPSIS } = rules.logs;
    return line.length <= LONGEST_LINE ? line : line.slice(0, LONGEST_LINE / 2) + ELLIPSIS + line.slice(-LONGEST_LINE / 2);
  }

  /** Yield, block by block, the lines that are new, ignoring digits, and each version that `pip show` states. */
  function* newLines(every) {
    const seen = new Set();
    for (const block of every) {
      const keys = block.replace(/[0-9]/g, "").split("\n"), lines = [];
      block.split("\n").forEach((line, number) => {
        if (seen.has(keys[number]) && !line.startsWith("Version: ")) return;
        seen.add(keys[number]);
        lines.push(shortened(line));
      });
      if (seen.size > rules.logs.REMEMBERED_LINES) seen.clear();
      yield lines;
    }
  }

  /** Return the lines about errors, each with the lines before it, which hold its traceback. */
  function errorLines(lines) {
    const { ERROR_WORDS, LINES_BEFORE, LINES_AFTER } = rules.logs, found = [];
    let end = 0; // of the lines that were found already
    lines.forEach((line, number) => {
      if (!ERROR_WORDS.some((word) => line.includes(word))) return;
      found.push(...lines.slice(Math.max(end, number - LINES_BEFORE), number + LINES_AFTER));
      end = Math.max(end, number + LINES_AFTER);
    });
    return found;
  }

  /** Return each line of a text once; a very long text keeps only lines about errors, and its end, and is `isCut`. */
  function distinct(text) {
    const { ALL_LINES_SIZE, ERROR_LINES_SIZE, ERROR_LINES_PER_BLOCK, END_SIZE } = rules.logs, parts = [];
    let end = "", room = ALL_LINES_SIZE, errorRoom = ERROR_LINES_SIZE, beyond = 0;
    for (const lines of newLines(blocks(bytesOf(text)))) {
      if (!lines.length) continue;
      const block = lines.join("\n");
      if (room > 0) {
        parts.push(block);
        room -= block.length;
        continue;
      }
      beyond += block.length + 1;
      end = `${end}\n${block}`.slice(-END_SIZE);
      if (errorRoom > 0) {
        const errors = errorLines(lines).join("\n").slice(0, ERROR_LINES_PER_BLOCK);
        parts.push(errors);
        errorRoom -= errors.length;
      }
    }
    return { text: textOf([...parts, ...(end ? [end] : [])].join("\n")), isCut: beyond > END_SIZE };
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
