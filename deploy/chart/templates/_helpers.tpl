{{/* The label app.kubernetes.io/name of a program. It does not contain the name of the release: a cluster has each program once. */}}
{{- define "portico.name" -}}
{{- printf "%s-%s" (default "portico" .root.Values.nameOverride) .program | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of the objects of a program. */}}
{{- define "portico.fullname" -}}
{{- printf "%s-%s" (coalesce .root.Values.fullnameOverride .root.Values.nameOverride "portico") .program | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels of an object; what it is called is the argument name, and more are in also. Pods do not get them: the version of the chart would restart them. */}}
{{- define "portico.labels" -}}
{{- $labels := dict
  "app.kubernetes.io/name" .name
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "app.kubernetes.io/part-of" "portico"
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- toYaml (merge (deepCopy (default dict (get . "also"))) $labels) -}}
{{- end -}}

{{/* The image of a program, whose values are .values.image. The chart does not name a registry, and the tag is by default that of its release. */}}
{{- define "portico.image" -}}
{{- $missing := printf "%s has no image: the chart does not name a registry. Copy the image of the release to your registry, and set: --set %s.image.repository=REGISTRY/%s --set %s.image.tag=%s" .program .program .default .program .root.Chart.AppVersion -}}
{{- with .values.image -}}
{{- $repository := required $missing .repository -}}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ default $.root.Chart.AppVersion .tag }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* What every pod may be given, at the level of its spec. */}}
{{- define "portico.podSpec" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ if kindIs "map" . }}{{ .name | quote }}{{ else }}{{ . | quote }}{{ end }}
{{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- with .values.nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- with .values.affinity }}
affinity: {{ toJson . }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* Metadata of a pod. */}}
{{- define "portico.podMetadata" -}}
labels: {{ merge (dict "app.kubernetes.io/name" .name) .values.podLabels | toJson }}
{{- with .values.podAnnotations }}
annotations: {{ toJson . }}
{{- end }}
{{- end -}}

{{/* A namespace of its own, unless it is the release's, which is there already. */}}
{{- define "portico.namespace" -}}
{{- if ne .namespace .root.Release.Namespace }}
apiVersion: v1
kind: Namespace
metadata:
  name: {{ .namespace }}
  labels: {{- include "portico.labels" (dict "root" .root "name" .name "also" (dict "pod-security.kubernetes.io/enforce" "restricted")) | nindent 4 }}
  {{- with get . "annotations" }}
  annotations: {{ toJson . }}
  {{- end }}
---
{{- end }}
{{- end -}}

{{/* The job of the rules and of the dashboard, whatever the names of the objects are. */}}
{{- define "portico.job" -}}
- {targetLabel: job, replacement: portico-{{ .name }}}
{{- end -}}

{{/* How Prometheus reads the metrics of a server that asks who it is. */}}
{{- define "portico.endpoint" -}}
- port: https
  scheme: https
  path: /metrics
  interval: {{ .values.interval }}
  authorization:
    type: Bearer
    credentials:
      name: {{ required (printf "%s.serviceMonitor.tokenSecret.name: a Secret with a token that may get /metrics is needed" .name) .values.tokenSecret.name | quote }}
      key: {{ .values.tokenSecret.key | quote }}
  tlsConfig:
    serverName: {{ .serverName }}
    ca:
      secret:
        name: {{ required (printf "%s.serviceMonitor.caSecret.name: a Secret with the CA certificate of the server is needed" .name) .values.caSecret.name | quote }}
        key: {{ .values.caSecret.key | quote }}
  relabelings: {{- include "portico.job" . | nindent 2 }}
{{- end -}}
