/* My stack: the newest set on which all tasks of a job work, and what is known red with pasted versions. */
"use strict";

(async () => {
  const { element } = ftm;
  const data = await ftm.load("stack");
  const form = document.getElementById("stack"), names = { cpu: "CPU", cuda: "GPU" };
  const label = (device) => names[device] ?? device;
  const recommended = document.getElementById("recommended"), known = document.getElementById("known");
  const freeze = document.getElementById("freeze"), picked = document.getElementById("picked");
  const GOOD = ["green", "green with a setting"];
  const titles = { method: "Method", quant: "Quantisation", strategy: "Strategy" };

  function controls() {
    const place = document.getElementById("choices");
    const select = (name, title, values) => element("div", {}, element("label", { for: name }, title),
      element("select", { id: name, name }, values.map(([value, text]) => element("option", { value }, text))));
    place.append(...Object.entries(data.choices).map(([name, values]) => select(name, titles[name], values.map((value) => [value, value]))),
      select("device", "Device", data.devices.toReversed().map((device) => [device, label(device)])));
    document.getElementById("tasks").append(...data.tasks.map(([flow, words]) =>
      element("label", {}, element("input", { type: "checkbox", name: "task", value: flow }), words)));
    picked.append(...Object.entries(data.sets).flatMap(([device, sets]) => sets.map((set) => element("option", { value: `${device} ${set.key}` }, `${set.key} (${label(device)})`))));
  }

  function restore() {
    const state = ftm.state.read();
    for (const [name, value] of Object.entries(data.usual)) form.elements[name].value = state.get(name) ?? value;
    form.elements.device.value = state.get("device") ?? (data.devices.includes("cuda") ? "cuda" : data.devices[0]);
    const tasks = (state.get("tasks") ?? "train save_reload resume").split(" ");
    form.querySelectorAll("[name=task]").forEach((box) => (box.checked = tasks.includes(box.value)));
    if (location.hash === "#pasted") freeze.value = sessionStorage.getItem(ftm.PASTED) ?? "";
  }

  const asked = () => ({
    device: form.elements.device.value,
    options: Object.keys(data.choices).map((name) => form.elements[name].value),
    tasks: [...form.querySelectorAll("[name=task]:checked")].map((box) => box.value),
  });

  const jobOf = (flow, options) => data.jobs.find((each) => each.options[0] === flow && options.every((value, i) => each.options[i + 1] === value));

  /** Add settings to others; null if two contradict each other. */
  function joined(settings, text) {
    const both = new Map(settings);
    for (const part of text.split(/;?\s+/).filter(Boolean)) {
      const [name, value] = part.split("=");
      if (both.has(name) && both.get(name) !== value) return null;
      both.set(name, value);
    }
    return both;
  }

  /** Choose one way of each task so that no two contradict each other, with the fewest settings; null if none fit. */
  function chosen(rows) {
    let best = null;
    (function search(place, settings, cells) {
      if (best && settings.size >= best.settings.size) return;
      if (place === rows.length) { best = { settings, cells }; return; }
      const [, own, shown, others] = rows[place].status;
      for (const [words, cell] of others.length ? others : [[own, null]]) {
        const both = joined(settings, words);
        if (both) search(place + 1, both, [...cells, cell ? [cell] : Array.isArray(shown) ? shown : []]);
      }
    })(0, new Map(), []);
    return best && { settings: [...best.settings].map(([name, value]) => `${name}=${value}`), cells: best.cells };
  }

  /** Return the status of a set for all tasks of a job: what is missing, what is needed, and what shows it. */
  function judge(set, { device, options, tasks }) {
    const rows = tasks.map((task) => ({ task, job: jobOf(task, options) }))
      .map((row) => ({ ...row, status: row.job?.sets[device]?.[set.key] }));
    const red = rows.filter((row) => row.status?.[0] === "red");
    const unknown = rows.filter((row) => !row.status || row.status[0] === "unknown");
    const good = rows.filter((row) => !unknown.includes(row));
    const way = red.length ? null : chosen(good);
    way?.cells.forEach((cells, i) => (good[i].cells = cells));
    const settings = way?.settings ?? null;
    return { set, rows, red, unknown, settings, works: rows.length > 0 && !red.length && !unknown.length && settings !== null };
  }

  /** What other devices show against the cells of a set, on the same versions or all but torch. */
  const against = (judged) => judged.rows.flatMap((row) => (row.status?.[4] ?? []).map((line) => `${words(row.task)} is ${line}`));

  const words = (task) => data.tasks.find(([flow]) => flow === task)[1];
  const cellLink = (cell, device) => {
    const at = cell.indexOf("__"), set = cell.slice(0, at), kase = cell.slice(at + 2);
    return element("a", { href: ftm.casePage(kase, `set=${encodeURIComponent(set)}&on=${device}`) }, kase);
  };
  const copyable = (id, text, title) => element("div", { class: "snippet" }, element("button", { type: "button", class: "copy", "data-copy": id }, title),
    element("pre", { tabindex: 0, "aria-label": title.replace("Copy ", "") }, element("code", { id }, text)));

  const shownCells = (row) => row.cells ?? (Array.isArray(row.status?.[2]) ? row.status[2] : []);

  function proof(judged, device) {
    return element("ul", {}, judged.rows.map((row) => element("li", {}, `${words(row.task)}: ${row.status?.[0] ?? "not measured"}`,
      shownCells(row).length ? ["; ", ...shownCells(row).slice(0, 3).flatMap((cell, i) => [i ? ", " : "", cellLink(cell, device)])] : typeof row.status?.[2] === "string" && row.status[2] ? ` (${row.status[2]})` : null)));
  }

  function recommend() {
    const wanted = asked();
    recommended.dataset.set = "";
    if (!wanted.tasks.length) return recommended.replaceChildren(element("p", {}, "Choose at least one task."));
    const judged = data.sets[wanted.device].map((set) => judge(set, wanted));
    const full = judged.filter((each) => each.works);
    // Nothing red, and something green: an answer with gaps, which it names.
    const partly = judged.filter((each) => !each.red.length && each.unknown.length < each.rows.length && each.settings !== null);
    const good = full.length ? full : partly;
    if (!good.length) {
      const near = judged.toSorted((a, b) => a.red.length + a.unknown.length - b.red.length - b.unknown.length)[0];
      const why = near && [...near.red.map((row) => `${words(row.task)} is red`), ...near.unknown.map((row) => `${words(row.task)} is not measured`)].join(", ");
      return recommended.replaceChildren(element("h3", {}, `No measured set on the ${label(wanted.device)} does all of this`),
        near ? element("p", {}, `Nearest: ${near.set.key}; ${why || "its tasks need contradicting settings"}.`) : null, near ? proof(near, wanted.device) : null);
    }
    const [best, next] = good, { set } = best;
    const warnings = against(best);
    recommended.dataset.set = set.key;
    recommended.dataset.complete = String(full.length > 0);
    const skipped = judged.slice(0, judged.indexOf(best)).filter((each) => each.red.length);
    recommended.replaceChildren(...[
      element("h3", {}, `Pin ${set.key}`, best.settings.length ? element("span", {}, ", with ", element("code", {}, best.settings.join(" "))) : ""),
      full.length ? element("p", {}, `The newest measured set on the ${label(wanted.device)} on which all of this works.`)
        : element("p", { class: "note" }, `No set has a measurement of all of this on the ${label(wanted.device)}. On this one nothing of it is red, but ${best.unknown.map((row) => words(row.task)).join(" and ")} ${best.unknown.length > 1 ? "are" : "is"} not measured.`),
      ...warnings.map((line) => element("p", { class: "warn" }, element("strong", {}, `But ${line}.`), ` This answer is for the ${label(wanted.device)} alone.`)),
      copyable("pins", Object.entries(set.pins).map(([name, version]) => `${name}==${version.split("+")[0]}`).join("\n"), "Copy pins"),
      element("p", {}, `Python ${set.python}. `, set.lock ? element("a", { href: ftm.page(set.lock), download: true }, "Download the requirements with hashes") : "This set has no lock: it ran over a host's own torch."),
      proof(best, wanted.device),
      skipped.length ? element("p", { class: "small" }, `Newer, but red: ${skipped.map((each) => `${each.set.key} (${each.red.map((row) => words(row.task)).join(", ")})`).join("; ")}.`) : null,
      next ? element("p", { class: "small quiet" }, `Next best: ${next.set.key}.`) : null,
    ].filter(Boolean));
  }

  // --- pasted versions ---
  function pasted() {
    const versions = {}, packages = Object.keys(data.sets[data.devices[0]][0].pins);
    for (const line of freeze.value.split("\n")) {
      const match = /^\s*([A-Za-z][\w.-]*)\s*(?:===?|@|\s)\s*v?(\d[\w.+!-]*)\s*(?:[;#].*|\s.*)?$/.exec(line);
      const name = match?.[1].toLowerCase().replaceAll("_", "-");
      if (packages.includes(name)) versions[name] = match[2].split("+")[0];
    }
    return versions;
  }

  const has = ftm.knownErrors.affects;

  /** Tell if a job can meet an error: no fact of one of its conditions contradicts the choices. */
  const concerns = (error, options, device) => error.when.some((condition) => fits(condition, options, device));
  const fits = (condition, options, device) => Object.keys(data.choices).every((name, i) =>
    !condition[name] || condition[name].includes(options[i])) && (!condition.device || condition.device.includes(device));

  /** Tell if a job meets an error only if its code makes a call, or its data has a property, that no setting states. */
  const needsOwnCode = (error, options, device) => error.when.every((condition) => condition.own_code || !fits(condition, options, device));

  function errorItem(error, version) {
    const notes = [
      `${error.package} ${version}`, has(error, version) === "open" && "if this version has it: it was not tried", error.silent && "raises nothing",
    ].filter(Boolean);
    return element("li", {}, element("a", { href: ftm.page(error.file) }, error.title), ` (${notes.join("; ")})`);
  }

  /** Return the known errors of some versions: those that settings lead to, and folded those of calls in own code. */
  function errorLists(versions, { options, device }) {
    const found = data.errors.filter((error) => versions[error.package] && has(error, versions[error.package]) !== "no" && concerns(error, options, device))
      .sort((a, b) => b.silent - a.silent);
    const { true: ofCode = [], false: ofSettings = [] } = Object.groupBy(found, (error) => needsOwnCode(error, options, device));
    const list = (errors) => element("ul", {}, errors.map((error) => errorItem(error, versions[error.package])));
    return [
      element("h3", {}, ofSettings.length ? `Known errors of these versions that such a job can meet: ${ofSettings.length}` : "No finding concerns these versions and this job"),
      list(ofSettings),
      ofCode.length ? element("details", {}, element("summary", {}, `${ofCode.length} more that only a call in your own code, or a property of your data, leads to`), list(ofCode)) : null,
    ];
  }

  async function compare() {
    const versions = pasted(), count = Object.keys(versions).length;
    if (!freeze.value.trim()) return known.replaceChildren();
    if (!count) return known.replaceChildren(element("p", {}, "No version of torch, transformers, peft, bitsandbytes, accelerate or trl is in this text."));
    const wanted = asked();
    const ranked = data.sets[wanted.device].map((set) => ({
      set,
      same: Object.entries(versions).filter(([name, version]) => ftm.versions.compare(set.pins[name] ?? "", version) === 0).length,
      close: Object.entries(versions).filter(([name, version]) => ftm.versions.haveSameMinor(set.pins[name] ?? "", version)).length,
    })).sort((a, b) => b.same + b.close - a.same - a.close);
    const nearest = ranked[0], judged = judge(nearest.set, wanted);
    const warnings = against(judged);
    known.replaceChildren(...[
      element("h3", {}, `Nearest measured set: ${nearest.set.key}`),
      element("p", {}, `${nearest.same} of ${count} versions are equal, ${nearest.close} in the minor release, on the ${label(wanted.device)}.`),
      element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Versions" }, element("table", {}, element("thead", {}, element("tr", {}, ["Package", "Yours", nearest.set.key].map((head) => element("th", { scope: "col" }, head)))),
        element("tbody", {}, Object.entries(versions).map(([name, version]) => element("tr", {}, element("th", { scope: "row" }, name), element("td", {}, version), element("td", {}, nearest.set.pins[name] ?? "–")))))),
      element("h3", {}, "The job on this set"), proof(judged, wanted.device),
      ...warnings.map((line) => element("p", { class: "warn" }, `${line[0].toUpperCase()}${line.slice(1)}.`)),
      element("p", { class: "small" }, element("a", { href: ftm.page(`matrix.html#q=${encodeURIComponent(Object.keys(data.choices).map((name, i) => `${name}=${wanted.options[i]}`).join(" "))}&verdict=red&device=${wanted.device}&sets=all`) }, "All red cells of this job in the matrix")),
      ...errorLists(versions, wanted),
    ].filter(Boolean));
  }

  function update() {
    recommend();
    compare();
  }

  controls();
  restore();
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target === picked && picked.value) {
      const [device, key] = [picked.value.slice(0, picked.value.indexOf(" ")), picked.value.slice(picked.value.indexOf(" ") + 1)];
      freeze.value = Object.entries(data.sets[device].find((set) => set.key === key).pins).map(([name, version]) => `${name}==${version}`).join("\n");
    }
    const { device, options, tasks } = asked();
    ftm.state.write({ ...Object.fromEntries(Object.keys(data.choices).map((name, i) => [name, options[i]])), device, tasks: tasks.join(" ") });
    update();
  });
  freeze.addEventListener("input", compare);
  update();
})();
