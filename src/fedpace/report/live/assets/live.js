// Follows a run: the server says when there is more, the page fetches it and shows it in place.
"use strict";
(function (fp) {
  const chip = fp.byId("live"), foot = fp.byId("foot");
  const pause = 500; // milliseconds that a reader has between two drawings
  let wanted = 0, have = 0, busy = false, state = null, names = {};

  // Clients of a served run have names; where the page says "client 3" the reader is told whose it is.
  const named = (text) => text.replace(/\b[Cc]lient (\d+)\b/g, (all, number) => (names[number] ? `${all} (${names[number]})` : all));
  const make = fp.el;
  fp.el = (tag, attributes, ...children) =>
    make(tag, attributes, ...children.flat().map((one) => (typeof one === "string" ? named(one) : one)));

  function say(text, lost) {
    chip.hidden = false;
    chip.dataset.state = lost ? "lost" : state?.over ? "over" : state?.under_way ? "live" : "stopped";
    chip.textContent = chip.dataset.state === "live" ? `● ${text}` : text;
    if (have) foot.textContent = `Shown by fedpace from journals as they grow: ${text}.`;
    else fp.byId("comparison").replaceChildren(fp.empty("The page comes when the first run has begun and is read."));
  }

  async function refresh() {
    if (busy || have >= wanted) return;
    busy = true;
    try {
      const version = wanted;
      const answer = await fetch("data");
      if (answer.ok) {
        const data = await answer.json();
        names = data.names || {};
        await fp.show(data);
        have = version;
        say(state.fault || state.text);
      }
    } catch {
      wanted = Math.max(wanted, have); // the stream says when there is a server again
    }
    await new Promise((done) => setTimeout(done, pause));
    busy = false;
    if (wanted > have && source.readyState !== EventSource.CLOSED) refresh();
  }

  const source = new EventSource("events");
  source.onmessage = (event) => {
    state = JSON.parse(event.data);
    wanted = state.version;
    if (wanted < have) have = 0; // another server has taken its place
    say(state.fault || state.text);
    refresh();
    if (state.closed) source.close();
  };
  source.onerror = () => say(state?.over ? state.text : "no answer: what was shown last stays", !state?.over);
})(window.fedpace);
