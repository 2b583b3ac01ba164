/* Explains a pasted log, step by step as `ftmatrix explain` does: the Python modules of the same names in
   reports/answers/diagnosis have the reasons, and all expressions come from them with the data. */
"use strict";

ftm.diagnosis = (() => {
  const MATCHES = 50;
  let data = null, re = null;

  async function ready() {
    if (re) return;
    data = await ftm.load("errors");
    const compiled = ([source, flags], more = "") => new RegExp(source, flags + more);
    re = {};
    for (const room of Object.values(data.expressions)) for (const [name, each] of Object.entries(room)) re[name] ??= compiled(each);
    re.FAILURE_FRAME = compiled(data.expressions.tracebacks.FRAME);
    re.FRAME = new RegExp(`^(?:${data.expressions.frames.FRAME[0]})`, data.expressions.frames.FRAME[1]);
    re.FAILURE_FRAME = new RegExp(`^(?:${data.expressions.tracebacks.FRAME[0]})`);
    re.statements = data.statements.map((each) => compiled(each, "g"));
    re.signs = data.signs.map(([name, values, sign]) => [name, values, compiled(sign)]);
    re.loadedWithout = compiled(data.loadedWithout);
    for (const row of data.signatures) {
      row.regex = row.pattern && new RegExp(row.pattern, "gm");
      for (const name of ["near", "through", "elsewhere"]) row[`${name}Regex`] = row[name] && new RegExp(row[name], "m");
      row.when ??= [];
      row.versions ??= {};
    }
    for (const row of data.outside) row.regex = compiled(row.pattern, "g");
  }

  const starts = (expression, text) => { const match = expression.exec(text); return match !== null && match.index === 0; };

  // --- logs.py: distinct lines, and the versions that a log names ---
  function distinct(text) {
    const seen = new Set(), lines = [];
    for (const line of text.replaceAll("\r", "\n").split("\n")) {
      const key = line.replace(/[0-9]/g, "");
      if (seen.has(key)) continue;
      seen.add(key);
      lines.push(line.length <= 65536 ? line : `${line.slice(0, 32768)} ... ${line.slice(-32768)}`);
    }
    return lines.join("\n");
  }

  function versions(text) {
    const known = {};
    const collect = (expression, all) => {
      for (const match of text.matchAll(new RegExp(expression.source, `${expression.flags.replace("g", "")}g`))) {
        const at = match.index + match[0].indexOf(match.groups.name);
        const start = text.lastIndexOf("\n", at - 1) + 1, end = text.indexOf("\n", start);
        if (!all && re.NOT_INSTALLED_LINE.test(text.slice(start, end < 0 ? undefined : end))) continue;
        const name = match.groups.name.toLowerCase(), version = exact(match.groups.version);
        known[name === "pytorch" ? "torch" : name] = version;
      }
    };
    collect(re.MENTION);
    re.statements.forEach((each) => collect(each));
    collect(re.INCOMPATIBILITY, true);
    return Object.fromEntries(Object.entries(known).filter(([, version]) => version).sort(([a], [b]) => (a < b ? -1 : 1)));
  }

  const VERSION = /^v?(\d+(?:\.\d+)*)[-_.]?((?:a|b|c|rc|alpha|beta|pre|preview)[-_.]?\d*)?(?:[-_.]?(post|rev|r)[-_.]?(\d*))?(?:[-_.]?dev[-_.]?(\d*))?(\+[a-z0-9]+(?:[-_.][a-z0-9]+)*)?$/i;
  const exact = (text) => { const bare = text.replace(/[.!+_]+$/, ""); return VERSION.test(bare) ? bare.toLowerCase() : ""; };

  // --- PEP 440, as far as specifiers of this table need it ---
  function parsed(version) {
    const match = VERSION.exec(version);
    if (!match) return null;
    const release = match[1].split(".").map(Number);
    while (release.length > 1 && release.at(-1) === 0) release.pop();
    const pre = match[2] ? [{ a: 0, b: 1 }[match[2][0].toLowerCase()] ?? 2, Number(/\d*$/.exec(match[2])[0] || 0)] : null;
    return { release, pre, post: match[3] === undefined ? -1 : Number(match[4] || 0), dev: match[5] === undefined ? Infinity : Number(match[5] || 0) };
  }

  function compare(one, other) {
    for (let i = 0; i < Math.max(one.release.length, other.release.length); i++) {
      const difference = (one.release[i] ?? 0) - (other.release[i] ?? 0);
      if (difference) return difference;
    }
    const stage = ({ pre, post, dev }) => pre ? [0, ...pre] : post < 0 && dev < Infinity ? [-1, 0, 0] : [1, 0, 0];
    const [a, b] = [[...stage(one), one.post, one.dev], [...stage(other), other.post, other.dev]];
    for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
  }

  /** Tell if a version is in a specifier such as `>=2.7,<2.9,!=2.8.*`. */
  function contains(specifier, text) {
    const version = parsed(text);
    return specifier.split(",").filter(Boolean).every((part) => {
      const [, operator, wanted] = /^\s*(===|==|!=|<=|>=|~=|<|>)\s*(.+?)\s*$/.exec(part);
      if (wanted.endsWith(".*")) {
        const prefix = wanted.slice(0, -2).split(".").map(Number);
        return prefix.every((number, i) => number === (version.release[i] ?? 0)) === (operator === "==");
      }
      const other = parsed(wanted), order = compare(version, other);
      if (operator === "~=") {
        const prefix = wanted.split(".").slice(0, -1).map(Number);
        return order >= 0 && prefix.every((number, i) => number === (version.release[i] ?? 0));
      }
      const sameRelease = compare({ ...version, pre: null, post: -1, dev: Infinity }, { ...other, pre: null, post: -1, dev: Infinity }) === 0;
      if (operator === "<") return order < 0 && !(sameRelease && (version.pre || version.dev < Infinity) && !other.pre && other.dev === Infinity);
      if (operator === ">") return order > 0 && !(sameRelease && version.post >= 0 && other.post < 0);
      return { "==": order === 0, "===": wanted === text, "!=": order !== 0, "<=": order <= 0, ">=": order >= 0 }[operator];
    });
  }

  // --- ranks.py ---
  function rankOf(line) {
    const match = re.RANK.exec(line);
    return match && match.index === 0 ? match.slice(1).find((each) => each !== undefined) ?? "" : "";
  }

  function sortedByRank(ranks) {
    const order = [];
    const range = (start, end) => Array.from({ length: Math.max(0, end - start) }, (_, i) => start + i);
    const blocks = [];
    let start = 0, last = 0;
    ranks.forEach((rank, number) => {
      if (!rank) return;
      if (number - last > data.limits.gap) { blocks.push(range(start, number)); start = number; }
      last = number;
    });
    const tail = Math.min(ranks.length, last + 1);
    blocks.push(range(start, tail));
    if (tail < ranks.length) blocks.push(range(tail, ranks.length));
    for (const block of blocks) {
      const present = [...new Set(block.map((number) => ranks[number]))];
      if (present.filter(Boolean).length > 1) {
        const places = new Map(["", ...present.filter(Boolean)].map((rank, place) => [rank, place]));
        order.push(...block.toSorted((a, b) => places.get(ranks[a]) - places.get(ranks[b])));
      } else order.push(...block);
    }
    return order;
  }

  // --- frames.py ---
  class Frame {
    constructor(path, name, source) { Object.assign(this, { path, function: name, source }); }
    get package() {
      const found = re.INSTALLED.exec(this.path) ?? re.CHECKOUT.exec(this.path);
      return found === null || re.REMOTE_MODEL.test(this.path) ? "" : found.groups.package;
    }
    get isNeutral() {
      if (re.SHARDING.test(this.path)) return false;
      return data.neutral.includes(this.package) || (!this.package && re.STANDARD_LIBRARY.test(this.path));
    }
    get origin() {
      if (re.SHARDING.test(this.path) || data.stack.includes(this.package)) return "stack";
      return this.package ? "other" : "user";
    }
  }

  function framesOf(lines) {
    const found = [];
    let path = "", name = "", source = [];
    for (const line of lines) {
      const match = re.FRAME.exec(line);
      if (!match) { source.push(line.trim()); continue; }
      if (path) found.push(new Frame(path, name, source.join("\n")));
      path = match.groups.path ?? match.groups.cell ?? match.groups.colab;
      name = match.groups.function ?? match.groups.name ?? "";
      source = [];
    }
    if (path) found.push(new Frame(path, name, source.join("\n")));
    return found;
  }

  const culprit = (calls) => calls.findLast((each) => !each.isNeutral) ?? null;
  const origin = (calls) => culprit(calls)?.origin ?? "unknown";
  const isOverridden = (calls) => {
    const found = culprit(calls);
    return found !== null && found.origin === "user" && data.overridden.includes(found.function.split(".").at(-1));
  };

  // --- tracebacks.py ---
  const isLogRecord = (line) => re.LOG_RECORD.test(line);
  const isFrame = (line) => re.FAILURE_FRAME.test(line);
  function namesException(line) {
    const named = re.EXCEPTION.exec(line);
    return named !== null && !isLogRecord(line) && !re.RESOLVED.test(line.slice(0, named.index));
  }

  function findFailures(lines, ranks) {
    const found = [];
    const build = (start, stop) => {
      const own = lines.slice(start, stop), exceptions = own.filter(namesException);
      const hasLauncher = exceptions.length > 0 || own.some((line) => re.LAUNCHER_FRAME.test(line));
      found.push({ start, stop, launcher: hasLauncher && exceptions.every((line) => re.LAUNCHER_EXCEPTION.test(line)) });
    };
    let start = null, left = null;
    lines.forEach((line, number) => {
      const other = start !== null && ranks[number] && ranks[number] !== ranks[start];
      const ended = left !== null && (isFrame(line)
        ? !(number < 2 ? [] : lines.slice(number - 2, number)).some((each) => re.CHAIN.test(each))
        : left === 0 || isLogRecord(line) || re.WATCHDOG_RECORD.test(line));
      if (start !== null && (other || ended)) { build(start, number); start = left = null; }
      if (isFrame(line)) { start ??= number; left = null; }
      else if (namesException(line) || (start !== null && left === null && starts(re.LAST_LINE_OF_TRACEBACK, line))) { start ??= number; left = data.limits.message; }
      else if (left !== null && start !== null && !/^[ \t]/.test(line)) left -= 1;
    });
    if (start !== null) build(start, lines.length);
    return found;
  }

  class LogFailures {
    constructor(lines, ranks) {
      this.lines = lines;
      const every = findFailures(lines, ranks);
      this.anyFailure = every.length > 0;
      const ofRanks = every.filter((each) => !each.launcher);
      const lasting = ofRanks.filter((each, i) => i === ofRanks.length - 1 || !this.isRecovered(each, ofRanks[i + 1]));
      this.failures = this.firstDeaths(lasting, ranks);
      this.recovered = new Set(ofRanks.filter((each) => !lasting.includes(each)).flatMap((each) => this.numbers(each)));
      this.failureAt = new Map(this.failures.flatMap((each) => this.numbers(each).filter((number) => !isLogRecord(lines[number])).map((number) => [number, each])));
    }
    numbers({ start, stop }) { return Array.from({ length: stop - start }, (_, i) => start + i); }
    isRecovered(failure, later) {
      if (failure.start > 0 && re.RETRY.test(this.lines[failure.start - 1])) return true;
      if (this.numbers(later).some((number) => re.COLLECTIVE.test(this.lines[number]))) return false;
      return this.lines.slice(failure.start, later.start).some((line) => starts(re.TRAINING_STEP, line));
    }
    isLostPeer(failure) {
      const exceptions = this.lines.slice(failure.start, failure.stop).filter(namesException);
      return exceptions.length > 0 && re.LOST_PEER.test(exceptions.at(-1));
    }
    firstDeaths(failures, ranks) {
      let own = failures.filter((each) => !this.isLostPeer(each));
      if (!own.length) own = [...failures];
      if (!ranks.length || !own.length) return own;
      const first = ranks[own[0].start];
      return own.filter((each) => [first, ""].includes(ranks[each.start]));
    }
    traceback(number) {
      const failure = this.failureAt.get(number);
      if (!failure) return [number];
      const links = this.numbers(failure).filter((each) => re.CHAIN.test(this.lines[each]));
      const start = Math.max(failure.start, ...links.filter((each) => each < number).map((each) => each + 1));
      const stop = Math.min(failure.stop, ...links.filter((each) => each > number));
      return this.numbers({ start, stop });
    }
    calls(number) { return framesOf(this.traceback(number).filter((each) => this.failureAt.has(each)).map((each) => this.lines[each])); }
    get death() {
      if (!this.failures.length) return null;
      const block = this.traceback(this.failures.at(-1).stop - 1);
      const texts = block.map((number) => this.lines[number].trim()).filter(Boolean);
      const named = block.filter((number) => namesException(this.lines[number])).map((number) => this.lines[number].trim());
      return { calls: this.calls(block.at(-1)), message: named[0] ?? texts.at(-1) ?? "" };
    }
    mayBeCause(number) {
      if (this.failureAt.size) return this.failureAt.has(number);
      if (this.anyFailure && isLogRecord(this.lines[number])) return false;
      return !this.lines.slice(Math.max(0, number - 1), number + 2).some((line) => re.RESOLVED.test(line));
    }
    hasTraceback(number) {
      const failure = this.failureAt.get(number);
      return failure !== undefined && this.numbers(failure).some((each) => isFrame(this.lines[each]));
    }
    context(number) {
      const failure = this.failureAt.get(number);
      const own = failure ? this.numbers(failure).filter((each) => this.failureAt.has(each)) : [number];
      if (this.hasTraceback(number)) return own;
      const first = Math.max(0, number - data.limits.context), last = Math.min(this.lines.length, number + data.limits.context + 1);
      const around = this.numbers({ start: first, stop: last }).filter((each) => !this.failureAt.has(each));
      return [...new Set([...own, ...around])].sort((a, b) => a - b);
    }
  }

  // --- symptoms.py ---
  class Symptom {
    constructor(text) {
      const plain = text.replaceAll("\r\n", "\n").replaceAll("\r", "\n").replace(new RegExp(re.COLOURS.source, "g"), "");
      const ofRank = plain.split("\n").map(rankOf);
      const stripped = plain.replace(new RegExp(re.PREFIXES.source, "gm"), "").split("\n");
      const order = sortedByRank(ofRank);
      this.lines = order.map((number) => stripped[number]);
      this.clean = this.lines.join("\n");
      this.bare = [...this.clean].some((char) => data.quotes.includes(char)) ? this.clean.replace(new RegExp(`[${data.quotes}]`, "g"), "") : this.clean;
      this.bareLines = this.bare.split("\n");
      this.starts = [0];
      for (const line of this.bareLines) this.starts.push(this.starts.at(-1) + line.length + 1);
      this.failures = new LogFailures(this.bareLines, order.map((number) => ofRank[number]));
      this.versions = versions(this.clean);
      this.death = this.failures.death;
      this.lastCalls = null;
    }
    numberAt(index) {
      let low = 0, high = this.bareLines.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (this.starts[middle] <= index) low = middle; else high = middle - 1;
      }
      return low;
    }
    near(number) { return this.failures.context(number).map((each) => this.bareLines[each]).join("\n"); }
  }

  // --- outside.py ---
  function outsideEnd(failure) {
    for (const row of data.outside) {
      for (const match of failure.bare.matchAll(row.regex)) {
        const number = failure.numberAt(match.index), line = failure.bareLines[number];
        const fatal = !(isLogRecord(line) || re.RETRY.test(line) || failure.failures.recovered.has(number));
        if (failure.failures.failureAt.has(number) || (row.anywhere && fatal)) return { id: row.id, says: row.says, line: failure.lines[number].trim() };
      }
    }
    return null;
  }

  function foreignCode(failure) {
    const death = failure.death, found = death && culprit(death.calls);
    if (!found || !["user", "other"].includes(found.origin)) return null;
    const path = found.path.split(/[/\\]/).slice(-2).join("/");
    const says = found.origin === "user" ? "the user's own code" : found.package;
    return { id: found.origin, says: `${says} (${path}${found.function ? `, in ${found.function}` : ""})`, line: death.message };
  }

  // --- blame.py ---
  const same = (one, other) => one.length === other.length && one.every((frame, i) =>
    frame.path === other[i].path && frame.function === other[i].function && frame.source === other[i].source);
  const namesLibrary = (row, calls) => { const found = culprit(calls); return found !== null && Boolean(row.elsewhereRegex?.test(found.path) ?? true); };

  function mayBeBlamed(row, failure, number) {
    const found = failure.failures, own = found.calls(number), last = failure.death;
    if (last && !isAdmitted(row, failure, found.failures.at(-1).stop - 1, last.calls, last.message)) {
      return same(last.calls, own) && Boolean(row.throughRegex) && row.throughRegex.test(failure.near(number));
    }
    return isAdmitted(row, failure, number, own, failure.bareLines[number]);
  }

  function isAdmitted(row, failure, number, calls, message) {
    if (re.SHADOW.test(message)) return false;
    const allowed = Boolean(row.elsewhereRegex) && row.elsewhereRegex.test(failure.near(number));
    const from = origin(calls);
    const isAlone = failure.bareLines.filter((line) => line.trim()).length <= data.limits.alone;
    if (from === "unknown" && row.elsewhereRegex && (calls.length || !isAlone)) return row.elsewhereRegex.test(failure.bare) || re.PARTS.test(failure.bare);
    if (from === "stack" || from === "unknown") return true;
    if (from === "other") return re.IMPORT.test(message) || (allowed && namesLibrary(row, calls));
    const source = calls.findLast((each) => each.origin === "user")?.source ?? "";
    if (isOverridden(calls) || re.DETACHED.test(source)) return allowed && namesLibrary(row, calls);
    return allowed || re.IMPORT.test(message) || re.PARTS.test(message);
  }

  // --- diagnose.py ---
  function evidence(row, failure) {
    if (!row.regex) return null;
    const byLine = new Map();
    let count = 0;
    row.regex.lastIndex = 0;
    for (const match of failure.bare.matchAll(row.regex)) {
      const number = failure.numberAt(match.index);
      if (!failure.failures.mayBeCause(number)) continue;
      if (row.nearRegex && !row.nearRegex.test(failure.near(number))) continue;
      if (row.throughRegex && failure.failures.hasTraceback(number) && !row.throughRegex.test(failure.near(number))) continue;
      if (!mayBeBlamed(row, failure, number)) continue;
      byLine.set(number, match[0]);
      if (++count === MATCHES) break;
    }
    if (!byLine.size) return null;
    const lines = [...byLine.keys()].map((number) => failure.lines[number].trim());
    return { line: lines.find((line) => !line.startsWith("raise ")) ?? lines[0], matched: Math.max(...[...byLine.values()].map((text) => [...text].length)), lines: new Set(lines) };
  }

  function matchSignature(row, failure) {
    const shown = evidence(row, failure);
    if (!shown) return null;
    const confirmed = [], open = [];
    if (row.near) confirmed.push(`${row.nearWords} is near it`);
    if (row.phases) open.push(`in ${row.phases.join(" or ")}`);
    open.push(...row.when);
    if (row.device) open.push(`on ${row.device}`);
    for (const [name, specifier] of Object.entries(row.versions)) {
      const version = failure.versions[name];
      if (!version || !parsed(version)) open.push(`${name}${specifier}`);
      else if (contains(specifier, version)) confirmed.push(`${name}${specifier}`);
      else return null;
    }
    const assumed = row.when.filter((word) => open.includes(word));
    return { row, ...shown, confirmed, open, assumed, rank: [-assumed.length, confirmed.length, shown.matched, -open.length] };
  }

  const better = (one, other) => { for (let i = 0; i < one.length; i++) if (one[i] !== other[i]) return other[i] - one[i]; return 0; };

  function diagnose(failure) {
    if (outsideEnd(failure)) return [];
    const ordered = data.signatures.map((row) => matchSignature(row, failure)).filter(Boolean).sort((a, b) => better(a.rank, b.rank));
    const explained = new Map(), kept = [];
    for (const each of ordered) {
      if ([...each.lines].some((line) => better(explained.get(line) ?? each.rank, each.rank) === 0)) kept.push(each);
      for (const line of each.lines) if (!explained.has(line)) explained.set(line, each.rank);
    }
    return kept;
  }

  // --- observed_options.py: fixes that the log contradicts are left out ---
  function observed(text) {
    const values = {};
    for (const name of ["quant", "method", "strategy"]) {
      const shown = re.signs.filter(([option, , sign]) => option === name && sign.test(text)).map(([, each]) => each);
      if (shown.length) values[name] = name === "method" ? shown.reduce((least, each) => (each.length < least.length ? each : least)) : [...new Set(shown.flat())];
      else if (name === "quant" && re.loadedWithout.test(text)) values[name] = ["none"];
    }
    return values;
  }

  function fixes(diagnosis, failure) {
    const values = { ...(diagnosis.row.unquantised ? { quant: ["none"] } : {}), ...observed(failure.bare) };
    return (diagnosis.row.fixes ?? []).filter((fix) => Object.keys(fix.options).length === 0
      || Object.entries(values).every(([name, each]) => each.includes(fix.options[name])));
  }

  /** Explain a text: its diagnoses, best first, or why it has none. */
  async function explain(text) {
    await ready();
    const failure = new Symptom(distinct(text));
    const found = diagnose(failure);
    return {
      versions: failure.versions,
      diagnoses: found.map((each) => ({ ...each, fixes: fixes(each, failure) })),
      outside: found.length ? null : outsideEnd(failure) ?? foreignCode(failure),
    };
  }

  return { explain, contains, ready };
})();
