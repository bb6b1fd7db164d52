{{/* Names. */}}
{{- define "sluicegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 49 | trimSuffix "-" -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 49 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 49 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.split" -}}
{{- if eq .Values.mode "split" }}true{{ end -}}
{{- end -}}

{{/* The name of the workload that serves requests. */}}
{{- define "sluicegate.workloadName" -}}
{{- include "sluicegate.fullname" . }}{{ if include "sluicegate.split" . }}-data-plane{{ end -}}
{{- end -}}

{{/* The ConfigMap with the template of the data planes of single Gateways. */}}
{{- define "sluicegate.templateName" -}}
{{- include "sluicegate.fullname" . }}-data-plane-template
{{- end -}}

{{/* The workload of the data planes of a Gateway, without its name, labels and selector. */}}
{{- define "sluicegate.ownWorkload" -}}
apiVersion: apps/v1
kind: {{ .Values.kind }}
spec:
  {{- if eq .Values.kind "Deployment" }}
  replicas: {{ .Values.replicas }}
  {{- end }}
  {{- include "sluicegate.updateStrategy" . | nindent 2 }}
  template:
    {{- include "sluicegate.servingPod" (dict "root" . "own" true) | nindent 4 }}
{{- end -}}

{{- define "sluicegate.controlPlaneName" -}}
{{- include "sluicegate.fullname" . }}-control-plane
{{- end -}}

{{- define "sluicegate.webhookName" -}}
{{- include "sluicegate.fullname" . }}-webhook
{{- end -}}

{{/* The Secret with the certificate of the webhook. */}}
{{- define "sluicegate.webhookSecret" -}}
{{- .Values.admissionWebhook.certificate.secretName | default (printf "%s-tls" (include "sluicegate.webhookName" .)) -}}
{{- end -}}

{{/* The volume with the certificate of the webhook, and its mount, as YAML lists. */}}
{{- define "sluicegate.webhookVolume" -}}
- name: webhook
  secret: {secretName: {{ include "sluicegate.webhookSecret" . }}, defaultMode: 0440}
{{- end -}}

{{- define "sluicegate.webhookMount" -}}
- {name: webhook, mountPath: /etc/sluicegate/webhook, readOnly: true}
{{- end -}}

{{/* The component that serves requests. */}}
{{- define "sluicegate.component" -}}
{{- if include "sluicegate.split" . }}data-plane{{ else }}gateway{{ end -}}
{{- end -}}

