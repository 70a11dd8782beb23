"use strict";
(() => {
  const token = new URLSearchParams(location.search).get("token") || "";
  const set = document.body.dataset;
  const at = (id) => document.getElementById(id);
  const MOST_SINGLE = 64;  // workers that are shown one by one
  const MOST_EVENTS = 100;
  const POLL_MS = 1000, RETRY_MS = 3000;
  const PARTS = ["forward", "backward", "weight", "copies", "waiting"];
  let since = 0, wishes = 0;
  addEventListener("error", (event) => { set.error = String(event.message); });

  // Texts of the run are set as text, never as HTML.
  function make(name, attributes, ...children) {
    const drawn = ["svg", "rect", "path", "text", "title"].includes(name);
    const made = drawn ? document.createElementNS("http://www.w3.org/2000/svg", name)
      : document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }
  const replace = (id, ...children) => at(id).replaceChildren(...children);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

  function time(seconds) {
    if (seconds === null || seconds === undefined) return "not known";
    if (seconds === 0) return "0 s";
    if (seconds < 1e-3) return `${(seconds * 1e6).toPrecision(3)} µs`;
    if (seconds < 1) return `${(seconds * 1e3).toPrecision(3)} ms`;
    return `${seconds.toPrecision(3)} s`;
  }

  const figure = (loss) => loss === null ? "not known" : loss.toFixed(4);
  const percent = (share) => `${(100 * share).toFixed(1)} %`;

  function rate(bytes) {
    if (bytes === null || bytes === undefined) return "not known";
    return bytes >= 1e9 ? `${(bytes / 1e9).toPrecision(3)} GB/s`
      : `${(bytes / 1e6).toPrecision(3)} MB/s`;
  }

  const ask = (path, options) => fetch(path, { cache: "no-store",
    headers: { Authorization: `Bearer ${token}` }, ...options });

  // ---- figures and plan

  const newest = (state, key) => {
    for (let i = state.history.length - 1; i >= 0; --i) {
      if (state.history[i][key] !== null) return state.history[i][key];
    }
    return null;
  };
  const promised = (state) => state.promises.length === 0 ? null
    : state.promises[state.promises.length - 1].seconds;

  function showFacts(state) {
    const loss = newest(state, "loss");
    const held = state.validations[state.validations.length - 1];
    const facts = [["step", `${state.step} of ${state.steps}`], ["situation", state.situation],
      ["loss", figure(loss)],
      ["time of a step", time(newest(state, "seconds"))], ["promised", time(promised(state))],
      ["plan changes", state.plan_changes], ["faults", state.faults], ["epoch", state.epoch],
      ["newest checkpoint", state.saved < 0 ? "none" : `step ${state.saved}`]];
    if (held) facts.splice(3, 0, ["held-out loss", figure(held.loss)]);
    if (held && held.accuracy !== null) facts.splice(4, 0, ["accuracy", percent(held.accuracy)]);
    if (state.mass !== null) facts.push(["micro-batches in updates", state.mass]);
    if (state.age !== null) facts.push(["age of gradients", state.age.toFixed(2)]);
    replace("facts", ...facts.map(([what, figure]) =>
      make("li", {}, make("span", {}, what), make("b", {}, String(figure)))));
    set.loss = loss === null ? "" : String(loss);
  }

  function showPlan(state) {
    const plan = state.plan;
    at("plan").textContent = `Sync mode ${state.mode}; order ${plan.order || "none"}, plan `
      + `${plan.serial}, ${plan.from < 0 ? "not in force yet" : `in force from step ${plan.from}`}.`;
    at("why").textContent = plan.why ? `Why: ${plan.why}` : "";
    showAlternatives(state);
  }

  // A column is left out if no alternative has it.
  function showAlternatives(state) {
    const { alternatives } = state;
    if (alternatives.length === 0) return replace("alternatives");
    const columns = [["promised step", (one) => one.step_seconds, time],
      ["cost of the change", (one) => one.change_seconds, time],
      ["all in all", (one) => one.total_seconds, time],
      ["gradients of age 0 per second", (one) => one.progress, (of) => of.toPrecision(4)],
      ["choice", (one) => one.chosen || null, () => "chosen"]]
      .filter(([, get]) => alternatives.some((one) => get(one) !== null));
    const rows = alternatives.map((one) => make("tr", {}, make("th", { scope: "row" }, one.name),
      ...columns.map(([, get, format]) => make("td", { class: one.chosen ? "chosen" : "" },
        get(one) === null ? "" : format(get(one))))));
    replace("alternatives", make("table", {},
      make("caption", {}, `What was compared in step ${state.compared_in}`),
      make("thead", {}, make("tr", {}, ...["alternative", ...columns.map(([head]) => head)]
        .map((head) => make("th", { scope: "col" }, head)))), make("tbody", {}, ...rows)));
  }

  // ---- workers

  const stageOf = (worker) => worker.stages.length === 0 ? -1 : worker.stages[0];

  function describe(worker) {
    const parts = worker.seconds === null ? "no step reported"
      : PARTS.map((part) => `${part} ${time(worker.seconds[part])}`).join(", ");
    return `worker ${worker.worker}, ${worker.state}: ${parts}`
      + (worker.reason ? `; ${worker.reason}` : "");
  }

  // What a step consisted of, as a bar of 90 by 6.
  function bar(seconds, label) {
    const drawing = make("svg", { width: 90, height: 6, viewBox: "0 0 90 6", role: "img",
      "aria-label": label }, make("title", {}, label));
    const whole = Math.max(seconds.whole, PARTS.reduce((sum, part) => sum + seconds[part], 0));
    let from = 0;
    for (const part of PARTS) {
      const width = whole > 0 ? 90 * seconds[part] / whole : 0;
      drawing.append(make("rect", { x: from, y: 0, width, height: 6, class: part }));
      from += width;
    }
    return drawing;
  }

  function workerCell(worker, most) {
    const cell = make("td", { class: worker.state, title: describe(worker) },
      `${worker.worker}: ${worker.state}`);
    cell.style.setProperty("--heat", worker.seconds && most > 0 ? worker.seconds.whole / most : 0);
    if (worker.ranges > 0) cell.append(`, ${plural(worker.ranges, "range")}`);
    if (worker.seconds !== null) {
      cell.append(` ${time(worker.seconds.whole)}`, bar(worker.seconds, describe(worker)));
    }
    return cell;
  }

  function singleTable(workers) {
    const most = Math.max(0, ...workers.map((worker) => worker.seconds ? worker.seconds.whole : 0));
    const stages = [...new Set(workers.map(stageOf))].sort((a, b) => a - b);
    const pipelines = [...new Set(workers.map((worker) => worker.pipeline === null ? -1
      : worker.pipeline))].sort((a, b) => a - b);
    const head = make("tr", {}, make("th", { scope: "col" }, "pipeline"), ...stages.map((stage) =>
      make("th", { scope: "col" }, stage < 0 ? "no stage" : `stage ${stage}`)));
    const rows = pipelines.map((pipeline) => {
      const row = make("tr", {}, make("th", { scope: "row" }, pipeline < 0 ? "none" : pipeline));
      for (const stage of stages) {
        const here = workers.filter((worker) => stageOf(worker) === stage
          && (worker.pipeline === null ? -1 : worker.pipeline) === pipeline);
        if (here.length === 1) row.append(workerCell(here[0], most));
        else if (here.length === 0) row.append(make("td", {}));
        else {
          const inner = make("table", {}, ...here.map((worker) =>
            make("tr", {}, workerCell(worker, most))));
          row.append(make("td", {}, inner));
        }
      }
      return row;
    });
    return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
  }

  // With many workers a row for each stage says how many there are of each kind, and how long the
  // slowest of them takes.
  function stageTable(workers) {
    const stages = [...new Set(workers.map(stageOf))].sort((a, b) => a - b);
    const sums = stages.map((stage) => {
      const here = workers.filter((worker) => stageOf(worker) === stage);
      const times = here.filter((worker) => worker.seconds !== null)
        .sort((a, b) => a.seconds.whole - b.seconds.whole);
      return { stage, here, times, slowest: times[times.length - 1] };
    });
    const most = Math.max(0, ...sums.map((sum) => sum.slowest ? sum.slowest.seconds.whole : 0));
    const states = ["healthy", "slow", "joining", "dead", "absent"];
    const head = ["stage", ...states, "median step", "slowest step", "slowest worker"];
    const rows = sums.map(({ stage, here, times, slowest }) => {
      const middle = times[Math.floor(times.length / 2)];
      const last = make("td", {}, slowest ? time(slowest.seconds.whole) : "not known");
      last.style.setProperty("--heat", slowest && most > 0 ? slowest.seconds.whole / most : 0);
      if (slowest) last.append(bar(slowest.seconds, describe(slowest)));
      return make("tr", {}, make("th", { scope: "row" }, stage < 0 ? "none" : stage),
        ...states.map((state) => {
          const count = here.filter((worker) => worker.state === state).length;
          return make("td", { class: count > 0 && state !== "healthy" ? state : "" }, count);
        }),
        make("td", {}, middle ? time(middle.seconds.whole) : "not known"), last,
        make("td", {}, slowest ? `worker ${slowest.worker}` : "none"));
    });
    return make("table", {}, make("thead", {}, make("tr", {}, ...head.map((word) =>
      make("th", { scope: "col" }, word)))), make("tbody", {}, ...rows));
  }

  function showWorkers(state) {
    const { workers } = state;
    const bad = workers.filter((worker) => worker.state !== "healthy");
    at("workers-text").textContent = `${plural(workers.length, "worker")}, `
      + `${workers.length - bad.length} healthy. `
      + bad.slice(0, 8).map((worker) => `Worker ${worker.worker} is ${worker.state}`
        + (worker.reason ? `: ${worker.reason}` : "") + ".").join(" ");
    replace("workers",
      workers.length <= MOST_SINGLE ? singleTable(workers) : stageTable(workers));
    set.workers = String(workers.length);
  }

  // ---- links

  // The worst link between two workers, or, with many, between two stages.
  function matrix(state) {
    const many = state.workers.length > MOST_SINGLE;
    const stages = new Map(state.workers.map((worker) => [worker.worker, stageOf(worker)]));
    const place = (worker) => many ? stages.get(worker) ?? -1 : worker;
    const cells = new Map(), places = new Set();
    for (const link of state.links) {
      const [low, high] = [place(link.first), place(link.second)].sort((a, b) => a - b);
      places.add(low).add(high);
      const key = `${low}-${high}`, before = cells.get(key);
      const worse = !before || (link.slow && !before.slow)
        || (link.slow === before.slow
            && (link.round_trip_seconds || 0) > (before.round_trip_seconds || 0));
      if (worse) cells.set(key, { ...link, low, high });
    }
    return { cells: [...cells.values()], places: [...places].sort((a, b) => a - b), many };
  }

  function showLinks(state) {
    const { cells, places, many } = matrix(state);
    const slow = state.links.filter((link) => link.slow);
    at("links-text").textContent = state.links.length === 0 ? "No link has been measured yet."
      : `${plural(state.links.length, "link")}, ${slow.length} slow`
        + (state.links_left_out > 0 ? `; ${state.links_left_out} more are not shown` : "")
        + (many ? ". Each square is the worst link between two stages." : ".");
    if (state.links.length === 0) return replace("links");
    const size = 18, edge = 36, most = Math.max(...cells.map((cell) => cell.round_trip_seconds || 0));
    const side = edge + size * places.length;
    const drawing = make("svg", { width: side, height: side, viewBox: `0 0 ${side} ${side}`,
      role: "img", "aria-label": `Round trips between ${many ? "stages" : "workers"}; the table `
        + "has the longest of them" });
    places.forEach((name, i) => {
      drawing.append(make("text", { x: edge + size * i + 3, y: edge - 6 }, name),
        make("text", { x: 6, y: edge + size * i + 13 }, name));
    });
    for (const cell of cells) {
      const share = most > 0 ? (cell.round_trip_seconds || 0) / most : 0;
      const [x, y] = [places.indexOf(cell.low), places.indexOf(cell.high)];
      for (const [left, top] of x === y ? [[x, y]] : [[x, y], [y, x]]) {
        drawing.append(make("rect", { x: edge + size * left, y: edge + size * top, width: size,
          height: size, class: cell.slow ? "cell slow" : "cell",
          "fill-opacity": 0.08 + 0.8 * share }, make("title", {},
          `${cell.first}-${cell.second}: round trip ${time(cell.round_trip_seconds)}`
            + (cell.slow ? ", slow" : ""))));
      }
    }
    const longest = [...state.links].sort((a, b) => b.slow - a.slow
      || (b.round_trip_seconds || 0) - (a.round_trip_seconds || 0)).slice(0, 10);
    const head = ["link", "verdict", "round trip", "network's round trip", "rate", "rate back"];
    const rows = longest.map((link) => make("tr", {},
      make("th", { scope: "row" }, `${link.first}-${link.second}`),
      make("td", { class: link.slow ? "slow" : "" }, link.slow ? "slow" : "as usual"),
      make("td", {}, time(link.round_trip_seconds)),
      make("td", {}, time(link.network_round_trip_seconds)),
      make("td", {}, rate(link.bytes_per_second[0])),
      make("td", {}, rate(link.bytes_per_second[1]))));
    replace("links", drawing, make("table", {}, make("thead", {}, make("tr", {},
      ...head.map((word) => make("th", { scope: "col" }, word)))), make("tbody", {}, ...rows)));
  }

  // ---- curves

  // Draws points [x, y] as a line over the range of x of `points`; `steps` is drawn as stairs, and
  // `marked`, of which there are few, as a line with a mark at each point.
  function chart(id, points, steps, format, marked = []) {
    if (points.length === 0) return replace(id);
    const [width, height, left, bottom] = [720, 160, 70, 20];
    const all = [...points, ...steps, ...marked].map((point) => point[1]);
    const low = Math.min(...all), high = Math.max(...all);
    const first = points[0][0], last = points[points.length - 1][0];
    const x = (of) => left + (width - left - 8) * (last > first ? (of - first) / (last - first) : 0);
    const y = (of) => height - bottom - (height - bottom - 8)
      * (high > low ? (of - low) / (high - low) : 0.5);
    const path = (of) => of.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} `
      + `${y(b).toFixed(1)}`).join("");
    const label = `From step ${first} to ${last}: between ${format(low)} and ${format(high)}, at `
      + `last ${format(points[points.length - 1][1])}`;
    const drawing = make("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": label, style: "max-width: 100%" },
      make("rect", { x: left, y: 8, width: width - left - 8, height: height - bottom - 8,
        class: "frame" }),
      make("text", { x: 2, y: 16 }, format(high)),
      make("text", { x: 2, y: height - bottom }, format(low)),
      make("text", { x: left, y: height - 4 }, `step ${first}`),
      make("text", { x: width - 80, y: height - 4 }, `step ${last}`),
      make("path", { d: path(points), class: "curve" }));
    if (steps.length > 0) {
      const stairs = [];
      steps.forEach(([from, value], i) => {
        const end = i + 1 < steps.length ? steps[i + 1][0] : last;
        stairs.push([Math.max(from, first), value], [Math.max(end, first), value]);
      });
      drawing.append(make("path", { d: path(stairs), class: "promise" }));
    }
    if (marked.length > 0) drawing.append(make("path", { d: path(marked), class: "held-out" }));
    for (const [a, b] of marked) {
      drawing.append(make("rect", { x: x(a) - 2, y: y(b) - 2, width: 4, height: 4,
        class: "held-out" }, make("title", {}, `after step ${a}: ${format(b)}`)));
    }
    replace(id, drawing);
    return label;
  }

  function showCurves(state) {
    const of = (key) => state.history.filter((step) => step[key] !== null)
      .map((step) => [step.step, step[key]]);
    const promises = state.promises.map((promise) => [promise.from, promise.seconds]);
    const goal = promised(state), now = newest(state, "seconds");
    at("time-text").textContent = goal === null ? "No plan of this run has a price yet."
      : `Promised ${time(goal)} (dashed), measured ${time(now)}`
        + (now === null ? "." : `: ${(now / goal).toFixed(3)} times the promise.`);
    chart("time", of("seconds"), promises, time);
    const passes = state.validations, last = passes[passes.length - 1];
    const held = (key) => passes.filter((pass) => pass[key] !== null)
      .map((pass) => [pass.step, pass[key]]);
    const label = chart("loss", of("loss"), [], figure, held("loss"));
    at("loss-text").textContent = (label ? `${label}.` : "No loss is known yet.")
      + (last ? ` Held-out loss after step ${last.step}: ${figure(last.loss)} (marked).` : "");
    const shares = held("accuracy");
    const accuracy = chart("accuracy", shares, [], percent, shares);
    at("accuracy-text").textContent = accuracy ? `Held-out accuracy. ${accuracy}.` : "";
  }

  // ---- events and wishes

  function showEvents(state) {
    const list = at("events");
    for (const event of state.events) {
      list.prepend(make("li", { value: event.serial }, make("b", {}, event.event),
        ` in step ${event.step}: ${event.reason}`));
    }
    while (list.children.length > MOST_EVENTS) list.lastChild.remove();
    const last = state.events[state.events.length - 1];
    if (last) at("status").textContent = `${last.event} in step ${last.step}: ${last.reason}`;
    since = state.serial;
  }

  const switches = document.querySelectorAll(".switch");

  function showSwitches(state) {
    for (const one of switches) {
      const how = state[one.dataset.state ?? one.dataset.key];
      one.hidden = how === "";
      for (const button of one.querySelectorAll("button")) {
        button.setAttribute("aria-pressed", String(button.dataset.how === how));
      }
    }
  }

  async function inject(wish) {
    const number = ++wishes;
    at("answer").textContent = `${wish}: asked`;
    let said;
    try {
      const answer = await ask("api/inject", { method: "POST", body: wish });
      const text = await answer.text();
      try {
        const json = JSON.parse(text);
        said = json.answer ?? json.error;
      } catch { said = text; }
    } catch (error) { said = `the coordinator does not answer (${error.message})`; }
    if (number === wishes) at("answer").textContent = said;
  }

  at("inject").addEventListener("submit", (event) => {
    event.preventDefault();
    const wish = at("wish").value.trim();
    if (wish) inject(wish);
  });
  for (const one of switches) {
    one.addEventListener("click", (event) => {
      const how = event.target.dataset.how;
      if (how) inject(`resilience.${one.dataset.key}=${how}`);
    });
  }

  function show(state) {
    // Another coordinator counts from the beginning: the next answer has all of its events.
    const isAnother = state.serial < since;
    if (isAnother) replace("events");
    at("job").textContent = state.job;
    document.title = `${state.job}: step ${state.step} of ${state.steps}`;
    showFacts(state);
    showPlan(state);
    showWorkers(state);
    showLinks(state);
    showCurves(state);
    showEvents(state);
    if (isAnother) since = 0;
    showSwitches(state);
    set.ready = "yes";
  }

  async function poll() {
    let pause = POLL_MS;
    try {
      const answer = await ask(`api/state?since=${since}`);
      if (answer.ok) show(await answer.json());
      else {
        pause = RETRY_MS;
        at("status").textContent = await answer.text();
      }
    } catch (error) {
      pause = RETRY_MS;
      at("status").textContent = `The coordinator does not answer (${error.message}): it may have `
        + "ended, or a new one takes over.";
    }
    setTimeout(poll, pause);
  }
  poll();
})();
