package plugins

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// withAccounts returns the plugin with these accounts in storage and in its lister.
func withAccounts(t *testing.T, accounts ...*corev1.ServiceAccount) serviceAccount {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, account := range accounts {
		if err := indexer.Add(account); err != nil {
			t.Fatal(err)
		}
	}
	return serviceAccount{Accounts: corelisters.NewServiceAccountLister(indexer), Get: noAccount}
}

func noAccount(_ context.Context, _, name string) (*corev1.ServiceAccount, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccounts"), name)
}

func account(name string, change ...func(*corev1.ServiceAccount)) *corev1.ServiceAccount {
	a := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{}}}
	for _, f := range change {
		f(a)
	}
	return a
}

func accountPod(change ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	p.Spec.Containers = []corev1.Container{{Name: "a"}}
	for _, f := range change {
		f(p)
	}
	return p
}

func creation(p *corev1.Pod) admission.Attributes {
	return serviceAccountAttributes(p, nil, admission.Create, "")
}

func serviceAccountAttributes(p *corev1.Pod, old runtime.Object, operation admission.Operation, subresource string) admission.Attributes {
	return admission.NewAttributesRecord(p, old, corev1.SchemeGroupVersion.WithKind("Pod"), "ns", "p",
		corev1.SchemeGroupVersion.WithResource("pods"), subresource, operation, nil, false, nil)
}

func TestPodGetsServiceAccountTokenAndPullSecrets(t *testing.T) {
	p := accountPod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: "own", VolumeMounts: []corev1.VolumeMount{{Name: "mine", MountPath: mountPath}},
		})
	})
	plugin := withAccounts(t, account("default", func(a *corev1.ServiceAccount) {
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	}))
	if err := plugin.Admit(t.Context(), creation(p), nil); err != nil {
		t.Fatal(err)
	}
	if p.Spec.ServiceAccountName != "default" || p.Spec.DeprecatedServiceAccount != "default" {
		t.Errorf("account = %q, %q, want default in both fields", p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount)
	}
	if diff := cmp.Diff([]corev1.LocalObjectReference{{Name: "pull"}}, p.Spec.ImagePullSecrets); diff != "" {
		t.Errorf("imagePullSecrets differ, want no difference: %s", diff)
	}
	if len(p.Spec.Volumes) != 1 || !strings.HasPrefix(p.Spec.Volumes[0].Name, "kube-api-access-") {
		t.Fatalf("volumes = %v, want one with the prefix kube-api-access-", p.Spec.Volumes)
	}
	if diff := cmp.Diff(tokenVolume(), p.Spec.Volumes[0].Projected); diff != "" {
		t.Errorf("the projected volume differs, want no difference: %s", diff)
	}
	mount := corev1.VolumeMount{Name: p.Spec.Volumes[0].Name, ReadOnly: true, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}
	for _, c := range []corev1.Container{p.Spec.InitContainers[0], p.Spec.Containers[0]} {
		if diff := cmp.Diff([]corev1.VolumeMount{mount}, c.VolumeMounts); diff != "" {
			t.Errorf("volumeMounts of %s differ, want no difference: %s", c.Name, diff)
		}
	}
	if mounts := p.Spec.Containers[1].VolumeMounts; len(mounts) != 1 || mounts[0].Name != "mine" {
		t.Errorf("volumeMounts of the container with a mount = %v, want only mine", mounts)
	}
	// A webhook with a reinvocation policy makes the plugins run again.
	again := p.DeepCopy()
	if err := plugin.Admit(t.Context(), creation(again), nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(p, again); diff != "" {
		t.Errorf("the second Admit changes the pod, want no difference: %s", diff)
	}
}

func TestAutomountSettingDecidesTokenVolume(t *testing.T) {
	no, yes := false, true
	for name, c := range map[string]struct {
		account, pod *bool
		mounted      bool
	}{
		"nobody says anything":      {mounted: true},
		"the account says no":       {account: &no},
		"the pod says no":           {account: &yes, pod: &no},
		"the pod overrules account": {account: &no, pod: &yes, mounted: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := accountPod(func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = c.pod })
			plugin := withAccounts(t, account("default", func(a *corev1.ServiceAccount) { a.AutomountServiceAccountToken = c.account }))
			if err := plugin.Admit(t.Context(), creation(p), nil); err != nil {
				t.Fatal(err)
			}
			if got := len(p.Spec.Volumes) == 1; got != c.mounted {
				t.Errorf("token volume is mounted = %v, want %v", got, c.mounted)
			}
		})
	}
}

