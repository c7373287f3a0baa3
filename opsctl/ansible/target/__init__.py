"""Programs of the roles that run on the host itself: standard library only, Python 3.9 syntax.

Each has `main(args) -> result`. The controller pipes them, with the rooms of the ground floor that
they need, into the host's own Python; nothing is left behind there.

A result is {"changed": bool, "diff": [{"before", "after", "before_header", "after_header"}],
"problems": [text], …}; with a problem nothing was changed after it.
"""
