{{- define "cenote.image" -}}
{{- with .Values.image }}{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}{{ end }}
{{- end }}

{{- /* Credentials of an object store, for the gateway and the nodes. */}}
{{- define "cenote.storeCredentials" -}}
- name: AWS_ACCESS_KEY_ID
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.secretName }}, key: access-key, optional: true}
- name: AWS_SECRET_ACCESS_KEY
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.secretName }}, key: secret-key, optional: true}
- name: AWS_ENDPOINT_URL
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.secretName }}, key: endpoint, optional: true}
- name: AWS_DEFAULT_REGION
  valueFrom:
    secretKeyRef: {name: {{ .Values.store.secretName }}, key: region, optional: true}
{{- end }}

{{- define "cenote.privateCidrs" -}}
[{{ join ", " .Values.networkPolicies.privateCidrs }}]
{{- end }}
