locals {
  root   = "${aws_s3_bucket.lake.arn}/${var.prefix}"
  topics = "${local.root}/topics"
}

# What both may do: find and read what is under the root, and nothing beside it.
data "aws_iam_policy_document" "read" {
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

# The server writes files and commits. It deletes log entries behind a checkpoint, producer state that newer state covers
# and what nodes share no more, never a data file: those go by vacuum alone.
data "aws_iam_policy_document" "server" {
  source_policy_documents = [data.aws_iam_policy_document.read.json]

  statement {
    sid     = "WriteTablesAndWhoseTheyAre"
    actions = ["s3:PutObject"]
    resources = [
      "${local.topics}/*/partition=*",
      "${local.topics}/*/_delta_log/*",
      "${local.topics}/*/_cleaned/*",
      "${local.topics}/*/_state/*",
      "${local.root}/cluster/id",
      "${local.root}/cluster/claimed",
      "${local.root}/cluster/stranded/*",
    ]
  }

  # Who may do what; which nodes there are and what each owns; what they acknowledged that no table has yet.
  statement {
    sid     = "WriteWhatNodesShare"
    actions = ["s3:PutObject", "s3:DeleteObject"]
    resources = [
      "${local.root}/cluster/access/*",
      "${local.root}/cluster/nodes/*",
      "${local.root}/cluster/probe/*",
      "${local.root}/cluster/views/*",
      "${local.root}/wal/*",
    ]
  }

  statement {
    sid       = "EndUploadsInParts"
    actions   = ["s3:AbortMultipartUpload"]
    resources = ["${local.topics}/*/_delta_log/*"]
  }

  statement {
    sid       = "CleanUpLogAndProducerState"
    actions   = ["s3:DeleteObject"]
    resources = ["${local.topics}/*/_delta_log/*", "${local.topics}/*/_cleaned/*", "${local.topics}/*/_state/*"]
  }

  # Journals that lie elsewhere; jobs have them among their places.
  dynamic "statement" {
    for_each = var.journals

    content {
      sid       = "ListJournals${statement.key}"
      actions   = ["s3:ListBucket"]
      resources = [statement.value.bucket_arn]

      condition {
        test     = "StringLike"
        variable = "s3:prefix"
        values   = [statement.value.prefix, "${statement.value.prefix}/*"]
      }
    }
  }

  dynamic "statement" {
    for_each = var.journals

    content {
      sid       = "UseJournals${statement.key}"
      actions   = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject"]
      resources = ["${statement.value.bucket_arn}/${statement.value.prefix}/*"]
    }
  }
}

# A job writes into the folder of its own run and commits; a replay keeps its plan and Spark's sink its batches. Vacuum
# deletes what no live version names, of log entries those behind a checkpoint, and what finished runs left.
data "aws_iam_policy_document" "jobs" {
  source_policy_documents = [data.aws_iam_policy_document.read.json]

  statement {
    sid     = "WriteRewritesCommitsAndRuns"
    actions = ["s3:PutObject"]
    resources = [
      "${local.topics}/*/rewrite-*",
      "${local.topics}/*/_delta_log/*",
      "${local.topics}/*/_cleaned/*",
      "${local.root}/cluster/replay/*",
      "${local.root}/cluster/schedule/*",
      "${local.root}/staging/*",
    ]
  }

  statement {
    sid       = "EndUploadsInParts"
    actions   = ["s3:AbortMultipartUpload"]
    resources = ["${local.topics}/*/rewrite-*", "${local.topics}/*/_delta_log/*"]
  }

  statement {
    sid     = "RemoveWhatNobodyNeeds"
    actions = ["s3:DeleteObject"]
    resources = [
      "${local.topics}/*/partition=*",
      "${local.topics}/*/rewrite-*",
      "${local.topics}/*/_delta_log/*",
      "${local.topics}/*/_cleaned/*",
      "${local.topics}/*/_state/*",
      "${local.root}/cluster/probe/*",
      "${local.root}/cluster/replay/*",
      "${local.root}/cluster/schedule/*",
      "${local.root}/staging/*",
      "${local.root}/wal/*",
    ]
  }

  # Backups and exports lie elsewhere.
  dynamic "statement" {
    for_each = concat(var.places, var.journals)

    content {
      sid       = "ListPlace${statement.key}"
      actions   = ["s3:ListBucket"]
      resources = [statement.value.bucket_arn]

      condition {
        test     = "StringLike"
        variable = "s3:prefix"
        values   = [statement.value.prefix, "${statement.value.prefix}/*"]
      }
    }
  }

  dynamic "statement" {
    for_each = concat(var.places, var.journals)

    content {
      sid       = "UsePlace${statement.key}"
      actions   = ["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload", "s3:DeleteObject"]
      resources = ["${statement.value.bucket_arn}/${statement.value.prefix}/*"]
    }
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
  description = "What Siltlog's jobs need of ${var.bucket_name}/${var.prefix}"
  policy      = data.aws_iam_policy_document.jobs.json
  tags        = var.tags
}
