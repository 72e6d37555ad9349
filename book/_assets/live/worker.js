// Python in a worker, so that the page never waits for it. Takes {calculator, knobs}, posts {answer} or {failed};
// while it loads, {loaded: a share from 0 to 1}; {unloaded} where it cannot.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const START = `
import json
from lib.live import calculator
from lib.page.forms import respond
lambda name, knobs: respond(calculator(name), json.loads(knobs))`;

const here = file => new URL(file, import.meta.url);
const lost = () => postMessage({ unloaded: true });
const ready = start();
ready.catch(lost);

async function start() {
  const size = await (await fetch(here("size.json"))).json();
  countFetches(size);
  const python = await loadPyodide({ indexURL: here("pyodide/").href });
  python.unpackArchive(await (await fetch(here("lib.zip"))).arrayBuffer(), "zip");
  postMessage({ loaded: 1 });
  return python.runPython(START);
}

// lets every answer of fetch pass through a counter, and tells the page how far the download is, or that it failed
function countFetches(size) {
  const plain = self.fetch;
  let bytes = 0;
  self.fetch = async (...request) => {
    const answer = await plain(...request).catch(lost);
    if (!answer?.ok) return lost();
    const counter = new TransformStream({
      transform(chunk, on) {
        bytes += chunk.length;
        postMessage({ loaded: Math.min(bytes / size, 0.99) });
        on.enqueue(chunk);
      },
    });
    return new Response(answer.body.pipeThrough(counter), answer);
  };
}

onmessage = async ({ data: { calculator, knobs } }) => {
  const respond = await ready.catch(() => undefined);
  if (!respond) return;
  try {
    const start = performance.now();
    const answer = JSON.parse(respond(calculator, JSON.stringify(knobs)));
    postMessage({ answer, ms: performance.now() - start });
  } catch (error) {
    postMessage({ failed: String(error).trim().split("\n").pop() }); // of a traceback the last line
  }
};
