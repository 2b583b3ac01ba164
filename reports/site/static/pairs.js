/* Pairs of releases: a grid of every two minor releases of two packages, and the answer for the chosen two. */
"use strict";

(async () => {
  const { element } = ftm;
  const form = document.getElementById("pair"), grid = document.getElementById("grid"), answer = document.getElementById("together");
  const { packages, row, column } = form.elements;
  const looks = new Map([...document.getElementById("legend").children].map(({ dataset }) => [dataset.status, dataset]));
  let data;

  const answerOf = (one, other) => data.answers[data.cells[one][other]];
  const options = (select, versions) => select.replaceChildren(...versions.toReversed().map((version) => element("option", { value: version }, version)));

  function square(one, other) {
    const [status] = answerOf(one, other);
    const { style, sign } = looks.get(status);
    const words = `${data.packages[0]} ${data.rows[one]} with ${data.packages[1]} ${data.columns[other]}: ${status}`;
    return element("td", { class: style, title: words, "aria-label": status, "data-row": one, "data-column": other }, sign);
  }

  function drawGrid() {
    const [first, second] = data.packages;
    grid.replaceChildren(
      element("caption", { class: "small quiet" }, `Rows: ${first}. Columns: ${second}.`),
      element("thead", {}, element("tr", {}, element("td"), ...data.columns.map((version) => element("th", { scope: "col" }, version)))),
      element("tbody", {}, ...data.rows.map((version, one) => element("tr", {}, element("th", { scope: "row" }, version), ...data.columns.map((_, other) => square(one, other))))));
    grid.setAttribute("aria-busy", "false");
  }

  function drawAnswer() {
    const [one, other] = [data.rows.indexOf(row.value), data.columns.indexOf(column.value)];
    const [status, because, proof] = answerOf(one, other);
    const { style, sign } = looks.get(status);
    answer.replaceChildren(
      element("p", {}, element("span", { class: `pair ${style}`, "aria-hidden": "true" }, sign), " ", element("strong", {}, `${data.packages[0]} ${row.value} with ${data.packages[1]} ${column.value}: ${status}`)),
      because && element("p", {}, because), element("p", { class: "quiet small" }, proof));
    grid.querySelector("td.chosen")?.classList.remove("chosen");
    grid.querySelector(`td[data-row="${one}"][data-column="${other}"]`)?.classList.add("chosen");
  }

  async function show(state) {
    grid.setAttribute("aria-busy", "true");
    data = await ftm.load(packages.value);
    document.getElementById("row-label").textContent = data.packages[0];
    document.getElementById("column-label").textContent = data.packages[1];
    options(row, data.rows);
    options(column, data.columns);
    if (data.rows.includes(state.get("row"))) row.value = state.get("row");
    if (data.columns.includes(state.get("column"))) column.value = state.get("column");
    drawGrid();
    drawAnswer();
  }

  function chosen() {
    ftm.state.write({ packages: packages.value, row: row.value, column: column.value });
    drawAnswer();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("change", async (event) => {
    if (event.target === packages) await show(new URLSearchParams());
    chosen();
  });
  grid.addEventListener("click", (event) => {
    const square = event.target.closest("td[data-row]");
    if (!square) return;
    row.value = data.rows[square.dataset.row];
    column.value = data.columns[square.dataset.column];
    chosen();
  });
  const state = ftm.state.read();
  if ([...packages.options].some((each) => each.value === state.get("packages"))) packages.value = state.get("packages");
  await show(state);
})();
