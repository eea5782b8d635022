variable "subnet_id" {
  description = "Subnet of the server, and by it the VPC and the availability zone of its volume: a private one, with a way out to HTTPS."
  type        = string

  validation {
    condition     = can(regex("^subnet-[0-9a-f]+$", var.subnet_id))
    error_message = "subnet_id must be the id of a subnet (subnet-0123456789abcdef0)."
  }
}

variable "zone_id" {
  description = "Hosted zone of Route 53 that host_name is in, better a private one of the VPC."
  type        = string

  validation {
    condition     = can(regex("^Z[A-Z0-9]+$", var.zone_id))
    error_message = "zone_id must be the id of a hosted zone (Z0123456789ABC)."
  }
}

variable "host_name" {
  description = "Name by which clients call the server; its certificate is for this name."
  type        = string

  validation {
    condition     = can(regex("^([a-z0-9]([a-z0-9-]*[a-z0-9])?\\.)+[a-z]+$", var.host_name))
    error_message = "host_name must be a full name in lower case (log.example.internal), without a dot at its end."
  }
}

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

variable "server_policy_arn" {
  description = "Policy of the server: output of the bucket."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:policy/", var.server_policy_arn))
    error_message = "server_policy_arn must be the ARN of a policy."
  }
}

variable "jobs_policy_arn" {
  description = "Policy of the jobs, which the server runs besides compaction: output of the bucket."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:policy/", var.jobs_policy_arn))
    error_message = "jobs_policy_arn must be the ARN of a policy."
  }
}

variable "name" {
  description = "What names start with; change it to have several servers in one account."
  type        = string
  default     = "siltlog"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,50}$", var.name))
    error_message = "name must have 1 to 50 letters, digits, '_' and '-'."
  }
}

variable "siltlog_version" {
  description = "Version of Siltlog; another one replaces the machine."
  type        = string
  default     = "0.1.0"

  validation {
    condition     = can(regex("^[0-9]+(\\.[0-9]+)+([a-z0-9.+]*)$", var.siltlog_version))
    error_message = "siltlog_version must be a version (0.1.0)."
  }
}

variable "instance_type" {
  description = "Type of the machine: x86_64, with two cores and 8 GiB or more where it compacts."
  type        = string
  default     = "m7i.large"

  validation {
    condition     = can(regex("^[a-z0-9-]+\\.[a-z0-9-]+$", var.instance_type))
    error_message = "instance_type must be a type of EC2 (m7i.large)."
  }
}

variable "image_id" {
  description = "Image of the machine, an Amazon Linux 2023 for x86_64; without one the newest of Amazon's at the first apply."
  type        = string
  default     = null

  validation {
    condition     = var.image_id == null || can(regex("^ami-[0-9a-f]+$", var.image_id))
    error_message = "image_id must be the id of an image (ami-0123456789abcdef0)."
  }
}

variable "volume_gib" {
  description = "GiB of the volume for what is in no table yet; 20 for SILT_WAL_BYTES_MAX of 4 GiB."
  type        = number
  default     = 20

  validation {
    condition     = var.volume_gib >= 10 && var.volume_gib <= 16384 && floor(var.volume_gib) == var.volume_gib
    error_message = "volume_gib must be a whole number from 10 to 16384."
  }
}

variable "volume_iops" {
  description = "Operations a second of the volume; 3,000 cost nothing extra."
  type        = number
  default     = 3000

  validation {
    condition     = var.volume_iops >= 3000 && var.volume_iops <= 16000
    error_message = "volume_iops must be from 3000 to 16000."
  }
}

variable "volume_mib_per_second" {
  description = "MiB a second of the volume; 125 cost nothing extra."
  type        = number
  default     = 125

  validation {
    condition     = var.volume_mib_per_second >= 125 && var.volume_mib_per_second <= 1000
    error_message = "volume_mib_per_second must be from 125 to 1000."
  }
}

variable "compacts" {
  description = "Whether the machine merges small files itself, every ten minutes; false where the module emr does."
  type        = bool
  default     = true

  validation {
    condition     = var.compacts != null
    error_message = "compacts must be true or false."
  }
}

variable "kms_key_arn" {
  description = "KMS key of the volume and of the secrets; without one AWS's own encrypt them."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-zA-Z0-9-]+$", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key (arn:aws:kms:region:account:key/id), not an alias."
  }
}

variable "client_security_group_ids" {
  description = "Security groups whose machines reach the server. Without these and networks nobody does."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.client_security_group_ids : can(regex("^sg-[0-9a-f]+$", each))])
    error_message = "client_security_group_ids must be ids of security groups (sg-0123456789abcdef0)."
  }
}

variable "client_cidr_blocks" {
  description = "Networks that reach the server: of your own, never of everybody."
  type        = list(string)
  default     = []

  validation {
    condition     = alltrue([for each in var.client_cidr_blocks : can(cidrnetmask(each)) && try(tonumber(split("/", each)[1]) >= 8, false)])
    error_message = "client_cidr_blocks must be networks (10.0.0.0/16) of /8 or smaller: a server for everybody stands behind a load balancer."
  }
}

variable "session_manager" {
  description = "Whether AWS Systems Manager may open a shell on the machine: the only way onto it, there is no SSH."
  type        = bool
  default     = true

  validation {
    condition     = var.session_manager != null
    error_message = "session_manager must be true or false."
  }
}

variable "alarm_topic_arns" {
  description = "SNS topics that are told of alarms and of their end."
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
