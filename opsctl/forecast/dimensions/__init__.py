"""config.json → the tensors that its checkpoint must hold, where the files cannot be read.

A newcomer has the model's config.json and no host. The tensors' names and shapes follow from the
model classes of the released packages; forecast/weights.py then shards them like real ones. What
is not sure carries its own band.
"""

from opsctl.forecast.dimensions.checkpoint import eagle, imagined

__all__ = ["eagle", "imagined"]
