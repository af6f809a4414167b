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
    // The answer to a form is no page of its address: what the address shows would replace it.
    if (source || document.hidden || !("live" in document.body.dataset)) return;
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
  // The lines of a file are put into a field, which is sent.
  document.addEventListener("change", async (event) => {
    const field = event.target.dataset.fills && document.getElementById(event.target.dataset.fills);
    if (field && event.target.files.length) field.value = await event.target.files[0].text();
  });
  // "/" leads to the filter, as on many sites.
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select")) return;
    const field = document.querySelector("input[type=search]");
    if (field) { event.preventDefault(); field.focus(); }
  });
  // Lines that can be read at a point; without this they are the server's drawing.
  const day = (at) => new Date(at * 1000).toISOString().slice(11, 19);
  const short = new Intl.NumberFormat("en", { notation: "compact" });
  // A value of an axis in the unit of its chart.
  const inUnit = { "%": (value) => `${short.format(value * 100)}%`, B: (value) => `${short.format(value)}B`, s: (value) => `${short.format(value)} s` };
  const plot = (root) => {
    if (typeof uPlot === "undefined") return;
    for (const place of root.querySelectorAll("[data-chart]")) {
      const width = place.clientWidth;
      if (!width) continue;
      const style = getComputedStyle(document.documentElement);
      const soft = style.getPropertyValue("--soft").trim();
      const axis = { stroke: soft, grid: { stroke: style.getPropertyValue("--line").trim(), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
      const tell = inUnit[place.dataset.unit] || ((value) => short.format(value));
      place.replaceChildren();
      const data = JSON.parse(place.dataset.chart);
      // A line needs two points: the first ones are dots.
      const few = data[1].filter((value) => value !== null).length < 4;
      new uPlot({
        width, height: 120, cursor: { y: false, points: { size: 6 } }, legend: { live: true },
        axes: [{ ...axis, size: 22, values: (self, times) => times.map((at) => day(at).slice(0, 5)) }, { ...axis, size: 50, values: (self, ticks) => ticks.map(tell) }],
        // An empty chart has an axis all the same; a ratio's is up to 10 % then.
        scales: { y: { range: (self, low, high) => [0, Math.max(high, place.dataset.unit === "%" ? 0.1 : 1)] } },
        series: [{ label: "at", value: (self, at) => (at ? day(at) : "") }, { label: place.dataset.name, value: (self, value) => (value === null ? "" : tell(value)), stroke: style.getPropertyValue("--busy").trim(), width: 1.5, points: { show: few, size: 5 } }],
      }, data, place);
    }
  };
  // Of a graph wider than the screen the part that needs somebody is shown first.
  const aim = () => {
    for (const picture of document.querySelectorAll(".picture")) {
      const worst = picture.querySelector(".t-bad") || picture.querySelector(".t-warn");
      if (!worst || picture.scrollWidth <= picture.clientWidth) continue;
      const [box, frame] = [worst.getBoundingClientRect(), picture.getBoundingClientRect()];
      picture.scrollLeft += box.left - frame.left - (frame.width - box.width) / 2;
    }
  };
  document.addEventListener("renewed", (event) => {
    plot(event.detail);
    if (event.detail.matches(".picture") && !event.detail.scrollLeft) aim();
  });
  window.addEventListener("load", () => { plot(document); aim(); });
  // After a filter has changed the page and its address, the stream is of the new address.
  document.addEventListener("htmx:afterSettle", () => { leave(); follow(); plot(document); });
  follow();
})();
