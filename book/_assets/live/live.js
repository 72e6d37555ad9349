// The live forms. Each stands on its page complete, with the result for its first knobs. This script lets the knobs
// be turned: the book's own Python computes in a worker, Observable Plot draws. Both are fetched at the first touch.

(() => {
  const base = new URL(".", document.currentScript.src);
  const RESTING = "The chapter’s own result. Turn a knob, and the book’s code runs here, in your browser.";
  const FOLDER = "In a folder this form rests: run “make serve” in the book’s repository to turn its knobs.";
  const SOON = 300, PATIENCE = 20_000, LIMIT = 60_000; // ms: until it says “Computing…”, without a byte, for an answer
  const NUMBER = /^[+-]?(\d{1,3}(,\d{3})+|\d+)?(\.\d*)?(e[+-]?\d{1,3})?$/i; // 2048, 2,048, 0.8, 2e3; not 0,8
  const DEEPEST = 100; // brackets within brackets
  let python; // the worker, once it was asked for
  let hatches = 0; // patterns so far, for their names
  let plotting; // the library, the same way
  let asking; // the form that is being answered, if it still wants the answer
  let alarm; // goes off when Python takes too long
  const waiting = new Map(); // form -> its question; of each only the last

  function live(section) {
    const form = section.querySelector("form"), knobs = [...form.querySelectorAll("input, select, textarea")];
    const part = name => section.querySelector(`[data-part=${name}]`);
    const status = section.querySelector(".live-status p"), progress = section.querySelector("progress");
    const button = section.querySelector(".live-status button");
    const hints = new Map(knobs.map(knob => [knob, hintOf(knob).textContent]));
    const first = new Map(knobs.map(knob => [knob, knob.value]));
    let plot, width; // the plot that is shown, and how wide it was drawn
    let soon; // goes off when an answer takes long enough to say so

    const face = { loading, show, fail };
    const inAddress = knob => `${section.dataset.live}.${knob.name}`;
    const say = text => { status.textContent = text; };
    const labels = wrong => knobs.filter(knob => knob.name in wrong).map(knob => `“${knob.labels[0].textContent}”`).join(", ");

    if (location.protocol === "file:") return say(FOLDER);
    form.firstElementChild.disabled = false;
    form.addEventListener("submit", event => event.preventDefault());
    form.addEventListener("input", () => { keepInAddress(); ask(); });
    form.addEventListener("keydown", turn);
    button.addEventListener("click", () => section.ariaBusy === "true" ? stop(face, "Stopped. Below is the answer before.") : ask());
    new ResizeObserver(() => plot && part("plot").clientWidth !== width && draw()).observe(part("plot"));
    say(RESTING);
    if (openFromAddress()) ask();

    // an arrow adds a step to a number, or takes one off
    function turn(event) {
      const { step, low, high } = event.target.dataset, way = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!step || !way) return;
      event.preventDefault();
      const value = (numberIn(event.target) || 0) + way * step;
      event.target.value = +Math.min(high, Math.max(low, value)).toPrecision(12);
      event.target.dispatchEvent(new Event("input", { bubbles: true }));
    }

    function openFromAddress() {
      const asked = new URLSearchParams(location.search);
      const given = knobs.filter(knob => asked.has(inAddress(knob)));
      for (const knob of given) knob.value = asked.get(inAddress(knob));
      return given.length > 0;
    }

    // of a text only what the answer says: whatever was pasted may be too long
    function keepInAddress(link = {}) {
      const state = new URLSearchParams(location.search);
      for (const knob of knobs) state.delete(inAddress(knob));
      for (const knob of knobs) {
        const held = knob.type === "textarea" ? link[knob.name] ?? "" : knob.value;
        if (held !== first.get(knob)) state.set(inAddress(knob), held);
      }
      history.replaceState(null, "", `${location.pathname}${state.size ? `?${state}` : ""}${location.hash}`);
    }

    function ask() {
      const wrong = Object.fromEntries(knobs.map(knob => [knob.name, refusal(knob)]).filter(([, why]) => why));
      if (Object.keys(wrong).length) {
        forget(face);
        return show({ wrong });
      }
      soon ??= setTimeout(() => {
        section.ariaBusy = true;
        button.textContent = "Stop";
        button.hidden = false;
        if (progress.hidden) say("Computing…");
      }, SOON);
      compute({ calculator: section.dataset.live, knobs: Object.fromEntries(knobs.map(knob => [knob.name, knob.value])) }, face);
    }

    function rest() {
      clearTimeout(soon);
      soon = undefined;
      section.ariaBusy = false;
      button.hidden = progress.hidden = true;
    }

    function loading(share) {
      progress.hidden = share === 1;
      progress.value = share;
      if (share === 1) say("Computing…");
      else if (status.textContent.slice(0, 7) !== "Loading") say("Loading Python, once: 13 MB.");
    }

    function fail(why) {
      rest();
      say(why);
      button.textContent = "Try again";
      button.hidden = false;
    }

    async function show({ wrong = {}, parts, plot: next, answer }, ms) {
      rest();
      for (const knob of knobs) {
        hintOf(knob).textContent = wrong[knob.name] ?? hints.get(knob);
        knob.setAttribute("aria-invalid", knob.name in wrong);
      }
      if (!parts) return say(`Not computed, below is the answer before: ${wrong[""] ?? `see ${labels(wrong)}.`}`);
      for (const name in parts) part(name).innerHTML = parts[name];
      keepInAddress(answer.link);
      plot = next;
      try { await draw(); } catch { return fail("The plot could not be loaded; it shows the answer before."); }
      dispatchEvent(new Event("resize")); // the theme looks again which tables scroll
      section.answer = answer; // for who wants to look, as the tests do
      say(`Computed here in ${ms < 1 ? "less than 1" : Math.round(ms)} ms.`);
    }

    async function draw() {
      await library();
      width = part("plot").clientWidth;
      if (width) part("plot").replaceChildren(drawn(plot, width, part("plot").clientHeight));
    }
  }

  // ---- what is wrong with a knob, before anything is computed

  function refusal(knob) {
    const { low, high, use, zero, most } = knob.dataset, text = knob.value.trim();
    if (most && text.length > most) return `${text.length.toLocaleString("en")} characters are too many; use ${(+most).toLocaleString("en")} at most`;
    if (most && depth(text) > DEEPEST) return `more than ${DEEPEST} brackets within each other; use fewer`;
    if (!use || (zero !== undefined && !text)) return undefined;
    const value = numberIn(knob), fits = value >= low && value <= high && (knob.inputMode !== "numeric" || Number.isInteger(value));
    return fits ? undefined : `“${text.length > 20 ? `${text.slice(0, 20)}…` : text}” will not do; ${use}`;
  }

  function numberIn(knob) {
    const text = knob.value.trim();
    return text && NUMBER.test(text) ? Number(text.replaceAll(",", "")) : NaN;
  }

  function depth(text) {
    let now = 0, most = 0;
    for (const [sign] of text.replace(/"(?:[^"\\]|\\.)*"/g, "").matchAll(/[[\]{}]/g)) most = Math.max(most, now += "[{".includes(sign) ? 1 : -1);
    return most;
  }

  function hintOf(knob) {
    return document.getElementById(knob.getAttribute("aria-describedby"));
  }

  // ---- the worker: one for all forms, one question at a time

  function compute(question, form) {
    if (asking) return waiting.set(form, question);
    asking = form;
    python ??= startPython();
    python.postMessage(question);
    wind(LIMIT);
  }

  function forget(form) {
    waiting.delete(form);
    if (asking === form) asking.outdated = true;
  }

  function startPython() {
    const worker = new Worker(new URL("worker.js", base), { type: "module" });
    const lost = "Python could not be loaded here. Is the network there?";
    worker.onerror = () => stop(asking, lost);
    worker.onmessage = ({ data: { loaded, unloaded, answer, failed, ms } }) => {
      if (loaded !== undefined) {
        wind(loaded === 1 ? LIMIT : PATIENCE);
        return asking.loading(loaded);
      }
      if (unloaded || failed) return stop(asking, unloaded ? lost : `This does not run here: ${failed}`);
      const form = asking, outdated = form.outdated || waiting.has(form);
      next();
      if (!outdated) form.show(answer, ms);
    };
    asking.loading(0);
    return worker;
  }

  function wind(ms) {
    clearTimeout(alarm);
    const why = ms === LIMIT ? `Stopped: no answer within ${LIMIT / 1000} s. Ask for less.` : "Python does not come: the network is slow, or away.";
    alarm = setTimeout(() => stop(asking, why), ms);
  }

  // whoever computes is stopped, and asked anew at the next question
  function stop(form, why) {
    if (!form) return;
    waiting.delete(form);
    if (asking === form) {
      python.terminate();
      python = undefined;
      next();
    }
    form.fail(why);
  }

  function next() {
    clearTimeout(alarm);
    delete asking.outdated;
    asking = undefined;
    for (const [form, question] of [...waiting].slice(0, 1)) {
      waiting.delete(form);
      compute(question, form);
    }
  }

  // ---- the plot

  function library() {
    const script = file => new Promise((done, fail) => {
      const element = Object.assign(document.createElement("script"), { src: new URL(file, base), onload: done, onerror: fail });
      document.head.append(element);
    });
    plotting ??= script("d3/d3.min.js").then(() => script("plot/plot.umd.min.js"));
    plotting.catch(() => { plotting = undefined; });
    return plotting;
  }

  function drawn({ alt, x, y, rows, marks }, width, height) {
    const scale = (axis, name, count) => {
      const seen = marks.flatMap(mark => [...mark[name] ?? [], ...name === "x" ? mark.x2 ?? [] : []]);
      const domain = axis.ends ?? d3.extent(seen);
      const ticks = (axis.log ? powers(...domain, count) : d3.ticks(...domain, count))
        .filter(tick => !axis.whole || Number.isInteger(tick));
      return { type: axis.log ? "log" : "linear", domain, nice: !axis.ends && !axis.log, ticks, grid: true };
    };
    const across = scale(x, "x", width / 90), up = rows ? { type: "band", domain: rows, label: null, padding: 0.3 } : scale(y, "y", 6);
    const axis = ({ ticks }) => ({ ticks, tickFormat: written, labelAnchor: "center", labelArrow: "none", tickSize: 4 });
    const letter = width < 480 ? 6.6 : 7.4, hatch = `live-hatch-${++hatches}`;
    const svg = Plot.plot({
      width,
      height,
      marginLeft: rows ? 16 + letter * Math.max(...rows.map(row => row.length)) : 68,
      marginBottom: 50,
      marginRight: 16,
      marginTop: 12,
      style: { fontSize: width < 480 ? "12.6px" : "14px", background: "none", overflow: "visible" },
      className: "live-svg",
      ariaLabel: alt,
      x: across,
      y: up,
      marks: [
        Plot.axisX({ ...axis(across), label: x.label, labelOffset: 40 }),
        rows ? Plot.axisY({ tickSize: 0, label: null }) : Plot.axisY({ ...axis(up), label: y.label, labelOffset: 60 }),
        ...marks.map(one => mark(one, `url(#${hatch})`)),
      ],
    });
    svg.insertAdjacentHTML("afterbegin", hatching(hatch));
    svg.classList.add("plot");
    svg.setAttribute("role", "img");
    svg.querySelectorAll("g[aria-label]").forEach(group => group.removeAttribute("aria-label"));
    return svg;
  }

  function powers(low, high, most) {
    const [first, last] = [Math.ceil(Math.log10(low)), Math.floor(Math.log10(high))];
    return d3.range(first, last + 1, Math.ceil((last - first) / most)).map(power => +`1e${power}`);
  }

  function written(tick) {
    return tick < 1e5 ? tick.toLocaleString("en") : `10${[...String(Math.round(Math.log10(tick)))].map(digit => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]).join("")}`;
  }

  // transfers are hatched, here as in the book's other figures
  function hatching(id) {
    return `<defs><pattern id="${id}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
      <rect width="6" height="6" fill="var(--transfer)"/><path d="M0 0V6" stroke="currentColor"/></pattern></defs>`;
  }

  function mark({ kind, colour, x, y, x2, dash, shape }, hatched) {
    const data = x.map((_, i) => ({ x: x[i], x2: x2?.[i], y: y?.[i] }));
    const paint = colour === "ink" ? "currentColor" : `var(--${colour})`;
    const draw = {
      line: () => Plot.line(data, { x: "x", y: "y", stroke: paint, strokeWidth: 2.5, strokeDasharray: dash ? "8 5" : undefined, clip: true }),
      points: () => Plot.dot(data, { x: "x", y: "y", fill: paint, r: 6, symbol: shape ?? "circle" }),
      ticks: () => Plot.tickX(data, { x: "x", y: "y", stroke: paint, strokeWidth: 1.6 }),
      bars: () => Plot.barX(data, { x1: "x", x2: "x2", y: "y", fill: colour === "transfer" ? hatched : paint, stroke: "currentColor", strokeWidth: 0.8 }),
      rule: () => Plot.ruleX(x, { stroke: paint, strokeWidth: 1.6, strokeDasharray: "2 4" }),
    };
    return draw[kind]();
  }

  document.querySelectorAll(".live").forEach(live);
})();
