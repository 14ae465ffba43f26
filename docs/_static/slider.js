// SPDX-License-Identifier: MIT
//
// Sliders that move: a figure's still picture gives way to knobs and a chart. What each setting
// shows was simulated when the book's records were made, and is in the page as JSON; nothing is
// computed or fetched here. Without this script the picture stays.
"use strict";

(() => {
  const DASHES = ["", "7 4", "8 3 2 3", "2 3"];
  // Of about the same area, around the origin.
  const SHAPES = [
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0Z",
    "M-3.6-3.6h7.2v7.2h-7.2Z",
    "M0-4.6L4.6 3.6H-4.6Z",
    "M0-5L5 0L0 5L-5 0Z",
  ];
  const STAR = Array.from({ length: 10 }, (_, k) => {
    const [r, angle] = [k % 2 ? 3.2 : 7.5, (k * Math.PI) / 5];
    const [x, y] = [r * Math.sin(angle), -r * Math.cos(angle)];
    return `${k ? "L" : "M"}${x.toFixed(2)} ${y.toFixed(2)}`;
  }).join("") + "Z";
  const QUIET = 500; // milliseconds without a change before it is read out

  const scaled = (value, words) => {
    const rounded = Number(value.toPrecision(3));
    const [size, word] = [[1e9, words[0]], [1e6, words[1]], [1e3, words[2]], [1, ""]].find(
      ([size]) => rounded >= size || size === 1,
    );
    return `${Number((rounded / size).toPrecision(3))}${word}`;
  };
  const short = (value) => scaled(value, ["G", "M", "k"]);
  const spaced = (value) => scaled(value, [" G", " M", " k"]);
  const worded = (value) => scaled(value, [" billion", " million", " thousand"]);

  // What a logarithmic axis is marked with: 1, 2, 5 where it is short, or else powers of ten.
  function ticks(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++)
      for (const step of high < 300 * low ? [1, 2, 5] : [1]) {
        const tick = step * 10 ** power;
        if (tick >= low && tick <= high) found.push(tick);
      }
    return found;
  }

  // Line k, and a point of it: colour, dashes and shape each tell it from the others.
  const stroke = (k, d) =>
    shape("path", {
      class: `contended-line-${k % 4} contended-stroke`,
      d,
      "stroke-dasharray": DASHES[k % 4],
    });
  const dot = (k, x, y) =>
    shape("path", {
      class: `contended-line-${k % 4} contended-point`,
      d: SHAPES[k % 4],
      transform: `translate(${x} ${y})`,
    });
  const star = (x, y) =>
    shape("path", { class: "contended-mark", d: STAR, transform: `translate(${x} ${y})` });
  const rect = (name, x, y, width, height) =>
    shape("rect", { class: `contended-${name}`, x, y, width, height });

  function legend(data) {
    const size = { width: 34, height: 16, "aria-hidden": "true" };
    const entry = (words, ...drawn) => element("li", {}, shape("svg", size, ...drawn), words);
    const entries = data.lines.map((name, k) => entry(name, stroke(k, "M1 8H33"), dot(k, 17, 8)));
    if (data.marks.length) {
      const band = data.marks[0].x === null;
      entries.push(entry("published", band ? rect("band", 1, 3, 32, 10) : star(17, 8)));
    }
    if (data.shade) entries.push(entry("past the machine's size", rect("past", 1, 1, 32, 14)));
    return element("ul", { class: "contended-legend" }, ...entries);
  }

  // The range that holds every setting of every machine, so that it is the curve that moves.
  function range(data) {
    const published = data.marks.map((mark) => [mark.low, mark.high]);
    const all = [Object.values(data.values), published].flat(Infinity);
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const room = (high / low) ** 0.04;
    return [low / room, high * room];
  }

  function marks(data, x, y, right, top) {
    const drawn = [];
    let free = top - 4; // where there is room for words, from the top down
    for (const mark of [...data.marks].sort((a, b) => b.low * b.high - a.low * a.high)) {
      const words = (at, where, anchor) => {
        const placed = Math.max(where, free);
        free = placed + 16;
        const attributes = { class: "contended-where", x: at, y: placed, "text-anchor": anchor };
        return shape("text", attributes, mark.label);
      };
      const [low, high] = [y(mark.low), y(mark.high)];
      if (mark.x === null) {
        const left = x(data.cpus[0]);
        drawn.push(rect("band", left, high, right - left, Math.max(1, low - high)));
        // above the band or, where the chart ends there, below it
        drawn.push(words(left + 4, high - 4 > top + 10 ? high - 4 : low + 13, "start"));
        continue;
      }
      const [at, middle] = [x(mark.x), y(Math.sqrt(mark.low * mark.high))];
      const crowded = at > right - 110; // no room behind it
      drawn.push(
        shape("path", { class: "contended-axis", d: `M${at} ${low}V${high}` }),
        star(at, middle),
        words(at + (crowded ? -11 : 11), middle + 4, crowded ? "end" : "start"),
      );
    }
    return drawn;
  }

  // The chart as wide as its place, so that its text is as large as it says.
  function draw(data, rows, cpus, width, alt) {
    const height = Math.round(Math.min(380, Math.max(270, width * 0.6)));
    const [left, right, top, bottom] = [48, width - 14, 24, height - 40];
    const [low, high] = range(data);
    const [first, last] = [data.cpus[0], data.cpus.at(-1)];
    const x = (value) => left + ((right - left) * Math.log(value / first)) / Math.log(last / first);
    const y = (value) => bottom - ((bottom - top) * Math.log(value / low)) / Math.log(high / low);
    const viewBox = `0 0 ${width} ${height}`;
    const chart = shape("svg", { viewBox, width, height, role: "img", "aria-label": alt });
    if (data.shade && cpus < last)
      chart.append(rect("past", x(cpus), top, right - x(cpus), bottom - top));
    for (const tick of ticks(low, high))
      chart.append(
        shape("path", { class: "contended-rule", d: `M${left} ${y(tick)}H${right}` }),
        shape("text", { x: left - 7, y: y(tick) + 4, "text-anchor": "end" }, short(tick)),
      );
    for (let tick = first; tick <= last; tick *= 2)
      chart.append(
        shape("path", { class: "contended-axis", d: `M${x(tick)} ${bottom}v4` }),
        shape("text", { x: x(tick), y: bottom + 18, "text-anchor": "middle" }, tick),
      );
    chart.append(
      shape("path", { class: "contended-axis", d: `M${left} ${top}V${bottom}H${right}` }),
      shape("text", { x: (left + right) / 2, y: height - 5, "text-anchor": "middle" }, "CPUs"),
      shape("text", { x: 2, y: 13 }, `${data.ylabel}, log scale`),
    );
    rows.forEach((row, k) => {
      const places = row.map((value, n) => [x(data.cpus[n]), y(value)]);
      chart.append(stroke(k, `M${places.map((place) => place.join(" ")).join("L")}`));
      places.forEach(([at, where], n) => {
        const point = dot(k, at, where);
        const said = `${data.lines[k]}, ${data.cpus[n]} CPUs: ${spaced(row[n])}${data.unit}`;
        point.append(shape("title", {}, said));
        chart.append(point);
      });
    });
    chart.append(...marks(data, x, y, right, top));
    return chart;
  }

  function live(box, number) {
    const data = JSON.parse(box.querySelector("script").textContent);
    const id = `contended-slider-${number}`;
    const knob = element("input", {
      type: "range",
      id: `${id}-knob`,
      min: 0,
      max: data.amounts.length - 1,
      step: 1,
      value: data.start,
    });
    const shown = element("span", { class: "contended-amount", "aria-hidden": "true" });
    const names = Object.keys(data.machines);
    const choice = element(
      "select",
      { id: `${id}-machine` },
      ...names.map((name) => element("option", { value: name }, name)),
    );
    choice.value = data.machine;
    const machine = element("p", { class: "contended-note" });
    const place = element("div", { class: "contended-chart" });
    const said = element("p", { class: "contended-now", "aria-live": "polite" });

    const amount = () => {
      const value = data.amounts[knob.value];
      return data.factor ? `${Number(value.toPrecision(2))} times` : `${Math.round(100 * value)} %`;
    };
    const usual = data.factor ? " the usual" : "";
    const rows = () => data.values[choice.value][knob.value];

    // One sentence, at the machine's size.
    const sentence = () => {
      const size = data.machines[choice.value].cpus;
      const n = data.cpus.findLastIndex((cpus) => cpus <= size);
      const values = rows().map((row, k) => `${data.lines[k]} ${spaced(row[n])}${data.unit}`);
      return `At ${data.cpus[n]} CPUs: ${values.join("; ")}.`;
    };
    const alt = () => {
      const last = data.cpus.length - 1;
      const picked = [0, 0.25, 0.5, 0.75, 1].map((part) => Math.floor(part * last));
      const lines = rows().map((row, k) => {
        const values = picked.map((n) => `${worded(row[n])} at ${data.cpus[n]}`);
        return `${data.lines[k]}: ${values.join(", ")}`;
      });
      const published = data.marks.map((mark) => {
        const values = [...new Set([mark.low, mark.high].map(worded))].join(" to ");
        return `published, ${mark.label}: ${values}${mark.x === null ? "" : ` at ${mark.x}`}`;
      });
      const setting = `${data.knob} ${amount()}${usual}`;
      return [
        `${data.title}. Simulated: ${data.machines[choice.value].title}, ${setting}`,
        `${data.ylabel}, against CPUs`,
        ...lines,
        ...published,
      ].join(". ");
    };

    const redraw = () => {
      const width = Math.floor(place.clientWidth);
      if (width === 0) return; // folded or covered: it is drawn when it is opened
      const size = data.machines[choice.value].cpus;
      place.replaceChildren(draw(data, rows(), size, Math.max(width, 240), alt()));
    };
    let waiting = 0;
    const changed = () => {
      knob.setAttribute("aria-valuetext", amount() + usual);
      shown.textContent = amount();
      machine.textContent = `Simulated: ${data.machines[choice.value].title}.`;
      redraw();
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        said.textContent = sentence();
      }, QUIET);
    };
    knob.addEventListener("input", changed);
    choice.addEventListener("change", changed);

    const label = (wanted, words) => element("label", { for: wanted.id }, words);
    const knobs = element("div", { class: "contended-knobs" });
    if (names.length > 1) knobs.append(label(choice, "machine"), choice);
    knobs.append(label(knob, data.knob), element("span", { class: "contended-turn" }, knob, shown));
    const chart = element(
      "div",
      { class: "contended-live", role: "group", "aria-label": data.title },
      element("p", { class: "contended-title" }, data.title),
      knobs,
      machine,
      place,
      legend(data),
      said,
    );
    said.textContent = sentence();
    box.querySelector(".contended-still").replaceWith(chart);
    changed();
    let wide = place.clientWidth;
    new ResizeObserver(() => {
      if (place.clientWidth === wide) return;
      wide = place.clientWidth;
      redraw();
    }).observe(place);
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".contended-slider").forEach(live);
  });
})();
