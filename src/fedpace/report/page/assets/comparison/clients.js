// Numbers of clients, one dot each over the speed of their device, or as means of speed groups.
"use strict";
(function (fp) {
  const groupNames = ["slow", "middle", "fast"];

  // Cards of measures that belong together. which: the measures' `card`.
  fp.clientsCard = function (page, columns, which, title, say) {
    const measures = page.clients.measures.filter((one) => one.card === which);
    if (!measures.length) return which === "fair" ? null : fp.card(title, null, [], fp.empty("No update has come in yet."));
    const name = `measure-${which}`, how = `how-${which}`;
    const grouped = measures.some((one) => one.groups);
    const note = fp.el("p", { class: "quiet small" });
    const box = fp.chart(title, (width) => option(width), 330);
    const chosen = () => measures.find((one) => one.key === fp.chosen[name]) || measures[0];
    const again = () => {
      note.textContent = chosen().say || "";
      fp.redraw(box);
    };
    const controls = [
      fp.choice(name, "Show", measures.map((one) => [one.key, one.text]), again, 4),
      grouped ? fp.choice(how, "By", [["group", "speed group"], ["client", "client"]], again) : null,
    ];
    const option = (width) => ((grouped && fp.chosen[how] === "group" && chosen().groups)
      ? bars(page, chosen(), width) : dots(page, columns, chosen(), width));
    again();
    const keys = fp.labelKeys(page);
    return fp.card(title, say, controls, box, keys, note);
  };

  const text = (measure, value) => {
    if (measure.share) return fp.percent(value);
    return `${fp.number(value)}${measure.unit ? ` ${measure.unit}` : ""}`;
  };
  const axisText = (measure) => (value) => (measure.share ? fp.percent(value) : fp.number(value));

  function bars(page, measure, width) {
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index));
    return {
      grid: { left: 8, right: 12, top: 18, bottom: 26, containLabel: true },
      xAxis: { type: "category", data: groupNames.map((one) => `${one} third`), axisLabel: { interval: 0 } },
      yAxis: { type: "value", name: "", axisLabel: { formatter: axisText(measure) } },
      tooltip: { trigger: "axis", axisPointer: { type: "shadow" },
        formatter: (found) => fp.tip(`${groupNames[found[0].dataIndex]} third of devices`,
          found.map((one) => [Number(one.seriesId), one.seriesName, text(measure, one.value)])) },
      series: shown.map((index) => ({
        type: "bar", id: String(index), name: page.labels[index].label, barMaxWidth: 46, barGap: "8%",
        itemStyle: fp.fill(index, { borderRadius: [3, 3, 0, 0] }),
        label: { show: shown.length <= 4 && width > 560, position: "top", color: fp.css("--quiet"), fontSize: 11,
          formatter: (one) => (measure.share ? fp.percent(one.value, 2) : fp.number(one.value, 2)) },
        data: measure.groups[index].map((value) => (value === null ? "-" : value)),
      })),
    };
  }

  function dots(page, columns, measure, width) {
    const speeds = page.clients.speeds;
    const series = [];
    page.labels.forEach((label, index) => {
      const client = columns[`k${index}.client`], speed = columns[`k${index}.speed`];
      const value = columns[`k${index}.${measure.key}`];
      if (!fp.shown(index) || !client || !value) return;
      const data = [];
      for (let i = 0; i < client.length; i++) {
        if (Number.isFinite(value[i]) && (!speeds || speed[i] > 0)) {
          data.push([speeds ? 1 / speed[i] : client[i], value[i], client[i], index]);
        }
      }
      series.push({
        type: "scatter", name: label.label, data, symbol: fp.symbol(index), symbolSize: data.length > 400 ? 5 : 8,
        itemStyle: { color: fp.colour(index), opacity: data.length > 400 ? 0.45 : 0.7 }, large: false,
      });
    });
    const places = series.flatMap((one) => one.data.map(([x]) => x));
    const near = places.length && Math.max(...places) < 300 * Math.min(...places);
    return {
      grid: { left: 8, right: 16, top: 18, bottom: 30, containLabel: true },
      xAxis: speeds
        ? { type: "log", logBase: near ? 2 : 10, name: "speed of the device (samples a second, full model)", nameGap: 26,
          min: "dataMin", max: "dataMax",
          axisLabel: { formatter: (value) => fp.number(value), showMinLabel: false, showMaxLabel: false } }
        : { type: "value", name: "client", nameGap: 26, min: 0, minInterval: 1 },
      yAxis: { type: "value", axisLabel: { formatter: axisText(measure) } },
      tooltip: { trigger: "item", formatter: (one) => fp.tip(`client ${one.data[2]}`, [
        [one.data[3], page.labels[one.data[3]].label, text(measure, one.data[1])],
        ...(speeds ? [[null, "speed", `${fp.number(one.data[0])} samples/s`]] : [])]) },
      series,
    };
  }
})(window.fedpace);
