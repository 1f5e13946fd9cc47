// Lanes of a timeline: the spans of every client, found by time and drawn as far as they are in view.
"use strict";
(function (fp) {
  // By number of Phase: offline, not sampled, download, compute, upload, waits for round, for group.
  const light = ["#ffffff", "#e6e9ee", "#17a398", "#2f6bd8", "#e8871e", "#b8a5dc", "#d78fbd"];
  const dark = ["#15181d", "#2a2f38", "#2fc4b8", "#4f8dfb", "#ffa447", "#75639f", "#9a5f86"];
  const inks = ["#666666", "#555b66", "#ffffff", "#ffffff", "#2b1700", "#2a2140", "#3b1029"];
  const darkInks = ["#aaaaaa", "#b7bdc8", "#02211e", "#061633", "#2b1700", "#ffffff", "#ffffff"];
  fp.phaseColour = (phase) => (fp.isDark() ? dark : light)[phase];
  fp.phaseInk = (phase) => (fp.isDark() ? darkInks : inks)[phase];
  // What held a round up, by number of Cause: a phase, or a kind of its own with its colours.
  const kinds = {
    nobody: { text: "nobody in particular", light: ["#d4d9e1", "#444b57"], dark: ["#3a414c", "#c6ccd6"] },
    plan: { text: "a deadline, a plan or a buffer", light: ["#8b95a7", "#ffffff"], dark: ["#67738a", "#ffffff"] },
    pace: { text: "the pace of a client that the policy chose", light: ["#5f7f9e", "#ffffff"], dark: ["#7fa3c6", "#0b1a29"] },
    gone: { text: "a client that was gone or failed", light: ["#b3412f", "#ffffff"], dark: ["#e0705f", "#2b0a05"] },
  };
  const causes = ["nobody", 2, 3, 4, "plan", "gone", "gone", "plan", "plan", "pace"];
  fp.cause = function (number) {
    const found = causes[number];
    if (typeof found === "number") return { phase: found, colour: fp.phaseColour(found), ink: fp.phaseInk(found) };
    const [colour, ink] = kinds[found][fp.isDark() ? "dark" : "light"];
    return { kind: found, text: kinds[found].text, colour, ink };
  };

  // The place of the last one in sorted[from, to) that is not above value; from - 1 where there is none.
  function lastBelow(sorted, value, from, to) {
    let low = from, high = to;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1; else high = middle;
    }
    return low - 1;
  }
  fp.lastBelow = lastBelow;

  fp.Lanes = class {
    // about: of the page's data; columns: its typed arrays.
    constructor(about, columns) {
      this.about = about;
      this.columns = columns;
      this.count = columns["lane.client"].length;
      this.length = about.length_s;
      this.ticks = Math.round(about.length_s / about.tick_s);
      this.first = new Uint32Array(this.count + 1);
      for (let lane = 0; lane < this.count; lane++) this.first[lane + 1] = this.first[lane] + columns["lane.spans"][lane];
      this.thrown = new Uint8Array(about.fates.length);
      for (const fate of about.thrown) this.thrown[fate] = 1;
      this.laneOf = new Map(Array.from(columns["lane.client"], (client, lane) => [client, lane]));
      this.rounds = columns["round.end"].length;
      this.sortBy("speed");
    }

    sortBy(what) {
      const by = {
        number: (lane) => this.columns["lane.client"][lane],
        speed: (lane) => -this.columns["lane.speed"][lane],
        blame: (lane) => -this.columns["lane.blamed"][lane],
        busy: (lane) => -this.columns["lane.busy"][lane],
      }[what];
      const key = Array.from({ length: this.count }, (_, lane) => by(lane)).map((one) => (Number.isNaN(one) ? Infinity : one));
      this.order = Array.from(key.keys()).sort((a, b) => key[a] - key[b] || a - b);
      this.rank = new Uint32Array(this.count);
      this.order.forEach((lane, rank) => { this.rank[lane] = rank; });
    }

    // Row of the span of a lane at a time; -1 before the first.
    spanAt(lane, seconds) {
      const row = lastBelow(this.columns["start"], seconds / this.about.tick_s, this.first[lane], this.first[lane + 1]);
      return row < this.first[lane] ? -1 : row;
    }

    span(lane, row) {
      const { start, phase, fate } = this.columns;
      const last = row + 1 >= this.first[lane + 1];
      return {
        client: this.columns["lane.client"][lane], lane, row, phase: phase[row], fate: fate[row],
        start: start[row] * this.about.tick_s, end: last ? this.length : start[row + 1] * this.about.tick_s,
        round: this.roundAt(start[row] * this.about.tick_s), thrown: this.thrown[fate[row]] === 1,
      };
    }

    // The place of the round that was under way at a time, from 1; rounds + 1 after the last.
    roundAt(seconds) {
      return lastBelow(this.columns["round.end"], seconds / this.about.tick_s + 1e-6, 0, this.rounds) + 2;
    }

    // A round by its place among those that are drawn, from 1; `number` is its own.
    round(place) {
      const of = (name) => this.columns[`round.${name}`][place - 1];
      const tick = this.about.tick_s;
      return {
        place, number: of("number"), start: of("start") * tick, end: of("end") * tick, updates: of("updates"), late: of("late"),
        cause: of("cause"), client: of("client") - 1, seconds: of("cause_s") * tick, last: of("last") - 1,
        waited: of("waited") / 10000,
      };
    }

    // Places of the longest rounds, the longest first.
    longest(count) {
      const start = this.columns["round.start"], end = this.columns["round.end"];
      const found = [];
      for (let row = 0; row < this.rounds; row++) {
        const lasts = end[row] - start[row];
        if (found.length === count && lasts <= found[count - 1][0]) continue;
        found.push([lasts, row + 1]);
        found.sort((a, b) => b[0] - a[0] || a[1] - b[1]);
        found.length = Math.min(found.length, count);
      }
      return found.map(([, place]) => place);
    }

    // Draw one lane between two times; false, and nothing, where it has more spans than pixels.
    // style(phase, thrown, wide): what to fill a span with.
    drawLane(pen, lane, box, from, to, style) {
      const { start, phase, fate } = this.columns;
      const tick = this.about.tick_s;
      const [first, stop, end] = this.rowsBetween(lane, from, to);
      if (stop - first > box.width * 0.75) return false;
      const scale = box.width / (to - from);
      for (let row = first; row <= stop; row++) {
        const left = Math.max(0, (start[row] * tick - from) * scale);
        const over = row + 1 < end ? start[row + 1] * tick : this.length;
        const right = Math.min(box.width, (over - from) * scale);
        const width = Math.max(right - left, 0.5);
        pen.fillStyle = style(phase[row], this.thrown[fate[row]], width);
        pen.fillRect(box.left + left, box.top, width, box.height);
      }
      return true;
    }

    rowsBetween(lane, from, to) {
      const { start } = this.columns;
      const tick = this.about.tick_s, begin = this.first[lane], end = this.first[lane + 1];
      const first = Math.max(begin, lastBelow(start, from / tick, begin, end));
      return [first, Math.max(first, lastBelow(start, to / tick, begin, end)), end];
    }

    // One row of pixels of a lane, each the mean colour of what the client does in its time, so that
    // no pattern appears that is not there. colours: three numbers for each phase, then for thrown away.
    mixLane(pixels, offset, lane, width, from, to, colours) {
      const { start, phase, fate } = this.columns;
      const [first, stop, end] = this.rowsBetween(lane, from, to);
      const scale = width / ((to - from) / this.about.tick_s), origin = from / this.about.tick_s;
      const sums = new Float32Array(4 * width);
      for (let row = first; row <= stop; row++) {
        const over = row + 1 < end ? start[row + 1] : this.ticks;
        let left = Math.max(0, (start[row] - origin) * scale);
        const right = Math.min(width, (over - origin) * scale);
        const colour = 6 * phase[row] + 3 * this.thrown[fate[row]];
        while (left < right) {
          const x = Math.floor(left), next = Math.min(x + 1, right), part = next - left;
          sums[4 * x] += part * colours[colour];
          sums[4 * x + 1] += part * colours[colour + 1];
          sums[4 * x + 2] += part * colours[colour + 2];
          sums[4 * x + 3] += part;
          left = next;
        }
      }
      for (let x = 0; x < width; x++) {
        const share = sums[4 * x + 3] || 1;
        for (let part = 0; part < 3; part++) pixels[offset + 4 * x + part] = sums[4 * x + part] / share;
        pixels[offset + 4 * x + 3] = 255;
      }
    }
  };
})(window.fedpace);
