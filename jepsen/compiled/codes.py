"""What numbers mean to the compiled search of registers; for those, too, who lack numba.

numba keeps what it has compiled with these: they stay what they are.
"""

from __future__ import annotations

READ, WRITE, CAS, FAILED_CAS = 0, 1, 2, 3
"""What an operation does. FAILED_CAS: the value was another one than expected."""
NEVER = 2**63 - 1
"""Where an operation returns whose outcome is unknown."""
VALID, INVALID, OPEN = 0, 1, 2
"""Verdicts. OPEN: too large for the search."""