{{/* The ServiceAccount with rights in the cluster, of the control plane or of pods with both planes. */}}
{{- define "sluicegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.name -}}
{{- .Values.serviceAccount.name -}}
{{- else if not .Values.serviceAccount.create -}}
default
{{- else if include "sluicegate.split" . -}}
{{- include "sluicegate.controlPlaneName" . -}}
{{- else -}}
{{- include "sluicegate.fullname" . -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* Labels that select the pods of a component. A Deployment cannot change its selector. */}}
{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sluicegate.labels" -}}
{{- $own := dict
  "app.kubernetes.io/name" .root.Chart.Name
  "app.kubernetes.io/instance" .root.Release.Name
  "app.kubernetes.io/version" .root.Chart.AppVersion
  "app.kubernetes.io/managed-by" .root.Release.Service
  "helm.sh/chart" (printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_")) -}}
{{- if .component }}{{ $_ := set $own "app.kubernetes.io/component" .component }}{{ end -}}
{{- toYaml (merge $own (.more | default dict) .root.Values.labels) -}}
{{- end -}}

{{/*
The metadata of an object. Parameters: root; name; optionally component, more (labels) and annotations; cluster: true for
cluster-scoped objects; namespace if it differs from the namespace of the release.
*/}}
{{- define "sluicegate.metadata" -}}
name: {{ .name }}
{{- if not .cluster }}
namespace: {{ .namespace | default .root.Release.Namespace }}
{{- end }}
labels:
  {{- include "sluicegate.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Ports and addresses. Values without a number are null. */}}
{{- define "sluicegate.httpPort" -}}
{{- .Values.listen.http | default (ternary 80 8080 .Values.hostNetwork) -}}
{{- end -}}

{{- define "sluicegate.httpsPort" -}}
{{- .Values.listen.https | default (ternary 443 8443 .Values.hostNetwork) -}}
{{- end -}}

{{- define "sluicegate.address" -}}
{{- if contains ":" .host }}[{{ .host }}]{{ else }}{{ .host }}{{ end }}:{{ .port -}}
{{- end -}}

{{/* The IP address of the admin interface of the serving pods. */}}
{{- define "sluicegate.adminAddress" -}}
{{- .Values.admin.address | default (ternary "127.0.0.1" (first .Values.listen.addresses) .Values.hostNetwork) -}}
{{- end -}}

{{/* The further ports of the serving pods, as a YAML list under `ports`: extraPorts, and the ports that lead to Services. */}}
{{- define "sluicegate.furtherPorts" -}}
{{- $ports := list -}}
{{- range .Values.extraPorts }}
{{- $ports = append $ports (dict "name" .name "port" (int .port) "protocol" (.protocol | default "TCP")) -}}
{{- end }}
{{- range $protocol, $entries := dict "TCP" .Values.ingressNginx.tcp "UDP" .Values.ingressNginx.udp }}
{{- range $port, $_ := $entries }}
{{- $ports = append $ports (dict "name" (printf "%s-%s" (lower $protocol) $port) "port" (int $port) "protocol" $protocol) -}}
{{- end }}
{{- end }}
{{- toYaml (dict "ports" $ports) -}}
{{- end -}}

{{/* true if a port needs NET_BIND_SERVICE. */}}
{{- define "sluicegate.privilegedPort" -}}
{{- $ports := list (include "sluicegate.httpPort" . | int) (include "sluicegate.httpsPort" . | int) -}}
{{- range (include "sluicegate.furtherPorts" . | fromYaml).ports }}{{ $ports = append $ports (int .port) }}{{ end -}}
{{- range $ports }}{{ if lt . 1024 }}true{{ end }}{{ end -}}
{{- end -}}

{{/* The options of the log, as a YAML list. */}}
{{- define "sluicegate.logArgs" -}}
{{- if ne .Values.log.level "info" }}
- {{ printf "--log=%s" .Values.log.level | quote }}
{{- end }}
{{- if ne .Values.log.format "text" }}
- --log-format={{ .Values.log.format }}
{{- end }}
{{- end -}}

{{/*
true if the gateway publishes the addresses of nodes: always, or until the load balancer has an address. With hostNetwork, the load
balancer may never have an address. In split mode, the control plane runs on other nodes than the data planes.
*/}}
{{- define "sluicegate.publishesNodes" -}}
{{- with .Values -}}
{{- $waits := and (eq .status.source "Service") .hostNetwork (eq .service.type "LoadBalancer") (eq .mode "all-in-one") -}}
{{- if and .status.enabled (or (eq .status.source "Nodes") $waits) }}true{{ end -}}
{{- end -}}
{{- end -}}

{{/* The options of a process that reads the cluster: both planes in one, or the control plane. */}}
{{- define "sluicegate.clusterArgs" -}}
{{- $name := include "sluicegate.fullname" . -}}
- --kubernetes
{{- with .Values.http3 }}
{{- if .enabled }}
- --http3
{{- if and $.Values.service.enabled (ne (int $.Values.service.ports.https) (int (include "sluicegate.httpsPort" $))) }}
- --http3-port={{ $.Values.service.ports.https }}
{{- end }}
{{- if .earlyData }}
- --http3-early-data
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.ingressClass }}
{{- if ne .name "sluicegate" }}
- --ingress-class={{ .name }}
{{- end }}
{{- if .watchWithoutClass }}
- --watch-ingress-without-class
{{- end }}
{{- if .ignoreNginxAccessAnnotations }}
- --ignore-nginx-access-annotations
{{- end }}
{{- end }}
{{- with .Values.ingressNginx }}
{{- if .compatibility }}
- --ingress-nginx-compatibility
{{- if ne .controllerClass "k8s.io/ingress-nginx" }}
- {{ printf "--controller-class=%s" .controllerClass | quote }}
{{- end }}
{{- if ne .annotationsPrefix "nginx.ingress.kubernetes.io" }}
- {{ printf "--annotations-prefix=%s" .annotationsPrefix | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne .Values.gatewayClass.name "sluicegate" }}
- --gateway-class={{ .Values.gatewayClass.name }}
{{- end }}
{{- if and .Values.service.enabled (not .Values.gatewayServices.type) }}
{{- if ne (int .Values.service.ports.http) (int (include "sluicegate.httpPort" .)) }}
- --published-http-ports={{ .Values.service.ports.http }}
{{- end }}
{{- if ne (int .Values.service.ports.https) (int (include "sluicegate.httpsPort" .)) }}
- --published-https-ports={{ .Values.service.ports.https }}
{{- end }}
{{- end }}
{{- if ne (join "," .Values.listen.addresses) "0.0.0.0" }}
{{- range .Values.listen.addresses }}
- {{ printf "--gateway-address=%s" . | quote }}
{{- end }}
{{- end }}
{{- $root := . -}}
{{- with .Values.gatewayServices }}
{{- if .type }}
{{- $selector := include "sluicegate.selector" (dict "root" $root "component" (include "sluicegate.component" $root)) | fromYaml -}}
{{- $labels := list -}}
{{- range $key, $value := $selector }}{{ $labels = append $labels (printf "%s=%s" $key $value) }}{{ end }}
- --gateway-services={{ .type }}
- --gateway-service-selector={{ join "," $labels }}
{{- if ne (printf "%d-%d" (int .firstPort) (int .lastPort)) "20000-29999" }}
- --gateway-service-ports={{ int .firstPort }}-{{ int .lastPort }}
{{- end }}
{{- range $key, $value := .annotations }}
- {{ printf "--gateway-service-annotation=%s=%s" $key $value | quote }}
{{- end }}
{{- with .loadBalancerClass }}
- --gateway-service-class={{ . }}
{{- end }}
{{- with .externalTrafficPolicy }}
- --gateway-service-traffic-policy={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.watchNamespaces }}
- --watch-namespace={{ . }}
{{- end }}
{{- if .Values.config }}
- --configmap={{ .Release.Namespace }}/{{ $name }}
{{- end }}
{{- if .Values.ingressNginx.tcp }}
- --tcp-services-configmap={{ .Release.Namespace }}/{{ $name }}-tcp
{{- end }}
{{- if .Values.ingressNginx.udp }}
- --udp-services-configmap={{ .Release.Namespace }}/{{ $name }}-udp
{{- end }}
{{- with .Values.tls.defaultCertificate }}
- --default-tls-certificate={{ . }}
{{- end }}
{{- with .Values.tls.ticketSecret }}
- --tls-ticket-secret={{ . }}
{{- end }}
{{- if .Values.status.enabled }}
{{- if ne $name "sluicegate" }}
- --lease-name={{ $name }}
{{- end }}
{{- if eq .Values.status.source "Service" }}
- --publish-service={{ .Release.Namespace }}/{{ $name }}
{{- else if eq .Values.status.source "Addresses" }}
{{- range .Values.status.addresses }}
- {{ printf "--publish-status-address=%s" . | quote }}
{{- end }}
{{- end }}
{{- if include "sluicegate.publishesNodes" . }}
- --publish-node-addresses
{{- end }}
{{- else }}
- --no-status
{{- end }}
{{- if include "sluicegate.hasDatabase" . }}
{{- with .Values.analytics.database }}
- {{ printf "--analytics-database=%s" . | quote }}
{{- end }}
{{- end }}
{{- if .Values.acme.termsAgreed }}
{{- if not .Values.status.enabled }}
{{- fail "acme.termsAgreed needs status.enabled: the Lease selects the pod that orders certificates" }}
{{- end }}
- --acme-terms-agreed
{{- with .Values.acme.directory }}
- {{ printf "--acme-directory=%s" . | quote }}
{{- end }}
{{- with .Values.acme.email }}
- {{ printf "--acme-email=%s" . | quote }}
{{- end }}
{{- if ne .Values.acme.challenge "http-01" }}
- --acme-challenge={{ .Values.acme.challenge }}
{{- end }}
{{- if ne (int .Values.acme.orders) 4 }}
- --acme-orders={{ int .Values.acme.orders }}
{{- end }}
{{- if ne $name "sluicegate" }}
- --acme-account-secret={{ $name }}-acme
{{- end }}
{{- end }}
{{- with .Values.apiDocuments.hosts }}
{{- range . }}
- {{ printf "--api-document-host=%s" . | quote }}
{{- end }}
- --api-document-cache=/var/cache/sluicegate-documents
{{- end }}
{{- with .Values.audit }}
{{- if .enabled }}
- --audit
{{- with int .keepDays }}
- --audit-keep-days={{ . }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.analytics.enabled }}
{{- with .Values.analytics }}
{{- if ne (int .keepMinutesDays) 2 }}
- --analytics-keep-minutes={{ int .keepMinutesDays }}
{{- end }}
{{- if ne (int .keepHoursDays) 60 }}
- --analytics-keep-hours={{ int .keepHoursDays }}
{{- end }}
{{- if ne (int .keepDaysDays) 730 }}
- --analytics-keep-days={{ int .keepDaysDays }}
{{- end }}
{{- end }}
{{- end }}
{{- include "sluicegate.sitesArgs" . }}
{{- with .Values.admissionWebhook }}
{{- if .enabled }}
- --validating-webhook={{ include "sluicegate.address" (dict "host" (first $root.Values.listen.addresses) "port" .port) }}
- --validating-webhook-certificate=/etc/sluicegate/webhook/tls.crt
- --validating-webhook-key=/etc/sluicegate/webhook/tls.key
{{- end }}
{{- end }}
{{- end -}}

{{/* The options of a process that serves requests: both planes in one, or a data plane. */}}
{{- define "sluicegate.servingArgs" -}}
{{- $root := . -}}
{{- range .Values.listen.addresses }}
- --listen={{ include "sluicegate.address" (dict "host" . "port" (include "sluicegate.httpPort" $root)) }}
{{- end }}
{{- range .Values.listen.addresses }}
- --listen-https={{ include "sluicegate.address" (dict "host" . "port" (include "sluicegate.httpsPort" $root)) }}
{{- end }}
- --admin={{ include "sluicegate.address" (dict "host" (include "sluicegate.adminAddress" .) "port" .Values.admin.port) }}
{{- with .Values.workers }}
- --workers={{ . }}
{{- end }}
{{- with .Values.shutdown }}
- --shutdown-grace={{ .graceSeconds }}s
- --shutdown-idle={{ .idleSeconds }}s
- --shutdown-timeout={{ .timeoutSeconds }}s
{{- end }}
{{- with .Values.analytics }}
{{- if .enabled }}
- --analytics
{{- if ne (int .maxSeries) 100000 }}
- --analytics-max-series={{ int .maxSeries }}
{{- end }}
{{- if ne .buffer "24Mi" }}
- --analytics-buffer={{ .buffer }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.accessLog.enabled }}
- --access-log=-
{{- if ne .Values.accessLog.format "json" }}
- --access-log-format={{ .Values.accessLog.format }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Whether the pods that read the cluster use the database of analytics and of the audit trail. */}}
{{- define "sluicegate.hasDatabase" -}}
{{- if or .Values.analytics.enabled .Values.audit.enabled }}true{{ end }}
{{- end -}}

{{/* The password of the database, as a variable of the pods that use the database. */}}
{{- define "sluicegate.analyticsEnv" -}}
{{- $hasDatabase := include "sluicegate.hasDatabase" . -}}
{{- with .Values.analytics }}
{{- if and $hasDatabase .passwordSecret.name }}
- name: SLUICEGATE_ANALYTICS_DATABASE_PASSWORD
  valueFrom: {secretKeyRef: {name: {{ .passwordSecret.name }}, key: {{ .passwordSecret.key }}}}
{{- end }}
{{- end }}
{{- end -}}

{{/* The claim of the volume for a database of SQLite, if the pods that use the database mount it. */}}
{{- define "sluicegate.analyticsClaim" -}}
{{- if include "sluicegate.hasDatabase" . }}{{ .Values.analytics.persistentVolumeClaim }}{{ end }}
{{- end -}}

{{- define "sluicegate.analyticsMount" -}}
{{- if include "sluicegate.analyticsClaim" . }}
- {name: analytics, mountPath: /var/lib/sluicegate-analytics}
{{- end }}
{{- end -}}

{{- define "sluicegate.analyticsVolume" -}}
{{- with include "sluicegate.analyticsClaim" . }}
- name: analytics
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- end -}}

