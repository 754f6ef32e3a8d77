"""A training step of residual networks in custom kernels. Importing its modules needs Triton."""
