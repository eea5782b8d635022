"""`python -m siltlog.openapi > docs/openapi.json`"""

import sys

from siltlog.openapi.http import encoded

sys.stdout.buffer.write(encoded() + b"\n")