{{/* The volume with the last valid versions of fetched documents. */}}
{{- define "sluicegate.documentsMount" -}}
{{- if .Values.apiDocuments.hosts }}
- {name: documents, mountPath: /var/cache/sluicegate-documents}
{{- end }}
{{- end -}}

{{- define "sluicegate.documentsVolume" -}}
{{- if .Values.apiDocuments.hosts }}
- name: documents
  emptyDir: {sizeLimit: {{ .Values.apiDocuments.cacheSizeLimit }}}
{{- end }}
{{- end -}}

{{/*
The sites in the pods that read the cluster, as a YAML map: the dashboard and the developer portal. A site without a Service listens
at the loopback address.
*/}}
{{- define "sluicegate.sites" -}}
{{- $all := first .Values.listen.addresses -}}
{{- $sites := list -}}
{{- with .Values.dashboard -}}
{{- if .enabled -}}
{{- $sites = append $sites (dict "name" "dashboard" "port" .port "host" (ternary $all "127.0.0.1" .service.enabled) "secret" .tokenSecret.name "key" .tokenSecret.key "hosts" .hosts "service" .service.enabled "changes" .changes) -}}
{{- end -}}
{{- end -}}
{{- with .Values.portal -}}
{{- if .enabled -}}
{{- $sites = append $sites (dict "name" "portal" "port" .port "host" (ternary $all "127.0.0.1" .service.enabled) "secret" .usersSecret.name "key" .usersSecret.key "hosts" .hosts "service" .service.enabled "changes" false) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "sites" $sites) -}}
{{- end -}}

