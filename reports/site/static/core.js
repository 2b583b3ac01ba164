/* The names that all scripts of the site share, and the loader of data files.

   These are classic scripts and no ES modules: a browser that opens the site from a folder gives its pages no origin,
   and refuses modules and `fetch`. Each script keeps its names in a function and adds what others use to `ftm`. */
"use strict";

const ftm = (() => {
  const root = new URL("..", document.currentScript.src);
  const known = new Map();
  const waiting = new Map();

  /** Called by each data file with its name. */
  function register(name, value) {
    known.set(name, value);
    waiting.get(name)?.resolve(value);
    waiting.delete(name);
  }

  /** Load `data/NAME.js` once; the promise has what the file registers. */
  function load(name) {
    if (known.has(name)) return Promise.resolve(known.get(name));
    if (!waiting.has(name)) {
      const entry = {};
      entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
      waiting.set(name, entry);
      const script = document.createElement("script");
      script.src = new URL(`data/${name}.js`, root).href;
      script.addEventListener("error", () => entry.reject(new Error(`the file data/${name}.js is missing`)));
      document.head.append(script);
    }
    return waiting.get(name).promise;
  }

  /** Create an element. Texts become text nodes: nothing of the data is ever parsed as markup. */
  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
    return made;
  }

  /** The state in the address, after `#`. It stays there so that it also works from a folder. */
  const state = {
    read: () => new URLSearchParams(location.hash.slice(1)),
    /** A list becomes a parameter for each of its values. */
    write(values) {
      const parameters = new URLSearchParams();
      for (const [name, value] of Object.entries(values)) for (const each of [value].flat()) if (each) parameters.append(name, each);
      const text = parameters.toString();
      history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
    },
  };

  const page = (path) => new URL(path, root).href;
  const casePage = (file, hash = "") => page(`case/${encodeURIComponent(file)}.html`) + (hash ? `#${hash}` : "");

  /** Copy a text, and say so in the button. */
  async function copy(button, text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea", { "aria-hidden": "true", class: "hidden" });
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = before), 1500);
  }

  /** The last day and the digest of the results that the site shows. */
  const { day, results } = document.querySelector(".foot").dataset;

  /** Return the address of the page with the results that it shows now, which `warn` reads. */
  function link() {
    const parameters = state.read();
    parameters.set("of", `${day}.${results}`);
    return `${location.href.split("#")[0]}#${parameters}`;
  }

  /** Say so if the address was copied from a site of other results. */
  function warn() {
    const [of, digest] = (state.read().get("of") ?? "").split(".");
    if (!digest || digest === results) return;
    document.getElementById("main").prepend(element("p", { class: "note" },
      `This link was copied from results up to ${of.slice(0, 10)}; this site shows those up to ${day}, which may differ.`));
  }
  warn();

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) copy(button, document.getElementById(button.dataset.copy).textContent);
  });

  return { register, load, element, state, page, casePage, copy, link, root };
})();
