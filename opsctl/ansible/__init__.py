"""Code of the playbooks' action plugins; the plugin folders only import it.

`target/` holds the programs that run on the host itself: standard library only, Python 3.9.
"""
