// Draws what a timeline has in view on its canvas: lanes, the server's rounds, the axis, the selection.
"use strict";
(function (fp) {
  const AXIS = 24, SERVER = 26, GAP = 8, TOP = AXIS + SERVER + GAP, MARGIN = 4;
  const patterns = new Map();

  // Where things are on the canvas, by what is shown. t: nodes, lanes and view of a timeline.
  fp.places = {
    AXIS, SERVER, TOP,
    room: () => Math.max(360, Math.round(innerHeight * 0.62)),
    laneHeight(t) {
      if (fp.chosen.size === "large") return 18;
      return Math.max(2, Math.min(18, Math.floor((fp.places.room() - TOP) / Math.max(t.lanes.count, 1))));
    },
    gutter: (t) => (t.nodes.box.clientWidth < 520 ? 46 : 72),
    width: (t) => Math.max(1, Math.floor(t.nodes.box.clientWidth - fp.places.gutter(t) - MARGIN)),
    x: (t, seconds) => fp.places.gutter(t) + ((seconds - t.view.from) / (t.view.to - t.view.from)) * fp.places.width(t),
    seconds: (t, x) => t.view.from + ((x - fp.places.gutter(t)) / fp.places.width(t)) * (t.view.to - t.view.from),
  };

  fp.forgetPatterns = () => patterns.clear();

  function style(phase, thrown, wide) {
    if (!thrown) return fp.phaseColour(phase);
    const key = phase * 2 + (wide >= 3 ? 1 : 0);
    if (!patterns.has(key)) patterns.set(key, wide >= 3 ? hatch(fp.phaseColour(phase)) : faded(fp.phaseColour(phase)));
    return patterns.get(key);
  }
  const faded = (colour) => `${colour}66`;
  function hatch(colour) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = fp.css("--card");
    pen.fillRect(0, 0, 6, 6);
    pen.fillStyle = faded(colour);
    pen.fillRect(0, 0, 6, 6);
    pen.strokeStyle = colour;
    pen.lineWidth = 1.4;
    for (const shift of [-6, 0, 6]) {
      pen.beginPath();
      pen.moveTo(shift, 6);
      pen.lineTo(shift + 6, 0);
      pen.stroke();
    }
    return pen.createPattern(tile, "repeat");
  }

  fp.drawTimeline = function (t) {
    const { canvas, box } = t.nodes;
    const width = box.clientWidth, height = parseFloat(box.style.height);
    if (!width || !t.lanes) return;
    const sharp = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
      canvas.width = Math.round(width * sharp);
      canvas.height = Math.round(height * sharp);
      canvas.style.width = `${width}px`;
    }
    const pen = canvas.getContext("2d");
    pen.setTransform(sharp, 0, 0, sharp, 0, 0);
    pen.fillStyle = fp.css("--card");
    pen.fillRect(0, 0, width, height);
    pen.font = `11px ${fp.css("--font")}`;
    pen.textBaseline = "middle";
    lanesInView(pen, t, height);
    server(pen, t, width, height);
    canvas.dataset.drawn = String(Number(canvas.dataset.drawn || 0) + 1);
  };

  function lanesInView(pen, t, height) {
    const { lanes, view } = t;
    const size = fp.places.laneHeight(t), left = fp.places.gutter(t), wide = fp.places.width(t), scroll = t.nodes.box.scrollTop;
    const first = Math.floor(scroll / size), last = Math.min(lanes.count - 1, Math.ceil((scroll + height - TOP) / size));
    const gap = size >= 8 ? 2 : size >= 4 ? 1 : 0;
    const every = Math.ceil(13 / size), dense = [];
    for (let rank = first; rank <= last; rank++) {
      const top = TOP + rank * size - scroll, lane = lanes.order[rank];
      const place = { left, top, width: wide, height: size - gap };
      if (!lanes.drawLane(pen, lane, place, view.from, view.to, style)) dense.push([lane, place]);
      const client = lanes.columns["lane.client"][lane], strong = client === view.found;
      if (strong || rank % every === 0) label(pen, client, left, Math.max(top + (size - gap) / 2, TOP + 4), strong);
    }
    mix(pen, t, dense, wide);
    if (lanes.laneOf.has(view.found)) {
      const top = TOP + lanes.rank[lanes.laneOf.get(view.found)] * size - scroll;
      pen.strokeStyle = fp.css("--ink");
      pen.strokeRect(left - 1, top - 1, wide + 2, size - gap + 2);
    }
  }

  function label(pen, client, left, middle, strong) {
    pen.textAlign = "right";
    pen.fillStyle = strong ? fp.css("--ink") : fp.css("--quiet");
    pen.fillText(String(client), left - 6, middle);
  }

  // Lanes with more spans than pixels, by way of a picture with one row for each.
  function mix(pen, t, dense, wide) {
    t.nodes.dense.hidden = !dense.length;
    if (!dense.length) return;
    const picture = document.createElement("canvas");
    picture.width = wide;
    picture.height = dense.length;
    const brush = picture.getContext("2d");
    const image = brush.createImageData(wide, dense.length);
    const colours = mixColours(t.lanes);
    dense.forEach(([lane], row) => t.lanes.mixLane(image.data, 4 * wide * row, lane, wide, t.view.from, t.view.to, colours));
    brush.putImageData(image, 0, 0);
    pen.imageSmoothingEnabled = false;
    dense.forEach(([, place], row) => pen.drawImage(picture, 0, row, wide, 1, place.left, place.top, wide, place.height));
  }

  // Red, green and blue of every phase, and of the phase thrown away, which is more than half the card's.
  function mixColours(lanes) {
    const rgb = (colour) => [1, 3, 5].map((place) => parseInt(colour.slice(place, place + 2), 16));
    const card = rgb(fp.css("--card"));
    return lanes.about.phases.flatMap((_, phase) => {
      const colour = rgb(fp.phaseColour(phase));
      return [...colour, ...colour.map((part, place) => 0.4 * part + 0.6 * card[place])];
    });
  }

  // Axis and rounds over the lanes; a round has the colour of what held it up.
  function server(pen, t, width, height) {
    const { lanes, view } = t;
    pen.fillStyle = fp.css("--card");
    pen.fillRect(0, 0, width, TOP - 2);
    axis(pen, t, width);
    const left = fp.places.gutter(t), right = left + fp.places.width(t);
    const ends = lanes.columns["round.end"], causes = lanes.columns["round.cause"];
    const numbers = lanes.columns["round.number"];
    let before = left;
    for (let place = Math.max(0, Math.min(lanes.rounds, lanes.roundAt(view.from)) - 1); place < lanes.rounds && before < right; place++) {
      const end = Math.min(right, fp.places.x(t, ends[place] * lanes.about.tick_s));
      const wide = end - before, number = numbers[place];
      if (wide < 0.7 && place + 1 < lanes.rounds) continue;
      const cause = fp.cause(causes[place]);
      pen.fillStyle = cause.colour;
      pen.fillRect(before, AXIS, Math.max(wide - (wide > 6 ? 1 : 0), 0.6), SERVER);
      if (wide > 14 + 6 * String(number).length) {
        pen.textAlign = "center";
        pen.fillStyle = cause.ink;
        pen.fillText(String(number), (before + end) / 2, AXIS + SERVER / 2);
      }
      before = end;
    }
    pen.textAlign = "right";
    pen.fillStyle = fp.css("--ink");
    pen.fillText(left < 60 ? "round" : "rounds", left - 6, AXIS + SERVER / 2);
    if (view.round) select(pen, t, left, right, height);
  }

  function select(pen, t, left, right, height) {
    const round = t.lanes.round(t.view.round);
    const from = Math.max(left, fp.places.x(t, round.start)), to = Math.min(right, fp.places.x(t, round.end));
    if (to < left || from > right) return;
    pen.strokeStyle = fp.css("--ink");
    pen.lineWidth = 1.5;
    pen.strokeRect(from, AXIS - 1, Math.max(to - from, 1.5), height - AXIS);
    pen.lineWidth = 1;
  }

  // Steps of an axis, in seconds: round numbers of seconds, minutes, hours or days.
  const steps = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

  function stepFor(raw) {
    const power = 10 ** Math.floor(Math.log10(raw));
    const round = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= raw);
    if (raw <= 1) return round;
    const days = Math.ceil(raw / 86400);
    return steps.find((one) => one >= raw) || 86400 * ([1, 2, 5, 10, 20, 50, 100].find((one) => one >= days) || days);
  }

  function axis(pen, t, width) {
    const { view, lanes } = t;
    const left = fp.places.gutter(t);
    const room = Math.max(2, Math.floor((width - left) / 90));
    const step = stepFor((view.to - view.from) / room);
    pen.textAlign = "center";
    for (let at = Math.ceil(view.from / step - 1e-9) * step; at <= view.to; at += step) {
      const x = fp.places.x(t, at);
      pen.fillStyle = fp.css("--line");
      pen.fillRect(x, AXIS - 5, 1, 5);
      pen.fillStyle = fp.css("--quiet");
      if (x > left + 14 && x < width - 24) pen.fillText(fp.moment(at, lanes.length, step), x, 9);
    }
    pen.textAlign = "right";
    pen.fillText(fp.momentUnit(lanes.length, step), left - 6, 9);
  }
})(window.fedpace);
