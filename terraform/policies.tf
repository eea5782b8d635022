locals {
  root   = "${aws_s3_bucket.lake.arn}/${var.prefix}"
  topics = "${local.root}/topics"
}

# What both may do: find and read what is under the root, and nothing beside it.
data "aws_iam_policy_document" "read" {
  statement {
    sid       = "FindTheBucket"
    actions   = ["s3:GetBucketLocation"]
    resources = [aws_s3_bucket.lake.arn]
  }

  statement {
    sid       = "ListUnderTheRoot"
    actions   = ["s3:ListBucket"]
    resources = [aws_s3_bucket.lake.arn]

    # Asked for an object that is not there, S3 takes its key for the prefix: under the root it answers 404, not 403.
    condition {
      test     = "StringLike"
      variable = "s3:prefix"
      values   = [var.prefix, "${var.prefix}/*"]
    }
  }

  statement {
    sid       = "ReadUnderTheRoot"
    actions   = ["s3:GetObject"]
    resources = ["${local.root}/*"]
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "UseTheKey"
      actions   = ["kms:Decrypt", "kms:GenerateDataKey"]
      resources = [statement.value]
    }
  }
}

# The server writes files and commits. It deletes log entries behind a checkpoint and producer state that newer
# state covers, never a data file: those go by vacuum alone.
data "aws_iam_policy_document" "server" {
  source_policy_documents = [data.aws_iam_policy_document.read.json]

  statement {
    sid       = "WriteTablesAndClusterState"
    actions   = ["s3:PutObject", "s3:AbortMultipartUpload"]
    resources = ["${local.topics}/*", "${local.root}/cluster/*"]
  }

  statement {
    sid       = "CleanUpLogAndProducerState"
    actions   = ["s3:DeleteObject"]
    resources = ["${local.topics}/*/_delta_log/*", "${local.topics}/*/_state/*", "${local.root}/cluster/schedule/*"]
  }
}

# A job writes into the folder of its own run, commits, and deletes data files that no live version names. It can
# touch no commit: `_delta_log` is written, never deleted.
data "aws_iam_policy_document" "jobs" {
  source_policy_documents = [data.aws_iam_policy_document.read.json]

  statement {
    sid       = "WriteRewritesAndCommits"
    actions   = ["s3:PutObject", "s3:AbortMultipartUpload"]
    resources = ["${local.topics}/*/rewrite-*", "${local.topics}/*/_delta_log/*"]
  }

  statement {
    sid       = "RemoveDataFiles"
    actions   = ["s3:DeleteObject"]
    resources = ["${local.topics}/*/partition=*", "${local.topics}/*/rewrite-*"]
  }

  statement {
    sid       = "RunTheSchedule"
    actions   = ["s3:PutObject", "s3:DeleteObject"]
    resources = ["${local.root}/cluster/schedule/*"]
  }
}

resource "aws_iam_policy" "server" {
  name        = "${var.name}-server"
  description = "What silt serve needs of ${var.bucket_name}/${var.prefix}"
  policy      = data.aws_iam_policy_document.server.json
  tags        = var.tags
}

resource "aws_iam_policy" "jobs" {
  name        = "${var.name}-jobs"
  description = "What Siltlog's jobs (compact, retain, vacuum) need of ${var.bucket_name}/${var.prefix}"
  policy      = data.aws_iam_policy_document.jobs.json
  tags        = var.tags
}
