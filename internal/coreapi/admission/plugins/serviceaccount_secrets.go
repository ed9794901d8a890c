package plugins

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"

	"portico.dev/internal/nodes/podrefs"
)

// checkMirror refuses service accounts and secrets in mirror pods, because the author of a static pod on a node was not
// authorized in the namespace.
func checkMirror(a admission.Attributes, pod *corev1.Pod) error {
	var problem error
	switch {
	case pod.Spec.ServiceAccountName != "":
		problem = errors.New("a mirror pod may not reference service accounts")
	case podrefs.Any(podrefs.Secrets(&pod.Spec)):
		problem = errors.New("a mirror pod may not reference secrets")
	case slices.ContainsFunc(pod.Spec.Volumes, projectsToken):
		problem = errors.New("a mirror pod may not use ServiceAccountToken volume projections")
	default:
		return nil
	}
	return admission.NewForbidden(a, problem)
}

func projectsToken(v corev1.Volume) bool {
	return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
		return s.ServiceAccountToken != nil
	})
}

// secretUse is a secret that a container refers to, and a description of the reference.
type secretUse struct{ how, secret string }

func secretsOf(c *corev1.Container) []secretUse {
	var all []secretUse
	for _, env := range c.Env {
		if env.ValueFrom != nil && env.ValueFrom.SecretKeyRef != nil {
			all = append(all, secretUse{"envVar " + env.Name + " referencing", env.ValueFrom.SecretKeyRef.Name})
		}
	}
	for _, from := range c.EnvFrom {
		if from.SecretRef != nil {
			all = append(all, secretUse{"envFrom referencing", from.SecretRef.Name})
		}
	}
	return all
}

// checkSecrets refuses secrets that the account does not list.
func checkSecrets(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for _, v := range pod.Spec.Volumes {
		if v.Secret != nil && !lists(account, v.Secret.SecretName) {
			return fmt.Errorf(`volume with secret.secretName="%s" is not allowed because service account %s does not reference that secret`, v.Secret.SecretName, account.Name)
		}
	}
	for i := range pod.Spec.InitContainers {
		if err := checkContainer("init container", &pod.Spec.InitContainers[i], account); err != nil {
			return err
		}
	}
	for i := range pod.Spec.Containers {
		if err := checkContainer("container", &pod.Spec.Containers[i], account); err != nil {
			return err
		}
	}
	for i, ref := range pod.Spec.ImagePullSecrets {
		if !slices.Contains(account.ImagePullSecrets, ref) {
			return fmt.Errorf(`imagePullSecrets[%d].name="%s" is not allowed because service account %s does not reference that imagePullSecret`, i, ref.Name, account.Name)
		}
	}
	return nil
}

func checkEphemeral(account *corev1.ServiceAccount, pod *corev1.Pod) error {
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if err := checkContainer("ephemeral container", &c, account); err != nil {
			return err
		}
	}
	return nil
}

func checkContainer(kind string, c *corev1.Container, account *corev1.ServiceAccount) error {
	for _, u := range secretsOf(c) {
		if !lists(account, u.secret) {
			return fmt.Errorf(`%s %s with %s secret.secretName="%s" is not allowed because service account %s does not reference that secret`,
				kind, c.Name, u.how, u.secret, account.Name)
		}
	}
	return nil
}

func lists(account *corev1.ServiceAccount, secret string) bool {
	return slices.ContainsFunc(account.Secrets, func(r corev1.ObjectReference) bool { return r.Name == secret })
}
