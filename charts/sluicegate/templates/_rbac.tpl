{{/*
The binding of the ServiceAccount that reads the cluster to a role with the name of the binding. Parameters: root; name; cluster or namespace.
*/}}
{{- define "sluicegate.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ if .cluster }}Cluster{{ end }}RoleBinding
metadata:
  {{- include "sluicegate.metadata" . | nindent 2 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ if .cluster }}Cluster{{ end }}Role
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "sluicegate.serviceAccountName" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* The rights of the ServiceAccount only in the namespace of the release. */}}
{{- define "sluicegate.ownRules" -}}
{{- $name := include "sluicegate.fullname" . -}}
{{- if .Values.status.enabled }}
# Kubernetes cannot limit the creation of objects to a name.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ $name }}]
  verbs: [get, update]
{{- if include "sluicegate.publishesNodes" . }}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- if .Values.gatewayServices.type }}
# The Services of Gateways. Their names are not known before.
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
{{- end }}
{{- if and .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) }}
{{- if and .Values.status.enabled (eq .Values.status.source "Service") (not .Values.gatewayServices.type) }}
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ $name }}]
  verbs: [get, list, watch]
{{- end }}
{{- $configmaps := list -}}
{{- if .Values.config }}{{ $configmaps = append $configmaps $name }}{{ end -}}
{{- if .Values.ingressNginx.tcp }}{{ $configmaps = append $configmaps (printf "%s-tcp" $name) }}{{ end -}}
{{- if .Values.ingressNginx.udp }}{{ $configmaps = append $configmaps (printf "%s-udp" $name) }}{{ end -}}
{{- if $configmaps }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ join ", " $configmaps }}]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- if and .Values.acme.termsAgreed .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) }}
# The key of the ACME account, and the certificates of challenges in progress.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [{{ $name }}-acme, {{ $name }}-acme-challenges]
  verbs: [get, list, watch, update]
{{- end }}
{{- if include "sluicegate.split" . }}
# The certificates of both planes, which the control plane creates and renews.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [sluicegate-control-plane-tls, sluicegate-data-plane-tls]
  verbs: [get, update]
{{- end }}
{{- end -}}
