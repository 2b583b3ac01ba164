/* What the squares of the matrix hold: the verdict of each device, its cause, and whether devices disagree. */
"use strict";

ftm.Squares = class {
  static SAME = { differs: "different", green: "pass" }; // other words for the same squares

  constructor(matrix) {
    this.matrix = matrix;
    this.red = new Set(matrix.red);
    this.ran = new Set([...matrix.red, "p"]);
    this.width = matrix.columns.length;
    this.letterOf = new Map(Object.entries(matrix.letters).map(([letter, look]) => [look[2], letter]));
    this.numberOf = new Map(matrix.rows.map((row, number) => [row, number]));
    this.causes = Object.fromEntries(matrix.devices.map((device) => {
      const [rows, columns, causes] = matrix.cellCauses[device];
      return [device, new Map(rows.map((row, i) => [row * this.width + columns[i], causes[i]]))];
    }));
  }

  letter(device, row, column) {
    return this.matrix.squares[device][row][column];
  }

  /** Return the number of the cause of a red cell; undefined if none is known. */
  cause(device, row, column) {
    return this.causes[device].get(row * this.width + column);
  }

  /** Tell if one device is red and another green. */
  differs(row, column) {
    const seen = this.matrix.devices.map((device) => this.letter(device, row, column)).filter((each) => this.ran.has(each));
    return seen.length > 1 && new Set(seen.map((each) => this.red.has(each))).size > 1;
  }

  /** Return the test of a square for a word such as `red`, `different` or `wrong`; undefined if the word is none. */
  test(asked) {
    const word = ftm.Squares.SAME[asked] ?? asked;
    const some = (fits) => (row, column, devices) => devices.some((device) => fits(this.letter(device, row, column), device, row, column));
    if (word === "different") return (row, column) => this.differs(row, column);
    if (word === "red") return some((letter) => this.red.has(letter));
    if (word === "unexplained") return some((letter, device, row, column) => this.red.has(letter) && this.cause(device, row, column) === undefined);
    const wanted = this.letterOf.get(word);
    return wanted && some((letter) => letter === wanted);
  }

  /** Return the test of a square for several words, of which one must fit. */
  anyOf(words) {
    const tests = words.map((word) => this.test(word)).filter(Boolean);
    return (row, column, devices) => tests.some((test) => test(row, column, devices));
  }

  /** Return the rows that have a square for all wanted words, and none for the words of an unwanted test. */
  rows(rows, columns, devices, asked, more = []) {
    const wanted = [...asked.squares.map((words) => this.anyOf(words)), ...more];
    const unwanted = asked.without.filter((each) => each.squares.length).map((each) => each.squares.map((words) => this.anyOf(words)));
    const has = (row, tests) => columns.some((column) => tests.every((test) => test(row, column, devices)));
    return rows.filter((each) => {
      const row = this.numberOf.get(each);
      return (!wanted.length || has(row, wanted)) && !unwanted.some((tests) => has(row, tests));
    });
  }
};
