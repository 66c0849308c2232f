"""What a training would cost, from formulas alone: PyTorch is needed only to measure this machine."""
