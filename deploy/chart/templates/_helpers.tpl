{{/* The name of all that belongs to the driver: the release's, if no other is given. */}}
{{- define "contract-cosi-driver.name" -}}
{{- $name := .Release.Name }}
{{- with .Values.nameOverride }}{{- $name = printf "%s-%s" $.Release.Name . }}{{- end }}
{{- .Values.fullnameOverride | default $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{- define "contract-cosi-driver.selector" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default "contract-cosi-driver" }}
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

{{/* An image of repository, tag and digest; the tag's default comes with it. */}}
{{- define "contract-cosi-driver.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .tag }}
{{- end }}
{{- end }}

{{- define "contract-cosi-driver.driverImage" -}}
{{ include "contract-cosi-driver.image" (dict "image" .Values.driver.image "tag" .Chart.AppVersion) }}
{{- end }}

{{- define "contract-cosi-driver.sidecarImage" -}}
{{- $image := .Values.sidecar.image }}
{{- if not $image.repository }}
{{- $image = merge (dict "repository" "registry.k8s.io/sig-storage/objectstorage-sidecar") $image }}
{{- end }}
{{- include "contract-cosi-driver.image" (dict "image" $image "tag" "v0.2.2") }}
{{- end }}

{{/* The name that classes give. An evaluation has one; for anything else it is chosen, for good. */}}
{{- define "contract-cosi-driver.driverName" -}}
{{ .Values.config.driver.name | default "contract.cosi.example.com" }}
{{- end }}

{{- define "contract-cosi-driver.journalNamespace" -}}
{{ .Values.journal.namespace | default (printf "%s-journal" .Release.Namespace) }}
{{- end }}

{{/*
What follows a driverName in CEL, to ask whether it is this driver's. The released
sidecars compare names with strings.EqualFold, to which the long s and the sign
for kelvin are the letters s and k.
*/}}
{{- define "contract-cosi-driver.isOurs" -}}
.lowerAscii().replace('\u017F', 's').replace('\u212A', 'k') == '{{ include "contract-cosi-driver.driverName" . }}'
{{- end }}

{{/* The driver's configuration file: the values, the journal, and contractd where it is evaluated. */}}
{{- define "contract-cosi-driver.config" -}}
{{- $c := deepCopy .Values.config }}
{{- if .Values.journal.persistentVolumeClaim }}
{{- $_ := set $c "journal" (dict "file" "/var/lib/contract-cosi-driver/journal.log") }}
{{- else }}
{{- $_ := set $c "journal" (dict "secrets" (dict "namespace" (include "contract-cosi-driver.journalNamespace" .))) }}
{{- end }}
{{- if .Values.events.enabled }}
{{- $_ := set $c.driver "events" true }}
{{- end }}
{{- if .Values.contracts.enabled }}
{{- $_ := set $c "objects" ($c.objects | default dict) }}
{{- end }}
{{- if .Values.applicationSecrets.enabled }}
{{- if .Values.applicationSecrets.separate }}
{{- $_ := set $c "applicationSecrets" (dict "socket" "/var/lib/cosi-delivery/deliver.sock") }}
{{- else }}
{{- $_ := set $c "applicationSecrets" (dict "namespaces" .Values.applicationSecrets.namespaces) }}
{{- end }}
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
{{- $_ := set $c.driver "name" (include "contract-cosi-driver.driverName" .) }}
{{- toYaml $c }}
{{- end }}

{{/* Where the driver's container, and that of the chart's test, find configuration and credentials. */}}
{{/* The account that may write applications' Secrets. */}}
{{- define "contract-cosi-driver.secretsAccount" -}}
{{ include "contract-cosi-driver.name" . }}-{{ if .Values.applicationSecrets.separate }}deliver{{ else }}driver{{ end }}
{{- end }}

{{- define "contract-cosi-driver.configMounts" -}}
- {name: config, mountPath: /etc/contract-cosi-driver/config, readOnly: true}
{{- range .Values.credentials }}
- {name: "credentials-{{ . }}", mountPath: "/etc/contract-cosi-driver/credentials/{{ . }}", readOnly: true}
{{- end }}
{{- if .Values.evaluation.enabled }}
- {name: evaluation, mountPath: /etc/contract-cosi-driver/credentials/evaluation, readOnly: true}
{{- end }}
{{- with .Values.driver.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "contract-cosi-driver.configVolumes" -}}
- name: config
  secret:
    secretName: {{ .Values.configSecret | default (printf "%s-config" (include "contract-cosi-driver.name" .)) }}
    defaultMode: 0440
{{- range .Values.credentials }}
- name: credentials-{{ . }}
  secret: {secretName: "{{ . }}", defaultMode: 0440}
{{- end }}
{{- if .Values.evaluation.enabled }}
- name: evaluation
  secret: {secretName: "{{ include "contract-cosi-driver.name" . }}-contractd", defaultMode: 0440}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
