// Numbers as people read them: units that suit, few digits, and the colours of labels.
"use strict";
(function (fp) {
  const times = [["s", 1, 180], ["min", 60, 180 * 60], ["h", 3600, 96 * 3600], ["days", 86400, Infinity]];
  const sizes = [["B", 1, 1e3], ["kB", 1e3, 1e6], ["MB", 1e6, 1e9], ["GB", 1e9, 1e12], ["TB", 1e12, Infinity]];

  const pick = (units, most) => units.find(([, , end]) => Math.abs(most) < end) || units[units.length - 1];
  // Name and size of the unit for values of up to `most`.
  fp.timeUnit = (most) => pick(times, most).slice(0, 2);
  fp.byteUnit = (most) => pick(sizes, most).slice(0, 2);

  fp.number = function (value, digits = 3) {
    if (value === null || value === undefined || !Number.isFinite(value)) return "n/a";
    if (Math.abs(value) >= 1e7 || (value !== 0 && Math.abs(value) < 1e-5)) return value.toExponential(2);
    const places = value === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    const text = value.toFixed(Math.min(places, 6));
    return Number(text).toLocaleString("en", { maximumFractionDigits: Math.min(places, 6) });
  };
  fp.time = function (seconds, digits = 3) {
    if (seconds === null || seconds === undefined) return "n/a";
    if (Math.abs(seconds) < 0.1 && seconds !== 0) return `${fp.number(seconds * 1000, digits)} ms`;
    const [unit, size] = fp.timeUnit(seconds);
    return `${fp.number(seconds / size, digits)} ${unit}`;
  };
  // A moment of a run of `most` seconds, as exact as `step` seconds are: 12.5, 3:07, 1:30:00 or 2d 3:00,
  // and how such moments are to be read.
  fp.moment = function (seconds, most, step) {
    const places = Math.min(6, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
    if (most < 180) return seconds.toFixed(places);
    const exact = Number(seconds.toFixed(places)), two = (value) => String(value).padStart(2, "0");
    const rest = two((exact % 60).toFixed(places).padStart(places ? places + 3 : 2, "0"));
    const minutes = Math.floor(exact / 60);
    if (most < 3600) return `${minutes}:${rest}`;
    const hours = Math.floor(minutes / 60), short = `${two(minutes % 60)}${step % 60 === 0 ? "" : `:${rest}`}`;
    return most < 96 * 3600 ? `${hours}:${short}` : `${Math.floor(hours / 24)}d ${hours % 24}:${short}`;
  };
  fp.momentUnit = function (most, step) {
    if (most < 180) return "s";
    return most < 3600 ? "min:s" : step % 60 === 0 ? "h:min" : "h:min:s";
  };
  // From one moment to another, in words.
  fp.during = function (from, to, most) {
    const step = most < 180 ? 0.01 : to - from < 10 ? 0.1 : 1;
    return `${fp.moment(from, most, step)} to ${fp.moment(to, most, step)} ${fp.momentUnit(most, step)}`;
  };
  fp.bytes = function (count, digits = 3) {
    const [unit, size] = fp.byteUnit(count);
    return `${fp.number(count / size, digits)} ${unit}`;
  };
  fp.percent = (share, digits = 3) =>
    (share === null || share === undefined || !Number.isFinite(share)) ? "n/a" : `${fp.number(100 * share, digits)}%`;
  fp.metricValue = (metric, value) => (metric && metric.share ? fp.percent(value) : fp.number(value, 4));
  fp.count = (value, one, many) => `${value.toLocaleString("en")} ${value === 1 ? one : many || one + "s"}`;

  // Okabe and Ito's colours, as in the figure: told apart also by people who do not see all of them. After
  // those come dashes, and hatches of bars.
  const light = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"];
  const dark = ["#4BA3E3", "#F07B3A", "#1FBF92", "#E08DBC", "#9AD7FF", "#FFC04D", "#F2F2F2"];
  const dashes = ["solid", [7, 4], [2, 3]];
  const hatches = [undefined, { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [3, 4], rotation: -0.8 },
    { symbol: "circle", dashArrayX: [[5, 4]], dashArrayY: [5, 3], symbolSize: 0.8 }];
  fp.colour = (index) => (fp.isDark() ? dark : light)[index % light.length];
  fp.dash = (index) => dashes[Math.floor(index / light.length) % dashes.length];
  fp.fill = function (index, more) {
    const hatch = hatches[Math.floor(index / light.length) % hatches.length];
    return { color: fp.colour(index), decal: hatch && { ...hatch, color: fp.css("--card") }, ...more };
  };
  fp.symbols = ["circle", "rect", "triangle", "diamond", "emptyCircle", "emptyRect", "emptyTriangle", "emptyDiamond"];
  fp.symbol = (index) => fp.symbols[index % fp.symbols.length];

  // Keys of all labels that are shown; one alone needs none.
  fp.labelKeys = (page) => fp.el("div", { class: "keys" }, page.labels.length < 2 ? [] : page.labels
    .map((one, index) => (fp.shown(index) ? fp.key(index, one.label) : null)));

  // The key of a label: its colour and name.
  fp.key = (index, text) => fp.el("span", { class: "key" },
    fp.el("i", { style: { backgroundColor: fp.colour(index) }, class: ["", "dashed", "dotted"][Math.floor(index / light.length) % 3] }), text);
})(window.fedpace);
