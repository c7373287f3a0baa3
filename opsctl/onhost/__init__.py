"""The ground floor: what runs on the host. Standard library only, Python 3.9 and newer.

It travels in every release as one zipapp; the controller and the post-deploy checks import the
same code. Nothing here may import from the rest of opsctl.
"""
