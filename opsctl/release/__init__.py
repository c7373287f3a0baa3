"""Service → unit, manifest, secrets files; the digest; the diff. Pure; the only renderer."""

from opsctl.release.model import File, Release
from opsctl.release.render import problems, render

__all__ = ["File", "Release", "problems", "render"]
