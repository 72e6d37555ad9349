"""A simulator of LLM serving: from a workload and a deployment to every step and every token's time.

This is its face: `simulate(requests, deployment)` plays the workload and returns a `Trace`. Behind it are
`engine` (a copy of a model, and what its steps cost), `deployment` (pools and routes), `handoff` (how a cache
changes hands), `instance` (one engine at work), `fast_forward` (the same in longer strides), `fleet` (the
event loop), `log` (what happened), `trace` (what users felt) and `replay` (vLLM's records). Workloads
(`lib.workload`) and the rules by which a step is filled (`lib.scheduler`) lie outside.
"""

from lib.simulator.deployment import (
    Arrival,
    Collocated,
    Deployment,
    Disaggregated,
    Drawn,
    PrefixAware,
    alternate,
    least_loaded,
)
from lib.simulator.engine import Engine
from lib.simulator.fleet import simulate
from lib.simulator.handoff import Pull, Shared, Streamed
from lib.simulator.replay import replay
from lib.simulator.trace import Step, Trace, percentile

__all__ = [
    "Arrival",
    "Collocated",
    "Deployment",
    "Disaggregated",
    "Drawn",
    "Engine",
    "PrefixAware",
    "Pull",
    "Shared",
    "Step",
    "Streamed",
    "Trace",
    "alternate",
    "least_loaded",
    "percentile",
    "replay",
    "simulate",
]
