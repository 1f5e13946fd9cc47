// The page's own name space, elements without HTML text in them, choices that are kept, and its look.
"use strict";
window.fedpace = window.fedpace || {};
(function (fp) {
  // An element of text and other elements: whatever a journal says stays text.
  fp.el = function (tag, attributes, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (name === "style") Object.assign(node.style, value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.flat().filter((one) => one !== null && one !== undefined));
    return node;
  };

  fp.svg = function (tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };

  fp.byId = (id) => document.getElementById(id);

  // What a reader has chosen outlives newer data.
  fp.chosen = {};

  // A row of buttons, or a list where there are many; calls back with the value that is chosen.
  fp.choice = function (name, label, values, onChange, most = 5, room = 52) {
    const known = values.map(([value]) => value);
    if (!known.includes(fp.chosen[name])) fp.chosen[name] = known[0];
    const choose = (value) => {
      fp.chosen[name] = value;
      onChange(value);
    };
    if (values.length < 2) return fp.el("span", { hidden: true });
    const letters = values.reduce((sum, [, text]) => sum + text.length + 4, 0);
    if (values.length > most || letters > (innerWidth < 600 ? 38 : room)) {
      const options = values.map(([value, text]) =>
        fp.el("option", { value, selected: value === fp.chosen[name] }, text));
      const list = fp.el("select", { onchange: () => choose(list.value), name, "aria-label": label }, options);
      return fp.el("label", { class: "choice" }, fp.el("span", {}, label), list);
    }
    const buttons = values.map(([value, text]) =>
      fp.el("button", {
        type: "button",
        "data-value": value,
        "aria-pressed": String(value === fp.chosen[name]),
        onclick: (event) => {
          for (const one of buttons) one.setAttribute("aria-pressed", String(one === event.currentTarget));
          choose(value);
        },
      }, text));
    return fp.el("div", { class: "choice", role: "group", "aria-label": label, "data-name": name },
      fp.el("span", {}, label), fp.el("div", { class: "buttons" }, buttons));
  };

  // A titled card; `say` is a sentence on what is to be seen, `controls` stand beside the title.
  fp.card = function (title, say, controls, ...body) {
    return fp.el("article", { class: "card", "data-card": title },
      fp.el("div", { class: "head" },
        fp.el("div", {}, fp.el("h2", {}, title), say ? fp.el("p", { class: "quiet" }, say) : null),
        fp.el("div", { class: "controls" }, controls)),
      ...body);
  };

  fp.empty = (text) => fp.el("p", { class: "empty" }, text);

  const kept = {
    get: () => { try { return localStorage.getItem("fedpace-theme"); } catch { return null; } },
    set: (value) => { try { localStorage.setItem("fedpace-theme", value); } catch { /* a file may have none */ } },
  };
  const system = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];
  let theme = kept.get();

  fp.isDark = () => (theme ? theme === "dark" : system.matches);
  fp.onTheme = (listener) => listeners.push(listener);
  fp.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function apply() {
    document.documentElement.dataset.theme = fp.isDark() ? "dark" : "light";
    const button = fp.byId("theme");
    button.textContent = fp.isDark() ? "Light" : "Dark";
    for (const listener of listeners) listener();
  }

  fp.setTheme = function (name) {
    theme = name;
    kept.set(name);
    apply();
  };
  fp.byId("theme").addEventListener("click", () => fp.setTheme(fp.isDark() ? "light" : "dark"));
  system.addEventListener("change", apply);
  apply();
})(window.fedpace);
