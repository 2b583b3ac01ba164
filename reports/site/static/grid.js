/* A grid that draws only the cells in view: a matrix may have 100,000 squares. Follows the pattern of ARIA grids. */
"use strict";

ftm.Grid = class {
  static HEIGHT = 28;
  static BEYOND = { rows: 6, columns: 4 }; // drawn around the view

  /** `drawHead(first, last)` and `drawRow(number, first, last)` return elements with these columns. */
  constructor(place, { drawHead, drawRow }) {
    this.place = place;
    this.drawHead = drawHead;
    this.drawRow = drawRow;
    this.count = this.columns = 0;
    this.drawn = new Map();
    this.range = { first: 0, last: 0 };
    this.active = { row: -1, column: 0 };
    this.body = ftm.element("div", { class: "body", role: "rowgroup" });
    this.head = ftm.element("div", { class: "headgroup", role: "rowgroup" });
    place.replaceChildren(this.head, this.body);
    place.addEventListener("scroll", () => this.later(), { passive: true });
    place.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("focusin", (event) => this.focused(event));
    new ResizeObserver(() => { this.measure(); this.later(); }).observe(place);
  }

  /** Draw everything anew, with another number of rows or columns. */
  reset(count, columns) {
    this.count = count;
    this.columns = columns;
    this.place.setAttribute("aria-rowcount", count + 1);
    this.place.setAttribute("aria-colcount", columns + 1);
    this.range = { first: 0, last: 0 };
    this.measure();
    this.active = { row: Math.min(this.active.row, count - 1), column: Math.min(this.active.column, columns) };
    this.draw();
    this.headHeight = this.head.offsetHeight;
  }

  /** Read the widths that the style sheet states, and give the body the size of all cells. */
  measure() {
    const style = getComputedStyle(this.place), pixels = (name) => parseFloat(style.getPropertyValue(name)) * parseFloat(getComputedStyle(document.documentElement).fontSize);
    this.size = { first: pixels("--first"), column: pixels("--square"), width: this.place.clientWidth, height: this.place.clientHeight };
    this.body.style.height = `${this.count * ftm.Grid.HEIGHT}px`;
    this.body.style.width = this.head.style.width = `${this.size.first + this.columns * this.size.column}px`;
  }

  later() {
    if (this.planned) return;
    this.planned = requestAnimationFrame(() => { this.planned = 0; this.draw(); });
  }

  /** Return the range of columns in view, or with some around it. */
  inView(beyond) {
    const { first, column, width } = this.size, left = this.place.scrollLeft;
    return {
      first: Math.max(0, Math.floor(left / column) - beyond),
      last: Math.min(this.columns, Math.ceil((left + width - first) / column) + beyond),
    };
  }

  draw() {
    const seen = this.inView(0), isNew = !this.range.last || seen.first < this.range.first || seen.last > this.range.last;
    if (isNew) this.drawColumns();
    const { HEIGHT, BEYOND } = ftm.Grid, top = this.place.scrollTop;
    const first = Math.max(0, Math.floor(top / HEIGHT) - BEYOND.rows);
    const last = Math.min(this.count, Math.ceil((top + this.size.height) / HEIGHT) + BEYOND.rows);
    for (const [number, row] of this.drawn) {
      if ((number < first || number >= last) && !row.contains(document.activeElement)) {
        row.remove();
        this.drawn.delete(number);
      }
    }
    const added = document.createDocumentFragment();
    for (let number = first; number < last; number++) if (!this.drawn.has(number)) added.append(this.row(number));
    this.body.append(added);
    if (isNew) this.restoreFocus();
    if (!this.place.querySelector('[tabindex="0"]')) this.target(Math.max(first, 0), 0)?.setAttribute("tabindex", "0");
  }

  /** Forget all rows and draw the head for the columns that are in view now. */
  drawColumns() {
    this.hadFocus = this.body.contains(document.activeElement);
    this.range = this.inView(ftm.Grid.BEYOND.columns);
    this.head.replaceChildren(this.placed(this.drawHead(this.range.first, this.range.last)));
    this.drawn.clear();
    this.body.replaceChildren();
  }

  /** Give the focus back to its cell, or to the head of its row if the cell is no longer drawn. */
  restoreFocus() {
    if (!this.hadFocus) return;
    this.hadFocus = false;
    const { row, column } = this.active;
    if (!this.drawn.has(row) && row >= 0) this.body.append(this.row(row));
    (this.target(row, column) ?? this.target(row, 0))?.focus({ preventScroll: true });
  }

  /** Number the cells of a row, and leave room for the columns to the left that are not drawn. */
  placed(row) {
    [...row.children].forEach((cell, i) => {
      const column = i ? this.range.first + i : 0;
      cell.setAttribute("aria-colindex", column + 1);
      cell.dataset.column = column;
    });
    if (row.children[1] && this.range.first) row.children[1].style.marginLeft = `${this.range.first * this.size.column}px`;
    return row;
  }

  row(number) {
    const row = this.placed(this.drawRow(number, this.range.first, this.range.last));
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", number + 2);
    row.dataset.row = number;
    row.style.transform = `translateY(${number * ftm.Grid.HEIGHT}px)`;
    this.drawn.set(number, row);
    return row;
  }

  /** The element of a cell that takes the focus: a link or a button in it, or the cell itself. */
  target(row, column) {
    const cell = this.drawn.get(row)?.querySelector(`[data-column="${column}"]`);
    return cell?.querySelector("a,button") ?? cell ?? null;
  }

  focus(row, column) {
    row = Math.max(0, Math.min(this.count - 1, row));
    column = Math.max(0, Math.min(this.columns, column));
    this.reveal(row, column);
    this.draw();
    const target = this.target(row, column);
    if (!target) return;
    if (!target.matches("a,button")) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
  }

  /** Scroll so that head and first column do not cover a cell. */
  reveal(row, column) {
    const { HEIGHT } = ftm.Grid, { place, size } = this;
    const top = row * HEIGHT, room = size.height - this.headHeight - HEIGHT;
    if (top < place.scrollTop) place.scrollTop = top;
    else if (top > place.scrollTop + room) place.scrollTop = top - room;
    if (column === 0) return;
    const left = (column - 1) * size.column, right = left + size.column - (size.width - size.first);
    if (left < place.scrollLeft) place.scrollLeft = left;
    else if (right > place.scrollLeft) place.scrollLeft = Math.ceil(right) + 4;
  }

  focused(event) {
    const cell = event.target.closest("[data-column]"), row = event.target.closest("[data-row]");
    if (!cell || !row) return;
    this.place.querySelectorAll('[tabindex="0"]').forEach((each) => each.setAttribute("tabindex", "-1"));
    event.target.setAttribute("tabindex", "0");
    this.active = { row: Number(row.dataset.row), column: Number(cell.dataset.column) };
    this.onfocus?.(this.active);
  }

  key(event) {
    if (event.ctrlKey && !["Home", "End"].includes(event.key) || event.altKey || event.metaKey) return;
    const { row, column } = this.active;
    const page = Math.max(1, Math.floor((this.size.height - (this.headHeight ?? 0)) / ftm.Grid.HEIGHT) - 1);
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [row - page, column], PageDown: [row + page, column],
      Home: event.ctrlKey ? [0, 0] : [row, 0], End: event.ctrlKey ? [this.count - 1, this.columns] : [row, this.columns],
    };
    if (!(event.key in moves)) return;
    event.preventDefault();
    this.focus(...moves[event.key]);
  }
};
