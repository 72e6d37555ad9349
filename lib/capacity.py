"""What an engine does at most, and how busy a load keeps it: asked before anything is simulated.

A simulation of a pool that cannot keep up shows a start-up: its queue grows for as long as one looks, and
every share it reports depends on when one stopped. So first comes arithmetic. `most` is the highest rate that
one engine sustains in its role, never idle and with as many requests at once as memory and limits allow.
`busy` divides a load by it, pool by pool; above `OVERLOADED` nothing is worth simulating.

This is no latency: a pool below its capacity may still keep nobody's promise.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, fsum

from lib import checks, parallelism
from lib.hardware import GPU, Link
from lib.kv_cache import BLOCK_TOKENS
from lib.models import Model
from lib.simulator import Deployment, Engine
from lib.workload import Request

OVERLOADED = 0.95  # share of the time; beyond it a queue grows longer than any run
SAMPLE = 200  # requests, evenly drawn from a longer load


@dataclass(frozen=True)
class Busy:
    """How busy a pool is: `share` of its time, of `engines` engines that do `most` requests/s each.

    `floor` is the smallest number of GPUs with which any run could keep up, whatever it promises; `batch` is
    how many answers an engine holds at once when it is full (0 where it holds none).
    """

    pool: str
    share: float
    engines: int
    most: float
    floor: int
    batch: float = 0.0

    @property
    def overloaded(self) -> bool:
        """Whether its queue would grow without end, or nearly."""
        return self.share > OVERLOADED


def busy(deployment: Deployment, rate: float, requests: Sequence[Request]) -> tuple[Busy, ...]:
    """Return how busy `rate` requests/s of such lengths keep each pool of a deployment.

    Lengths are those of `requests`, at most `SAMPLE` of them, evenly drawn; their arrivals do not matter.
    """
    sample = drawn(requests)
    each = [most(pool.engine, sample, pool.role) for pool in deployment.pools]
    return at_rate(deployment, rate, each)


def at_rate(deployment: Deployment, rate: float, each: Sequence[tuple[float, float]]) -> tuple[Busy, ...]:
    """Return the same where it is known what one engine of `each` pool does at most."""
    checks.positive("busy", rate=rate)
    found = []
    for pool, (one, batch) in zip(deployment.pools, each, strict=True):
        engines = rate / one
        gpus = pool.engine.tensor_parallel * ceil(engines / OVERLOADED)
        found.append(Busy(pool.role, engines / pool.count, pool.count, one, gpus, batch))
    return tuple(found)


def highest(deployment: Deployment, requests: Sequence[Request]) -> float:
    """Return the requests/s of such lengths that a deployment does at most: those of its slowest pool."""
    return min(pool.engines * pool.most for pool in busy(deployment, 1.0, requests))


def drawn(requests: Sequence[Request]) -> Sequence[Request]:
    """Return at most `SAMPLE` of the requests, evenly drawn."""
    return requests[:: ceil(len(requests) / SAMPLE)]


def most(engine: Engine, requests: Sequence[Request], role: str) -> tuple[float, float]:
    """Return the requests/s of such lengths that one engine sustains at most, and how many it then holds.

    - "prefill": prompts fill one step after the other, up to the token budget, and nothing else is done.
    - "decode": steps of the largest batch (`full`), each stream at the mean of what it attends to.
    - "shared": both. While so many stream, somebody's prompt comes in for each that ends: of the steps only
      those carry a chunk, as large as the budget leaves it, that are needed for that.
    """
    checks.counts("most", requests=len(requests))
    count = len(requests)
    prompt = fsum([request.prompt_tokens - request.cached for request in requests]) / count
    cached = fsum([request.cached for request in requests]) / count
    output = fsum([request.output_tokens for request in requests]) / count
    if role == "prefill":
        return count / prefill_seconds(engine, requests), 0.0
    held = mean_held(requests)
    batch = full(engine, held)
    price = engine.step_seconds
    if role == "decode":
        return batch / (output * price((), floor(batch), round(floor(batch) * held))), batch
    budget = engine.token_budget or max(r.prompt_tokens - r.cached for r in requests) + floor(batch)
    batch = min(batch, budget / (1 + prompt / output))  # tokens come in as they go out
    streams = max(1, floor(batch))
    context = round(streams * held)
    needed = streams * prompt / output  # tokens of prompts a step, on average
    chunk = min(budget - streams, max(needed, min(prompt, budget - streams)))
    share = min(1.0, needed / chunk)  # of the steps that carry chunks
    seconds = fsum(
        [
            share * price(cut(round(chunk), round(prompt), round(cached)), streams, context),
            (1 - share) * price((), streams, context),
        ]
    )
    return streams / (output * seconds), batch


def cut(tokens: int, prompt: int, cached: int = 0) -> tuple[tuple[int, int], ...]:
    """Return so many tokens of prompts as chunks: whole prompts, and a piece from the middle of one."""
    whole, rest = divmod(tokens, prompt)
    return ((prompt, cached),) * whole + (((rest, cached + (prompt - rest) // 2),) if rest else ())


def prefill_seconds(engine: Engine, requests: Sequence[Request]) -> float:
    """Return the seconds in which an engine computes these prompts, one after the other, in full steps."""
    price, budget = engine.step_seconds, engine.token_budget
    seconds, chunks, left = [], [], budget
    for request in requests:
        past = request.cached
        while past < request.prompt_tokens:
            tokens = request.prompt_tokens - past if left is None else min(left, request.prompt_tokens - past)
            chunks.append((tokens, past))
            past += tokens
            left = None if left is None else left - tokens
            if not left:  # the step is full; without a budget a prompt is a step
                seconds.append(price(tuple(chunks), 0, 0))
                chunks, left = [], budget
    if chunks and budget:
        seconds.append(price(tuple(chunks), 0, 0) * (budget - (left or 0)) / budget)
    return fsum(seconds)


def mean_held(requests: Sequence[Request]) -> float:
    """Return the tokens that a stream holds on average while it streams: its prompt, half of its answer."""
    tokens = [request.output_tokens for request in requests]
    held = [r.output_tokens * (r.prompt_tokens + (r.output_tokens - 1) / 2) for r in requests]
    return fsum(held) / fsum(tokens)


def full(engine: Engine, held: float) -> float:
    """Return how many streams that hold so many tokens an engine has at once when it is full."""
    blocks = held / BLOCK_TOKENS + 0.5  # the last one is half empty on average
    return max(1.0, min(engine.max_num_seqs, (engine.blocks - 1) / blocks))


# ------------------------------------------------------------------ does it start?

POWERS = (1, 2, 4, 8, 16, 32, 64)  # GPUs to an engine, as they are tried


def starts(owner: str, model: Model, gpu: GPU, degree: int, longest: int) -> None:
    """Refuse an engine on `degree` GPUs that would not start, or has no room for its longest request.

    ValueError names the degrees that would do.
    """
    checks.counts(owner, tensor_parallel=degree)
    wrong = refusal(model, gpu, degree, longest)
    if wrong:
        able = [str(n) for n in POWERS if n != degree and not refusal(model, gpu, n, longest)]
        would = (
            f"use {' or '.join(able)}" if able else "use a smaller model, shorter requests or a larger GPU"
        )
        raise ValueError(f"{owner}: tensor_parallel={degree}: {wrong}; {would}")


def smallest(model: Model, gpu: GPU, longest: int) -> int:
    """Return the fewest GPUs on which an engine starts and holds a request so long; 1 where none does."""
    return next((degree for degree in POWERS if not refusal(model, gpu, degree, longest)), 1)


def refusal(model: Model, gpu: GPU, degree: int, longest: int) -> str:
    """Return why an engine on `degree` GPUs would not start or hold a request so long; "" if it would."""
    if degree > gpu.per_node:
        return f"an engine's GPUs share a server, and {gpu.per_node} {gpu.name} do"
    wrong = parallelism.undivided(model, degree)
    if wrong:
        return wrong
    usable = parallelism.USABLE_MEMORY * degree * gpu.memory
    weights = f"{model.resident_bytes / 1e9:.1f} GB of weights in {usable / 1e9:.1f} GB usable"
    have = parallelism.room(model, gpu, degree)
    if have < longest:
        return f"{weights} leave room for {max(0, have):,} tokens, the longest request has {longest:,}"
    return ""


def reads(owner: str, model: Model, longest: int) -> None:
    """Refuse a request of more tokens than the model was made for."""
    if model.context is not None and longest > model.context:
        raise ValueError(
            f"{owner}: a request of {longest:,} tokens, prompt and answer, but {model.name} reads "
            f"{model.context:,}; use shorter ones"
        )


def carries(owner: str, gpu: GPU, link: Link) -> None:
    """Refuse a link between pools that is faster than the bus and the fabric of the GPUs."""
    ways = [gpu.host.bandwidth, *([gpu.fabric] if gpu.fabric else [])]
    if link.bandwidth > max(ways):
        fabric = "" if gpu.fabric else ", and no NVLink"
        raise ValueError(
            f"{owner}: link={link.name} carries {link.bandwidth / 1e9:g} GB/s, but {gpu.name} has "
            f"{gpu.host.name} with {gpu.host.bandwidth / 1e9:g} GB/s{fabric}; use a link of at most "
            f"{8 * max(ways) / 1e9:g} Gb/s"
        )


def hands_over(owner: str, model: Model, prefill: int, decode: int) -> None:
    """Refuse degrees of two pools between which vLLM hands over no cache (`handover`)."""
    wrong = handover(model, prefill, decode)
    if wrong:
        raise ValueError(
            f"{owner}: prefill_tensor_parallel={prefill}, decode_tensor_parallel={decode}: {wrong}"
        )


def handover(model: Model, prefill: int, decode: int) -> str:
    """Return why vLLM hands over no cache between engines on so many GPUs; "" if it does.

    One degree divides the other; with layers that keep a state both are equal. (vLLM, NixlConnector
    compatibility matrix, docs/features/nixl_connector_compatibility.md, seen 2026-12-01; dense models, MLA
    and experts may differ.)
    """
    if model.with_mamba and prefill != decode:
        return "layers that keep a state are handed over between equal degrees only; use one for both"
    if max(prefill, decode) % min(prefill, decode):
        return "neither divides the other; use degrees of which one does"
    return ""
