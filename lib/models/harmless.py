"""Keys of a config.json that change neither what a model weighs, nor what it keeps, nor its products.

Training, sampling, tokens, the kind of a norm or an activation, factors, the angles of positions, how
experts are chosen, layers for multi-token prediction (left out), and what other parts of a multimodal file
are called.
"""

import re

HARMLESS = frozenset(
    """
    _attn_implementation _from_model_config _name_or_path activation architectures attn_implementation
    attn_scale auto_map bf16 bias_dropout_fusion cache_implementation chunk_size chunk_size_feed_forward
    clip_qkv dim_model_base do_sample dtype early_stopping ep_size expand_ratio ffn_inter_padding_size
    finetuning_task floor_scale fmt fp16 fp32 fp32_residual_connection gate_type hidden_act
    id2label index_share_for_mtp_iteration index_skip_topk_offset index_topk_freq index_topk_pattern
    indexer_rope_interleave init_device init_method initial_context_length is_causal is_decoder
    is_encoder_decoder is_llama_config key_multiplier kv_cache_dtype label2id layer_scale_init logit_scale
    logits_scaling mamba_chunk_size max_length max_window_layers min_length mlp_type moe_norm_min
    moe_renormalize moe_router_activation_func moe_router_dtype moe_shared_expert_overlap n_group
    no_rope_layer_interval no_rope_layers norm_topk_prob norm_type num_beam_groups num_beams
    num_expert_group num_logits_to_keep num_return_sequences params_dtype partial_rotary_factor pos_emb
    position_embedding_type prefix pretraining_tp problem_type pruned_heads query_pre_attn_scalar
    rescale_prenorm_residual residual_in_fp32 rotary scale_attn_weights scale_depth scale_emb score_function
    scoring_func seq_aux swiglu_alpha swiglu_limit swa_rope_theta task_specific_params temperature
    time_step_floor time_step_init_scheme time_step_limit time_step_max time_step_min time_step_scale
    top_k top_p topk_group topk_method topk_prob torch_dtype torchscript transformers.js_config
    transformers_version typical_p unsloth_fixed unsloth_version use_associative_scan use_cache
    use_dynamic_ntk use_flash_attn use_grouped_topk use_logn_attn use_mamba_kernels use_mamba_kernel
    use_bfloat16 use_rope use_sliding_window vision_config audio_config video_config mup_base_width
    use_cache_quantization use_cache_kernel softmax_in_fp32 alibi norm_head hidden_activation
    use_parallel_residual attention_value_scale model_name vocab_size_per_layer_input
    """.split()
)
PATTERNS = re.compile(
    r"""
      .*_token(_id|_ids|_index)? | (image|audio|video|vision|media|boi|eoi|boa|eoa|ignore)_.* | sep_.*
    | .*dropout(_prob|_rate)? | .*_pdrop | layerdrop | .*_eps | .*_epsilon | .*epsilon | .*_act | .*_act_fn
    | .*activation_fn | .*activation_function | .*initializer.* | init_std | .*_init_scale
    | .*loss.* | .*_coef | .*_coeff | .*jitter.* | summary_.* | classifier_.* | tokenizer_.* | .*_rope_.*
    | rope_.* | rotary_.* | .*softcapping | .*_softmax_in_fp32 | .*_multipliers? | .*scaling_factor
    | (mtp|num_mtp|use_mtp|num_nextn|nextn)_?.* | .*_penalty | .*_ngram_size | output_.* | return_.*
    | .*gradient_checkpointing.* | .*attn_temperature.* | tf_.* | .*_version | embedding_fraction
    | (llama_4|yarn|longrope)_.* | .*bad_words.* | .*_observer.*
    """,
    re.VERBOSE,
)


def is_harmless(key: str) -> bool:
    """Return whether the key is of a kind that is known to be harmless."""
    return key in HARMLESS or bool(PATTERNS.fullmatch(key))
