// Below the timeline: why the chosen round took as long, what the chosen span is, and who is blamed most.
"use strict";
(function (fp) {
  const phaseText = (lanes, span) => {
    const what = lanes.about.phases[span.phase];
    const fate = lanes.about.fates[span.fate];
    return span.thrown ? `${what} (thrown away: ${fate})` : what;
  };

  const sentences = new WeakMap();
  // The sentence of a round, as report.json has it.
  function sentence(lanes, place) {
    if (!sentences.has(lanes)) {
      const text = new TextDecoder().decode(lanes.columns["round.text"]);
      sentences.set(lanes, text.split("\n"));
    }
    return sentences.get(lanes)[place - 1];
  }

  function facts(lanes, round) {
    const found = [
      ["from", fp.during(round.start, round.end, lanes.length)],
      ["lasted", fp.time(round.end - round.start)],
      ["updates", String(round.updates)],
    ];
    if (round.late) found.push(["late and cancelled", String(round.late)]);
    if (round.client >= 0) found.push(["held up by", `client ${round.client}, ${fp.time(round.seconds)}`]);
    if (round.last >= 0) found.push(["last arrival", `client ${round.last}`]);
    if (Number.isFinite(round.waited)) found.push(["client time that waited", fp.percent(round.waited)]);
    return found;
  }

  const list = (pairs) => fp.el("dl", {}, pairs.map(([name, value]) => fp.el("div", {}, fp.el("dt", {}, name), fp.el("dd", {}, value))));

  function roundDetail(lanes, place, go) {
    const round = lanes.round(place);
    const step = (by) => ({ type: "button", onclick: () => go({ round: place + by }) });
    return fp.el("div", { class: "why", "data-round": round.number },
      fp.el("p", { class: "sentence" }, fp.el("b", {}, `Round ${round.number}: `), sentence(lanes, place)),
      list(facts(lanes, round)),
      fp.el("div", { class: "buttons" },
        fp.el("button", { ...step(-1), disabled: place <= 1 }, "‹ before"),
        fp.el("button", { ...step(1), disabled: place >= lanes.rounds }, "next ›"),
        fp.el("button", { type: "button", onclick: () => go({ round: place, zoom: true }) }, "zoom to it"),
        round.client >= 0 && lanes.laneOf.has(round.client)
          ? fp.el("button", { type: "button", onclick: () => go({ round: place, client: round.client }) }, `find client ${round.client}`) : null));
  }

  function spanDetail(lanes, span) {
    const pairs = [
      ["from", fp.during(span.start, span.end, lanes.length)],
      ["lasted", fp.time(span.end - span.start)],
    ];
    if (span.fate) pairs.push(["its task was", lanes.about.fates[span.fate]]);
    const speed = lanes.columns["lane.speed"][span.lane];
    if (speed > 0) pairs.push(["speed of the device", `${fp.number(1 / speed)} samples/s`]);
    return fp.el("div", { class: "why" },
      fp.el("p", { class: "sentence" }, fp.el("b", {}, `Client ${span.client}: `), phaseText(lanes, span)), list(pairs));
  }

  function ranking(lanes, go) {
    if (!lanes.rounds) return fp.empty("No round was made in this run, so none can be explained.");
    const longest = lanes.longest(5).map((place) => lanes.round(place));
    const blamed = lanes.about.blamed;
    const rounds = fp.card("Longest rounds", null, [], fp.el("ol", { class: "plain" }, longest.map((round) => fp.el("li", {},
      fp.el("button", { type: "button", class: "link", onclick: () => go({ round: round.place, zoom: true }) }, `Round ${round.number}`),
      ` ${sentence(lanes, round.place)}`))));
    const most = Math.max(1e-12, ...blamed.map((one) => one.seconds));
    const clients = fp.card("Blamed most", "Seconds of rounds that were due to one client.", [],
      blamed.length ? fp.el("table", { class: "rows" }, fp.el("tbody", {}, blamed.map((one) => fp.el("tr", {},
        fp.el("th", {}, fp.el("button", { type: "button", class: "link", onclick: () => go({ client: one.client }) }, `client ${one.client}`)),
        fp.el("td", {}, fp.count(one.rounds, "round")), fp.el("td", {}, fp.time(one.seconds)),
        fp.el("td", { class: "bar" }, fp.el("span", { class: "meter", style: { width: `${Math.round((100 * one.seconds) / most)}%` } }))))))
        : fp.empty("No client in particular held a round up."));
    return fp.el("div", { class: "pair" }, rounds, clients);
  }

  fp.blame = {
    show({ nodes, lanes, view }, go) {
      const parts = [];
      if (view.span) parts.push(spanDetail(lanes, view.span));
      if (view.round) parts.push(roundDetail(lanes, view.round, go));
      if (!parts.length) parts.push(fp.el("p", { class: "quiet" }, lanes.rounds ? "Nothing is chosen: click a round or a span." : ""));
      nodes.detail.replaceChildren(...parts);
      nodes.rank.replaceChildren(ranking(lanes, go));
    },
    // Lines for what the pointer is over.
    hint(lanes, hit) {
      if (hit.round) return [fp.el("strong", {}, `Round ${lanes.round(hit.round).number}`), fp.el("p", {}, sentence(lanes, hit.round))];
      const { span } = hit;
      return [fp.el("strong", {}, `Client ${span.client}`),
        fp.el("p", {}, `${phaseText(lanes, span)}, ${fp.time(span.end - span.start)}`),
        fp.el("p", { class: "quiet" }, `${fp.during(span.start, span.end, lanes.length)}, ${span.round <= lanes.rounds ? `round ${lanes.round(span.round).number}` : "after the last round"}`)];
    },
  };
})(window.fedpace);
