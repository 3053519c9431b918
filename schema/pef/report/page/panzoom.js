// Pictures that are moved by dragging and enlarged by the wheel, by buttons and by keys.

const STEP = 1.25;
const seen = new Map();

/**
 * Let `surface` move what `draw({x, y, kx, ky})` shows: a point p of the picture is at x + kx * p.
 * `fit()` gives the view that shows all. `both` says whether width and height grow together.
 */
function panZoom(surface, key, { fit, draw, both = true, most = 40 }) {
  let view = seen.get(key) ?? null, pressed = null, moved = false;

  function show(next) {
    view = next;
    seen.set(key, view);
    draw(view);
  }
  // While nobody has moved it, the picture stays as large as its frame.
  function showAll() {
    show(fit());
    seen.delete(key);
  }

  function zoom(factor, px, py, wide = true, high = true) {
    const full = fit();
    const limited = (k, least) => Math.min(Math.max(k * factor, least * 0.4), Math.max(least * most, most));
    const kx = wide ? limited(view.kx, full.kx) : view.kx, ky = both ? kx : high ? limited(view.ky, full.ky) : view.ky;
    show({ kx, ky, x: px - (px - view.x) * (kx / view.kx), y: py - (py - view.y) * (ky / view.ky) });
  }

  const middle = () => [surface.clientWidth / 2, surface.clientHeight / 2];
  const place = (event) => {
    const box = surface.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  surface.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event.deltaY < 0 ? STEP : 1 / STEP, ...place(event), !event.altKey, !event.shiftKey);
  }, { passive: false });
  surface.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = { x: event.clientX, y: event.clientY };
    moved = false;
  });
  surface.addEventListener("pointermove", (event) => {
    if (pressed === null) return;
    const dx = event.clientX - pressed.x, dy = event.clientY - pressed.y;
    if (!moved && Math.hypot(dx, dy) < 4) return;
    if (!moved) surface.setPointerCapture(event.pointerId);
    moved = true;
    hideTip();
    pressed = { x: event.clientX, y: event.clientY };
    show({ ...view, x: view.x + dx, y: view.y + dy });
  });
  const released = () => { pressed = null; };
  surface.addEventListener("pointerup", released);
  surface.addEventListener("pointercancel", released);
  // A drag that ends on something is no click on it.
  surface.addEventListener("click", (event) => {
    if (moved) event.stopPropagation();
    moved = false;
  }, true);
  surface.addEventListener("keydown", (event) => {
    const far = 60;
    const keys = {
      "+": () => zoom(STEP, ...middle()), "=": () => zoom(STEP, ...middle()), "-": () => zoom(1 / STEP, ...middle()),
      0: showAll,
      ArrowLeft: () => show({ ...view, x: view.x + far }), ArrowRight: () => show({ ...view, x: view.x - far }),
      ArrowUp: () => show({ ...view, y: view.y + far }), ArrowDown: () => show({ ...view, y: view.y - far }),
    };
    if (!(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  new ResizeObserver(() => {
    if (!surface.clientWidth || !surface.clientHeight) return;
    if (seen.has(key)) show(view); else showAll();
  }).observe(surface);
  return {
    tools: () => [
      el("button", { title: "enlarge (+, wheel)", "aria-label": "enlarge", onclick: () => zoom(STEP, ...middle()) }, "+"),
      el("button", { title: "reduce (-, wheel)", "aria-label": "reduce", onclick: () => zoom(1 / STEP, ...middle()) }, "−"),
      el("button", { title: "show all (0)", onclick: showAll }, "all"),
    ],
    redraw: () => { if (view) draw(view); },
    centre: (x, y, k) => show({ kx: k, ky: k, x: surface.clientWidth / 2 - k * x, y: surface.clientHeight / 2 - k * y }),
  };
}
