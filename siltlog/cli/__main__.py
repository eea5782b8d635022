from siltlog.cli.main import main

main()
