// The table of the comparison, where clients' time went, what was thrown away, and how old updates were.
"use strict";
(function (fp) {
  fp.tableCard = function (page) {
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index));
    const head = fp.el("tr", {}, fp.el("th", {}, ""), shown.map((index) =>
      fp.el("th", {}, fp.key(index, page.labels[index].label))));
    const rows = page.table.map(([name, cells]) => fp.el("tr", {}, fp.el("th", {}, name.replace(/\n/g, " ")),
      shown.map((index) => fp.el("td", {}, cells[index].replace(/\n/g, " ")))));
    return fp.card("In numbers", page.notes.join(" "), [], fp.el("div", { class: "scroll" },
      fp.el("table", { class: "numbers" }, fp.el("thead", {}, head), fp.el("tbody", {}, rows))));
  };

  // Shares of all client time, one bar a label.
  fp.timeCard = function (page) {
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index));
    if (!page.time) return null;
    const height = 74 + 34 * shown.length;
    const box = fp.chart("shares of client time", (width) => ({
      grid: { left: 8, right: 16, top: 6, bottom: 24, containLabel: true },
      xAxis: { type: "value", max: 1, axisLabel: { formatter: (value) => fp.percent(value) } },
      yAxis: { type: "category", inverse: true, data: shown.map((index) => page.labels[index].label),
        axisLabel: { width: width < 520 ? 84 : 170, overflow: "truncate", color: fp.css("--ink") } },
      tooltip: { trigger: "axis", axisPointer: { type: "shadow" }, formatter: (found) => fp.tip(found[0].name,
        found.filter((one) => one.value > 0).map((one) => [null, one.seriesName, fp.percent(one.value)])) },
      series: page.time.parts.map((part, place) => ({
        type: "bar", stack: "time", name: part.text, barMaxWidth: 24,
        itemStyle: {
          color: fp.phaseColour(part.phase), opacity: part.thrown ? 0.45 : 1, borderColor: fp.css("--card"), borderWidth: 1,
          decal: part.thrown ? { color: fp.css("--card"), dashArrayX: [1, 0], dashArrayY: [2, 4], rotation: 0.8 } : undefined,
        },
        label: { show: width > 520, color: fp.phaseInk(part.phase), fontSize: 11,
          formatter: (one) => (one.value >= 0.05 ? fp.percent(one.value, 2) : "") },
        data: shown.map((index) => page.time.shares[index][place]),
      })),
    }), height);
    const keys = fp.el("div", { class: "keys" }, page.time.parts.map((part) => fp.el("span", { class: "key" },
      fp.el("i", { style: { backgroundColor: fp.phaseColour(part.phase), opacity: part.thrown ? 0.6 : 1 },
        class: part.thrown ? "hatched" : part.phase === 0 ? "absent" : "" }), part.text)));
    const say = "All clients together, from the run's first second to its last, mean over seeds.";
    return fp.card("Where clients' time went", say, [], box, keys);
  };

  fp.tasksCard = function (page) {
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index));
    const rows = page.tasks.rows.filter((row) => shown.some((index) => row.counts[index] > 0));
    if (!rows.length) return fp.card("What became of tasks", null, [], fp.empty("No task has been given out yet."));
    const table = fp.el("table", { class: "numbers" },
      fp.el("thead", {}, fp.el("tr", {}, fp.el("th", {}, ""), shown.map((index) =>
        fp.el("th", {}, fp.key(index, page.labels[index].label))))),
      fp.el("tbody", {}, rows.map((row) => fp.el("tr", { class: row.bold ? "strong" : "" }, fp.el("th", {}, row.text),
        shown.map((index) => {
          const total = page.tasks.rows[0].counts[index];
          const count = row.counts[index];
          return fp.el("td", {}, fp.number(count >= 100 ? Math.round(count) : count, count >= 100 ? 9 : 3), row.bold || !total ? "" :
            fp.el("span", { class: "quiet" }, ` (${fp.percent(count / total, 2)})`));
        })))));
    return fp.card("What became of tasks", "Mean over seeds.", [], fp.el("div", { class: "scroll" }, table));
  };

  // Versions that all but one in two hundred updates are behind at most.
  function nearlyAll(counts) {
    const total = counts.reduce((sum, [, updates]) => sum + updates, 0);
    let seen = 0;
    for (const [behind, updates] of counts) {
      seen += updates;
      if (seen >= 0.995 * total) return behind;
    }
    return 0;
  }

  fp.stalenessCard = function (page) {
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index));
    const most = Math.max(0, ...shown.map((index) => nearlyAll(page.staleness[index])));
    if (!shown.some((index) => page.staleness[index].length)) {
      return fp.card("Staleness", null, [], fp.empty("No update has been aggregated, so none was stale."));
    }
    if (most === 0) {
      return fp.card("Staleness", null, [], fp.empty("Every update was made from the newest model: no staleness."));
    }
    const width = Math.max(1, Math.ceil((most + 1) / 24));
    const bins = Math.ceil((most + 1) / width);
    const beyond = Math.max(...shown.flatMap((index) => page.staleness[index].map(([behind]) => behind))) >= bins * width;
    const name = (bin) => {
      if (bin === bins) return `${bins * width} or more`;
      return width === 1 ? String(bin) : `${bin * width} to ${bin * width + width - 1}`;
    };
    const count = bins + (beyond ? 1 : 0);
    const box = fp.chart("staleness", () => ({
      grid: { left: 8, right: 12, top: 16, bottom: 30, containLabel: true },
      xAxis: { type: "category", name: "versions behind when aggregated", nameGap: 26, data: Array.from({ length: count }, (_, bin) => name(bin)) },
      yAxis: { type: "value", axisLabel: { formatter: (value) => fp.percent(value) } },
      tooltip: { trigger: "axis", axisPointer: { type: "shadow" }, formatter: (found) => fp.tip(`${found[0].name} versions behind`,
        found.map((one) => [Number(one.seriesId), one.seriesName, fp.percent(one.value)])) },
      series: shown.map((index) => {
        const shares = new Array(count).fill(0);
        const total = page.staleness[index].reduce((sum, [, updates]) => sum + updates, 0);
        for (const [behind, updates] of page.staleness[index]) shares[Math.min(Math.floor(behind / width), bins)] += updates / total;
        return { type: "bar", id: String(index), name: page.labels[index].label, data: shares, barGap: "5%",
          itemStyle: fp.fill(index, { borderRadius: [2, 2, 0, 0] }) };
      }),
    }), 300);
    const keys = fp.labelKeys(page);
    return fp.card("Staleness", "Share of a label's updates by how many versions they were behind.", [], box, keys);
  };
})(window.fedpace);
