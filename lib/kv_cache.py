"""The KV cache on the move: how big it is, how long a link takes, how much of that delays the first token."""

from lib import checks
from lib.hardware import Link
from lib.models import Model

BLOCK_TOKENS = 16  # vLLM's page of the cache


def blocks(tokens: int, block_tokens: int = BLOCK_TOKENS) -> int:
    """Return the number of blocks that hold `tokens` tokens, the last one perhaps not full."""
    if type(tokens) is not int or tokens < 0 or block_tokens != BLOCK_TOKENS:  # rarely
        checks.counts_or_zero("blocks", tokens=tokens)
        checks.counts("blocks", block_tokens=block_tokens)
    return -(-tokens // block_tokens)


def block_bytes(model: Model, block_tokens: int = BLOCK_TOKENS) -> int:
    """Return the bytes of one block of the cache, over all attention layers."""
    checks.counts("block_bytes", block_tokens=block_tokens)
    return block_tokens * model.kv_bytes_per_token


def size(model: Model, tokens: int) -> int:
    """Return the bytes that a prompt of `tokens` tokens leaves behind: KV (windowed layers: less), states."""
    checks.counts_or_zero("size", tokens=tokens)
    return round(model.held(tokens))


def transfer_time(model: Model, tokens: int, link: Link) -> float:
    """Return the seconds in which the cache of `tokens` tokens crosses a link that carries nothing else."""
    return link.time(size(model, tokens))


def prefill_rate(params: float, flops: float) -> float:
    """Return the tokens/s that `flops` achieved FLOP/s get through in prefill: 2 FLOPs per parameter a token.

    Attention's own arithmetic is left out, so a long prompt is slower than this.
    """
    checks.positive("prefill_rate", params=params, flops=flops)
    return flops / (2 * params)


def keep_up_bandwidth(tokens_per_second: float, bytes_per_token: float) -> float:
    """Return the bytes/s at which a link takes the cache away as fast as prefill makes it."""
    checks.positive("keep_up_bandwidth", tokens_per_second=tokens_per_second, bytes_per_token=bytes_per_token)
    return tokens_per_second * bytes_per_token


def exposed_after_prefill(transfer: float) -> float:
    """Return the seconds that a transfer after prefill adds to the first token: all of them."""
    checks.not_negative("exposed_after_prefill", transfer=transfer)
    return transfer


def exposed_by_layer(transfer: float, compute: float, layers: int) -> float:
    """Return the seconds that the transfer adds when each layer's cache leaves as soon as the layer is done.

    `transfer` and `compute` are the seconds of the whole cache and of the whole prefill, spread evenly over
    `layers`. One layer's transfer runs while the next layer computes: only what outlasts that is waited for.
    The last layer's has nothing left to hide behind. With both taken per layer, the sum is
    max(0, transfer - compute) x (layers - 1) + transfer.
    """
    checks.not_negative("exposed_by_layer", transfer=transfer, compute=compute)
    checks.counts("exposed_by_layer", layers=layers)
    late = max(0.0, transfer - compute) / layers
    return late * (layers - 1) + transfer / layers
