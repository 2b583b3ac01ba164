"use strict";
// Filters and dialogs. Insert all text as text nodes: an error message may contain markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const dialog = document.getElementById("dialog");
  const table = document.getElementById("matrix");
  const filters = document.getElementById("filters");

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  function shown(value) {
    if (typeof value !== "number" || Number.isInteger(value)) return String(value);
    return String(Number(value.toPrecision(4)));
  }

  function section(title, ...children) {
    return make("section", {}, make("h3", {}, title), ...children);
  }

  function pairs(entries) {
    const list = make("dl");
    for (const [name, value] of entries) {
      if (value !== null && value !== "") list.append(make("dt", {}, name), make("dd", {}, shown(value)));
    }
    return list;
  }

  function named(title, values) {
    const entries = Object.entries(values || {});
    return entries.length ? [section(title, pairs(entries))] : [];
  }

  function error({ error }) {
    if (!error) return [];
    const rank = error.rank === null ? "" : ` (rank ${error.rank})`;
    const trace = error.traceback
      ? [make("details", {}, make("summary", {}, "Traceback"), make("pre", {}, error.traceback))]
      : [];
    return [section(`Error${rank}`, make("pre", { class: "error" }, `${error.type}: ${error.message}`), ...trace)];
  }

  function checks({ checks }) {
    if (!checks) return [];
    const head = ["check", "value", "bound", ""].map((name) => make("th", { scope: "col" }, name));
    const rows = [...checks].sort((a, b) => a.ok - b.ok).map((check) =>
      make("tr", check.ok ? {} : { class: "missed" },
        make("td", {}, check.name),
        make("td", { class: "number" }, shown(check.value)),
        make("td", { class: "number" }, `${check.op} ${shown(check.bound)}`),
        make("td", { class: "verdict" }, check.ok ? "✓ ok" : "✗ off")));
    const body = make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
    return [section(`Checks: ${checks.filter((check) => check.ok).length} of ${checks.length} hold`, body)];
  }

  function evidence({ evidence }) {
    if (!evidence) return [];
    const links = evidence.map(({ name, href }) => make("li", {}, make("a", { href }, name)));
    return [section("Evidence", make("ul", {}, ...links))];
  }

  function cause({ cause }) {
    if (!cause) return [];
    const why = data.causes[cause];
    if (!why) return [section("Cause", make("p", {}, "unexplained: no known failure matches"))];
    const links = why.links.map(({ name, href }) => make("li", {}, make("a", { href, rel: "noreferrer" }, name)));
    return [section("Cause", make("p", {}, `${why.cause} (${why.kind})`),
      ...(why.advice ? [make("p", { class: "hint" }, `Unverified advice: ${why.advice}`)] : []),
      ...(links.length ? [make("ul", {}, ...links)] : []))];
  }

  function differs({ differs }) {
    return differs ? [section("CPU and GPU differ", ...differs.map((line) => make("p", {}, line)))] : [];
  }

  function fix({ fix }) {
    if (!fix) return [];
    const lines = fix.edit.split("\n").map((line) => make("span", { class: changed(line) }, `${line}\n`));
    return [section("Fix", make("p", {}, fix.words),
      ...(fix.edit ? [make("pre", { class: "diff" }, ...lines)] : []),
      ...(fix.proof ? [make("p", { class: "hint" }, fix.proof)] : []))];
  }

  function changed(line) {
    if (/^(---|\+\+\+) /.test(line)) return "file";
    return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "kept";
  }

  function copied(text, button) {
    const field = make("textarea", {}, text);
    const done = () => { button.textContent = "Copied"; };
    // The clipboard API is missing in pages opened from a file in some browsers.
    const byHand = () => { dialog.append(field); field.select(); document.execCommand("copy"); field.remove(); done(); };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(done, byHand);
    else byHand();
  }

  function command(text) {
    const button = make("button", { type: "button" }, "Copy");
    button.addEventListener("click", () => copied(text, button));
    return section("Run this cell again", make("div", { class: "again" }, make("pre", {}, text), button));
  }

  function versions(set) {
    const rest = { "torch backend": set.torch_backend, lock: set.lock.slice(0, 19) };
    return Object.entries({ python: set.python, ...set.pins, ...rest });
  }

  function describe(cell) {
    const set = data.sets[cell.set];
    const known = data.cases[cell.case] || { why: "", options: {} };
    const look = data.looks[cell.verdict];
    const when = { "started": cell.started, "seconds": cell.seconds, "attempt": cell.attempt, "hardware": cell.hardware };
    const given = Object.entries(when).filter(([, value]) => value !== undefined);
    const phase = cell.phase ? ` in ${cell.phase}` : "";
    const reason = cell.reason || (cell.verdict === "blocked" ? set.blocked : "");
    return [
      make("p", {}, make("span", { class: `tag ${cell.verdict}` }, `${look.sign} ${look.word}`), `${phase}: ${look.meaning}`),
      ...(reason ? [make("p", {}, reason)] : []),
      ...(known.why ? [make("p", { class: "hint" }, known.why)] : []),
      ...cause(cell), ...differs(cell), ...fix(cell), ...error(cell), ...checks(cell), command(cell.again), ...evidence(cell),
      make("div", { class: "columns" },
        ...named("Options", known.options), section(`Versions of ${cell.set}`, pairs(versions(set))),
        ...named("Metrics", cell.metrics), ...named("Facts", cell.facts),
        ...(given.length ? [section("Run", pairs(given))] : [])),
    ];
  }

  function describeSet(key) {
    const set = data.sets[key];
    return [
      ...(set.blocked ? [make("p", {}, make("span", { class: "tag blocked" }, "blocked"), ` ${set.blocked}`)] : []),
      make("p", {}, set.why), ...set.notes.map((note) => make("p", {}, note)),
      section("Versions", pairs([["as of", set.as_of], ...versions(set)])), ...named("Facts", set.facts),
    ];
  }

  function open(title, children) {
    const close = make("button", { type: "button", "aria-label": "Close" }, "✕");
    close.addEventListener("click", () => dialog.close());
    const heading = make("h2", { id: "dialog-title", tabindex: "-1" }, title);
    dialog.replaceChildren(make("div", { class: "bar" }, heading, close), make("div", { class: "body" }, ...children));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    heading.focus();
  }

  function follow() {
    let key = "";
    try { key = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    if (Object.hasOwn(data.cells, key)) open(key, describe(data.cells[key]));
    else if (dialog.open) dialog.close();
  }

  function matches(row, words) {
    if (!words.length) return true;
    const group = row.parentElement.querySelector(".group").textContent;
    const texts = [group, row.dataset.case, ...[...row.querySelectorAll(".cell")].map((cell) => cell.title)];
    const text = texts.join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function filter() {
    const wanted = new Set([...filters.querySelectorAll('.chip[aria-pressed="true"]')].map((chip) => chip.dataset.verdict));
    const words = document.getElementById("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const set = document.getElementById("set").value;
    for (const cell of table.querySelectorAll("[data-set]")) cell.hidden = set !== "" && cell.dataset.set !== set;
    let count = 0;
    for (const row of table.querySelectorAll("tr[data-case]")) {
      const cells = [...row.querySelectorAll("td:not([hidden]) .cell")];
      const fits = cells.filter((cell) => !wanted.size || wanted.has(cell.dataset.verdict));
      for (const cell of cells) cell.classList.toggle("dim", !fits.includes(cell));
      row.hidden = !fits.length || !matches(row, words);
      if (!row.hidden) count += fits.length;
    }
    for (const body of table.tBodies) body.hidden = !body.querySelector("tr[data-case]:not([hidden])");
    const active = wanted.size || words.length || set;
    document.getElementById("shown").textContent = active ? `${count} ${count === 1 ? "cell matches" : "cells match"}` : "";
  }

  filters.addEventListener("click", ({ target }) => {
    const chip = target.closest(".chip");
    if (!chip) return;
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    filter();
  });
  filters.addEventListener("input", filter);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => {
    for (const chip of filters.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", "false");
    setTimeout(filter);
  });
  table.addEventListener("click", ({ target }) => {
    const cell = target.closest(".cell");
    const head = target.closest(".head");
    if (cell) location.hash = encodeURIComponent(cell.dataset.cell);
    if (head) open(head.parentElement.dataset.set, describeSet(head.parentElement.dataset.set));
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  });
  window.addEventListener("hashchange", follow);
  follow();
  filter();
})();
