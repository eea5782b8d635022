# One server that owns its log: an instance in a group of one, which brings another when it fails, and a volume that
# outlives them all. The volume is in one availability zone, so the instance is, too.
data "aws_subnet" "server" {
  id = var.subnet_id
}

data "aws_ssm_parameter" "image" {
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64"
}

locals {
  # arn:partition:ec2:region:account:volume/id
  place     = split(":", aws_ebs_volume.wal.arn)
  partition = local.place[1]
  region    = local.place[3]
  account   = local.place[4]
  port      = 7070

  settings = {
    NAME      = var.name
    AWS       = local.region
    VOLUME    = aws_ebs_volume.wal.id
    ZONE      = var.zone_id
    HOST      = var.host_name
    ROOT      = var.root_uri
    S3_REGION = var.s3_region
    VERSION   = var.siltlog_version
    COMPACTS  = var.compacts ? "yes" : "no"
  }

  units = "${path.module}/../../../infra/deploy/systemd"
  files = {
    "/opt/siltlog-aws/boot.sh"                    = file("${path.module}/boot/boot.sh")
    "/opt/siltlog-aws/secrets.sh"                 = file("${path.module}/boot/secrets.sh")
    "/opt/siltlog-aws/measure.sh"                 = file("${path.module}/boot/measure.sh")
    "/etc/systemd/system/siltlog.service"         = file("${local.units}/siltlog.service")
    "/etc/systemd/system/siltlog-compact.service" = file("${local.units}/siltlog-compact.service")
    "/etc/systemd/system/siltlog-compact.timer"   = file("${local.units}/siltlog-compact.timer")
  }
}

# What was acknowledged and is in no table yet. It is snapshotted before it could ever be deleted.
resource "aws_ebs_volume" "wal" {
  availability_zone = data.aws_subnet.server.availability_zone
  size              = var.volume_gib
  type              = "gp3"
  iops              = var.volume_iops
  throughput        = var.volume_mib_per_second
  encrypted         = true
  kms_key_id        = var.kms_key_arn
  final_snapshot    = true
  tags              = merge(var.tags, { Name = "${var.name}-wal" })

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_security_group" "server" {
  name        = "${var.name}-server"
  description = "Siltlog: its port for the clients that are named, and HTTPS outwards"
  vpc_id      = data.aws_subnet.server.vpc_id
  tags        = var.tags
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each = toset(var.client_security_group_ids)

  security_group_id            = aws_security_group.server.id
  description                  = "Clients of Siltlog"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = local.port
  to_port                      = local.port
}

resource "aws_vpc_security_group_ingress_rule" "networks" {
  for_each = toset(var.client_cidr_blocks)

  security_group_id = aws_security_group.server.id
  description       = "Networks of clients of Siltlog"
  cidr_ipv4         = each.value
  ip_protocol       = "tcp"
  from_port         = local.port
  to_port           = local.port
}

# S3, the other services, packages: all of it is HTTPS. Amazon's name servers and clock ask no security group.
resource "aws_vpc_security_group_egress_rule" "https" {
  security_group_id = aws_security_group.server.id
  description       = "HTTPS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

resource "aws_launch_template" "server" {
  name_prefix            = "${var.name}-server-"
  image_id               = coalesce(var.image_id, nonsensitive(data.aws_ssm_parameter.image.value))
  instance_type          = var.instance_type
  vpc_security_group_ids = [aws_security_group.server.id]
  tags                   = var.tags

  user_data = base64gzip(templatefile("${path.module}/boot/user-data.sh.tftpl", {
    settings = local.settings
    files    = local.files
  }))

  iam_instance_profile {
    arn = aws_iam_instance_profile.server.arn
  }

  # Credentials are for this machine's processes: version 2 alone, and no hop further.
  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
  }

  block_device_mappings {
    device_name = "/dev/xvda"

    ebs {
      volume_size           = 20
      volume_type           = "gp3"
      encrypted             = true
      delete_on_termination = true
    }
  }

  lifecycle {
    create_before_destroy = true
    # A newer image is taken when something else changes, or by `image_id`: no plan replaces a server for it.
    ignore_changes = [image_id]
  }
}

resource "aws_autoscaling_group" "server" {
  name                      = "${var.name}-server"
  min_size                  = 1
  max_size                  = 1
  desired_capacity          = 1
  vpc_zone_identifier       = [var.subnet_id]
  health_check_type         = "EC2"
  health_check_grace_period = 600
  metrics_granularity       = "1Minute"
  enabled_metrics           = ["GroupInServiceInstances"]

  launch_template {
    id      = aws_launch_template.server.id
    version = aws_launch_template.server.latest_version
  }

  # The old one flushes and lets its volume go before there is another.
  instance_maintenance_policy {
    min_healthy_percentage = 0
    max_healthy_percentage = 100
  }

  instance_refresh {
    strategy = "Rolling"

    preferences {
      min_healthy_percentage = 0
      max_healthy_percentage = 100
    }
  }

  dynamic "tag" {
    for_each = merge(var.tags, { Name = "${var.name}-server", siltlog = var.name })

    content {
      key                 = tag.key
      value               = tag.value
      propagate_at_launch = true
    }
  }

  depends_on = [aws_iam_role_policy.server, aws_route53_record.server]
}

# Each instance writes its address here when it starts; the first one is of a network for documentation.
resource "aws_route53_record" "server" {
  zone_id = var.zone_id
  name    = var.host_name
  type    = "A"
  ttl     = 30
  records = ["192.0.2.1"]

  lifecycle {
    ignore_changes = [records]
  }
}

# Their values are put there by hand, and never are in Terraform's state. The server waits for them.
resource "aws_secretsmanager_secret" "server" {
  for_each = toset(["secret", "tls.crt", "tls.key"])

  name        = "${var.name}/${each.value}"
  description = "Siltlog: ${each.value} of ${var.host_name}"
  kms_key_id  = var.kms_key_arn
  tags        = var.tags
}