func TestPodsWithDisallowedAccountOrSecretsAreRejected(t *testing.T) {
	strict := account("strict", func(a *corev1.ServiceAccount) {
		a.Annotations[enforceMountable] = "true"
		a.Secrets = []corev1.ObjectReference{{Name: "mine"}}
		a.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	})
	mirror := func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }
	as := func(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.ServiceAccountName = name } }
	volume := func(v corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: v}} }
	}
	secret := func(name string) func(*corev1.Pod) {
		return volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}})
	}
	env := func(name string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", ValueFrom: &corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
			}}}
		}
	}
	initFrom := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "i", EnvFrom: []corev1.EnvFromSource{{
			SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "other"}},
		}}}}
	}
	pull := func(p *corev1.Pod) { p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "other"}} }
	for name, c := range map[string]struct {
		pod     *corev1.Pod
		refused string
	}{
		"an account that is not there":         {accountPod(as("gone")), `error looking up service account ns/gone: serviceaccount "gone" not found`},
		"a mirror":                             {accountPod(mirror), ""},
		"a mirror with an account":             {accountPod(mirror, as("strict")), "a mirror pod may not reference service accounts"},
		"a mirror with a secret":               {accountPod(mirror, secret("mine")), "a mirror pod may not reference secrets"},
		"a mirror with a secret for iSCSI":     {accountPod(mirror, volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: &corev1.LocalObjectReference{Name: "s"}}})), "a mirror pod may not reference secrets"},
		"a mirror with a secret in a variable": {accountPod(mirror, env("mine")), "a mirror pod may not reference secrets"},
		"a mirror with a token": {accountPod(mirror, volume(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{}}},
		}})), "a mirror pod may not use ServiceAccountToken volume projections"},
		"a secret that the account lists":      {accountPod(as("strict"), secret("mine"), env("mine")), ""},
		"a volume that it does not list":       {accountPod(as("strict"), secret("other")), `volume with secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		"a variable that it does not list":     {accountPod(as("strict"), env("other")), `container a with envVar E referencing secret.secretName="other" is not allowed`},
		"an environment that it does not list": {accountPod(as("strict"), initFrom), `init container i with envFrom referencing secret.secretName="other" is not allowed`},
		"a pull secret that it does not list":  {accountPod(as("strict"), pull), `imagePullSecrets[0].name="other" is not allowed`},
		"the same with an account that is not": {accountPod(as("lax"), secret("other"), env("other"), pull), ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := c.pod.DeepCopy()
			err := withAccounts(t, strict, account("lax")).Admit(t.Context(), creation(c.pod), nil)
			switch {
			case c.refused == "" && err != nil:
				t.Errorf("Admit failed: %v, want no error", err)
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("Admit error = %v, want an error that contains %q", err, c.refused)
			}
			if isMirror(before) && !cmp.Equal(before, c.pod) {
				t.Error("Admit changed a mirror pod, want no change")
			}
		})
	}
}

func TestEphemeralContainersCannotUseOtherSecrets(t *testing.T) {
	strict := account("strict", func(a *corev1.ServiceAccount) { a.Annotations[enforceMountable] = "true" })
	p := accountPod(func(p *corev1.Pod) {
		p.Spec.ServiceAccountName = "strict"
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: "e", EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}}}},
		}}}
	})
	plugin := withAccounts(t, strict)
	err := plugin.Validate(t.Context(), serviceAccountAttributes(p, accountPod(), admission.Update, "ephemeralcontainers"), nil)
	if err == nil || !strings.Contains(err.Error(), "ephemeral container e with envFrom") {
		t.Error(err)
	}
	if err := plugin.Validate(t.Context(), serviceAccountAttributes(p, accountPod(), admission.Update, ""), nil); err != nil {
		t.Errorf("Validate of an update of the pod failed: %v, want no error", err)
	}
}

// A controller creates the account "default" after the namespace. Pods with that account wait for it. Pods with another
// account do not wait.
func TestPodWaitsOnlyForDefaultServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		plugin := withAccounts(t)
		plugin.Get = func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
			if asked++; asked < accountAttempts {
				return noAccount(ctx, namespace, name)
			}
			return account(name), nil
		}
		if err := plugin.Admit(t.Context(), creation(accountPod()), nil); err != nil {
			t.Errorf("Admit with the account default failed after %d lookups: %v, want no error", asked, err)
		}
		asked = 0
		if err := plugin.Admit(t.Context(), creation(accountPod(func(p *corev1.Pod) { p.Spec.ServiceAccountName = "other" })), nil); err == nil || asked != 1 {
			t.Errorf("Admit with another account: %d lookups, error = %v, want 1 lookup and an error", asked, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		asked = 0
		if err := plugin.Admit(ctx, creation(accountPod()), nil); err == nil || asked > 2 {
			t.Errorf("Admit of a canceled request: %d lookups, error = %v, want at most 2 lookups and an error", asked, err)
		}
	})
}
