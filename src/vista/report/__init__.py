"""Figures and the report page, drawn from records only."""
