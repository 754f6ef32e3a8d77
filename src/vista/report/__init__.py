"""Figures and the page, drawn from records alone."""
