{{- define "siltlog.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "siltlog.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" -}}
{{- else if contains (include "siltlog.name" .) .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "siltlog.name" .) | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* The headless service, by which nodes call each other. */ -}}
{{- define "siltlog.nodes" -}}
{{- printf "%s-nodes" (include "siltlog.fullname" .) -}}
{{- end -}}

{{- define "siltlog.selector" -}}
app.kubernetes.io/name: {{ include "siltlog.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "siltlog.labels" -}}
{{ include "siltlog.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "siltlog.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "siltlog.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "siltlog.scheme" -}}
{{- if .Values.tls.secretName -}}https{{- else -}}http{{- end -}}
{{- end -}}

{{- define "siltlog.hosts" -}}
{{- $service := printf "%s.%s.svc" (include "siltlog.fullname" .) .Release.Namespace -}}
{{- $names := list (include "siltlog.fullname" .) (printf "%s.%s" (include "siltlog.fullname" .) .Release.Namespace) $service (printf "%s.%s" $service .Values.clusterDomain) -}}
{{- if and .Values.ingress.enabled .Values.ingress.host -}}
{{- $names = append $names .Values.ingress.host -}}
{{- end -}}
{{- $node := printf "$(POD_NAME).%s.%s.svc" (include "siltlog.nodes" .) .Release.Namespace -}}
{{- join "," (concat $names (list $node) .Values.hosts) -}}
{{- end -}}

{{- /* What the server and its jobs need to reach the bucket. */ -}}
{{- define "siltlog.storeEnvironment" -}}
{{- if .Values.root }}
- {name: SILT_ROOT, value: {{ .Values.root | quote }}}
{{- end }}
{{- if .Values.s3.endpoint }}
- {name: SILT_S3_ENDPOINT, value: {{ .Values.s3.endpoint | quote }}}
{{- end }}
{{- if .Values.s3.region }}
- {name: SILT_S3_REGION, value: {{ .Values.s3.region | quote }}}
{{- end }}
{{- if .Values.s3.credentialsSecret }}
- {name: AWS_SHARED_CREDENTIALS_FILE, value: /etc/siltlog/aws/credentials}
{{- end }}
{{- end -}}

{{- define "siltlog.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "siltlog.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- /* Helm takes every number for one with a fraction. */ -}}
{{- define "siltlog.whole" -}}
{{- range $name, $value := . -}}
{{- if and (kindIs "float64" $value) (eq (float64 (int64 $value)) $value) -}}
{{- $_ := set $ $name (int64 $value) -}}
{{- else if kindIs "map" $value -}}
{{- include "siltlog.whole" $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "siltlog.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- include "siltlog.whole" $settings -}}
{{- toToml $settings -}}
{{- end -}}

{{- /* What may not be together, each with the reason. */ -}}
{{- define "siltlog.check" -}}
{{- $many := gt (int .Values.replicas) 1 -}}
{{- if and $many (not .Values.root) -}}
{{- fail "root: several nodes share one root, which no volume of one of them can be: set root to s3://bucket/prefix" -}}
{{- end -}}
{{- if and $many (not .Values.redis.url) -}}
{{- fail "redis.url: all nodes must see the same groups, so the Valkey that a single node starts will not do: name a Redis that all reach" -}}
{{- end -}}
{{- if and $many (not .Values.auth.secretName) -}}
{{- fail "auth.secretName: nodes prove to each other who they are by one secret: make a Secret with the key `secret` (head -c 32 /dev/urandom | base64)" -}}
{{- end -}}
{{- if and (not .Values.tls.secretName) (not .Values.trustedProxies) (not (has "no-tls" .Values.insecure)) -}}
{{- fail "tls.secretName: the server is reached over the network, and starts there with TLS only: name a Secret with tls.crt and tls.key, or the proxies at which TLS ends in trustedProxies, or put no-tls into insecure" -}}
{{- end -}}
{{- if and .Values.kafka.enabled (not .Values.tls.secretName) (not (has "no-tls" .Values.insecure)) -}}
{{- fail "kafka.enabled: no proxy ends TLS for Kafka's protocol: name a Secret with tls.crt and tls.key in tls.secretName, or put no-tls into insecure" -}}
{{- end -}}
{{- if and (not .Values.auth.enabled) (not (has "no-auth" .Values.insecure)) -}}
{{- fail "auth.enabled: without it everybody who reaches the server may do everything: put no-auth into insecure if that is meant" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.host) -}}
{{- fail "ingress.host: the server answers only for names that it knows" -}}
{{- end -}}
{{- if and .Values.ingress.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.from) -}}
{{- fail "networkPolicy.from: the ingress controller is in another namespace, which the policy keeps out: say who may come, such as its namespaceSelector, or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and .Values.compaction.enabled (not .Values.root) -}}
{{- fail "compaction.enabled: another pod cannot reach tables on the volume of this one: set root to s3://bucket/prefix" -}}
{{- end -}}
{{- if and .Values.compaction.enabled .Values.auth.enabled (not .Values.compaction.tokenSecret) -}}
{{- fail "compaction.tokenSecret: the job tells the server what it did, and needs an API key for that: name a Secret with the key `token`" -}}
{{- end -}}
{{- $drain := int (default 20000 .Values.settings.drain_ms) -}}
{{- if lt (int .Values.terminationGracePeriodSeconds) (int (add 25 (div $drain 1000))) -}}
{{- fail (printf "terminationGracePeriodSeconds: %d is too short for drain_ms of %d, 5 s before it and 20 s for jobs" (int .Values.terminationGracePeriodSeconds) $drain) -}}
{{- end -}}
{{- end -}}
