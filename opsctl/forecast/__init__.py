"""Model geometry → KV tokens → host pools → start time → expectation and verdict. Pure.

`evaluate` is for figures alone, in a tenth of a millisecond; `forecast` is what staging asks for.
"""

from opsctl.forecast.evaluate import Result, evaluate
from opsctl.forecast.expectation import Forecast, forecast
from opsctl.forecast.standing import still_holds

__all__ = ["Forecast", "Result", "evaluate", "forecast", "still_holds"]
