"""opsctl: run SGLang on bare-metal GPU hosts over SSH, under systemd."""

__version__ = "0.1.0"
