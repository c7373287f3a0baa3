"""GPU memory of a rank: what a token takes, how many fit, and the pools that come of it.

`device` answers for every pipeline stage that has a rank on this host. Sources: the released
packages 0.5.2 to 0.5.23; each file names those that it was read from.
"""

from opsctl.forecast.device.answer import device
from opsctl.forecast.device.fraction import default_fraction
from opsctl.forecast.device.page import page

__all__ = ["default_fraction", "device", "page"]
