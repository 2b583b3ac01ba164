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
    write(values) {
      const parameters = new URLSearchParams();
      for (const [name, value] of Object.entries(values)) if (value) parameters.set(name, value);
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

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-copy]");
    if (button) copy(button, document.getElementById(button.dataset.copy).textContent);
  });

  return { register, load, element, state, page, casePage, copy, root };
})();
