# A bucket, a server for the machines of one network, and compaction by EMR Serverless: docs/aws.md goes through it.
terraform {
  required_version = ">= 1.6"

  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.70, < 7.0"
    }
  }
}

variable "bucket_name" {
  description = "Name of the bucket to create."
  type        = string
}

variable "subnet_id" {
  description = "Private subnet of the server, with a way out to HTTPS."
  type        = string
}

variable "zone_id" {
  description = "Hosted zone of the server's name."
  type        = string
}

variable "host_name" {
  description = "Name by which clients call the server."
  type        = string
}

variable "client_cidr_blocks" {
  description = "Networks that reach the server."
  type        = list(string)
  default     = []
}

variable "alarm_topic_arns" {
  description = "SNS topics that are told of alarms."
  type        = list(string)
  default     = []
}

variable "emr_release" {
  description = "Release of EMR Serverless with Spark 4.2; without one the server's machine merges the files."
  type        = string
  default     = null
}

module "bucket" {
  source = "../.."

  bucket_name = var.bucket_name
}

module "server" {
  source = "../../modules/server"

  root_uri           = module.bucket.root_uri
  s3_region          = module.bucket.region
  server_policy_arn  = module.bucket.server_policy_arn
  jobs_policy_arn    = module.bucket.jobs_policy_arn
  subnet_id          = var.subnet_id
  zone_id            = var.zone_id
  host_name          = var.host_name
  client_cidr_blocks = var.client_cidr_blocks
  alarm_topic_arns   = var.alarm_topic_arns
  compacts           = var.emr_release == null
}

module "emr" {
  source = "../../modules/emr"
  count  = var.emr_release == null ? 0 : 1

  root_uri         = module.bucket.root_uri
  s3_region        = module.bucket.region
  jobs_policy_arn  = module.bucket.jobs_policy_arn
  release_label    = var.emr_release
  alarm_topic_arns = var.alarm_topic_arns
}

output "url" {
  description = "Where clients find the server."
  value       = module.server.url
}

output "group_name" {
  description = "Auto-scaling group of the server."
  value       = module.server.group_name
}

output "secret_names" {
  description = "Secrets that want values."
  value       = module.server.secret_names
}

output "root_uri" {
  description = "Siltlog's root."
  value       = module.bucket.root_uri
}

output "environment_uri" {
  description = "Where the environment of EMR Serverless is to be put."
  value       = one(module.emr[*].environment_uri)
}
