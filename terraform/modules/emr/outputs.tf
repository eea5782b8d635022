output "application_id" {
  description = "Application of EMR Serverless."
  value       = aws_emrserverless_application.jobs.id
}

output "environment_uri" {
  description = "Where the environment of the jobs is to be put, before the first run."
  value       = local.environment
}

output "log_group" {
  description = "Log of the runs in CloudWatch."
  value       = aws_cloudwatch_log_group.jobs.name
}

output "role_arn" {
  description = "Role of the jobs."
  value       = aws_iam_role.jobs.arn
}
