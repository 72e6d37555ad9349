"""Worlds in which a conclusion of the book is asked: its own, and each of its choices made otherwise.

A world says what a step costs (`price`, `efficiency`), what is served on what (`model`, `gpu`), and how the
requests come (`seeds`, `horizon`, `load`). `WORLDS` is the book's own and one change at a time from it. A
conclusion is a function of a world; what it needs it builds from the world's helpers, so that it hears of
every change: `world.engine(...)`, `world.play(...)`, `world.attained(...)`, `world.goodput(...)`.

What hangs on no price is asked of other worlds: `CONVERSATIONS` of other lengths, `PICTURES` of other sizes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import fsum
from typing import TypeVar

from lib import goodput as serving
from lib.goodput import SLO, attainment
from lib.hardware import A10, A100_80GB, B200, GPU, H100_SXM, H200, L40S
from lib.kernels import ByKernels
from lib.models import (
    DEEPSEEK_V3,
    GPT_OSS_120B,
    LLAMA_2_70B,
    LLAMA_3_1_8B,
    LLAMA_3_1_70B,
    QWEN2_5_7B,
    QWEN3_8B,
    QWEN3_235B_FP8,
    Model,
)
from lib.roofline import PUBLISHED, Efficiency, InSeries, WorkPrice, in_series, step_time
from lib.simulator import Collocated, Deployment, Engine, Trace, simulate
from lib.workload import Request, poisson

BUDGETS = (256, 512, 1024, 2048, 8192)  # tokens a step, of one pool: its best is every split's rival

# Name, price, and the efficiencies that belong to it. The third is the one of `vllm_rules` that comes
# nearest to the guide's tail; its share of the peak is refitted, so that a prompt alone takes as long.
PRICES = (
    ("one maximum", step_time, PUBLISHED),
    ("kernels in series", in_series, PUBLISHED),
    (
        "attention at 25 %, cache read three times",
        InSeries(attention=0.25, rereads=3),
        Efficiency(0.5283, 0.75, 0.002),
    ),
    ("steps with prompts 15 % slower", InSeries(slowdown=1.15), PUBLISHED),
    ("kernel by kernel", ByKernels(), PUBLISHED),  # which knows of no efficiency
)

# The nearest of its size from another maker or of another generation, one that the same servers would run.
MODELS = {
    QWEN2_5_7B: LLAMA_3_1_8B,
    LLAMA_3_1_8B: QWEN3_8B,
    QWEN3_8B: LLAMA_3_1_8B,
    LLAMA_3_1_70B: LLAMA_2_70B,
    DEEPSEEK_V3: QWEN3_235B_FP8,
    QWEN3_235B_FP8: GPT_OSS_120B,
    GPT_OSS_120B: QWEN3_235B_FP8,
}
GPUS = {L40S: A100_80GB, A10: L40S, A100_80GB: H100_SXM, H100_SXM: H200, H200: B200}


@dataclass(frozen=True)
class World:
    """What a conclusion may hang on.

    - `price`, `efficiency`: of a step, as in `Engine`.
    - `seeds`: of the traffic; what is asked of several is their mean.
    - `horizon`: how many times as many requests as a conclusion asks for; `load`: times its rate.
    - `model`, `gpu`: what the book takes unless a chapter says otherwise.
    """

    name: str
    price: WorkPrice | ByKernels = step_time
    efficiency: Efficiency = PUBLISHED
    seeds: tuple[int, ...] = serving.SEEDS
    horizon: int = 1
    load: float = 1.0
    model: Model = QWEN2_5_7B
    gpu: GPU = L40S

    def model_like(self, model: Model) -> Model:
        """The model of a chapter about another one: that, or its neighbour where the world has another."""
        return model if self.model is QWEN2_5_7B else neighbour(MODELS, model)

    def gpu_like(self, gpu: GPU) -> GPU:
        """The GPU of a chapter about another one: that, or its neighbour where the world has another."""
        return gpu if self.gpu is L40S else neighbour(GPUS, gpu)

    def engine(self, **settings: object) -> Engine:
        """An engine of this world, at vLLM's default budget for an L40S unless `settings` of `Engine` say."""
        given = {"model": self.model, "gpu": self.gpu, "price": self.price, "efficiency": self.efficiency}
        return Engine(**{**given, **settings})  # type: ignore[arg-type]

    def step_seconds(self, *work: object, **settings: object) -> float:
        """Seconds of a step, as `Engine.step_seconds`."""
        return self.engine(**settings).step_seconds(*work)  # type: ignore[arg-type]

    def traffic(
        self, rate: float, count: int = 100, prompt: int = 8192, output: int = 256, seed: int | None = None
    ) -> tuple[Request, ...]:
        """Random arrivals: `count` at `rate` a second, times this world's horizon and load."""
        seed = self.seeds[0] if seed is None else seed
        return poisson(rate * self.load, count * self.horizon, seed, prompt, output)

    def play(
        self, deployment: Deployment, rate: float, count: int = 100, prompt: int = 8192, output: int = 256
    ) -> list[Trace]:
        """What comes of such traffic on a deployment, one trace for each seed; each is played once."""
        return [
            played(deployment, rate * self.load, count * self.horizon, seed, prompt, output)
            for seed in self.seeds
        ]

    def attained(self, deployment: Deployment, rate: float, slo: SLO, *traffic: int) -> float:
        """Share of the requests that keep to the SLO; `traffic`: count, prompt, output as in `play`."""
        shares = [attainment(trace, slo) for trace in self.play(deployment, rate, *traffic)]
        return fsum(shares) / len(shares)

    def goodput(self, deployment: Deployment, slo: SLO, *traffic: int, step: float = 0.05) -> float:
        """Highest rate at which 9 in 10 requests keep to the SLO, in steps of `step` requests a second.

        It is counted in rates of the conclusion: under a load of 1.2 requests come 1.2 times as fast.
        """
        return serving.search(lambda rate: self.attained(deployment, rate, slo, *traffic) >= 0.9, step, 64.0)


