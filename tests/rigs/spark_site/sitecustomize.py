"""Python imports it as it starts where this folder is on PYTHONPATH: Spark's workers take the installed pyspark.

Spark puts an archive of it first, which has no bytecode: each worker would compile all that it imports, which takes
four times as long.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("/pyspark.zip")]
