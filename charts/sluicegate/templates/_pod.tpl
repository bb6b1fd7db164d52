{{/*
The pods that serve requests: both planes in one, or data planes. Parameters: root; own: true for the template of data planes of single
Gateways, to which the control plane adds the ServiceAccount.
*/}}
{{- define "sluicegate.servingPod" -}}
{{- $own := .own -}}
{{- with .root -}}
{{- $split := include "sluicegate.split" . -}}
{{- $component := ternary "gateway-data-plane" (include "sluicegate.component" .) $own -}}
{{- $host := include "sluicegate.adminAddress" . -}}
{{- $webhook := and .Values.admissionWebhook.enabled (not $split) -}}
metadata:
  {{- include "sluicegate.podMetadata" (dict "root" . "component" $component "values" .Values) | nindent 2 }}
spec:
  {{- if not $own }}
  serviceAccountName: {{ if $split }}{{ include "sluicegate.workloadName" . }}{{ else }}{{ include "sluicegate.serviceAccountName" . }}{{ end }}
  {{- end }}
  automountServiceAccountToken: {{ not $split }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ include "sluicegate.gracePeriod" . }}
  securityContext:
    {{- include "sluicegate.podSecurityContext" . | nindent 4 }}
  containers:
    - name: sluicegate
      image: {{ include "sluicegate.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- if $split }}
        - data-plane
        - --control-plane={{ include "sluicegate.controlPlaneName" . }}.{{ .Release.Namespace }}.svc:{{ .Values.controlPlane.port }}
        {{- if $own }}
        - --token-dir=/etc/sluicegate/token
        {{- else }}
        - --tls-dir=/etc/sluicegate/tls
        {{- end }}
        {{- if .Values.snapshot.enabled }}
        - --snapshot=/var/lib/sluicegate/snapshot
        {{- end }}
        {{- else }}
        - serve
        {{- include "sluicegate.clusterArgs" . | nindent 8 }}
        {{- end }}
        {{- include "sluicegate.servingArgs" . | indent 8 }}
        {{- include "sluicegate.logArgs" . | indent 8 }}
        {{- with .Values.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        {{- include "sluicegate.env" . | nindent 8 }}
        {{- if not $split }}
        {{- include "sluicegate.analyticsEnv" . | indent 8 }}
        {{- end }}
      {{- /* With hostNetwork and ports, the scheduler would not place the new pod on the node of the old pod. */}}
      {{- if not .Values.hostNetwork }}
      ports:
        - {name: http, containerPort: {{ include "sluicegate.httpPort" . }}, protocol: TCP}
        - {name: https, containerPort: {{ include "sluicegate.httpsPort" . }}, protocol: TCP}
        {{- if .Values.http3.enabled }}
        - {name: http3, containerPort: {{ include "sluicegate.httpsPort" . }}, protocol: UDP}
        {{- end }}
        - {name: admin, containerPort: {{ .Values.admin.port }}, protocol: TCP}
        {{- if $webhook }}
        - {name: webhook, containerPort: {{ .Values.admissionWebhook.port }}, protocol: TCP}
        {{- end }}
        {{- if not $split }}
        {{- include "sluicegate.sitesPorts" . | indent 8 }}
        {{- end }}
        {{- range (include "sluicegate.furtherPorts" . | fromYaml).ports }}
        - {name: {{ .name }}, containerPort: {{ .port }}, protocol: {{ .protocol }}}
        {{- end }}
      {{- end }}
      {{- include "sluicegate.probes" (dict "root" . "host" (ternary $host "" (hasPrefix "127." $host))) | nindent 6 }}
      {{- with .Values.resources }}
      resources:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- include "sluicegate.securityContext" (dict "bind" (include "sluicegate.privilegedPort" .)) | nindent 8 }}
      {{- if $split }}
      volumeMounts:
        {{- if $own }}
        - {name: token, mountPath: /etc/sluicegate/token, readOnly: true}
        {{- else }}
        - {name: tls, mountPath: /etc/sluicegate/tls, readOnly: true}
        {{- end }}
        {{- if .Values.snapshot.enabled }}
        - {name: snapshot, mountPath: /var/lib/sluicegate}
        {{- end }}
  volumes:
    {{- if $own }}
    # The control plane writes the annotation.
    - name: token
      projected:
        defaultMode: 0440
        sources:
          - serviceAccountToken: {audience: sluicegate-control-plane, expirationSeconds: 3600, path: token}
          - downwardAPI:
              items:
                - path: ca.crt
                  fieldRef: {fieldPath: "metadata.annotations['sluicegate.dev/control-plane-ca']"}
    {{- else }}
    # The control plane creates the Secret. The pod waits for the Secret.
    - name: tls
      secret: {secretName: sluicegate-data-plane-tls, defaultMode: 0440}
    {{- end }}
    {{- if .Values.snapshot.enabled }}
    - name: snapshot
      emptyDir:
        {{- with .Values.snapshot.medium }}
        medium: {{ . }}
        {{- end }}
        sizeLimit: {{ .Values.snapshot.sizeLimit }}
    {{- end }}
      {{- else if or $webhook (include "sluicegate.analyticsClaim" .) .Values.apiDocuments.hosts (include "sluicegate.sitesSecrets" .) }}
      volumeMounts:
        {{- include "sluicegate.analyticsMount" . | indent 8 }}
        {{- include "sluicegate.documentsMount" . | indent 8 }}
        {{- include "sluicegate.sitesMounts" . | indent 8 }}
        {{- if $webhook }}
        {{- include "sluicegate.webhookMount" . | nindent 8 }}
        {{- end }}
  volumes:
    {{- include "sluicegate.analyticsVolume" . | indent 4 }}
    {{- include "sluicegate.documentsVolume" . | indent 4 }}
    {{- include "sluicegate.sitesVolumes" . | indent 4 }}
    {{- if $webhook }}
    {{- include "sluicegate.webhookVolume" . | nindent 4 }}
    {{- end }}
      {{- end }}
  {{- include "sluicegate.scheduling" (dict "root" . "component" $component "values" .Values) | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The update strategy of the pods that serve requests. */}}
{{- define "sluicegate.updateStrategy" -}}
{{- ternary "strategy" "updateStrategy" (eq .Values.kind "Deployment") }}:
  {{- with .Values.updateStrategy }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  type: RollingUpdate
  rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  {{- end }}
{{- end -}}
