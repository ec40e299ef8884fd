"""The list of planted bugs: what each breaks, and which property is to notice.

A mutant that no seed brings to light is a hole in the properties: those are to be made stronger,
never this list shorter.
"""

from __future__ import annotations

from tests.mutants.core_catalog import CORE_MUTANTS
from tests.mutants.node_catalog import NODE_MUTANTS

CATALOG = (*CORE_MUTANTS, *NODE_MUTANTS)
