output "url" {
  description = "Where clients find the server, for SILT_URL."
  value       = "https://${var.host_name}:${local.port}"
}

output "secret_names" {
  description = "Secrets that want values before the server starts: secret, tls.crt, tls.key."
  value       = sort([for secret in aws_secretsmanager_secret.server : secret.name])
}

output "group_name" {
  description = "Auto-scaling group of one, by which its instance is found."
  value       = aws_autoscaling_group.server.name
}

output "volume_id" {
  description = "Volume with the write-ahead log."
  value       = aws_ebs_volume.wal.id
}

output "security_group_id" {
  description = "Security group of the server."
  value       = aws_security_group.server.id
}

output "role_name" {
  description = "Role of the machine, for more policies."
  value       = aws_iam_role.server.name
}
