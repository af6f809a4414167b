// Live parts, copied commands and filters.  Every page works without this file.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  let source = null;
  const note = document.getElementById("connection");
  const say = (text) => { if (note && note.textContent !== text) { note.textContent = text; note.hidden = !text; } };
  // A part in use keeps its place: a field with the focus, an open list, a selection.
  const inUse = (part) => {
    const active = document.activeElement;
    if (part.contains(active) && active.matches("input, select, textarea")) return true;
    const chosen = document.getSelection();
    return Boolean(chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
  };
  const renew = (parts) => {
    for (const [id, html] of Object.entries(parts)) {
      const part = document.getElementById(id);
      if (!part || inUse(part)) continue;
      const active = document.activeElement;
      const focused = part.contains(active) && active !== part ? active : null;
      const mark = focused && (focused.getAttribute("href") || focused.getAttribute("data-copy"));
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
      const { scrollLeft, scrollTop } = part;
      part.innerHTML = html;
      for (const one of part.querySelectorAll("details[id]")) one.open = one.open || open.has(one.id);
      part.scrollLeft = scrollLeft;
      part.scrollTop = scrollTop;
      if (mark) {
        const same = [...part.querySelectorAll("a[href], [data-copy]")].find(
          (one) => (one.getAttribute("href") || one.getAttribute("data-copy")) === mark);
        if (same) same.focus({ preventScroll: true });
      }
      document.dispatchEvent(new CustomEvent("renewed", { detail: part }));
    }
  };
  const follow = () => {
    if (source || document.hidden || !document.querySelector("[id^='live_']")) return;
    source = new EventSource(location.href);
    source.onmessage = (event) => { say(""); renew(JSON.parse(event.data)); };
    source.addEventListener("end", () => { leave(); say("not live: load the page again"); });
    source.onerror = () => { say("connection lost, trying again"); if (source && source.readyState === 2) source = null; };
  };
  const leave = () => { if (source) source.close(); source = null; };
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", follow);
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(button.dataset.copy);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  // A choice in a filter applies at once; text applies with Enter.
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-filter]");
    if (form && event.target.matches("select, input[type=checkbox]")) form.requestSubmit();
  });
  document.addEventListener("submit", (event) => {
    const question = event.target.dataset.confirm;
    if (question && !window.confirm(question)) event.preventDefault();
  });
  // "/" leads to the filter, as on many sites.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) return;
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); }
  });
  follow();
})();
