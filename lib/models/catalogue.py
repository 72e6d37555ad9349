"""The models of this book: what their config.json files say, each with its source."""

from dataclasses import replace
from typing import Any

from lib.models.config import read
from lib.models.model import Model


def listed(name: str, source: str, **config: Any) -> Model:
    """Return the model of these fields, with its source."""
    return replace(read(config, name), source=source)


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
GPTQ_INT4 = {"quant_method": "gptq", "bits": 4, "group_size": 128}
YARN_V3 = {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 4096}
YARN_OSS = {"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096}
YARN_K2 = {"rope_type": "yarn", "factor": 32, "original_max_position_embeddings": 4096}

QWEN2_5_7B_CONFIG: dict[str, Any] = dict(
    model_type="qwen2", num_hidden_layers=28, hidden_size=3584, num_attention_heads=28, num_key_value_heads=4,
    intermediate_size=18944, vocab_size=152064, max_position_embeddings=32768,
)  # fmt: skip
LLAMA_70B: dict[str, Any] = dict(
    model_type="llama", num_hidden_layers=80, hidden_size=8192, num_attention_heads=64, num_key_value_heads=8,
    intermediate_size=28672,
)  # fmt: skip
LATENT: dict[str, Any] = dict(
    kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128, q_lora_rank=1536,
    num_hidden_layers=61, hidden_size=7168, intermediate_size=18432, moe_intermediate_size=2048,
    n_shared_experts=1, num_experts_per_tok=8, quantization_config=FP8,
)  # fmt: skip
GPT_OSS: dict[str, Any] = dict(
    model_type="gpt_oss", hidden_size=2880, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
    intermediate_size=2880, vocab_size=201088, num_experts_per_tok=4, sliding_window=128,
    max_position_embeddings=131072, rope_scaling=YARN_OSS, quantization_config={"quant_method": "mxfp4"},
)  # fmt: skip
OSS_SOURCE = (
    "on Hugging Face: experts in MXFP4 (4 bits, every 32 weights with a scale of 8), all else in bf16; every "
    "second layer looks back at 128 tokens"
)

QWEN2_5_7B = listed(
    "Qwen2.5-7B", "config.json of Qwen/Qwen2.5-7B-Instruct on Hugging Face", **QWEN2_5_7B_CONFIG
)
LLAMA_3_1_8B = listed(
    "Llama-3.1-8B", "config.json of meta-llama/Llama-3.1-8B on Hugging Face",
    model_type="llama", num_hidden_layers=32, hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
    intermediate_size=14336, vocab_size=128256, max_position_embeddings=131072,
)  # fmt: skip
LLAMA_3_1_70B = listed(
    "Llama-3.1-70B", "config.json of meta-llama/Llama-3.1-70B on Hugging Face",
    **LLAMA_70B, vocab_size=128256, max_position_embeddings=131072,
)  # fmt: skip
DEEPSEEK_V3 = listed(
    "DeepSeek-V3",
    "config.json and README_WEIGHTS.md of deepseek-ai/DeepSeek-V3 on Hugging Face, without its layer for "
    "multi-token prediction; FP8 but for embedding, head, norms and routers",
    **LATENT, model_type="deepseek_v3", num_attention_heads=128, vocab_size=129280, first_k_dense_replace=3,
    n_routed_experts=256, max_position_embeddings=163840, rope_scaling=YARN_V3,
)  # fmt: skip
NEMOTRON_3_NANO = listed(
    "Nemotron-3-Nano", "config.json of nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 on Hugging Face",
    model_type="nemotron_h", hidden_size=2688, num_attention_heads=32, num_key_value_heads=2, head_dim=128,
    vocab_size=131072, hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    n_routed_experts=128, num_experts_per_tok=6, moe_intermediate_size=1856, n_shared_experts=1,
    moe_shared_expert_intermediate_size=3712, mamba_num_heads=64, mamba_head_dim=64, n_groups=8,
    ssm_state_size=128, conv_kernel=4, max_position_embeddings=262144,
)  # fmt: skip

# What others measured with.

QWEN2_5_7B_INT4 = listed(
    "Qwen2.5-7B Int4",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4 on Hugging Face: the shape of Qwen2.5-7B; a layer's weights "
    "in 4 bits, every 128 of them with a scale of 16 and a zero point of 4; embedding and head in 16 bits; "
    "so its two weight files add up to their listed 5.58 GB",
    **QWEN2_5_7B_CONFIG, quantization_config=GPTQ_INT4,
)  # fmt: skip
QWEN3_8B = listed(
    "Qwen3-8B", "config.json of Qwen/Qwen3-8B on Hugging Face",
    model_type="qwen3", num_hidden_layers=36, hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
    head_dim=128, intermediate_size=12288, vocab_size=151936, max_position_embeddings=40960,
)  # fmt: skip
LLAMA_2_70B = listed(
    "Llama-2-70B", "config.json of meta-llama/Llama-2-70b-hf on Hugging Face",
    **LLAMA_70B, vocab_size=32000, max_position_embeddings=4096,
)  # fmt: skip
OPT_13B = listed(
    "OPT-13B",
    "config.json of facebook/opt-13b on Hugging Face; learned positions and biases on every matrix",
    model_type="opt", num_hidden_layers=40, hidden_size=5120, num_attention_heads=40, ffn_dim=20480,
    vocab_size=50272, max_position_embeddings=2048,
)  # fmt: skip
QWEN3_235B_FP8 = listed(
    "Qwen3-235B-A22B FP8",
    "config.json of Qwen/Qwen3-235B-A22B-FP8 on Hugging Face: FP8 but for embedding, head, norms and routers",
    model_type="qwen3_moe", num_hidden_layers=94, hidden_size=4096, num_attention_heads=64,
    num_key_value_heads=4, head_dim=128, vocab_size=151936, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=1536, max_position_embeddings=40960, quantization_config=FP8,
)  # fmt: skip
GPT_OSS_120B = listed(
    "gpt-oss-120b", f"config.json of openai/gpt-oss-120b {OSS_SOURCE}",
    **GPT_OSS, num_hidden_layers=36, num_local_experts=128,
)  # fmt: skip

# What people serve.

QWEN3_32B = listed(
    "Qwen3-32B", "config.json of Qwen/Qwen3-32B on Hugging Face",
    model_type="qwen3", num_hidden_layers=64, hidden_size=5120, num_attention_heads=64, num_key_value_heads=8,
    head_dim=128, intermediate_size=25600, vocab_size=151936, max_position_embeddings=40960,
)  # fmt: skip
QWEN3_30B_A3B = listed(
    "Qwen3-30B-A3B", "config.json of Qwen/Qwen3-30B-A3B on Hugging Face",
    model_type="qwen3_moe", num_hidden_layers=48, hidden_size=2048, num_attention_heads=32,
    num_key_value_heads=4, head_dim=128, vocab_size=151936, num_experts=128, num_experts_per_tok=8,
    moe_intermediate_size=768, max_position_embeddings=40960,
)  # fmt: skip
GPT_OSS_20B = listed(
    "gpt-oss-20b", f"config.json of openai/gpt-oss-20b {OSS_SOURCE}",
    **GPT_OSS, num_hidden_layers=24, num_local_experts=32,
)  # fmt: skip
LLAMA_4_SCOUT = listed(
    "Llama-4 Scout",
    "text_config of meta-llama/Llama-4-Scout-17B-16E-Instruct on Hugging Face: three layers of four look "
    "back at their own chunk of 8,192 tokens only; the language model alone",
    model_type="llama4_text", num_hidden_layers=48, hidden_size=5120, num_attention_heads=40,
    num_key_value_heads=8, head_dim=128, intermediate_size=8192, intermediate_size_mlp=16384,
    interleave_moe_layer_step=1, num_local_experts=16, num_experts_per_tok=1, attention_chunk_size=8192,
    vocab_size=202048, max_position_embeddings=10485760,
)  # fmt: skip
GLM_4_5 = listed(
    "GLM-4.5", "config.json of zai-org/GLM-4.5 on Hugging Face, without its layer for multi-token prediction",
    model_type="glm4_moe", num_hidden_layers=92, hidden_size=5120, num_attention_heads=96,
    num_key_value_heads=8, head_dim=128, attention_bias=True, use_qk_norm=True, intermediate_size=12288,
    moe_intermediate_size=1536, n_routed_experts=160, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=3, vocab_size=151552, max_position_embeddings=131072,
)  # fmt: skip
KIMI_K2 = listed(
    "Kimi K2",
    "config.json of moonshotai/Kimi-K2-Instruct on Hugging Face: FP8 but for embedding, head, norms and "
    "routers",
    **LATENT, model_type="kimi_k2", num_attention_heads=64, vocab_size=163840, first_k_dense_replace=1,
    n_routed_experts=384, max_position_embeddings=131072, rope_scaling=YARN_K2,
)  # fmt: skip
GEMMA_3_27B = listed(
    "Gemma 3 27B",
    "text_config of google/gemma-3-27b-it on Hugging Face: five layers of six look back at 1,024 tokens; the "
    "language model alone",
    model_type="gemma3_text", num_hidden_layers=62, hidden_size=5376, num_attention_heads=32,
    num_key_value_heads=16, head_dim=128, intermediate_size=21504, vocab_size=262208, sliding_window=1024,
    max_position_embeddings=131072,
)  # fmt: skip
MISTRAL_SMALL = listed(
    "Mistral Small 24B", "config.json of mistralai/Mistral-Small-24B-Instruct-2501 on Hugging Face",
    model_type="mistral", num_hidden_layers=40, hidden_size=5120, num_attention_heads=32,
    num_key_value_heads=8, head_dim=128, intermediate_size=32768, vocab_size=131072,
    max_position_embeddings=32768,
)  # fmt: skip

MODELS = (
    QWEN2_5_7B, LLAMA_3_1_8B, LLAMA_3_1_70B, DEEPSEEK_V3, NEMOTRON_3_NANO, QWEN2_5_7B_INT4, QWEN3_8B,
    LLAMA_2_70B, OPT_13B, QWEN3_235B_FP8, GPT_OSS_120B, QWEN3_32B, QWEN3_30B_A3B, GPT_OSS_20B, LLAMA_4_SCOUT,
    GLM_4_5, KIMI_K2, GEMMA_3_27B, MISTRAL_SMALL,
)  # fmt: skip
