// What each label needs to a target, and what paired seeds can tell of the differences.
"use strict";
(function (fp) {
  const costs = {
    time: { less: "faster", more: "slower", ask: "Time" },
    money: { less: "cheaper", more: "dearer", ask: "Money" },
  };
  const signs = { less: "▼", more: "▲", level: "≈", unknown: "?" };

  fp.targetsCard = function (page) {
    const aims = page.targets;
    if (!aims.length) {
      return page.metrics.length ? fp.card("Time to target", null, [], fp.empty("Nothing was tested yet.")) : null;
    }
    const body = fp.el("div", {});
    const again = () => body.replaceChildren(...rows(page));
    const bases = page.labels.map((one, index) => [String(index), one.label]);
    const controls = [
      fp.choice("target", "Of", aims.map((one, index) => [String(index), one.text]), again, 5, 72),
      fp.choice("cost", "In", aims[0].money ? [["time", "Time"], ["money", "Money"]] : [["time", "Time"]], again),
      fp.choice("base", "Compared with", bases.slice(0, page.pairs_with), again, 3),
    ];
    again();
    const say = "Until the first test that reaches the target, or the tested value; differences are taken seed by seed.";
    return fp.card("Time to target, and quality", say, controls, body);
  };

  // What is compared: numbers of labels, their unit, and the words for less and more.
  function compared(page) {
    const aim = page.targets[Number(fp.chosen.target)];
    if (!aim.value) {
      const kind = fp.chosen.cost || "time", cost = aim[kind];
      const most = Math.max(0, ...cost.labels.map((one) => (one && one.mean !== null ? one.mean : 0)));
      const [unit, size] = kind === "money" ? ["", 1] : fp.timeUnit(most);
      return { ...costs[kind], cost, unit, size, low: 0, good: "less", apart: unit };
    }
    const metric = page.metrics.find((one) => one.name === page.metric);
    const values = aim.value.labels.flatMap((one) => one.values).filter((one) => one !== null);
    return {
      cost: aim.value, ask: metric.name, low: Math.min(...values), good: metric.higher_is_better ? "more" : "less",
      less: metric.higher_is_better ? "worse" : "better", more: metric.higher_is_better ? "better" : "worse",
      unit: metric.share ? "%" : "", size: metric.share ? 0.01 : 1, apart: metric.share ? "points" : "",
    };
  }

  function rows(page) {
    const what = compared(page);
    const { cost, unit, size } = what;
    const base = Number(fp.chosen.base || 0);
    const pairs = cost.labels.map((one, index) => pairOf(cost, index, base));
    const span = Math.max(1e-12, ...pairs.flatMap((one) => (one ? [one.mean, one.low, one.high] : []))
      .filter((value) => value !== null).map(Math.abs));
    const most = Math.max(what.low, ...cost.labels.flatMap((one) => (one ? one.values : [])).filter((one) => one !== null));
    const alone = page.labels.length < 2;
    const lines = page.labels.map((label, index) => ({ label, index, cost: cost.labels[index], pair: pairs[index] }))
      .filter((one) => fp.shown(one.index));
    const head = ["", `${what.ask} ${unit ? `(${unit})` : ""}`, "seeds", ...(alone ? [] : [
      `difference from ${page.labels[base].label}`, "95% interval", "can seeds tell?"])];
    const table = fp.el("table", { class: "rows targets" },
      fp.el("thead", {}, fp.el("tr", {}, head.map((text) => fp.el("th", {}, text)))),
      fp.el("tbody", {}, lines.map((one) => fp.el("tr", {},
        fp.el("th", {}, fp.key(one.index, one.label.label)),
        fp.el("td", { class: "cost" }, costText(one.cost, size)),
        fp.el("td", { class: "strip seeds" }, strip(one, what.low, most)),
        ...(alone ? [] : difference(one, base, what, span))))));
    return [fp.el("div", { class: "scroll" }, table), fp.el("p", { class: "quiet small" }, foot(page, alone))];
  }

  function foot(page, alone) {
    if (alone) return "One label: there is nothing to compare it with.";
    const seeds = Math.max(...page.labels.map((one) => one.seeds.length));
    if (seeds < 2) return "One seed cannot tell labels apart: run the comparison with --seeds 3 or more.";
    return "≈: the interval holds 0, so these seeds do not tell the two apart; more seeds may. ▼ ▲: they do, at 95%. "
      + "The interval is Student's, of the mean of paired differences. A target that some seed missed is not compared.";
  }

  function costText(cost, size) {
    if (!cost) return "n/a";
    if (cost.reached === 0) return fp.el("span", { class: "quiet" }, "not reached");
    const mean = fp.number(cost.mean / size);
    if (cost.reached < cost.seeds) {
      return fp.el("span", {}, `${cost.reached} of ${cost.seeds} reached`, fp.el("span", { class: "quiet" }, `, mean ${mean}`));
    }
    return fp.el("span", {}, mean, cost.sd === null ? "" : fp.el("span", { class: "quiet" }, ` ± ${fp.number(cost.sd / size)}`));
  }

  // Each seed a dot, the mean a stroke, on one scale for all labels.
  function strip(one, low, most) {
    const width = 150;
    const place = (value) => 5 + (width - 10) * ((value - low) / (most - low || 1));
    const colour = fp.colour(one.index);
    const dots = (one.cost ? one.cost.values : []).filter((value) => value !== null);
    const parts = [fp.svg("line", { x1: 4, x2: width - 4, y1: 10, y2: 10, class: "rail" })];
    for (const value of dots) {
      parts.push(fp.svg("circle", { cx: place(value), cy: 10, r: 4, fill: colour, "fill-opacity": 0.55 }));
    }
    if (one.cost && one.cost.mean !== null) {
      parts.push(fp.svg("line", { x1: place(one.cost.mean), x2: place(one.cost.mean), y1: 2, y2: 18, stroke: colour, "stroke-width": 2 }));
    }
    return fp.svg("svg", { width, height: 20, viewBox: `0 0 ${width} 20` }, ...parts);
  }

  // The difference of a label from the base; pairs are kept one way round.
  function pairOf(cost, index, base) {
    if (index === base) return null;
    const found = cost.pairs.find(([a, b]) => a === index && b === base);
    const named = ([, , seeds, missing, mean, low, high, verdict]) => ({ seeds, missing, mean, low, high, verdict });
    if (found) return named(found);
    const turned = cost.pairs.find(([a, b]) => a === base && b === index);
    if (!turned) return null;
    const { seeds, missing, mean, low, high, verdict } = named(turned);
    const minus = (value) => (value === null ? null : -value);
    const other = { less: "more", more: "less" };
    return { seeds, missing, mean: minus(mean), low: minus(high), high: minus(low), verdict: other[verdict] || verdict };
  }

  function difference(one, base, what, span) {
    const { size, apart } = what;
    if (one.index === base) return [fp.el("td", { class: "quiet", colspan: 3 }, "the one that others are compared with")];
    const pair = one.pair;
    if (!pair || pair.mean === null) return [fp.el("td", { class: "quiet", colspan: 3 }, "no seed in which both reached it")];
    const sign = (value) => `${value > 0 ? "+" : value < 0 ? "−" : ""}${fp.number(Math.abs(value) / size)}`;
    const range = pair.low === null ? "" : ` (${sign(pair.low)} to ${sign(pair.high)})`;
    const told = { less: what.less, more: what.more, level: "not told apart",
      unknown: pair.missing ? `missed in ${fp.count(pair.missing, "seed")}` : pair.seeds > 1 ? "the same in all seeds" : "one seed" };
    const look = pair.verdict === what.good ? "good" : ["less", "more"].includes(pair.verdict) ? "bad" : "";
    return [
      fp.el("td", { class: "less" }, sign(pair.mean), apart ? ` ${apart}` : "", fp.el("span", { class: "quiet" }, range)),
      fp.el("td", { class: "strip range" }, interval(pair, span, look)),
      fp.el("td", { class: "tell" }, fp.el("span", { class: `verdict ${look}` }, `${signs[pair.verdict]} ${told[pair.verdict]}`)),
    ];
  }

  function interval(pair, span, look) {
    const width = 150;
    const place = (value) => width / 2 + (width / 2 - 6) * (value / span);
    const parts = [fp.svg("line", { x1: width / 2, x2: width / 2, y1: 1, y2: 19, class: "zero" })];
    if (pair.low !== null) {
      parts.push(fp.svg("line", { x1: place(pair.low), x2: place(pair.high), y1: 10, y2: 10, class: `reach ${look}` }));
    }
    parts.push(fp.svg("circle", { cx: place(pair.mean), cy: 10, r: 4, class: `reach ${look}` }));
    return fp.svg("svg", { width, height: 20, viewBox: `0 0 ${width} 20` }, ...parts);
  }
})(window.fedpace);
