"""Commands that put records in and take them out: publish, consume, import, export, replay, dead letters.

None of them writes into the table of a topic.
"""