{{- define "sluicegate.sitesArgs" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}
- --{{ .name }}-address={{ include "sluicegate.address" (dict "host" .host "port" .port) }}
{{- if .secret }}
- {{ printf "--%s-token-file=/etc/sluicegate/%s/%s" .name .name .key | quote }}
{{- end }}
{{- if .changes }}
- --dashboard-changes
{{- end }}
{{- $name := .name -}}
{{- range .hosts }}
- {{ printf "--%s-host=%s" $name . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* true if a site has a Secret. */}}
{{- define "sluicegate.sitesSecrets" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}{{ if .secret }}true{{ end }}{{ end -}}
{{- end -}}

{{- define "sluicegate.sitesMounts" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}
{{- if .secret }}
- {name: {{ .name }}, mountPath: /etc/sluicegate/{{ .name }}, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sluicegate.sitesVolumes" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}
{{- if .secret }}
- name: {{ .name }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- end -}}

{{- define "sluicegate.sitesPorts" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}
- {name: {{ .name }}, containerPort: {{ .port }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* The ports of a NetworkPolicy for the sites with a Service. */}}
{{- define "sluicegate.sitesRule" -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}
{{- if .service }}
- {port: {{ .port }}, protocol: TCP}
{{- end }}
{{- end }}
{{- end -}}

{{/* Ten seconds more than the longest shutdown of the process. */}}
{{- define "sluicegate.gracePeriod" -}}
{{- with .Values.shutdown -}}
{{- add .graceSeconds (max (int .idleSeconds) (int .timeoutSeconds)) 10 -}}
{{- end -}}
{{- end -}}

{{/* The security contexts of a pod and its container. bind: true if the container opens ports below 1024. */}}
{{- define "sluicegate.podSecurityContext" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "sluicegate.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
  {{- if .bind }}
  add: [NET_BIND_SERVICE]
  {{- end }}
{{- end -}}

{{/* The probes of a container. host: the address of the probes, if it differs from the address of the pod. */}}
{{- define "sluicegate.probes" -}}
readinessProbe:
  {{- if .host }}
  # During an update, two pods listen at this address. The program probes its own pod.
  exec:
    command: [/sluicegate, ready, {{ printf "--admin=%s" (include "sluicegate.address" (dict "host" .host "port" .root.Values.admin.port)) | quote }}]
  {{- else }}
  httpGet:
    path: /readyz
    port: {{ .root.Values.admin.port }}
  {{- end }}
  {{- toYaml .root.Values.readinessProbe | nindent 2 }}
livenessProbe:
  httpGet:
    path: /healthz
    port: {{ .root.Values.admin.port }}
    {{- with .host }}
    host: {{ . | quote }}
    {{- end }}
  {{- toYaml .root.Values.livenessProbe | nindent 2 }}
{{- end -}}

{{/* The name of the pod, for the Lease and for the control plane's list of data planes. */}}
{{- define "sluicegate.env" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end -}}

{{/* The scheduling of the pods of a component. Parameters: root; component; values with the scheduling. */}}
{{- define "sluicegate.scheduling" -}}
{{- $selector := include "sluicegate.selector" . | fromYaml -}}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml (merge (dict) . (dict "labelSelector" (dict "matchLabels" $selector))) | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{/*
The settings of an endpoint of Prometheus. Parameters: root; optionally job: the label `job`. The alerts count the pods of a job, so all pods
of the release have the job of the ServiceMonitor.
*/}}
{{- define "sluicegate.scrape" -}}
path: /metrics
# Metrics of routes and policies have the label `namespace` of their object, which the namespace of the pod must not replace.
honorLabels: true
{{- with .root.Values.serviceMonitor.interval }}
interval: {{ . }}
{{- end }}
{{- with .root.Values.serviceMonitor.scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- $job := ternary (list (dict "action" "replace" "targetLabel" "job" "replacement" .job)) list (hasKey . "job") }}
{{- with concat $job .root.Values.serviceMonitor.relabelings }}
relabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.serviceMonitor.metricRelabelings }}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The metadata of the pods of a component. */}}
{{- define "sluicegate.podMetadata" -}}
{{- /* No label for the version: the gateway finds nodes by the labels of its pods, which must be equal in all versions. */ -}}
labels:
  {{- toYaml (merge (include "sluicegate.selector" . | fromYaml) .values.podLabels .root.Values.labels) | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .values.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The rights of the ServiceAccount in each watched namespace. */}}
{{- define "sluicegate.namespacedRules" -}}
- apiGroups: [""]
  resources: [services, secrets, configmaps]
  verbs: [get, list, watch]
{{- if .Values.acme.termsAgreed }}
# The certificates of an ACME server. Their names are not known before.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, update]
{{- end }}
{{- if .Values.gatewayServices.ownDataPlanes.enabled }}
# The data planes of single Gateways, in the namespaces of the Gateways. Their names are not known before.
- apiGroups: [""]
  resources: [services, serviceaccounts]
  verbs: [get, list, create, patch, delete]
- apiGroups: [apps]
  resources: [deployments, daemonsets]
  verbs: [get, list, create, patch, delete]
{{- end }}
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, listenersets, httproutes, grpcroutes, tlsroutes, tcproutes, udproutes, backendtlspolicies, referencegrants]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends, xbackendtrafficpolicies]
  verbs: [get, list, watch]
