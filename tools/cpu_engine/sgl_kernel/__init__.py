"""A stand-in for SGLang's kernel package, so that the unmodified engine runs without a GPU.

The real package holds native kernels that need CUDA. Here every name of the package and of its
submodules resolves to a callable that raises when called: imports succeed, and a kernel that a run
really needs is named in the error. With plain flags (torch_native attention, pytorch sampling)
none is called.

SGL_KERNEL_STUB_CUDART=1 also stands in for the CUDA runtime's page pinning and for the stream
methods that torch's CPU streams lack: the hierarchical cache needs them on 0.5.9.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys

__version__ = os.environ.get("SGL_KERNEL_STUB_VERSION", "0.3.21")


class _Missing:
    """A kernel that is not here."""

    def __init__(self, name):
        self.__name__ = self.__qualname__ = name
        self.__module__ = name.rpartition(".")[0]
        self.__doc__ = None

    def __call__(self, *_args, **_kwargs):
        raise NotImplementedError(f"{self.__name__} has no CPU stand-in")


def transfer_kv_direct(src_layers, dst_layers, src_indices, dst_indices, page_size):
    """Copy KV entries between tiers, layer by layer: HiCache's "direct" way with layer_first."""
    del page_size
    for source, target in zip(src_layers, dst_layers, strict=True):
        moved = source[src_indices.to(source.device)]
        target[dst_indices.to(target.device)] = moved.to(target.device)


def _lookup(module):
    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(name)
        return globals()[name] if name == "transfer_kv_direct" else _Missing(f"{module}.{name}")

    return __getattr__


class _Submodules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes every sgl_kernel.X importable. The engine has its own fallback for scalar_type."""

    def find_spec(self, fullname, path, target=None):
        if fullname.startswith("sgl_kernel.") and fullname != "sgl_kernel.scalar_type":
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.__path__ = []
        module.__getattr__ = _lookup(module.__name__)


def _stand_in_for_cudart():
    import torch

    class Runtime:
        def cudaHostRegister(self, *_args):
            return 0

        def cudaHostUnregister(self, *_args):
            return 0

        def cudaGetErrorString(self, *_args):
            return "ok"

    torch.cuda.cudart = lambda: Runtime()
    for name in ("synchronize", "wait_stream", "wait_event", "record_event", "query"):
        if not hasattr(torch.cpu.Stream, name):
            setattr(torch.cpu.Stream, name, lambda self, *args: None)


__getattr__ = _lookup("sgl_kernel")
sys.meta_path.append(_Submodules())
if os.environ.get("SGL_KERNEL_STUB_CUDART") == "1":
    _stand_in_for_cudart()
