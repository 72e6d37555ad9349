"""How much load two GPUs take, together and apart, under a promise."""

from __future__ import annotations

from dataclasses import replace

from lib.goodput import SLO, attainment
from lib.hardware import L40S
from lib.live import Answer, Choice, Number, calculates, line, points, rule
from lib.measured import typically
from lib.models import QWEN2_5_7B
from lib.simulator import Collocated, Deployment, Disaggregated, Engine, percentile, simulate
from lib.workload import poisson

RATES = (0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5)  # requests a second, the review's
COUNT, SEED = 100, 0
MEAN, LONGEST = "the mean gap", "the longest gap"


@calculates(
    "Promise something else",
    Number("rate", "Load", "requests a second", 0.4, 0.05, 4, 0.1, whole=False),
    Number("ttft", "First token within", "s", 2, 0.1, 60, 0.5, whole=False),
    Choice("limited", "The second promise limits", MEAN, (MEAN, LONGEST)),
    Number("gap", "to at most", "ms", 30, 1, 5000, 10),
    Number("transfer", "Handoff between the pools", "ms", 20, 0, 10_000, 20),
)
def goodput(rate: float, ttft: float, limited: str, gap: int, transfer: int) -> Answer:
    """Return attainment against load for a collocated pair and for a split one: one draw of 100 requests."""
    slo = SLO(ttft, **{"tpot" if limited == MEAN else "gap": gap / 1e3})
    mixed = Engine(QWEN2_5_7B, L40S, decode_context=8192 + 128)
    deployments: dict[str, Deployment] = {
        "collocated": Collocated(mixed, replicas=2),
        "P/D": Disaggregated(replace(mixed, token_budget=None), mixed, handoff=transfer / 1e3),
    }
    loads = sorted({*RATES, rate})
    traces = {
        (name, load): simulate(poisson(load, COUNT, SEED), deployment)
        for name, deployment in deployments.items()
        for load in loads
    }
    kept = {key: 100 * attainment(trace, slo) for key, trace in traces.items()}
    curves = {name: [kept[name, load] for load in loads] for name in deployments}
    here = {name: traces[name, rate] for name in deployments}
    passing = {
        name: max([load for load in loads if kept[name, load] >= 90], default=0.0) for name in deployments
    }
    return {
        "say": [
            f"At {rate:g} requests a second {kept['collocated', rate]:.0f} % of the requests of a collocated "
            f"pair keep the promise, and {kept['P/D', rate]:.0f} % of a split one's.",
            f"The highest load shown at which at least 90 % do is {passing['collocated']:g} for the pair and "
            f"{passing['P/D']:g} for the split. One draw of {COUNT} requests a load; the chapter takes 5.",
            typically(QWEN2_5_7B, L40S, old=True),
        ],
        "table": {
            "at this load": list(deployments),
            "keep the promise, %": [kept[name, rate] for name in deployments],
            "TTFT p50, s": [percentile(trace.ttft, 50) for trace in here.values()],
            "mean gap p50, ms": [1e3 * percentile(trace.tpot, 50) for trace in here.values()],
            "longest gap p50, ms": [1e3 * percentile(trace.worst_gap, 50) for trace in here.values()],
        },
        "plot": {
            "title": f"First token within {ttft:g} s, {limited} at most {gap:,} ms",
            "alt": "Share of requests that keep the promise against the load, for a collocated pair of GPUs "
            "and for a split one.",
            "x": {"label": "load, requests a second", "ends": (0, 1.05 * loads[-1])},
            "y": {"label": "keep the promise, %", "ends": (0, 104)},
            "marks": [
                line("collocated", "ink", loads, curves["collocated"]),
                points("", "ink", loads, curves["collocated"], "square"),
                line("P/D", "decode", loads, curves["P/D"], dash=True),
                points("", "decode", loads, curves["P/D"]),
                line("90 %", "other", [0, 1.05 * loads[-1]], [90, 90]),
                rule("this load", rate),
            ],
        },
    }
