"""What a training would cost, from formulas alone: nothing here needs PyTorch, a GPU or the data."""
