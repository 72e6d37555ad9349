// Python in a worker, so that the page never waits for it. Takes {calculator, knobs}, posts {answer} or {failed};
// while it loads, {loaded: a share from 0 to 1}.

import { loadPyodide } from "./pyodide/pyodide.mjs";

const START = `
import json
from lib.live import calculator
from lib.page.forms import respond
lambda name, knobs: respond(calculator(name), json.loads(knobs))`;

const here = file => new URL(file, import.meta.url);
const ready = start();

async function start() {
  const size = await (await fetch(here("size.json"))).json();
  countFetches(size);
  const python = await loadPyodide({ indexURL: here("pyodide/").href });
  python.unpackArchive(await (await fetch(here("lib.zip"))).arrayBuffer(), "zip");
  postMessage({ loaded: 1 });
  return python.runPython(START);
}

// lets every answer of fetch pass through a counter, and tells the page how far the download is
function countFetches(size) {
  const plain = self.fetch;
  let bytes = 0;
  self.fetch = async (...request) => {
    const answer = await plain(...request);
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
  try {
    const respond = await ready, start = performance.now();
    const answer = JSON.parse(respond(calculator, JSON.stringify(knobs)));
    postMessage({ answer, ms: performance.now() - start });
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
