/* The page of a case: the cell that the address names, with its checks, traceback and environment. */
"use strict";

(async () => {
  const { element } = ftm;
  const heading = document.getElementById("case"), place = document.getElementById("cell");
  const links = [...document.querySelectorAll("a[data-cell]")];
  const names = { cpu: "CPU", cuda: "GPU" };
  const red = new Set(["wrong", "fail", "hang", "crash"]);
  const { dataset: { file } } = heading;
  let cells = null;

  /** Return the name of the cell that the address asks for: of the set, on the named device if it has it there. */
  function asked() {
    const state = ftm.state.read(), set = state.get("set");
    if (!set) return "";
    const [bare] = set.split("@");
    const fitting = links.map((link) => link.dataset.cell).filter((name) => name.slice(name.indexOf(" ") + 1) === bare);
    return fitting.find((name) => name.startsWith(`${state.get("on")} `)) ?? fitting.find((name) => red.has(cells?.[name]?.verdict)) ?? fitting[0] ?? "";
  }

  const facts = (pairs) => element("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== "")
    .flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));

  function table(caption, heads, rows) {
    return element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, element("table", {},
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))), element("tbody", {}, rows)));
  }

  function copyable(id, text, label) {
    return element("div", { class: "snippet" }, element("button", { type: "button", class: "copy", "data-copy": id }, label),
      element("pre", { tabindex: 0, "aria-label": label.replace("Copy ", "") }, element("code", { id }, text)));
  }

  function checks(cell) {
    const failed = cell.checks.filter((row) => !row[3]), all = [...failed, ...cell.checks.filter((row) => row[3])];
    const rows = all.map(([name, value, limit, ok]) => element("tr", { class: ok ? null : "bad" },
      element("td", { class: "pad" }, name), element("td", { class: "mono" }, value), element("td", { class: "mono" }, limit), element("td", {}, ok ? "holds" : "fails")));
    const drawn = table("Checks", ["Check", "Measured", "Limit", "Result"], rows);
    const title = `${cell.checks.length} checks${failed.length ? `, ${failed.length} fail` : ", all hold"}`;
    return [element("h3", {}, title), drawn];
  }

  function shape(tag, attributes, ...children) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  /** Draw a chart as `parts.html.j2` does, from the same coordinates. */
  function chart({ words, size: [width, height], found, twin, dots, apart }) {
    return element("figure", { class: "chart" },
      shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
        ...(apart ? [shape("line", { class: "apart", x1: apart, x2: apart, y1: 0, y2: height })] : []),
        ...found.map((points) => shape("polyline", { class: "found", points })), ...twin.map((points) => shape("polyline", { class: "twin", points })),
        ...dots.map(([cx, cy]) => shape("circle", { class: "found", cx, cy, r: 2.5 }))),
      element("figcaption", { "aria-hidden": "true" }, words));
  }

  function series(cell) {
    if (cell.isCharted) return [element("p", { class: "quiet small" }, "The page draws its loss and gradient norm below.")];
    if (!cell.series) return [];
    const { charts, heads, rows } = cell.series;
    const lines = rows.map((row, number) => element("tr", {}, element("th", { scope: "row" }, String(number + 1)), row.map((value) => element("td", { class: "number" }, value))));
    return [element("h3", {}, "Loss and gradient norm"), element("div", { class: "charts" }, charts.map(chart)),
      element("details", {}, element("summary", {}, "As numbers"), table("Loss and gradient norm of this cell", ["Step", ...heads], lines))];
  }

  /** The ends of the log files of a cell, which are loaded when somebody opens them. */
  function logs(name) {
    const drawn = element("div");
    const show = async () => {
      if (drawn.childElementCount) return;
      const files = await ftm.load(name);
      drawn.replaceChildren(...Object.entries(files).flatMap(([kind, text], number) => [element("h3", {}, kind), copyable(`log-${number}`, text, `Copy ${kind}`)]));
    };
    return element("details", { ontoggle: show }, element("summary", {}, "End of the log files"), drawn);
  }

  function draw(name) {
    const cell = cells[name];
    const link = (path, text) => element("a", { href: ftm.page(path), download: true }, text);
    const environment = [
      ["Versions", Object.entries(cell.pins ?? {}).map(([key, value]) => `${key} ${value}`).join(", ") + (cell.python ? `, Python ${cell.python}` : "")],
      ["Hardware", cell.hardware], ["Measured", `${cell.started}, in ${cell.seconds} s`],
      ["Lock", cell.lockFile ? element("span", {}, link(cell.lockFile, "requirements with hashes"), ` (${cell.lock})`) : cell.lock],
      ["Case code", cell.code],
      ...Object.entries(cell.metrics ?? {}).map(([key, value]) => [key, value.toLocaleString("en", { maximumFractionDigits: 1 })]),
      ...Object.entries(cell.facts ?? {}).map(([key, value]) => [key.replaceAll("_", " "), String(value)]),
    ];
    place.replaceChildren(...[
      element("h2", { id: "selected", tabindex: -1 }, `${cell.set}, ${names[cell.device] ?? cell.device}: ${cell.verdict}`),
      element("p", {}, element("button", { type: "button", onclick: (event) => ftm.copy(event.currentTarget, ftm.link()) }, "Copy link to this cell")),
      cell.headline ? element("p", { class: "mono small" }, cell.headline) : null,
      facts([["Phase", cell.phase], ["Repeats", cell.rates], ["Location", cell.location],
        ["Cause", cell.cause ? element("a", { href: ftm.page(`cause/${encodeURIComponent(cell.cause)}.html`) }, cell.cause) : undefined]]),
      ...series(cell),
      ...(cell.checks ? checks(cell) : []),
      cell.traceback ? element("details", {}, element("summary", {}, "Traceback"), copyable("traceback", cell.traceback, "Copy traceback")) : null,
      cell.logs ? logs(cell.logs) : red.has(cell.verdict) ? element("p", { class: "quiet small" }, "The results keep no log of this cell.") : null,
      element("h3", {}, "Run just this cell"), copyable("command", [cell.command, cell.repro].filter(Boolean).join("\n"), "Copy command"),
      cell.script ? element("p", {}, link(cell.script, "Download the reproducer"), " one file with exact pins, for ", element("code", {}, "uv run")) : null,
      element("details", {}, element("summary", {}, "Environment"), facts(environment)),
    ].filter(Boolean));
  }

  async function select(focus) {
    cells ??= await ftm.load(`cases/${file}`);
    const name = asked();
    links.forEach((link) => link.dataset.cell === name ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current"));
    if (!name || !cells[name]) return place.replaceChildren();
    draw(name);
    if (focus) document.getElementById("selected").focus();
  }

  addEventListener("hashchange", () => select(true));
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  await select(false);
})();
