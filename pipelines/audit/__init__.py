"""Audits what is stored: it reads everything and compares it with what the log says. It repairs nothing."""
