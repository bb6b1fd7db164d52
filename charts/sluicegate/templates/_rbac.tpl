{{/*
A binding of the account that reads the cluster to a role of the same name. root; name; cluster or namespace.
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

{{/* What the account may do in the release's own namespace alone. */}}
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
{{- if and .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) }}
{{- if and .Values.status.enabled (eq .Values.status.source "Service") }}
- apiGroups: [""]
  resources: [services]
  resourceNames: [{{ $name }}]
  verbs: [get, list, watch]
{{- end }}
{{- if .Values.config }}
- apiGroups: [""]
  resources: [configmaps]
  resourceNames: [{{ $name }}]
  verbs: [get, list, watch]
{{- end }}
{{- end }}
{{- if include "sluicegate.split" . }}
# The certificates of the two planes, which the control plane makes and renews.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames: [sluicegate-control-tls, sluicegate-proxy-tls]
  verbs: [get, update]
{{- end }}
{{- end -}}
