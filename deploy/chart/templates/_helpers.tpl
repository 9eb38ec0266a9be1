{{/* The name of all that belongs to the driver; a release is called so. */}}
{{- define "contract-cosi-driver.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "contract-cosi-driver.selector" -}}
app.kubernetes.io/name: contract-cosi-driver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "contract-cosi-driver.labels" -}}
{{ include "contract-cosi-driver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: container-object-storage-interface
{{- end }}

{{- define "contract-cosi-driver.evaluationSelector" -}}
app.kubernetes.io/name: contractd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "contract-cosi-driver.driverImage" -}}
{{ .Values.driver.image | default (printf "contract-cosi-driver:%s" .Chart.AppVersion) }}
{{- end }}

{{/* The driver's configuration file: the values, the journal, and contractd where it is evaluated. */}}
{{- define "contract-cosi-driver.config" -}}
{{- $c := deepCopy .Values.config }}
{{- if .Values.journal.persistentVolumeClaim }}
{{- $_ := set $c "journal" (dict "file" "/var/lib/contract-cosi-driver/journal.log") }}
{{- else }}
{{- $_ := set $c "journal" (dict "secrets" (dict "namespace" .Release.Namespace)) }}
{{- end }}
{{- if .Values.events.enabled }}
{{- $_ := set $c.driver "events" true }}
{{- end }}
{{- if .Values.evaluation.enabled }}
{{- $contractd := dict "name" "evaluation" "type" "contractapi" "contractapi" (dict
      "url" (printf "http://%s-contractd.%s.svc:7071" (include "contract-cosi-driver.name" .) .Release.Namespace)
      "tokenFile" "/etc/contract-cosi-driver/credentials/evaluation/token") }}
{{- $_ := set $c "backends" (append ($c.backends | default list) $contractd) }}
{{- if not (or $c.contracts $c.onDemand) }}
{{- $_ := set $c "onDemand" (dict "backend" "evaluation" "region" "us-east-1" "onLastBucket" "cancel") }}
{{- end }}
{{- $_ := set $c.driver "owner" ($c.driver.owner | default "evaluation") }}
{{- end }}
{{- toYaml $c }}
{{- end }}

{{/* What every container of this chart is allowed: as good as nothing. */}}
{{- define "contract-cosi-driver.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* uid and gid 65532 are those of the upstream sidecar's image and of ours. */}}
{{- define "contract-cosi-driver.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
