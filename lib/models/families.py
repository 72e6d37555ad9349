"""One small adapter for each `model_type`: from the fields of a config.json to a list of layers.

Each returns a `Shape`. Parameter counts follow Hugging Face's implementations, which the tests hold them to;
what a field says when it is absent is what transformers takes it for.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lib.models.fields import Fields
from lib.models.parts import FFN, Attention, Experts, Indexer, Latent, Mixer, Recurrent

Layer = tuple[tuple[Mixer, ...], FFN | Experts | None, int]  # mixers, FFN, vectors besides


@dataclass(frozen=True)
class Shape:
    """Layers one by one, and what stands around them: whether head and embedding are one."""

    layers: Sequence[Layer]
    tied: bool = False
    vectors: int = 0
    lookups: int = 0


Adapter = Callable[[Fields], Shape]
SLIDING = ("sliding_attention", "chunked_attention", "full_attention")


def width(f: Fields) -> int:
    """Width of the model."""
    return f.size("hidden_size", "n_embd", "d_model", "n_embed")


def heads(f: Fields) -> int:
    """Query heads."""
    return f.size("num_attention_heads", "n_head", "n_heads", "num_heads")


def head_dim(f: Fields, *keys: str) -> int:
    """Width of a head: as given, or the model's over the heads, which must then divide it."""
    keys = keys or ("head_dim", "kv_channels", "attention_head_dim")
    if any(key in f for key in keys):
        return f.size(*keys)
    f.used.update(keys)
    d, count = width(f), heads(f)
    if d % count:
        raise ValueError(
            f"config.json: num_attention_heads={count} does not divide hidden_size={d}; give head_dim"
        )
    return d // count


def attention(
    f: Fields,
    *,
    bias: bool = False,
    o_bias: bool | None = None,
    norm: str = "",
    window: int | None = None,
    kv: int | None = None,
    dim: int | None = None,
    sinks: bool = False,
    gated: bool = False,
    module: str = "self_attn",
) -> Attention:
    """Grouped-query attention. `norm`: "head", on each head's query and key; "all", over all heads'."""
    count, dim = heads(f), dim or head_dim(f)
    kv = kv or f.size("num_key_value_heads", "n_head_kv", default=count)
    vectors = (count * (2 if gated else 1) + 2 * kv) * dim if bias else 0
    vectors += width(f) if (bias if o_bias is None else o_bias) else 0
    vectors += {"": 0, "head": 2 * dim, "all": (count + kv) * dim}[norm] + (count if sinks else 0)
    return Attention(
        heads=count, kv_heads=kv, head_dim=dim, window=window, vectors=vectors, gated=gated, module=module
    )


def ffn(f: Fields, *keys: str, gated: bool = True, bias: bool = False, default: int | None = None) -> FFN:
    """A dense FFN."""
    inner = f.size(*(keys or ("intermediate_size",)), default=default)
    return dense(width(f), inner, gated, bias)


def dense(d: int, inner: int, gated: bool = True, bias: bool = False) -> FFN:
    """A dense FFN of these widths."""
    return FFN(width=inner, gated=gated, vectors=(inner * (2 if gated else 1) + d) if bias else 0)


def window(f: Fields, key: str = "sliding_window", default: int | None = None) -> int | None:
    """The window that is given, unless it is as long as the context: then it changes nothing."""
    size = f.zero(key, default=default or 0)
    longest = f.zero("max_position_embeddings")
    return size if size and (not longest or size < longest) else None


def windows(
    f: Fields, sliding: Callable[[int], bool], default: int | None = None, key: str = "sliding_window"
) -> list[int | None]:
    """The window of every layer: by `layer_types`, or by `sliding(layer)` where there is no such list."""
    count, size = f.layers(), window(f, key, default)
    given = f.kinds("layer_types", count, SLIDING)
    if given:
        return [None if kind == "full_attention" else size for kind in given]
    return [size if sliding(i) else None for i in range(count)]


def plain(
    f: Fields, mixers: Sequence[Mixer], ffns: Sequence[FFN | Experts | None], norms: int = 2,
    bias: bool = False,     **shape: int | bool,
) -> Shape:  # fmt: skip
    """Layers of one mixer and one FFN with `norms` norms each, and one at the end; `bias`: they have one."""
    each = width(f) * (2 if bias else 1)
    layers: list[Layer] = [((mixer,), part, norms * each) for mixer, part in zip(mixers, ffns, strict=True)]
    shape = {"tied": f.flag("tie_word_embeddings"), "vectors": each} | shape
    return Shape(layers, **shape)  # type: ignore[arg-type]


def same(f: Fields, mixer: Mixer, part: FFN | Experts, **shape: int | bool) -> Shape:
    """Layers that are all alike."""
    count = f.layers()
    return plain(f, [mixer] * count, [part] * count, **shape)  # type: ignore[arg-type]


def tied(f: Fields, default: bool = True) -> bool:
    """Whether the head is the embedding."""
    return f.flag("tie_word_embeddings", default)


# ---- dense


def llama(f: Fields) -> Shape:
    """Llama and all that differ from it in sizes."""
    bias = f.flag("attention_bias")
    count = f.layers()
    part = ffn(f, bias=f.flag("mlp_bias"))
    sizes = windows(f, lambda i: True)
    return plain(f, [attention(f, bias=bias, window=size) for size in sizes], [part] * count)


def minicpm(f: Fields) -> Shape:
    """Llama with factors; the head is the embedding unless said."""
    return same(f, attention(f, bias=f.flag("attention_bias")), ffn(f), tied=tied(f))


def smollm3(f: Fields) -> Shape:
    """Llama with layers that know no position; a window only if used."""
    f.used.update(("sliding_window", "use_sliding_window", "layer_types"))
    part = attention(f, bias=f.flag("attention_bias"))
    return same(f, part, ffn(f, bias=f.flag("mlp_bias")), tied=tied(f))


def qwen_windows(f: Fields) -> list[int | None]:
    """Layers from max_window_layers on, if windows are used at all."""
    first = f.zero("max_window_layers", default=28)
    if not f.flag("use_sliding_window"):
        f.used.update(("sliding_window", "layer_types"))
        return [None] * f.layers()
    return windows(f, lambda i: i >= first, default=4096)


def qwen2(f: Fields) -> Shape:
    """Biases on query, key and value."""
    sizes = qwen_windows(f)
    f.used.add("attention_bias")
    return plain(
        f, [attention(f, bias=True, o_bias=False, window=size) for size in sizes], [ffn(f)] * len(sizes)
    )


def qwen3(f: Fields) -> Shape:
    """Norms on query and key instead."""
    sizes, bias = qwen_windows(f), f.flag("attention_bias")
    return plain(
        f, [attention(f, bias=bias, norm="head", window=size) for size in sizes], [ffn(f)] * len(sizes)
    )


