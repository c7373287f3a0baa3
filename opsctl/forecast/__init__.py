"""Model geometry → KV tokens → host pools → expectation and verdict. Pure."""

from opsctl.forecast.expectation import (
    Forecast,
    expectation,
    explain,
    forecast,
)
from opsctl.forecast.standing import still_holds

__all__ = ["Forecast", "expectation", "explain", "forecast", "still_holds"]
