/* Versions and specifiers as PEP 440 defines them, as far as releases and the tables of the site need it. */
"use strict";

ftm.versions = (() => {
  const VERSION = new RegExp(
    String.raw`^v?(\d+(?:\.\d+)*)(?:[-_.]?(a|b|c|rc|alpha|beta|pre|preview)[-_.]?(\d*))?`
    + String.raw`(?:-(\d+)|[-_.]?(post|rev|r)[-_.]?(\d*))?(?:[-_.]?(dev)[-_.]?(\d*))?(?:\+([a-z0-9]+(?:[-_.][a-z0-9]+)*))?$`, "i");
  const STAGES = { a: "a", alpha: "a", b: "b", beta: "b", c: "rc", rc: "rc", pre: "rc", preview: "rc" };
  const OLDEST = { release: [0], pre: null, post: -1, dev: Infinity };

  /** Return the parts of a version; null if it is none. `local` builds do not count in comparisons. */
  function parsed(text) {
    const match = VERSION.exec(text.trim());
    if (!match) return null;
    const [, release, stage, number, implicit, post, postNumber, dev, devNumber, local] = match;
    return {
      release: release.split(".").map(Number),
      pre: stage ? [STAGES[stage.toLowerCase()], Number(number)] : null,
      post: implicit !== undefined ? Number(implicit) : post ? Number(postNumber) : -1,
      dev: dev ? Number(devNumber) : Infinity,
      local: local ? local.toLowerCase().split(/[-_.]/).map((part) => (/^\d+$/.test(part) ? String(Number(part)) : part)) : [],
    };
  }

  /** Return a version in its normal form; an empty string if the text is none. */
  function normal(text) {
    const version = parsed(text);
    if (!version) return "";
    return version.release.join(".") + (version.pre ? version.pre.join("") : "")
      + (version.post >= 0 ? `.post${version.post}` : "") + (version.dev < Infinity ? `.dev${version.dev}` : "")
      + (version.local.length ? `+${version.local.join(".")}` : "");
  }

  function order(one, other) {
    for (let i = 0; i < Math.max(one.release.length, other.release.length); i++) {
      const difference = (one.release[i] ?? 0) - (other.release[i] ?? 0);
      if (difference) return Math.sign(difference);
    }
    const stage = ({ pre, post, dev }) => pre ?? (post < 0 && dev < Infinity ? ["", 0] : ["~", 0]);
    const [a, b] = [[...stage(one), one.post, one.dev], [...stage(other), other.post, other.dev]];
    const place = a.findIndex((part, i) => part !== b[i]);
    return place < 0 ? 0 : a[place] < b[place] ? -1 : 1;
  }

  /** Compare two texts without their local builds; a text that is no version is older than all. */
  const compare = (one, other) => order(parsed(one) ?? OLDEST, parsed(other) ?? OLDEST);

  const startsWith = (version, prefix) => prefix.every((number, i) => number === (version.release[i] ?? 0));
  const numbers = (text) => text.split(".").map(Number);
  const base = (version) => ({ ...version, pre: null, post: -1, dev: Infinity });
  const isEarly = (version) => version.pre !== null || version.dev < Infinity;

  function admits(operator, wanted, version) {
    if (wanted.endsWith(".*")) return startsWith(version, numbers(wanted.slice(0, -2))) === (operator === "==");
    const other = parsed(wanted), ordered = order(version, other), isSameRelease = order(base(version), base(other)) === 0;
    switch (operator) {
      case "~=": return ordered >= 0 && startsWith(version, other.release.slice(0, -1));
      case "<": return ordered < 0 && !(isSameRelease && isEarly(version) && !isEarly(other));
      case ">": return ordered > 0 && !(isSameRelease && version.post >= 0 && other.post < 0);
      default: return { "==": ordered === 0, "!=": ordered !== 0, "<=": ordered <= 0, ">=": ordered >= 0 }[operator];
    }
  }

  /** Tell if a version is in a specifier such as `>=2.7,<2.9,!=2.8.*`; pre-releases count. */
  function contains(specifier, text) {
    const version = parsed(text);
    return version !== null && specifier.split(",").filter(Boolean).every((part) => {
      const [, operator, wanted] = /^\s*(==|!=|<=|>=|~=|<|>)\s*(.+?)\s*$/.exec(part);
      return admits(operator, wanted, version);
    });
  }

  const minor = (text) => (parsed(text) ?? OLDEST).release.slice(0, 2);
  const haveSameMinor = (one, other) => minor(one).length === minor(other).length && minor(one).every((part, i) => part === minor(other)[i]);

  return { parsed, normal, compare, contains, haveSameMinor };
})();
