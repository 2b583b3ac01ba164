/* Reads a query in a user's words, with the vocabulary of `ftmatrix can-i-use`.

   Two forms are for the matrix alone: `-word` or `not:word` leaves out what a word finds, and `is:word` asks for squares. */
"use strict";

ftm.query = (() => {
  const VERSION = String.raw`\d+(?:\.\d+)*(?:\.?(?:post|rc|dev)\d*)?`;
  const SQUARE = /(?<=^| )is:([\w,-]+)/g;
  const TERM = /^([a-z_0-9]+)(!?=)(.+)$/;
  let vocabulary = null;

  async function ready() {
    if (vocabulary) return vocabulary;
    const data = await ftm.load("words");
    const names = [...Object.keys(data.aliases), ...data.packages].join("|");
    const version = String.raw`(${names})(?: version)? ?(==|>=|<=|~=|<|>|=|@)? ?v?(${VERSION})(?:\+\w+)?(?![\w.*])`;
    vocabulary = {
      ...data,
      fillers: new Set(data.fillers),
      phrases: data.phrases.map(([pattern, words]) => [new RegExp(pattern, "g"), ` ${words} `]),
      version: new RegExp(String.raw`\b${version}`, "g"),
      negated: new RegExp(String.raw`(?<=^|\s)(?:[-\u2010-\u2015\u2212](?=\w)|not:)(?:${version}|\S+)`, "gi"),
    };
    return vocabulary;
  }

  const plain = (text) => text.toLowerCase().replace(/[\u2010-\u2015]/g, "-").replace(/\u2019/g, "'")
    .replace(/[?;]|(?<!\w)["'(]|["')](?!\w)|[,.:!](?= |$)/g, " ").replace(/\s+/g, " ").trim();

  /** Return what a text names, and as `without` what each of its negated terms names. */
  function parse(text) {
    const without = [];
    const positive = text.replace(vocabulary.negated, (term) => {
      without.push(read(term.replace(/^(?:not:|.)/i, "")));
      return " ";
    });
    return { ...read(positive), without };
  }

  /** Return the options, the versions, the words for squares and the remaining words that a text names. */
  function read(text) {
    const options = {}, versions = [], squares = [], rest = [], contradictions = [];
    const v = vocabulary;
    let left = plain(text).replace(SQUARE, (_, words) => {
      squares.push(words.split(","));
      return " ";
    }).replace(v.version, (_, name, operator, version) => {
      versions.push({ name: v.aliases[name] ?? name, operator: (operator ?? "").replace(/^[=@]$/, "") || "==", version });
      return " ";
    });
    const exact = Object.hasOwn(v.options, "flow") && /(?:train|merge|api|load|resume|save_reload|generate)[-_][\w-]+-/.test(left);
    if (!exact) for (const [pattern, words] of v.phrases) left = left.replace(pattern, words);
    for (const token of left.split(/\s+/)) {
      const word = token.replace(/^[,.:!+&|/()'"]+|[,.:!+&|/()'"]+$/g, "");
      for (const part of word.includes("=") || exact ? [word] : word.split(/[/+&]/)) {
        if (!part || v.fillers.has(part.replaceAll("_", "-"))) continue;
        const named = meaning(part);
        if (!named) rest.push(part);
        for (const [name, values] of Object.entries(named ?? {})) {
          const both = values.filter((value) => (options[name] ?? values).includes(value));
          if (both.length === 0) contradictions.push(name);
          options[name] = both.length ? both : values;
        }
      }
    }
    return { options, versions, squares, rest, contradictions };
  }

  function meaning(word) {
    const v = vocabulary, term = TERM.exec(word);
    if (term) {
      const name = v.renamed[term[1]] ?? term[1], values = v.options[name];
      if (!values) return null;
      const wanted = term[3].split(",");
      return { [name]: term[2] === "=" ? wanted : values.filter((value) => !wanted.includes(value)) };
    }
    const key = word.replaceAll("_", "-");
    return Object.hasOwn(v.words, key) ? v.words[key] : null;
  }

  const parts = (version) => ftm.versions.parsed(version)?.release ?? [];

  /** Tell if a version satisfies `torch 2.8` (every 2.8 release), `torch==2.8.0` or `torch>=2.8`. */
  function admits(wanted, version) {
    if (!version) return false;
    if (wanted.operator === "==") {
      const w = parts(wanted.version);
      return w.length < 3 ? w.every((part, i) => part === (parts(version)[i] ?? 0)) : ftm.versions.compare(version, wanted.version) === 0;
    }
    if (wanted.operator === "~=") {
      const w = parts(wanted.version).slice(0, -1);
      return ftm.versions.compare(version, wanted.version) >= 0 && w.every((part, i) => part === (parts(version)[i] ?? 0));
    }
    const order = ftm.versions.compare(version, wanted.version);
    return { ">=": order >= 0, "<=": order <= 0, ">": order > 0, "<": order < 0 }[wanted.operator];
  }

  const TRACE = /Traceback \(most recent call last\)|^\s*File "[^"]+", line \d+|(?:Error|Exception)\b:|\bloss\b.*\bnan\b/m;
  const looksLikeLog = (text) => TRACE.test(text) && (text.includes("\n") || /Error|Exception/.test(text));
  const looksLikeFreeze = (text) => (text.match(/^[\w.-]+(?:==|\s{2,})\d[\w.+!]*\s*$/gm) ?? []).length >= 2;

  return { ready, parse, admits, looksLikeLog, looksLikeFreeze };
})();
