# What somebody must hear of at night, of what boot/measure.sh tells each minute and of what EC2 and EBS tell. Without a
# number Siltlog's own are in alarm: a machine that says nothing is not well.
locals {
  of_siltlog = { Name = var.name }
  of_group   = { AutoScalingGroupName = aws_autoscaling_group.server.name }
  of_volume  = { VolumeId = aws_ebs_volume.wal.id }

  alarms = {
    not-ready = {
      about = "Publishes are not acknowledged: docs/runbooks.md, SiltNotReady"
      of    = local.of_siltlog, namespace = "Siltlog", metric = "Ready", statistic = "Minimum"
      sign  = "LessThanThreshold", threshold = 1, minutes = 3, missing = "breaching"
    }
    wal-filling = {
      about = "Tables are not written as fast as records come: docs/runbooks.md, SiltWalFilling"
      of    = local.of_siltlog, namespace = "Siltlog", metric = "WalUsedPercent", statistic = "Maximum"
      sign  = "GreaterThanThreshold", threshold = 70, minutes = 5, missing = "breaching"
    }
    disk-filling = {
      about = "The volume of the log is nearly full: docs/runbooks.md, SiltDiskFilling"
      of    = local.of_siltlog, namespace = "Siltlog", metric = "DiskUsedPercent", statistic = "Maximum"
      sign  = "GreaterThanThreshold", threshold = 80, minutes = 5, missing = "breaching"
    }
    certificate = {
      about = "The certificate ends within two weeks: docs/runbooks.md, SiltCredentials"
      of    = local.of_siltlog, namespace = "Siltlog", metric = "CertificateDays", statistic = "Minimum"
      sign  = "LessThanThreshold", threshold = 14, minutes = 5, missing = "missing"
    }
    no-instance = {
      about = "No instance of the group is in service"
      of    = local.of_group, namespace = "AWS/AutoScaling", metric = "GroupInServiceInstances", statistic = "Minimum"
      sign  = "LessThanThreshold", threshold = 1, minutes = 5, missing = "breaching"
    }
    machine = {
      about = "The machine fails EC2's checks; the group is to replace it"
      of    = local.of_group, namespace = "AWS/EC2", metric = "StatusCheckFailed", statistic = "Maximum"
      sign  = "GreaterThanThreshold", threshold = 0, minutes = 3, missing = "missing"
    }
    volume-stalled = {
      about = "The volume of the log does not answer: nothing is acknowledged"
      of    = local.of_volume, namespace = "AWS/EBS", metric = "VolumeStalledIOCheck", statistic = "Maximum"
      sign  = "GreaterThanThreshold", threshold = 0, minutes = 2, missing = "missing"
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "server" {
  for_each = local.alarms

  alarm_name          = "${var.name}-${each.key}"
  alarm_description   = each.value.about
  namespace           = each.value.namespace
  metric_name         = each.value.metric
  dimensions          = each.value.of
  statistic           = each.value.statistic
  comparison_operator = each.value.sign
  threshold           = each.value.threshold
  period              = 60
  evaluation_periods  = each.value.minutes
  treat_missing_data  = each.value.missing
  alarm_actions       = var.alarm_topic_arns
  ok_actions          = var.alarm_topic_arns
  tags                = var.tags
}
