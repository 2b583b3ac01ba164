/* The filters of the matrix. One that takes several values is a list of checkboxes that a button unfolds. */
"use strict";

ftm.Filters = class {
  static LONG = 12; // choices; a longer list has a box to narrow it
  static NAMED = 2; // chosen values that the button names
  static LONGEST = 40; // characters of an unknown value that the page repeats

  /** `choices` has, by filter, pairs of a heading and its choices, each with its value and its text. */
  constructor(form, choices) {
    this.form = form;
    this.unknown = [];
    this.picks = [...form.querySelectorAll(".pick")];
    for (const pick of this.picks) this.fill(pick, choices[pick.dataset.name] ?? []);
    // Not on `pointerdown`: a list that folds before the finger is up would move what it points at.
    document.addEventListener("click", (event) => this.closeOthers(event.target.closest(".pick")));
  }

  fill(pick, groups) {
    const { name } = pick.dataset, { element } = ftm, panel = pick.querySelector(".choices");
    const count = groups.reduce((sum, [, choices]) => sum + choices.length, 0);
    panel.append(...groups.map(([heading, choices]) => element("fieldset", {},
      element("legend", { class: groups.length > 1 ? null : "hidden" }, heading),
      choices.map(([value, text]) => element("label", {}, element("input", { type: "checkbox", name, value }), element("span", {}, text))))));
    if (count > ftm.Filters.LONG) panel.prepend(this.narrowing(panel, pick.querySelector(".pick-name").textContent));
    pick.addEventListener("toggle", () => { if (pick.open) this.unfold(pick, panel); });
    pick.addEventListener("keydown", (event) => this.key(event, pick));
  }

  /** A box that hides the choices without its text. */
  narrowing(panel, name) {
    const box = ftm.element("input", { type: "search", "aria-label": `Narrow the list: ${name}`, placeholder: "narrow the list", autocomplete: "off", spellcheck: "false" });
    const narrow = () => {
      const wanted = box.value.trim().toLowerCase();
      for (const label of panel.querySelectorAll("label")) label.hidden = !label.textContent.toLowerCase().includes(wanted);
      for (const group of panel.querySelectorAll("fieldset")) group.hidden = !group.querySelector("label:not([hidden])");
    };
    box.addEventListener("input", (event) => { event.stopPropagation(); narrow(); });
    this.form.addEventListener("reset", () => setTimeout(narrow));
    return box;
  }

  /** Close the other lists, and keep this one inside the window. */
  unfold(pick, panel) {
    this.closeOthers(pick);
    panel.classList.remove("leftwards");
    panel.classList.toggle("leftwards", panel.getBoundingClientRect().right > document.documentElement.clientWidth);
  }

  closeOthers(kept) {
    for (const pick of this.picks) if (pick !== kept) pick.open = false;
  }

  /** Escape closes a list, and arrow keys move in it. */
  key(event, pick) {
    if (event.key === "Escape" && pick.open) {
      pick.open = false;
      pick.querySelector("summary").focus();
    } else if (pick.open && ["ArrowDown", "ArrowUp"].includes(event.key)) {
      const stops = [...pick.querySelectorAll("summary, input")].filter((each) => each.checkVisibility());
      const next = stops[stops.indexOf(document.activeElement) + (event.key === "ArrowDown" ? 1 : -1)];
      next?.focus();
    } else if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
    event.preventDefault(); // Enter in a list would submit the form, and arrow keys would scroll
  }

  boxes(pick) {
    return [...pick.querySelectorAll('input[type="checkbox"]')];
  }

  /** Return the chosen values: a list for each filter that takes several, a text for the others. */
  values() {
    const data = new FormData(this.form), several = this.picks.map((pick) => pick.dataset.name);
    return { ...Object.fromEntries(data), ...Object.fromEntries(several.map((name) => [name, data.getAll(name)])) };
  }

  /** Name the chosen values in the buttons. */
  show() {
    for (const pick of this.picks) {
      const texts = this.boxes(pick).filter((box) => box.checked).map((box) => box.parentElement.textContent);
      const chosen = pick.querySelector(".chosen");
      chosen.textContent = texts.length > ftm.Filters.NAMED ? `${texts.length} chosen` : texts.join(", ") || pick.dataset.none;
      chosen.title = texts.join(", ");
      pick.classList.toggle("active", texts.length > 0);
    }
  }

  /** Take the values of an address, and remember those that no filter has. */
  restore(stored) {
    for (const field of this.form.querySelectorAll("input[name]:not([type=checkbox]), select")) field.value = stored.get(field.name) ?? "";
    this.unknown = this.picks.flatMap((pick) => {
      const boxes = this.boxes(pick), wanted = stored.getAll(pick.dataset.name);
      for (const box of boxes) box.checked = wanted.includes(box.value);
      return wanted.filter((value) => value && !boxes.some((box) => box.value === value))
        .map((value) => `${pick.dataset.name}=${value.slice(0, ftm.Filters.LONGEST)}`);
    });
    const more = this.form.querySelector(".more-filters");
    if (more.querySelector(":checked")) more.open = true;
  }
};
