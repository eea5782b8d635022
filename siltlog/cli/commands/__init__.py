"""The commands of `silt`. Each imports what it needs when it runs, so that `silt --help` stays fast."""
