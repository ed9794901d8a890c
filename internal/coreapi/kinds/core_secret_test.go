package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestSecrets(t *testing.T) {
	const meta = "metadata: {name: a, namespace: ns}\n"
	kindtest.Refuses(t, []kindtest.Create{
		{"a token for no service account", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/service-account-token"),
			[]string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"TLS without a key", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/tls\nstringData: {tls.crt: x}"),
			[]string{"data[tls.key]: Required value"}},
		{"a docker config that is no JSON", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: hunter2}"),
			[]string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character...`}},
		{"an old docker config without its key", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/dockercfg"),
			[]string{"data[.dockercfg]: Required value"}},
		{"basic auth with neither", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/basic-auth"),
			[]string{"data[password]: Required value", "data[username]: Required value"}},
		{"basic auth with a password alone", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/basic-auth\nstringData: {password: ''}"), nil},
		{"ssh without a key", kindtest.Decode[corev1.Secret](t, meta+"type: kubernetes.io/ssh-auth\nstringData: {ssh-privatekey: ''}"),
			[]string{"data[ssh-privatekey]: Required value"}},
		{"a type of one's own", kindtest.Decode[corev1.Secret](t, meta+"type: example.com/anything"), nil},
	})
	kindtest.Changes(t, kindtest.Decode[corev1.Secret](t, meta+"type: example.com/a\nstringData: {k: v}\nimmutable: true"), map[string]kindtest.Change[*corev1.Secret]{
		"another type": {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
			[]string{`type: Invalid value: "Opaque": field is immutable`}},
		"data of an immutable one": {func(s *corev1.Secret) { s.Data = nil },
			[]string{"data: Forbidden: field is immutable when `immutable` is set"}},
	})
}
