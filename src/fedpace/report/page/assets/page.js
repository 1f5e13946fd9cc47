// The page: its title, its views, and `fedpace.show(data)`, which can be called again with newer data.
"use strict";
(function (fp) {
  const views = ["comparison", "timeline", "settings"];
  const hidden = new Set();
  let page = null, columns = null, open = "comparison", built = {}, turn = Promise.resolve();

  fp.shown = (index) => !hidden.has(index) || hidden.size >= page.labels.length;

  function title() {
    fp.byId("title").textContent = page.title;
    document.title = `${page.title} · fedpace`;
    const seeds = Math.max(0, ...page.labels.map((one) => one.seeds.length));
    const words = [
      page.labels.length > 1 ? fp.count(page.labels.length, "policy", "policies") : page.labels[0]?.label,
      fp.count(seeds, "seed"), page.clients.count ? fp.count(page.clients.count, "client") : null, `${page.clock} time`,
      page.labels.length === 1 && page.labels[0].state !== "finished" ? page.labels[0].state : null,
    ];
    fp.byId("subtitle").textContent = words.filter(Boolean).join(" · ");
    fp.byId("foot").textContent = `Made by fedpace ${page.version} from journals alone. Nothing on this page is fetched.`;
  }

  function tabs() {
    const names = { comparison: page.labels.length > 1 ? "Comparison" : "Overview", timeline: "Timeline", settings: "Settings" };
    if (fp.byId("tab-comparison")?.textContent === names.comparison) return;
    fp.byId("tabs").replaceChildren(...views.map((view) => fp.el("button", {
      type: "button", role: "tab", id: `tab-${view}`, "aria-selected": String(view === open), "aria-controls": view, onclick: () => turnTo(view),
    }, names[view])));
  }

  function turnTo(view) {
    open = view;
    for (const one of views) {
      fp.byId(one).hidden = one !== view;
      fp.byId(`tab-${one}`)?.setAttribute("aria-selected", String(one === view));
    }
    if (location.hash !== `#${view}`) history.replaceState(null, "", `#${view}`);
    return fill(view);
  }
  fp.turnTo = turnTo;

  // A view is made when it is first looked at, and again when data or the choice of labels change.
  function fill(view) {
    if (!page || built[view] === page) return Promise.resolve();
    const where = fp.byId(view);
    const held = document.activeElement;
    if (built[view] !== undefined && held && where.contains(held) && held.matches("select, input")) {
      // A list that is open, or a word half written, is not taken away by newer data.
      held.addEventListener("blur", () => setTimeout(() => { if (open === view) fill(view); }), { once: true });
      if (view !== "timeline") return Promise.resolve();
    }
    built[view] = page;
    if (view === "comparison") compare(where);
    if (view === "settings") fp.settingsView(where, page);
    return view === "timeline" ? fp.timelineView(where, page) : Promise.resolve();
  }

  function filter() {
    if (page.labels.length < 2) return null;
    const words = page.labels.every((one) => one.shown) ? null
      : fp.el("span", { class: "quiet" }, "At first those with the best last tests are shown.");
    return fp.el("div", { class: "filter", role: "group", "aria-label": "Labels that are shown" }, words, page.labels.map((one, index) => {
      const chip = fp.el("button", { type: "button", "aria-pressed": String(!hidden.has(index)), title: "Show or hide", onclick: () => {
        if (hidden.has(index)) hidden.delete(index); else hidden.add(index);
        compare(fp.byId("comparison"));
      } }, fp.key(index, one.label), one.state === "finished" ? null : fp.el("span", { class: "quiet" }, ` ${one.state}`));
      return chip;
    }));
  }

  function compare(where) {
    const cards = [
      fp.metricCard(page, columns),
      fp.targetsCard(page),
      fp.tableCard(page),
      fp.timeCard(page),
      fp.el("div", { class: "pair" },
        fp.clientsCard(page, columns, "share", "Who takes part", "Numbers an hour compare policies; participation is a share of rounds."),
        fp.clientsCard(page, columns, "work", "Work fitted to devices", "Means over the tasks of a client.")),
      fp.biasCard(page),
      fp.el("div", { class: "pair" },
        fp.clientsCard(page, columns, "fair", "Fairness", "The last test on clients' own samples."),
        fp.stalenessCard(page)),
      fp.tasksCard(page),
    ];
    where.replaceChildren(...[filter(), ...cards].filter(Boolean));
    fp.redrawAll();
  }

  async function showNow(data) {
    fp.forgetColumns();
    const [curves, clients] = await Promise.all([fp.unpack(data.curves.packed), fp.unpack(data.clients.packed)]);
    columns = { ...curves, ...clients };
    if (!page) data.labels.forEach((one, index) => { if (!one.shown) hidden.add(index); });
    page = data;
    for (const index of [...hidden]) if (index >= page.labels.length) hidden.delete(index);
    title();
    tabs();
    await turnTo(views.includes(location.hash.slice(1)) ? location.hash.slice(1) : open);
    document.body.dataset.shown = String(Number(document.body.dataset.shown || 0) + 1);
  }

  // Show data, in place of what is shown; one after the other. What the reader has chosen stays.
  fp.show = (data) => (turn = turn.catch(() => {}).then(() => showNow(data)).catch((error) => {
    fp.byId("main").prepend(fp.empty(`This page cannot be shown: ${error.message}`));
    throw error;
  }));

  fp.onTheme(() => {
    if (!page) return;
    built.comparison = built.settings = null;
    fill(open);
    fp.redrawTimeline();
  });
  addEventListener("hashchange", () => { if (page && views.includes(location.hash.slice(1))) turnTo(location.hash.slice(1)); });

  const text = fp.byId("data").textContent.trim();
  if (text) fp.ready = fp.show(JSON.parse(text));
})(window.fedpace);
