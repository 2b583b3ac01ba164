/* A grid that draws only the rows in view: a matrix may have 100,000 squares. Follows the pattern of ARIA grids. */
"use strict";

ftm.Grid = class {
  static HEIGHT = 28;
  static BEYOND = 10; // rows drawn above and below the view

  /** `drawHead()` and `drawRow(number)` return elements; `count` is the number of rows. */
  constructor(place, { drawHead, drawRow }) {
    this.place = place;
    this.drawHead = drawHead;
    this.drawRow = drawRow;
    this.count = 0;
    this.drawn = new Map();
    this.active = { row: -1, column: 0 };
    this.body = ftm.element("div", { class: "body", role: "rowgroup" });
    this.head = ftm.element("div", { class: "headgroup", role: "rowgroup" });
    place.replaceChildren(this.head, this.body);
    place.addEventListener("scroll", () => this.later(), { passive: true });
    place.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("focusin", (event) => this.focused(event));
    new ResizeObserver(() => this.later()).observe(place);
  }

  /** Draw everything anew, with another number of rows or columns. */
  reset(count, columns) {
    this.count = count;
    this.columns = columns;
    this.place.setAttribute("aria-rowcount", count + 1);
    this.place.setAttribute("aria-colcount", columns + 1);
    const head = this.drawHead();
    this.head.replaceChildren(head);
    this.headHeight = head.offsetHeight;
    this.body.style.height = `${count * ftm.Grid.HEIGHT}px`;
    this.body.style.width = `${head.offsetWidth}px`;
    this.drawn.clear();
    this.body.replaceChildren();
    this.active = { row: Math.min(this.active.row, count - 1), column: Math.min(this.active.column, columns) };
    this.draw();
  }

  later() {
    if (this.planned) return;
    this.planned = requestAnimationFrame(() => { this.planned = 0; this.draw(); });
  }

  draw() {
    const { HEIGHT, BEYOND } = ftm.Grid;
    const first = Math.max(0, Math.floor((this.place.scrollTop) / HEIGHT) - BEYOND);
    const last = Math.min(this.count, Math.ceil((this.place.scrollTop + this.place.clientHeight) / HEIGHT) + BEYOND);
    for (const [number, row] of this.drawn) {
      if ((number < first || number >= last) && !row.contains(document.activeElement)) {
        row.remove();
        this.drawn.delete(number);
      }
    }
    const added = document.createDocumentFragment();
    for (let number = first; number < last; number++) if (!this.drawn.has(number)) added.append(this.row(number));
    this.body.append(added);
    if (!this.place.querySelector('[tabindex="0"]')) this.target(Math.max(first, 0), 0)?.setAttribute("tabindex", "0");
  }

  row(number) {
    const row = this.drawRow(number);
    row.setAttribute("role", "row");
    row.setAttribute("aria-rowindex", number + 2);
    row.dataset.row = number;
    row.style.transform = `translateY(${number * ftm.Grid.HEIGHT}px)`;
    [...row.children].forEach((cell, column) => {
      cell.setAttribute("aria-colindex", column + 1);
      cell.dataset.column = column;
    });
    this.drawn.set(number, row);
    return row;
  }

  /** The element of a cell that takes the focus: a link or a button in it, or the cell itself. */
  target(row, column) {
    const cell = this.drawn.get(row)?.children[column];
    return cell?.querySelector("a,button") ?? cell ?? null;
  }

  focus(row, column) {
    const { HEIGHT } = ftm.Grid;
    row = Math.max(0, Math.min(this.count - 1, row));
    const top = row * HEIGHT, room = this.place.clientHeight - this.headHeight - HEIGHT;
    if (top < this.place.scrollTop) this.place.scrollTop = top;
    else if (top > this.place.scrollTop + room) this.place.scrollTop = top - room;
    this.draw();
    const cells = this.drawn.get(row)?.children.length ?? 1;
    column = Math.max(0, Math.min(cells - 1, column));
    const target = this.target(row, column);
    if (!target) return;
    if (!target.matches("a,button")) target.setAttribute("tabindex", "-1");
    target.focus({ preventScroll: true });
    this.reveal(target.closest("[data-column]"), column);
  }

  /** Scroll sideways so that the first column does not cover a cell. */
  reveal(cell, column) {
    if (!cell || column === 0) return;
    const covered = this.place.querySelector(".first").offsetWidth;
    if (cell.offsetLeft - covered < this.place.scrollLeft) this.place.scrollLeft = cell.offsetLeft - covered - 4;
    const right = cell.offsetLeft + cell.offsetWidth - this.place.clientWidth;
    if (right > this.place.scrollLeft) this.place.scrollLeft = right + 4;
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
    const page = Math.max(1, Math.floor((this.place.clientHeight - (this.headHeight ?? 0)) / ftm.Grid.HEIGHT) - 1);
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
