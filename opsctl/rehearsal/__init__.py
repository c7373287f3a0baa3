"""The stand-in engine for hosts without GPUs: it plays a scenario file, and says so.

It ships to rehearsal hosts inside a wheel named sglang, so that everything around the engine (the
role, the unit, the guard, the gates) is the real thing. Its figures come from the scenario files,
which quote real logs; nothing here may import opsctl.forecast. Standard library only.
"""
