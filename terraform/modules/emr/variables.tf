variable "root_uri" {
  description = "Siltlog's root: output root_uri of the bucket."
  type        = string

  validation {
    condition     = can(regex("^s3://[a-z0-9.-]+(/[a-zA-Z0-9_-]+)+$", var.root_uri))
    error_message = "root_uri must be s3://bucket/folder."
  }
}

variable "s3_region" {
  description = "Region of the bucket: its output region."
  type        = string

  validation {
    condition     = can(regex("^[a-z]+(-[a-z]+)+-[0-9]+$", var.s3_region))
    error_message = "s3_region must be the name of a region (eu-central-1)."
  }
}

variable "jobs_policy_arn" {
  description = "Policy of the jobs: output of the bucket."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:policy/", var.jobs_policy_arn))
    error_message = "jobs_policy_arn must be the ARN of a policy."
  }
}

variable "name" {
  description = "What names start with; change it to have several in one account."
  type        = string
  default     = "siltlog"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,50}$", var.name))
    error_message = "name must have 1 to 50 letters, digits, '_' and '-'."
  }
}

variable "release_label" {
  description = "Release of EMR Serverless: one with Spark 4.2."
  type        = string

  validation {
    condition     = can(regex("^emr-[a-z0-9.-]+$", var.release_label))
    error_message = "release_label must be a release of EMR (emr-…)."
  }
}

variable "schedule" {
  description = "When files are merged, as EventBridge Scheduler writes it."
  type        = string
  default     = "rate(15 minutes)"

  validation {
    condition     = can(regex("^(rate|cron)\\(.+\\)$", var.schedule))
    error_message = "schedule must be rate(15 minutes) or cron(0 * * * ? *)."
  }
}

variable "enabled" {
  description = "Whether the schedule runs; false until environment.tar.gz is in the bucket, or for a pause."
  type        = bool
  default     = true

  validation {
    condition     = var.enabled != null
    error_message = "enabled must be true or false."
  }
}

variable "executors_max" {
  description = "Executors of a run, each with two cores and 8 GB; with the driver they are the most that runs may cost."
  type        = number
  default     = 2

  validation {
    condition     = var.executors_max >= 1 && var.executors_max <= 100 && floor(var.executors_max) == var.executors_max
    error_message = "executors_max must be a whole number from 1 to 100."
  }
}

variable "subnet_ids" {
  description = "Subnets of the workers, where they must reach a VPC; S3 of the region they reach without."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.subnet_ids : can(regex("^subnet-[0-9a-f]+$", each))])
    error_message = "subnet_ids must be ids of subnets (subnet-0123456789abcdef0)."
  }
}

variable "security_group_ids" {
  description = "Security groups of the workers in those subnets."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.security_group_ids : can(regex("^sg-[0-9a-f]+$", each))])
    error_message = "security_group_ids must be ids of security groups (sg-0123456789abcdef0)."
  }
}

variable "log_days" {
  description = "Days for which CloudWatch keeps the log of the runs."
  type        = number
  default     = 30

  validation {
    condition     = contains([1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653], var.log_days)
    error_message = "log_days must be one of the periods of CloudWatch (1, 3, 5, 7, 14, 30, 60, 90, … 3653)."
  }
}

variable "log_kms_key_arn" {
  description = "KMS key of that log, whose policy must let CloudWatch Logs use it; without one CloudWatch's own."
  type        = string
  default     = null

  validation {
    condition     = var.log_kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-zA-Z0-9-]+$", var.log_kms_key_arn))
    error_message = "log_kms_key_arn must be the ARN of a KMS key (arn:aws:kms:region:account:key/id), not an alias."
  }
}

variable "alarm_topic_arns" {
  description = "SNS topics that are told of runs that fail; their policy must let EventBridge publish."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.alarm_topic_arns : can(regex("^arn:aws[a-z-]*:sns:", each))])
    error_message = "alarm_topic_arns must be ARNs of SNS topics."
  }
}

variable "tags" {
  description = "Tags of everything that is created."
  type        = map(string)
  default     = {}
}
