// The timelines of the page: reads the numbers that stand in it, draws them on a canvas, answers
// wheel, pointer and keys. Nothing is fetched.
"use strict";
(() => {
  const byId = (id) => document.getElementById(id);
  const data = JSON.parse(byId("data").textContent);
  const box = byId("box"), scroll = byId("scroll"), canvas = byId("chart"), tip = byId("tip");
  const status = byId("status");
  const pen = canvas.getContext("2d");
  const AXIS = 26, GUTTER = 104, PAD = 5, MAIL = 11;
  // Pixels; below this width ops are drawn as shares of columns.
  const NARROW = 1.5;
  const KINDS = { F: "forward", B: "backward", W: "weight", U: "update", M: "update", E: "other" };
  const WORDS = {
    F: "forward", B: data.split ? "backward for the input" : "backward",
    W: "backward for the weights", U: "update", M: "norm", E: "held-out forward",
    a: "activation", g: "gradient", n: "norm", v: "clip decision", R: "sum of weight gradients",
  };

  // ---- The numbers ----------------------------------------------------------------------------

  // Seven numbers an op: name, micro, gap since the op before, duration, reason, the micro of what
  // it waited for, lateness. Times count in ticks of the timeline and become milliseconds here.
  function readLane(numbers, tick) {
    const count = numbers.length / 7;
    const lane = {
      count, name: new Int32Array(count), micro: new Int32Array(count),
      start: new Float64Array(count), finish: new Float64Array(count),
      reason: new Int32Array(count), other: new Int32Array(count), late: new Float64Array(count),
      idle: new Float64Array(count),
    };
    let end = 0;  // in ticks: sums of whole numbers stay exact
    for (let i = 0, at = 0; i < count; ++i, at += 7) {
      lane.name[i] = numbers[at];
      lane.micro[i] = numbers[at + 1];
      const start = end + numbers[at + 2];
      end = start + numbers[at + 3];
      lane.start[i] = start * tick;
      lane.finish[i] = end * tick;
      lane.reason[i] = numbers[at + 4];
      lane.other[i] = numbers[at + 5];
      lane.late[i] = numbers[at + 6] * tick;
      lane.idle[i] = Math.max(0, numbers[at + 2] - numbers[at + 6]) * tick;
    }
    return lane;
  }

  // Four numbers a message: name, micro, start after the message before, duration.
  function readMail(numbers, tick) {
    const count = numbers.length / 4;
    const mail = {
      count, name: new Int32Array(count), micro: new Int32Array(count),
      start: new Float64Array(count), finish: new Float64Array(count), longest: 0,
    };
    for (let i = 0, at = 0, start = 0; i < count; ++i, at += 4) {
      mail.name[i] = numbers[at];
      mail.micro[i] = numbers[at + 1];
      start += numbers[at + 2];
      mail.start[i] = start * tick;
      mail.finish[i] = (start + numbers[at + 3]) * tick;
      mail.longest = Math.max(mail.longest, mail.finish[i] - mail.start[i]);
    }
    return mail;
  }

  let end = 0, ops = 0, messages = 0;
  const lines = data.timelines.map((timeline) => {
    const tick = timeline.tick_ns / 1e6;
    const lanes = timeline.lanes.map((numbers) => readLane(numbers, tick));
    const mail = timeline.mail.map((numbers) => readMail(numbers, tick));
    for (const lane of lanes) ops += lane.count;
    for (const letters of mail) messages += letters.count;
    end = Math.max(end, timeline.end * tick);
    return { name: timeline.name, end: timeline.end * tick, lanes, mail };
  });
  if (!(end > 0)) end = 1;

  const several = data.stages_of.some((stages) => stages.length > 1);
  const opName = (name, micro) => {
    const [letter, stage] = data.ops[name];
    return letter + stage + (micro >= 0 ? "." + micro : "");
  };

  // ---- Words ----------------------------------------------------------------------------------

  // A time with as many digits as tell neighbours apart.
  function inMs(time) {
    const size = Math.abs(time);
    const digits = size >= 1000 ? 1 : size >= 100 ? 2 : size >= 0.001 ? 3 : 6;
    return String(Number(time.toFixed(digits))) + " ms";
  }

  function reason(lane, i) {
    return data.reasons[lane.reason[i]].replace("%m", lane.other[i])
      .replace("%t", inMs(lane.idle[i])).replace("%l", inMs(lane.late[i]));
  }

  // The same op in the other timeline of the same worker, or -1.
  function twin(line, worker, lane, i) {
    const other = lines[1 - line].lanes[worker];
    for (let j = 0; j < other.count; ++j) {
      if (other.name[j] === lane.name[i] && other.micro[j] === lane.micro[i]) return j;
    }
    return -1;
  }

  // What the tip says of a hit: its lines, the first one bold.
  function describe(hit) {
    const line = lines[hit.line];
    const which = lines.length > 1 ? `, ${line.name}` : "";
    if (hit.mail) {
      const mail = line.mail[hit.worker], i = hit.index;
      const [letter, stage, from] = data.mail[mail.name[i]];
      const micro = mail.micro[i] >= 0 ? "." + mail.micro[i] : "";
      const title = `${WORDS[letter]} ${letter === "R" ? "of stage " : ""}${stage}${micro}`;
      const way = from < 0 ? `worker ${hit.worker}` : `worker ${from} to ${hit.worker}`;
      return [`${title}, ${way}${which}`,
        `from ${inMs(mail.start[i])} to ${inMs(mail.finish[i])}, ` +
        `lasts ${inMs(mail.finish[i] - mail.start[i])}`];
    }
    const lane = line.lanes[hit.worker], i = hit.index;
    const [letter, stage] = data.ops[lane.name[i]];
    const micro = lane.micro[i] >= 0 ? `, micro-batch ${lane.micro[i]}` : "";
    const text = [`${opName(lane.name[i], lane.micro[i])} on worker ${hit.worker}${which}`,
      `${WORDS[letter]}, stage ${stage}${micro}`,
      `starts at ${inMs(lane.start[i])}, lasts ${inMs(lane.finish[i] - lane.start[i])}`,
      reason(lane, i)];
    if (lines.length > 1) {
      const j = twin(hit.line, hit.worker, lane, i);
      const other = lines[1 - hit.line], there = other.lanes[hit.worker];
      text.push(j < 0 ? `not among the ${other.name} ops` :
        `${other.name}: starts at ${inMs(there.start[j])}, ` +
        `lasts ${inMs(there.finish[j] - there.start[j])}`);
    }
    return text;
  }

  // ---- Where things are -----------------------------------------------------------------------

  const view = { from: 0, to: end, mail: false, hit: null, drag: null };
  let width = 0, height = 0, rowHeight = 24, theme = {}, frame = 0;

  const lineHeight = () => rowHeight + (view.mail ? MAIL : 0);
  const workerHeight = () => lineHeight() * lines.length + PAD;
  const scale = () => (width - GUTTER - 8) / (view.to - view.from);
  const xOf = (time) => GUTTER + (time - view.from) * scale();
  const timeOf = (x) => view.from + (x - GUTTER) / scale();
  const yOf = (worker, line) =>
    AXIS + PAD + worker * workerHeight() + line * lineHeight() - box.scrollTop;

  // The first op that ends after `time`.
  function firstAfter(row, time, ends) {
    let low = 0, high = row.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (ends[middle] > time) high = middle; else low = middle + 1;
    }
    return low;
  }

  function layOut() {
    const rows = data.stages_of.length * lines.length;
    rowHeight = rows <= 16 ? 24 : rows <= 40 ? 18 : 13;
    const total = AXIS + PAD + data.stages_of.length * workerHeight() + 4;
    scroll.style.height = total + "px";
    const limit = Math.max(280, window.innerHeight - 150);
    box.style.height = Math.min(total, limit) + 2 + "px";
    width = box.clientWidth;
    height = box.clientHeight;
    shares.sum = new Float32Array((width + 1) * ORDER.length);
    shares.first = width;
    shares.end = 0;
    const dots = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * dots);
    canvas.height = Math.round(height * dots);
    canvas.style.height = height + "px";
    pen.setTransform(dots, 0, 0, dots, 0, 0);
    readTheme();
    redraw();
  }

  function redraw() {
    if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); });
  }

  // ---- Colours --------------------------------------------------------------------------------

  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const hexOf = (rgb) => "#" + rgb.map((v) => Math.round(v).toString(16).padStart(2, "0")).join("");
  const mix = (a, b, share) => hexOf(parts(a).map((v, i) => v + (parts(b)[i] - v) * share));
  const dark = (hex) => {
    const [r, g, b] = parts(hex);
    return 0.299 * r + 0.587 * g + 0.114 * b < 100;
  };

  // Colours by name of op: the kind's, and for a worker's later chunks paler.
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["back", "text", "soft", "line", "panel", "forward", "backward", "weight",
      "update", "other", "bound"]) {
      theme[name] = style.getPropertyValue("--" + name).trim();
    }
    theme.fill = data.ops.map(([letter, , chunk]) =>
      mix(theme[KINDS[letter]], theme.back, data.chunks > 1 ? 0.6 * chunk / (data.chunks - 1) : 0));
    theme.ink = theme.fill.map((hex) => (dark(hex) ? "#ffffff" : "#101418"));
    theme.pixel = ORDER.map((kind) => {
      const rgba = new Uint8Array([...parts(theme[kind]), 255]);
      return new Uint32Array(rgba.buffer)[0];
    });
    theme.mark = theme.fill.map((hex, i) => mix(hex, theme.ink[i], 0.55));
    drawLegend();
  }

  // ---- Drawing --------------------------------------------------------------------------------

  // A kind is told by where its dark bar is, not by colour alone: F above, B below, W in front,
  // the update all round.
  function mark(target, letter, x, y, wide, high) {
    const thick = high >= 18 ? 3 : 2;
    if (letter === "F" || letter === "E") target.fillRect(x, y, wide, thick);
    else if (letter === "B") target.fillRect(x, y + high - thick, wide, thick);
    else if (letter === "W") target.fillRect(x, y, Math.min(thick, wide / 2), high);
    else {
      target.fillRect(x, y, wide, 1.5);
      target.fillRect(x, y + high - 1.5, wide, 1.5);
    }
  }

  function drawOp(lane, i, x, y, wide, high) {
    const name = lane.name[i], letter = data.ops[name][0];
    const gap = wide > 4 ? 1 : 0;
    pen.fillStyle = theme.fill[name];
    pen.fillRect(x, y, wide - gap, high);
    pen.fillStyle = theme.mark[name];
    if (wide > 3) mark(pen, letter, x, y, wide - gap, high);
    const size = high >= 18 ? 11 : 9;
    if (wide < size * 0.62 + 3) return;
    const micro = lane.micro[i];
    const labels = several ? [opName(name, micro)] :
      micro >= 0 ? [letter + micro, String(micro)] : [letter];
    if (several && micro >= 0) labels.push(String(micro));
    for (const label of labels) {
      if (label.length * size * 0.62 + 4 > wide) continue;
      pen.fillStyle = theme.ink[name];
      pen.font = `${size}px system-ui, "DejaVu Sans", sans-serif`;
      pen.fillText(label, x + (wide - gap) / 2 + (letter === "W" ? 1 : 0), y + high / 2 + 0.5);
      break;
    }
  }

  // Ops narrower than a pixel are not drawn one by one. Each column of pixels shows the shares of
  // the kinds of ops as a stack; all columns are one image, whose cost does not depend on the number
  // of ops.
  const ORDER = ["forward", "backward", "weight", "update", "other"];
  const sheet = document.createElement("canvas");
  const shares = { sum: new Float32Array(0), first: 0, end: 0 };

  function drawShares(y, high) {
    const { sum, first, end: behind } = shares, wide = behind - first;
    if (wide <= 0) return;
    if (sheet.width < wide || sheet.height < high) {
      sheet.width = Math.max(sheet.width, width);
      sheet.height = Math.max(sheet.height, high);
    }
    const brush = sheet.getContext("2d");
    const image = brush.createImageData(wide, high);
    const pixels = new Uint32Array(image.data.buffer);
    for (let column = 0; column < wide; ++column) {
      let top = 0, filled = 0;
      for (let k = 0; k < ORDER.length; ++k) {
        filled += sum[(first + column) * ORDER.length + k];
        // What takes next to no time leaves a trace too, where there is space.
        const some = sum[(first + column) * ORDER.length + k] > 0 && top < high ? top + 1 : top;
        const below = Math.max(some, Math.min(high, Math.round(filled * high)));
        for (; top < below; ++top) pixels[top * wide + column] = theme.pixel[k];
      }
    }
    sum.fill(0, first * ORDER.length, behind * ORDER.length);
    brush.putImageData(image, 0, 0);
    pen.drawImage(sheet, 0, 0, wide, high, first, y, wide, high);
    shares.first = width;
    shares.end = 0;
  }

  function addShare(kind, from, to) {
    shares.first = Math.min(shares.first, Math.max(0, Math.floor(from)));
    for (let x = Math.max(from, 0); x < Math.min(to, width);) {
      const column = Math.floor(x), until = Math.min(to, column + 1);
      shares.sum[column * ORDER.length + kind] += until - x;
      shares.end = Math.max(shares.end, column + 1);
      x = until;
    }
  }

  function drawLane(lane, y, high) {
    let drawn = 0;
    for (let i = firstAfter(lane, view.from - 1e-9, lane.finish); i < lane.count; ++i) {
      if (lane.start[i] > view.to) break;
      ++drawn;
      const x = xOf(lane.start[i]), wide = xOf(lane.finish[i]) - x;
      if (wide >= NARROW) {
        const left = Math.max(x, GUTTER);
        drawOp(lane, i, left, y, Math.min(x + wide, width) - left, high);
      } else {
        const kind = ORDER.indexOf(KINDS[data.ops[lane.name[i]][0]]);
        addShare(kind, x, x + Math.max(wide, 0.35));
      }
    }
    drawShares(y, high);
    return drawn;
  }

  // Messages on their way to a worker: activations above gradients, the rest on both.
  function drawMail(mail, y) {
    const colours = { a: theme.forward, g: theme.backward };
    pen.globalAlpha = 0.75;
    for (let i = firstAfter(mail, view.from - mail.longest, mail.start); i < mail.count; ++i) {
      if (mail.start[i] > view.to) break;
      const left = Math.max(xOf(mail.start[i]), GUTTER);
      const right = Math.min(xOf(mail.finish[i]), width);
      if (right < GUTTER) continue;
      const letter = data.mail[mail.name[i]][0];
      pen.fillStyle = colours[letter] || theme.update;
      const low = letter === "g";
      pen.fillRect(left, y + (low ? 5 : 1), Math.max(right - left, 1), colours[letter] ? 3 : 7);
      pen.fillRect(Math.max(right - 1.5, left), y + (low ? 4 : 0), 1.5, 5);
    }
    pen.globalAlpha = 1;
  }

  function niceStep(least) {
    const ten = Math.pow(10, Math.floor(Math.log10(least)));
    for (const step of [1, 2, 5, 10]) if (step * ten >= least) return step * ten;
    return 10 * ten;
  }

  function drawAxis() {
    pen.fillStyle = theme.panel;
    pen.fillRect(0, 0, width, AXIS);
    const step = niceStep(90 / scale());
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    pen.font = '11px system-ui, "DejaVu Sans", sans-serif';
    pen.textAlign = "center";
    for (let n = Math.ceil(view.from / step); n * step <= view.to; ++n) {
      const x = Math.round(xOf(n * step)) + 0.5;
      pen.fillStyle = theme.soft;
      pen.fillRect(x, AXIS - 5, 1, 5);
      const text = (n * step).toFixed(Math.min(9, digits)) + " ms";
      if (x + text.length * 3 < width) pen.fillText(text, x, AXIS / 2);
    }
    pen.fillStyle = theme.line;
    pen.fillRect(0, AXIS - 1, width, 1);
  }

  function drawLine(time, colour, dash, from, to) {
    if (time < view.from || time > view.to) return;
    pen.strokeStyle = colour;
    pen.setLineDash(dash);
    pen.beginPath();
    pen.moveTo(xOf(time), from);
    pen.lineTo(xOf(time), to);
    pen.stroke();
    pen.setLineDash([]);
  }

  // The end of each timeline beside its own rows, the lower bound from top to bottom.
  function drawEnds(first, last) {
    if (data.bound_ms > 0) drawLine(data.bound_ms, theme.bound, [4, 4], AXIS, height);
    lines.forEach((line, l) => {
      for (let w = first; w < last; ++w) {
        drawLine(line.end, theme.text, [], yOf(w, l) - 2, yOf(w, l) + lineHeight() + 2);
      }
    });
  }

  function drawNames(worker) {
    const y = yOf(worker, 0), tall = workerHeight() - PAD;
    pen.textAlign = "left";
    const size = rowHeight >= 18 ? 12 : 10;
    pen.font = `600 ${size}px system-ui, "DejaVu Sans", sans-serif`;
    pen.fillStyle = theme.text;
    const stages = data.stages_of[worker];
    const list = stages.length > 4 ? `${stages[0]}..${stages[stages.length - 1]}`
      : stages.join(",");
    const named = lines.length > 1;
    const first = y + (named ? Math.min(tall / 2, lineHeight()) / 2 + 0.5 : rowHeight / 2);
    pen.fillText("w" + worker, 7, first);
    pen.font = `${size - 1}px system-ui, "DejaVu Sans", sans-serif`;
    pen.fillStyle = theme.soft;
    const of = stages.length ? `s${list}` : "";
    if (!named) {
      pen.fillText(of, 42, first);
      return;
    }
    pen.fillText(of, 7, y + lineHeight() + rowHeight / 2);
    lines.forEach((line, i) => {
      pen.textAlign = "right";
      pen.fillText(line.name, GUTTER - 6, y + i * lineHeight() + rowHeight / 2);
    });
  }

  // A frame around everything of one micro-batch, thicker around what is pointed at.
  function drawPointed() {
    const hit = view.hit;
    if (!hit) return;
    const row = lines[hit.line][hit.mail ? "mail" : "lanes"][hit.worker];
    const micro = row.micro[hit.index];
    pen.strokeStyle = theme.text;
    for (let w = 0; w < data.stages_of.length; ++w) {
      for (let l = 0; l < lines.length; ++l) {
        const y = yOf(w, l), lane = lines[l].lanes[w];
        if (y + rowHeight < AXIS || y > height) continue;
        for (let i = firstAfter(lane, view.from, lane.finish); i < lane.count; ++i) {
          if (lane.start[i] > view.to) break;
          const own = !hit.mail && hit.worker === w && hit.line === l && hit.index === i;
          if (!own && (micro < 0 || lane.micro[i] !== micro)) continue;
          const x = Math.max(xOf(lane.start[i]), GUTTER);
          pen.lineWidth = own ? 3 : 1.5;
          pen.strokeRect(x, y + 0.5, Math.max(xOf(lane.finish[i]) - x - 1, 1), rowHeight - 1);
        }
      }
    }
    pen.lineWidth = 1;
  }

  function draw() {
    const before = performance.now();
    pen.textBaseline = "middle";
    pen.fillStyle = theme.back;
    pen.fillRect(0, 0, width, height);
    let drawn = 0;
    const tall = workerHeight();
    const first = Math.max(0, Math.floor((box.scrollTop - PAD) / tall));
    const last = Math.min(data.stages_of.length,
      Math.ceil((box.scrollTop + height - AXIS) / tall));
    for (let w = first; w < last; ++w) {
      if (w % 2) {
        pen.fillStyle = theme.panel;
        pen.fillRect(0, yOf(w, 0) - PAD / 2, width, tall);
      }
      pen.textAlign = "center";
      lines.forEach((line, l) => {
        drawn += drawLane(line.lanes[w], yOf(w, l), rowHeight);
        if (view.mail) drawMail(line.mail[w], yOf(w, l) + rowHeight + 1);
      });
    }
    drawPointed();
    drawEnds(first, last);
    pen.fillStyle = theme.back;
    pen.fillRect(0, AXIS, GUTTER, height);
    for (let w = first; w < last; ++w) drawNames(w);
    pen.fillStyle = theme.line;
    pen.fillRect(GUTTER - 1, AXIS, 1, height);
    drawAxis();
    if (view.drag) {
      const left = Math.min(view.drag.x, view.drag.now);
      pen.fillStyle = theme.text;
      pen.globalAlpha = 0.15;
      pen.fillRect(left, AXIS, Math.abs(view.drag.now - view.drag.x), height);
      pen.globalAlpha = 1;
    }
    Object.assign(document.body.dataset, {
      drawn, drawMs: (performance.now() - before).toFixed(1), from: view.from, to: view.to,
    });
  }

  function drawLegend() {
    const dots = window.devicePixelRatio || 1;
    for (const swatch of document.querySelectorAll(".legend canvas")) {
      const letter = swatch.dataset.kind, brush = swatch.getContext("2d");
      swatch.width = 26 * dots;
      swatch.height = 18 * dots;
      swatch.style.width = "26px";
      swatch.style.height = "18px";
      brush.setTransform(dots, 0, 0, dots, 0, 0);
      const fill = theme[KINDS[letter]], ink = dark(fill) ? "#ffffff" : "#101418";
      brush.fillStyle = fill;
      brush.fillRect(0, 0, 26, 18);
      brush.fillStyle = mix(fill, ink, 0.55);
      mark(brush, letter, 0, 0, 26, 18);
      brush.fillStyle = ink;
      brush.font = '11px system-ui, "DejaVu Sans", sans-serif';
      brush.textAlign = "center";
      brush.textBaseline = "middle";
      brush.fillText(letter, 13, 9.5);
    }
  }

  // ---- Moving ---------------------------------------------------------------------------------

  function show(from, to) {
    const least = end * 1e-7;
    let wide = Math.min(Math.max(to - from, least), end * 1.02);
    let start = Math.min(Math.max(from, -end * 0.01), end * 1.01 - wide);
    if (wide >= end) { start = 0; wide = end; }
    view.from = start;
    view.to = start + wide;
    redraw();
  }
  const zoom = (factor, time) =>
    show(time - (time - view.from) / factor, time + (view.to - time) / factor);
  const middle = () => (view.from + view.to) / 2;
  const pan = (share) => {
    const by = (view.to - view.from) * share;
    show(view.from + by, view.to + by);
  };

  // The op or message under a point of the canvas: of ops narrower than a pixel the nearest.
  function hitAt(x, y) {
    if (x < GUTTER || y < AXIS) return null;
    const down = y - AXIS - PAD + box.scrollTop;
    const worker = Math.floor(down / workerHeight());
    if (worker < 0 || worker >= data.stages_of.length) return null;
    const inside = down - worker * workerHeight();
    const line = Math.floor(inside / lineHeight());
    if (line >= lines.length) return null;
    const deep = inside - line * lineHeight();
    const near = 2 / scale(), time = timeOf(x);
    if (deep < rowHeight) {
      const lane = lines[line].lanes[worker];
      const at = firstAfter(lane, time, lane.finish);
      let best = -1, distance = near;
      for (let i = Math.max(0, at - 1); i < Math.min(lane.count, at + 2); ++i) {
        const away = Math.max(lane.start[i] - time, time - lane.finish[i], 0);
        if (away < distance) { best = i; distance = away; }
      }
      return best < 0 ? null : { worker, line, mail: false, index: best };
    }
    const mail = lines[line].mail[worker];
    for (let i = firstAfter(mail, time - mail.longest - near, mail.start); i < mail.count; ++i) {
      if (mail.start[i] > time + near) break;
      const letter = data.mail[mail.name[i]][0];
      const there = letter === "a" ? deep < 6 : letter === "g" ? deep >= 5 : true;
      if (there && mail.finish[i] + near >= time) return { worker, line, mail: true, index: i };
    }
    return null;
  }

  function point(hit, x, y) {
    const same = JSON.stringify(hit) === JSON.stringify(view.hit);
    view.hit = hit;
    if (!same) redraw();
    if (!hit) {
      tip.style.display = "none";
      return;
    }
    if (!same || !tip.firstChild) {
      tip.replaceChildren(...describe(hit).map((text, i) => {
        const part = document.createElement(i ? "div" : "b");
        part.textContent = text;
        return part;
      }));
    }
    tip.style.display = "block";
    const left = x + 16 + tip.offsetWidth > window.innerWidth ? x - tip.offsetWidth - 12 : x + 16;
    const top = y + 18 + tip.offsetHeight > window.innerHeight ? y - tip.offsetHeight - 10 : y + 18;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  }

  // Points at an op as keys do: beside it, and in words in the status line.
  function select(worker, line, index) {
    const lane = lines[line].lanes[worker];
    if (!lane || index < 0 || index >= lane.count) return;
    if (lane.finish[index] < view.from || lane.start[index] > view.to) {
      const half = (view.to - view.from) / 2;
      show(lane.start[index] - half, lane.start[index] + half);
    }
    const top = worker * workerHeight();
    if (top < box.scrollTop) box.scrollTop = top;
    if (top + workerHeight() > box.scrollTop + height - AXIS) {
      box.scrollTop = top + workerHeight() - height + AXIS + PAD;
    }
    const place = canvas.getBoundingClientRect();
    const hit = { worker, line, mail: false, index };
    const at = Math.min(Math.max(xOf(lane.start[index]), GUTTER), width - 10);
    point(hit, place.left + at, place.top + yOf(worker, line) + rowHeight - 12);
    status.textContent = describe(hit).join("; ");
  }

  function step(by, rows) {
    const hit = view.hit && !view.hit.mail ? view.hit : null;
    if (!hit) return select(0, 0, 0);
    if (!rows) return select(hit.worker, hit.line, hit.index + by);
    const row = hit.worker * lines.length + hit.line + by;
    if (row < 0 || row >= data.stages_of.length * lines.length) return undefined;
    const worker = Math.floor(row / lines.length), line = row % lines.length;
    const time = lines[hit.line].lanes[hit.worker].start[hit.index];
    const lane = lines[line].lanes[worker];
    return select(worker, line, Math.min(firstAfter(lane, time, lane.finish), lane.count - 1));
  }

  function setMail(on) {
    view.mail = on;
    byId("mail").checked = on;
    point(null);
    layOut();
  }

  const KEYS = {
    "+": () => zoom(1.5, middle()), "=": () => zoom(1.5, middle()),
    "-": () => zoom(1 / 1.5, middle()), "0": () => show(0, end),
    ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    ArrowUp: () => { box.scrollTop -= workerHeight(); },
    ArrowDown: () => { box.scrollTop += workerHeight(); },
    m: () => setMail(!view.mail), n: () => step(1, false), p: () => step(-1, false),
    j: () => step(1, true), k: () => step(-1, true), Escape: () => point(null),
  };

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
  canvas.addEventListener("wheel", (event) => {
    if (event.shiftKey || event.offsetX < GUTTER) return;  // scrolls the rows
    event.preventDefault();
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / width);
    else zoom(Math.exp(-event.deltaY * 0.002), timeOf(event.offsetX));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.offsetX < GUTTER) return;
    view.drag = { x: event.offsetX, now: event.offsetX, pans: event.shiftKey, from: view.from };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!view.drag) return point(hitAt(event.offsetX, event.offsetY), event.clientX, event.clientY);
    if (view.drag.pans) {
      const from = view.drag.from - (event.offsetX - view.drag.x) / scale();
      return show(from, from + view.to - view.from);
    }
    view.drag.now = Math.min(Math.max(event.offsetX, GUTTER), width);
    point(null);
    return redraw();
  });
  canvas.addEventListener("pointerup", () => {
    const drag = view.drag;
    view.drag = null;
    if (drag && !drag.pans && Math.abs(drag.now - drag.x) > 5) {
      show(timeOf(Math.min(drag.x, drag.now)), timeOf(Math.max(drag.x, drag.now)));
    }
    redraw();
  });
  canvas.addEventListener("pointercancel", () => { view.drag = null; redraw(); });
  canvas.addEventListener("pointerleave", () => { if (!view.drag) point(null); });
  canvas.addEventListener("dblclick", () => show(0, end));
  box.addEventListener("scroll", redraw);
  window.addEventListener("resize", layOut);
  byId("mail").addEventListener("change", (event) => setMail(event.target.checked));
  for (const [id, key] of [["closer", "+"], ["farther", "-"], ["left", "ArrowLeft"],
    ["right", "ArrowRight"], ["whole", "0"]]) {
    byId(id).addEventListener("click", () => KEYS[key]());
  }
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readTheme();
    redraw();
  });

  // ---- What the address asks for: #from=120&to=240&messages=1&op=LINE.WORKER.INDEX -------------

  function goWhereAsked() {
    const asked = new URLSearchParams(window.location.hash.slice(1));
    const number = (name, otherwise) => {
      const value = parseFloat(asked.get(name));
      return Number.isFinite(value) ? value : otherwise;
    };
    setMail(asked.get("messages") === "1");
    show(number("from", 0), number("to", end));
    draw();
    if (asked.has("op")) {
      const [line, worker, index] = asked.get("op").split(".").map(Number);
      if (lines[line]) select(worker, line, index);
      draw();
    }
  }
  window.addEventListener("hashchange", goWhereAsked);
  byId("chunks").hidden = data.chunks < 2;
  goWhereAsked();
  Object.assign(document.body.dataset, { ops, messages, ready: "yes" });
})();
