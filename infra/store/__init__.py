"""Object stores: a local folder and S3 behind one protocol."""
