variable "bucket_name" {
  description = "Name of the bucket that holds the tables; it is created."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$", var.bucket_name))
    error_message = "bucket_name must have 3 to 63 lower-case letters, digits and hyphens, and must start and end with a letter or digit (dots break TLS host names)."
  }
}

variable "prefix" {
  description = "Folder of the bucket that is Siltlog's root; both policies end at it."
  type        = string
  default     = "siltlog"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]+(/[a-zA-Z0-9_-]+)*$", var.prefix))
    error_message = "prefix must be one or more folder names out of letters, digits, '_' and '-', joined by '/', with no '/' at either end."
  }
}

variable "name" {
  description = "What the names of the two policies start with; change it to have several Siltlogs in one account."
  type        = string
  default     = "siltlog"

  validation {
    condition     = can(regex("^[a-zA-Z0-9_-]{1,100}$", var.name))
    error_message = "name must have 1 to 100 letters, digits, '_' and '-'."
  }
}

variable "undelete_days" {
  description = "Days for which a deleted object can be brought back before it is gone for good."
  type        = number
  default     = 7

  validation {
    condition     = var.undelete_days >= 1 && var.undelete_days <= 365 && floor(var.undelete_days) == var.undelete_days
    error_message = "undelete_days must be a whole number from 1 to 365."
  }
}

variable "kms_key_arn" {
  description = "KMS key that encrypts the objects; without one S3 encrypts them with its own keys."
  type        = string
  default     = null

  validation {
    condition     = var.kms_key_arn == null || can(regex("^arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[a-zA-Z0-9-]+$", var.kms_key_arn))
    error_message = "kms_key_arn must be the ARN of a KMS key (arn:aws:kms:region:account:key/id), not an alias."
  }
}

variable "places" {
  description = "Where else the jobs may read and write: backups and exports. Each with the ARN of a bucket and a folder of it."
  type = list(object({
    bucket_arn = string
    prefix     = string
  }))
  default = []

  validation {
    condition = alltrue([
      for place in var.places :
      can(regex("^arn:aws[a-z-]*:s3:::[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", place.bucket_arn)) &&
      can(regex("^[a-zA-Z0-9_-]+(/[a-zA-Z0-9_-]+)*$", place.prefix))
    ])
    error_message = "places must each have the ARN of a bucket (arn:aws:s3:::name) and a prefix without '/' at either end."
  }
}

variable "journals" {
  description = "Where journals are, if not in the root (SILT_JOURNAL_ROOT): the ARN of a bucket and a folder of it. One at most."
  type = list(object({
    bucket_arn = string
    prefix     = string
  }))
  default = []

  validation {
    condition = length(var.journals) <= 1 && alltrue([
      for place in var.journals :
      can(regex("^arn:aws[a-z-]*:s3:::[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", place.bucket_arn)) &&
      can(regex("^[a-zA-Z0-9_-]+(/[a-zA-Z0-9_-]+)*$", place.prefix))
    ])
    error_message = "journals must be one place at most, with the ARN of a bucket (arn:aws:s3:::name) and a prefix without '/' at either end."
  }
}

variable "tags" {
  description = "Tags of everything that is created."
  type        = map(string)
  default     = {}
}