def qwen(f: Fields) -> Shape:
    """The first Qwen: the FFN's two inner matrices are half as wide as the file says."""
    d, inner = width(f), f.size("intermediate_size", "ffn_hidden_size")
    f.used.add("no_bias")
    return same(f, attention(f, bias=True, o_bias=False), dense(d, inner // 2 or 1))


def phi3(f: Fields) -> Shape:
    """Llama's shape; some have a window."""
    f.used.add("attention_bias")
    return same(f, attention(f, window=window(f)), ffn(f))


def olmo(f: Fields) -> Shape:
    """Norms without weights."""
    return same(f, attention(f, bias=f.flag("attention_bias")), ffn(f), norms=0, vectors=0)


def olmo2(f: Fields) -> Shape:
    """Norms after each part, and over all queries and keys; in Olmo 3, windows in three layers of four."""
    bias, default = f.flag("attention_bias"), 4096 if f.get("model_type") == "olmo3" else None
    sizes = windows(f, lambda i: (i + 1) % 4 != 0, default)
    return plain(
        f, [attention(f, bias=bias, norm="all", window=size) for size in sizes], [ffn(f)] * len(sizes)
    )


def gemma(f: Fields) -> Shape:
    """The head is the embedding; a head is 256 wide unless said."""
    f.off("use_bidirectional_attention")
    part = attention(f, bias=f.flag("attention_bias"), dim=f.size("head_dim", default=256))
    return same(f, part, ffn(f), tied=tied(f))


def gemma2(f: Fields) -> Shape:
    """Four norms; every second layer has a window."""
    return gemma_windows(f, lambda i: i % 2 == 0, "")


def gemma3(f: Fields) -> Shape:
    """Norms on query and key too; five layers of six have a window."""
    period = f.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
    return gemma_windows(f, lambda i: (i + 1) % period != 0, "head")


def gemma_windows(f: Fields, sliding: Callable[[int], bool], norm: str) -> Shape:
    """Four norms, and layers with a window among others."""
    f.off("use_bidirectional_attention")
    bias, dim = f.flag("attention_bias"), f.size("head_dim", default=256)
    sizes = windows(f, sliding, default=4096)
    mixers = [attention(f, bias=bias, norm=norm, dim=dim, window=size) for size in sizes]
    return plain(f, mixers, [ffn(f)] * len(sizes), norms=4, tied=tied(f))


def gemma4(f: Fields) -> Shape:
    """Layers without a window have other heads, of which key and value may be one; experts beside an FFN."""
    f.off("hidden_size_per_layer_input", "num_kv_shared_layers", "use_double_wide_mlp")
    f.used.update(("use_bidirectional_attention", "vocab_size_per_layer_input"))
    d, bias = width(f), f.flag("attention_bias")
    dim, one = f.size("head_dim", default=256), f.flag("attention_k_eq_v")
    wide = f.size("global_head_dim", default=512)
    few = f.size("num_global_key_value_heads", default=f.size("num_key_value_heads", default=heads(f)))
    part: FFN | Experts = ffn(f)
    norms = 4
    if f.flag("enable_moe_block"):
        experts = f.size("num_experts")
        part = Experts(
            count=experts, top_k=f.size("top_k_experts", "num_experts_per_tok"),
            width=f.size("moe_intermediate_size", "expert_intermediate_size"),
            d_shared=f.size("intermediate_size"),
            vectors=experts + d, module="",
        )  # fmt: skip
        norms = 7
    layers: list[Layer] = []
    for size in windows(f, lambda i: (i + 1) % 6 != 0, default=512):
        if size:
            mixer = attention(f, bias=bias, norm="head", dim=dim, window=size)
        else:
            mixer = attention(f, bias=bias, norm="head", dim=wide, kv=few if one else None)
            mixer = replace(mixer, one_matrix=one)
        layers.append(((mixer,), part, norms * d + 1))
    return Shape(layers, tied(f), d)


def cohere(f: Fields) -> Shape:
    """One norm a layer; if asked, norms on every head of query and key."""
    norm = "all" if f.flag("use_qk_norm") else ""
    part = attention(f, bias=f.flag("attention_bias"), norm=norm)
    return same(f, part, ffn(f), norms=1, tied=tied(f))


def cohere2(f: Fields) -> Shape:
    """One norm a layer; three layers of four have a window."""
    period, bias = (
        f.size("sliding_window_pattern", "_sliding_window_pattern", default=4),
        f.flag("attention_bias"),
    )
    f.used.add("order_of_interleaved_layers")
    sizes = windows(f, lambda i: (i + 1) % period != 0, default=4096)
    mixers = [attention(f, bias=bias, window=size) for size in sizes]
    return plain(f, mixers, [ffn(f)] * len(sizes), norms=1, tied=tied(f))


def granite(f: Fields) -> Shape:
    """Llama with factors."""
    part = attention(f, bias=f.flag("attention_bias"))
    return same(f, part, ffn(f, bias=f.flag("mlp_bias")))


def glm(f: Fields) -> Shape:
    """Biases on query, key and value only."""
    return same(f, attention(f, bias=f.flag("attention_bias"), o_bias=False), ffn(f))


def glm4(f: Fields) -> Shape:
    """The same with four norms."""
    return same(f, attention(f, bias=f.flag("attention_bias"), o_bias=False), ffn(f), norms=4)


def chatglm(f: Fields) -> Shape:
    """GLM before it was in transformers: other words."""
    f.off("add_bias_linear")
    f.used.update(
        ("original_rope", "apply_query_key_layer_scaling", "rmsnorm", "post_layer_norm", "rope_ratio")
    )
    kv = f.size("multi_query_group_num") if f.flag("multi_query_attention") else heads(f)
    part = attention(f, bias=f.flag("add_qkv_bias"), o_bias=False, kv=kv)
    return same(f, part, ffn(f, "ffn_hidden_size", "intermediate_size"))


def baichuan(f: Fields) -> Shape:
    """Llama's shape; one matrix for query, key and value."""
    return same(f, attention(f), ffn(f))


def internlm(f: Fields) -> Shape:
    """Llama's shape, with biases if said."""
    return same(f, attention(f, bias=f.flag("bias")), ffn(f))


def internlm3(f: Fields) -> Shape:
    """Biases on query, key, value; and on all others."""
    bias = f.flag("bias")
    return same(f, attention(f, bias=f.flag("qkv_bias"), o_bias=bias), ffn(f, bias=bias))


def orion(f: Fields) -> Shape:
    """Llama with layer norms that have a bias."""
    return same(f, attention(f, bias=f.flag("attention_bias")), ffn(f), bias=True)


def exaone(f: Fields) -> Shape:
    """Llama's shape in other words."""
    return same(f, attention(f), ffn(f))


def exaone4(f: Fields) -> Shape:
    """Norms on query and key, and after each part; some layers have a window."""
    given = f.get("sliding_window_pattern", default=4)
    text = isinstance(given, str)
    period = len(given) if text else f.zero("sliding_window_pattern", default=4)
    count = f.layers()

    def sliding(i: int) -> bool:
        if text:
            return given[i % period] == "L" and i < count - 1
        return period > 0 and (i + 1) % period != 0

    sizes = windows(f, sliding) if "sliding_window" in f else [None] * count
    f.used.update(("sliding_window", "layer_types"))
    return plain(f, [attention(f, norm="head", window=size) for size in sizes], [ffn(f)] * count)


def seed_oss(f: Fields) -> Shape:
    """Biases said apart for the output."""
    o_bias = f.flag("attention_out_bias")
    part = attention(f, bias=f.flag("attention_bias", True), o_bias=o_bias)
    return same(f, part, ffn(f, bias=f.flag("mlp_bias")))


def stablelm(f: Fields) -> Shape:
    """Layer norms with a bias; one of them only where both parts work side by side."""
    parallel, d = f.flag("use_parallel_residual"), width(f)
    mixer = attention(
        f, bias=f.flag("use_qkv_bias"), o_bias=False, norm="all" if f.flag("qk_layernorm") else ""
    )
    return same(f, mixer, ffn(f), norms=1 if parallel else 2, bias=True, vectors=2 * d)


def starcoder2(f: Fields) -> Shape:
    """Biases everywhere; its window is not one that vLLM keeps to."""
    bias = f.flag("use_bias", True)
    f.used.update(("sliding_window",))
    return same(f, attention(f, bias=bias), ffn(f, gated=False, bias=bias), bias=True, tied=tied(f))


def phi(f: Fields) -> Shape:
    """One layer norm, biases everywhere, the head's too."""
    d = width(f)
    inner = f.size("intermediate_size", "n_inner", default=4 * d)
    mixer = attention(f, bias=True)
    if f.flag("qk_layernorm"):
        mixer = replace(mixer, vectors=mixer.vectors + 4 * mixer.head_dim)
    return same(
        f, mixer, dense(d, inner, False, True), norms=1, bias=True, vectors=2 * d + f.size("vocab_size")
    )


def gpt2(f: Fields) -> Shape:
    """Learned positions, biases everywhere, the head is the embedding; one KV head in StarCoder's."""
    f.off("add_cross_attention")
    d = width(f)
    kv = 1 if f.get("model_type") == "gpt_bigcode" and f.flag("multi_query", True) else heads(f)
    inner = f.size("n_inner", default=4 * d)
    places = f.size("n_positions", "n_ctx", default=1024) * d
    mixer = attention(f, bias=True, kv=kv, module="attn")
    f.used.add("num_key_value_heads")
    return same(f, mixer, dense(d, inner, False, True), bias=True, vectors=2 * d + places, tied=tied(f))


def gptj(f: Fields) -> Shape:
    """One layer norm, biases in the FFN and on the head."""
    d, vocab = width(f), f.size("vocab_size")
    part = dense(d, f.size("n_inner", default=4 * d), False, True)
    return same(f, attention(f, module="attn"), part, norms=1, bias=True, vectors=2 * d + vocab)


def gpt_neo(f: Fields) -> Shape:
    """Layers with a window of 256 among others; learned positions."""
    d, count = width(f), f.layers()
    local = f.size("window_size", default=256)
    kinds = f.get("attention_layers")
    if kinds is None:
        pairs = f.get("attention_types", default=[[["global", "local"], count // 2]])
        try:
            kinds = [kind for words, times in pairs for _ in range(min(int(times), count)) for kind in words]
        except (TypeError, ValueError):
            raise ValueError(f"config.json: attention_types={pairs!r} will not do; use pairs") from None
    f.used.add("attention_types")
    if not isinstance(kinds, list) or len(kinds) != count or any(k not in ("global", "local") for k in kinds):
        raise ValueError("config.json: attention_layers will not do; use global or local for each layer")
    part = dense(d, f.size("intermediate_size", default=4 * d), False, True)
    mixers = [
        attention(f, o_bias=True, window=local if kind == "local" else None, module="attn.attention")
        for kind in kinds
    ]
    places = f.size("max_position_embeddings", default=2048) * d
    return plain(f, mixers, [part] * count, bias=True, vectors=2 * d + places, tied=tied(f))


def gpt_neox(f: Fields) -> Shape:
    """Two layer norms, biases everywhere."""
    mixer = attention(f, bias=f.flag("attention_bias", True), module="attention")
    return same(f, mixer, ffn(f, gated=False, bias=True), bias=True)


def opt(f: Fields) -> Shape:
    """Learned positions, two more than said; the head is the embedding."""
    d, bias = width(f), f.flag("enable_bias", True)
    if f.size("word_embed_proj_dim", default=d) != d:
        raise ValueError(
            f"config.json: word_embed_proj_dim={f.get('word_embed_proj_dim')!r} is not covered; "
            "use hidden_size"
        )
    last = f.flag("do_layer_norm_before", True) and not f.flag("_remove_final_layer_norm")
    f.used.add("layer_norm_elementwise_affine")
    vectors = (f.size("max_position_embeddings") + 2) * d + (2 * d if last else 0)
    part = ffn(f, "ffn_dim", gated=False, bias=bias)
    return same(f, attention(f, bias=bias), part, bias=True, vectors=vectors, tied=tied(f))


def bloom(f: Fields) -> Shape:
    """A norm behind the embedding; biases everywhere; positions by distance."""
    d = width(f)
    mixer = attention(f, bias=True, module="self_attention")
    return same(f, mixer, dense(d, 4 * d, False, True), bias=True, vectors=4 * d, tied=tied(f))


def falcon(f: Fields) -> Shape:
    """One KV head, or some in the later ones; both parts side by side after one norm or two."""
    d, bias = width(f), f.flag("bias")
    later, beside = f.flag("new_decoder_architecture"), f.flag("parallel_attn", True)
    one = f.flag("multi_query", True)
    kv = f.size("num_kv_heads", "n_head_kv", default=heads(f)) if later else 1 if one else heads(f)
    f.used.update(("num_kv_heads", "n_head_kv"))
    norms = f.size("num_ln_in_parallel_attn", default=2) if later else 1 if beside else 2
    inner = f.size("ffn_hidden_size", default=4 * d)
    mixer = attention(f, bias=bias, kv=kv, module="self_attention")
    return same(f, mixer, dense(d, inner, False, bias), norms=norms, bias=True, vectors=2 * d, tied=tied(f))


def mpt(f: Fields) -> Shape:
    """Nothing has a bias; the head is the embedding."""
    f.used.add("no_bias")
    if f.get("no_bias", default=True) is not True:
        raise ValueError("config.json: no_bias=False is not covered; use true")
    d, config = width(f), f.inner("attn_config")
    config.off("qk_ln")
    kv = config.size(
        "kv_n_heads", default=1 if config.get("attn_type") == "multiquery_attention" else heads(f)
    )
    ratio = f.size("expansion_ratio", default=4)
    places = 0 if config.flag("alibi", True) else f.size("max_seq_len") * d
    return same(
        f, attention(f, kv=kv, module="attn"), dense(d, ratio * d, False), vectors=d + places, tied=tied(f)
    )


def nemotron(f: Fields) -> Shape:
    """Two matrices in an FFN; norms with a bias."""
    part = ffn(f, gated=False, bias=f.flag("mlp_bias"))
    return same(f, attention(f, bias=f.flag("attention_bias")), part, bias=True)


def arcee(f: Fields) -> Shape:
    """Llama with two matrices in an FFN."""
    mixer = attention(f, bias=f.flag("attention_bias"))
    return same(f, mixer, ffn(f, gated=False, bias=f.flag("mlp_bias")))


def apertus(f: Fields) -> Shape:
    """Two matrices in an FFN, whose activation has two parameters; norms on query and key."""
    mixer = attention(f, bias=f.flag("attention_bias"), norm="head")
    part = ffn(f, gated=False, bias=f.flag("mlp_bias"))
    return same(f, mixer, replace(part, vectors=part.vectors + 2))


def nemotron_nas(f: Fields) -> Shape:
    """Each layer as the search left it: attention or none, an FFN of its own width or none."""
    d, blocks = width(f), f.get("block_configs")
    if not isinstance(blocks, list) or len(blocks) != f.layers():
        raise ValueError("config.json: block_configs will not do; use an object for each layer")
    layers: list[Layer] = []
    for block in blocks:
        said = Fields(block) if isinstance(block, dict) else Fields({})
        see, feed = said.inner("attention"), said.inner("ffn")
        see.off("replace_with_linear", "sparsify", "num_sink_tokens", "unshifted_sink")
        feed.off("replace_with_linear", "sparsify")
        mixers: tuple[Mixer, ...] = ()
        part, norms = None, 0
        if not see.flag("no_op"):
            each = see.size("n_heads_in_group")
            if heads(f) % each:
                raise ValueError(
                    f"config.json: n_heads_in_group={each} does not divide num_attention_heads; use a divisor"
                )
            given = see.zero("window_length") or None
            mixers = (attention(f, bias=f.flag("attention_bias"), kv=heads(f) // each, window=given),)
            norms += d
        if not feed.flag("no_op"):
            ratio = feed.get("ffn_mult")
            if "intermediate_size" in feed:
                inner = feed.size("intermediate_size")
            elif isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 < ratio < 1000:
                inner = -(-int(2 * ratio * d / 3) // 256) * 256 or 256
            else:
                raise ValueError(f"config.json: ffn_mult={ratio!r} will not do; use a number above 0")
            part = dense(d, inner, True, f.flag("mlp_bias"))
            norms += d
        layers.append((mixers, part, norms))
    f.used.update(("num_key_value_heads", "intermediate_size"))
    return Shape(layers, f.flag("tie_word_embeddings"), d)


# ---- experts


def mixture(
    f: Fields,
    count: Sequence[str] = ("num_experts", "num_local_experts", "n_routed_experts"),
    top_k: Sequence[str] = ("num_experts_per_tok", "num_experts_per_token"),
    inner: Sequence[str] = ("moe_intermediate_size",),
    shared: int = 0,
    bias: bool = False,
    vectors: int = 0,
    gated: bool = True,
) -> Experts:
    """Experts by these names. `bias`: the router learns one for each."""
    number = f.size(*count)
    return Experts(
        count=number, top_k=f.size(*top_k), width=f.size(*inner), d_shared=shared, gated=gated,
        vectors=vectors + (number if bias else 0),
    )  # fmt: skip


def after(
    f: Fields, experts: Experts, part: Callable[[], FFN], first: int, step: int = 1
) -> list[FFN | Experts]:
    """Dense FFNs in the first layers, then experts in every `step`th."""
    return [experts if i >= first and i % step == 0 else part() for i in range(f.layers())]


def mixtral(f: Fields) -> Shape:
    """Experts in every layer, as wide as a dense FFN would be."""
    part = mixture(f, count=("num_local_experts",), inner=("intermediate_size",))
    return same(f, attention(f, window=window(f)), part)


def qwen_experts(f: Fields, shared: bool) -> list[FFN | Experts]:
    """Experts in every `decoder_sparse_step`th layer, except those that are listed as dense."""
    d, step = width(f), f.size("decoder_sparse_step", default=1)
    dense_only = f.sizes("mlp_only_layers") or []
    beside = f.zero("shared_expert_intermediate_size") if shared else 0
    part = mixture(f, ("num_experts",), shared=beside, vectors=d if beside else 0)
    return [part if (i + 1) % step == 0 and i not in dense_only else ffn(f) for i in range(f.layers())]


def qwen2_moe(f: Fields) -> Shape:
    """Biases on query, key, value; a shared expert behind a gate."""
    sizes, bias = qwen_windows(f), f.flag("qkv_bias", True)
    mixers = [attention(f, bias=bias, o_bias=False, window=size) for size in sizes]
    return plain(f, mixers, qwen_experts(f, True))


def qwen3_moe(f: Fields) -> Shape:
    """Qwen3's attention, experts without a shared one."""
    f.used.update(("intermediate_size", "shared_expert_intermediate_size", "use_qk_norm"))
    sizes, bias = qwen_windows(f), f.flag("attention_bias")
    mixers = [attention(f, bias=bias, norm="head", window=size) for size in sizes]
    return plain(f, mixers, qwen_experts(f, False))


def gpt_oss(f: Fields) -> Shape:
    """Experts in every layer; every second layer has a window; biases everywhere, and sinks."""
    d, bias = width(f), f.flag("attention_bias", True)
    part = mixture(
        f,
        ("num_local_experts",),
        ("num_experts_per_tok", "experts_per_token"),
        ("intermediate_size",),
        bias=True,
    )
    part = replace(part, expert_vectors=2 * part.width + d)
    sizes = windows(f, lambda i: i % 2 == 0, default=128)
    mixers = [attention(f, bias=bias, sinks=True, window=size) for size in sizes]
    return plain(f, mixers, [part] * len(sizes))


def phimoe(f: Fields) -> Shape:
    """Mixtral with layer norms and biases, the head's too."""
    d, bias = width(f), f.flag("attention_bias")
    last = f.size("vocab_size") if f.flag("lm_head_bias") else 0
    part = mixture(f, ("num_local_experts",), inner=("intermediate_size",))
    return same(f, attention(f, bias=bias, window=window(f)), part, bias=True, vectors=2 * d + last)


def olmoe(f: Fields) -> Shape:
    """Norms over all queries and keys; experts as wide as said of an FFN."""
    mixer = attention(f, bias=f.flag("attention_bias"), norm="all")
    return same(f, mixer, mixture(f, ("num_experts",), inner=("intermediate_size",)))


def granitemoe(f: Fields) -> Shape:
    """Granite with experts, in some beside a shared FFN."""
    shared = f.zero("shared_intermediate_size")
    part = mixture(f, ("num_local_experts",), inner=("intermediate_size",), shared=shared)
    return same(f, attention(f, bias=f.flag("attention_bias")), part)


def dbrx(f: Fields) -> Shape:
    """What attention and experts are like stands in objects within."""
    see, feed = f.inner("attn_config"), f.inner("ffn_config")
    part = mixture(feed, ("moe_num_experts",), ("moe_top_k",), ("ffn_hidden_size",))
    return same(f, attention(f, kv=see.size("kv_n_heads", default=1)), part)


def arctic(f: Fields) -> Shape:
    """An FFN as wide as the model beside the experts of every second layer, with a norm of its own."""
    d = width(f)
    step = f.size("moe_layer_frequency", default=2)
    residual = f.flag("parallel_attn_mlp_res", True)
    beside = d if residual and f.flag("use_residual", True) else 0
    part = mixture(
        f, ("num_local_experts",), inner=("intermediate_size",), shared=beside, vectors=d if beside else 0
    )
    ffns = [part if (i + 1) % step == 0 else ffn(f) for i in range(f.layers())]
    mixer = attention(f, window=window(f))
    return plain(f, [mixer] * len(ffns), ffns)


def minimax_m2(f: Fields) -> Shape:
    """Norms over all queries and keys; experts in every layer."""
    f.used.update(("attn_type_list",))
    if any(kind != 1 for kind in f.sizes("attn_type_list") or []):
        raise ValueError(
            "config.json: attn_type_list has linear layers, which are not covered; use 1 for all"
        )
    f.off("shared_intermediate_size")
    norm = {"per_layer": "all", "per_head": "head"}.get(f.text("qk_norm_type", default="per_layer"), "")
    mixer = attention(f, norm=norm if f.flag("use_qk_norm", True) else "")
    part = mixture(
        f, ("num_local_experts",), inner=("intermediate_size",), bias=f.flag("use_routing_bias", True)
    )
    return same(f, mixer, part)


def deepseek_experts(f: Fields, bias: bool) -> list[FFN | Experts]:
    """The first layers dense, the others with experts of which some are shared."""
    inner = f.size("moe_intermediate_size")
    shared = f.zero("n_shared_experts", "num_shared_experts")
    experts = mixture(f, ("n_routed_experts", "num_experts"), shared=shared * inner, bias=bias)
    f.used.update(("num_experts", "n_routed_experts"))
    kinds = f.kinds("mlp_layer_types", f.layers(), ("dense", "sparse"))
    first = f.zero("first_k_dense_replace")
    f.used.add("moe_layer_freq")
    if kinds:
        return [experts if kind == "sparse" else ffn(f) for kind in kinds]
    return after(f, experts, lambda: ffn(f), first, f.size("moe_layer_freq", default=1))


def deepseek(f: Fields) -> Shape:
    """The first DeepSeek with experts: ordinary attention."""
    mixer = attention(f, bias=f.flag("attention_bias"))
    return plain(f, [mixer] * f.layers(), deepseek_experts(f, f.text("scoring_func") == "sigmoid"))


def dots1(f: Fields) -> Shape:
    """DeepSeek's experts with Qwen3's attention."""
    sizes = qwen_windows(f)
    mixers = [attention(f, bias=f.flag("attention_bias"), norm="head", window=size) for size in sizes]
    return plain(f, mixers, deepseek_experts(f, True))


def glm4_moe(f: Fields) -> Shape:
    """DeepSeek's experts with GLM's attention."""
    norm = "head" if f.flag("use_qk_norm") else ""
    mixer = attention(f, bias=f.flag("attention_bias"), o_bias=False, norm=norm)
    return plain(f, [mixer] * f.layers(), deepseek_experts(f, True))


def latent(f: Fields, indexer: bool = False, shares: bool = False) -> Latent:
    """Multi-head latent attention, with norms on its latents."""
    q_rank = f.zero("q_lora_rank") or None
    if "q_lora_rank" not in f.config:
        q_rank = 1536  # transformers' default; a file without such a rank says null
    rank, rope = f.size("kv_lora_rank"), f.size("qk_rope_head_dim")
    vectors = (q_rank or 0) + rank
    if f.flag("attention_bias"):
        vectors += (q_rank or 0) + rank + rope + width(f)
    index = None
    if indexer:
        index = Indexer(
            heads=f.size("index_n_heads"), head_dim=f.size("index_head_dim"), top_k=f.size("index_topk")
        )
        vectors += 0 if shares else 2 * index.head_dim
    f.used.update(("num_key_value_heads", "head_dim", "qk_head_dim"))
    return Latent(
        heads=heads(f), kv_rank=rank, d_rope=rope, d_nope=f.size("qk_nope_head_dim"), vectors=vectors,
        d_value=f.size("v_head_dim"), q_rank=q_rank, indexer=index, shares_index=shares,
    )  # fmt: skip


def deepseek_v2(f: Fields) -> Shape:
    """Latent attention; routers without a bias."""
    return plain(f, [latent(f)] * f.layers(), deepseek_experts(f, False))


def deepseek_v3(f: Fields) -> Shape:
    """Latent attention; routers with a bias."""
    return plain(f, [latent(f)] * f.layers(), deepseek_experts(f, True))


def deepseek_v32(f: Fields) -> Shape:
    """Sparse attention: an indexer picks tokens; in some layers it is an earlier one's."""
    count = f.layers()
    f.used.add("layer_types")
    kinds = f.kinds("indexer_types", count, ("full", "shared")) or ["full"] * count
    mixers = [latent(f, True, kind == "shared") for kind in kinds]
    return plain(f, mixers, deepseek_experts(f, True))


def minicpm3(f: Fields) -> Shape:
    """Latent attention with dense FFNs."""
    return same(f, latent(f), ffn(f), tied=tied(f))


def llama4(f: Fields) -> Shape:
    """Chunks of attention but in every fourth layer; experts in every `interleave_moe_layer_step`th."""
    count, step = f.layers(), f.zero("interleave_moe_layer_step", default=1)
    size, bias = window(f, "attention_chunk_size", 8192), f.flag("attention_bias")
    rope = f.sizes("no_rope_layers") or [
        (i + 1) % f.size("no_rope_layer_interval", default=4) for i in range(count)
    ]
    kinds = f.kinds("layer_types", count, SLIDING)
    chunked = [kind != "full_attention" for kind in kinds] if kinds else [bool(one) for one in rope[:count]]
    if len(chunked) != count:
        raise ValueError(f"config.json: no_rope_layers will not do; use a number for each of {count} layers")
    listed = f.sizes("moe_layers")
    with_experts = set(listed) if listed is not None else set(range(step - 1, count, step) if step else ())
    inner = f.size("intermediate_size")
    part = mixture(f, ("num_local_experts",), inner=("intermediate_size",), shared=inner)
    thick = f.size("intermediate_size_mlp")
    ffns = [part if i in with_experts else dense(width(f), thick) for i in range(count)]
    f.used.add("use_qk_norm")
    return plain(f, [attention(f, bias=bias, window=size if one else None) for one in chunked], ffns)


def ernie(f: Fields) -> Shape:
    """Llama with one word for all biases."""
    bias = f.flag("use_bias")
    return same(f, attention(f, bias=bias), ffn(f, bias=bias), tied=tied(f))


def ernie_moe(f: Fields) -> Shape:
    """Experts from one layer on to another; routers with a bias."""
    f.off("use_bias")
    count, inner = f.layers(), f.size("moe_intermediate_size")
    first, step = f.zero("moe_layer_start_index", default=1), f.size("moe_layer_interval", default=1)
    last = f.get("moe_layer_end_index", default=-1)
    last = count - 1 if last in (-1, None) else f.zero("moe_layer_end_index")
    part = mixture(
        f, ("moe_num_experts",), ("moe_k",), shared=f.zero("moe_num_shared_experts") * inner, bias=True
    )
    ffns = [part if first <= i <= last and (i + 1) % step == 0 else ffn(f) for i in range(count)]
    return plain(f, [attention(f)] * count, ffns, tied=tied(f))


def hunyuan(f: Fields) -> Shape:
    """Norms on query and key."""
    mixer = attention(f, bias=f.flag("attention_bias"), norm="head" if f.flag("use_qk_norm", True) else "")
    return same(f, mixer, ffn(f))


def hunyuan_moe(f: Fields) -> Shape:
    """Hunyuan with a shared expert as wide as the others."""
    f.off("use_cla", "use_mla")
    mixer = attention(f, bias=f.flag("attention_bias"), norm="head" if f.flag("use_qk_norm", True) else "")

    def one(key: str) -> int:
        value = f.get(key)
        if isinstance(value, list) and value and all(each == value[0] for each in value):
            return Fields({key: value[0]}).size(key)
        return f.size(key)

    f.used.update(("num_shared_expert", "moe_intermediate_size"))
    inner = one("moe_intermediate_size") if "moe_intermediate_size" in f else f.size("intermediate_size")
    shared = (one("num_shared_expert") if "num_shared_expert" in f else 1) * f.size("intermediate_size")
    part = Experts(count=f.size("num_experts"), top_k=one("moe_topk"), width=inner, d_shared=shared)
    return same(f, mixer, part)


def bailing_moe(f: Fields) -> Shape:
    """Ling: DeepSeek's experts; biases and norms as said."""
    inner = f.size("moe_intermediate_size")
    shared = f.zero("num_shared_experts", "n_shared_experts") * f.size(
        "moe_shared_expert_intermediate_size", default=inner
    )
    bias = f.flag("moe_router_enable_expert_bias", f.get("model_type") != "bailing_moe")
    experts = mixture(f, ("num_experts",), shared=shared, bias=bias)
    ffns = after(f, experts, lambda: ffn(f), f.zero("first_k_dense_replace"))
    norm = "head" if f.flag("use_qk_norm", f.get("model_type") != "bailing_moe") else ""
    bias = f.flag("use_bias")
    mixer = attention(f, bias=f.flag("use_qkv_bias"), o_bias=bias, norm=norm)
    return plain(f, [mixer] * len(ffns), ffns)


def longcat(f: Fields) -> Shape:
    """Each layer has two latent attentions and two FFNs, and experts from the first to the second."""
    d, count = width(f), f.layers("num_layers", "num_hidden_layers")
    part = Experts(
        count=f.size("n_routed_experts"), top_k=f.size("moe_topk", "num_experts_per_tok"),
        width=f.size("expert_ffn_hidden_size"), d_shared=f.size("ffn_hidden_size", "intermediate_size"),
        vectors=f.size("n_routed_experts"),
    )  # fmt: skip
    zero = f.zero("zero_expert_num")
    part = replace(part, vectors=part.count + zero + d * zero)
    second = dense(d, f.size("ffn_hidden_size", "intermediate_size"))
    mixer = latent(f)
    layers: list[Layer] = []
    for _ in range(count):
        layers += [((mixer,), part, 2 * d), ((mixer,), second, 2 * d)]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def mimo_v2(f: Fields) -> Shape:
    """Layers with a window have other heads than those without; experts where the list says."""
    count, d = f.layers(), width(f)
    pattern = f.sizes("hybrid_layer_pattern") or [0] * count
    sparse = f.get("moe_layer_freq")
    experts = mixture(
        f,
        ("n_routed_experts",),
        shared=f.zero("n_shared_experts") * f.size("moe_intermediate_size"),
        bias=True,
    )
    if not isinstance(sparse, list) or len(sparse) != count or len(pattern) != count:
        raise ValueError(
            "config.json: moe_layer_freq, hybrid_layer_pattern will not do; use one for each layer"
        )
    size = window(f) or window(f, "sliding_window_size")
    sinks = (f.flag("add_full_attention_sink_bias"), f.flag("add_swa_attention_sink_bias"))
    f.off("attention_bias")
    f.used.update(("attention_chunk_size", "sliding_window_size"))
    number, kv, dim = heads(f), f.size("num_key_value_heads"), head_dim(f)
    value = f.size("v_head_dim", default=dim)
    see = Attention(heads=number, kv_heads=kv, head_dim=dim, v_head_dim=value, vectors=number * sinks[0])
    number = f.size("swa_num_attention_heads", default=number)
    near = Attention(
        heads=number, kv_heads=f.size("swa_num_key_value_heads", default=kv), window=size,
        head_dim=f.size("swa_head_dim", default=dim), v_head_dim=f.size("swa_v_head_dim", default=value),
        vectors=number * sinks[1],
    )  # fmt: skip
    layers: list[Layer] = [
        ((near if one else see,), experts if many else ffn(f), 2 * d)
        for one, many in zip(pattern, sparse, strict=True)
    ]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


# ---- states


def mamba2(
    f: Fields, number: int, dim: int, groups: int, state: int, kernel: int, *, norm: bool = True,
    bias: bool = False, conv_bias: bool = True, module: str = "mixer", bytes_per_state: float | None = None,
) -> Recurrent:  # fmt: skip
    """Mamba-2: one projection in (gate, x, B, C, step size) and one out."""
    d, inner = width(f), number * dim
    if number % groups:
        raise ValueError(f"config.json: n_groups={groups} does not divide {number} heads; use a divisor")
    channels = inner + 2 * groups * state
    vectors = channels * (kernel + conv_bias) + 3 * number + (inner if norm else 0)
    vectors += (inner + channels + number + d) if bias else 0
    return Recurrent(
        kind="Mamba-2", heads=number, head_dim=dim, state=state, groups=groups, kernel=kernel,
        weights=(("in_proj", d * (inner + channels + number)), ("out_proj", inner * d)), vectors=vectors,
        bytes_per_state=bytes_per_state, module=module,
    )  # fmt: skip


def mamba1(f: Fields, prefix: str, *, norms: bool, module: str) -> Recurrent:
    """Mamba: a state of its own for every channel."""
    d = width(f)
    inner = f.size("intermediate_size") if not prefix and "intermediate_size" in f else 0
    inner = inner or f.size(f"{prefix}expand", default=2) * d
    state = f.size(f"{prefix}d_state", "state_size", default=16)
    kernel = f.size(f"{prefix}d_conv", "conv_kernel", default=4)
    rank = f.get(f"{prefix}dt_rank", "time_step_rank", default="auto")
    rank = -(-d // 16) if rank == "auto" else f.size(f"{prefix}dt_rank", "time_step_rank")
    bias = f.flag(f"{prefix}proj_bias" if prefix else "use_bias")
    conv_bias = f.flag(f"{prefix}conv_bias" if prefix else "use_conv_bias", True)
    vectors = inner * (kernel + conv_bias) + inner + inner * state + inner  # convolution, step, A, D
    vectors += rank + 2 * state if norms else 0
    vectors += 2 * inner + d if bias else 0
    weights = (
        ("in_proj", 2 * d * inner), ("x_proj", inner * (rank + 2 * state)), ("dt_proj", rank * inner),
        ("out_proj", inner * d),
    )  # fmt: skip
    return Recurrent(
        kind="Mamba", weights=weights, heads=inner, head_dim=1, state=state, channels=inner, kernel=kernel,
        vectors=vectors, module=module, bytes_per_state=state_type(f),
    )  # fmt: skip


def state_type(f: Fields, default: float | None = None) -> float | None:
    """Bytes of a value in the state; None: as wide as activations (vLLM's auto)."""
    kind = f.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    sizes = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
    if kind and kind not in sizes:
        raise ValueError(f"config.json: mamba_ssm_cache_dtype={kind!r} is not covered; use float32, bfloat16")
    return sizes[kind] if kind else default


def nemotron_h(f: Fields) -> Shape:
    """One part a layer, by a letter of the pattern: M for Mamba-2, * attention, - FFN, E experts."""
    d, pattern = width(f), nemotron_pattern(f)
    f.used.update(("expand", "time_step_rank"))
    dim = f.size("head_dim", "attention_head_dim", default=128)
    mlp, proj = f.flag("mlp_bias"), f.flag("use_bias") or f.flag("mamba_proj_bias")
    kinds: dict[str, tuple[tuple[Mixer, ...], FFN | Experts | None]] = {}
    if "*" in pattern:
        kinds["*"] = (attention(f, bias=f.flag("attention_bias"), dim=dim, module="mixer"),), None
    if "-" in pattern:
        kinds["-"] = (), replace(ffn(f, gated=False, bias=mlp), module="mixer")
    if "M" in pattern:
        kinds["M"] = (
            mamba2(
                f, f.size("mamba_num_heads", default=128), f.size("mamba_head_dim", default=64),
                f.size("n_groups", default=8), f.size("ssm_state_size", default=128),
                f.size("conv_kernel", default=4), bias=proj, conv_bias=f.flag("use_conv_bias", True),
                bytes_per_state=state_type(f, 4.0),
            ),
        ), None  # fmt: skip
    if "E" in pattern:
        shared = f.zero("n_shared_experts", default=1)
        part = mixture(
            f, ("n_routed_experts",), bias=True, gated=False,
            shared=shared * f.size("moe_shared_expert_intermediate_size") if shared else 0,
        )  # fmt: skip
        kinds["E"] = (), replace(part, d_expert=f.zero("moe_latent_size") or None, module="mixer")
    f.used.update(("intermediate_size", "num_key_value_heads", "moe_latent_size"))
    f.used.update(("head_dim", "attention_head_dim", "use_conv_bias", "mamba_ssm_cache_dtype"))
    layers: list[Layer] = [(*kinds[letter], d) for letter in pattern]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def nemotron_pattern(f: Fields) -> str:
    """Return the layers' letters, which must be known ones, as many as there are layers."""
    words = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
    words |= {"linear_attention": "M", "full_attention": "*", "mamba2": "M"}
    listed = f.get("layers_block_type", "layer_types")
    pattern = f.get("hybrid_override_pattern")
    if pattern is None and isinstance(listed, list) and all(isinstance(one, str) for one in listed):
        pattern = "".join(words.get(one, "?") for one in listed)
    layers = f.layers() if "num_hidden_layers" in f else len(pattern or "")
    if not isinstance(pattern, str) or not pattern or set(pattern) - set("M*-E") or len(pattern) != layers:
        raise ValueError(
            f"config.json: hybrid_override_pattern={pattern!r} will not do; use {layers} letters out of M*-E"
        )
    return pattern


def jamba(f: Fields) -> Shape:
    """Attention in one layer of eight, Mamba in the others; experts in every second."""
    d, count = width(f), f.layers()
    period, offset = f.size("attn_layer_period", default=8), f.zero("attn_layer_offset", default=4)
    step, start = f.size("expert_layer_period", default=2), f.zero("expert_layer_offset", default=1)
    experts = f.size("num_experts", default=16)
    part: FFN | Experts = ffn(f)
    if experts > 1:
        part = mixture(f, ("num_experts",), inner=("intermediate_size",)) if "num_experts" in f else Experts(
            count=experts, top_k=f.size("num_experts_per_tok", default=2), width=f.size("intermediate_size"),
        )  # fmt: skip
    state, see = mamba1(f, "mamba_", norms=True, module="mamba"), attention(f)
    f.used.update(("num_experts_per_tok", "num_experts"))
    layers: list[Layer] = [
        ((see if i % period == offset else state,), part if i % step == start else ffn(f), 2 * d)
        for i in range(count)
    ]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def mamba(f: Fields) -> Shape:
    """Mamba alone: no attention, no FFN."""
    d = width(f)
    state = mamba1(f, "", norms=False, module="mixer")
    f.used.update(("expand", "d_inner", "d_state", "d_conv", "time_step_rank", "intermediate_size"))
    return Shape([((state,), None, d)] * f.layers(), tied(f), d)


def pure_mamba2(f: Fields) -> Shape:
    """Mamba-2 alone."""
    d = width(f)
    number, dim = f.size("num_heads", default=128), f.size("head_dim", default=64)
    state = mamba2(
        f, number, dim, f.size("n_groups", default=8), f.size("state_size", default=128),
        f.size("conv_kernel", default=4), bias=f.flag("use_bias"), conv_bias=f.flag("use_conv_bias", True),
        bytes_per_state=state_type(f),
    )  # fmt: skip
    f.used.update(("expand", "time_step_rank"))
    return Shape([((state,), None, d)] * f.layers(), f.flag("tie_word_embeddings"), d)


def hybrid_mamba2(f: Fields, module: str = "mamba", norm: bool = True) -> Recurrent:
    """Mamba-2 in the words of Bamba, Granite and Falcon."""
    d = width(f)
    number = f.size("mamba_n_heads", default=128)
    inner = f.size("mamba_d_ssm", default=f.size("mamba_expand", default=2) * d)
    dim = f.get("mamba_d_head", default="auto")
    dim = inner // number if dim == "auto" else f.size("mamba_d_head")
    return mamba2(
        f, number, max(1, dim), f.size("mamba_n_groups", default=1), f.size("mamba_d_state", default=256),
        f.size("mamba_d_conv", default=4), norm=norm, bias=f.flag("mamba_proj_bias"),
        conv_bias=f.flag("mamba_conv_bias", True), module=module, bytes_per_state=state_type(f),
    )  # fmt: skip


def bamba(f: Fields) -> Shape:
    """Attention in the layers listed, Mamba-2 in the others."""
    d, listed = width(f), f.sizes("attn_layer_indices") or []
    see, state = attention(f, bias=f.flag("attention_bias")), hybrid_mamba2(f)
    part = ffn(f, bias=f.flag("mlp_bias"))
    layers: list[Layer] = [((see if i in listed else state,), part, 2 * d) for i in range(f.layers())]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def granitemoehybrid(f: Fields) -> Shape:
    """Attention or Mamba-2, then a shared FFN and perhaps experts."""
    d, count = width(f), f.layers()
    kinds = f.kinds(
        "layer_types", count, ("attention", "mamba", "full_attention", "linear_attention", "mamba2")
    )
    kinds = kinds or f.kinds("layers_block_type", count, ("attention", "mamba")) or ["mamba"] * count
    shared = f.zero("shared_intermediate_size", default=1024)
    part: FFN | Experts = dense(d, shared or 1)
    if f.zero("num_local_experts", default=8):
        part = mixture(f, ("num_local_experts",), inner=("intermediate_size",), shared=shared)
    f.used.update(("intermediate_size", "num_experts_per_tok"))
    see = attention(f, bias=f.flag("attention_bias"))
    state: Mixer = see if all(kind == "attention" for kind in kinds) else hybrid_mamba2(f)
    f.used.update(key for key in f.config if key.startswith("mamba_"))
    layers: list[Layer] = [
        ((see if "attention" in kind and kind != "linear_attention" else state,), part, 2 * d)
        for kind in kinds
    ]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def falcon_h1(f: Fields) -> Shape:
    """Attention and Mamba-2 side by side in every layer."""
    d = width(f)
    see = attention(f, bias=f.flag("attention_bias"))
    state = hybrid_mamba2(f, norm=f.flag("mamba_rms_norm"))
    out = (1 if f.flag("projectors_bias") else 0) - (1 if f.flag("mamba_proj_bias") else 0)
    state = replace(state, vectors=state.vectors + out * d)  # the output's bias has a word of its own
    f.used.update(("projectors_bias", "mamba_use_mlp", "mamba_norm_before_gate", "mamba_expand"))
    part = replace(ffn(f, bias=f.flag("mlp_bias")), module="feed_forward")
    return Shape([((see, state), part, 2 * d)] * f.layers(), f.flag("tie_word_embeddings"), d)


def delta(f: Fields) -> Recurrent:
    """Gated delta net: a state of key x value for every value head."""
    d = width(f)
    keys, values = f.size("linear_num_key_heads"), f.size("linear_num_value_heads")
    wide, deep = f.size("linear_key_head_dim"), f.size("linear_value_head_dim")
    kernel = f.size("linear_conv_kernel_dim", default=4)
    channels = 2 * keys * wide + values * deep
    weights = (
        ("in_proj_qkv", d * channels), ("in_proj_z", d * values * deep), ("in_proj_b", d * values),
        ("in_proj_a", d * values), ("out_proj", values * deep * d),
    )  # fmt: skip
    return Recurrent(
        kind="gated delta net", weights=weights, heads=values, head_dim=deep, state=wide, channels=channels,
        kernel=kernel, vectors=channels * kernel + 2 * values + deep, module="linear_attn",
        bytes_per_state=state_type(f),
    )  # fmt: skip


def qwen_next(f: Fields) -> Shape:
    """Gated attention in every fourth layer, a gated delta net in the others; experts or an FFN."""
    d, count = width(f), f.layers()
    period = f.size("full_attention_interval", default=4)
    if f.get("attn_output_gate", default=True) is not True:
        raise ValueError("config.json: attn_output_gate=False is not covered; use true")
    kinds = f.kinds("layer_types", count, ("linear_attention", "full_attention")) or [
        "linear_attention" if (i + 1) % period else "full_attention" for i in range(count)
    ]
    see = attention(
        f, bias=f.flag("attention_bias"), norm="head", gated=True, dim=f.size("head_dim", default=256)
    )
    state = delta(f)
    f.used.add("intermediate_size")
    ffns: Sequence[FFN | Experts] = qwen_experts(f, True) if "num_experts" in f else [ffn(f)] * count
    layers: list[Layer] = [
        ((see if kind == "full_attention" else state,), part, 2 * d)
        for kind, part in zip(kinds, ffns, strict=True)
    ]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def kimi_linear(f: Fields) -> Shape:
    """Latent attention in the layers listed, Kimi's delta attention in the others; DeepSeek's experts."""
    d, count, said = width(f), f.layers(), f.inner("linear_attn_config")
    number, dim = said.size("num_heads"), said.size("head_dim")
    kernel, wide = said.size("short_conv_kernel_size", default=4), number * dim
    said.off("use_full_rank_gate", "gate_lower_bound")
    full = said.sizes("full_attn_layers") or []
    said.used.add("kda_layers")
    weights = (
        ("q_proj", d * wide), ("k_proj", d * wide), ("v_proj", d * wide), ("f_a_proj", d * dim),
        ("f_b_proj", dim * wide), ("b_proj", d * number), ("g_a_proj", d * dim), ("g_b_proj", dim * wide),
        ("o_proj", wide * d),
    )  # fmt: skip
    state = Recurrent(
        kind="Kimi delta attention", weights=weights, heads=number, head_dim=dim, state=dim, kernel=kernel,
        channels=3 * wide, vectors=3 * wide * kernel + wide + number + dim, module="self_attn",
        bytes_per_state=4,
    )  # fmt: skip
    f.used.update(("mla_use_nope", "num_expert_group"))
    see = latent(f)
    ffns = deepseek_experts(f, True)
    layers: list[Layer] = [
        ((see if i + 1 in full else state,), part, 2 * d) for i, part in enumerate(ffns[:count])
    ]
    return Shape(layers, f.flag("tie_word_embeddings"), d)


def lfm2(f: Fields) -> Shape:
    """Short convolutions among layers with attention; experts in the later ones of the mixtures."""
    d, count, bias = width(f), f.layers(), f.flag("conv_bias")
    kinds = f.kinds("layer_types", count, ("conv", "full_attention"))
    if kinds is None:
        listed = f.sizes("full_attn_idxs")
        kinds = ["full_attention" if listed is None or i in listed else "conv" for i in range(count)]
    f.used.add("full_attn_idxs")
    kernel = f.size("conv_L_cache", default=3)
    state = Recurrent(
        kind="short convolution", weights=(("in_proj", 3 * d * d), ("out_proj", d * d)), channels=d,
        kernel=kernel, vectors=d * kernel + (5 * d if bias else 0), module="conv",
    )  # fmt: skip
    inner = f.size("block_ff_dim", "intermediate_size")
    if f.flag("block_auto_adjust_ff_dim", f.get("model_type") == "lfm2"):
        inner = int(2 * inner / 3)
        factor = f.get("block_ffn_dim_multiplier", default=1.0)
        if not isinstance(factor, int | float) or isinstance(factor, bool) or not 0 < factor < 1000:
            raise ValueError(f"config.json: block_ffn_dim_multiplier={factor!r} will not do; use 1.0")
        multiple = f.size("block_multiple_of", default=256)
        inner = multiple * -(-int(factor * inner) // multiple)
    f.used.update(
        ("block_ffn_dim_multiplier", "block_multiple_of", "intermediate_size", "block_dim", "conv_dim")
    )
    f.used.update(("conv_dim_out", "block_mlp_init_scale", "block_out_init_scale", "conv_use_xavier_init"))
    ffns: list[FFN | Experts] = [dense(d, inner)] * count
    if "num_experts" in f:
        part = mixture(f, ("num_experts",), bias=f.flag("use_expert_bias", True))
        ffns = after(f, part, lambda: dense(d, inner), f.zero("num_dense_layers", default=2))
    see = attention(f, norm="head", dim=f.size("head_dim", default=d // heads(f) or 1))
    layers: list[Layer] = [
        ((see if kind == "full_attention" else state,), part, 2 * d)
        for kind, part in zip(kinds, ffns, strict=True)
    ]
    f.used.add("tie_embedding")
    return Shape(layers, f.flag("tie_word_embeddings", f.flag("tie_embedding", True)), d)


FAMILIES: dict[str, Adapter] = {
    "llama": llama, "code_llama": llama, "mistral": llama, "ministral": llama, "ministral3": llama,
    "smollm3": smollm3, "helium": llama, "yi": llama, "Yi": llama, "cwm": llama, "aquila": llama,
    "xverse": llama, "solar": llama, "minicpm": minicpm,
    "qwen": qwen, "qwen2": qwen2, "qwen2_vl_text": qwen2, "qwen2_5_vl_text": qwen2, "mimo": qwen2,
    "qwen2_vl": qwen2, "qwen2_5_vl": qwen2, "qwen3": qwen3, "qwen3_vl_text": qwen3, "qwen2_moe": qwen2_moe,
    "qwen3_moe": qwen3_moe, "qwen3_vl_moe_text": qwen3_moe, "qwen3_next": qwen_next,
    "qwen3_5_text": qwen_next, "qwen3_5_moe_text": qwen_next, "qwen3_omni_moe_text": qwen3_moe,
    "phi": phi, "phi-msft": phi, "phi3": phi3, "phimoe": phimoe, "olmo": olmo, "olmo2": olmo2,
    "olmo3": olmo2, "olmoe": olmoe, "gemma": gemma, "gemma2": gemma2, "gemma3_text": gemma3,
    "gemma4_text": gemma4, "cohere": cohere, "cohere2": cohere2, "granite": granite,
    "granitemoe": granitemoe, "granitemoeshared": granitemoe, "granitemoehybrid": granitemoehybrid,
    "glm": glm, "glm4": glm4, "glm4v_text": glm4, "glm4_moe": glm4_moe, "glm4v_moe_text": glm4_moe,
    "glm4_moe_lite": deepseek_v3, "glm_moe_dsa": deepseek_v32, "chatglm": chatglm, "baichuan": baichuan,
    "internlm": internlm, "internlm2": internlm, "internlm3": internlm3, "orion": orion, "exaone": exaone,
    "exaone4": exaone4, "seed_oss": seed_oss, "stablelm": stablelm, "stablelm_epoch": stablelm,
    "starcoder2": starcoder2, "gpt2": gpt2, "gpt_bigcode": gpt2, "gptj": gptj, "gpt_neo": gpt_neo,
    "gpt_neox": gpt_neox, "opt": opt, "bloom": bloom, "falcon": falcon, "RefinedWebModel": falcon,
    "RefinedWeb": falcon, "mpt": mpt, "nemotron": nemotron, "nemotron-nas": nemotron_nas, "arcee": arcee,
    "apertus": apertus, "mixtral": mixtral, "gpt_oss": gpt_oss, "dbrx": dbrx, "arctic": arctic,
    "minimax_m2": minimax_m2, "deepseek": deepseek, "deepseek_v2": deepseek_v2, "deepseek_v3": deepseek_v3,
    "deepseek_v32": deepseek_v32, "kimi_k2": deepseek_v3, "minicpm3": minicpm3, "dots1": dots1,
    "llama4_text": llama4, "ernie4_5": ernie, "ernie4_5_moe": ernie_moe, "hunyuan_v1_dense": hunyuan,
    "hunyuan_v1_moe": hunyuan_moe, "bailing_moe": bailing_moe, "bailing_moe_v2": bailing_moe,
    "longcat_flash": longcat, "mimo_v2_flash": mimo_v2, "nemotron_h": nemotron_h, "jamba": jamba,
    "mamba": mamba, "falcon_mamba": mamba, "mamba2": pure_mamba2, "bamba": bamba, "falcon_h1": falcon_h1,
    "lfm2": lfm2, "lfm2_moe": lfm2, "kimi_linear": kimi_linear,
}  # fmt: skip

OUTER = {  # model_type of a multimodal file: that of its text_config, where it says none
    "mistral3": "mistral", "llava": "llama", "llava_next": "llama", "gemma3": "gemma3_text",
    "gemma4": "gemma4_text", "llama4": "llama4_text", "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text", "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "kimi_k2",
    "kimi_vl": "deepseek_v3", "glm4v": "glm4v_text", "glm4v_moe": "glm4v_moe_text", "pixtral": "mistral",
}  # fmt: skip
