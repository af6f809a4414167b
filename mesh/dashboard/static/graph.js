// A graph is in its box as a whole, and is zoomed and moved there.  Without this file it is scrolled.
"use strict";
(() => {
  // Units of the drawing that are shown at the least: about one group.
  const LEAST = 240;
  const numbers = (text) => text.split(" ").map(Number);
  const drawn = (part) => part && part.querySelector("svg");
  const whole = (svg) => numbers(svg.dataset.whole ||= svg.getAttribute("viewBox"));
  // Show what begins at a place and has a width; all of the graph if that is wider.
  const look = (part, x, y, width) => {
    const svg = drawn(part);
    const [left, top, most, high] = whole(svg);
    const w = Math.max(width, Math.min(LEAST, most));
    if (w >= most) delete part.dataset.view;
    else {
      // The middle of the box stays on the drawing.
      const h = w * high / most;
      const within = (value, from, size, part) => Math.min(Math.max(value, from - part / 2), from + size - part / 2);
      part.dataset.view = [within(x, left, most, w), within(y, top, high, h), w, h].join(" ");
    }
    svg.setAttribute("viewBox", part.dataset.view || svg.dataset.whole);
  };
  const seen = (svg) => numbers(svg.getAttribute("viewBox"));
  const pointOf = (svg, event) => new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  const zoom = (part, factor, event) => {
    const svg = drawn(part);
    whole(svg);
    const [x, y, w, h] = seen(svg);
    const at = event ? pointOf(svg, event) : { x: x + w / 2, y: y + h / 2 };
    look(part, at.x - (at.x - x) / factor, at.y - (at.y - y) / factor, w / factor);
  };
  const move = (part, right, down) => {
    const [x, y, w, h] = seen(drawn(part));
    look(part, x + right * w, y + down * h, w);
  };
  const factors = { in: 1.5, out: 1 / 1.5, fit: 0 };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-zoom]");
    if (button) zoom(document.getElementById(button.getAttribute("aria-controls")), factors[button.dataset.zoom] || 1e-9);
  });
  const steps = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] };
  const keys = { "+": 1.5, "=": 1.5, "-": 1 / 1.5, 0: 1e-9 };
  document.addEventListener("keydown", (event) => {
    const part = event.target;
    if (!part.matches(".picture") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (keys[event.key]) zoom(part, keys[event.key]);
    else if (steps[event.key] && part.dataset.view) move(part, ...steps[event.key]);
    else return;
    event.preventDefault();
  });
  // Two fingers, or the wheel with Ctrl: the wheel alone scrolls the page.
  document.addEventListener("wheel", (event) => {
    const part = event.target.closest(".picture");
    if (!drawn(part) || !event.ctrlKey) return;
    event.preventDefault();
    zoom(part, Math.exp(-event.deltaY / 200), event);
  }, { passive: false });
  let drag = null;
  document.addEventListener("pointerdown", (event) => {
    const part = event.target.closest(".picture");
    drag = part && part.dataset.view && !event.button ? { part, at: pointOf(drawn(part), event), from: event, moved: false } : null;
  });
  document.addEventListener("pointermove", (event) => {
    if (!drag) return;
    drag.moved ||= Math.hypot(event.clientX - drag.from.clientX, event.clientY - drag.from.clientY) > 4;
    if (!drag.moved) return;
    const svg = drawn(drag.part);
    const now = pointOf(svg, event);
    const [x, y, w] = seen(svg);
    look(drag.part, x + drag.at.x - now.x, y + drag.at.y - now.y, w);
  });
  for (const name of ["pointerup", "pointercancel"]) {
    document.addEventListener(name, () => setTimeout(() => { drag = null; }));
  }
  // A drag that ends on a box opens no page, and a link of the drawing is not dragged itself.
  document.addEventListener("click", (event) => { if (drag && drag.moved) event.preventDefault(); }, true);
  document.addEventListener("dragstart", (event) => { if (event.target.closest && event.target.closest(".picture")) event.preventDefault(); });
  // A renewed drawing is seen as the one before, unless it is another one.
  document.addEventListener("renewed", (event) => {
    const part = event.detail;
    const svg = part.matches(".picture") && drawn(part);
    if (!svg || !part.dataset.view) return;
    whole(svg);
    const [x, y, w] = numbers(part.dataset.view);
    look(part, x, y, w);
  });
})();
