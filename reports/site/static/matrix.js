/* The matrix page: filters, folded groups, and what the squares show. */
"use strict";

(async () => {
  const { element } = ftm;
  const place = document.getElementById("grid"), form = document.getElementById("filters");
  const peek = document.getElementById("peek"), summary = document.getElementById("summary");
  const [matrix] = await Promise.all([ftm.load("matrix"), ftm.query.ready()]);
  const { letters, rows, columns, devices, squares } = matrix;
  const known = new ftm.Squares(matrix);
  const names = { cpu: "CPU", cuda: "GPU", "cuda-gloo": "shared GPU" };
  const label = (device) => names[device] ?? device;
  let shown = { columns: [], devices: [], lines: [] };
  let open = null; // names of groups that the user opened or closed, by number

  const letter = (device, row, column) => squares[device][row][column];

  /** Return the numbers of the columns: the newest first, and each set before its variants. */
  function newestFirst() {
    const numbers = columns.map((_, number) => number).toReversed(), base = (number) => columns[number].key.split("+")[0];
    const place = new Map([...new Set(numbers.map(base))].map((key, i) => [key, i]));
    const isVariant = (number) => Number(columns[number].key.includes("+"));
    return numbers.sort((a, b) => place.get(base(a)) - place.get(base(b)) || isVariant(a) - isVariant(b));
  }

  // --- filters ---
  /** Return the choices of each filter under their headings. */
  function choices() {
    const one = (name, values) => [[name, values]], own = (value) => [value, value];
    const releases = (name) => [...new Set(columns.flatMap((column) => Object.values(column.versions[name]).map((version) => version.split("+")[0])))]
      .sort(ftm.versions.compare).toReversed().map((version) => [`${name}==${version}`, `${name} ${version}`]);
    const options = matrix.options.map((name, place) => [name, one(name, [...new Set(rows.map((row) => row[2][place]))].filter(Boolean).sort().map(own))]);
    const words = Object.entries(letters).filter(([key]) => key !== ".").map(([, look]) => own(look[2]));
    return {
      ...Object.fromEntries(options),
      verdict: one("Verdict", [["red", "any red"], ["differs", "CPU and GPU disagree"], ...words]),
      device: one("Device", devices.map((device) => [device, label(device)])),
      version: ["torch", "transformers", "peft", "bitsandbytes"].map((name) => [name, releases(name)]),
      cause: one("Cause", matrix.causes.map(own)),
    };
  }

  /** Return the numbers of the columns for the versions of a query and of the filter, of which one per package must fit. */
  function pickedColumns(values, asked) {
    const chosen = values.version.map((text) => text.split("==")).map(([name, version]) => ({ name, operator: "==", version }));
    const packages = [...Map.groupBy(chosen, (each) => each.name).values()];
    const areNamed = packages.length > 0 || asked.versions.length > 0;
    return newestFirst().filter((number) => (values.sets === "all" || columns[number].main || areNamed)
      && ftm.isAskedColumn(columns[number], asked)
      && packages.every((releases) => releases.some((each) => ftm.admitsColumn(columns[number], [each]))));
  }

  async function apply(keepOpen) {
    const values = filters.values(), asked = ftm.query.parse(values.q);
    const devicesNow = values.device.length ? devices.filter((device) => values.device.includes(device)) : devices;
    const columnsNow = pickedColumns(values, asked), tests = squareTests(values);
    const hasOptions = matrix.options.some((name) => values[name].length);
    let picked = (await ftm.matching(matrix, asked)).filter((row) => matrix.options.every((name, i) => !values[name].length || values[name].includes(row[2][i])));
    picked = known.rows(picked, columnsNow, devicesNow, asked, tests);
    if (!tests.length && !values.q && values.sets !== "all") {
      picked = picked.filter((row) => columnsNow.some((column) => devicesNow.some((device) => letter(device, known.numberOf.get(row), column) !== ".")));
    }
    if (!keepOpen) { open = new Map(); filters.unknown = []; }
    shown = { columns: columnsNow, devices: devicesNow, picked, filtered: Boolean(values.q || tests.length || hasOptions), hint: hint(asked) };
    filters.show();
    draw();
    ftm.state.write({ ...values, open: [...open].filter(([, is]) => is).map(([group]) => group).join("."), shut: [...open].filter(([, is]) => !is).map(([group]) => group).join(".") });
  }

  /** Return the tests of a square that the filters ask for. */
  function squareTests(values) {
    const causes = new Set(values.cause.map((cause) => matrix.causes.indexOf(cause)));
    const verdict = known.anyOf(values.verdict);
    const cause = (row, column, on) => on.some((device) => causes.has(known.cause(device, row, column)));
    return [...(values.verdict.length ? [verdict] : []), ...(causes.size ? [cause] : [])];
  }

  /** Return what the page ignores: values of the address that no filter has, and unknown words after `is:`. */
  function hint(asked) {
    const words = [asked, ...asked.without].flatMap((part) => part.squares.flat()).filter((word) => !known.test(word));
    const unknown = [...filters.unknown, ...words.map((word) => `is:${word.slice(0, ftm.Filters.LONGEST)}`)];
    return unknown.length ? ` · unknown: ${unknown.join(", ").replace(/\p{C}/gu, "\uFFFD")}` : "";
  }

  // --- lines: headings and cases ---
  /** Count the red cells of some rows: rows with one by column, all of them, and whether devices disagree. */
  function counted(members) {
    const tallies = new Array(shown.columns.length).fill(0);
    let count = 0, differing = false;
    for (const row of members) {
      const number = known.numberOf.get(row), texts = shown.devices.map((device) => squares[device][number]);
      shown.columns.forEach((column, place) => {
        let reds = 0;
        for (const text of texts) if (known.red.has(text[column])) reds += 1;
        if (reds) { tallies[place] += 1; count += reds; shown.totals[place] += reds; }
        if (reds === 1 && !differing) differing = known.differs(number, column);
      });
    }
    return { tallies, count, differing };
  }

  function lines() {
    const groups = new Map();
    for (const row of shown.picked) {
      if (!groups.has(row[1])) groups.set(row[1], []);
      groups.get(row[1]).push(row);
    }
    const made = [];
    shown.totals = new Array(shown.columns.length).fill(0);
    for (const [group, members] of groups) {
      const { tallies, count, differing } = counted(members);
      const isLong = members.length > 60 && !shown.filtered;
      const isOpen = open.get(group) ?? ((count > 0 || differing || shown.filtered) && !isLong);
      made.push({ group, members: members.length, tallies, count, isOpen });
      if (isOpen) made.push(...members.map((row) => ({ row })));
    }
    return made;
  }

  function draw() {
    shown.lines = lines();
    grid.reset(shown.lines.length, shown.columns.length);
    const total = shown.lines.filter((line) => line.tallies).reduce((sum, line) => sum + line.count, 0);
    const number = (value, word) => `${value.toLocaleString("en")} ${word}${value === 1 ? "" : "s"}`;
    summary.textContent = `${number(shown.picked.length, "case")} on ${number(shown.columns.length, "version set")}: ${number(total, "red cell")}${shown.hint}`;
    place.querySelector(".empty")?.remove();
    if (!shown.lines.length) grid.body.append(element("p", { class: "empty" }, "No case matches. Remove a filter, or show all version sets."));
  }

  function drawHead(first, last) {
    const corner = element("div", { class: "first corner", role: "columnheader" },
      ...["version set", "torch", "transformers", "peft", "bitsandbytes", "red cells"].map((name) => element("span", { class: "line" }, name, element("br"))));
    const heads = shown.columns.slice(first, last).map((number, i) => {
      const column = columns[number], count = shown.totals[first + i];
      const variant = column.key.includes("@") ? "@" : column.key.includes("+") ? "+" : "";
      const versions = Object.entries(column.versions).map(([name, by]) => {
        const values = Object.entries(by).map(([device, version]) => [device, version.split("+")[0]]);
        const same = new Set(values.map(([, version]) => version)).size === 1;
        const text = same ? values[0][1] : values.map(([, version]) => version.split(".").slice(0, 2).join(".")).join("|");
        const title = values.map(([device, version]) => `${name} ${version}${device ? ` on ${label(device)}` : ""}`).join(", ");
        return element("span", { class: same ? null : "two", title }, text);
      });
      return element("div", { class: "col", role: "columnheader", title: `${column.key}${column.near ? `; CPU and GPU have ${column.near}` : ""}` },
        element("span", { class: "date" }, column.key.split("+")[0].split("@")[0] + variant), ...versions, element("span", { class: "redcount" }, String(count || "–")));
    });
    return element("div", { class: "head", role: "row", "aria-rowindex": 1 }, corner, ...heads);
  }

  function drawRow(index, first, last) {
    const line = shown.lines[index];
    if (line.tallies) {
      const toggle = element("button", { type: "button", "aria-expanded": String(line.isOpen), tabindex: -1 },
        matrix.groups[line.group], " ", element("small", {}, `${line.members}${line.count ? ` · ${line.count} red` : " · no red"}`));
      toggle.addEventListener("click", () => { open.set(line.group, !line.isOpen); keepFocus(() => apply(true)); });
      return element("div", { class: "group" }, element("div", { class: "first", role: "rowheader" }, toggle),
        ...line.tallies.slice(first, last).map((count) => element("div", { class: "tally", role: "gridcell", "aria-label": `${count} red` }, count ? String(count) : "")));
    }
    const number = known.numberOf.get(line.row), file = line.row[3] ?? line.row[0];
    const head = element("div", { class: "first rowhead", role: "rowheader" },
      element("a", { href: ftm.casePage(file), tabindex: -1, title: line.row[0] }, short(line.row)));
    return element("div", { class: "case" }, head, ...shown.columns.slice(first, last).map((column) => square(line.row, number, column, file)));
  }

  /** The id without what its heading says already. */
  const short = (row) => row[0];

  function square(row, number, column, file) {
    const halves = devices.filter((device) => shown.devices.includes(device)).map((device) => {
      const record = columns[column].sets[device];
      const look = letters[letter(device, number, column)];
      return record === undefined ? element("i", { class: "none" }) : element("i", { class: look[0] }, look[0] === "unknown" ? "·" : look[1]);
    });
    const spoken = shown.devices.filter((device) => columns[column].sets[device] !== undefined).map((device) => `${label(device)} ${letters[letter(device, number, column)][2]}`).join(", ");
    const isDifferent = shown.devices.length > 1 && known.differs(number, column);
    const link = element("a", { href: ftm.casePage(file, `set=${encodeURIComponent(columns[column].key)}`), tabindex: -1, "aria-label": `${columns[column].key}: ${spoken}${isDifferent ? "; CPU and GPU disagree" : ""}` }, ...halves);
    return element("div", { class: `square${isDifferent ? " differs" : ""}`, role: "gridcell" }, link);
  }

  // --- the line below the grid ---
  let reasons = null;
  async function describe({ row: index, column: place }) {
    const line = shown.lines[index];
    if (!line?.row || place === 0) { peek.replaceChildren(line?.row ? `${line.row[0]}` : line ? `${matrix.groups[line.group]}: ${line.members} cases` : ""); return; }
    const column = columns[shown.columns[place - 1]], number = known.numberOf.get(line.row);
    reasons ??= await ftm.load("reasons");
    const parts = shown.devices.flatMap((device) => {
      const set = column.sets[device];
      if (set === undefined) return [];
      const look = letters[letter(device, number, columns.indexOf(column))];
      const reason = reasons[device]?.[`${set}__${line.row[0]}`];
      return [element("b", {}, ` ${label(device)} ${look[2]}`), reason ? ` ${reason} ` : ""];
    });
    peek.replaceChildren(`${line.row[0]} on ${column.key}:`, ...parts);
  }

  async function keepFocus(change) {
    const { row, column } = grid.active, hadFocus = place.contains(document.activeElement);
    await change();
    if (hadFocus) grid.focus(row, column);
  }

  const grid = new ftm.Grid(place, { drawHead, drawRow });
  grid.onfocus = describe;
  place.addEventListener("mouseover", (event) => {
    const cell = event.target.closest("[data-column]"), row = event.target.closest("[data-row]");
    if (cell && row) describe({ row: Number(row.dataset.row), column: Number(cell.dataset.column) });
  });

  const filters = new ftm.Filters(form, choices());

  function restore() {
    const stored = ftm.state.read();
    filters.restore(stored);
    if (stored.get("sets") !== "all") form.elements.sets.value = "";
    const numbers = (name) => (stored.get(name) ?? "").split(".").filter(Boolean).map(Number);
    open = new Map([...numbers("open").map((group) => [group, true]), ...numbers("shut").map((group) => [group, false])]);
  }

  const bar = document.querySelector(".top");
  const fit = () => document.documentElement.style.setProperty("--bar", `${bar.offsetHeight}px`);
  new ResizeObserver(fit).observe(bar);
  fit();
  restore();
  await apply(true);
  place.setAttribute("aria-busy", "false");
  form.addEventListener("submit", (event) => { event.preventDefault(); apply(); });
  let typing = 0;
  form.addEventListener("input", (event) => {
    clearTimeout(typing);
    if (event.target.name === "q") typing = setTimeout(apply, 120); else apply();
  });
  form.addEventListener("reset", () => setTimeout(apply));
  document.getElementById("fold").addEventListener("click", () => { open = new Map(matrix.groups.map((_, number) => [number, false])); apply(true); });
  document.getElementById("unfold").addEventListener("click", () => { open = new Map(matrix.groups.map((_, number) => [number, true])); apply(true); });
  document.getElementById("link").addEventListener("click", (event) => ftm.copy(event.currentTarget, ftm.link()));
  addEventListener("hashchange", () => { restore(); apply(true); });
})();
