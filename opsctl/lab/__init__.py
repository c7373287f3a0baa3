"""Real hosts on this machine: booted from lab.sh, each with systemd, journald and sshd of its own.

`up` makes them rehearsal hosts too: the stand-in machine, model files, an inventory to deploy with.
"""

from opsctl.lab.lab import down, drill, scenario, ssh, status, up

__all__ = ["down", "drill", "scenario", "ssh", "status", "up"]
