package plugins

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	defaultAccount = "default"
	// enforceMountable is the annotation of an account that restricts its pods to the secrets that it lists.
	enforceMountable = "kubernetes.io/enforce-mountable-secrets"
	// accountAttempts is the number of lookups of the account "default". A controller creates it after the namespace, and one
	// command may create a namespace and a pod.
	accountAttempts = 10
)

// serviceAccount sets the service account of a pod, mounts its token, and refuses pods with an account that does not exist.
type serviceAccount struct {
	Accounts corelisters.ServiceAccountLister
	// Get reads an account that the lister does not have yet from storage.
	Get func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
}

var (
	_ admission.MutationInterface   = serviceAccount{}
	_ admission.ValidationInterface = serviceAccount{}
)

func (serviceAccount) Handles(operation admission.Operation) bool {
	return operation == admission.Create || operation == admission.Update
}

// Admit sets missing fields of a new pod.
func (p serviceAccount) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	pod := podOf(a)
	if pod == nil || a.GetOperation() != admission.Create {
		return nil
	}
	if isMirror(pod) { // a kubelet deletes a mirror pod that differs from its static pod
		return p.Validate(ctx, a, o)
	}
	if pod.Spec.ServiceAccountName == "" {
		pod.Spec.ServiceAccountName = defaultAccount
		pod.Spec.DeprecatedServiceAccount = defaultAccount
	}
	account, err := p.find(ctx, a, pod)
	if err != nil {
		return err
	}
	if mounts(account, pod) {
		mountToken(pod)
	}
	if len(pod.Spec.ImagePullSecrets) == 0 {
		pod.Spec.ImagePullSecrets = slices.Clone(account.ImagePullSecrets)
	}
	return p.Validate(ctx, a, o)
}

// Validate refuses a pod if its account does not exist, or if enforceMountable is set and the account does not list the pod's
// secrets.
func (p serviceAccount) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	pod := podOf(a)
	if pod == nil {
		return nil
	}
	ephemeral := a.GetSubresource() == "ephemeralcontainers"
	switch {
	case ephemeral && a.GetOperation() != admission.Update, !ephemeral && a.GetOperation() != admission.Create:
		return nil
	case !ephemeral && isMirror(pod):
		return checkMirror(a, pod)
	case pod.Spec.ServiceAccountName == "":
		return admission.NewForbidden(a, fmt.Errorf("no service account specified for pod %s/%s", a.GetNamespace(), pod.Name))
	}
	account, err := p.find(ctx, a, pod)
	if err != nil {
		return err
	}
	if enforced, err := strconv.ParseBool(account.Annotations[enforceMountable]); err != nil || !enforced {
		return nil
	}
	check := checkSecrets
	if ephemeral {
		check = checkEphemeral
	}
	if err := check(account, pod); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// podOf returns the pod of a request, or nil for requests that this plugin does not check.
func podOf(a admission.Attributes) *corev1.Pod {
	if a.GetResource().GroupResource() != corev1.Resource("pods") {
		return nil
	}
	if s := a.GetSubresource(); s != "" && s != "ephemeralcontainers" {
		return nil
	}
	pod, _ := a.GetObject().(*corev1.Pod)
	return pod
}

// isMirror reports whether the pod represents a static pod of a kubelet.
func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// mounts reports whether the token is mounted: the pod's setting, else the account's, else true.
func mounts(account *corev1.ServiceAccount, pod *corev1.Pod) bool {
	for _, wish := range []*bool{pod.Spec.AutomountServiceAccountToken, account.AutomountServiceAccountToken} {
		if wish != nil {
			return *wish
		}
	}
	return true
}

func (p serviceAccount) find(ctx context.Context, a admission.Attributes, pod *corev1.Pod) (*corev1.ServiceAccount, error) {
	name := pod.Spec.ServiceAccountName
	account, err := p.lookup(ctx, a.GetNamespace(), name)
	if err != nil {
		return nil, admission.NewForbidden(a, fmt.Errorf("error looking up service account %s/%s: %w", a.GetNamespace(), name, err))
	}
	return account, nil
}

func (p serviceAccount) lookup(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	account, err := p.Accounts.ServiceAccounts(namespace).Get(name)
	if !apierrors.IsNotFound(err) {
		return account, err
	}
	attempts := 1
	if name == defaultAccount {
		attempts = accountAttempts
	}
	pause := 100*time.Millisecond + rand.N(100*time.Millisecond)
	for i := range attempts {
		if i > 0 {
			if err := wait(ctx, pause); err != nil {
				return nil, err
			}
		}
		if account, err := p.Get(ctx, namespace, name); !apierrors.IsNotFound(err) {
			return account, err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name) // upstream's singular
}

func wait(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return errors.New("the request ended while the service account was waited for")
	}
}

const (
	volumePrefix = "kube-api-access-"
	mountPath    = "/var/run/secrets/kubernetes.io/serviceaccount"
	// expiration of tokens in seconds. Upstream's odd number marks the token as extendable for its issuer.
	expiration int64 = 60*60 + 7
)

// mountToken mounts the token into every container without another mount at that path.
func mountToken(pod *corev1.Pod) {
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return strings.HasPrefix(v.Name, volumePrefix) })
	there := at >= 0
	var name string
	if there {
		name = pod.Spec.Volumes[at].Name
	} else {
		name = names.SimpleNameGenerator.GenerateName(volumePrefix)
	}
	needed := false
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			c := &containers[i]
			if slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == mountPath }) {
				continue
			}
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, ReadOnly: true, MountPath: mountPath})
			needed = true
		}
	}
	if needed && !there {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{Projected: tokenVolume()},
		})
	}
}

// tokenVolume returns a volume with the files that client libraries expect: token, CA bundle and namespace.
func tokenVolume() *corev1.ProjectedVolumeSource {
	mode, seconds := corev1.ProjectedVolumeSourceDefaultMode, expiration
	return &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: &seconds}},
		{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
		}}}},
	}}
}
