// Columns of numbers out of their text, as fedpace.report.page.packing makes it.
"use strict";
(function (fp) {
  const kinds = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array };
  const opened = new Map();

  function bytesOf(text) {
    if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
    const letters = atob(text);
    const bytes = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
    return bytes;
  }

  async function inflate(bytes) {
    if (typeof DecompressionStream === "undefined") {
      throw new Error("this browser cannot decompress the page's data; use one of 2023 or newer");
    }
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function column(data, start, kind, length, differences) {
    const values = new kinds[kind](length);
    const size = values.BYTES_PER_ELEMENT;
    const end = start + size * length;
    const [a, b, c, d] = [0, 1, 2, 3].map((place) => data.subarray(start + place * length, start + (place + 1) * length));
    // The bits of floats are put together as whole numbers, too.
    const bits = kind === "f4" ? new Uint32Array(values.buffer) : values;
    if (size === 1) bits.set(a);
    else if (size === 2) for (let i = 0; i < length; i++) bits[i] = a[i] | (b[i] << 8);
    else for (let i = 0; i < length; i++) bits[i] = a[i] | (b[i] << 8) | (c[i] << 16) | (d[i] << 24);
    if (differences) for (let i = 1; i < length; i++) values[i] += values[i - 1];
    return [values, end];
  }

  // Typed arrays by name; asked for twice, the same ones.
  fp.unpack = function (packed) {
    if (!opened.has(packed)) {
      opened.set(packed, inflate(bytesOf(packed.data)).then((data) => {
        const found = {};
        let start = 0;
        for (const [name, kind, length, differences] of packed.columns) {
          [found[name], start] = column(data, start, kind, length, differences);
        }
        return found;
      }));
    }
    return opened.get(packed);
  };

  // Newer data makes the older useless.
  fp.forgetColumns = () => opened.clear();
})(window.fedpace);
