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
    if (part.dataset.paused) return true;
    // A time is being marked in a chart.
    if (part.matches(":active")) return true;
    const chosen = document.getSelection();
    return Boolean(chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode));
  };
  const renew = (parts) => {
    for (const [id, html] of Object.entries(parts)) {
      const part = document.getElementById(id);
      if (!part || inUse(part)) continue;
      const active = document.activeElement;
      const focused = part.contains(active) && active !== part ? active : null;
      const markOf = (one) => one.id || one.getAttribute("href") || one.getAttribute("data-copy");
      const mark = focused && markOf(focused);
      const open = new Set([...part.querySelectorAll("details[open][id]")].map((one) => one.id));
      const { scrollLeft, scrollTop } = part;
      part.innerHTML = html;
      for (const one of part.querySelectorAll("details[id]")) one.open = one.open || open.has(one.id);
      part.scrollLeft = scrollLeft;
      part.scrollTop = scrollTop;
      if (mark) {
        const same = [...part.querySelectorAll("a[href], button")].find((one) => markOf(one) === mark);
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
    const said = button.firstChild;
    said.textContent = "Copied";
    setTimeout(() => { said.textContent = "Copy"; }, 1500);
  });
  // A part that is paused stays as it is until it continues.
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-pause]");
    const part = button && document.getElementById(button.dataset.pause);
    if (!part) return;
    const pauses = !part.dataset.paused;
    if (pauses) part.dataset.paused = "1"; else delete part.dataset.paused;
    button.setAttribute("aria-pressed", String(pauses));
    button.textContent = pauses ? "Continue" : "Pause";
    // What came meanwhile is shown at once: a new stream begins with everything.
    if (!pauses) { leave(); follow(); }
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
  // The command of a form has the values of its fields.
  const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const command = (pattern, form) => {
    const value = (name) => {
      const field = form.elements[name];
      return !field ? "" : field.type === "checkbox" ? (field.checked ? "1" : "") : field.value.trim();
    };
    return pattern
      .replace(/\[\?(\w+)([^\]]*)\]/g, (all, name, part) => (value(name) ? part : ""))
      .replace(/\[([^\]{]*\{(\w+)\}[^\]]*)\]/g, (all, part, name) => (value(name) ? part : ""))
      .replace(/\{(\w+)\}/g, (all, name) => (value(name) ? quoted(value(name)) : name.toUpperCase()));
  };
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    for (const place of form ? form.querySelectorAll("[data-same]") : []) {
      const text = command(place.dataset.same, form);
      place.querySelector("code").textContent = text;
      place.querySelector("[data-copy]").dataset.copy = text;
    }
  });
  // The lines of a file are put into a field, which is sent.
  document.addEventListener("change", async (event) => {
    const field = event.target.dataset.fills && document.getElementById(event.target.dataset.fills);
    if (field && event.target.files.length) field.value = await event.target.files[0].text();
  });
  // Keys of one character; who speaks to a browser, or has them for something else, ends them.
  const keys = document.getElementById("keys");
  const keysOn = document.getElementById("keys-on");
  let stored = {};
  try { stored = localStorage; } catch { /* The browser stores nothing, so the choice is of this page. */ }
  keysOn.checked = stored.keys !== "off";
  keysOn.addEventListener("change", () => { stored.keys = keysOn.checked ? "on" : "off"; });
  document.getElementById("keys-open").addEventListener("click", () => keys.showModal());
  const focus = (selector) => { const field = document.querySelector(selector); if (field) { field.focus(); field.select(); } return field; };
  const acts = {
    "/": () => focus("#find"),
    f: () => focus("main input[type=search]"),
    h: () => { location.assign("/"); return true; },
    "?": () => { keys.showModal(); return true; },
  };
  document.addEventListener("keydown", (event) => {
    if (!keysOn.checked || keys.open || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, textarea, select") || !acts[event.key]) return;
    if (acts[event.key]()) event.preventDefault();
  });
  // Times in the zone of the browser, with UTC beside them; without this they are in UTC.  Swedish
  // writes a date as ISO 8601 does.
  const local = new Intl.DateTimeFormat("sv", { year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit" });
  // Date and time of day, local and in UTC; null where they are the same.
  const timesOf = (date) => {
    const [here, there] = [local.format(date).split(" "), date.toISOString().slice(0, 19).split("T")];
    return here.join() === there.join() ? null : [here, there];
  };
  const localize = (root) => {
    for (const place of root.querySelectorAll("time[datetime]:not([data-utc])")) {
      place.dataset.utc = "";
      const times = timesOf(new Date(place.dateTime));
      if (!times) continue;
      const [here, there] = times;
      const small = document.createElement("small");
      const isClock = "clock" in place.dataset;
      small.textContent = ` ${isClock || here[0] === there[0] ? "" : `${there[0].slice(5)} `}${there[1].slice(0, 5)} UTC`;
      place.replaceChildren(isClock ? here[1] : here.join(" "), small);
    }
  };
  // Lines that can be read at a point; without this they are the server's drawing.
  const localAt = (at) => local.format(new Date(at * 1000));
  const day = (at) => {
    const times = timesOf(new Date(at * 1000));
    return times ? `${times[0][1]} (${times[1][1].slice(0, 5)} UTC)` : `${localAt(at).slice(11)} UTC`;
  };
  // Beyond a day the axis has the date as well.
  const axisTime = (at, span) => (span > 100000 ? localAt(at).slice(5, 10) : localAt(at).slice(11, 16));
  const short = new Intl.NumberFormat("en", { notation: "compact" });
  // A value of an axis in the unit of its chart.
  const inUnit = { "%": (value) => `${short.format(value * 100)}%`, B: (value) => `${short.format(value)}B`, s: (value) => `${short.format(value)} s` };
  // A time that is marked in a chart becomes that of the page, and part of its address.
  let leaves = false;
  const zoom = (self) => {
    if (leaves || self.select.width < 4) return;
    const [from, to] = [0, self.select.width].map((x) => Math.round(self.posToVal(self.select.left + x, "x")));
    const address = new URL(location.href);
    address.searchParams.delete("span");
    address.searchParams.set("from", from);
    address.searchParams.set("to", Math.max(to, from + 60));
    leaves = true;
    location.assign(address);
  };
  window.addEventListener("pageshow", () => { leaves = false; });
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
      const labels = place.dataset.labels.split("|");
      const colours = ["--busy", "--warn"].map((name) => style.getPropertyValue(name).trim());
      const span = data[0][data[0].length - 1] - data[0][0];
      new uPlot({
        width, height: 120, legend: { live: true }, hooks: { setSelect: [zoom] },
        // All charts of a page have one cursor, and one time is marked in them.
        cursor: { y: false, points: { size: 6 }, sync: { key: "charts" }, drag: { x: true, y: false, setScale: false } },
        axes: [{ ...axis, size: 22, values: (self, times) => times.map((at) => axisTime(at, span)) }, { ...axis, size: 50, values: (self, ticks) => ticks.map(tell) }],
        // An empty chart has an axis all the same; a ratio's is up to 10 % then.
        scales: { y: { range: (self, low, high) => [0, Math.max(high, place.dataset.unit === "%" ? 0.1 : 1)] } },
        series: [{ label: "at", value: (self, at) => (at ? day(at) : "") }, ...labels.map((label, line) => ({ label: label || place.dataset.name, value: (self, value) => (value === null ? "" : tell(value)), stroke: colours[line], width: 1.5, points: { show: few, size: 5 } }))],
      }, data, place);
    }
  };
  document.addEventListener("renewed", (event) => { localize(event.detail); plot(event.detail); });
  window.addEventListener("load", () => plot(document));
  // After a filter has changed the page and its address, the stream is of the new address.
  document.addEventListener("htmx:afterSettle", () => { leave(); follow(); localize(document); plot(document); });
  localize(document);
  follow();
})();
