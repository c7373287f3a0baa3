"""The pool judge's calls into 0.5.23. What it patches is at the top, with the reason."""

import torch
from pool_judge_common import CASE, DEVICE, environment, folder, generation, stages, weigh

from sglang.srt import platforms, runtime_context

# Resolution asks what the machine is: a CUDA one. Modules take the platform as they are imported.
platforms._current_platform = platforms.CudaSRTPlatform()

# ruff: noqa: E402, I001
from sglang.srt.configs.model_config import AttentionArch, ModelConfig
from sglang.srt.distributed.utils import get_pp_indices
from sglang.srt.mem_cache import kv_cache_configurator as configurator
from sglang.srt.mem_cache import memory_pool
from sglang.srt.mem_cache.hicache_auto_size import auto_size_hicache
from sglang.srt.mem_cache.hybrid_cache import hybrid_pool_assembler as assembler
from sglang.srt.mem_cache.pool_host import base as pool_host_base
from sglang.srt.mem_cache.pool_host import common as pool_host_common
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.model_executor.model_runner import ModelRunner
from sglang.srt.model_executor.model_runner_components import layer_setup
from sglang.srt.model_executor.pool_configurator import create_memory_pool_configurator
from sglang.srt.runtime_context import SpawnRanks, get_parallel, get_schedule, spawn_world_rank
from sglang.srt.server_args import ServerArgs
from sglang.srt.speculative import base_spec_worker
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm
from sglang.srt.utils import common

configurator.get_available_gpu_memory = lambda *_, **__: CASE["after"]
pool_host_base.available_host_memory_bytes = lambda **_: CASE["host_available"]
# With speculation a pool compiles the kernel that copies its rows, which needs a GPU.
memory_pool.MHATokenToKVPool._init_kv_copy_and_warmup = lambda self: None
# Host pools: their real arithmetic, on a device that takes no memory, and nothing to pin.
pool_host_common.HostTensorAllocator.allocate = lambda self, dims, dtype, device: torch.empty(
    dims, dtype=dtype, device=DEVICE
)
pool_host_common._cuda_host_register = lambda *_, **__: None
pool_host_base.HostKVCache.clear = lambda self: None  # its lists of free slots
# Ranks that share a host are counted only where torch.distributed is up.
torch.distributed.is_initialized = lambda: True


class Group:
    def __init__(self, size):
        self.world_size, self.rank_in_group, self.cpu_group = size, 0, None


class Controller:
    """Stands where streams and threads would start: it keeps what the assembler reads of it."""

    def __init__(self, _allocator, pools, page_size, *_, transfer_layer_id_max=0, **__):
        self.mem_pool_host, self.page_size = pools, page_size
        self.transfer_layer_id_max, self.layer_done_counter = transfer_layer_id_max, None


assembler.HybridCacheController = Controller


common.is_cuda = lambda: True
common.get_nvgpu_memory_capacity = lambda: CASE["memory_mib"]


def machine():
    major, minor = CASE["capability"]
    return runtime_context.override_platform(
        is_cuda=True,
        is_hip=False,
        is_sm110=False,
        is_sm100_or_sm110=major == 10,
        has_flashinfer=True,
        device_sm=major * 10 + minor,
        device_capability=(major, minor),
        **generation(),
    )


def judge(case):
    CASE.clear()
    CASE.update({"capability": [12, 0], **case})
    with environment(case.get("env")), machine():
        count = int(case["flags"].get("pp_size", 1))
        return stages(case, count, lambda stage: answer(case, stage))


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
    runtime_context.reset_context()
    args = arguments(case)
    args.resolve_once()
    rank = spawn_world_rank(args, tp_rank=0, pp_rank=stage)
    runtime_context.publish(
        args, role="scheduler", ranks=SpawnRanks(world_rank=rank, dp_rank=0, gpu_id=0)
    )
    parallel = get_parallel()
    parallel.override_permanently(
        world_group=Group(parallel.launch_world_size),
        tp_group=Group(parallel.tp_size),
        pp_group=Group(parallel.pp_size),
    )
    target = runner(args, stage)
    target.kv = target.kv_cache_configurator.configure(pre_model_load_memory=case["before"])
    target.token_to_kv_pool = target.kv.token_to_kv_pool
    target.req_to_token_pool = target.kv.req_to_token_pool
    said = told(target)
    drafts = []
    if case.get("draft"):
        drafts = [draft(args, target)]
        said["draft"] = told(drafts[0])
    if runtime_context.get_memory().enable_hierarchical_cache:
        said["host"] = host(args, target, drafts)
    return said


