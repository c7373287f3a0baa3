"""What stands in for a machine with GPUs, for both versions of the pool judge.

* Tensors are on PyTorch's "meta" device: they have shapes, dtypes and nbytes, and take no memory,
  so that pools are as large as on a real card. The engine asks for the device's module (streams),
  which "meta" has none of: the CPU's is given.
* Buffers that the engine puts on "cuda" by name are put on "meta" too.
* Pinning a buffer needs a driver: it is left out.
* Free GPU memory, the capacity of a card and free host memory are figures of the case.
* A model type that this Transformers does not know comes with code in its checkpoint, or with a
  newer Transformers: a plain PretrainedConfig stands in, which keeps all fields of the file.
* The process is one rank of a group that does not exist: sizes of groups are set where the
  engine keeps them; a minimum over pipeline stages is taken over all stages, run one after another.
"""

import json
import os
import tempfile
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import torch
from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig

CASE = {}  # what is being judged now
DEVICE = "meta"
GiB = 1 << 30
_folders = Path(tempfile.mkdtemp(prefix="pool-judge-"))
_plain = {}
_device_module = torch.get_device_module
torch.get_device_module = lambda device=None: (
    torch.cpu if str(device or "").startswith(("meta", "cuda")) else _device_module(device)
)


def on_meta(make):
    def made(*args, device=None, **rest):
        return make(*args, device=DEVICE if str(device).startswith("cuda") else device, **rest)

    return made


torch.zeros, torch.empty = on_meta(torch.zeros), on_meta(torch.empty)
torch.cuda.get_device_capability = lambda *_: tuple(CASE["capability"])
torch.cuda.cudart = lambda: SimpleNamespace(
    cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0
)


def known(config):
    kind = config.get("model_type")
    if kind == "deepseek_v32":
        return  # the engine has a way of its own with it
    if kind and (kind not in CONFIG_MAPPING or "auto_map" in config) and kind not in _plain:
        fields = {"model_type": kind, "rope_scaling": None}
        _plain[kind] = type("Plain", (PretrainedConfig,), fields)
        AutoConfig.register(kind, _plain[kind], exist_ok=True)


_numbers = count()


def folder(config):
    """A new model folder with nothing but this config.json: the engine keeps configs by path, and
    a draft's start changes the one that it reads."""
    known(config)
    path = _folders / str(next(_numbers))
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    return str(path)


class Minimum:
    """Stands for torch.distributed.all_reduce(MIN) over pipeline stages.

    All stages run one after another, again and again until nothing changes: the n-th call of a
    stage gets the least of what the stages gave at their n-th call of the round before.
    """

    def __init__(self):
        self.round, self.before, self.calls = [], [], 0

    def stage(self):
        self.round.append([])
        self.calls = 0

    def over(self):
        """True if this round gave what the one before gave."""
        least = [min(values) for values in zip(*self.round, strict=False)]
        same, self.before, self.round = least == self.before, least, []
        return same

    def __call__(self, tensor, op=None, group=None, **_):
        self.round[-1].append(tensor.item())
        if self.calls < len(self.before):
            tensor.fill_(self.before[self.calls])
        self.calls += 1


class environment:
    """Variables of the case; afterwards all is as before, for the engine sets some by itself."""

    def __init__(self, wanted):
        self.wanted = wanted or {}

    def __enter__(self):
        self.before = dict(os.environ)
        os.environ.update(self.wanted)

    def __exit__(self, *_):
        os.environ.clear()
        os.environ.update(self.before)


def tensors(root, seen=None, path=""):
    """(path, tensor) of everything that hangs on an engine's object, each storage once."""
    seen = set() if seen is None else seen
    if isinstance(root, torch.Tensor):
        storage = root.untyped_storage()
        if storage._cdata not in seen:
            seen.add(storage._cdata)
            yield path, root
        return
    if id(root) in seen:
        return
    if isinstance(root, (list, tuple)):
        children = [(path, item) for item in root]
    elif isinstance(root, dict):
        children = [(f"{path}.{key}", item) for key, item in root.items()]
    elif type(root).__module__.startswith("sglang") and not isinstance(root, type):
        names = list(getattr(root, "__dict__", {})) + list(
            getattr(type(root), "__struct_fields__", ())
        )
        children = [(f"{path}.{name}", getattr(root, name)) for name in names]
    else:
        return
    seen.add(id(root))
    for name, child in children:
        yield from tensors(child, seen, name)


def weigh(root, seen):
    """Bytes by path: {path: [bytes, tensors]}."""
    found = {}
    for path, tensor in tensors(root, seen):
        entry = found.setdefault(path.lstrip("."), [0, 0])
        entry[0] += tensor.untyped_storage().nbytes()
        entry[1] += 1
    return found


def stages(case, count, run):
    """What `run(stage)` answers for the stage asked for, once all stages agree."""
    minimum = Minimum()
    torch.distributed.all_reduce = minimum
    while True:
        answers = []
        for stage in range(count):
            minimum.stage()
            CASE["after"] = case["afters"][stage] if "afters" in case else case["after"]
            answers.append(run(stage))
        if count == 1 or minimum.over():
            return answers[case.get("stage", 0)]


def generation():
    """What the engine asks about the card, from its compute capability."""
    major = CASE["capability"][0]
    return {
        "is_sm90": major == 9,
        "is_sm100": major == 10,
        "is_sm120": major == 12,
        "is_blackwell": major in (10, 12),
        "is_hopper_with_cuda_12_3": major == 9,
    }


def memory_of(available):
    return SimpleNamespace(total=1 << 50, available=available, used=0, free=available, percent=0.0)
