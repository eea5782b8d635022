"""`python -m siltlog.openapi > docs/openapi.json`"""

import sys

from siltlog.openapi.document import document, encoded
from siltlog.server.api import OPERATIONS

sys.stdout.buffer.write(encoded(document(OPERATIONS)) + b"\n")
