# The job: the policy of the jobs, its own environment, its own log.
data "aws_iam_policy_document" "assume_jobs" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["emr-serverless.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }

    condition {
      test     = "ArnEquals"
      variable = "aws:SourceArn"
      values   = [aws_emrserverless_application.jobs.arn]
    }
  }
}

resource "aws_iam_role" "jobs" {
  name               = "${var.name}-emr-jobs"
  description        = "What Siltlog's jobs on EMR Serverless run as"
  assume_role_policy = data.aws_iam_policy_document.assume_jobs.json
  tags               = var.tags
}

resource "aws_iam_role_policy_attachment" "jobs" {
  role       = aws_iam_role.jobs.name
  policy_arn = var.jobs_policy_arn
}

data "aws_iam_policy_document" "jobs" {
  statement {
    sid       = "ReadItsEnvironment"
    actions   = ["s3:GetObject"]
    resources = ["arn:${local.partition}:s3:::${local.bucket}/${local.folder}/*"]
  }

  statement {
    sid       = "WriteItsLog"
    actions   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    resources = ["${aws_cloudwatch_log_group.jobs.arn}:*"]
  }

  # The action knows no resources.
  statement {
    sid       = "FindItsLog"
    actions   = ["logs:DescribeLogGroups"]
    resources = ["*"]
  }
}

resource "aws_iam_role_policy" "jobs" {
  name   = "environment"
  role   = aws_iam_role.jobs.id
  policy = data.aws_iam_policy_document.jobs.json
}

# The schedule: to start a run of this application, as this role.
data "aws_iam_policy_document" "assume_schedule" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["scheduler.amazonaws.com"]
    }

    condition {
      test     = "StringEquals"
      variable = "aws:SourceAccount"
      values   = [local.account]
    }
  }
}

resource "aws_iam_role" "schedule" {
  name               = "${var.name}-emr-schedule"
  description        = "What starts Siltlog's jobs on EMR Serverless"
  assume_role_policy = data.aws_iam_policy_document.assume_schedule.json
  tags               = var.tags
}

data "aws_iam_policy_document" "schedule" {
  statement {
    sid       = "StartRuns"
    actions   = ["emr-serverless:StartJobRun"]
    resources = [aws_emrserverless_application.jobs.arn]
  }

  statement {
    sid       = "AsTheJobs"
    actions   = ["iam:PassRole"]
    resources = [aws_iam_role.jobs.arn]

    condition {
      test     = "StringEquals"
      variable = "iam:PassedToService"
      values   = ["emr-serverless.amazonaws.com"]
    }
  }
}

resource "aws_iam_role_policy" "schedule" {
  name   = "start"
  role   = aws_iam_role.schedule.id
  policy = data.aws_iam_policy_document.schedule.json
}
