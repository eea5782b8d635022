"""Merges small files, and removes records that a later record of the same key supersedes. Offsets never change."""