- apiGroups: [sluicegate.dev]
  resources: [securitypolicies, consumers, ratelimitpolicies, trafficpolicies, apis, plans, subscriptions]
  verbs: [get, list, watch]
{{- if .Values.portal.enabled }}
# Users of the portal request and cancel subscriptions, and change the keys of their Consumers.
- apiGroups: [sluicegate.dev]
  resources: [subscriptions]
  verbs: [create, delete]
- apiGroups: [sluicegate.dev]
  resources: [consumers]
  verbs: [patch]
{{- end }}
{{- if .Values.status.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [ingresses/status]
  verbs: [patch]
# The annotation sluicegate.dev/problems.
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways/status, listenersets/status, httproutes/status, grpcroutes/status, tlsroutes/status, tcproutes/status, udproutes/status, backendtlspolicies/status]
  verbs: [patch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends/status, xbackendtrafficpolicies/status]
  verbs: [patch]
- apiGroups: [sluicegate.dev]
  resources: [securitypolicies/status, consumers/status, ratelimitpolicies/status, trafficpolicies/status, apis/status, plans/status, subscriptions/status]
  verbs: [patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- end }}
{{- end -}}

{{/* Rejects combinations of values that cannot work. */}}
{{- define "sluicegate.check" -}}
{{- $v := .Values -}}
{{- if and $v.hostNetwork (ne $v.kind "DaemonSet") -}}
{{- fail "hostNetwork needs kind: DaemonSet, because two pods of a Deployment on one node would take over each other's sockets" -}}
{{- end -}}
{{- if and $v.autoscaling.enabled (ne $v.kind "Deployment") -}}
{{- fail "autoscaling.enabled needs kind: Deployment, because a DaemonSet has one pod for each node" -}}
{{- end -}}
{{- if $v.status.enabled -}}
{{- if and (eq $v.status.source "Service") (not $v.service.enabled) -}}
{{- fail "status.source: Service needs service.enabled; write status.source: Nodes or Addresses, or status.enabled: false" -}}
{{- end -}}
{{- if and (eq $v.status.source "Nodes") (include "sluicegate.split" .) -}}
{{- fail "status.source: Nodes would publish the nodes of the control plane in mode: split; write Service or Addresses" -}}
{{- end -}}
{{- if and (eq $v.status.source "Addresses") (not $v.status.addresses) -}}
{{- fail "status.source: Addresses needs status.addresses" -}}
{{- end -}}
{{- end -}}
{{- if and $v.rbac.create (not $v.serviceAccount.create) (not $v.serviceAccount.name) -}}
{{- fail "serviceAccount.create: false needs serviceAccount.name; otherwise the account `default`, and so all pods, would have the rights" -}}
{{- end -}}
{{- if $v.serviceMonitor.enabled -}}
{{- if and $v.hostNetwork (hasPrefix "127." (include "sluicegate.adminAddress" .)) -}}
{{- fail "serviceMonitor.enabled with hostNetwork needs an admin.address that Prometheus can reach, protected by a firewall" -}}
{{- end -}}
{{- if and (not $v.hostNetwork) $v.networkPolicy.enabled (not $v.networkPolicy.metricsFrom) -}}
{{- fail "serviceMonitor.enabled needs networkPolicy.metricsFrom with the pods of Prometheus, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- end -}}
{{- with $v.gatewayServices -}}
{{- if .type -}}
{{- if not $v.status.enabled -}}
{{- fail "gatewayServices.type needs status.enabled, because the holder of the Lease writes the Services" -}}
{{- end -}}
{{- if and .ownDataPlanes.enabled (ne $v.mode "split") -}}
{{- fail "gatewayServices.ownDataPlanes.enabled needs mode: split, because data planes of single Gateways have no rights in the cluster" -}}
{{- end -}}
{{- if and .ownDataPlanes.enabled $v.hostNetwork -}}
{{- fail "gatewayServices.ownDataPlanes.enabled does not work with hostNetwork, because the data planes of two Gateways on one node would open the same ports" -}}
{{- end -}}
{{- if gt (int .firstPort) (int .lastPort) -}}
{{- fail "gatewayServices.lastPort is less than gatewayServices.firstPort" -}}
{{- end -}}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") -}}
{{- fail "gatewayServices.externalTrafficPolicy needs gatewayServices.type: LoadBalancer or NodePort" -}}
{{- end -}}
{{- if and .loadBalancerClass (ne .type "LoadBalancer") -}}
{{- fail "gatewayServices.loadBalancerClass needs gatewayServices.type: LoadBalancer" -}}
{{- end -}}
{{- else if .ownDataPlanes.enabled -}}
{{- fail "gatewayServices.ownDataPlanes.enabled needs gatewayServices.type" -}}
{{- end -}}
{{- end -}}
{{- if and $v.audit.enabled (not $v.analytics.database) -}}
{{- fail "audit.enabled needs analytics.database, such as postgres://USER@HOST:PORT/DATABASE?sslmode=require" -}}
{{- end -}}
{{- with $v.admissionWebhook -}}
{{- if and .enabled .certificate.secretName .certificate.certManager.enabled -}}
{{- fail "admissionWebhook.certificate.secretName names an own Secret, so certManager.enabled has no effect; write one of them" -}}
{{- end -}}
{{- if and .enabled (eq $v.mode "split") (has (int .port) (list (int $v.controlPlane.port) (int $v.admin.port))) -}}
{{- fail "admissionWebhook.port is also controlPlane.port or admin.port" -}}
{{- end -}}
{{- end -}}
{{- with $v.dashboard -}}
{{- if and .enabled (or .service.enabled .changes) (not .tokenSecret.name) -}}
{{- fail "dashboard.service.enabled and dashboard.changes need dashboard.tokenSecret.name, for the login" -}}
{{- end -}}
{{- end -}}
{{- $sitePorts := list -}}
{{- range (include "sluicegate.sites" . | fromYaml).sites }}{{ $sitePorts = append $sitePorts (int .port) }}{{ end -}}
{{- if eq $v.mode "split" -}}
{{- $sitePorts = concat $sitePorts (list (int $v.controlPlane.port) (int $v.admin.port)) -}}
{{- if $v.admissionWebhook.enabled }}{{ $sitePorts = append $sitePorts (int $v.admissionWebhook.port) }}{{ end -}}
{{- if ne (len $sitePorts) (len (uniq $sitePorts)) -}}
{{- fail (printf "two of dashboard.port, portal.port, controlPlane.port, admin.port and admissionWebhook.port are equal: %v" $sitePorts) -}}
{{- end -}}
{{- end -}}
{{- $ports := list (include "sluicegate.httpPort" . | int) (include "sluicegate.httpsPort" . | int) (int $v.admin.port) -}}
{{- if ne $v.mode "split" }}{{ $ports = concat $ports $sitePorts }}{{ end -}}
{{- if and $v.admissionWebhook.enabled (ne $v.mode "split") }}{{ $ports = append $ports (int $v.admissionWebhook.port) }}{{ end -}}
{{- range (include "sluicegate.furtherPorts" . | fromYaml).ports }}{{ if ne .protocol "UDP" }}{{ $ports = append $ports (int .port) }}{{ end }}{{ end -}}
{{- if $v.http3.enabled -}}
{{- range (include "sluicegate.furtherPorts" . | fromYaml).ports }}
{{- if and (eq .protocol "UDP") (eq (int .port) (int (include "sluicegate.httpsPort" $))) -}}
{{- fail (printf "extraPorts or ingressNginx.udp has the UDP port %d, which HTTP/3 uses (listen.https): choose another port, or set http3.enabled to false" (int .port)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if ne (len $ports) (len (uniq $ports)) -}}
{{- fail (printf "two of listen.http, listen.https, admin.port, admissionWebhook.port, dashboard.port, portal.port, extraPorts and ingressNginx.tcp have the same port: %v" $ports) -}}
{{- end -}}
{{- end -}}

{{/* The number of pods that may be unavailable, or must be available. */}}
{{- define "sluicegate.disruptions" -}}
{{- with .Values.podDisruptionBudget -}}
{{- if kindIs "invalid" .minAvailable | not -}}
minAvailable: {{ .minAvailable }}
{{- else -}}
maxUnavailable: {{ .maxUnavailable }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The rule of a NetworkPolicy that allows Prometheus. A node reaches its own pods without a rule. */}}
{{- define "sluicegate.metricsRule" -}}
{{- with .Values.networkPolicy.metricsFrom -}}
- from:
    {{- toYaml . | nindent 4 }}
  ports:
    - {port: {{ $.Values.admin.port }}, protocol: TCP}
{{- end -}}
{{- end -}}
