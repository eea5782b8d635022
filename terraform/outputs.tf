output "bucket" {
  description = "Name of the bucket."
  value       = aws_s3_bucket.lake.id
}

output "region" {
  description = "Region of the bucket, for SILT_S3_REGION."
  value       = aws_s3_bucket.lake.region
}

output "root_uri" {
  description = "Siltlog's root, for SILT_ROOT."
  value       = "s3://${aws_s3_bucket.lake.id}/${var.prefix}"
}

output "server_policy_arn" {
  description = "Policy for the role that silt serve runs as."
  value       = aws_iam_policy.server.arn
}

output "jobs_policy_arn" {
  description = "Policy for the role that the jobs run as."
  value       = aws_iam_policy.jobs.arn
}
