"""The folder that processes of a user's script have on ``PYTHONPATH``, so that Python imports its ``sitecustomize``."""
