"""Measurements beside the peers, in the same run: what `glassformer bench` prints."""
