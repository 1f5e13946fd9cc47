// Follows a run: the server says when there is more, the page fetches it and shows it in place.
"use strict";
(function (fp) {
  const chip = fp.byId("live"), foot = fp.byId("foot");
  const pause = 500; // milliseconds that a reader has between two drawings
  let wanted = 0, have = 0, busy = false, state = null;

  function say(text, lost) {
    chip.hidden = false;
    chip.textContent = text;
    chip.dataset.state = lost ? "lost" : state?.over ? "over" : state?.under_way ? "live" : "stopped";
    if (have) foot.textContent = `Shown by fedpace from journals as they grow: ${text}.`;
    else if (!state?.runs) fp.byId("main").dataset.waits = "true";
  }

  async function refresh() {
    if (busy || have >= wanted) return;
    busy = true;
    try {
      const version = wanted;
      const answer = await fetch("data");
      if (answer.ok) {
        await fp.show(await answer.json());
        have = version;
        say(state.text);
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
    say(state.text);
    refresh();
    if (state.closed) source.close();
  };
  source.onerror = () => say(state?.over ? state.text : "no answer: what was shown last stays", !state?.over);
})(window.fedpace);
