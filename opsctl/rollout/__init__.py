"""The one rollout engine: the CLI and the Ansible plugins call it and nothing else.

said = look(hosts, services)
plan = make("swap", services, said, wanted)
results = run(hosts, plan, reason=…, observer=…)
"""

from opsctl.rollout.look import look
from opsctl.rollout.model import Action, Plan, Result, Results, Wanted
from opsctl.rollout.plan import make
from opsctl.rollout.run import resume, run
from opsctl.rollout.staging import Staged, refuse, stage
from opsctl.rollout.watch import Limits

__all__ = [
    "Action",
    "Limits",
    "Plan",
    "Result",
    "Results",
    "Staged",
    "Wanted",
    "look",
    "make",
    "refuse",
    "resume",
    "run",
    "stage",
]
