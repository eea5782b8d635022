"""What EMR Serverless runs: the command `silt`, in the session that is there."""

from siltlog.cli.main import main

main()
