# Compaction beside the server: an application without any capacity of its own, and a schedule that starts `silt compact`.
locals {
  # arn:partition:emr-serverless:region:account:/applications/id
  place     = split(":", aws_emrserverless_application.jobs.arn)
  partition = local.place[1]
  region    = local.place[3]
  account   = local.place[4]

  bucket      = split("/", var.root_uri)[2]
  folder      = "${join("/", slice(split("/", var.root_uri), 3, length(split("/", var.root_uri))))}-emr"
  environment = "s3://${local.bucket}/${local.folder}/environment.tar.gz"
  python      = "./environment/bin/python3"

  parameters = {
    "spark.archives"                                                = "${local.environment}#environment"
    "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"          = local.python
    "spark.emr-serverless.driverEnv.PYSPARK_PYTHON"                 = local.python
    "spark.executorEnv.PYSPARK_PYTHON"                              = local.python
    "spark.emr-serverless.driverEnv.SILT_ROOT"                      = var.root_uri
    "spark.emr-serverless.driverEnv.SILT_S3_REGION"                 = var.s3_region
    "spark.driver.cores"                                            = "2"
    "spark.driver.memory"                                           = "6g"
    "spark.executor.cores"                                          = "2"
    "spark.executor.memory"                                         = "6g"
    "spark.dynamicAllocation.initialExecutors"                      = "1"
    "spark.dynamicAllocation.maxExecutors"                          = tostring(var.executors_max)
    "spark.emr-serverless.driver.disk"                              = "20g"
    "spark.emr-serverless.executor.disk"                            = "20g"
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs" = "false"
  }
}

resource "aws_emrserverless_application" "jobs" {
  name          = "${var.name}-jobs"
  type          = "spark"
  release_label = var.release_label
  architecture  = "X86_64"
  tags          = var.tags

  auto_start_configuration {
    enabled = true
  }

  auto_stop_configuration {
    enabled              = true
    idle_timeout_minutes = 1
  }

  # The bill's upper end: a driver, executors_max executors, and as much again for a run that overlaps.
  maximum_capacity {
    cpu    = "${4 * (1 + var.executors_max)} vCPU"
    memory = "${16 * (1 + var.executors_max)} GB"
    disk   = "${40 * (1 + var.executors_max)} GB"
  }

  dynamic "network_configuration" {
    for_each = length(var.subnet_ids) == 0 ? [] : [var.subnet_ids]

    content {
      subnet_ids         = network_configuration.value
      security_group_ids = var.security_group_ids
    }
  }
}

resource "aws_s3_object" "job" {
  bucket  = local.bucket
  key     = "${local.folder}/job.py"
  content = file("${path.module}/job.py")
  tags    = var.tags
}

resource "aws_cloudwatch_log_group" "jobs" {
  name              = "/siltlog/${var.name}/jobs"
  retention_in_days = var.log_days
  kms_key_id        = var.log_kms_key_arn
  tags              = var.tags
}

resource "aws_scheduler_schedule" "compact" {
  name                = "${var.name}-compact"
  description         = "Merges the small files of Siltlog's tables"
  schedule_expression = var.schedule
  state               = var.enabled ? "ENABLED" : "DISABLED"

  flexible_time_window {
    mode = "OFF"
  }

  target {
    arn      = "arn:${local.partition}:scheduler:::aws-sdk:emrserverless:startJobRun"
    role_arn = aws_iam_role.schedule.arn

    input = jsonencode({
      ApplicationId           = aws_emrserverless_application.jobs.id
      ClientToken             = "<aws.scheduler.execution-id>"
      ExecutionRoleArn        = aws_iam_role.jobs.arn
      ExecutionTimeoutMinutes = 60
      Name                    = "compact"
      JobDriver = {
        SparkSubmit = {
          EntryPoint            = "s3://${local.bucket}/${aws_s3_object.job.key}"
          EntryPointArguments   = ["compact"]
          SparkSubmitParameters = join(" ", [for name, value in local.parameters : "--conf ${name}=${value}"])
        }
      }
      ConfigurationOverrides = {
        MonitoringConfiguration = {
          CloudWatchLoggingConfiguration = { Enabled = true, LogGroupName = aws_cloudwatch_log_group.jobs.name }
        }
      }
    })

    # The next run does what this one did not.
    retry_policy {
      maximum_retry_attempts       = 0
      maximum_event_age_in_seconds = 300
    }
  }
}

resource "aws_cloudwatch_event_rule" "failed" {
  name        = "${var.name}-compact-failed"
  description = "A run of Siltlog's compaction failed"
  tags        = var.tags

  event_pattern = jsonencode({
    source      = ["aws.emr-serverless"]
    detail-type = ["EMR Serverless Job Run State Change"]
    detail      = { state = ["FAILED"], applicationId = [aws_emrserverless_application.jobs.id] }
  })
}

resource "aws_cloudwatch_event_target" "failed" {
  for_each = toset(var.alarm_topic_arns)

  rule = aws_cloudwatch_event_rule.failed.name
  arn  = each.value
}
