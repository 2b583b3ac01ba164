"use strict";
// Filters the table and opens dialogs. Inserts all text as text nodes, because error messages may contain markup.
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

  function formatValue(value) {
    if (typeof value !== "number" || Number.isInteger(value)) return String(value);
    return String(Number(value.toPrecision(4)));
  }

  function section(title, ...children) {
    return make("section", {}, make("h3", {}, title), ...children);
  }

  function definitionList(entries) {
    const list = make("dl");
    for (const [name, value] of entries) {
      if (value !== null && value !== "") list.append(make("dt", {}, name), make("dd", {}, formatValue(value)));
    }
    return list;
  }

  function optionalSection(title, values) {
    const entries = Object.entries(values || {});
    return entries.length ? [section(title, definitionList(entries))] : [];
  }

  function errorSections({ error }) {
    if (!error) return [];
    const rank = error.rank === null ? "" : ` (rank ${error.rank})`;
    const trace = error.traceback
      ? [make("details", {}, make("summary", {}, "Traceback"), make("pre", {}, error.traceback))]
      : [];
    return [section(`Error${rank}`, make("pre", { class: "error" }, `${error.type}: ${error.message}`), ...trace)];
  }

  function checkSections({ checks }) {
    if (!checks) return [];
    const head = ["check", "value", "bound", ""].map((name) => make("th", { scope: "col" }, name));
    const rows = [...checks].sort((a, b) => a.ok - b.ok).map((check) =>
      make("tr", check.ok ? {} : { class: "missed" },
        make("td", {}, check.name),
        make("td", { class: "number" }, formatValue(check.value)),
        make("td", { class: "number" }, `${check.op} ${formatValue(check.bound)}`),
        make("td", { class: "verdict" }, check.ok ? "✓ ok" : "✗ failed")));
    const body = make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
    return [section(`Checks: ${checks.filter((check) => check.ok).length} of ${checks.length} passed`, body)];
  }

  function locationSections({ location }) {
    if (!location) return [];
    const head = ["module", "output", "gradient"].map((name) => make("th", { scope: "col" }, name));
    const rows = location.modules.map(([name, output, gradient]) =>
      make("tr", {}, make("td", {}, name),
        ...[output, gradient].map((value) => make("td", { class: "number" }, value === null ? "" : formatValue(value)))));
    const curves = make("table", { class: "plain" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows));
    return [section("First deviations", make("ul", {}, ...location.lines.map((line) => make("li", {}, line))),
      make("details", {}, make("summary", {}, "Relative deviation of each module, in order"), curves))];
  }

  function evidenceSections({ evidence }) {
    if (!evidence) return [];
    const links = evidence.map(({ name, href }) => make("li", {}, make("a", { href }, name)));
    return [section("Evidence", make("ul", {}, ...links))];
  }

  function causeSections({ cause }) {
    if (!cause) return [];
    const known = data.causes[cause];
    if (!known) return [section("Cause", make("p", {}, "Unexplained: no known failure matches."))];
    const links = known.links.map(({ name, href }) => make("li", {}, make("a", { href, rel: "noreferrer" }, name)));
    return [section("Cause", make("p", {}, `${known.cause} (${known.kind})`),
      ...(known.advice ? [make("p", { class: "hint" }, `Unverified advice: ${known.advice}`)] : []),
      ...(links.length ? [make("ul", {}, ...links)] : []))];
  }

  function deviceSections({ differs }) {
    return differs ? [section("Difference between CPU and GPU", ...differs.map((line) => make("p", {}, line)))] : [];
  }

  function fixSections({ fix }) {
    if (!fix) return [];
    const lines = fix.edit.split("\n").map((line) => make("span", { class: diffClass(line) }, `${line}\n`));
    return [section("Fix", make("p", {}, fix.words),
      ...(fix.edit ? [make("pre", { class: "diff" }, ...lines)] : []),
      ...(fix.proof ? [make("p", { class: "hint" }, fix.proof)] : []))];
  }

  function diffClass(line) {
    if (/^(---|\+\+\+) /.test(line)) return "file";
    return line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "kept";
  }

  function copyText(text, button) {
    const field = make("textarea", {}, text);
    const showCopied = () => { button.textContent = "Copied"; };
    // Some browsers have no clipboard API in pages that are opened from a file.
    const copyFromField = () => {
      dialog.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
      showCopied();
    };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(showCopied, copyFromField);
    else copyFromField();
  }

  function commandSection(text) {
    const button = make("button", { type: "button" }, "Copy");
    button.addEventListener("click", () => copyText(text, button));
    return section("Run this cell again", make("div", { class: "again" }, make("pre", {}, text), button));
  }

  function versionEntries(set) {
    const build = { "torch backend": set.torch_backend, lock: set.lock.slice(0, 19) };
    return Object.entries({ python: set.python, ...set.pins, ...build });
  }

  function cellDetails(cell) {
    const set = data.sets[cell.set];
    const declared = data.cases[cell.case] || { why: "", options: {} };
    const style = data.looks[cell.verdict];
    const { started, seconds, attempt, hardware } = cell;
    const runFacts = Object.entries({ started, seconds, attempt, hardware }).filter(([, value]) => value !== undefined);
    const phase = cell.phase ? ` in ${cell.phase}` : "";
    const reason = cell.reason || (cell.verdict === "blocked" ? set.blocked : "");
    return [
      make("p", {}, make("span", { class: `tag ${cell.verdict}` }, `${style.sign} ${style.word}`), `${phase}: ${style.meaning}`),
      ...(reason ? [make("p", {}, reason)] : []),
      ...(declared.why ? [make("p", { class: "hint" }, declared.why)] : []),
      ...causeSections(cell), ...deviceSections(cell), ...fixSections(cell), ...errorSections(cell),
      ...checkSections(cell), ...locationSections(cell), commandSection(cell.again), ...evidenceSections(cell),
      make("div", { class: "columns" },
        ...optionalSection("Options", declared.options),
        section(`Versions of ${cell.set}`, definitionList(versionEntries(set))),
        ...optionalSection("Metrics", cell.metrics), ...optionalSection("Facts", cell.facts),
        ...(runFacts.length ? [section("Run", definitionList(runFacts))] : [])),
    ];
  }

  function setDetails(key) {
    const set = data.sets[key];
    return [
      ...(set.blocked ? [make("p", {}, make("span", { class: "tag blocked" }, "blocked"), ` ${set.blocked}`)] : []),
      make("p", {}, set.why), ...set.notes.map((note) => make("p", {}, note)),
      section("Versions", definitionList([["as of", set.as_of], ...versionEntries(set)])),
      ...optionalSection("Facts", set.facts),
    ];
  }

  function openDialog(title, children) {
    const close = make("button", { type: "button", "aria-label": "Close" }, "✕");
    close.addEventListener("click", () => dialog.close());
    const heading = make("h2", { id: "dialog-title", tabindex: "-1" }, title);
    dialog.replaceChildren(make("div", { class: "bar" }, heading, close), make("div", { class: "body" }, ...children));
    if (!dialog.open) dialog.showModal();
    dialog.scrollTop = 0;
    heading.focus();
  }

  function openCellOfHash() {
    let key = "";
    try { key = decodeURIComponent(location.hash.slice(1)); } catch { return; }
    if (Object.hasOwn(data.cells, key)) openDialog(key, cellDetails(data.cells[key]));
    else if (dialog.open) dialog.close();
  }

  function matches(row, words) {
    if (!words.length) return true;
    const group = row.parentElement.querySelector(".group").textContent;
    const texts = [group, row.dataset.case, ...[...row.querySelectorAll(".cell")].map((cell) => cell.title)];
    const text = texts.join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  }

  function applyFilters() {
    const pressedChips = [...filters.querySelectorAll('.chip[aria-pressed="true"]')];
    const selectedVerdicts = new Set(pressedChips.map((chip) => chip.dataset.verdict));
    const words = document.getElementById("text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const set = document.getElementById("set").value;
    for (const cell of table.querySelectorAll("[data-set]")) cell.hidden = set !== "" && cell.dataset.set !== set;
    let count = 0;
    for (const row of table.querySelectorAll("tr[data-case]")) {
      const cells = [...row.querySelectorAll("td:not([hidden]) .cell")];
      const matchingCells = cells.filter((cell) => !selectedVerdicts.size || selectedVerdicts.has(cell.dataset.verdict));
      for (const cell of cells) cell.classList.toggle("dim", !matchingCells.includes(cell));
      row.hidden = !matchingCells.length || !matches(row, words);
      if (!row.hidden) count += matchingCells.length;
    }
    for (const body of table.tBodies) body.hidden = !body.querySelector("tr[data-case]:not([hidden])");
    const active = selectedVerdicts.size || words.length || set;
    document.getElementById("shown").textContent = active ? `${count} ${count === 1 ? "cell matches" : "cells match"}` : "";
  }

  filters.addEventListener("click", ({ target }) => {
    const chip = target.closest(".chip");
    if (!chip) return;
    chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
    applyFilters();
  });
  filters.addEventListener("input", applyFilters);
  filters.addEventListener("submit", (event) => event.preventDefault());
  filters.addEventListener("reset", () => {
    for (const chip of filters.querySelectorAll(".chip")) chip.setAttribute("aria-pressed", "false");
    setTimeout(applyFilters);
  });
  table.addEventListener("click", ({ target }) => {
    const cell = target.closest(".cell");
    const head = target.closest(".head");
    if (cell) location.hash = encodeURIComponent(cell.dataset.cell);
    if (head) openDialog(head.parentElement.dataset.set, setDetails(head.parentElement.dataset.set));
  });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener("close", () => {
    if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  });
  window.addEventListener("hashchange", openCellOfHash);
  openCellOfHash();
  applyFilters();
})();
