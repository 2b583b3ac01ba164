/* What changed between any two sets of one device, from the squares of the matrix. */
"use strict";

(async () => {
  const { element } = ftm;
  const form = document.getElementById("pair"), place = document.getElementById("difference");
  const matrix = await ftm.load("matrix");
  const red = new Set(matrix.red);
  const { device, base, new: now } = form.elements;
  const columnsOf = () => matrix.columns.map((column, number) => [number, column]).filter(([, column]) => column.sets[device.value]);

  function fill() {
    const columns = columnsOf().toReversed();
    for (const select of [base, now]) select.replaceChildren(...columns.map(([, column]) => element("option", { value: column.sets[device.value] }, column.sets[device.value])));
    const main = columns.filter(([, column]) => column.main);
    base.value = main[1]?.[1].sets[device.value] ?? base.value;
    now.value = main[0]?.[1].sets[device.value] ?? now.value;
  }

  const numberOf = (key) => columnsOf().find(([, column]) => column.sets[device.value] === key)[0];

  function moves(one, other) {
    const versions = (column) => Object.fromEntries(Object.entries({ ...column.versions, ...column.others }).map(([name, by]) => [name, by[device.value] ?? by[""]]));
    const [old, fresh] = [versions(matrix.columns[one]), versions(matrix.columns[other])];
    return Object.keys(old).filter((name) => old[name] !== fresh[name]).map((name) => `${name} ${old[name]} → ${fresh[name]}`).join(", ");
  }

  function draw() {
    const [one, other] = [numberOf(base.value), numberOf(now.value)], squares = matrix.squares[device.value];
    const found = { "Became red": [], "Became green": [], "Other failure": [] };
    let compared = 0;
    matrix.rows.forEach((row, number) => {
      const [before, after] = [squares[number][one], squares[number][other]];
      const ran = (letter) => red.has(letter) || letter === "p";
      if (!ran(before) || !ran(after)) return;
      compared += 1;
      if (before === after) return;
      found[before === "p" ? "Became red" : after === "p" ? "Became green" : "Other failure"].push([row, before, after]);
    });
    const mark = (letter) => element("span", { class: `mark ${matrix.letters[letter][0]}` }, `${matrix.letters[letter][1]} ${matrix.letters[letter][2]}`);
    place.replaceChildren(element("p", {}, `${compared} cells ran on both. Packages that moved: ${moves(one, other) || "none of the six"}.`),
      ...Object.entries(found).filter(([, rows]) => rows.length).flatMap(([title, rows]) => [
        element("h3", {}, `${title}: ${rows.length}`),
        element("ul", {}, rows.map(([row, before, after]) => element("li", {}, element("a", { href: ftm.casePage(row[3] ?? row[0], `set=${encodeURIComponent(now.value)}&on=${device.value}`) }, row[0]), " ", mark(before), " → ", mark(after))))]));
    place.dataset.compared = compared;
  }

  function restore() {
    const state = ftm.state.read();
    if (matrix.devices.includes(state.get("device"))) device.value = state.get("device");
    fill();
    if (state.get("base")) base.value = state.get("base");
    if (state.get("new")) now.value = state.get("new");
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", (event) => {
    if (event.target === device) fill();
    ftm.state.write({ device: device.value, base: base.value, new: now.value });
    draw();
  });
  restore();
  draw();
})();
