"""Data sets, image decoding, augmentation and batches on the device."""

from vista.data.source import Source, load, names

__all__ = ["Source", "load", "names"]
