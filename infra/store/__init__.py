"""Object stores: a local folder and S3 behind one protocol. Errors of boto3 must not leave this room."""
