"""Defines the two operators that torchvision's Python code expects of its native library.

The torchvision that the engine's packages ask for was built for another torch, so its native
library does not load beside the CPU build. Only the declarations are missed at import, and the
engine calls neither operator for a text model. A .pth file imports this module at every start of
the interpreter; torch itself is imported only once somebody imports torchvision.
"""

import importlib.abc
import sys

_DECLARATIONS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_keep = []  # a torch Library takes its declarations with it when it is collected


class _BeforeTorchvision(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path, target=None):
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            _declare()


def _declare():
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for declaration in _DECLARATIONS:
        library.define(declaration)
    _keep.append(library)


sys.meta_path.insert(0, _BeforeTorchvision())
