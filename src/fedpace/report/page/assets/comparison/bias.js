// Whose data counts: weight of clients' data over its share, by speed group and by class, and why in words.
"use strict";
(function (fp) {
  const thirds = { slow: "slow third", middle: "middle third", fast: "fast third", unmeasured: "not measured" };

  fp.biasCard = function (page) {
    const bias = page.bias;
    if (!bias) return null;
    const shown = page.labels.map((_, index) => index).filter((index) => fp.shown(index) && bias.labels[index]);
    if (!shown.length) return null;
    const wide = bias.speeds.length && bias.classes.length;
    const over = fp.el("tr", {}, fp.el("th", {}, ""),
      bias.speeds.length ? fp.el("th", { colspan: bias.speeds.length, class: "span" }, "devices") : null,
      bias.classes.length ? fp.el("th", { colspan: bias.classes.length, class: "span" }, "classes") : null, fp.el("th", {}, ""));
    const names = fp.el("tr", {}, fp.el("th", {}, ""), bias.speeds.map((name) => fp.el("th", {}, thirds[name] || name)),
      bias.classes.map((name) => fp.el("th", {}, name)), fp.el("th", { title: "weight that would have to go to other clients" }, "misplaced"));
    const rows = shown.map((index) => {
      const own = bias.labels[index];
      return fp.el("tr", {}, fp.el("th", {}, fp.key(index, page.labels[index].label)),
        own.speed.map((one, place) => cell(one, thirds[bias.speeds[place]])),
        own.class.map((one, place) => cell(one, `class ${bias.classes[place]}`)),
        fp.el("td", {}, fp.percent(own.moved, 2)));
    });
    const table = fp.el("table", { class: "numbers bias" }, fp.el("thead", {}, wide ? over : null, names), fp.el("tbody", {}, rows));
    const words = shown.flatMap((index) => bias.labels[index].words.map((text) =>
      fp.el("li", {}, fp.key(index, text))));
    const left = bias.hidden_classes ? ` Of the classes those furthest from their share are shown; ${bias.hidden_classes} more are not.` : "";
    const note = "Misplaced: the part of the weight that would have to go to other clients for all to count by their data."
      + `${left} Mean over seeds.`;
    const say = "Weight of clients' data in what was aggregated, over its share of all data: 1 is its share, 0.5 half of it.";
    return fp.card("Whose data counts", say, [], fp.el("div", { class: "scroll" }, table),
      fp.el("p", { class: "quiet small" }, note), why(words));
  };

  // A few sentences stand there; many are folded away.
  function why(words) {
    const list = fp.el("ul", { class: "reasons" }, words);
    if (words.length <= 8) return list;
    return fp.el("details", {}, fp.el("summary", {}, `In words: ${words.length} sentences`), list);
  }

  // A number on orange where it is too little, on blue where it is too much.
  function cell(group, name) {
    if (!group || group[0] === null) return fp.el("td", { class: "quiet" }, "n/a");
    const [ratio, data, weight, hourly] = group;
    const strength = Math.min(Math.abs(Math.log2(Math.max(ratio, 1e-3))) / 3, 1);
    const [little, much] = fp.isDark() ? ["240, 123, 58", "75, 163, 227"] : ["213, 94, 0", "0, 114, 178"];
    const said = `${name}: ${fp.percent(data)} of the data, ${fp.percent(weight)} of the weight; `
      + `${fp.number(hourly)} whole steps of the model an hour`;
    const back = `rgba(${ratio < 1 ? little : much}, ${(0.6 * strength).toFixed(3)})`;
    return fp.el("td", { title: said, style: { backgroundColor: back } }, ratio.toFixed(ratio < 9.95 ? 2 : 0));
  }
})(window.fedpace);
