"""The pool judge's calls into 0.5.9. What it patches is at the top, with the reason."""

import psutil
import torch
from pool_judge_common import (
    CASE,
    DEVICE,
    environment,
    folder,
    generation,
    memory_of,
    stages,
    weigh,
)
from sglang.srt import server_args as server_args_module
from sglang.srt.configs.model_config import AttentionArch, ModelConfig
from sglang.srt.distributed import parallel_state
from sglang.srt.distributed.utils import get_pp_indices
from sglang.srt.layers import dp_attention
from sglang.srt.mem_cache import hiradix_cache, memory_pool, memory_pool_host
from sglang.srt.model_executor import model_runner_kv_cache_mixin as mixin
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

# A card's capacity, and what of it is free: figures of the case.
server_args_module.get_device_memory_capacity = lambda device=None: CASE["memory_mib"]
server_args_module.is_cuda = lambda: True
server_args_module.is_flashinfer_available = lambda: True
server_args_module.get_device_sm = lambda: CASE["capability"][0] * 10 + CASE["capability"][1]
for fact in ("is_sm90", "is_sm100", "is_sm120", "is_blackwell", "is_hopper_with_cuda_12_3"):
    name = fact if "hopper" in fact else f"{fact}_supported"
    setattr(server_args_module, name, lambda *_, fact=fact, **__: generation()[fact])
# The engine holds FP4 for itself only where there is a CUDA device.
mixin.is_float4_e2m1fn_x2 = lambda dtype: dtype == getattr(torch, "float4_e2m1fn_x2", None)
mixin.get_available_gpu_memory = lambda *_, **__: CASE["after"]
psutil.virtual_memory = lambda: memory_of(CASE["host_available"])
# Groups of ranks that do not exist.
WORLD = type("World", (), {"world_size": 1, "cpu_group": None})
mixin.get_world_group = lambda: WORLD
# With speculation a pool compiles the kernel that copies its rows, which needs a GPU.
memory_pool.MHATokenToKVPool._init_kv_copy_and_warmup = lambda self: None
# Host pools: their real arithmetic, on a device that takes no memory.
memory_pool_host.HostTensorAllocator.allocate = lambda self, dims, dtype, device: torch.empty(
    dims, dtype=dtype, device=DEVICE
)
memory_pool_host.HostKVCache.clear = lambda self: None  # its lists of free slots
hiradix_cache.bind_to_closest_numa_node_cuda = lambda: None


class Group:
    def __init__(self, size):
        self.world_size, self.rank_in_group, self.cpu_group = size, 0, None


class Built(Exception):
    """The host pools stand; what follows in the engine needs streams and processes."""


class Stop:
    def __init__(self, *_, **__):
        raise Built


hiradix_cache.HiCacheController = Stop
torch.distributed.get_world_size = lambda group=None: 1


def judge(case):
    CASE.clear()
    CASE.update({"capability": [12, 0], **case})
    with environment(case.get("env")):
        args = arguments(case)
        return stages(case, args.pp_size, lambda stage: answer(case, stage))


def arguments(case):
    flags = dict(case["flags"])
    if isinstance(case.get("draft"), dict):
        flags["speculative_draft_model_path"] = folder(case["draft"])
    return ServerArgs(
        model_path=folder(case["config"]),
        skip_tokenizer_init=True,
        device=flags.pop("device", "cuda"),
        **flags,
    )


def answer(case, stage):
    args = arguments(case)
    set_global_server_args_for_scheduler(args)
    groups(args)
    target = runner(args, stage)
    target.init_memory_pool(case["before"])
    said = told(target)
    if case.get("draft"):
        said["draft"] = told(draft(args, target, case))
    if args.enable_hierarchical_cache:
        said["host"] = host(args, target)
    return said


def groups(args):
    """Sizes where the engine keeps its groups."""
    _, size, _ = dp_attention.compute_dp_attention_world_info(
        args.enable_dp_attention, 0, args.tp_size, args.dp_size, args.attn_cp_size
    )
    parallel_state._TP = Group(args.tp_size)
    parallel_state._ATTN_TP = Group(size)
    parallel_state._PP = Group(args.pp_size)
    parallel_state._WORLD = Group(args.tp_size * args.pp_size)


