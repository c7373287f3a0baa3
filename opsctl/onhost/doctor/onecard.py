"""One card, as `nvidia-smi -q -x` tells of it: memory errors, resets, modes, its link and its pace.

The kinds of faults stand in `gpu`, beside what is judged of all cards together.
"""

from __future__ import annotations

from typing import Any, Mapping

from opsctl.onhost.doctor.fault import Found


def judge(card: Mapping[str, Any], found: Found) -> None:
    gpu = card["index"]
    where = f"GPU {gpu}"
    _memory(card, where, found)
    if card["reset_required"] == "Yes":
        found.fault("gpu-reset", f"{where} asks for a reset", gpu=gpu)
    if card["recovery"] not in ("", "None"):
        text = f"{where} asks for: {card['recovery']}"
        found.fault("gpu-recovery", text, gpu=gpu, action=card["recovery"])
    if card["mig_pending"] and card["mig_pending"] != card["mig"]:
        now = 1 if card["mig"] == "Enabled" else 0
        text = f"{where}: MIG is {card['mig']}, {card['mig_pending']} waits"
        found.fault("gpu-mig-pending", text, gpu=gpu, now=now)
    if card["persistence"] == "Disabled":
        found.fault("persistence-off", f"{where}: persistence mode is off")
    if card["compute_mode"] == "Prohibited":
        found.fault("compute-prohibited", f"{where}: compute mode Prohibited", gpu=gpu)
    elif card["compute_mode"].startswith("Exclusive"):
        found.fault("compute-exclusive", f"{where}: compute mode {card['compute_mode']}", gpu=gpu)
    _pace(card, where, found)
    joined = card["fabric"] == "Completed" and card["fabric_status"] in ("", "Success")
    if card["fabric"] and not joined:
        text = f"{where}: fabric state {card['fabric']}, status {card['fabric_status'] or 'none'}"
        found.fault("fabric-wait", text, gpu=gpu)


def _memory(card: Mapping[str, Any], where: str, found: Found) -> None:
    gpu = card["index"]
    if card["volatile"]:
        text = f"{where}: {card['volatile']} uncorrectable ECC errors since boot"
        found.fault("ecc-volatile", text, gpu=gpu)
    elif card["aggregate"]:
        text = f"{where}: {card['aggregate']} uncorrectable ECC errors in its life"
        found.fault("ecc-aggregate", text, gpu=gpu)
    if card["sram_threshold"] == "Yes":
        found.fault("ecc-sram", f"{where}: the SRAM's threshold of errors is exceeded")
    if card["ecc_pending"] and card["ecc_pending"] != card["ecc"]:
        text = f"{where}: ECC is {card['ecc']}, {card['ecc_pending']} waits"
        found.fault("ecc-pending", text, gpu=gpu)
    if card["remap_failure"] == "Yes":
        found.fault("rows-failed", f"{where}: remapping of a row has failed")
    elif card["remap_pending"] == "Yes":
        found.fault("rows-pending", f"{where}: remapping of a row waits for a reset", gpu=gpu)
    if card["retire_pending"] == "Yes":
        found.fault("pages-pending", f"{where}: pages wait to be retired", gpu=gpu)


def _pace(card: Mapping[str, Any], where: str, found: Found) -> None:
    gpu = card["index"]
    if card["width"] and card["width_max"] and card["width"] < card["width_max"]:
        text = f"{where}: {card['width']:.0f} of {card['width_max']:.0f} lanes"
        found.fault("link-narrow", text, gpu=gpu)
    works = card["pstate"] in ("P0", "P1", "P2") and (card["util"] or 0) >= 20
    if works and card["gen"] and card["gen_max"] and card["gen"] < card["gen_max"]:
        text = f"{where}: PCIe generation {card['gen']:.0f} of {card['gen_max']:.0f} while it works"
        found.fault("link-slow", text, gpu=gpu)
    if card["power"] and card["power_default"] and card["power"] < card["power_default"] - 1:
        text = f"{where}: {card['power']:.0f} W of {card['power_default']:.0f} W"
        found.fault("power-cap", text, gpu=gpu, watts=f"{card['power_default']:.0f}")
    if card["brake"]:
        found.fault("power-brake", f"{where}: the hardware's power brake is on")
    if card["thermal"]:
        found.fault("thermal", f"{where} slows down for heat", gpu=gpu)
