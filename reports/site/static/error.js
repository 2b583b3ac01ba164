/* My error: explains a pasted log in the browser, as `ftmatrix explain --all` does. Nothing leaves the page. */
"use strict";

(() => {
  const { element } = ftm;
  const form = document.getElementById("error"), log = document.getElementById("log"), answer = document.getElementById("answer");
  const names = { cpu: "on CPU (gloo), not on GPUs", cuda: "on GPUs (NCCL)" };
  const CAUSES = 4, FIXES = 4, CELLS = 2, LINKS = 5, NARROWER = 3, LONGEST_LINE = 500;

  const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));
  const beware = (texts) => [...new Set(texts)].map((text) => element("p", { class: "warn" }, element("strong", {}, "Beware: "), ...withCode(text)));

  function cellLink(name, device) {
    const [set, kase] = [name.slice(0, name.indexOf("__")), name.slice(name.indexOf("__") + 2)];
    return element("a", { href: ftm.casePage(kase, `set=${encodeURIComponent(set)}&on=${device}`) }, name);
  }

  function proof(fix) {
    const more = fix.green.length > CELLS ? ` and ${fix.green.length - CELLS} more` : "";
    return element("p", { class: "small" }, `Verified ${names[fix.device] ?? `on ${fix.device}`}, ${fix.measured}: green `,
      ...fix.green.slice(0, CELLS).flatMap((cell, i) => [i ? ", " : "", cellLink(cell, fix.device)]), more,
      "; red without it: ", cellLink(fix.red, fix.device), ".");
  }

  const says = (fix) => [fix.change, fix.because].filter(Boolean).join(": ");

  /** Draw one fix with its proofs on all devices, and what is known against it. */
  function fixItem(fixes, id) {
    const [{ typed }] = fixes;
    return element("li", {},
      typed.length ? element("div", { class: "snippet" }, element("button", { type: "button", class: "copy", "data-copy": id }, "Copy fix"),
        element("pre", { tabindex: 0, "aria-label": "Fix" }, element("code", { id }, typed.join("\n")))) : null,
      element("p", {}, ...withCode(says(fixes[0]))), ...beware(fixes.flatMap((fix) => fix.dangers)), ...fixes.map(proof));
  }

  function fixList(fixes, number) {
    const alike = [...Map.groupBy(fixes, says).values()], more = alike.length - FIXES;
    return [
      element("h3", {}, "Verified fixes"),
      element("ol", {}, alike.slice(0, FIXES).map((each, i) => fixItem(each, `fix-${number}-${i}`))),
      more > 0 ? element("details", {}, element("summary", {}, `${more} more`),
        element("ol", { start: FIXES + 1 }, alike.slice(FIXES).map((each, i) => fixItem(each, `fix-${number}-${i + FIXES}`)))) : null,
    ];
  }

  function draw(result, number) {
    const { row } = result, assumed = result.open.filter((condition) => !condition.startsWith("in "));
    return element("section", {},
      element("h2", { tabindex: -1 }, ...withCode(row.cause)),
      element("p", {}, element("a", { href: ftm.page(`cause/${encodeURIComponent(row.id)}.html`), class: "mono" }, row.id),
        ` · ${row.kindWords}`, result.phase ? ` · in ${result.phase}` : ""),
      element("p", { class: "mono small" }, result.line.slice(0, LONGEST_LINE)),
      assumed.length ? element("p", { class: "note" }, `This applies with ${assumed.join(", ")}; the log does not show whether that is the case.`) : null,
      ...(result.fixes.length ? fixList(result.fixes, number) : []),
      row.fix ? element("p", {}, element("strong", {}, "Advice from threads, not verified: "), ...withCode(row.fix)) : null,
      ...result.claims.filter((claim) => claim.holding !== "holds").map((claim) => element("p", { class: "warn" }, ...withCode(claim.says), `: ${claim.holding}`)),
      ...beware(result.dangers),
      ...result.needs.map((needs) => element("p", { class: "quiet" }, `Not measured yet: it needs ${needs}.`)),
      ...result.narrower.slice(0, NARROWER).map((each) => element("p", { class: "note" },
        `With ${each.assumed.join(", ")}: `, ...withCode(`${each.row.cause} ${each.row.fix ? `Advice, not verified: ${each.row.fix}` : ""}`))),
      result.links.length ? element("ul", {}, result.links.slice(0, LINKS).map((link) => element("li", {}, element("a", { href: link, rel: "noopener noreferrer" }, link)))) : null);
  }

  function unexplained(outside) {
    return [
      element("h2", { tabindex: -1 }, outside ? "Not a known failure of the stack" : "Unexplained"),
      element("p", {}, outside ? `The log ends in ${outside.says}: ` : "No known failure matches this log; its cause may still be in your setup. Nothing is guessed.",
        outside ? element("code", {}, outside.line.slice(0, LONGEST_LINE)) : ""),
    ];
  }

  async function explain() {
    if (!log.value.trim()) return answer.replaceChildren(element("p", {}, "Paste the traceback, or better the whole log."));
    const { diagnoses, outside, versions, isCut } = await ftm.diagnosis.explain(log.value);
    const known = Object.entries(versions).map(([name, version]) => `${name} ${version}`).join(", ");
    const heading = known ? `Versions in the log: ${known}` : "The log names no versions; with them, fewer causes fit.";
    const shown = diagnoses.length ? diagnoses.slice(0, CAUSES).map(draw) : unexplained(outside);
    const cut = isCut ? element("p", { class: "note" }, "The log is very long: of its middle, only lines about errors were read.") : null;
    answer.replaceChildren(...[element("p", { class: "quiet small" }, heading), cut, ...shown].filter(Boolean));
    answer.dataset.ids = diagnoses.map((each) => each.row.id).join(" ");
    answer.dataset.outside = outside?.id ?? "";
    answer.querySelector("h2").focus();
  }

  form.addEventListener("submit", (event) => { event.preventDefault(); explain(); });
  if (location.hash === "#too-long") answer.replaceChildren(element("p", { class: "note" }, "The browser cannot carry such a long text from one page to another: paste it here."));
  if (location.hash === "#pasted") {
    log.value = sessionStorage.getItem(ftm.PASTED) ?? "";
    if (log.value) explain();
  }
})();
