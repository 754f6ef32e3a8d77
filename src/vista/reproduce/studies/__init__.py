"""One file per table or figure of the paper, or per question that it leaves open.

Every module defines ``STUDIES``, a dictionary from a name that ``vista reproduce`` accepts to a
:class:`vista.reproduce.grid.Study`. A new file in this folder is found without registration.
"""
