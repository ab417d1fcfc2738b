"""Formal languages of Chomsky's hierarchy, and which of them small models learn."""
