"""A training step of residual networks in kernels of our own. Importing its modules needs Triton."""
