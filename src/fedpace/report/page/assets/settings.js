// Settings of all labels side by side, how each run ended, and what repeats it.
"use strict";
(function (fp) {
  fp.settingsView = function (where, page) {
    const key = JSON.stringify([page.settings, page.repeats, page.labels.map((one) => one.label), fp.isDark()]);
    if (where.dataset.key === key) {
      where.firstElementChild.replaceWith(runsCard(page));
      return;
    }
    where.dataset.key = key;
    where.replaceChildren(runsCard(page), repeatCard(page), settingsCard(page));
  };

  function runsCard(page) {
    const head = ["run", "state", "ran for", "rounds", "ended because", "fedpace"];
    const rows = page.runs.map((run) => fp.el("tr", {},
      fp.el("th", {}, fp.key(run.label, `${page.labels[run.label].label}, seed ${run.seed}`)),
      fp.el("td", {}, fp.el("span", { class: `state ${run.state.split(" ")[0]}` }, run.state)),
      fp.el("td", {}, fp.time(run.end_s)),
      fp.el("td", {}, String(run.rounds)),
      fp.el("td", { class: "words" }, run.finished || "not over yet"),
      fp.el("td", {}, run.version || "n/a")));
    return fp.card("Runs", null, [], fp.el("div", { class: "scroll" }, fp.el("table", { class: "numbers" },
      fp.el("thead", {}, fp.el("tr", {}, head.map((one) => fp.el("th", { class: one === "ended because" ? "words" : "" }, one)))), fp.el("tbody", {}, rows))));
  }

  function repeatCard(page) {
    const body = fp.el("div", {});
    const known = page.repeats;
    if (!known.length) return fp.card("Repeat a run", null, [], fp.empty("No journal is there to read the settings from."));
    const again = () => body.replaceChildren(...repeat(known[Number(fp.chosen.repeat || 0)]));
    const control = fp.choice("repeat", "Label", known.map((one, index) => [String(index), page.labels[one.label].label]), again);
    again();
    return fp.card("Repeat a run", "The same settings give the same journal.", [control], body);
  }

  function repeat(one) {
    const parts = [];
    if (one.note) parts.push(fp.el("p", { class: "quiet" }, one.note));
    if (one.command) parts.push(copied(one.command, "Copy"));
    if (one.config) {
      const link = fp.el("button", { type: "button", onclick: () => save(one.file, one.config) }, `Save ${one.file}`);
      parts.push(fp.el("details", {}, fp.el("summary", {}, one.file), copied(one.config, "Copy")), fp.el("div", { class: "buttons" }, link));
    }
    return parts;
  }

  function copied(text, name) {
    const button = fp.el("button", { type: "button", class: "copy", onclick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(code);
        button.textContent = "Press Ctrl+C";
      }
    } }, name);
    const code = fp.el("code", {}, text);
    return fp.el("pre", {}, button, code);
  }

  function save(name, text) {
    const link = fp.el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/plain" })), download: name });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  function settingsCard(page) {
    if (!page.settings.length) return fp.card("Settings", null, [], fp.empty("No journal is there to read the settings from."));
    const body = fp.el("div", {});
    const again = () => body.replaceChildren(table(page, fp.chosen.settings === "all"));
    const differing = page.settings.some((row) => !row.same) && page.labels.length > 1;
    const control = fp.choice("settings", "Show", differing ? [["differ", "those that differ"], ["all", "all"]] : [["all", "all"]], again);
    again();
    return fp.card("Settings", "As the journals' headers have them.", [control], body);
  }

  function table(page, all) {
    const rows = page.settings.filter((row) => all || !row.same);
    const labels = page.labels.map((_, index) => index);
    return fp.el("div", { class: "scroll" }, fp.el("table", { class: "numbers settings" },
      fp.el("thead", {}, fp.el("tr", {}, fp.el("th", {}, "setting"), labels.map((index) => fp.el("th", { class: "words" }, fp.key(index, page.labels[index].label))))),
      fp.el("tbody", {}, rows.map((row) => fp.el("tr", {}, fp.el("th", {}, row.key), row.same
        ? fp.el("td", { colspan: labels.length, class: "words" }, row.values[0])
        : row.values.map((value) => fp.el("td", { class: "words" }, value === null ? "" : value)))))));
  }
})(window.fedpace);