@cache
def played(deployment: Deployment, rate: float, count: int, seed: int, prompt: int, output: int) -> Trace:
    """Return the trace of random traffic, played once for all conclusions of a page."""
    return simulate(poisson(rate, count, seed, prompt, output), deployment)


Thing = TypeVar("Thing", Model, GPU)


def neighbour(of: dict[Thing, Thing], thing: Thing) -> Thing:
    """Return what stands beside a model or a GPU; ValueError where the list has no neighbour for it."""
    if thing not in of:
        known = ", ".join(one.name for one in of)
        raise ValueError(
            f"world: {thing.name} has no neighbour; use one of {known}, or name one in lib.worlds"
        )
    return of[thing]


def one_pool(world: World, budget: int, replicas: int = 2, **settings: object) -> Collocated:
    """Return so many engines of a world that share everything, with a token budget."""
    return Collocated(world.engine(token_budget=budget, **settings), replicas)


def best_pool(
    world: World, rate: float, slo: SLO, *traffic: int, replicas: int = 2, **settings: object
) -> float:
    """Return the share of requests that one pool keeps to an SLO at its best token budget: the best rival."""
    pools = [one_pool(world, budget, replicas, **settings) for budget in BUDGETS]
    return max(world.attained(pool, rate, slo, *traffic) for pool in pools)


def best_goodput(
    world: World, slo: SLO, *traffic: int, replicas: int = 2, step: float = 0.05, **settings: object
) -> float:
    """Return the goodput of one pool at its best token budget, in requests a second."""
    pools = [one_pool(world, budget, replicas, **settings) for budget in BUDGETS]
    return max(world.goodput(pool, slo, *traffic, step=step) for pool in pools)


def scaled(efficiency: Efficiency, factor: float) -> Efficiency:
    """Return efficiencies of arithmetic and of reading that are so many times as high."""
    return replace(efficiency, compute=efficiency.compute * factor, bandwidth=efficiency.bandwidth * factor)


def worlds() -> tuple[World, ...]:
    """Return the book's world, and those that differ from it in one thing."""
    book = World("the book's own")
    return (
        book,
        *(World(name, price, efficiency) for name, price, efficiency in PRICES[1:]),
        *(replace(book, name=f"efficiencies {change} %", efficiency=scaled(PUBLISHED, factor))
          for change, factor in (("down 20", 0.8), ("up 20", 1.2))),
        *(replace(book, name=f"seed {seed} alone", seeds=(seed,)) for seed in range(10)),
        replace(book, name="four times the horizon", horizon=4),
        replace(book, name=MODELS[book.model].name, model=MODELS[book.model]),
        replace(book, name=f"an {GPUS[book.gpu].name}", gpu=GPUS[book.gpu]),
        *(replace(book, name=f"load {change} by a fifth", load=factor)
          for change, factor in (("down", 0.8), ("up", 1.2))),
    )  # fmt: skip


WORLDS: Sequence[World] = worlds()


@dataclass(frozen=True)
class Conversation:
    """A first turn and the message of the second, in tokens; the client drops the thinking between them."""

    name: str
    prompt: int = 128
    thinking: int = 96
    answer: int = 96
    message: int = 64
    block: int = 16

    @property
    def held(self) -> list[str]:
        """The first turn, as it was computed."""
        return [*labelled("p", self.prompt), *labelled("t", self.thinking), *labelled("a", self.answer)]

    @property
    def sent(self) -> list[str]:
        """The prompt of the second turn."""
        return [*labelled("p", self.prompt), *labelled("a", self.answer), *labelled("u", self.message)]


def labelled(letter: str, count: int) -> list[str]:
    """Return so many tokens of one kind, each another."""
    return [f"{letter}{place}" for place in range(count)]


CONVERSATIONS: Sequence[Conversation] = (
    Conversation("the page's own"),
    *(Conversation(f"{n} tokens of prompt", prompt=n) for n in (16, 64, 1024)),
    *(Conversation(f"{n} tokens of thinking", thinking=n) for n in (16, 48, 200, 1000, 5000)),
    *(Conversation(f"{n} tokens of answer", answer=n) for n in (16, 50, 400)),
    *(Conversation(f"{n} tokens of message", message=n) for n in (10, 96, 160, 500)),
    *(Conversation(f"blocks of {n}", block=n) for n in (8, 32, 64)),
)


@dataclass(frozen=True)
class Picture:
    """An image as it is uploaded and as an encoder takes it: its sides in pixels, its JPEG's bits a pixel."""

    name: str
    width: int = 1920
    height: int = 1080
    bits: float = 1.1
    side: int = 640

    @property
    def jpeg_bytes(self) -> int:
        """Bytes of the upload."""
        return round(self.width * self.height * self.bits / 8)


PICTURES: Sequence[Picture] = (
    Picture("the page's own"),
    *(Picture(f"{bits} bits a pixel", bits=bits) for bits in (0.5, 2.0, 4.0)),
    Picture("a phone's, 4032 x 3024 px", 4032, 3024),
    Picture("a thumbnail, 320 x 240 px", 320, 240),
    *(Picture(f"resized to {side} px", side=side) for side in (224, 448, 980, 1288)),
)