def runner(args, stage, model_config=None, is_draft=False):
    """A ModelRunner with what its __init__ and initialize() set before the pools, no weights."""
    self = object.__new__(ModelRunner)
    config = model_config or ModelConfig.from_server_args(args)
    self.server_args, self.model_config, self.device, self.gpu_id = args, config, DEVICE, 0
    self.is_draft_worker = is_draft
    self.dp_size = args.dp_size if args.enable_dp_attention else 1
    self.tp_size, self.pp_size, self.pp_rank = args.tp_size, args.pp_size, stage
    self.spec_algorithm = SpeculativeAlgorithm.from_string(args.speculative_algorithm)
    self.page_size = args.page_size
    self.req_to_token_pool = self.token_to_kv_pool_allocator = None
    self.is_hybrid_swa = config.is_hybrid_swa
    self.is_hybrid_swa_compress = config.is_hybrid_swa_compress
    self.use_mla_backend = config.attention_arch == AttentionArch.MLA
    args.use_mla_backend = self.use_mla_backend
    self.dtype, self.model = config.dtype, None
    self.mem_fraction_static = args.mem_fraction_static
    self.sliding_window_size = config.sliding_window_size or config.attention_chunk_size
    layers = model_layers(config, is_draft)
    self.start_layer, self.end_layer = (
        get_pp_indices(layers, stage, args.pp_size) if args.pp_size > 1 else (0, layers)
    )
    self.num_effective_layers = self.end_layer - self.start_layer
    for name in ("full_attention_layer_ids", "swa_attention_layer_ids"):
        ids = getattr(config, name, None) or ()
        setattr(config, name, [i for i in range(self.start_layer, self.end_layer + 1) if i in ids])
    self.configure_kv_cache_dtype()
    self.get_cell_size_per_token = lambda count: remember(self, count)
    return self


def remember(self, count):
    """The engine's own function, and what it answered last."""
    self.charged = ModelRunner.get_cell_size_per_token(self, count)
    return self.charged


def model_layers(config, is_draft):
    """As ModelRunner.initialize() counts them; a model splits as many over its stages."""
    if is_draft and config.hf_config.architectures[0] in ("MiMoV2MTP", "Step3p5MTP"):
        return 1
    if is_draft and config.num_nextn_predict_layers is not None:
        return config.num_nextn_predict_layers
    return max(config.num_hidden_layers, config.num_attention_layers)


def draft(args, target, case):
    """The draft worker's runner: it shares the target's request pool and allocator."""
    config = ModelConfig.from_server_args(
        args, model_path=args.speculative_draft_model_path, is_draft_model=True
    )
    self = runner(args, 0, config, is_draft=True)
    self.req_to_token_pool = target.req_to_token_pool
    self.token_to_kv_pool_allocator = target.token_to_kv_pool_allocator
    self.init_memory_pool(case["before"])
    return self


def running(self):
    """As ModelRunner.initialize() ends; what it says is in no function of its own."""
    wanted, dp = self.server_args.max_running_requests, self.dp_size
    most = self.max_total_num_tokens // 2 if wanted is None else wanted // dp
    return min(most, self.req_to_token_pool.size)


def told(self):
    seen = set()
    pool = self.token_to_kv_pool
    said = {
        "tokens": self.max_total_num_tokens,
        "fraction": self.server_args.mem_fraction_static,
        "page": self.server_args.page_size,
        "charged": self.charged,
        "dtype": str(self.kv_cache_dtype),
        "class": type(pool).__name__,
        "requests": running(self),
        "layers": [self.start_layer, self.end_layer],
    }
    if self.is_hybrid_swa:
        said["full"], said["swa"] = self.full_max_total_num_tokens, self.swa_max_total_num_tokens
    if self.mambaish_config is not None:
        said["slots"] = self.server_args.max_mamba_cache_size
        said["per_request"] = self.mambaish_config.mamba2_cache_params.mamba_cache_per_req
        said["mamba"] = weigh(self.req_to_token_pool.mamba_pool, seen)
    said["kv"] = weigh(pool, seen)
    return said


def host(args, target):
    """The host pools as HiRadixCache.__init__ chooses and sizes them."""
    params = type("Params", (), {})()
    params.enable_metrics = False
    params.page_size = args.page_size
    params.token_to_kv_pool_allocator = target.token_to_kv_pool_allocator
    params.tp_cache_group = None
    params.pp_rank, params.pp_size = 0, 1
    cache = object.__new__(hiradix_cache.HiRadixCache)
    try:
        cache.__init__(params, args)
    except Built:
        pool = cache.token_to_kv_pool_host
        return [
            {
                "name": "kv",
                "tokens": pool.size,
                "bytes_per_token": pool.size_per_token,
                "buffers": weigh({"kv_buffer": pool.kv_buffer}, set())
                | weigh({"index": getattr(pool, "index_k_with_scale_buffer", None)}, set()),
            }
        ]
    raise AssertionError("HiRadixCache built no controller")
