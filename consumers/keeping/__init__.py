"""What groups commit, kept beside Redis: one server keeps it in the topic `_offsets`, and the others ask."""
