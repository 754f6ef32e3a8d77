"""Where samples come from, and how they reach the device."""

from vista.data.source import Source, load, names

__all__ = ["Source", "load", "names"]
