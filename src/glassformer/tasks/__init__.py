"""The façade's side of a task: everything that belongs to one, joined (see job.py)."""
