// Browsers start no worker from a page that was opened from disk. There the search runs in a hidden frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc = `<script>postMessage = data => frameElement.answer(data)</script><script src="${url}"></script>`;
      frame.answer = data => this.dispatchEvent(new MessageEvent("message", { data }));
      this.started = new Promise(done => frame.addEventListener("load", done, { once: true }));
      this.frame = frame;
      document.body.append(frame);
    }

    async postMessage(data) {
      await this.started;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }

    terminate() {
      this.frame.remove();
    }
  };
}
