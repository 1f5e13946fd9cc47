// A metric over time, rounds, bytes or money: the mean over seeds, and the band from worst to best.
"use strict";
(function (fp) {
  const axes = {
    time: { text: "Time", unit: fp.timeUnit, name: (unit, page) => `${page.clock} time (${unit})` },
    rounds: { text: "Rounds", unit: () => ["", 1], name: () => "rounds" },
    bytes: { text: "Bytes", unit: fp.byteUnit, name: (unit) => `moved, down and up (${unit})` },
    money: { text: "Money", unit: () => ["", 1], name: () => "money spent" },
  };

  fp.metricCard = function (page, columns) {
    const curves = page.curves.list.filter((one) => page.labels[one.label]);
    if (!curves.length) {
      return fp.card("Progress", null, [], fp.empty(page.metrics.length
        ? "Nothing was tested yet."
        : "Nothing is learned in a timing-only run, so there is no metric to follow. Times and work are below."));
    }
    const metrics = page.metrics.filter((one) => curves.some((curve) => curve.metric === one.name));
    const known = Object.keys(axes).filter((axis) => curves.some((curve) => curve.axis === axis));
    const seeds = page.labels.some((label) => label.seeds.length > 1);
    const title = fp.el("span", {});
    const box = fp.chart("progress", (width) => option(page, columns, curves, metrics, width), 400);
    const again = () => {
      fp.redraw(box);
      const metric = metrics.find((one) => one.name === fp.chosen.metric);
      title.textContent = `${metric.name[0].toUpperCase()}${metric.name.slice(1)}`;
    };
    const controls = [
      fp.choice("metric", "Metric", metrics.map((one) => [one.name, one.name]), again),
      fp.choice("axis", "Over", known.map((one) => [one, axes[one].text]), again),
    ];
    again();
    const band = seeds ? "Line: mean over seeds; band: from the worst seed to the best." : "One seed.";
    const card = fp.card("Progress", band, controls, box, fp.labelKeys(page));
    card.querySelector("h2").replaceChildren(title);
    return card;
  };

  function option(page, columns, curves, metrics, width) {
    const metric = metrics.find((one) => one.name === fp.chosen.metric);
    const drawn = curves.filter(
      (one) => one.metric === metric.name && one.axis === fp.chosen.axis && fp.shown(one.label));
    const axis = axes[fp.chosen.axis];
    const ends = drawn.map((one) => columns[`${one.name}.x`]);
    const most = Math.max(0, ...ends.map((x) => x[x.length - 1]));
    const [unit, size] = axis.unit(most);
    const per = metric.share ? 100 : 1;
    const direct = width > 560 && drawn.length <= 10;
    const shifts = direct ? spread(columns, drawn, most) : new Map();
    const series = drawn.flatMap((one) => lines(page, columns, one, size, per, direct, shifts.get(one)));
    if (metric.name === page.metric && page.targets.some((one) => one.target !== null) && series.length) {
      series[0].markLine = targetLines(page, metric, per);
    }
    return {
      grid: {
        left: 8, top: 12, bottom: 28, containLabel: true,
        right: direct ? fp.roomFor(drawn.map((one) => page.labels[one.label].label), 180) : 14,
      },
      xAxis: { type: "value", name: axis.name(unit, page), nameGap: 28, max: "dataMax", min: 0,
        axisLabel: { formatter: (value) => fp.number(value, 4), showMaxLabel: false } },
      yAxis: { type: "value", scale: true, max: metric.share ? ({ max }) => (max > 50 && max <= 100 ? 100 : null) : null, axisLabel: { formatter: metric.share ? "{value}%" : (v) => fp.number(v, 4) } },
      tooltip: { trigger: "axis", axisPointer: { type: "line" }, formatter: (found) => tip(page, metric, unit, found) },
      series,
    };
  }

  function lines(page, columns, curve, size, per, direct, shift) {
    const [x, mean, low, high] = ["x", "mean", "low", "high"].map((part) => columns[`${curve.name}.${part}`]);
    const name = page.labels[curve.label].label;
    const colour = fp.colour(curve.label);
    const base = { type: "line", showSymbol: x.length < 2, triggerLineEvent: false, lineStyle: { color: colour } };
    const found = [];
    const pairs = (values) => Array.from(x, (at, i) => [at / size, values(i) * per]);
    if (curve.seeds > 1) {
      const band = { ...base, stack: `band${curve.label}`, stackStrategy: "all", silent: true, showSymbol: false,
        lineStyle: { opacity: 0 }, tooltip: { show: false }, name: "" };
      found.push({ ...band, data: pairs((i) => low[i]) });
      found.push({ ...band, data: pairs((i) => high[i] - low[i]), areaStyle: { color: colour, opacity: 0.14 } });
    }
    found.push({
      ...base, name, id: `line${curve.label}`, z: 5, symbolSize: 8,
      data: Array.from(x, (at, i) => [at / size, mean[i] * per, low[i] * per, high[i] * per, curve.label]),
      lineStyle: { color: colour, width: 2, type: fp.dash(curve.label) },
      itemStyle: { color: colour },
      endLabel: { show: direct, formatter: () => name, color: fp.css("--ink"), fontSize: 12, distance: 6,
        offset: [0, shift || 0], overflow: "truncate", width: 160 },
    });
    return found;
  }

  // How far names at the ends of lines must move up or down so as not to hide each other, in pixels.
  function spread(columns, drawn, most) {
    const ends = drawn.map((curve) => {
      const x = columns[`${curve.name}.x`], mean = columns[`${curve.name}.mean`];
      return { curve, x: x[x.length - 1], y: mean[mean.length - 1] };
    });
    const every = drawn.flatMap((curve) => [...columns[`${curve.name}.low`], ...columns[`${curve.name}.high`]]).filter(Number.isFinite);
    const pixels = 340 / (Math.max(...every) - Math.min(...every) || 1);
    const found = new Map();
    const placed = [];
    for (const end of ends.sort((a, b) => b.y - a.y)) {
      let at = -end.y * pixels;
      for (const other of placed) {
        if (Math.abs(other.x - end.x) < most * 0.16 && at < other.at + 15) at = other.at + 15;
      }
      placed.push({ x: end.x, at });
      found.set(end.curve, at + end.y * pixels);
    }
    return found;
  }

  function targetLines(page, metric, per) {
    return {
      silent: true, symbol: "none",
      lineStyle: { color: fp.css("--quiet"), type: [3, 4], width: 1, opacity: 0.8 },
      label: { position: "insideStartTop", color: fp.css("--quiet"), fontSize: 11, formatter: (one) => one.name },
      data: page.targets.filter((one) => one.target !== null).map((one) => ({ yAxis: one.target * per, name: one.text })),
    };
  }

  function tip(page, metric, unit, found) {
    const rows = found.filter((one) => one.seriesName && one.data.length > 2).map((one) => {
      const [, mean, low, high, label] = one.data;
      const text = (value) => (metric.share ? `${fp.number(value)}%` : fp.number(value, 4));
      const range = high > low ? ` (${text(low)} to ${text(high)})` : "";
      return [label, page.labels[label].label, text(mean) + range];
    });
    const at = found.length ? fp.number(found[0].data[0], 4) : "";
    return fp.tip(`${fp.chosen.axis === "rounds" ? "round " : ""}${at} ${unit}`, rows);
  }
})(window.fedpace);