def runner(args, stage, config=None, target=None):
    """A ModelRunner with what its __init__ and initialize() set before the pools, no weights."""
    self = object.__new__(ModelRunner)
    config = config or ModelConfig.from_server_args(args)
    self.server_args, self.model_config, self.device, self.gpu_id = args, config, DEVICE, 0
    self.is_draft_worker = target is not None
    self.draft_attention_backend = self.draft_model_idx = None
    self.spec_algorithm = SpeculativeAlgorithm.from_string(
        runtime_context.get_spec().speculative_algorithm
    )
    self.page_size = get_schedule().page_size
    self.req_to_token_pool = target and target.kv.req_to_token_pool
    self.token_to_kv_pool_allocator = target and target.kv.token_to_kv_pool_allocator
    self.memory_pool_config = target and target.kv.memory_pool_config
    self.is_hybrid_swa = config.is_hybrid_swa
    self.is_hybrid_swa_compress = config.is_hybrid_swa_compress
    self.use_mla_backend = config.attention_arch == AttentionArch.MLA
    self.dtype, self.forward_stream, self.pp_group = config.dtype, None, get_parallel().pp_group
    self.sliding_window_size = config.sliding_window_size or config.attention_chunk_size
    self.init_spec_aux_hidden_state()
    # A model splits its layers over stages by this function and keeps the two ends.
    layers = layer_setup._compute_model_num_layers(
        model=None, model_config=config, is_draft_worker=self.is_draft_worker
    )
    start, end = (
        get_pp_indices(layers, stage, self.pp_group.world_size)
        if self.pp_group.world_size > 1 and target is None
        else (0, layers)
    )
    self.model = type("Model", (), {"start_layer": start, "end_layer": end})()
    self.layer_info = layer_setup.resolve_layer_indices(
        model=self.model, model_config=config, is_draft_worker=self.is_draft_worker
    )
    self.configure_kv_cache_dtype()
    self.init_kv_cache_configurator()
    return self


def draft(args, target):
    config = ModelConfig.from_server_args(
        args,
        model_path=runtime_context.get_spec().speculative_draft_model_path,
        is_draft_model=True,
    )
    self = runner(args, 0, config, target)
    self.kv = self.kv_cache_configurator.configure(pre_model_load_memory=0)
    self.token_to_kv_pool = self.kv.token_to_kv_pool
    self.req_to_token_pool = self.kv.req_to_token_pool
    return self


def told(self):
    seen, kv = set(), self.kv
    sizing = create_memory_pool_configurator(self.kv_cache_configurator)
    said = {
        "tokens": kv.max_total_num_tokens,
        "fraction": get_schedule().mem_fraction_static,
        "page": get_schedule().page_size,
        "charged": getattr(sizing, "_cell_size", None),
        "dtype": str(self.kv_cache_dtype),
        "class": type(kv.token_to_kv_pool).__name__,
        "sizing": type(sizing).__name__,
        "requests": kv.max_running_requests,
        "layers": [self.layer_info.start_layer, self.layer_info.end_layer],
    }
    if self.is_hybrid_swa:
        said["full"], said["swa"] = kv.full_max_total_num_tokens, kv.swa_max_total_num_tokens
    if self.kv_cache_configurator.mambaish_config is not None and not self.is_draft_worker:
        params = self.kv_cache_configurator.mambaish_config.mamba2_cache_params
        said["slots"] = get_schedule().max_mamba_cache_size
        said["per_request"] = params.mamba_cache_per_req
        said["mamba"] = weigh(kv.req_to_token_pool.mamba_pool, seen)
    said["kv"] = weigh(kv.token_to_kv_pool, seen)
    return said


class Cache:
    """Stands for the radix tree: the assembler asks it for its components and its page."""

    _enable_metrics_flag = False

    def __init__(self, components, page_size):
        self.components = {name: type("Component", (), {})() for name in components}
        self.page_size, self.sidecars = page_size, []

    def register_sidecar_pool(self, spec, entry=None):
        self.sidecars.append((spec, entry))


def host(args, target, drafts):
    """The host pools as the engine's assembler chooses and sizes them, with the draft's."""
    kvcache = target.token_to_kv_pool
    plan = draft_plan(target, drafts)
    params = type("Params", (), {})()
    params.token_to_kv_pool_allocator = target.kv.token_to_kv_pool_allocator
    params.req_to_token_pool = target.kv.req_to_token_pool
    params.page_size = get_schedule().page_size
    params.mtp_draft_device_pools = target.mtp_draft_device_pools
    params.mtp_draft_mamba_pools = target.mtp_draft_mamba_pools
    for name in ("tp_cache_group", "attn_cp_cache_group", "attn_tp_cache_group", "pp_cache_group"):
        setattr(params, name, None)
    components = {ComponentType.FULL}
    if isinstance(kvcache, SWAKVPool) or getattr(kvcache, "needs_paged_swa_allocator", False):
        components.add(ComponentType.SWA)
    if target.kv_cache_configurator.mambaish_config is not None:
        components.add(ComponentType.MAMBA)
    cache = Cache(components, params.page_size)
    with auto_size_hicache(params, plan, enabled=True):
        assembler.attach_hybrid_pool_to_unified_cache(cache, params, args, load_cache_event=None)
        entries = list(cache.host_pool_group.entries)
        if plan.mode == base_spec_worker.HiCacheDraftMode.SIDECAR:
            entries += assembler.build_hicache_draft_sidecars(
                draft_device_pools=plan.device_pools, tree_cache=cache
            )[1]
    return [weighed(entry) for entry in entries]


def draft_plan(target, drafts):
    """As the speculative worker decides it: packed into the target's pool, or a pool of its own."""
    worker = object.__new__(type("Worker", (base_spec_worker.BaseSpecWorker,), {}))
    worker.__class__.__abstractmethods__ = frozenset()
    worker._target_worker = type("Target", (), {"model_runner": target})()
    worker._draft_model_runners = lambda: tuple(drafts)
    return worker._build_hicache_draft_plan()


def weighed(entry):
    pool = entry.host_pool
    names = [name for name in vars(pool) if "buffer" in name or name in ("kv_buffer",)]
    return {
        "name": str(getattr(entry.name, "value", entry.name)),
        "class": type(pool).__name__,
        "tokens": pool.size,
        "bytes_per_token": getattr(pool, "size_per_token", None),
        "buffers": weigh({name: vars(pool)[name] for name in names}, set()),
    }
