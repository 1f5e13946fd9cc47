// Charts: one look for all, drawn when they come into view and again when size, look or data change.
"use strict";
(function (fp) {
  const charts = new Map();
  const byName = new Map();

  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target);
  }, { rootMargin: "300px" });
  const sized = new ResizeObserver((entries) => {
    for (const entry of entries) {
      const chart = charts.get(entry.target);
      if (chart && chart.drawn && entry.contentRect.width > 0) {
        chart.drawn.resize();
        // Labels at the ends of lines need room that depends on the width.
        chart.drawn.setOption(dress(chart.option(entry.contentRect.width)), true);
      }
    }
  });

  function draw(box) {
    const chart = charts.get(box);
    if (!chart || !box.clientWidth) return;
    if (!chart.drawn) chart.drawn = echarts.init(box, null, { renderer: "canvas" });
    chart.drawn.setOption(dress(chart.option(box.clientWidth)), true);
    box.dataset.drawn = "1";
  }

  // The box with the chart of this name; asked for again, the same box, so that newer data does not
  // flicker. option(width): what ECharts is to draw, made anew each time.
  fp.chart = function (name, option, height = 320) {
    let box = byName.get(name);
    if (!box) {
      box = fp.el("div", { class: "chart", role: "img", "aria-label": name });
      byName.set(name, box);
      charts.set(box, { option, drawn: null });
      seen.observe(box);
      sized.observe(box);
    }
    box.style.height = `${height}px`;
    charts.get(box).option = option;
    return box;
  };

  fp.redraw = (box) => { if (charts.get(box)?.drawn) draw(box); };
  fp.redrawAll = () => { for (const box of charts.keys()) if (box.isConnected) fp.redraw(box); };

  const family = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif";

  // Common look of axes, tooltip and text; what a chart says itself stays.
  function dress(option) {
    const ink = fp.css("--ink"), quiet = fp.css("--quiet"), line = fp.css("--line"), card = fp.css("--card");
    const axis = (one) => ({
      nameLocation: "middle",
      ...one,
      nameTextStyle: { color: quiet, fontSize: 12, ...one.nameTextStyle },
      axisLabel: { color: quiet, fontSize: 12, hideOverlap: true, ...one.axisLabel },
      axisLine: { show: one.type !== "value", lineStyle: { color: line }, ...one.axisLine },
      axisTick: { show: false, ...one.axisTick },
      splitLine: { lineStyle: { color: line, opacity: 0.6 }, ...one.splitLine },
    });
    const axes = (found) => (found ? [].concat(found).map(axis) : undefined);
    return {
      animation: false,
      aria: { enabled: false },
      textStyle: { fontFamily: family, color: ink },
      ...option,
      xAxis: axes(option.xAxis),
      yAxis: axes(option.yAxis),
      tooltip: {
        backgroundColor: card,
        borderColor: line,
        textStyle: { color: ink, fontSize: 13 },
        confine: true,
        transitionDuration: 0,
        ...option.tooltip,
      },
    };
  }

  // A tooltip of elements: a heading and rows of (label index or null, name, value).
  fp.tip = function (heading, rows) {
    return fp.el("div", { class: "tip" },
      fp.el("strong", {}, heading),
      fp.el("table", {}, rows.map(([index, name, value]) => fp.el("tr", {},
        fp.el("td", {}, index === null ? name : fp.key(index, name)), fp.el("td", {}, value)))));
  };

  // Room that the longest of these names takes at the end of a line, in pixels.
  fp.roomFor = function (names, most) {
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `12px ${family}`;
    return Math.min(most, Math.ceil(Math.max(0, ...names.map((one) => pen.measureText(one).width))) + 14);
  };
})(window.fedpace);
