"""Histories of which it is known what is wrong, as large as one likes."""
