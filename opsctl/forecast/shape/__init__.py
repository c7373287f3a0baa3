"""config.json → values.Geometry, as the engine derives it; or a refusal that says why.

Everything here is pure and made once per model: the forecast itself works on the Geometry.
"""

from opsctl.forecast.shape.draft import draft_geometry
from opsctl.forecast.shape.linear import state_elements
from opsctl.forecast.shape.target import geometry, multimodal

__all__ = ["draft_geometry", "geometry", "multimodal", "state_elements"]
