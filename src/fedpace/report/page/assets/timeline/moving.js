// Mouse, touch and keys on a timeline: drag, pinch and wheel move and zoom it, a click chooses.
"use strict";
(function (fp) {
  // actions: show(from, to), zoom(factor, at), click(x, y), hover(x, y), ask() to draw again.
  fp.listen = function (t, actions) {
    const { canvas, box, tip } = t.nodes;
    const held = new Map();
    let moved = 0, apart = 0;
    const spot = (event) => {
      const frame = canvas.getBoundingClientRect();
      return [event.clientX - frame.left, event.clientY - frame.top];
    };
    const shift = (pixels) => {
      const seconds = (pixels / fp.places.width(t)) * (t.view.to - t.view.from);
      actions.show(t.view.from + seconds, t.view.to + seconds);
    };

    box.addEventListener("scroll", () => { tip.hidden = true; actions.ask(); });
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) {
        event.preventDefault();
        actions.zoom(Math.exp(event.deltaY * 0.004), fp.places.seconds(t, spot(event)[0]));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        shift(event.deltaX || event.deltaY);
      }
    }, { passive: false });

    canvas.addEventListener("pointerdown", (event) => {
      held.set(event.pointerId, spot(event));
      moved = apart = 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const [x, y] = spot(event);
      if (!held.has(event.pointerId)) {
        if (event.pointerType === "mouse") actions.hover(x, y);
        return;
      }
      const [before] = held.get(event.pointerId);
      moved += Math.abs(x - before);
      held.set(event.pointerId, [x, y]);
      if (held.size === 2) {
        const [[a], [b]] = [...held.values()];
        const now = Math.max(12, Math.abs(a - b));
        if (apart) actions.zoom(apart / now, fp.places.seconds(t, (a + b) / 2));
        apart = now;
      } else if (moved > 4) {
        tip.hidden = true;
        shift(before - x);
      }
    });
    const lift = (event) => {
      const one = held.get(event.pointerId);
      held.delete(event.pointerId);
      apart = 0;
      if (one && event.type === "pointerup" && moved <= 4 && held.size === 0) actions.click(...one);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
    canvas.addEventListener("dblclick", (event) => actions.zoom(0.4, fp.places.seconds(t, spot(event)[0])));
    canvas.addEventListener("keydown", (event) => {
      const step = fp.places.width(t) / 8;
      const keys = {
        ArrowLeft: () => shift(-step), ArrowRight: () => shift(step), Home: () => actions.show(0, t.lanes.length),
        "+": () => actions.zoom(0.5), "=": () => actions.zoom(0.5), "-": () => actions.zoom(2),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
  };
})(window.fedpace);
