// The timeline: lanes of clients below one of the server, to be zoomed, sorted, searched and clicked.
"use strict";
(function (fp) {
  // What is shown: the data's lanes, the elements, and what the reader looks at, which outlives newer data.
  const t = {
    lanes: null, nodes: null, runs: "",
    view: { from: 0, to: 1, whole: true, round: 0, span: null, found: -1 },
  };
  const { view } = t;
  let page = null, asked = false;

  // The view of a page's timelines; called again with newer data it keeps what is chosen.
  fp.timelineView = function (where, data) {
    page = data;
    fp.forgetPatterns();
    if (!page.timelines.length) {
      t.lanes = null;
      where.replaceChildren(fp.card("Timeline", null, [], fp.empty(page.no_timeline || "No journal is there to draw a timeline from.")));
      return Promise.resolve();
    }
    // With the same runs only the lanes change; lists stay open, words half written.
    const runs = page.timelines.map((one) => page.runs[one.run]).map((run) => [page.labels[run.label].label, run.seed]);
    const same = t.nodes && where.contains(t.nodes.box) && t.runs === JSON.stringify(runs);
    t.runs = JSON.stringify(runs);
    if (!same) build(where);
    return open();
  };

  function build(where) {
    const canvas = fp.el("canvas", { tabindex: 0, "aria-label": "Timeline; arrows move it, + and - zoom" });
    const spacer = fp.el("div", { class: "spacer" });
    const search = fp.el("input", { type: "search", placeholder: "client number", inputmode: "numeric", "aria-label": "Find a client",
      value: view.found < 0 ? "" : view.found });
    t.nodes = {
      canvas, spacer, search,
      box: fp.el("div", { class: "lanes" }, canvas, spacer),
      tip: fp.el("div", { class: "float", hidden: true }),
      dense: fp.el("p", { class: "quiet small" }, "More spans than pixels: colours are mixed by time. Zoom in to tell them apart."),
      note: fp.el("p", { class: "quiet small" }),
      keys: fp.el("div", { class: "keys" }),
      detail: fp.el("div", { class: "detail", "aria-live": "polite" }),
      rank: fp.el("div", {}),
    };
    const { box, tip, note, dense, keys, detail, rank } = t.nodes;
    const say = "One lane a client, the server's rounds on top in the colour of what held them up. Click a round or a span "
      + "to read why it took as long. Drag to move; pinch, or hold Ctrl and turn the wheel, to zoom.";
    const card = fp.card("Timeline", say, controls(), keys, box, tip, dense, note, detail);
    card.classList.add("tall");
    where.replaceChildren(card, rank);
    search.addEventListener("input", () => find(search.value));
    fp.listen(t, { show, zoom, click, hover, ask });
    new ResizeObserver(() => resize()).observe(card);
  }

  function controls() {
    const runs = page.timelines.map((one, index) => {
      const run = page.runs[one.run];
      return [String(index), `${page.labels[run.label].label}, seed ${run.seed}`];
    });
    const other = () => {
      Object.assign(view, { whole: true, round: 0, span: null });
      open();
    };
    const sorts = [["speed", "slowest"], ["number", "number"], ["blame", "blame"], ["busy", "work"]];
    const sort = (how) => { t.lanes.sortBy(how); ask(); };
    return [
      fp.choice("run", "Run", runs, other, 0),
      fp.choice("sort", "Sort", sorts, sort),
      fp.choice("size", "Lanes", [["fit", "small"], ["large", "large"]], resize),
      fp.el("label", { class: "choice" }, fp.el("span", {}, "Find"), t.nodes.search),
      fp.el("div", { class: "choice", role: "group", "aria-label": "Zoom" }, fp.el("span", {}, "Zoom"), fp.el("div", { class: "buttons" },
        fp.el("button", { type: "button", title: "Zoom out", onclick: () => zoom(2) }, "−"),
        fp.el("button", { type: "button", title: "Zoom in", onclick: () => zoom(0.5) }, "+"),
        fp.el("button", { type: "button", title: "The whole run", onclick: () => show(0, t.lanes.length) }, "All"))),
    ];
  }

  async function open() {
    const about = page.timelines[Number(fp.chosen.run || 0)];
    const lanes = t.lanes = new fp.Lanes(about, await fp.unpack(about.packed));
    lanes.sortBy(fp.chosen.sort || "speed");
    if (view.whole || view.from >= lanes.length) Object.assign(view, { from: 0, to: lanes.length, whole: true });
    if (view.round > lanes.rounds) view.round = 0;
    t.nodes.note.textContent = about.words.join(" ");
    t.nodes.note.hidden = !about.words.length;
    keys();
    resize();
    fp.blame.show(t, go);
  }

  function keys() {
    const swatch = (phase) => fp.el("span", { class: "key" },
      fp.el("i", { style: { backgroundColor: fp.phaseColour(phase) }, class: phase === 0 ? "absent" : "" }), t.lanes.about.phases[phase]);
    const thrown = fp.el("span", { class: "key" }, fp.el("i", { class: "hatched thrown" }), "thrown away");
    const kinds = new Map(t.lanes.about.causes.map(fp.cause).filter((one) => one.kind).map((one) => [one.kind, one]));
    const held = [...kinds.values()].map((one) => fp.el("span", { class: "key" },
      fp.el("i", { style: { backgroundColor: one.colour } }), `round held up by ${one.text}`));
    t.nodes.keys.replaceChildren(...t.lanes.about.used.map(swatch), ...(t.lanes.about.thrown_used ? [thrown] : []), ...held);
  }

  function resize() {
    if (!t.lanes) return;
    const total = fp.places.TOP + fp.places.laneHeight(t) * t.lanes.count + 6;
    const height = Math.min(total, fp.places.room());
    t.nodes.box.style.height = `${height}px`;
    t.nodes.spacer.style.height = `${Math.max(0, total - height)}px`;
    t.nodes.canvas.style.height = `${height}px`;
    ask();
  }

  // Draw with the next frame, once for all that asked.
  function ask() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      fp.drawTimeline(t);
    });
  }
  fp.redrawTimeline = () => {
    fp.forgetPatterns();
    if (!t.lanes) return;
    keys();
    ask();
  };

  function show(from, to) {
    const { lanes } = t;
    const shortest = Math.max(lanes.about.tick_s * 20, lanes.length * 1e-7);
    const span = Math.min(Math.max(to - from, shortest), lanes.length);
    view.from = Math.min(Math.max(0, from), lanes.length - span);
    view.to = view.from + span;
    view.whole = span >= lanes.length * 0.9999;
    ask();
  }
  function zoom(factor, at) {
    const middle = at === undefined ? (view.from + view.to) / 2 : at;
    show(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
  }

  // Choose a round or a client, and bring it into view.
  function go(selection) {
    const { lanes } = t;
    if (selection.round) {
      view.round = Math.min(Math.max(1, selection.round), lanes.rounds);
      view.span = null;
      const round = lanes.round(view.round);
      if (selection.zoom) {
        const span = round.end - round.start || lanes.length / 100;
        show(round.start - span * 0.15, round.end + span * 0.15);
      } else if (round.end < view.from || round.start > view.to) {
        const half = (view.to - view.from) / 2;
        show(round.end - half, round.end + half);
      }
    }
    if (selection.client !== undefined) {
      t.nodes.search.value = selection.client;
      find(String(selection.client));
    }
    fp.blame.show(t, go);
    ask();
  }

  function find(text) {
    const { lanes, nodes } = t;
    const number = text.trim().replace(/^client\s*/i, "");
    const client = /^\d+$/.test(number) ? Number(number) : -1;
    const lane = lanes.laneOf.get(client);
    view.found = lane === undefined ? -1 : client;
    nodes.search.classList.toggle("missing", Boolean(number) && lane === undefined);
    nodes.search.title = number && lane === undefined ? "no such client in this timeline" : "";
    if (lane !== undefined) {
      const size = fp.places.laneHeight(t), top = lanes.rank[lane] * size;
      const seen = parseFloat(nodes.box.style.height) - fp.places.TOP;
      if (top < nodes.box.scrollTop || top + size > nodes.box.scrollTop + seen) nodes.box.scrollTop = top - seen / 2;
    }
    ask();
  }

  // What lies under a place of the canvas: a round of the server's lane, or a client's span.
  function under(x, y) {
    const { lanes } = t;
    const seconds = fp.places.seconds(t, x);
    if (seconds < view.from || seconds > view.to) return null;
    if (y < fp.places.TOP) {
      const round = lanes.roundAt(seconds);
      return y >= fp.places.AXIS && round <= lanes.rounds ? { round, seconds } : null;
    }
    const rank = Math.floor((y - fp.places.TOP + t.nodes.box.scrollTop) / fp.places.laneHeight(t));
    if (rank >= lanes.count) return null;
    const lane = lanes.order[rank], row = lanes.spanAt(lane, seconds);
    return row < 0 ? null : { span: lanes.span(lane, row), seconds };
  }

  function click(x, y) {
    const hit = under(x, y);
    if (!hit) return;
    const round = hit.round || t.lanes.roundAt(hit.seconds);
    view.span = hit.span || null;
    view.round = round > t.lanes.rounds ? 0 : round;
    fp.blame.show(t, go);
    ask();
  }

  function hover(x, y) {
    const hit = under(x, y), { tip, canvas } = t.nodes;
    tip.hidden = !hit;
    if (!hit) return;
    tip.replaceChildren(...fp.blame.hint(t.lanes, hit));
    const box = canvas.getBoundingClientRect();
    const across = Math.min(box.left + x + 14, innerWidth - tip.offsetWidth - 8);
    const down = Math.min(box.top + y + 16, innerHeight - tip.offsetHeight - 8);
    Object.assign(tip.style, { left: `${Math.max(4, across)}px`, top: `${down}px` });
  }

  // For those who look from outside: what is drawn, and where a round or a client stands in the window.
  fp.timeline = {
    view, show,
    lanes: () => t.lanes,
    placeOfRound(number) {
      const box = t.nodes.canvas.getBoundingClientRect();
      const begin = number > 1 ? t.lanes.round(number - 1).end : 0;
      return [box.left + fp.places.x(t, (begin + t.lanes.round(number).end) / 2), box.top + fp.places.AXIS + fp.places.SERVER / 2];
    },
    placeOfClient(client, seconds) {
      const box = t.nodes.canvas.getBoundingClientRect(), size = fp.places.laneHeight(t);
      const top = fp.places.TOP + t.lanes.rank[t.lanes.laneOf.get(client)] * size - t.nodes.box.scrollTop;
      return [box.left + fp.places.x(t, seconds), box.top + top + size / 2 - 1];
    },
  };
})(window.fedpace);
