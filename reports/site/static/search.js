/* The search box of every page: suggestions while typing, and what a pasted log or `pip freeze` is for. */
"use strict";

(() => {
  const { element } = ftm;
  const MANY = 9;
  const PASTED = "ftm-pasted";

  class Search {
    constructor(form) {
      this.form = form;
      this.input = form.querySelector(".box");
      this.list = element("ul", { class: "results", role: "listbox", id: `results-${form.id || "top"}`, "aria-label": "Results" });
      this.list.hidden = true;
      this.selected = -1;
      form.append(this.list);
      Object.entries({ role: "combobox", "aria-expanded": "false", "aria-controls": this.list.id, "aria-autocomplete": "list" })
        .forEach(([name, value]) => this.input.setAttribute(name, value));
      this.input.addEventListener("input", () => this.update());
      this.input.addEventListener("focus", () => ftm.query.ready());
      this.input.addEventListener("keydown", (event) => this.key(event));
      this.input.addEventListener("paste", (event) => this.paste(event));
      form.addEventListener("submit", (event) => { event.preventDefault(); this.open(); });
      document.addEventListener("click", (event) => { if (!form.contains(event.target)) this.close(); });
    }

    /** A one-line box loses line breaks, so a pasted log goes on as it is in the clipboard. */
    paste(event) {
      const text = event.clipboardData?.getData("text") ?? "";
      if (!text.includes("\n")) return;
      event.preventDefault();
      this.go(text);
    }

    go(text) {
      const freeze = ftm.query.looksLikeFreeze(text) && !ftm.query.looksLikeLog(text);
      try {
        sessionStorage.setItem(PASTED, text);
      } catch { // browsers limit what a page may leave behind
        location.href = ftm.page("error.html#too-long");
        return;
      }
      location.href = ftm.page(freeze ? "stack.html#pasted" : "error.html#pasted");
    }

    async update() {
      const text = this.input.value.trim();
      if (!text) return this.close();
      if (ftm.query.looksLikeLog(text)) {
        return this.show([{ kind: "My error", title: "Explain this message", note: "Looks for its cause among the known failures", open: () => this.go(text) }]);
      }
      const found = await ftm.find(text);
      if (text === this.input.value.trim()) this.show(found.slice(0, MANY));
    }

    show(results) {
      this.results = results;
      this.selected = results.length ? 0 : -1;
      this.list.replaceChildren(...results.map((result, number) => {
        const option = element("li", { role: "option", id: `${this.list.id}-${number}`, "aria-selected": String(number === 0) },
          element("span", { class: "kind" }, result.kind), element("span", { class: "title" }, result.title),
          result.note ? element("span", { class: "note" }, result.note) : null);
        option.addEventListener("click", () => { this.selected = number; this.open(); });
        return option;
      }));
      if (!results.length) this.list.replaceChildren(element("li", { role: "option", "aria-selected": "false", "aria-disabled": "true" },
        element("span", { class: "kind" }, "Nothing"), element("span", { class: "title" }, "No page has these words; try qlora, fsdp2, torch 2.8 or a case id.")));
      this.list.hidden = false;
      this.input.setAttribute("aria-expanded", "true");
      this.mark();
    }

    mark() {
      [...this.list.children].forEach((each, number) => each.setAttribute("aria-selected", String(number === this.selected)));
      const chosen = this.list.children[this.selected];
      if (chosen && this.selected >= 0) {
        this.input.setAttribute("aria-activedescendant", chosen.id);
        chosen.scrollIntoView({ block: "nearest" });
      } else this.input.removeAttribute("aria-activedescendant");
    }

    key(event) {
      const last = (this.results?.length ?? 0) - 1;
      if (event.key === "Escape") this.close();
      else if (!this.list.hidden && event.key === "ArrowDown") { event.preventDefault(); this.selected = Math.min(last, this.selected + 1); this.mark(); }
      else if (!this.list.hidden && event.key === "ArrowUp") { event.preventDefault(); this.selected = Math.max(0, this.selected - 1); this.mark(); }
    }

    async open() {
      const text = this.input.value.trim();
      if (!text) return;
      if (ftm.query.looksLikeLog(text)) return this.go(text);
      const results = this.list.hidden ? await ftm.find(text) : this.results;
      const chosen = results?.[Math.max(0, this.selected)];
      if (chosen?.open) chosen.open();
      else if (chosen) location.href = chosen.href;
    }

    close() {
      this.list.hidden = true;
      this.input.setAttribute("aria-expanded", "false");
      this.input.removeAttribute("aria-activedescendant");
    }
  }

  const fits = (stated, wanted) => Object.entries(wanted).every(([name, values]) => values.includes(stated[name]));

  /** Return what the site has for a text, the best first. */
  ftm.find = async (text) => {
    const [, pages, matrix] = await Promise.all([ftm.query.ready(), ftm.load("pages"), ftm.load("matrix")]);
    const asked = ftm.query.parse(text);
    const words = asked.rest;
    const lower = text.trim().toLowerCase();
    const results = [];
    const exact = matrix.rows.find((row) => row[0].toLowerCase() === lower.split("__").at(-1));
    if (exact) results.push({ kind: "Case", title: exact[0], note: "The page of this case", href: ftm.casePage(exact[3] ?? exact[0], lower.includes("__") ? `set=${text.trim().split("__")[0]}` : "") });
    const named = Object.keys(asked.options).length > 0, filtered = asked.squares.length > 0 || asked.without.length > 0;
    if (named && !words.length && !filtered) results.push(...features(pages, asked));
    if (named || asked.versions.length || words.length || filtered) {
      const columns = matrix.columns.filter((column) => isAskedColumn(column, asked));
      const matched = await matching(matrix, asked), rows = filtered ? withSquares(matrix, columns, matched, asked) : matched;
      if (asked.versions.length) results.push({ kind: "Versions", title: columns.length ? `${columns.length} version set${columns.length > 1 ? "s" : ""} with ${asked.versions.map((v) => `${v.name} ${v.operator === "==" ? "" : v.operator}${v.version}`).join(", ")}` : "No measured set has these versions", note: columns.map((column) => column.key).slice(0, 6).join(", "), href: ftm.page(`matrix.html#q=${encodeURIComponent(text)}&sets=all`) });
      if (rows.length) results.push({ kind: "Matrix", title: `${rows.length} case${rows.length > 1 ? "s" : ""} in the matrix`, note: "Filtered by these words", href: ftm.page(`matrix.html#q=${encodeURIComponent(text)}`) });
      if ((words.length || named) && !filtered) {
        const texts = words.length ? words : lower.split(/\s+/);
        const fitting = (where) => texts.every((word) => where.includes(word));
        results.push(...pages.problems.filter((each) => fitting(`${each.id} ${each.title}`.toLowerCase())).slice(0, 4)
          .map((each) => ({ kind: each.kind, title: each.title, note: each.silent ? "raises nothing" : "", href: ftm.page(each.file) })));
        results.push(...pages.causes.filter((each) => fitting(`${each.id} ${each.title}`.toLowerCase())).slice(0, 4)
          .map((each) => ({ kind: "Cause", title: each.title, note: each.id, href: ftm.page(each.file) })));
      }
      results.push(...rows.slice(0, 5).filter((row) => row !== exact).map((row) => ({ kind: "Case", title: row[0], note: matrix.groups[row[1]], href: ftm.casePage(row[3] ?? row[0]) })));
    }
    return results;
  };

  /** Keep the rows with the squares that a query asks for, on the columns that the matrix shows at first. */
  function withSquares(matrix, columns, rows, asked) {
    const shown = columns.filter((column) => column.main || asked.versions.length).map((column) => matrix.columns.indexOf(column));
    return new ftm.Squares(matrix).rows(rows, shown, matrix.devices, asked);
  }

  function features(pages, asked) {
    const plainest = { flow: "train", method: "lora", quant: "none", strategy: "single" };
    const distance = (feature) => Object.entries(feature.options)
      .filter(([name, value]) => !(name in asked.options) && value !== plainest[name]).length;
    return pages.features.filter((each) => fits(each.options, Object.fromEntries(Object.entries(asked.options).filter(([name]) => name in plainest))))
      .filter(() => Object.keys(asked.options).some((name) => name in plainest))
      .sort((a, b) => distance(a) - distance(b)).slice(0, 4)
      .map((each) => ({ kind: "Feature", title: each.title, note: each.status, href: ftm.page(each.file) }));
  }

  const admitsColumn = (column, versions) => versions.every((wanted) =>
    Object.values(column.versions[wanted.name] ?? column.others[wanted.name] ?? {}).some((version) => ftm.query.admits(wanted, version)));

  /** Tell if a column has all versions of a query, and none that it excludes. */
  const isAskedColumn = (column, asked) => admitsColumn(column, asked.versions)
    && !asked.without.some((part) => part.versions.length && admitsColumn(column, part.versions));

  const namesRows = (part) => part.rest.length > 0 || Object.keys(part.options).length > 0;

  /** Return the test of a row for all options and words of one part of a query. */
  function rowTest(part, matrix, options) {
    const sets = Object.entries(part.options).map(([name, values]) =>
      new Set(values.map((value) => options.values.indexOf(`${name}=${value}`)).filter((number) => number >= 0)));
    return (row, number) => sets.every((set) => options.rows[number].some((value) => set.has(value)))
      && (!part.rest.length || part.rest.every((word) => `${row[0]} ${matrix.groups[row[1]]} ${options.why[number]}`.toLowerCase().includes(word)));
  }

  /** Return the rows of the matrix that have all options and words of a query, and none of its negated terms. */
  async function matching(matrix, asked) {
    const without = asked.without.filter(namesRows);
    if (!namesRows(asked) && !without.length) return matrix.rows;
    const options = await ftm.load("options"), wanted = rowTest(asked, matrix, options);
    const unwanted = without.map((part) => rowTest(part, matrix, options));
    return matrix.rows.filter((row, number) => wanted(row, number) && !unwanted.some((test) => test(row, number)));
  }

  Object.assign(ftm, { matching, admitsColumn, isAskedColumn, PASTED });
  document.querySelectorAll("form.search").forEach((form) => new Search(form));
})();
