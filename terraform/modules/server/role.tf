data "aws_iam_policy_document" "assume" {
  statement {
    actions = ["sts:AssumeRole"]

    principals {
      type        = "Service"
      identifiers = ["ec2.amazonaws.com"]
    }
  }
}

resource "aws_iam_role" "server" {
  name               = "${var.name}-server"
  description        = "What the machine of Siltlog's server runs as"
  assume_role_policy = data.aws_iam_policy_document.assume.json
  tags               = var.tags
}

resource "aws_iam_instance_profile" "server" {
  name = "${var.name}-server"
  role = aws_iam_role.server.name
  tags = var.tags
}

# The server runs retention, vacuum and audits itself: it has both policies of the bucket.
resource "aws_iam_role_policy_attachment" "bucket" {
  for_each = { server = var.server_policy_arn, jobs = var.jobs_policy_arn }

  role       = aws_iam_role.server.name
  policy_arn = each.value
}

resource "aws_iam_role_policy_attachment" "session_manager" {
  count = var.session_manager ? 1 : 0

  role       = aws_iam_role.server.name
  policy_arn = "arn:${local.partition}:iam::aws:policy/AmazonSSMManagedInstanceCore"
}

resource "aws_iam_role_policy" "server" {
  name   = "machine"
  role   = aws_iam_role.server.id
  policy = data.aws_iam_policy_document.server.json
}

data "aws_iam_policy_document" "server" {
  statement {
    sid       = "AttachTheVolume"
    actions   = ["ec2:AttachVolume"]
    resources = [aws_ebs_volume.wal.arn]
  }

  statement {
    sid       = "AttachItToOneOfTheGroup"
    actions   = ["ec2:AttachVolume"]
    resources = ["arn:${local.partition}:ec2:${local.region}:${local.account}:instance/*"]

    condition {
      test     = "StringEquals"
      variable = "aws:ResourceTag/siltlog"
      values   = [var.name]
    }
  }

  statement {
    sid       = "ReadItsSecrets"
    actions   = ["secretsmanager:GetSecretValue"]
    resources = [for secret in aws_secretsmanager_secret.server : secret.arn]
  }

  # The action knows no resources: its namespace is what ends it.
  statement {
    sid       = "TellHowItIs"
    actions   = ["cloudwatch:PutMetricData"]
    resources = ["*"]

    condition {
      test     = "StringEquals"
      variable = "cloudwatch:namespace"
      values   = ["Siltlog"]
    }
  }

  statement {
    sid       = "SayItsAddress"
    actions   = ["route53:ChangeResourceRecordSets"]
    resources = ["arn:${local.partition}:route53:::hostedzone/${var.zone_id}"]

    condition {
      test     = "ForAllValues:StringEquals"
      variable = "route53:ChangeResourceRecordSetsNormalizedRecordNames"
      values   = [lower(var.host_name)]
    }

    condition {
      test     = "ForAllValues:StringEquals"
      variable = "route53:ChangeResourceRecordSetsRecordTypes"
      values   = ["A"]
    }
  }

  # Secrets are decrypted for the machine; a volume by EC2 on its behalf.
  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "ReadWhatTheKeyEncrypts"
      actions   = ["kms:Decrypt"]
      resources = [statement.value]
    }
  }

  dynamic "statement" {
    for_each = var.kms_key_arn == null ? [] : [var.kms_key_arn]

    content {
      sid       = "LetTheVolumeUseTheKey"
      actions   = ["kms:CreateGrant"]
      resources = [statement.value]

      condition {
        test     = "Bool"
        variable = "kms:GrantIsForAWSResource"
        values   = ["true"]
      }
    }
  }
}
