/* My error: explains a pasted log in the browser. Nothing leaves the page. */
"use strict";

(() => {
  const { element } = ftm;
  const form = document.getElementById("error"), log = document.getElementById("log"), answer = document.getElementById("answer");
  const names = { cpu: "on CPU (gloo), not on GPUs", cuda: "on GPUs (NCCL)" };

  const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

  function cellLink(name, device) {
    const [set, kase] = [name.slice(0, name.indexOf("__")), name.slice(name.indexOf("__") + 2)];
    return element("a", { href: ftm.casePage(kase, `set=${encodeURIComponent(set)}&on=${device}`) }, name);
  }

  function fixItem(fix, number) {
    const id = `fix-${number}`;
    return element("li", {},
      fix.typed.length ? element("div", { class: "snippet" }, element("button", { type: "button", class: "copy", "data-copy": id }, "Copy fix"),
        element("pre", { tabindex: 0, "aria-label": "Fix" }, element("code", { id }, fix.typed.join("\n")))) : element("p", {}, ...withCode(fix.says)),
      element("p", { class: "small" }, `Verified ${names[fix.device] ?? `on ${fix.device}`}, ${fix.measured}: green `,
        ...fix.green.flatMap((cell, i) => [i ? ", " : "", cellLink(cell, fix.device)]), "; red without it: ", cellLink(fix.red, fix.device), "."));
  }

  function draw(result, number) {
    const { row } = result;
    const assumed = result.open.filter((condition) => !condition.startsWith("in "));
    return element("section", {},
      element("h2", { tabindex: -1 }, ...withCode(row.cause)),
      element("p", {}, element("a", { href: ftm.page(`cause/${encodeURIComponent(row.id)}.html`), class: "mono" }, row.id), ` · ${row.kind}`),
      element("p", { class: "mono small" }, result.line.slice(0, 500)),
      assumed.length ? element("p", { class: "note" }, `This applies with ${assumed.join(", ")}; the log does not show whether that is the case.`) : null,
      result.fixes.length ? element("h3", {}, "Verified fixes") : null,
      result.fixes.length ? element("ol", {}, result.fixes.slice(0, 4).map((fix, i) => fixItem(fix, `${number}-${i}`))) : null,
      row.fix ? element("p", {}, element("strong", {}, "Advice from threads, not verified: "), ...withCode(row.fix)) : null,
      ...(row.claims ?? []).map((claim) => element("p", { class: "warn" }, ...withCode(claim.says), `: ${claim.holding}`)),
      row.links?.length ? element("ul", {}, row.links.slice(0, 5).map((link) => element("li", {}, element("a", { href: link, rel: "noopener noreferrer" }, link)))) : null);
  }

  async function explain() {
    const text = log.value;
    if (!text.trim()) {
      answer.replaceChildren(element("p", {}, "Paste the traceback, or better the whole log."));
      return;
    }
    const { diagnoses, outside, versions } = await ftm.diagnosis.explain(text);
    const known = Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");
    const heading = known ? `Versions in the log: ${known}` : "The log names no versions; with them, fewer causes fit.";
    if (diagnoses.length) answer.replaceChildren(element("p", { class: "quiet small" }, heading), ...diagnoses.slice(0, 4).map(draw));
    else answer.replaceChildren(element("h2", { tabindex: -1 }, outside ? "Not a known failure of the stack" : "Unexplained"),
      element("p", {}, outside ? `The log ends in ${outside.says}: ` : "No known failure matches this log; its cause may still be in your setup. Nothing is guessed.", outside ? element("code", {}, outside.line.slice(0, 500)) : ""));
    answer.dataset.ids = diagnoses.map((each) => each.row.id).join(" ");
    answer.dataset.outside = outside?.id ?? "";
    answer.querySelector("h2")?.focus();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); explain(); });
  if (location.hash === "#pasted") {
    log.value = sessionStorage.getItem(ftm.PASTED) ?? "";
    if (log.value) explain();
  }
})();
